"""Statistics of queries, each from how often every query is drawn: means, and scores of some of the queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from idml.evaluation.intervals import Statistic


def mean(values: Shaped[Tensor, " n"], counts: Float[Tensor, "b n"]) -> Float[Tensor, " b"]:
    counts = counts.double()
    return counts @ values.double() / counts.sum(dim=1)


def among(chosen: Bool[Tensor, " n"], score: Callable[..., Tensor], *values: Shaped[Tensor, " n"]) -> Statistic:
    """The score of the chosen queries alone."""
    if chosen.all():
        return partial(score, *values)
    rows = chosen.nonzero()[:, 0]
    inside = [side[rows] for side in values]
    return lambda counts: score(*inside, counts.index_select(1, rows))


def unknown(counts: Float[Tensor, "b n"]) -> Float[Tensor, " b"]:
    return counts.new_full((len(counts),), torch.nan)
