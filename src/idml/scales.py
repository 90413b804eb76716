"""Introspective distances on the scale of plain ones, for which the margins of losses were made.

Uncertainty only ever shrinks a distance. A negative pair at 1.1 that counts as 0.9 violates a margin of 1, so
the network pushes all negatives apart until its embedding has lost most of its dimensions; and claiming
uncertainty makes every positive pair closer, which costs nothing. Both scales below divide by mean weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.pairs import Pairs

LEAST_MEAN_WEIGHT = 0.1  # where uncertainty has swallowed all, dividing by its mean weight would be 0/0


class Compared(NamedTuple):
    """Distances of a batch: introspective; the same, whose gradient reaches uncertainty alone; plain, without one."""

    distance: Float[Tensor, "n m"]
    of_uncertainty: Float[Tensor, "n m"]
    plain: Float[Tensor, "n m"]


def kept(compared: Compared, _pairs: Pairs) -> Float[Tensor, "n m"]:
    """The mean distance of the batch is that of plain distances."""
    everywhere = torch.ones_like(compared.plain)
    return compared.distance / _mean_weight(compared.distance.detach(), compared.plain, everywhere)


def balanced(compared: Compared, pairs: Pairs) -> Float[Tensor, "n m"]:
    """The mean distance of positive pairs is that of their plain distances, and so is that of negative pairs.

    The means are learned through: uncertainty that all pairs share changes nothing, and is worth nothing; what
    counts is which pair is more ambiguous than others of its kind. Pairs that are both, by shares, take the mean.
    """
    distance, of_uncertainty, plain = compared
    positive, negative = (weights.to(plain.dtype) for weights in (pairs.positive, pairs.negative))
    factors = (weights / _mean_weight(of_uncertainty, plain, weights) for weights in (positive, negative))
    return distance * sum(factors) / (positive + negative).clamp(min=torch.finfo(plain.dtype).tiny)


SCALES: dict[str, Callable[[Compared, Pairs], Tensor]] = {"kept": kept, "balanced": balanced}
SHRUNKEN = "shrunken"  # neither of them: the distance as the paper has it


def _mean_weight(
    softened: Float[Tensor, "n m"], plain: Float[Tensor, "n m"], weights: Shaped[Tensor, "n m"]
) -> Float[Tensor, ""]:
    """Σ softened / Σ plain over the pairs, not below `LEAST_MEAN_WEIGHT`; 1 where there are none."""
    whole = (weights * plain).sum()
    share = (weights * softened).sum() / whole.clamp(min=torch.finfo(plain.dtype).tiny)
    return torch.where(whole > 0, share, 1.0).clamp(min=LEAST_MEAN_WEIGHT)
