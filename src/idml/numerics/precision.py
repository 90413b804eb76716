"""Distances and losses are computed in float32 or better, whatever the backbone runs in."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(device: torch.device) -> AbstractContextManager:
    """Autocast off. Entering `torch.autocast` costs as much as a small matrix product, so only if it is on."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def wide(tensor: Tensor) -> Tensor:
    """At least float32: half precision cannot hold the difference of two close embeddings."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()
