"""Distances between all rows of two sets of vectors, twice differentiable, keeping no (n, m) matrix."""

import torch
from jaxtyping import Float
from torch import Tensor

from idml.numerics.precision import full_precision
from idml.numerics.products import EVERYWHERE, compare, directions, pulls, row_lengths, wide_rows


def half_squared_chords(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "m d"] | None,
    x_length: Float[Tensor, " n"],
    y_length: Float[Tensor, " m"],
    *,
    may_be_zero: bool = True,
) -> Float[Tensor, "n m"]:
    """½‖x̂_i − ŷ_j‖² of directions, which is 1 minus their cosine; exactly 0 for identical rows.

    A row of length 0 has no direction: it stays zero and receives no gradient. may_be_zero=False
    promises that there is none.
    """
    return _HalfSquaredChords.apply(x, y, x_length, y_length, may_be_zero)  # pyright: ignore[reportReturnType]


def half_squared_sums(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"] | None) -> Float[Tensor, "n m"]:
    """½‖x_i + y_j‖²; exactly 0 for opposite rows."""
    return _HalfSquaredSums.apply(x, y)  # pyright: ignore[reportReturnType]


def lengths(half_squares: Float[Tensor, "*shape"], smoothing: float = 0.0) -> Float[Tensor, "*shape"]:
    """√(2h + ε²) − ε, the (smoothed) length of a vector whose half squared length is h.

    At h = 0 the length is 0; without smoothing its gradient is taken to be 0 there. The lengths
    take the place of `half_squares` in memory: that tensor is used up.
    """
    return _Lengths.apply(half_squares, smoothing)  # pyright: ignore[reportReturnType]


def differentiate(
    value: Tensor, inputs: tuple[Tensor | None, ...], grad: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """Gradients of `value` that can be differentiated again, for the inputs that want one."""
    chosen = [side for side, is_wanted in zip(inputs, wanted, strict=False) if is_wanted and side is not None]
    grads = iter(torch.autograd.grad(value, chosen, grad, create_graph=True))
    return [next(grads) if is_wanted else None for _, is_wanted in zip(inputs, wanted, strict=False)]


class _HalfSquaredChords(torch.autograd.Function):
    """Keeps rows and the places of close pairs for the backward pass, no (n, m) matrix."""

    @staticmethod
    def forward(ctx, x, y, x_length, y_length, may_be_zero):
        with full_precision(x.device):
            x_inverse = _inverse(x_length, may_be_zero)
            y_inverse = None if y is None else _inverse(y_length, may_be_zero)
            x_unit, y_unit = x * x_inverse, None if y is None else y * y_inverse
            x_half = y_half = None
            if may_be_zero:
                x_half, y_half = ((length > 0).to(x.dtype).mul_(0.5) for length in (x_length, y_length))
            half_squares, ctx.close = compare(x_unit, y_unit, x_half, y_half, -1, rows=(x, y), largest=1.0)
            ctx.save_for_backward(x, y, x_inverse, y_inverse, x_unit, y_unit)
            return half_squares

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, x_inverse, y_inverse, x_unit, y_unit = ctx.saved_tensors
        wanted, unused = ctx.needs_input_grad[:2], (None, None, None)
        with full_precision(x.device):
            if torch.is_grad_enabled():  # a second derivative is wanted: of the plain expression
                return *differentiate(_plain_chords(x, y), (x, y), grad, wanted), *unused
            if ctx.close is EVERYWHERE:
                x_unit, y_unit = wide_rows(x, y, as_directions=True)
                grad = grad.to(x_unit.dtype)
            # Of ∂h/∂x̂ = x̂ − ŷ the part along x̂ does not turn the direction, so −ŷ across x̂ is all that counts.
            pull_x, pull_y = pulls(grad, x_unit, y_unit, -1, ctx.close, rows=(x, y), wanted=wanted)
            grad_x = None if pull_x is None else _turn(pull_x, x_unit, x_inverse).to(x.dtype)
            grad_y = None if pull_y is None or y_unit is None else _turn(pull_y, y_unit, y_inverse).to(x.dtype)
        return grad_x, grad_y, *unused


class _HalfSquaredSums(torch.autograd.Function):
    """Keeps rows and the places of close pairs for the backward pass, no (n, m) matrix."""

    @staticmethod
    def forward(ctx, x, y):
        with full_precision(x.device):
            x_half = row_lengths(x).square_().mul_(0.5)
            y_half = x_half if y is None else row_lengths(y).square_().mul_(0.5)
            half_squares, ctx.close = compare(x, y, x_half, y_half, 1)
            ctx.save_for_backward(x, y)
            return half_squares

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        with full_precision(x.device):
            if torch.is_grad_enabled():  # a second derivative is wanted: of the plain expression
                return tuple(differentiate(_plain_sums(x, y), (x, y), grad, wanted))
            dtype = x.dtype
            if ctx.close is EVERYWHERE:
                x, y = wide_rows(x, y)
                grad = grad.to(x.dtype)
            return tuple(
                None if pull is None else pull.to(dtype) for pull in pulls(grad, x, y, 1, ctx.close, wanted=wanted)
            )


class _Lengths(torch.autograd.Function):
    """Keeps its own output alone for the backward pass: the derivative is 1/(length + ε)."""

    @staticmethod
    def forward(ctx, half_squares, smoothing):
        ctx.mark_dirty(half_squares)
        length = half_squares.mul_(2)
        if smoothing == 0:
            length.sqrt_()
        else:  # = √(2h + ε²) − ε without its cancellation
            length.div_((length + smoothing**2).sqrt_().add_(smoothing))
        ctx.save_for_backward(length)
        ctx.smoothing = smoothing
        return length

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        (length,) = ctx.saved_tensors
        if ctx.smoothing:
            return grad / (length + ctx.smoothing), None
        at_zero = length == 0
        if torch.is_grad_enabled():
            return (grad / length.masked_fill(at_zero, 1)).masked_fill(at_zero, 0), None
        return (grad / length).masked_fill_(at_zero, 0), None


def _inverse(length: Tensor, may_be_zero: bool) -> Tensor:
    """1/length as a column, and 0 for a row without direction."""
    inverse = length.reciprocal()
    return (inverse.masked_fill_(length == 0, 0) if may_be_zero else inverse)[:, None]


def _plain_chords(x: Tensor, y: Tensor | None) -> Tensor:
    """½‖x̂_i − ŷ_j‖² in ordinary operations."""
    x_unit = directions(x)
    y_unit = x_unit if y is None else directions(y)
    squares = x_unit.square().sum(dim=1)[:, None] + y_unit.square().sum(dim=1)
    return squares / 2 - x_unit @ y_unit.T


def _plain_sums(x: Tensor, y: Tensor | None) -> Tensor:
    """½‖x_i + y_j‖² in ordinary operations."""
    y = x if y is None else y
    return (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)) / 2 + x @ y.T


def _turn(pull: Tensor, unit: Tensor, inverse: Tensor) -> Tensor:
    """The gradient `pull` of a direction, carried back through x̂ = x/‖x‖."""
    along = torch.linalg.vecdot(pull, unit)[:, None]
    return pull.addcmul_(unit, along, value=-1).mul_(inverse)
