"""Histograms with a gradient (Ustinova and Lempitsky, NeurIPS 2016)."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.blocks import few_places


def soft_histogram(
    place: Float[Tensor, "n m"], weights: Shaped[Tensor, "n m"], bins: int
) -> Float[Tensor, "n centres"]:
    """For each row the weight near each of the centres 0, 1, …, bins; a place is shared by its two neighbours.

    What lies beyond the last centre counts less the farther it is, and nothing from bins + 1 on.

    >>> soft_histogram(torch.tensor([[0.25, 2.0, 2.5]]), torch.ones(1, 3), bins=2)
    tensor([[0.7500, 0.2500, 1.5000]])
    """
    return _SoftHistogram.apply(place, weights, bins)  # pyright: ignore[reportReturnType]


class _SoftHistogram(torch.autograd.Function):
    """Moving a place shifts weight from its lower to its upper centre: the derivative is a difference."""

    @staticmethod
    def forward(ctx, place, weights, bins):
        ctx.few, ctx.shape = few_places(weights), place.shape
        if ctx.few is None:
            lower = place.floor().clamp_(0, bins + 1)
            upper_share = (place - lower).clamp_(max=1)
            upper_share = (
                upper_share.masked_fill_(~weights, 0) if weights.dtype is torch.bool else upper_share * weights
            )
            rows = torch.arange(len(place), device=place.device)[:, None]
        else:
            rows, place, weights = ctx.few[0], place[ctx.few], weights[ctx.few]
            lower = place.floor().clamp_(0, bins + 1)
            upper_share = (place - lower).clamp_(max=1) * weights
        width = bins + 3  # two places past the last centre take what lies beyond, and are dropped
        index = lower.long().add_(rows * width)
        counts = place.new_zeros(ctx.shape[0] * width)
        counts.scatter_add_(0, index.flatten(), (weights.to(place.dtype) - upper_share).flatten())
        counts.scatter_add_(0, index.flatten() + 1, upper_share.flatten())
        ctx.save_for_backward(index, weights)
        return counts.view(-1, width)[:, : bins + 1].contiguous()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        index, weights = ctx.saved_tensors
        padded = torch.nn.functional.pad(grad, (0, 2))
        rise = torch.nn.functional.pad(padded[:, 1:] - padded[:, :-1], (0, 1))  # (n, bins + 3)
        values = rise.flatten()[index]
        values = values.masked_fill(~weights, 0) if weights.dtype is torch.bool else values * weights
        if ctx.few is None:
            return values, None, None
        return values.new_zeros(ctx.shape).index_put(ctx.few, values), None, None
