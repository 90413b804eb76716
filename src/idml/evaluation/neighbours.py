"""Exact nearest neighbours, in bounded memory, with ties in the order of the gallery."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


class Surroundings(NamedTuple):
    """The gallery images at some ranks of each query, and the nearest that is of another class than the nearest one.

    That rival is −1 where there is none. Where the gallery has fewer images than a rank, its last one has it.
    """

    at_ranks: Int[Tensor, "q r"]
    rival: Int[Tensor, " q"]


def surroundings(
    comparison: Comparison,
    gallery_labels: Int[Tensor, " m"],
    ranks: Sequence[int],
    *,
    memory: int = 1 << 30,
    shared: bool = False,
    progress: Progress = no_progress,
) -> Surroundings:
    """What stands around each query.

    ranks: rising, the first of them 1. Ties, and `shared`, as in `nearest`.
    """
    there = [min(rank, len(comparison.gallery) - comparison.same) for rank in ranks]
    distinct = sorted(set(there))
    number, device = len(comparison.queries), comparison.queries.device
    found = torch.zeros(number, len(distinct), dtype=torch.long, device=device)
    rivals = torch.zeros(number, dtype=torch.long, device=device)
    for rows, rough in _rough_distances(comparison, memory, shared, progress):
        found[rows] = _at_ranks(comparison, rows, rough, distinct)
        rough.masked_fill_(gallery_labels == gallery_labels[found[rows, :1]], torch.inf)
        has_rival = rough.amin(dim=1).isfinite()
        contested, rough = (rows, rough) if has_rival.all() else (rows[has_rival], rough[has_rival])
        rivals[contested] = _settled(comparison, contested, rough, 1)[0][:, 0] + 1  # 0, to be added up: none
    at_ranks = added_up(found, shared=shared)[:, [distinct.index(rank) for rank in there]]
    return Surroundings(at_ranks, added_up(rivals, shared=shared) - 1)


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


def _at_ranks(
    comparison: Comparison, rows: Int[Tensor, " q"], rough: Float[Tensor, "q m"], ranks: Sequence[int]
) -> Int[Tensor, "q r"]:
    """The images at these ranks: rough distances tell how many are nearer, exact ones which it is of those left.

    An image of that rank is no farther than the tolerance from the rough distance of that rank, and that is as far
    again from its own rough distance.
    """
    nearest = rough.topk(ranks[-1], dim=1, largest=False).values
    at_ranks = nearest[:, [rank - 1 for rank in ranks]]
    least, most = at_ranks - 2 * comparison.tolerance, at_ranks + 2 * comparison.tolerance
    nearer = torch.searchsorted(nearest, least)
    query, column = (rough <= most[:, -1:]).nonzero(as_tuple=True)
    distance = rough[query, column]
    found = torch.zeros_like(nearer)
    for number, rank in enumerate(ranks):
        is_close = (distance >= least[query, number]) & (distance <= most[query, number])
        close, candidates = query[is_close], column[is_close]
        close, candidates, _ = _in_order(close, candidates, comparison.exact(rows[close], candidates))
        first = torch.searchsorted(close, torch.arange(len(rows), device=rows.device))
        found[:, number] = candidates[first + rank - 1 - nearer[:, number]]
    return found


def _in_order(query: Tensor, column: Tensor, exact: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted by query, then distance, then gallery index; `query` and `column` come in that order already."""
    order = exact.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    return query[order], column[order], exact[order]
