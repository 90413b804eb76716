"""Introspective distances on the scale of plain ones, for which the margins of losses were made.

Uncertainty only ever shrinks a distance. A negative pair at 1.1 that counts as 0.9 violates a margin of 1, so
the network pushes all negatives apart until its embedding has lost most of its dimensions; and claiming
uncertainty makes every positive pair closer, which costs nothing. Both scales below divide by mean weights.
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


def kept(terms: Sequence[Term]) -> list[Float[Tensor, "n m"]]:
    """In each term the mean distance is that of plain distances."""
    return [_kept(term.compared) for term in terms]


def _kept(compared: Compared) -> Float[Tensor, "n m"]:
    distance, plain = compared.distance, compared.plain
    return distance / _mean_weight([(distance.detach(), plain, torch.ones_like(plain))])


def balanced(terms: Sequence[Term]) -> list[Float[Tensor, "n m"]]:
    """Over the whole batch the mean distance of positive pairs is that of their plain distances, and so is that of
    negative pairs.

    The means are learned through: uncertainty that all pairs share changes nothing, and is worth nothing; what
    counts is which pair is more ambiguous than others of its kind. Pairs that are both, by shares, take the mean.
    """
    of_positive, of_negative = (
        _mean_weight([(at.of_uncertainty, at.plain, weight * getattr(pairs, kind)) for at, pairs, weight in terms])
        for kind in ("positive", "negative")
    )
    found = []
    for term in terms:
        distance = term.compared.distance
        positive, negative = (weights.to(distance.dtype) for weights in (term.pairs.positive, term.pairs.negative))
        whole = (positive + negative).clamp(min=torch.finfo(distance.dtype).tiny)
        found.append(distance * (positive / of_positive + negative / of_negative) / whole)
    return found


SCALES: dict[str, Callable[[Sequence[Term]], list[Tensor]]] = {
    "shrunken": shrunken,
    "kept": kept,
    "balanced": balanced,
}


def _mean_weight(parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Float[Tensor, ""]:
    """Σ softened / Σ plain over the pairs of all parts, not below `LEAST_MEAN_WEIGHT`; 1 where there are none.

    parts: softened distances, plain distances, and how much each pair counts.
    """
    softened = torch.stack([(counts * part).sum() for part, _, counts in parts]).sum()
    plain = torch.stack([(counts * part).sum() for _, part, counts in parts]).sum()
    share = softened / plain.clamp(min=torch.finfo(plain.dtype).tiny)
    return torch.where(plain > 0, share, 1.0).clamp(min=LEAST_MEAN_WEIGHT)
