"""Introspective distances on the scale of plain ones, for which the margins of losses were made.

Uncertainty only ever shrinks a distance. A negative pair at 1.1 that counts as 0.9 violates a margin of 1, so
the network pushes all negatives apart until its embedding has lost most of its dimensions; and claiming
uncertainty makes every positive pair closer, which costs nothing. Relative distances are divided by a mean weight;
centred ones tell only whether a pair is more ambiguous than others.

Whatever the scale, uncertainty can be taught by all pairs, or by positive ones alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from idml.distances import Introspective, Parts
from idml.embedding import Embedding
from idml.pairs import Pairs

LEAST_MEAN_WEIGHT = 0.1  # where uncertainty has swallowed all, dividing by its mean weight would be 0/0


@dataclass(frozen=True, eq=False)
class Compared:
    """Images beside others, and their distances, each computed when a scale asks for it, and once."""

    by: Callable[[Embedding, Embedding], Tensor]  # `Introspective`, for all but `distance`
    rows: Embedding
    columns: Embedding
    given: Parts | None = None  # what distances are made of, where it is known

    @cached_property
    def distance(self) -> Float[Tensor, "n m"]:
        return self.by.of_parts(self._parts) if isinstance(self.by, Introspective) else self.by(self.rows, self.columns)

    @cached_property
    def of_uncertainty(self) -> Float[Tensor, "n m"]:
        """The same, with a gradient that reaches uncertainty alone."""
        return self.with_still_semantics.distance

    @cached_property
    def plain(self) -> Float[Tensor, "n m"]:
        """Without uncertainty, and without a gradient."""
        return self._introspective.plain_of_parts(self._parts)

    def centred(self, mean: Float[Tensor, ""]) -> Float[Tensor, "n m"]:
        """About a mean of β + γ, at which a pair keeps the distance of certain images, by γ alone."""
        return self._introspective.about_mean(self._parts, mean)

    @property
    def doubt(self) -> Float[Tensor, "#n #m"]:
        """β + γ."""
        return self._parts.doubt

    @cached_property
    def _parts(self) -> Parts:
        return self._introspective.parts(self.rows, self.columns) if self.given is None else self.given

    @cached_property
    def with_still_uncertainty(self) -> Compared:
        """The same distances, of which uncertainty does not learn."""
        return replace(self, given=self._parts.without_uncertainty_gradient())

    @cached_property
    def with_still_semantics(self) -> Compared:
        """The same distances, of which uncertainty alone learns."""
        return replace(self, given=self._parts.without_semantic_gradient())

    @property
    def _introspective(self) -> Introspective:
        assert isinstance(self.by, Introspective)
        return self.by


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


def centred(terms: Sequence[Term]) -> list[Float[Tensor, "n m"]]:
    """plain · exp(−γ/(τ·α)) · exp(−(β − β̄)/(τ·α + β̄)), with β̄ the mean over all pairs of a batch, of mixed images too.

    Uncertainty learns through the mean above the line, and not below: to add to all of it has no gradient. A pair of
    mean uncertainty keeps the distance of certain images: how small distances are softened is up to γ.
    """
    mean = _mean_doubt(terms)
    found = {id(term.compared): term.compared.centred(mean) for term in _first_of_each(terms)}
    return [found[id(term.compared)] for term in terms]


Scale = Callable[[Sequence[Term]], list[Tensor]]
SCALES: dict[str, Scale] = {
    "shrunken": shrunken,
    "relative": relative,
    "centred": centred,
}


def of_all(terms: Sequence[Term], scale: Scale) -> list[Float[Tensor, "n m"]]:
    """Every pair teaches uncertainty: a positive pair to have more of it, a negative one to have less."""
    return scale(terms)


def of_positives(terms: Sequence[Term], scale: Scale) -> list[Float[Tensor, "n m"]]:
    """The same distances, of which those of positive pairs alone teach uncertainty.

    An ambiguous image is far from its own class and near to others. Of all pairs it learns both, to be uncertain for
    the one and certain for the other; of positive ones, the first. Pairs that are both, by shares, teach if they are
    more positive than negative.
    """
    still = scale([term._replace(compared=term.compared.with_still_uncertainty) for term in terms])
    return [
        torch.where(term.pairs.positive > term.pairs.negative, distance, unmoved)
        for term, distance, unmoved in zip(terms, scale(terms), still, strict=True)
    ]


TEACHERS: dict[str, Callable[[Sequence[Term], Scale], list[Tensor]]] = {"all": of_all, "positives": of_positives}


def _mean_weight(terms: Sequence[Term]) -> Float[Tensor, ""]:
    """Σ softened / Σ plain over the pairs of all terms, not below `LEAST_MEAN_WEIGHT`; 1 where all is at distance 0."""
    softened, plain = (
        torch.stack([term.weight * getattr(term.compared, kind).sum() for term in terms]).sum()
        for kind in ("of_uncertainty", "plain")
    )
    share = softened / plain.clamp(min=torch.finfo(plain.dtype).tiny)
    return torch.where(plain > 0, share, 1.0).clamp(min=LEAST_MEAN_WEIGHT)


def _first_of_each(terms: Sequence[Term]) -> list[Term]:
    """One of the terms that share their distances."""
    return list({id(term.compared): term for term in terms}.values())


def _mean_doubt(terms: Sequence[Term]) -> Float[Tensor, ""]:
    """Of β + γ over the pairs of all terms, by the weights of these; 0 where there are none."""
    sums, numbers = [], []
    for term in terms:
        is_pair = (term.pairs.positive > 0) | (term.pairs.negative > 0)
        sums.append(term.weight * torch.where(is_pair, term.compared.doubt, 0).sum())
        numbers.append(term.weight * is_pair.sum())
    total, number = torch.stack(sums).sum(), torch.stack(numbers).sum()
    return torch.where(number > 0, total / torch.where(number > 0, number, 1), 0)
