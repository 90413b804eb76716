"""Histograms with a gradient (Ustinova and Lempitsky, NeurIPS 2016)."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from idml.numerics.blocks import few_places
from idml.numerics.hinges import weighted

BEYOND = 2  # places past the last centre, that take what lies beyond and are dropped


def soft_histogram(
    distance: Float[Tensor, "n m"], weights: Shaped[Tensor, "n m"], *, bins: int, width: float
) -> Float[Tensor, "n centres"]:
    """For each row the weight near each of the centres 0, width, …, bins·width of squared distances.

    A squared distance is shared by its two neighbours. What lies beyond the last centre counts less
    the farther it is, and nothing one width away.

    >>> distance = torch.tensor([[0.5, 1.0, 2.0]]).sqrt()
    >>> soft_histogram(distance, torch.ones(1, 3), bins=2, width=1.0)
    tensor([[0.5000, 1.5000, 1.0000]])
    """
    if weights.requires_grad:
        return _plain_histogram(distance, weights, bins, width)
    return _SoftHistogram.apply(distance, weights, bins, width)  # pyright: ignore[reportReturnType]


class _SoftHistogram(torch.autograd.Function):
    """Moving a place shifts weight from its lower to its upper centre: the derivative is a difference."""

    @staticmethod
    def forward(ctx, distance, weights, bins, width):
        ctx.few, ctx.width = few_places(weights), width
        counts = distance.new_zeros(len(distance), bins + 1 + BEYOND)
        ctx.save_for_backward(distance, weights)
        if ctx.few is not None:
            distance, weights = distance[ctx.few], weights[ctx.few]
        place = distance.square().div_(width)
        lower = _lower_centre(place, bins)
        index, upper_share = lower.long(), place.sub_(lower).clamp_(max=1)
        if weights.dtype is torch.bool:
            upper_share.masked_fill_(~weights, 0)
        else:
            upper_share.mul_(weights)
        lower_share = weights.to(place.dtype) - upper_share
        if ctx.few is None:
            counts.scatter_add_(1, index, lower_share)
            counts[:, 1:].scatter_add_(1, index, upper_share)
        else:
            index.add_(ctx.few[0], alpha=counts.shape[1])
            counts.view(-1).scatter_add_(0, index, lower_share)
            counts.view(-1)[1:].scatter_add_(0, index, upper_share)
        ctx.index = index
        return counts[:, : bins + 1].contiguous()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        distance, weights = ctx.saved_tensors
        rise = functional.pad(functional.pad(grad, (0, 1)).diff(dim=1), (0, BEYOND)) * (2 / ctx.width)
        if ctx.few is None:
            return weighted(rise.gather(1, ctx.index) * distance, weights), None, None, None
        slopes = weighted(rise.flatten()[ctx.index] * distance[ctx.few], weights[ctx.few])
        return torch.zeros_like(distance).index_put_(ctx.few, slopes), None, None, None


def _plain_histogram(distance: Tensor, weights: Tensor, bins: int, width: float) -> Tensor:
    """In ordinary operations, for weights that are learned themselves."""
    place = distance.masked_fill(weights == 0, 0).square() / width
    index = _lower_centre(place, bins).long()
    upper_share = (place - index).clamp(max=1)
    counts = place.new_zeros(len(place), bins + 1 + BEYOND)
    counts = counts.scatter_add(1, index, (1 - upper_share) * weights)
    return counts.scatter_add(1, index + 1, upper_share * weights)[:, : bins + 1]


def _lower_centre(place: Tensor, bins: int) -> Tensor:
    """The centre below; NaN falls into the first bin, so that it shows in the result."""
    return place.detach().floor().nan_to_num_(0).clamp_(0, bins + 1)
