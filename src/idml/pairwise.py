"""All differences between two sets of vectors at once, exact where they vanish, twice differentiable.

Squared distances are taken from a matrix product, which is fast but loses the digits of nearly
equal rows: in float32, identical rows come out 3e-4 apart. So on the CPU close pairs are computed
again from their differences, and elsewhere, where finding them would wait for the device, the
product runs in float64. A set compared with itself (`y=None`) needs one product less.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from idml.blocks import FEW_GRADIENTS, few_places
from idml.precision import full_precision

CLOSE = 1e-3  # pairs this near, relative to the rows' squared lengths, keep too few digits in a product
ROUNDING = 1e-14  # what float64 leaves of the difference of identical rows, with room
MOST_RECOMPUTED = 16  # pairs a row, beyond which a float64 product is cheaper than differences
RECOMPUTED_AT_ONCE = 1 << 22  # numbers held while close pairs are computed again: 16 MiB of float32


def row_lengths(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return torch.linalg.vector_norm(rows, dim=1)


def directions(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows scaled to length 1; a zero row has no direction, stays zero and receives no gradient."""
    square = rows.square().sum(dim=1, keepdim=True)
    at_zero = square == 0
    return (rows / square.masked_fill(at_zero, 1).sqrt()).masked_fill(at_zero, 0)


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


class _HalfSquaredChords(torch.autograd.Function):
    """Keeps rows alone for the backward pass, no (n, m) matrix."""

    @staticmethod
    def forward(ctx, x, y, x_length, y_length, may_be_zero):
        with full_precision(x.device):
            x_inverse, y_inverse = (
                _inverse(x_length, may_be_zero),
                None if y is None else _inverse(y_length, may_be_zero),
            )
            x_unit, y_unit = x * x_inverse, None if y is None else y * y_inverse
            ctx.save_for_backward(x, y, x_inverse, y_inverse, x_unit, y_unit)
            if not may_be_zero:
                return _half_squares(x_unit, y_unit, None, None, -1)
            x_half, y_half = ((length > 0).to(x.dtype).mul_(0.5) for length in (x_length, y_length))
            return _half_squares(x_unit, y_unit, x_half, y_half, -1, largest=1.0)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, x_inverse, y_inverse, x_unit, y_unit = ctx.saved_tensors
        wanted, unused = ctx.needs_input_grad[:2], (None, None, None)
        with full_precision(x.device):
            if torch.is_grad_enabled():  # a second derivative is wanted: of the plain expression
                sides = [side for side, is_wanted in zip((x, y), wanted, strict=True) if is_wanted]
                grads = iter(torch.autograd.grad(_plain_chords(x, y), sides, grad, create_graph=True))
                return *(next(grads) if is_wanted else None for is_wanted in wanted), *unused
            if y is None:
                return _turn(_weighted_sums(grad, x_unit, both_ways=True), x_unit, x_inverse), None, *unused
            grad_x = _turn(_weighted_sums(grad, y_unit), x_unit, x_inverse) if wanted[0] else None
            grad_y = _turn(_weighted_sums(grad.T, x_unit), y_unit, y_inverse) if wanted[1] else None
        return grad_x, grad_y, *unused


class _HalfSquaredSums(torch.autograd.Function):
    """Keeps rows alone for the backward pass, no (n, m) matrix."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        with full_precision(x.device):
            x_half = row_lengths(x).square_().mul_(0.5)
            y_half = x_half if y is None else row_lengths(y).square_().mul_(0.5)
            return _half_squares(x, y, x_half, y_half, 1)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y = ctx.saved_tensors
        grad_x = grad_y = None
        with full_precision(x.device):
            if y is None:
                own = grad.sum(dim=1) + grad.sum(dim=0)
                return _weighted_sums(grad, x, both_ways=True).addcmul_(x, own[:, None]), None
            if ctx.needs_input_grad[0]:
                grad_x = _weighted_sums(grad, y).addcmul_(x, grad.sum(dim=1)[:, None])
            if ctx.needs_input_grad[1]:
                grad_y = _weighted_sums(grad.T, x).addcmul_(y, grad.sum(dim=0)[:, None])
        return grad_x, grad_y


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


def _turn(pull: Tensor, unit: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of a direction whose neighbours sum to `pull`, carried back through x̂ = x/‖x‖.

    Of ∂h/∂x̂ = x̂ − ŷ the part along x̂ does not turn the direction, so −ŷ across x̂ is all that counts.
    """
    along = torch.linalg.vecdot(pull, unit)[:, None]
    return pull.addcmul_(unit, along, value=-1).mul_(-inverse)


def _weighted_sums(weights: Tensor, rows: Tensor, *, both_ways: bool = False) -> Tensor:
    """weights @ rows, or (weights + weightsᵀ) @ rows; over the weights that are not 0, where they are few.

    Losses that mine, or that margins silence, leave most pairs without gradient.
    """
    few = None if torch.is_grad_enabled() else few_places(weights, share=FEW_GRADIENTS)
    if few is None:  # also where a second derivative is wanted
        return (weights + weights.T if both_ways else weights) @ rows
    i, j = few
    values = weights[few]
    if both_ways:
        i, j, values = torch.cat([i, j]), torch.cat([j, i]), values.repeat(2)
    some = torch.sparse_coo_tensor(torch.stack([i, j]), values, weights.shape, check_invariants=False)
    return torch.sparse.mm(some.coalesce(), rows)


def _half_squares(
    x: Tensor, y: Tensor | None, x_half: Tensor | None, y_half: Tensor | None, sign: int, largest: float | None = None
) -> Tensor:
    """½‖x_i ± y_j‖², from rows and their half squared lengths (None: all are ½).

    largest: a bound on the sum of two half squared lengths, where it is known beforehand.
    """
    if x.device.type != "cpu":
        return _product_in_double(x, y, sign)
    half_squares = _product(x, y, x_half, y_half, sign)
    if half_squares.numel() == 0:
        return half_squares
    is_distance_to_itself = y is None and sign < 0
    if is_distance_to_itself:
        half_squares.fill_diagonal_(float("inf"))  # known, and no candidate
    # One bound for all rows finds candidates in a single cheap pass; each then faces its own.
    if largest is None:
        largest = 1.0 if x_half is None or y_half is None else float(x_half.max() + y_half.max())
    candidates = None
    if float(half_squares.min()) <= CLOSE * largest:
        candidates = (half_squares <= CLOSE * largest).nonzero(as_tuple=True)
    if is_distance_to_itself:
        half_squares.fill_diagonal_(0)
    if candidates is not None:
        i, j = candidates
        if x_half is not None and y_half is not None:
            is_close = half_squares[i, j] <= CLOSE * (x_half[i] + y_half[j])
            i, j = i[is_close], j[is_close]
        if len(i) > MOST_RECOMPUTED * sum(half_squares.shape):
            return _product_in_double(x, y, sign)
        _recompute(half_squares, x, x if y is None else y, i, j, sign)
    return half_squares


def _product(x: Tensor, y: Tensor | None, x_half: Tensor | None, y_half: Tensor | None, sign: int) -> Tensor:
    transposed = (x if y is None else y).T
    if x_half is None or y_half is None:
        return torch.addmm(x.new_ones(()), x, transposed, alpha=sign)
    return torch.addmm(y_half, x, transposed, alpha=sign).add_(x_half[:, None])


def _product_in_double(x: Tensor, y: Tensor | None, sign: int) -> Tensor:
    precision = torch.float32 if x.device.type == "mps" else torch.float64  # mps has no float64
    wide_x, wide_y = x.to(precision), None if y is None else y.to(precision)
    x_half = wide_x.square().sum(dim=1).mul_(0.5)
    y_half = x_half if wide_y is None else wide_y.square().sum(dim=1).mul_(0.5)
    half_squares = _product(wide_x, wide_y, x_half, y_half, sign)
    rounding = ROUNDING if precision is torch.float64 else 1e-6
    # What rounding leaves of a vanishing difference is taken for zero; it may be below zero, too.
    return half_squares.masked_fill_(half_squares <= rounding * (x_half[:, None] + y_half), 0).to(x.dtype)


def _recompute(half_squares: Tensor, x: Tensor, y: Tensor, i: Tensor, j: Tensor, sign: int) -> None:
    """Fill in pairs (i, j) from their differences."""
    at_once = max(1, RECOMPUTED_AT_ONCE // x.shape[1])
    for some_i, some_j in zip(i.split(at_once), j.split(at_once), strict=True):
        difference = x[some_i].add_(y[some_j], alpha=sign)
        half_squares[some_i, some_j] = row_lengths(difference).square_().mul_(0.5)
