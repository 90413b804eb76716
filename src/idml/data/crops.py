"""Which part of each image the model sees: boxes (top, left, height, width), in pixels of the image.

Boxes are drawn for whole batches on the device of the sizes, without waiting for it, from an explicit
generator. With several ranks, draw them for the global batch and take the rank's slice: the
augmentation is then the same under any number of ranks.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from idml.data.batches import check_between, uniform

Sizes = Int[Tensor, " n"]
Boxes = Float[Tensor, "n 4"]
ATTEMPTS = 10  # as torchvision, before it falls back to the centre


def random_resized_boxes(
    heights: Sizes,
    widths: Sizes,
    *,
    scale: tuple[float, float] = (0.16, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    generator: torch.Generator | None = None,
) -> Boxes:
    """A share of the area, uniform in `scale`, with width / height log-uniform in `ratio`, anywhere in the image.

    As torchvision's RandomResizedCrop (Szegedy et al., CVPR 2015), in whole pixels: the first of ten
    draws that fits, or else the largest central box of an allowed ratio.
    """
    if not 0 < scale[0] <= scale[1]:
        raise ValueError(f"scale is {scale}: give the smallest and the largest share of the area, above 0.")
    if not 0 < ratio[0] <= ratio[1]:
        raise ValueError(f"ratio is {ratio}: give the smallest and the largest width / height, above 0.")
    height, width = heights.float(), widths.float()
    draw = uniform((4, ATTEMPTS, len(heights)), heights, generator)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draw[0])  # (attempts, n)
    proportion = torch.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * draw[1])
    tall, wide = (area / proportion).sqrt().round(), (area * proportion).sqrt().round()
    fits = (tall >= 1) & (tall <= height) & (wide >= 1) & (wide <= width)
    boxes = torch.stack(
        [_whole(draw[2], height - tall), _whole(draw[3], width - wide), tall, wide], dim=-1
    )  # (attempts, n, 4)
    first = fits.int().argmax(dim=0)
    chosen = boxes[first, torch.arange(len(heights), device=heights.device)]
    return torch.where(fits.any(dim=0)[:, None], chosen, _central_boxes(height, width, ratio))


def resize_and_crop_boxes(
    heights: Sizes, widths: Sizes, *, size: int = 224, of: int = 256, generator: torch.Generator | None = None
) -> Boxes:
    """A random size × size window of the image as if resized to a square of × of (IDML's protocol)."""
    _check_window(size, of)
    draw = uniform((2, len(heights)), heights, generator)
    top, left = _whole(draw, torch.full_like(draw, of - size))
    tall, wide = heights / of, widths / of  # pixels of the image under one of the square
    return torch.stack([top * tall, left * wide, size * tall, size * wide], dim=1)


def centre_boxes(heights: Sizes, widths: Sizes, *, size: int = 224, of: int = 256) -> Boxes:
    """The central size × size window of the image as if its short side were resized to `of`: test time.

    In whole pixels, so exact, where the short side is `of` already.
    """
    _check_window(size, of)
    pixel = torch.minimum(heights, widths) / of
    top = ((heights / pixel - size) / 2).round() * pixel
    left = ((widths / pixel - size) / 2).round() * pixel
    return torch.stack([top, left, size * pixel, size * pixel], dim=1)


def random_flips(like: Sizes, *, rate: float = 0.5, generator: torch.Generator | None = None) -> Bool[Tensor, " n"]:
    """Which images are mirrored, left to right; one answer for each entry of `like`, on its device."""
    check_between("rate", rate, 0.0, 1.0)
    return uniform((len(like),), like, generator) < rate


def _central_boxes(height: Float[Tensor, " n"], width: Float[Tensor, " n"], ratio: tuple[float, float]) -> Boxes:
    proportion = (width / height).clamp(*ratio)
    tall = torch.minimum(height, (width / proportion).round())
    wide = torch.minimum(width, (height * proportion).round())
    return torch.stack([((height - tall) / 2).floor(), ((width - wide) / 2).floor(), tall, wide], dim=1)


def _whole(draw: Float[Tensor, "*shape"], highest: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """A whole number from 0 to `highest` from one in [0, 1); rounding may not lead beyond it."""
    return torch.minimum((draw * (highest + 1)).floor(), highest)


def _check_window(size: int, of: int) -> None:
    if not 1 <= size <= of:
        raise ValueError(f"a crop of {size} out of {of} pixels: give a size from 1 to {of}.")
