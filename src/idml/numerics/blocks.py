"""Going over a large matrix block by block, or only where it matters.

A pass over an (n, m) matrix costs more in memory traffic than in arithmetic. On the CPU, work is
done in blocks that stay in the cache, in one buffer; elsewhere, in one piece.
"""

from collections.abc import Iterator

from jaxtyping import Shaped
from torch import Tensor

BLOCK = 1 << 19  # numbers in a block on the CPU: 2 MiB of float32
FEW = 1 / 8  # of the pairs: so many or fewer are gathered one by one, more are swept
FEW_GRADIENTS = 1 / 32  # of the pairs have one: up to here a sparse product is faster
SMALL = 1 << 15  # numbers in a matrix that is swept faster than its few pairs are found
EVERYTHING = slice(None)


def blocks_across(matrix: Shaped[Tensor, "n m"], dim: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of what is not summed (rows for dim=1, columns for dim=0), each with a buffer of its shape."""
    across, along = matrix.shape[1 - dim], max(1, matrix.shape[dim])
    step = max(1, BLOCK // along)
    if across <= step or matrix.device.type != "cpu":
        yield EVERYTHING, matrix.new_empty(matrix.shape)
        return
    buffer = matrix.new_empty((step, along) if dim == 1 else (along, step))
    for start in range(0, across, step):
        here = slice(start, min(start + step, across))
        yield here, part(buffer, slice(0, here.stop - start), dim)


def part(matrix: Shaped[Tensor, "n m"], here: slice, dim: int) -> Shaped[Tensor, "k l"]:
    if here is EVERYTHING:
        return matrix
    return matrix[here] if dim == 1 else matrix[:, here]


def few_places(matrix: Shaped[Tensor, "n m"], *, share: float | None = None) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of what is not zero, if that is at most a share of all and looking is free; else None.

    Few pairs of a batch are positive, and few break a margin: what concerns those alone need not
    sweep the matrix.
    """
    if matrix.device.type != "cpu" or matrix.numel() <= SMALL:
        return None
    if int(matrix.count_nonzero()) > (FEW if share is None else share) * matrix.numel():
        return None
    rows, columns = matrix.nonzero(as_tuple=True)
    return rows, columns
