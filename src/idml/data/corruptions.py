"""Images made ambiguous in other ways than mixing: low resolution, blur, occlusion (IDML, TPAMI 2023, table 7), crops.

Each takes a rate, the chance of an image to be corrupted, and a degree from 0 (unchanged) to 1
(nothing left to see), and works on whole batches on their own device.
"""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional

from idml.data.batches import check_between, check_images, in_float, uniform

Images = Shaped[Tensor, "n c h w"]
STRONGEST_BLUR = 0.1  # of the shorter side: the Gaussian's σ at degree 1
REACH = 3  # of its σ, beyond which a Gaussian is cut


def low_resolution(
    images: Images, *, rate: float = 1.0, degree: float = 0.5, generator: torch.Generator | None = None
) -> Images:
    """Shrink both sides to a share 1 − degree, at least one pixel, and enlarge again."""
    chosen = _choose(images, rate, degree, generator)
    size = tuple(images.shape[2:])
    smaller = tuple(max(1, round(side * (1 - degree))) for side in size)
    if smaller == size:
        return images

    def change(batch: Tensor) -> Tensor:
        shrunk = functional.interpolate(batch, smaller, mode="area")
        return functional.interpolate(shrunk, size, mode="bilinear", align_corners=False)

    return torch.where(chosen, in_float(images, change), images)


def blur(images: Images, *, rate: float = 1.0, degree: float = 0.5, generator: torch.Generator | None = None) -> Images:
    """Gaussian blur with σ = degree · 10 % of the shorter side, borders repeated."""
    chosen = _choose(images, rate, degree, generator)
    sigma = degree * STRONGEST_BLUR * min(images.shape[2:])
    if sigma == 0:
        return images
    radius = max(1, math.ceil(REACH * sigma))
    offset = torch.arange(-radius, radius + 1, device=images.device, dtype=torch.float32)
    kernel = torch.softmax(-offset.square() / (2 * sigma**2), dim=0)

    def change(batch: Tensor) -> Tensor:
        channels = batch.shape[1]
        taps = kernel.to(batch.dtype).expand(channels, 1, -1)  # (c, 1, 2·radius + 1)
        padded = functional.pad(batch, (radius,) * 4, mode="replicate")
        along_rows = functional.conv2d(padded, taps[:, :, None, :], groups=channels)
        return functional.conv2d(along_rows, taps[:, :, :, None], groups=channels)

    return torch.where(chosen, in_float(images, change), images)


def occlusion(
    images: Images,
    *,
    rate: float = 1.0,
    degree: float = 0.25,
    fill: float = 0.0,
    generator: torch.Generator | None = None,
) -> Images:
    """Cover a share `degree` of the area with a rectangle of the image's own proportions, at a random place.

    fill: the rectangle's value; 0 is the mean colour of normalised images, and black otherwise.
    """
    chosen = _choose(images, rate, degree, generator)
    covered = []
    for side, place in zip(images.shape[2:], uniform((2, len(images)), images, generator), strict=True):
        length = round(side * math.sqrt(degree))
        first = (place * (side - length + 1)).floor()[:, None]
        pixel = torch.arange(side, device=images.device)
        covered.append((pixel >= first) & (pixel < first + length))
    rows, columns = covered
    is_covered = rows[:, None, :, None] & columns[:, None, None, :] & chosen
    return images.masked_fill(is_covered, fill)


def crop(images: Images, *, rate: float = 1.0, degree: float = 0.5, generator: torch.Generator | None = None) -> Images:
    """Enlarge a window with a share 1 − degree of the area, at least one pixel, from a random place.

    The window has the image's own proportions.
    """
    chosen = _choose(images, rate, degree, generator)
    size = tuple(images.shape[2:])
    smaller = tuple(max(1, round(side * math.sqrt(1 - degree))) for side in size)
    if smaller == size:
        return images
    rows, columns = (
        (place * (side - length + 1)).long()[:, None] + torch.arange(length, device=images.device)  # (n, length)
        for side, length, place in zip(size, smaller, uniform((2, len(images)), images, generator), strict=True)
    )
    image = torch.arange(len(images), device=images.device)[:, None, None]

    def change(batch: Tensor) -> Tensor:
        window = batch.movedim(1, 3)[image, rows[:, :, None], columns[:, None, :]].movedim(3, 1)
        return functional.interpolate(window, size, mode="bilinear", align_corners=False)

    return torch.where(chosen, in_float(images, change), images)


def _choose(images: Images, rate: float, degree: float, generator: torch.Generator | None) -> Shaped[Tensor, "n 1 1 1"]:
    check_images(images)
    check_between("rate", rate, 0.0, 1.0)
    check_between("degree", degree, 0.0, 1.0)
    return uniform((len(images), 1, 1, 1), images, generator) < rate
