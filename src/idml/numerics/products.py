"""Differences between all rows of two sets, from a matrix product, exact where the product is not.

A product is fast but loses the digits of nearly equal rows: in float32, identical rows come out
up to 1e-3 apart, and the gradient of their distance is noise. So on the CPU close pairs are computed from
their differences, in float64, forward and backward; elsewhere, where finding them would wait for the
device, the products run in float64. A set compared with itself (`y=None`) needs one product less.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from idml.numerics.blocks import FEW_GRADIENTS, few_places

Places = tuple[Tensor, Tensor]  # rows and columns of listed pairs
EVERYWHERE: Places = (torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))  # in place of a list

CLOSE = 1e-3  # pairs this near, relative to the rows' squared lengths, keep too few digits in a product
# What a product leaves of the difference of identical rows, with room.
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-6}
MOST_RECOMPUTED = 16  # pairs a row, beyond which a float64 product is cheaper than differences
RECOMPUTED_AT_ONCE = 1 << 22  # numbers held while close pairs are computed again: 32 MiB of float64


def row_lengths(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return torch.linalg.vector_norm(rows, dim=1)


def directions(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows scaled to length 1; a zero row has no direction, stays zero and receives no gradient."""
    square = rows.square().sum(dim=1, keepdim=True)
    at_zero = square == 0
    return (rows / square.masked_fill(at_zero, 1).sqrt()).masked_fill(at_zero, 0)


def steady_sum(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n 1"]:
    """The sum of each row, in an order that depends on nothing but its width.

    A plain sum may differ in the last digit on another device, or beside fewer rows, and would break ties there.
    """
    if rows.shape[1] == 0:
        return rows.new_zeros(len(rows), 1)
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        both = rows[:, :half] + rows[:, half : 2 * half]
        rows = torch.cat([both, rows[:, 2 * half :]], dim=1) if rows.shape[1] % 2 else both
    return rows


def steady_directions(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """`directions` by steady sums: equal rows are equal wherever they stand."""
    square = steady_sum(rows.square())
    at_zero = square == 0
    return (rows / square.masked_fill(at_zero, 1).sqrt()).masked_fill(at_zero, 0)


def compare(
    x: Tensor,
    y: Tensor | None,
    x_half: Tensor | None,
    y_half: Tensor | None,
    sign: int,
    *,
    rows: tuple[Tensor, Tensor | None] | None = None,
    largest: float | None = None,
) -> tuple[Tensor, Places | None]:
    """½‖x_i ± y_j‖², from rows and their half squared lengths (None: all are ½), and which pairs are close.

    rows: what to scale to directions in float64 where x and y are not exact enough.
    largest: a bound on the sum of two half squared lengths, where it is known beforehand.
    """
    if x.device.type != "cpu":
        return _in_double(x, y, sign, rows), EVERYWHERE
    half_squares = _product(x, y, x_half, y_half, sign)
    if half_squares.numel() == 0:
        return half_squares, None
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
    if candidates is None:
        return half_squares, None
    i, j = candidates
    if x_half is not None and y_half is not None:
        is_close = half_squares[i, j] <= CLOSE * (x_half[i] + y_half[j])
        i, j = i[is_close], j[is_close]
    if x.dtype is torch.float32 and len(i) > MOST_RECOMPUTED * sum(half_squares.shape):
        return _in_double(x, y, sign, rows), EVERYWHERE
    for here, difference in _differences(x, y, (i, j), sign, rows):
        half_squares[i[here], j[here]] = (difference.square().sum(dim=1) / 2).to(x.dtype)
    return half_squares, (i, j)


def _product(x: Tensor, y: Tensor | None, x_half: Tensor | None, y_half: Tensor | None, sign: int) -> Tensor:
    transposed = (x if y is None else y).T
    if x_half is None or y_half is None:
        return torch.addmm(x.new_ones(()), x, transposed, alpha=sign)
    return torch.addmm(y_half, x, transposed, alpha=sign).add_(x_half[:, None])


def _in_double(x: Tensor, y: Tensor | None, sign: int, rows: tuple[Tensor, Tensor | None] | None) -> Tensor:
    wide_x, wide_y = wide_rows(x, y) if rows is None else wide_rows(*rows, as_directions=True)
    wide_y = wide_x if wide_y is None else wide_y
    if x.dtype is torch.float64:  # a product in float64 would be no better than its input
        return torch.cdist(wide_x, -sign * wide_y, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(0.5)
    x_half, y_half = (side.square().sum(dim=1).mul_(0.5) for side in (wide_x, wide_y))
    half_squares = _product(wide_x, wide_y, x_half, y_half, sign)
    # What rounding leaves of a vanishing difference is taken for zero; it may be below zero, too.
    limit = ROUNDING[half_squares.dtype] * (x_half[:, None] + y_half)
    return half_squares.masked_fill_(half_squares <= limit, 0).to(x.dtype)


def wide_rows(x: Tensor, y: Tensor | None, *, as_directions: bool = False) -> tuple[Tensor, Tensor | None]:
    """Both sides in float64, or in float32 on mps, which has no float64."""
    precision = torch.float32 if x.device.type == "mps" else torch.float64
    sides = [None if side is None else side.to(precision) for side in (x, y)]
    if as_directions:
        sides = [None if side is None else directions(side) for side in sides]
    return sides[0], sides[1]  # pyright: ignore[reportReturnType]


def _differences(
    x: Tensor, y: Tensor | None, places: Places, sign: int, rows: tuple[Tensor, Tensor | None] | None
) -> Iterator[tuple[slice, Tensor]]:
    """x_i ± y_j in float64 for listed pairs, some at a time; of `rows`, between their directions."""
    i, j = places
    left, right = (x, y) if rows is None else rows
    right = left if right is None else right
    at_once = max(1, RECOMPUTED_AT_ONCE // x.shape[1])
    for start in range(0, len(i), at_once):
        here = slice(start, start + at_once)
        a, b = left[i[here]].double(), right[j[here]].double()
        if rows is not None:
            a, b = directions(a), directions(b)
        yield here, a.add_(b, alpha=sign)


def pulls(
    grad: Tensor,
    x: Tensor,
    y: Tensor | None,
    sign: int,
    close: Places | None,
    *,
    rows: tuple[Tensor, Tensor | None] | None = None,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None]:
    """Σ_j grad_ij (x_i ± y_j) for each x_i, and ± the same for each y_j; for directions, up to a part along them.

    Where a difference is next to nothing its gradient is often huge, and a product would drown it in
    rounding: close pairs are summed from their differences.
    """
    listed = None
    if close is not None and close is not EVERYWHERE:
        listed = grad[close]
        grad = grad.index_put(close, torch.zeros_like(listed))
    pull_x = pull_y = None
    if y is None:
        pull_x = _weighted_sums(grad, x, sign, both_ways=True)
    else:
        pull_x = _weighted_sums(grad, y, sign) if wanted[0] else None
        pull_y = _weighted_sums(grad.T, x, sign) if wanted[1] else None
    if rows is None:  # directions do not turn along themselves
        if pull_x is not None:
            own = grad.sum(dim=1) if y is not None else grad.sum(dim=1) + grad.sum(dim=0)
            pull_x.addcmul_(x, own[:, None])
        if pull_y is not None and y is not None:
            pull_y.addcmul_(y, grad.sum(dim=0)[:, None])
    if close is not None and listed is not None:
        to_y = pull_x if y is None else pull_y
        for here, difference in _differences(x, y, close, sign, rows):
            change = (difference * listed[here, None]).to(x.dtype)
            if pull_x is not None:
                pull_x.index_add_(0, close[0][here], change)
            if to_y is not None:
                to_y.index_add_(0, close[1][here], change, alpha=sign)
    return pull_x, pull_y


def _weighted_sums(weights: Tensor, rows: Tensor, sign: int, *, both_ways: bool = False) -> Tensor:
    """± weights @ rows, or ± (weights + weightsᵀ) @ rows; over the weights that are not 0, where they are few.

    Losses that mine, or that margins silence, leave most pairs without gradient.
    """
    few = few_places(weights, share=FEW_GRADIENTS)
    if few is None:
        return torch.addmm(rows.new_zeros(()), weights + weights.T if both_ways else weights, rows, beta=0, alpha=sign)
    i, j = few
    values = weights[few] * sign
    if both_ways:
        i, j, values = torch.cat([i, j]), torch.cat([j, i]), values.repeat(2)
    some = torch.sparse_coo_tensor(torch.stack([i, j]), values, weights.shape, check_invariants=False)
    return torch.sparse.mm(some.coalesce(), rows)
