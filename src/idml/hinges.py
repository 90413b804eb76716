"""The mean over the pairs or triplets that break a margin: Σ w·t / Σ w over t > 0."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.blocks import blocks_across


def weighted(values: Float[Tensor, "*shape"], weights: Shaped[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """values · weights, fast for boolean weights too."""
    return values.masked_fill(~weights, 0) if weights.dtype is torch.bool else values * weights.to(values.dtype)


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
    weights = [weight for weight, _, _ in terms]
    margins = tuple((sign, float(margin)) for _, sign, margin in terms)
    return _MeanOverViolators.apply(distance, margins, *weights)  # pyright: ignore[reportReturnType]


class _MeanOverViolators(torch.autograd.Function):
    """Keeps distances, weights and one count a term for the backward pass."""

    @staticmethod
    def forward(ctx, distance, margins, *weights):
        totals, counts = distance.new_zeros(len(weights)), distance.new_zeros(len(weights))
        for here, buffer in blocks_across(distance, 1):
            for term, (weight, (sign, margin)) in enumerate(zip(weights, margins, strict=True)):
                excess = torch.sub(distance[here], margin, out=buffer).mul_(sign).relu_()
                if weight.dtype is torch.bool:
                    excess.masked_fill_(~weight[here], 0)
                    counts[term] += excess.count_nonzero()
                else:
                    counts[term] += ((excess > 0) * weight[here]).sum()
                    excess.mul_(weight[here])
                totals[term] += excess.sum()
        ctx.save_for_backward(distance, counts, *weights)
        ctx.margins = margins
        return ratio(totals, counts).sum()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        distance, counts, *weights = ctx.saved_tensors
        # Piecewise linear: the second derivative is 0, so only `grad` has to stay in the graph.
        slopes = ratio(torch.ones_like(counts), counts)
        with torch.no_grad():
            total = torch.empty_like(distance)
            for here, buffer in blocks_across(distance, 1):
                for term, (weight, (sign, margin)) in enumerate(zip(weights, ctx.margins, strict=True)):
                    pull = total[here] if term == 0 else buffer
                    is_broken = distance[here] > margin if sign > 0 else distance[here] < margin
                    if weight.dtype is torch.bool:
                        pull.copy_(is_broken.logical_and_(weight[here]))
                    else:
                        pull.copy_(weight[here]).masked_fill_(is_broken.logical_not_(), 0)
                    pull.mul_(slopes[term] * sign)
                    if term:
                        total[here].add_(pull)
        total = total * grad if torch.is_grad_enabled() else total.mul_(grad)
        return total, None, *(None for _ in weights)
