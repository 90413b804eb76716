import json

import numpy as np
import pytest
import torch
from pictures import class_folders, small_cache
from PIL import Image

from idml.data.cache import INDEX, META, PIXELS, Cache, is_cache, warning_about
from idml.data.prepare import prepare


@pytest.fixture
def cache(tmp_path):
    return small_cache(tmp_path, classes=3)


def test_a_cache_holds_every_image_with_its_class(cache):
    assert len(cache) == 9
    assert cache.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert cache.class_names == ["class0", "class1", "class2"]
    assert cache.names[4] == "class1/1.png"
    assert cache.splits == ["train"]
    assert torch.equal(cache.rows("train"), torch.arange(9))


def test_images_come_back_as_they_were(tmp_path):
    cache = small_cache(tmp_path)
    source = np.asarray(Image.open(tmp_path / "images" / "class1" / "2.png"))
    assert source.shape[1] == 17 and source.shape[0] == 16  # noqa: PT018 (a short side of 16 is untouched)
    assert np.array_equal(cache.image(5), source)


def test_an_unknown_split_is_named(cache):
    with pytest.raises(ValueError, match="unknown split of .* 'test'.* Known: train"):
        cache.rows("test")


def test_a_whole_cache_passes_its_check(cache):
    told = []
    cache.verify(progress=lambda stage, share: told.append((stage, share)))
    assert told[-1] == ("verifying", 1.0)


def test_changed_pixels_are_found_and_named(cache):
    with (cache.folder / PIXELS).open("r+b") as file:
        file.seek(int(cache.index.offsets[4]) + 1)
        file.write(b"\0\1\2\3")
    with pytest.raises(ValueError, match=r"is damaged: the pixels of 1 image \(class1/1.png\) changed"):
        Cache.open(cache.folder).verify()


def spoil_version(folder):
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps(meta | {"format": 99}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / META).unlink(), "no finished cache"),
        (lambda folder: (folder / META).write_text("{"), "damaged: meta.json is not what"),
        (lambda folder: (folder / META).write_text('{"format": 1}'), "damaged: meta.json is not what"),
        (spoil_version, "has format 99, and this idml reads 1"),
        (lambda folder: (folder / INDEX).write_bytes(b"x"), "index.safetensors does not match its checksum"),
        (lambda folder: (folder / INDEX).unlink(), "index.safetensors does not match its checksum"),
        (lambda folder: (folder / PIXELS).write_bytes(b"x"), "pixels.bin has 1 bytes where"),
        (lambda folder: (folder / PIXELS).unlink(), "pixels.bin has 0 bytes where"),
    ],
)
def test_a_damaged_cache_says_what_is_wrong(spoil, message, cache):
    spoil(cache.folder)
    with pytest.raises(ValueError, match=message):
        Cache.open(cache.folder)


def test_what_is_no_cache_is_told(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        Cache.open(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no finished cache: make one with `idml prepare`"):
        Cache.open(class_folders(tmp_path / "images"))


def test_crops_that_would_differ_from_those_of_files_are_warned_about(tmp_path):
    images = class_folders(tmp_path / "images")
    whole, square = (
        prepare(images, tmp_path / str(is_square), size=32, square=is_square) for is_square in (False, True)
    )
    assert warning_about(whole, 32) is None
    assert warning_about(whole, 22) is None
    assert "a short side of 32 pixels where 16 are needed" in (warning_about(whole, 16) or "")
    assert "distorted to squares" in (warning_about(square, 32) or "")


def test_a_file_of_another_program_makes_no_cache_of_photos(tmp_path):
    photos = class_folders(tmp_path / "photos")
    (photos / META).write_text('{"album": "birds"}')
    assert not is_cache(photos)
    with pytest.raises(ValueError, match="holds no finished cache: make one with `idml prepare`"):
        Cache.open(photos)
