"""A run that can be killed at any moment and goes on as if it had not been.

Everything random in a step follows from the seed and the step's number, so a checkpoint needs no
generator: weights, optimiser, what was measured in this epoch, and where the run stands.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from idml.atomic import writing
from idml.errors import first_line
from idml.training import distributed

LAST, BEST = "last.pt", "best.pt"


class Place(NamedTuple):
    """Where a run stands: the epoch, the batch inside it and seconds since its start, steps in all, the best so far."""

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    step: int = 0
    best_score: float = -1.0
    best_epoch: int = -1


@runtime_checkable
class Part(Protocol):
    """What of a run changes with its steps: the model, the optimiser, …"""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


def save(path: Path, place: Place, parts: Mapping[str, Part]) -> None:
    """Written by the first rank only, whole or not at all."""
    if not distributed.is_first():
        return
    state = {name: part.state_dict() for name, part in parts.items()} | {"place": place._asdict()}
    with writing(path) as unfinished:
        torch.save(state, unfinished)


def load(path: Path, parts: Mapping[str, Part], *, device: torch.device) -> Place:
    """Put everything back where it was; no code in the file is run."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except (pickle.UnpicklingError, RuntimeError, LookupError, EOFError, ValueError):  # whatever its bytes look like
        raise _useless(path, "it is damaged") from None
    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return Place(**state["place"])
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise _useless(path, first_line(error)) from None


def _useless(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be continued from ({reason}): start anew in another folder, or delete it.")
