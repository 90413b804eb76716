"""Going over a large matrix block by block.

A pass over an (n, m) matrix costs more in memory traffic than in arithmetic. On the CPU, work is
done in blocks that stay in the cache, in one buffer; elsewhere, in one piece.
"""

from collections.abc import Iterator

from jaxtyping import Shaped
from torch import Tensor

BLOCK = 1 << 19  # numbers in a block on the CPU: 2 MiB of float32


def blocks_across(matrix: Shaped[Tensor, "n m"], dim: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of what is not summed (rows for dim=1, columns for dim=0), each with a buffer of its shape."""
    across, along = matrix.shape[1 - dim], max(1, matrix.shape[dim])
    step = max(1, min(across, BLOCK // along if matrix.device.type == "cpu" else across))
    buffer = matrix.new_empty((step, along) if dim == 1 else (along, step))
    for start in range(0, across, step):
        here = slice(start, min(start + step, across))
        yield here, part(buffer, slice(0, here.stop - start), dim)


def part(matrix: Shaped[Tensor, "n m"], here: slice, dim: int) -> Shaped[Tensor, "k l"]:
    return matrix[here] if dim == 1 else matrix[:, here]
