"""A run that can be killed at any moment and goes on as if it had not been.

Everything random in a step follows from the seed and the step's number, so a checkpoint needs no
generator: weights, optimiser, what was measured in this epoch, and where the run stands.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from idml.atomic import writing
from idml.errors import first_line, is_out_of_memory
from idml.training import distributed

LAST, BEST = "last.pt", "best.pt"
OF_THE_MACHINE = (errno.ENOENT, errno.EACCES, errno.EIO)  # errors in reading that say nothing of what was written


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
    with _told_if_useless(path, "it is damaged"):  # whatever its bytes look like
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    with _told_if_useless(path):
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return Place(**state["place"])


@contextmanager
def _told_if_useless(path: Path, reason: str | None = None) -> Iterator[None]:
    """Name the file and the remedy, unless the machine is to blame: then the file may be whole.

    reason: None for what the error says.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in OF_THE_MACHINE):
            raise
        told = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise _useless(path, reason or told) from None


def _useless(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be continued from ({reason}): start anew in another folder, or delete it.")
