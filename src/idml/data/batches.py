"""What every operation on a batch of images needs: checks, and random numbers on the right device."""

import hashlib
from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def check_images(images: object) -> None:
    if not isinstance(images, Tensor) or images.ndim != 4:
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images are {shape}: give a batch of shape (images, channels, height, width).")
    if not (images.is_floating_point() or images.dtype is torch.uint8):
        raise ValueError(f"images have dtype {images.dtype}: give uint8 or a floating-point type.")


def check_between(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{name} is {value}: give a number from {lowest:g} to {highest:g}.")


def uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Float[Tensor, "*shape"]:
    """Numbers in [0, 1) on the device of `like`, drawn where the generator lives."""
    source = like.device if generator is None else generator.device
    return sent(torch.rand(shape, generator=generator, device=source), like.device)


def sent(values: Shaped[Tensor, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """The same on the device, without waiting for what it is busy with; a plain `.to` would."""
    if values.device == device:
        return values
    from_host = values.device.type == "cpu" and device.type == "cuda"
    return (values.pin_memory() if from_host else values).to(device, non_blocking=from_host)


def seeded(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for these numbers, (seed, epoch, batch) for instance; other numbers give an unrelated one."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def in_float(images: Shaped[Tensor, "n c h w"], change: Callable[[Tensor], Tensor]) -> Shaped[Tensor, "n c h w"]:
    """Apply `change` in floating point; uint8 images come back as uint8, rounded."""
    if images.is_floating_point():
        return change(images)
    return change(images.float()).round().clamp(0, 255).to(images.dtype)
