import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from pictures import class_folders, save

from idml.data.cache import PIXELS, Cache
from idml.data.journal import JOURNAL, Journal
from idml.data.prepare import prepare


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def unfinished(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.unfinished")


class StopHereError(Exception):
    """Raised from within, as a user's interrupt is."""


def interrupt_after(share: float):
    def progress(stage: str, done: float) -> None:
        if stage == "decoding" and done >= share:
            raise StopHereError

    return progress


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.setattr("idml.data.prepare.CHUNK", 2)
    return class_folders(tmp_path / "images")


def test_the_number_of_processes_changes_nothing(images, tmp_path, monkeypatch):
    prepare(images, tmp_path / "none", size=16)
    monkeypatch.setattr("idml.data.prepare.FEW", 0)
    for workers in (1, 3):
        prepare(images, tmp_path / str(workers), size=16, workers=workers)
    assert content(tmp_path / "none") == content(tmp_path / "1") == content(tmp_path / "3")
    assert not unfinished(tmp_path / "1").exists()
    Cache.open(tmp_path / "3").verify()


def test_square_images_have_one_size(images, tmp_path):
    cache = prepare(images, tmp_path / "cache", size=12, square=True)
    assert {cache.image(row).shape for row in range(len(cache))} == {(12, 12, 3)}
    assert np.array_equal(cache.index.offsets, 12 * 12 * 3 * np.arange(12))


def test_progress_is_told(images, tmp_path):
    told = []
    prepare(images, tmp_path / "cache", size=16, progress=lambda stage, share: told.append((stage, share)))
    assert told[0][0] == "decoding"
    assert told[-1] == ("decoding", 1.0)
    assert [share for _, share in told] == sorted(share for _, share in told)


def cut_a_line(folder: Path) -> None:
    journal = folder / JOURNAL
    journal.write_text(journal.read_text()[:-5])


def add_pixels(folder: Path) -> None:
    with (folder / PIXELS).open("ab") as file:
        file.write(b"more")


def change_a_pixel(folder: Path) -> None:
    pixels = bytearray((folder / PIXELS).read_bytes())
    pixels[len(pixels) // 2] ^= 1
    (folder / PIXELS).write_bytes(pixels)


DAMAGES = {
    "nothing": lambda _: None,
    "half a line": cut_a_line,
    "lost pixels": lambda folder: os.truncate(folder / PIXELS, 1000),
    "pixels without a line": add_pixels,
    "a changed pixel": change_a_pixel,
    "no journal": lambda folder: (folder / JOURNAL).unlink(),
    "an empty journal": lambda folder: (folder / JOURNAL).write_text(""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_interrupted_run_goes_on_to_the_same_bytes(damage, images, tmp_path):
    prepare(images, tmp_path / "whole", size=16)
    with pytest.raises(StopHereError):
        prepare(images, tmp_path / "cache", size=16, progress=interrupt_after(0.5))
    assert not (tmp_path / "cache").exists()
    DAMAGES[damage](unfinished(tmp_path / "cache"))
    told = []
    prepare(images, tmp_path / "cache", size=16, progress=lambda stage, share: told.append((stage, share)))
    assert content(tmp_path / "cache") == content(tmp_path / "whole")
    if damage == "nothing":
        assert next(share for stage, share in told if stage == "decoding") > 0.5  # not from the beginning


KILLED = """
import sys, time
from idml.data.prepare import prepare
prepare(sys.argv[1], sys.argv[2], size=16, workers=2, progress=lambda stage, share: time.sleep(0.1))
"""


def test_a_killed_run_goes_on_to_the_same_bytes_and_leaves_no_processes(tmp_path):
    images, folder = class_folders(tmp_path / "images", classes=16, per_class=20), tmp_path / "cache"
    prepare(images, tmp_path / "whole", size=16)
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(images), str(folder)])
    journal = unfinished(folder) / JOURNAL
    deadline = time.monotonic() + 60
    while not journal.exists() or len(journal.read_text().splitlines()) < 40:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    decoders = children.read_text().split() if children.exists() else []
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(journal.read_text().splitlines()) - 1
    assert 0 < done < 320
    prepare(images, folder, size=16)
    assert content(folder) == content(tmp_path / "whole")
    assert not any(is_running(decoder) for decoder in decoders)


def is_running(process: str) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_finished_cache_is_used_again_at_once(images, tmp_path, monkeypatch):
    prepare(images, tmp_path / "cache", size=16)
    monkeypatch.setattr("idml.data.prepare.decode_stored", None)
    assert len(prepare(images, tmp_path / "cache", size=16)) == 12


@pytest.mark.parametrize("options", [{"size": 20}, {"size": 16, "square": True}, {"size": 16, "test_share": 0.5}])
def test_another_cache_in_the_same_place_is_not_replaced_unasked(options, images, tmp_path):
    folder = tmp_path / "cache"
    prepare(images, folder, size=16)
    with pytest.raises(ValueError, match=r"holds another cache \(a folder per class, 12 images, a short side of 16"):
        prepare(images, folder, **options)
    prepare(images, folder, **options, overwrite=True)
    prepare(images, tmp_path / "fresh", **options)
    assert content(folder) == content(tmp_path / "fresh")


def test_more_images_in_the_source_are_another_cache(images, tmp_path):
    prepare(images, tmp_path / "cache", size=16)
    save(images / "class0" / "new.png")
    with pytest.raises(ValueError, match="holds another cache"):
        prepare(images, tmp_path / "cache", size=16)


def test_a_folder_with_other_things_is_left_alone(images):
    with pytest.raises(ValueError, match="exists and is no cache"):
        prepare(images, images, size=16, overwrite=True)


def test_an_unfinished_run_under_other_options_starts_over(images, tmp_path):
    with pytest.raises(StopHereError):
        prepare(images, tmp_path / "cache", size=20, progress=interrupt_after(0.5))
    prepare(images, tmp_path / "cache", size=16)
    prepare(images, tmp_path / "fresh", size=16)
    assert content(tmp_path / "cache") == content(tmp_path / "fresh")


def spoil(images: Path) -> None:
    (images / "class1" / "0.png").write_bytes(b"nothing")
    cut = images / "class2" / "1.png"
    cut.write_bytes(cut.read_bytes()[:-100])


def test_all_images_that_cannot_be_read_are_listed(images, tmp_path):
    spoil(images)
    with pytest.raises(ValueError, match=r"2 of 12 images cannot be read") as error:
        prepare(images, tmp_path / "cache", size=16)
    assert "class1/0.png: it is no image" in str(error.value)
    assert "class2/1.png: " in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_images_that_cannot_be_read_are_left_out_if_asked(images, tmp_path):
    spoil(images)
    with pytest.raises(ValueError, match="cannot be read"):
        prepare(images, tmp_path / "cache", size=16)
    cache = prepare(images, tmp_path / "cache", size=16, skip_bad=True)
    assert [name for name, _ in cache.meta.skipped] == ["class1/0.png", "class2/1.png"]
    assert len(cache) == 10
    cache.verify()
    prepare(images, tmp_path / "fresh", size=16, skip_bad=True)
    assert content(tmp_path / "fresh") == content(tmp_path / "cache")
    with pytest.raises(ValueError, match="2 of 12 images cannot be read"):
        prepare(images, tmp_path / "cache", size=16)


def test_a_mended_image_is_read_the_next_time(images, tmp_path):
    spoil(images)
    with pytest.raises(ValueError, match="cannot be read"):
        prepare(images, tmp_path / "cache", size=16)
    for name in ("class1/0.png", "class2/1.png"):
        save(images / name, seed=99)
    assert len(prepare(images, tmp_path / "cache", size=16)) == 12
    prepare(images, tmp_path / "fresh", size=16)
    assert content(tmp_path / "fresh") == content(tmp_path / "cache")


def test_nothing_readable_is_no_cache(tmp_path):
    path = tmp_path / "images" / "a" / "0.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="none of the 1 images can be read"):
        prepare(tmp_path / "images", tmp_path / "cache", skip_bad=True)


def test_a_full_disk_is_told_and_the_work_is_kept(images, tmp_path, monkeypatch):
    append = Journal.append

    def is_full_at_last(journal, decoded):
        if len(journal.lines) >= 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(journal, decoded)

    monkeypatch.setattr(Journal, "append", is_full_at_last)
    with pytest.raises(
        ValueError, match="is full after 6 of 12 images: free some space and run the same command again"
    ):
        prepare(images, tmp_path / "cache", size=16)
    monkeypatch.undo()
    kept = (unfinished(tmp_path / "cache") / JOURNAL).read_text().splitlines()
    assert len(kept) == 1 + 6
    assert len(prepare(images, tmp_path / "cache", size=16)) == 12


def test_two_runs_do_not_write_to_one_folder(images, tmp_path):
    folder = unfinished(tmp_path / "cache")
    with (
        Journal(folder, "", [], keep_problems=False, progress=lambda *_: None),
        pytest.raises(ValueError, match="another `idml prepare` is writing"),
    ):
        prepare(images, tmp_path / "cache", size=16)


def test_a_share_of_the_classes_becomes_the_test_split(images, tmp_path):
    cache = prepare(images, tmp_path / "cache", size=16, test_share=0.5)
    train, test = (set(cache.labels[cache.rows(split)].tolist()) for split in ("train", "test"))
    assert len(train) == len(test) == 2
    assert not train & test


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"kind": "fodler"}, "did you mean 'folder'"),
        ({"test_share": 2.0}, "test_share is 2.0"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_mistakes_are_told_before_any_work(options, message, images, tmp_path):
    with pytest.raises(ValueError, match=message):
        prepare(images, tmp_path / "cache", **options)
    assert not unfinished(tmp_path / "cache").exists()


def test_splits_of_the_source_are_not_overruled(tmp_path):
    for split in ("train", "test"):
        class_folders(tmp_path / "images" / split)
    with pytest.raises(ValueError, match="has the splits test, train of its own"):
        prepare(tmp_path / "images", tmp_path / "cache", test_share=0.5)


def test_meta_tells_what_it_was_made_of(images, tmp_path):
    prepare(images, tmp_path / "cache", size=16)
    meta = json.loads((tmp_path / "cache" / "meta.json").read_text())
    assert meta["kind"] == "folder"
    assert meta["place"] == str(images)
    assert (meta["size"], meta["square"], meta["images"], meta["skipped"]) == (16, False, 12, [])


def test_changed_images_of_the_same_length_are_another_cache(tmp_path):
    path = tmp_path / "images" / "a" / "0.ppm"
    save(path, seed=0)
    save(path.with_name("1.ppm"), seed=1)
    prepare(tmp_path / "images", tmp_path / "cache", size=16)
    length = path.stat().st_size
    save(path, seed=2)
    assert path.stat().st_size == length
    with pytest.raises(ValueError, match="holds another cache .* or images have changed since"):
        prepare(tmp_path / "images", tmp_path / "cache", size=16)


def test_a_folder_or_a_tar_that_was_moved_is_known_again(images, tmp_path):
    prepare(images, tmp_path / "cache", size=16)
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        archive.add(images, ".")
    prepare(tmp_path / "images.tar", tmp_path / "of tar", size=16)
    (tmp_path / "elsewhere").mkdir()
    for name in ("images", "images.tar"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    os.utime(tmp_path / "elsewhere" / "images.tar")  # the times inside it count
    assert len(prepare(tmp_path / "elsewhere" / "images", tmp_path / "cache", size=16)) == 12
    assert len(prepare(tmp_path / "elsewhere" / "images.tar", tmp_path / "of tar", size=16)) == 12


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_in_utf8_is_told(images, tmp_path):
    place = os.path.join(os.fsencode(images), b"caf\xe9")  # noqa: PTH118 (a Path takes no bytes)
    os.rename(images / "class0", place)  # noqa: PTH104
    with pytest.raises(ValueError, match=r"the name b'caf\\xe9/0.png' is not in UTF-8: rename that file or folder"):
        prepare(images, tmp_path / "cache", size=16)
