import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pictures import picture, small_cache
from torch import Tensor
from torch.nn import functional

from idml.data.crops import centre_boxes, random_resized_boxes, resize_and_crop_boxes
from idml.data.pixels import Pixels, as_words, resampled


def naive_crop(image: np.ndarray, box: list[float], size: int, flip: bool) -> np.ndarray:
    """One pixel after another."""
    top, left, tall, wide = box
    height, width = image.shape[:2]
    crop = np.zeros((size, size, 3))
    for i in range(size):
        for j in range(size):
            y = min(max(top + (i + 0.5) * tall / size - 0.5, 0), height - 1)
            x = min(max(left + (j + 0.5) * wide / size - 0.5, 0), width - 1)
            y0, x0 = math.floor(y), math.floor(x)
            y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
            upper = image[y0, x0] + (x - x0) * (image[y0, x1].astype(float) - image[y0, x0])
            lower = image[y1, x0] + (x - x0) * (image[y1, x1].astype(float) - image[y1, x0])
            crop[i, size - 1 - j if flip else j] = upper + (y - y0) * (lower - upper)
    return crop


def held(images: list[np.ndarray]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Words, starts, heights and widths of images one after another."""
    words = as_words(torch.from_numpy(np.concatenate([image.reshape(-1) for image in images])))
    heights, widths = (torch.tensor([image.shape[side] for image in images]) for side in (0, 1))
    return words, (heights * widths).cumsum(0) - heights * widths, heights, widths


@given(
    shapes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6),
    size=st.integers(1, 7),
    data=st.data(),
)
def test_crops_equal_a_loop_over_pixels(shapes, size, data):
    images = [picture(height, width, seed) for seed, (height, width) in enumerate(shapes)]
    number = st.floats(-2, 11, width=32)
    boxes = [[data.draw(number), data.draw(number), data.draw(st.floats(0.5, 12, width=32)), 5.0] for _ in images]
    flip = [data.draw(st.booleans()) for _ in images]
    crops = resampled(*held(images), torch.tensor(boxes), size, flip=torch.tensor(flip), dtype=torch.float32)
    for crop, image, box, mirrored in zip(crops, images, boxes, flip, strict=True):
        expected = torch.from_numpy(naive_crop(image, box, size, mirrored)).movedim(2, 0)
        assert torch.allclose(255 * crop.double(), expected, atol=2e-3)


def test_a_box_of_whole_pixels_gives_them_exactly():
    images = [picture(12, 17, 0), picture(30, 11, 1)]
    boxes = torch.tensor([[3.0, 5.0, 9.0, 9.0], [21.0, 2.0, 9.0, 9.0]])
    crops = resampled(*held(images), boxes, 9)
    assert crops.dtype is torch.uint8
    assert np.array_equal(crops[0].movedim(0, 2).numpy(), images[0][3:12, 5:14])
    assert np.array_equal(crops[1].movedim(0, 2).numpy(), images[1][21:30, 2:11])
    mirrored = resampled(*held(images), boxes, 9, flip=torch.tensor([True, False]))
    assert torch.equal(mirrored[0], crops[0].flip(2))
    assert torch.equal(mirrored[1], crops[1])


def test_resizing_then_cropping_equals_torch():
    image = picture(20, 26)
    batch = torch.from_numpy(image).movedim(2, 0)[None].float()
    whole = functional.interpolate(batch, (16, 16), mode="bilinear", align_corners=False)
    words, starts, heights, widths = held([image])
    boxes = resize_and_crop_boxes(heights, widths, size=12, of=16, generator=torch.Generator().manual_seed(3))
    top, left = round(float(boxes[0, 0]) * 16 / 20), round(float(boxes[0, 1]) * 16 / 26)
    crop = resampled(words, starts, heights, widths, boxes, 12, dtype=torch.float32)
    assert torch.allclose(255 * crop, whole[:, :, top : top + 12, left : left + 12], atol=1e-2)


def test_what_is_compiled_gives_the_same_crops(monkeypatch):
    images = held([picture(12, 17, seed) for seed in range(6)])
    boxes = torch.tensor([[0.5, 1.0, 7.0, 9.0]]).repeat(6, 1)
    expected = resampled(*images, boxes, 9)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(resampled(*images, boxes, 9), expected)


def test_more_images_than_a_block_keep_their_order():
    images = [picture(5 + seed, 6, seed) for seed in range(11)]
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0]]).repeat(11, 1)
    crops = resampled(*held(images), boxes, 4)
    assert crops.is_contiguous(memory_format=torch.channels_last)
    for crop, image in zip(crops, images, strict=True):
        assert np.array_equal(crop.movedim(0, 2).numpy(), image[:4, :4])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return small_cache(tmp_path_factory.mktemp("pixels"))


def test_images_are_held_if_they_fit_and_crops_are_the_same_if_not(cache):
    rows = torch.tensor([7, 1, 2, 10, 4])
    held_there, mapped = Pixels.of(cache, rows), Pixels.of(cache, rows, budget=10)
    assert held_there.is_held
    assert not mapped.is_held
    places = torch.tensor([3, 0, 0, 4])
    heights, widths = held_there.sizes(places)
    boxes = random_resized_boxes(heights, widths, generator=torch.Generator().manual_seed(0))
    assert torch.equal(held_there.crops(places, boxes, 8), mapped.crops(places, boxes, 8))


def test_places_count_among_the_chosen_rows(cache):
    pixels = Pixels.of(cache, torch.tensor([7, 1]))
    places = torch.tensor([1])
    heights, widths = pixels.sizes(places)
    image = cache.image(1)
    assert (int(heights), int(widths)) == image.shape[:2]
    crop = pixels.crops(places, centre_boxes(heights, widths, size=14, of=16), 14)
    top, left = round((image.shape[0] - 14) / 2), round((image.shape[1] - 14) / 2)
    assert np.array_equal(crop[0].movedim(0, 2).numpy(), image[top : top + 14, left : left + 14])


def test_many_portions_join_up(cache, monkeypatch):
    rows, boxes = torch.arange(12), torch.tensor([[0.0, 0.0, 16.0, 16.0]]).repeat(12, 1)
    expected = Pixels.of(cache, rows).crops(rows, boxes, 16)
    monkeypatch.setattr("idml.data.pixels.PORTION", 1000)
    assert torch.equal(Pixels.of(cache, rows).crops(rows, boxes, 16), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_floating_point_crops_are_from_0_to_1(cache, dtype):
    pixels = Pixels.of(cache, torch.arange(12))
    boxes = torch.tensor([[0.0, 0.0, 16.0, 16.0]]).repeat(12, 1)
    crops = pixels.crops(torch.arange(12), boxes, 16, dtype=dtype)
    assert crops.dtype is dtype
    assert 0 <= crops.min() < 0.1
    assert 0.9 < crops.max() <= 1
