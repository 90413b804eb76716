"""A moving average of weights, which generalises better than the weights of the last step.

Polyak and Juditsky (1992); in networks Izmailov et al. (UAI 2018). Early steps are forgotten sooner:
of n steps so far, a step keeps at most (1 + n)/(10 + n) of the average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Average:
    """The average of these tensors, whose values change with every step. share: kept by a step, below 1."""

    def __init__(self, values: Sequence[Tensor], share: float):
        self._values = [value.detach() for value in values]
        self._averages = [value.clone() for value in self._values]
        self._share, self._steps = share, 0

    @torch.no_grad()
    def update(self) -> None:
        share = min(self._share, (1 + self._steps) / (10 + self._steps))
        torch._foreach_lerp_(self._averages, self._values, 1 - share)  # pyright: ignore[reportPrivateImportUsage]
        self._steps += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While this is open, the tensors hold their averages."""
        kept = [value.clone() for value in self._values]
        self.adopt()
        try:
            yield
        finally:
            torch._foreach_copy_(self._values, kept)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def adopt(self) -> None:
        """The tensors become their averages."""
        torch._foreach_copy_(self._values, self._averages)  # pyright: ignore[reportPrivateImportUsage]

    def state_dict(self) -> dict[str, Any]:
        return {"averages": self._averages, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self._averages, state["averages"])  # pyright: ignore[reportPrivateImportUsage]
        self._steps = state["steps"]
