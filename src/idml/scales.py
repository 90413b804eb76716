"""Introspective distances on the scale of plain ones, for which the margins of losses were made.

Uncertainty only ever shrinks a distance. A negative pair at 1.1 that counts as 0.9 violates a margin of 1, so
the network pushes all negatives apart until its embedding has lost most of its dimensions; and claiming
uncertainty makes every positive pair closer, which costs nothing. Relative distances are divided by a mean weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from idml.embedding import Embedding
from idml.pairs import Pairs

LEAST_MEAN_WEIGHT = 0.1  # where uncertainty has swallowed all, dividing by its mean weight would be 0/0


Distance = Callable[[Embedding, Embedding], Tensor]


@dataclass(frozen=True, eq=False)
class Compared:
    """Images beside others, and their distances, each computed when a scale asks for it, and once."""

    by: Distance
    by_plain: Distance
    rows: Embedding
    columns: Embedding

    @cached_property
    def distance(self) -> Float[Tensor, "n m"]:
        return self.by(self.rows, self.columns)

    @cached_property
    def of_uncertainty(self) -> Float[Tensor, "n m"]:
        """The same, with a gradient that reaches uncertainty alone."""
        return self.by(*self._without_semantic_gradient())

    @cached_property
    def plain(self) -> Float[Tensor, "n m"]:
        """Without a gradient."""
        return self.by_plain(*self._without_semantic_gradient())

    def _without_semantic_gradient(self) -> tuple[Embedding, Embedding]:
        rows = Embedding(self.rows.semantic.detach(), self.rows.uncertainty)
        if self.columns is self.rows:
            return rows, rows
        return rows, Embedding(self.columns.semantic.detach(), self.columns.uncertainty)


class Term(NamedTuple):
    """A part of the loss of a batch, which counts by its weight: of original images, or of mixed ones."""

    compared: Compared
    pairs: Pairs
    weight: float | Float[Tensor, ""] = 1.0


def shrunken(terms: Sequence[Term]) -> list[Float[Tensor, "n m"]]:
    """Distances as the paper has them."""
    return [term.compared.distance for term in terms]


def relative(terms: Sequence[Term]) -> list[Float[Tensor, "n m"]]:
    """Over all pairs of a batch, of mixed images too, the mean distance is that of plain distances.

    Uncertainty learns through that mean, so that what all pairs share is worth little: what counts is which pair is
    more ambiguous than others.
    """
    mean_weight = _mean_weight(terms)
    return [term.compared.distance / mean_weight for term in terms]


SCALES: dict[str, Callable[[Sequence[Term]], list[Tensor]]] = {"shrunken": shrunken, "relative": relative}


def _mean_weight(terms: Sequence[Term]) -> Float[Tensor, ""]:
    """Σ softened / Σ plain over the pairs of all terms, not below `LEAST_MEAN_WEIGHT`; 1 where all is at distance 0."""
    softened, plain = (
        torch.stack([term.weight * getattr(term.compared, kind).sum() for term in terms]).sum()
        for kind in ("of_uncertainty", "plain")
    )
    share = softened / plain.clamp(min=torch.finfo(plain.dtype).tiny)
    return torch.where(plain > 0, share, 1.0).clamp(min=LEAST_MEAN_WEIGHT)
