"""Softening a semantic discrepancy by its relative uncertainty (IDML, TPAMI 2023, equation 6)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from idml.numerics.blocks import FEW_GRADIENTS, blocks_across, few_places
from idml.numerics.pairwise import differentiate, lengths

# Past these exponents e^{−x} is 0. A finite bound keeps e^{−x}·x from becoming 0·∞.
STEEPEST = {torch.float32: 104.0, torch.float64: 746.0}


def softened(half_squares: Float[Tensor, "n m"], doubt: Float[Tensor, "#n #m"], *, tau: float) -> Float[Tensor, "n m"]:
    """The weight e^{−x}, x = doubt/(τα), α² = 2h, in ordinary operations.

    Where α = 0 it is 0, or 1 if there is no doubt either; all its derivatives are 0 there.
    """
    alpha = lengths(half_squares.clone())
    at_zero = alpha.detach() == 0
    vanished = doubt.detach() > STEEPEST[alpha.dtype] * tau * alpha.detach()
    # Where the weight is 0 or 1 to the last digit, constants take the place of what has no finite derivative.
    exponent = doubt / (tau * alpha.masked_fill(vanished | at_zero, 1))
    return (-exponent.masked_fill(vanished | at_zero, 0)).exp().masked_fill(vanished, 0)


def soften(
    half_squares: Float[Tensor, "n m"],
    doubt: Float[Tensor, "#n #m"],
    missing: Float[Tensor, "n m"] | None = None,
    *,
    tau: float,
    cosine: bool,
) -> Float[Tensor, "n m"]:
    """plain·e^{−x}, where plain is α, or h + missing (= 1 − C) on the cosine base.

    half_squares is h = α²/2; doubt is β + γ. The backward pass keeps these two matrices and no other.
    """
    return _Soften.apply(half_squares, doubt, missing, tau, cosine)  # pyright: ignore[reportReturnType]


class _Soften(torch.autograd.Function):
    @staticmethod
    def forward(ctx, half_squares, doubt, missing, tau, cosine):
        ctx.save_for_backward(half_squares, doubt, missing)
        ctx.tau, ctx.cosine = tau, cosine
        distance = torch.empty_like(half_squares)
        doubt = doubt.expand_as(half_squares)
        for here, alpha in blocks_across(half_squares, 1):
            torch.mul(half_squares[here], 2, out=alpha).sqrt_()
            weight = _negative_exponent(alpha, doubt[here], tau, out=distance[here]).exp_()
            if not cosine:
                weight.mul_(alpha)
            else:
                weight.mul_(half_squares[here] if missing is None else half_squares[here] + missing[here])
        return distance

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        half_squares, doubt, missing = ctx.saved_tensors
        unused = (None, None, None)
        if torch.is_grad_enabled():  # a second derivative is wanted: of the plain expression
            weight = softened(half_squares, doubt, tau=ctx.tau)
            plain = half_squares if ctx.cosine else lengths(half_squares.clone())
            distance = weight * (plain if missing is None else plain + missing)
            return *differentiate(distance, (half_squares, doubt), grad, ctx.needs_input_grad), *unused
        wide_doubt = doubt.expand_as(half_squares)
        few = few_places(grad, share=FEW_GRADIENTS)
        if few is None:
            grad_half, grad_doubt = torch.empty_like(half_squares), torch.empty_like(half_squares)
            places = (here for here, _ in blocks_across(half_squares, 1))
        else:
            grad_half, grad_doubt = torch.zeros_like(half_squares), torch.zeros_like(half_squares)
            places = (few,)
        for here in places:
            grad_half[here], grad_doubt[here] = _slopes(
                half_squares[here],
                wide_doubt[here],
                None if missing is None else missing[here],
                grad[here],
                tau=ctx.tau,
                cosine=ctx.cosine,
            )
        return grad_half, grad_doubt.sum_to_size(doubt.shape), *unused


def _slopes(
    half_squares: Tensor, doubt: Tensor, missing: Tensor | None, grad: Tensor, *, tau: float, cosine: bool
) -> tuple[Tensor, Tensor]:
    """∂J/∂h and ∂J/∂(β + γ) from ∂J/∂D, in tensors of any shape; 0 where α = 0."""
    alpha = (2 * half_squares).sqrt_()
    at_zero = alpha == 0
    minus_x = _negative_exponent(alpha, doubt, tau)
    flow = minus_x.exp().mul_(grad).masked_fill_(at_zero, 0)  # ∂J/∂D · e^{−x}
    alpha.masked_fill_(at_zero, 1)
    if cosine:
        grad_half = torch.addcmul(flow, flow, minus_x, value=-0.5)  # (1 + x/2)
        slope = alpha.mul_(0.5) if missing is None else (half_squares + missing).div_(alpha)
        return grad_half, flow.mul_(slope).div_(-tau)
    grad_half = torch.addcmul(flow, flow, minus_x, value=-1).div_(alpha)  # (1 + x)/α
    return grad_half, flow.div_(-tau)


def _negative_exponent(alpha: Tensor, doubt: Tensor, tau: float, *, out: Tensor | None = None) -> Tensor:
    """−x, bounded; where α = 0 it is the bound, or 0 if there is no doubt either."""
    floor = math.sqrt(torch.finfo(alpha.dtype).tiny)
    positive_alpha = torch.clamp(alpha, min=floor, out=out)
    return torch.div(doubt, positive_alpha, out=positive_alpha).mul_(-1 / tau).clamp_(min=-STEEPEST[alpha.dtype])
