"""The mean over the pairs or triplets that break a margin: Σ w·t / Σ w over t > 0."""

import functools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.numerics.blocks import few_places


def weighted(values: Float[Tensor, "*shape"], weights: Shaped[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """values · weights, fast for boolean weights too; 0 without a weight, whatever the value."""
    if weights.dtype is torch.bool:
        return values.masked_fill(~weights, 0)
    return values.masked_fill(weights == 0, 0) * weights.to(values.dtype)


def ratio(total: Float[Tensor, "*shape"], count: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """total / count, and 0 where nothing was counted."""
    return total / count.masked_fill(count == 0, 1)


def mean_over_violators(
    distance: Float[Tensor, "n m"], terms: Sequence[tuple[Shaped[Tensor, "n m"], int, float]]
) -> Float[Tensor, ""]:
    """For each (weights w, sign, margin) of `terms` the mean of t = sign·(d − margin) over t > 0, summed.

    A term without violators adds 0.

    >>> everyone = torch.ones(1, 3, dtype=torch.bool)
    >>> mean_over_violators(torch.tensor([[1.0, 2.0, 4.0]]), [(everyone, 1, 1.0), (everyone, -1, 1.5)])
    tensor(2.5000)
    """
    if any(weight.requires_grad for weight, _, _ in terms):
        return functools.reduce(torch.add, (_plain_mean(distance, *term) for term in terms))
    weights = [weight for weight, _, _ in terms]
    margins = tuple((sign, float(margin)) for _, sign, margin in terms)
    return _MeanOverViolators.apply(distance, margins, *weights)  # pyright: ignore[reportReturnType]


def _is_broken(distance: Tensor, sign: int, margin: float) -> Tensor:
    """Whether t > 0. NaN breaks every margin, so that it shows in the loss."""
    return (distance <= margin if sign > 0 else distance >= margin).logical_not_()


def _plain_mean(distance: Tensor, weights: Tensor, sign: int, margin: float) -> Tensor:
    """In ordinary operations, for weights that are learned themselves; one of 0 is not there, and stays so."""
    is_broken = _is_broken(distance, sign, margin) & (weights != 0)
    excess = (sign * (distance - margin)).masked_fill(~is_broken, 0)
    return ratio((excess * weights).sum(), (weights * is_broken).sum())


class _MeanOverViolators(torch.autograd.Function):
    """Keeps which pairs broke which margin, their weights and one count a term for the backward pass."""

    @staticmethod
    def forward(ctx, distance, margins, *weights):
        ctx.terms, totals, counts = [], [], []
        for weight, (sign, margin) in zip(weights, margins, strict=True):
            is_broken = _is_broken(distance, sign, margin).logical_and_(weight)
            places = few_places(is_broken)
            weight = None if weight.dtype is torch.bool else weight.to(distance.dtype)
            if places is None:
                excess = (distance - margin).masked_fill_(~is_broken, 0)
                kept = is_broken if weight is None else weight * is_broken
            else:
                excess = distance[places] - margin
                kept = torch.ones_like(excess) if weight is None else weight[places]
            totals.append((excess if weight is None else excess.mul_(kept)).sum() * sign)
            counts.append(kept.sum(dtype=distance.dtype))
            ctx.terms.append((sign, places, kept))
        counts = torch.stack(counts)
        ctx.slopes, ctx.shape = ratio(torch.ones_like(counts), counts), distance.shape
        return ratio(torch.stack(totals), counts).sum()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        # Piecewise linear: the second derivative is 0, so only `grad` has to stay in the graph.
        slopes = [slope * sign for slope, (sign, _, _) in zip(ctx.slopes * grad, ctx.terms, strict=True)]
        swept = [
            kept.to(grad.dtype) * slope for slope, (_, at, kept) in zip(slopes, ctx.terms, strict=True) if at is None
        ]
        total = functools.reduce(torch.add, swept) if swept else grad.new_zeros(ctx.shape)
        for slope, (_, places, kept) in zip(slopes, ctx.terms, strict=True):
            if places is not None:
                total.index_put_(places, kept * slope, accumulate=True)
        return total, None, *(None for _ in ctx.terms)
