import sys
from pathlib import Path

import pytest
from pictures import class_folders

from idml.cli.embed import found_images
from idml.evaluation.embedded import Embedded
from idml.models.embedder import Embedder


def test_files_that_macos_leaves_are_not_embedded(tmp_path):
    images = class_folders(tmp_path)
    (images / "class0" / "._0.png").write_bytes(b"resource fork")
    assert len(found_images([images])) == 12


def test_a_list_of_images_may_begin_with_a_byte_order_mark_and_must_be_in_utf8(tmp_path):
    image = class_folders(tmp_path) / "class0" / "0.png"
    (tmp_path / "list.txt").write_text(f"{image}\n", encoding="utf-8-sig")
    assert found_images([tmp_path / "list.txt"]) == [image]
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.png\n")
    with pytest.raises(ValueError, match=r"list.txt is not in UTF-8: save it as such"):
        found_images([tmp_path / "list.txt"])


def test_parquet_needs_pyarrow_and_says_so_before_any_work(idml, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("idml.cli.embed.found_images", None)
    code, _, errors = idml("embed", Path("model"), class_folders(tmp_path), "--output", "rows.parquet")
    assert code == 1
    assert ".parquet needs pyarrow: pip install 'idml[parquet]'" in errors


def test_images_that_cannot_be_read_stop_it_or_are_left_out(idml, tmp_path):
    images = class_folders(tmp_path / "photos")
    (images / "class1" / "0.png").write_bytes(b"no image")
    Embedder("test_resnet", 6, 2, image_size=32).save(tmp_path / "model")
    words = ("embed", tmp_path / "model", images, "--output", tmp_path / "found.npz", "--batch", "1")
    code, _, errors = idml(*words)
    assert code == 1
    assert "class1/0.png cannot be read" in errors
    assert "(--skip-bad)" in errors
    code, output, _ = idml(*words, "--skip-bad")
    assert code == 0
    assert "left out 1 image (" in output
    found = Embedded.load(tmp_path / "found.npz")
    assert len(found.labels) == len(found.embedding) == 11
    assert found.images is not None
    assert not any(name.endswith("class1/0.png") for name in found.images)


def test_where_no_image_can_be_read_nothing_is_written(idml, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    Embedder("test_resnet", 6, 2, image_size=32).save(tmp_path / "model")
    code, _, errors = idml("embed", tmp_path / "model", tmp_path, "--output", tmp_path / "found.npz", "--skip-bad")
    assert code == 1
    assert "none of the 1 files can be read" in errors
    assert not (tmp_path / "found.npz").exists()
