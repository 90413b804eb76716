"""Histograms with a gradient (Ustinova and Lempitsky, NeurIPS 2016)."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from idml.blocks import few_places


def soft_histogram(
    place: Float[Tensor, "n m"], weights: Shaped[Tensor, "n m"], bins: int
) -> Float[Tensor, "n centres"]:
    """For each row the weight near each of the centres 0, 1, …, bins; a place is shared by its two neighbours.

    What lies beyond the last centre counts less the farther it is, and nothing from bins + 1 on.

    >>> soft_histogram(torch.tensor([[0.25, 2.0, 2.5]]), torch.ones(1, 3), bins=2)
    tensor([[0.7500, 0.2500, 1.5000]])
    """
    if weights.requires_grad:
        return _plain_histogram(place, weights, bins)
    return _SoftHistogram.apply(place, weights, bins)  # pyright: ignore[reportReturnType]


def _plain_histogram(place: Tensor, weights: Tensor, bins: int) -> Tensor:
    """In ordinary operations, for weights that are learned themselves."""
    lower = _lower_centre(place, bins)
    upper_share = (place - lower).clamp(max=1)
    counts = place.new_zeros(len(place), bins + 3)
    counts = counts.scatter_add(1, lower.long(), (1 - upper_share) * weights)
    return counts.scatter_add(1, lower.long() + 1, upper_share * weights)[:, : bins + 1]


def _lower_centre(place: Tensor, bins: int) -> Tensor:
    """The centre below; NaN falls into the first bin, so that it shows in the result."""
    return place.detach().floor().nan_to_num_(0).clamp_(0, bins + 1)


class _SoftHistogram(torch.autograd.Function):
    """Moving a place shifts weight from its lower to its upper centre: the derivative is a difference."""

    @staticmethod
    def forward(ctx, place, weights, bins):
        ctx.few, ctx.shape = few_places(weights), place.shape
        counts = place.new_zeros(len(place), bins + 3)  # two places past the last centre take what lies beyond
        if ctx.few is not None:
            place, weights = place[ctx.few], weights[ctx.few]
        lower = _lower_centre(place, bins)
        upper_share = (place - lower).clamp_(max=1)
        if weights.dtype is torch.bool:
            upper_share.masked_fill_(~weights, 0)
        else:
            upper_share.mul_(weights)
        lower_share = weights.to(place.dtype) - upper_share
        index = lower.long()
        if ctx.few is None:
            counts.scatter_add_(1, index, lower_share)
            counts[:, 1:].scatter_add_(1, index, upper_share)
        else:
            index.add_(ctx.few[0], alpha=counts.shape[1])
            counts.view(-1).scatter_add_(0, index, lower_share)
            counts.view(-1)[1:].scatter_add_(0, index, upper_share)
        ctx.save_for_backward(index, weights)
        return counts[:, : bins + 1].contiguous()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        index, weights = ctx.saved_tensors
        rise = functional.pad(functional.pad(grad, (0, 1)).diff(dim=1), (0, 2))  # (n, bins + 3)
        values = rise.gather(1, index) if ctx.few is None else rise.flatten()[index]
        values = values.masked_fill(~weights, 0) if weights.dtype is torch.bool else values * weights
        if ctx.few is None:
            return values, None, None
        return values.new_zeros(ctx.shape).index_put_(ctx.few, values), None, None
