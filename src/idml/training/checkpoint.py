"""A run that can be killed at any moment and goes on as if it had not been.

Everything random in a step follows from the seed and the step's number, so a checkpoint needs no
generator: weights, optimiser, and where the run stands.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from idml.atomic import writing
from idml.training import distributed
from idml.training.averaging import Average

LAST, BEST = "last.pt", "best.pt"


class Place(NamedTuple):
    """Where a run stands: the epoch, the batch inside it, steps in all, and the best validation score so far."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best_score: float = -1.0
    best_epoch: int = -1


def save(
    path: Path,
    place: Place,
    model: nn.Module,
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: Average | None = None,
) -> None:
    """Written by the first rank only, whole or not at all."""
    if not distributed.is_first():
        return
    state = {
        "place": place._asdict(),
        "model": model.state_dict(),
        "objective": objective.state_dict(),
        "optimiser": optimiser.state_dict(),
        "average": None if average is None else average.state_dict(),
    }
    with writing(path) as unfinished:
        torch.save(state, unfinished)


def load(
    path: Path,
    model: nn.Module,
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: Average | None = None,
) -> Place:
    """Put everything back where it was; no code in the file is run."""
    device = next(model.parameters()).device
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        objective.load_state_dict(state["objective"])
        optimiser.load_state_dict(state["optimiser"])
        if average is not None:
            average.load_state_dict(state["average"])
        return Place(**state["place"])
    except (pickle.UnpicklingError, RuntimeError, LookupError, EOFError, TypeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path} cannot be continued from ({reason}): start anew in another folder, or delete it."
        ) from None
