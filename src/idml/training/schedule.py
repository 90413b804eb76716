"""The optimiser's groups, and the learning rate at each moment: a function of time, with nothing to remember."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from idml.training.parts import OptimiserConfig


def optimiser_for(
    groups: Mapping[str, list[nn.Parameter]], config: OptimiserConfig, *, device: torch.device
) -> torch.optim.AdamW:
    """AdamW with a group for each part of the model that has parameters."""
    factors = {
        "backbone": 1.0,
        "semantic": config.head_factor,
        "uncertainty": config.uncertainty_factor,
        "proxies": config.proxy_factor,
    }
    parts = [
        {"params": parameters, "name": name, "peak": config.lr * factors[name], "lr": config.lr * factors[name]}
        for name, parameters in groups.items()
        if parameters
    ]
    return torch.optim.AdamW(parts, weight_decay=config.weight_decay, fused=device.type == "cuda")


def set_learning_rates(
    optimiser: torch.optim.Optimizer, config: OptimiserConfig, *, epoch: int, epochs: int, share: float
) -> None:
    """share: how much of the epoch is done, 0 to 1."""
    factor = 1.0
    if config.schedule == "step":
        factor = config.decay_factor ** (epoch // config.decay_epochs)
    elif config.schedule == "cosine":
        factor = (1 + math.cos(math.pi * (epoch + share) / epochs)) / 2
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor
