"""Weighted log-sum-exps over a distance matrix: the part that softmax-like losses share.

On the CPU a sum with few weights is taken over those alone, and other sums go block by block. The
backward pass fills one gradient for all sums together.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.numerics.blocks import blocks_across, few_places, part

# The logarithm of an empty sum. Finite, so that no derivative, of any order, becomes NaN; far enough
# below any other logarithm that adding to it, or taking its exponential, leaves nothing.
NOTHING = -1e30
NEXT_TO_NOTHING = 80.0  # e^{−80} beside 1 is below any rounding; smaller exponentials are slow to compute


def log_sums(
    distance: Float[Tensor, "n m"], terms: Sequence[tuple[Shaped[Tensor, "n m"], float]], *, dim: int = 1
) -> tuple[Tensor, ...]:
    """log Σ w·e^{scale·d} along `dim`, for each (weights w, scale) of `terms`.

    A row without weight gives NOTHING and has no gradient.

    >>> distance, weights = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, False]])
    >>> log_sums(distance, [(weights, 3.0), (~weights, 3.0)])
    (tensor([0.]), tensor([3.]))
    """
    if any(weight.requires_grad for weight, _ in terms):
        return tuple(_plain_log_sum(distance, weight, scale, dim) for weight, scale in terms)
    weights = [weight for weight, _ in terms]
    scales = tuple(float(scale) for _, scale in terms)
    return _LogSums.apply(distance, dim, scales, *weights)  # pyright: ignore[reportReturnType]


def is_something(log_sum: Float[Tensor, " n"]) -> Shaped[Tensor, " n"]:
    """Whether anything was summed. NaN is something, so that it shows in the loss."""
    return ~(log_sum <= NOTHING / 2)


def _plain_log_sum(distance: Tensor, weight: Tensor, scale: float, dim: int) -> Tensor:
    """In ordinary operations, for weights that are learned themselves."""
    terms = (distance * scale).masked_fill(_is_absent(weight), NOTHING)
    highest = terms.detach().amax(dim, keepdim=True) if terms.shape[dim] else terms.detach().sum(dim, keepdim=True)
    total = ((terms - highest).exp() * weight).sum(dim)
    is_empty = total == 0
    return (total.masked_fill(is_empty, 1).log() + highest.squeeze(dim)).masked_fill(is_empty, NOTHING)


class _LogSums(torch.autograd.Function):
    """Keeps distances, weights and its own results for the backward pass."""

    @staticmethod
    def forward(ctx, distance, dim, scales, *weights):
        ctx.dim, ctx.scales = dim, scales
        ctx.places = [few_places(weight) for weight in weights]
        results = [
            _swept_sum(distance, weight, scale, dim)
            if places is None
            else _gathered_sum(distance, weight, scale, dim, places)
            for weight, scale, places in zip(weights, scales, ctx.places, strict=True)
        ]
        ctx.save_for_backward(distance, *weights, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        distance, *others = ctx.saved_tensors
        weights, results = others[: len(ctx.scales)], others[len(ctx.scales) :]
        slopes = [grad * scale for grad, scale in zip(grads, ctx.scales, strict=True)]
        every = list(zip(weights, results, ctx.scales, slopes, ctx.places, strict=True))
        unused = (None,) * (2 + len(weights))
        if torch.is_grad_enabled():  # a second derivative is wanted: keep to ordinary operations
            total = torch.zeros_like(distance)
            for weight, result, scale, slope, _ in every:
                relative = (distance * scale - result.unsqueeze(ctx.dim)).masked_fill(_is_absent(weight), NOTHING)
                total = total + relative.exp() * weight * slope.unsqueeze(ctx.dim)
            return total, *unused
        swept = [term for term in every if term[-1] is None]
        total = torch.empty_like(distance) if swept else torch.zeros_like(distance)
        for here, buffer in blocks_across(distance, ctx.dim) if swept else ():
            target = part(total, here, ctx.dim)
            for number, (weight, result, scale, slope, _) in enumerate(swept):
                shares = buffer if number else target
                weight = part(weight, here, ctx.dim).to(distance.dtype)
                torch.add(-result[here].unsqueeze(ctx.dim), part(distance, here, ctx.dim), alpha=scale, out=shares)
                _exponential_(shares).mul_(weight).mul_(slope[here].unsqueeze(ctx.dim))
                if number:
                    target.add_(shares)
        for weight, result, scale, slope, places in every:
            if places is not None:
                where = places[1 - ctx.dim]
                shares = _exponential_((distance[places] * scale).sub_(result[where])).mul_(weight[places])
                total.index_put_(places, shares.mul_(slope[where]), accumulate=True)
        return total, *unused


def _swept_sum(distance: Tensor, weight: Tensor, scale: float, dim: int) -> Tensor:
    if distance.shape[dim] == 0:
        return distance.new_full((distance.shape[1 - dim],), NOTHING)
    sums = []
    for here, buffer in blocks_across(distance, dim):
        terms, weights = torch.mul(part(distance, here, dim), scale, out=buffer), part(weight, here, dim)
        highest = terms.masked_fill_(_is_absent(weights), NOTHING).amax(dim, keepdim=True)
        exponentials = _exponential_(terms.sub_(highest))
        if weights.dtype is not torch.bool:
            exponentials.mul_(weights)
        sums.append(exponentials.sum(dim).log_().add_(highest.squeeze(dim)).clamp_(min=NOTHING))
    return sums[0] if len(sums) == 1 else torch.cat(sums)


def _gathered_sum(distance: Tensor, weight: Tensor, scale: float, dim: int, places: tuple[Tensor, Tensor]) -> Tensor:
    where = places[1 - dim]
    terms = distance[places] * scale
    highest = distance.new_full((distance.shape[1 - dim],), NOTHING).scatter_reduce_(0, where, terms, "amax")
    exponentials = _exponential_(terms.sub_(highest[where])).mul_(weight[places])
    return torch.zeros_like(highest).index_add_(0, where, exponentials).log_().add_(highest).clamp_(min=NOTHING)


def _exponential_(exponents: Tensor) -> Tensor:
    """e^x in place, for x that is at most 0 wherever there is a weight."""
    return exponents.clamp_(-NEXT_TO_NOTHING, NEXT_TO_NOTHING).exp_()


def _is_absent(weight: Tensor) -> Tensor:
    return ~weight if weight.dtype is torch.bool else weight == 0
