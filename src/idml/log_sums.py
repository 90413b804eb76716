"""Weighted log-sum-exps over a distance matrix: the part that softmax-like losses share.

Few pairs of a batch are positive, so on the CPU a sum with few weights is taken over those alone.
Other sums go block by block. The backward pass fills one gradient for all sums together.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from idml.blocks import blocks_across, part

SPARSE = 1 / 8  # of the pairs have a weight: fewer are gathered one by one, more are swept
NOTHING = float("-inf")  # the logarithm of an empty sum
VANISHED = -1e3  # a finite logarithm whose exponential is 0 even in float64


def log_sums(
    distance: Float[Tensor, "n m"], terms: Sequence[tuple[Shaped[Tensor, "n m"], float]], *, dim: int = 1
) -> tuple[Tensor, ...]:
    """log Σ w·e^{scale·d} along `dim`, for each (weights w, scale) of `terms`.

    A row without weight gives −inf and no gradient.

    >>> distance, weights = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, False]])
    >>> log_sums(distance, [(weights, 3.0), (~weights, 3.0)])
    (tensor([0.]), tensor([3.]))
    """
    weights = [weight for weight, _ in terms]
    scales = tuple(float(scale) for _, scale in terms)
    return _LogSums.apply(distance, dim, scales, *weights)  # pyright: ignore[reportReturnType]


def log_one_plus(log_sum: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(1 + Σ) from log Σ: 0, with every derivative, for an empty sum."""
    return functional.softplus(log_sum.masked_fill(log_sum == NOTHING, VANISHED), threshold=50.0)


class _LogSums(torch.autograd.Function):
    """Keeps distances, weights and its own results for the backward pass."""

    @staticmethod
    def forward(ctx, distance, dim, scales, *weights):
        ctx.dim, ctx.scales = dim, scales
        ctx.places = [_places(weight) for weight in weights]
        results = [distance.new_full((distance.shape[1 - dim],), NOTHING) for _ in weights]
        for result, weight, scale, places in zip(results, weights, scales, ctx.places, strict=True):
            if places is not None:
                _gathered_sum(distance, weight, scale, places, dim, result)
            elif distance.shape[dim]:
                for here, buffer in blocks_across(distance, dim):
                    terms = _log_terms(part(distance, here, dim), part(weight, here, dim), scale, out=buffer)
                    highest = _finite(terms.amax(dim, keepdim=True))
                    result[here] = terms.sub_(highest).exp_().sum(dim).log_().add_(highest.squeeze(dim))
        ctx.save_for_backward(distance, *weights, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        distance, *others = ctx.saved_tensors
        weights, results = others[: len(ctx.scales)], others[len(ctx.scales) :]
        every = list(zip(weights, results, ctx.scales, grads, ctx.places, strict=True))
        unused = (None,) * (2 + len(weights))
        if torch.is_grad_enabled():  # a second derivative is wanted: keep to ordinary operations
            total = torch.zeros_like(distance)
            for weight, result, scale, grad, _ in every:
                shares = (_log_terms(distance, weight, scale) - _finite(result).unsqueeze(ctx.dim)).exp()
                total = total + shares * (grad * scale).unsqueeze(ctx.dim)
            return total, *unused
        swept = [term for term in every if term[-1] is None]
        total = torch.empty_like(distance) if swept else torch.zeros_like(distance)
        for here, buffer in blocks_across(distance, ctx.dim):
            for number, (weight, result, scale, grad, _) in enumerate(swept):
                target = part(total, here, ctx.dim)
                shares = target if number == 0 else buffer
                _log_terms(part(distance, here, ctx.dim), part(weight, here, ctx.dim), scale, out=shares)
                shares.sub_(_finite(result[here]).unsqueeze(ctx.dim)).exp_()
                shares.mul_((grad[here] * scale).unsqueeze(ctx.dim))
                if number:
                    target.add_(shares)
        for weight, result, scale, grad, places in every:
            if places is not None:
                where = places[1 - ctx.dim]
                shares = _log_terms(distance[places], weight[places], scale).sub_(_finite(result)[where]).exp_()
                total.index_put_(places, shares.mul_(grad[where] * scale), accumulate=True)
        return total, *unused


def _places(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of the pairs that have a weight, if they are few and looking is free."""
    if weight.device.type != "cpu" or weight.count_nonzero() > SPARSE * weight.numel():
        return None
    return weight.nonzero(as_tuple=True)  # pyright: ignore[reportReturnType]


def _gathered_sum(
    distance: Tensor, weight: Tensor, scale: float, places: tuple[Tensor, Tensor], dim: int, result: Tensor
) -> None:
    where = places[1 - dim]
    terms = _log_terms(distance[places], weight[places], scale)
    highest = _finite(result.scatter_reduce_(0, where, terms, "amax"))
    sums = torch.zeros_like(result).index_add_(0, where, terms.sub_(highest[where]).exp_())
    torch.add(sums.log_(), highest, out=result)


def _log_terms(distance: Tensor, weight: Tensor, scale: float, *, out: Tensor | None = None) -> Tensor:
    """log(w·e^{scale·d}), −inf without a weight."""
    terms = torch.mul(distance, scale, out=out)
    if weight.dtype is torch.bool:
        return terms.masked_fill_(~weight, NOTHING)
    return terms.add_(weight.to(distance.dtype).log())


def _finite(logarithms: Tensor) -> Tensor:
    """Those of empty sums replaced by 0, so that −inf less this stays −inf."""
    return logarithms.masked_fill(logarithms == NOTHING, 0)
