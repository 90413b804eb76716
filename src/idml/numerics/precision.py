"""Distances and losses are computed in float32 or better, whatever the backbone runs in."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor


def full_precision(device: torch.device) -> AbstractContextManager:
    """Autocast off. Entering `torch.autocast` costs as much as a small matrix product, so only if it is on."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def exact_products() -> Iterator[None]:
    """Products of float32 matrices in float32: TF32 and bfloat16, where a program allows them, keep three digits.

    Where they are exact anyway nothing is set: setting even the same value makes compiled code compile again.
    """
    allowed = torch.get_float32_matmul_precision()
    if allowed == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


def wide(tensor: Tensor) -> Tensor:
    """At least float32: half precision cannot hold the difference of two close embeddings."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()
