"""Weighted log-sum-exps over a distance matrix: the part that softmax-like losses share.

On the CPU a sum with few weights is taken over those alone, and other sums go block by block. The
backward pass fills one gradient for all sums together.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from idml.blocks import EVERYTHING, blocks_across, few_places, part

# The logarithm of an empty sum. Finite, so that no derivative, of any order, becomes NaN; far enough
# below any other logarithm that adding to it, or taking its exponential, leaves nothing.
NOTHING = -1e30


def log_sums(
    distance: Float[Tensor, "n m"], terms: Sequence[tuple[Shaped[Tensor, "n m"], float]], *, dim: int = 1
) -> tuple[Tensor, ...]:
    """log Σ w·e^{scale·d} along `dim`, for each (weights w, scale) of `terms`.

    A row without weight gives NOTHING and has no gradient.

    >>> distance, weights = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, False]])
    >>> log_sums(distance, [(weights, 3.0), (~weights, 3.0)])
    (tensor([0.]), tensor([3.]))
    """
    weights = [weight for weight, _ in terms]
    scales = tuple(float(scale) for _, scale in terms)
    return _LogSums.apply(distance, dim, scales, *weights)  # pyright: ignore[reportReturnType]


def is_something(log_sum: Float[Tensor, " n"]) -> Shaped[Tensor, " n"]:
    """Whether anything was summed."""
    return log_sum > NOTHING / 2


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
                shares = (_log_terms(distance, weight, scale) - result.unsqueeze(ctx.dim)).exp()
                total = total + shares * slope.unsqueeze(ctx.dim)
            return total, *unused
        swept = [term for term in every if term[-1] is None]
        total = torch.empty_like(distance) if swept else torch.zeros_like(distance)
        for here, buffer in blocks_across(distance, ctx.dim) if swept else ():
            target = part(total, here, ctx.dim)
            for number, (weight, result, scale, slope, _) in enumerate(swept):
                shares = buffer if number else target
                _fill_shares(
                    shares, part(distance, here, ctx.dim), part(weight, here, ctx.dim), scale, result[here], ctx.dim
                )
                shares.mul_(slope[here].unsqueeze(ctx.dim))
                if number:
                    target.add_(shares)
        for weight, result, scale, slope, places in every:
            if places is not None:
                where = places[1 - ctx.dim]
                shares = _log_terms(distance[places], weight[places], scale).sub_(result[where]).exp_()
                total.index_put_(places, shares.mul_(slope[where]), accumulate=True)
        return total, *unused


def _swept_sum(distance: Tensor, weight: Tensor, scale: float, dim: int) -> Tensor:
    if distance.shape[dim] == 0:
        return distance.new_full((distance.shape[1 - dim],), NOTHING)
    sums = []
    for here, buffer in blocks_across(distance, dim):
        terms = _log_terms(part(distance, here, dim), part(weight, here, dim), scale, out=buffer)
        if here is EVERYTHING:
            return torch.logsumexp(terms, dim).clamp_(min=NOTHING)
        # As above without its copies, which cost more than the rest in a large matrix.
        highest = terms.amax(dim, keepdim=True).clamp_(min=NOTHING)
        sums.append(terms.sub_(highest).exp_().sum(dim).log_().add_(highest.squeeze(dim)).clamp_(min=NOTHING))
    return torch.cat(sums)


def _gathered_sum(distance: Tensor, weight: Tensor, scale: float, dim: int, places: tuple[Tensor, Tensor]) -> Tensor:
    where = places[1 - dim]
    terms = _log_terms(distance[places], weight[places], scale)
    highest = distance.new_full((distance.shape[1 - dim],), NOTHING).scatter_reduce_(0, where, terms, "amax")
    sums = torch.zeros_like(highest).index_add_(0, where, terms.sub_(highest[where]).exp_())
    return sums.log_().add_(highest).clamp_(min=NOTHING)


def _fill_shares(out: Tensor, distance: Tensor, weight: Tensor, scale: float, result: Tensor, dim: int) -> None:
    """w·e^{scale·d} over its sum."""
    if weight.dtype is torch.bool:  # what overflows has no weight
        torch.add(-result.unsqueeze(dim), distance, alpha=scale, out=out).exp_().masked_fill_(~weight, 0)
    else:
        _log_terms(distance, weight, scale, out=out).sub_(result.unsqueeze(dim)).exp_()


def _log_terms(distance: Tensor, weight: Tensor, scale: float, *, out: Tensor | None = None) -> Tensor:
    """log(w·e^{scale·d}), −inf without a weight."""
    terms = torch.mul(distance, scale, out=out)
    if weight.dtype is torch.bool:
        return terms.masked_fill_(~weight, float("-inf"))
    return terms.add_(weight.to(distance.dtype).log())
