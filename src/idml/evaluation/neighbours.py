"""Exact nearest neighbours, in bounded memory, with ties in the order of the gallery."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.evaluation.comparing import Comparison
from idml.evaluation.sharing import added_up, own_part
from idml.progress import Progress, followed, no_progress

MOST_ROWS = 512  # queries at once on the CPU: enough for a fast matrix product
BYTES = 28  # a distance costs while it is ranked, beside computing it: its order, masks


def row_chunks(comparison: Comparison, rows: Int[Tensor, " q"], memory: int) -> tuple[Int[Tensor, " k"], ...]:
    """Queries in groups whose distances to the whole gallery fit the memory, in bytes."""
    cost = BYTES + comparison.bytes_a_distance
    most = max(1, memory // (cost * max(1, len(comparison.gallery))))
    return rows.split(min(most, MOST_ROWS) if rows.device.type == "cpu" else most) if len(rows) else ()


def nearest(
    comparison: Comparison, k: int, *, memory: int = 1 << 30, shared: bool = False, progress: Progress = no_progress
) -> tuple[Int[Tensor, "q k"], Float[Tensor, "q k"]]:
    """For each query the k nearest gallery images and their distances, nearest first.

    Equal distances come in the order of the gallery. A query is left out by its index, never by
    dropping the first neighbour: exact duplicates are found. shared: see `ranks_of_positives`.
    """
    available = len(comparison.gallery) - comparison.same
    if not 1 <= k <= available:
        raise ValueError(f"k is {k}, and a query has {available} images to choose from: give 1 to {available}.")
    number = len(comparison.queries)
    found = torch.zeros(number, k, dtype=torch.long, device=comparison.queries.device)
    distances = torch.zeros(number, k, dtype=torch.float64, device=found.device)
    for rows, rough in _rough_distances(comparison, memory, shared, progress):
        found[rows], distances[rows] = _settled(comparison, rows, rough, k)
    return added_up(found, shared=shared), added_up(distances, shared=shared)


def nearest_and_rival(
    comparison: Comparison,
    gallery_labels: Int[Tensor, " m"],
    *,
    memory: int = 1 << 30,
    shared: bool = False,
    progress: Progress = no_progress,
) -> tuple[Int[Tensor, " q"], Int[Tensor, " q"]]:
    """For each query the nearest gallery image, and the nearest that is of another class than this one.

    That rival is −1 where there is none. Ties, and `shared`, as in `nearest`.
    """
    found, rivals = torch.zeros(2, len(comparison.queries), dtype=torch.long, device=comparison.queries.device)
    for rows, rough in _rough_distances(comparison, memory, shared, progress):
        found[rows] = _settled(comparison, rows, rough, 1)[0][:, 0]
        rough.masked_fill_(gallery_labels == gallery_labels[found[rows], None], torch.inf)
        has_rival = rough.amin(dim=1).isfinite()
        contested, rough = (rows, rough) if has_rival.all() else (rows[has_rival], rough[has_rival])
        rivals[contested] = _settled(comparison, contested, rough, 1)[0][:, 0] + 1  # 0, to be added up: none
    return added_up(found, shared=shared), added_up(rivals, shared=shared) - 1


def _rough_distances(
    comparison: Comparison, memory: int, shared: bool, progress: Progress
) -> Iterator[tuple[Int[Tensor, " k"], Float[Tensor, "k m"]]]:
    """Queries, by chunks that fit the memory, and how far all of the gallery is; overwritten by the next ones."""
    device = comparison.queries.device
    chunks = row_chunks(comparison, torch.arange(len(comparison.queries), device=device), memory)
    space = torch.empty(max((len(rows) for rows in chunks), default=0), len(comparison.gallery), device=device)
    for rows in own_part(followed(chunks, "neighbours", progress), shared=shared):
        yield rows, comparison.rough(rows, out=space[: len(rows)])


def _settled(
    comparison: Comparison, rows: Int[Tensor, " q"], rough: Float[Tensor, "q m"], k: int
) -> tuple[Int[Tensor, "q k"], Float[Tensor, "q k"]]:
    """The k nearest by rough distances and how far they are, what is too close to call by exact ones."""
    kth = rough.amin(dim=1) if k == 1 else rough.topk(k, dim=1, largest=False).values[:, -1]  # amin is far faster
    limit = kth[:, None] + 2 * comparison.tolerance
    query, column = (rough <= limit).nonzero(as_tuple=True)  # k each, and those too close to call
    exact = comparison.exact(rows[query], column)
    query, column, exact = _in_order(query, column, exact)
    first = torch.searchsorted(query, torch.arange(len(rows), device=rows.device))
    place = first[:, None] + torch.arange(k, device=rows.device)
    return column[place], exact[place]


def _in_order(query: Tensor, column: Tensor, exact: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted by query, then distance, then gallery index; `query` and `column` come in that order already."""
    order = exact.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    return query[order], column[order], exact[order]
