"""What becomes of an image before the backbone sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from idml.data.batches import check_images
from idml.errors import unknown_name, values_can_be_read

RESIZE_BY_SIZE = 256 / 224  # the custom of the field: short side 256, centre crop 224
BLACK, WHITE = -0.5, 1.5  # beyond these, floats are not in 0..1, even after a filter that overshoots


def resized(size: int) -> int:
    """What the short side of an image is resized to before a crop of `size` is cut out of it.

    >>> resized(224)
    256
    """
    return round(size * RESIZE_BY_SIZE)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The short side is resized to `resize` pixels, the central square of `size` pixels is cut out of it,
    and each channel, in 0..1, has `mean` taken off and is divided by `std`.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    size: int
    resize: int

    def __post_init__(self):
        for name in ("mean", "std"):
            if len(getattr(self, name)) != 3:
                raise ValueError(f"{name} is {getattr(self, name)}: give one number for red, green and blue each.")
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std}: give numbers above 0.")
        if not 1 <= self.size <= self.resize:
            raise ValueError(f"size is {self.size} and resize {self.resize}: a crop is at least 1, and fits inside.")

    @classmethod
    def for_size(cls, size: int, *, mean: tuple[float, float, float], std: tuple[float, float, float]) -> Preprocessing:
        """With the usual margin around the crop: see `resized`."""
        return cls(mean=mean, std=std, size=size, resize=resized(size))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("field of the preprocessing", name, known)
        for name in known:
            if name not in values:
                raise ValueError(f"a preprocessing without {name!r}: give {', '.join(known)}.")
        return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})


class Normalise(nn.Module):
    """Images in uint8, or floats in 0..1, to what the backbone was trained on, in the backbone's precision."""

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessing: Preprocessing):
        super().__init__()
        for name in ("mean", "std"):  # saved with the preprocessing, not with the weights
            values = torch.tensor(getattr(preprocessing, name)).view(3, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def forward(self, images: Shaped[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
        _check(images)
        in_shares = images.to(self.mean.dtype) / (1 if images.is_floating_point() else 255)
        return (in_shares - self.mean) / self.std


def _check(images: Tensor) -> None:
    check_images(images)
    if images.shape[1] != 3:
        raise ValueError(f"images have shape {tuple(images.shape)}: give 3 channels, red, green and blue.")
    if not images.is_floating_point() or not values_can_be_read(images) or images.numel() == 0:
        return
    darkest, brightest = (float(extreme) for extreme in images.detach().aminmax())
    if darkest < BLACK or brightest > WHITE:
        raise ValueError(
            f"images range from {darkest:.3g} to {brightest:.3g}: give uint8, or floats in 0..1 that are not "
            "normalised, for the model does that itself."
        )
