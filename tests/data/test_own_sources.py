"""What people have of their own, and how it goes wrong: folders, tables and tars."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest
from pictures import class_folders, save

from idml.data.sources import find_source, folders, tables, tars


def tar_of(images: Path, path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(images, ".")
    return path


def test_folders_beside_splits_are_refused_with_the_names_that_are_known(tmp_path):
    for split in ("train", "val", "test"):
        class_folders(tmp_path / split, classes=2)
    with pytest.raises(ValueError, match=r"has splits \(test, train\) and beside them 1 folder \(val\)") as error:
        folders.records(tmp_path)
    assert "splits are called train, test, query, gallery. Move the rest into train, or away." in str(error.value)


def test_folders_without_images_may_lie_beside_splits(tmp_path):
    class_folders(tmp_path / "train", classes=2)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "about.txt").write_text("not an image")
    assert {record.class_name for record in folders.records(tmp_path)} == {"class0", "class1"}


def test_a_class_may_be_called_train(tmp_path):
    for vehicle in ("bus", "train"):
        save(tmp_path / vehicle / "0.png")
    assert [(record.class_name, record.split) for record in folders.records(tmp_path)] == [
        ("bus", "train"),
        ("train", "train"),
    ]


def test_links_to_nowhere_are_named(tmp_path):
    link = class_folders(tmp_path) / "class1" / "away.png"
    link.symlink_to(tmp_path / "nothing.png")
    with pytest.raises(ValueError, match=r"holds 1 link \(class1/away.png\) to nowhere: mend or remove"):
        folders.records(tmp_path)
    link.unlink()
    (tmp_path / "class9").symlink_to(tmp_path / "nothing")
    with pytest.raises(ValueError, match="class9 is a link to nowhere: mend or remove it"):
        folders.records(tmp_path)


def test_a_tar_beside_folders_of_images_is_no_shard(tmp_path):
    images = class_folders(tmp_path / "photos")
    tar_of(images, images / "backup.tar")
    assert find_source(images) == "folder"
    assert find_source(images / "backup.tar") == "tar"


def test_a_folder_of_tars_needs_images_in_them(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "about.txt").write_text("not an image")
    tar_of(tmp_path / "notes", tmp_path / "notes.tar")
    with pytest.raises(ValueError, match="holds no dataset that is known"):
        find_source(tmp_path)
    assert find_source(tmp_path / "notes.tar") == "tar"
    with pytest.raises(ValueError, match="holds no images named class/name"):
        tars.records(tmp_path / "notes.tar")


def test_files_that_macos_leaves_are_no_images(tmp_path):
    images = class_folders(tmp_path / "photos")
    (images / "class0" / "._0.png").write_bytes(b"resource fork")
    assert Counter(record.class_name for record in folders.records(images))["class0"] == 3
    assert len(tars.records(tar_of(images, tmp_path / "photos.tar"))) == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label\nclass0/0.png,caf\xe9\n".encode("latin-1"), r"list.csv is not in UTF-8: save it as such"),
        (b'path,label\nclass0/0.png,"cat\n' + 20_000 * b"class0/0.png,cat\n", r"list.csv, line \d+: field larger"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(content, message, tmp_path):
    class_folders(tmp_path)
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        tables.records(tmp_path / "list.csv")
