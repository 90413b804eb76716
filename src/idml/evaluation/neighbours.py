"""Exact nearest neighbours, in bounded memory, with ties in the order of the gallery."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from idml.evaluation.comparing import Comparison
from idml.evaluation.sharing import added_up, own_part
from idml.progress import Progress, followed, no_progress

MOST_ROWS = 512  # queries at once on the CPU: enough for a fast matrix product
SPARE = 16  # images beyond the last rank that are looked at, for some may be too close to it to call
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
    available = len(comparison.gallery) - comparison.same
    there = [min(rank, available) for rank in ranks]
    distinct = sorted(set(there))
    looked_at = min(distinct[-1] + SPARE, available)
    number, device = len(comparison.queries), comparison.queries.device
    found = torch.zeros(number, len(distinct), dtype=torch.long, device=device)
    rivals = torch.zeros(number, dtype=torch.long, device=device)
    for rows, rough in _rough_distances(comparison, memory, shared, progress):
        near = _Near(*rough.topk(looked_at, dim=1, largest=False), is_all=looked_at == available)
        found[rows] = _at_ranks(comparison, rows, rough, near, distinct)
        rivals[rows] = _rivals(comparison, rows, rough, near, found[rows, 0], gallery_labels)
        rivals[rows] += 1  # 0, to be added up: none
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


class _Near(NamedTuple):
    """The images that are nearest by rough distances, and these, rising; whether they are all that there are."""

    distance: Float[Tensor, "q k"]
    column: Int[Tensor, "q k"]
    is_all: bool

    def reach(self, limit: Float[Tensor, " q"]) -> Bool[Tensor, " q"]:
        """Whether none can be missing that is no farther than this."""
        return self.distance[:, -1] > limit if not self.is_all else torch.ones_like(limit, dtype=torch.bool)

    def upto(self, limit: Float[Tensor, "q 1"]) -> tuple[Int[Tensor, " c"], Int[Tensor, " c"], Float[Tensor, " c"]]:
        """Query, column and distance of those no farther than that, in the order of queries, and then of columns."""
        column, order = self.column.sort(dim=1)
        distance = self.distance.gather(1, order)
        query, place = (distance <= limit).nonzero(as_tuple=True)
        return query, column[query, place], distance[query, place]


def _at_ranks(
    comparison: Comparison, rows: Int[Tensor, " q"], rough: Float[Tensor, "q m"], near: _Near, ranks: Sequence[int]
) -> Int[Tensor, "q r"]:
    """The images at these ranks: rough distances tell how many are nearer, exact ones which it is of those left.

    An image of that rank is no farther than the tolerance from the rough distance of that rank, and that is as far
    again from its own rough distance.
    """
    at_ranks = near.distance[:, [rank - 1 for rank in ranks]]
    least, most = at_ranks - 2 * comparison.tolerance, at_ranks + 2 * comparison.tolerance
    nearer = torch.searchsorted(near.distance, least)
    if near.reach(most[:, -1]).all():
        query, column, distance = near.upto(most[:, -1:])
    else:
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


def _rivals(
    comparison: Comparison,
    rows: Int[Tensor, " q"],
    rough: Float[Tensor, "q m"],
    near: _Near,
    nearest: Int[Tensor, " q"],
    gallery_labels: Int[Tensor, " m"],
) -> Int[Tensor, " q"]:
    """The nearest image of another class than the nearest; −1 where there is none."""
    own = gallery_labels[nearest]
    others = near._replace(distance=near.distance.masked_fill(gallery_labels[near.column] == own[:, None], torch.inf))
    limit = others.distance.amin(dim=1) + 2 * comparison.tolerance
    is_near = limit.isfinite() & near.reach(limit)
    rivals = torch.full_like(nearest, -1)
    chosen = is_near.nonzero()[:, 0]
    query, column, _ = others.upto(limit.masked_fill(~is_near, -torch.inf)[:, None])
    query, column, _ = _in_order(query, column, comparison.exact(rows[query], column))
    rivals[chosen] = column[torch.searchsorted(query, chosen)]
    chosen = (~is_near).nonzero()[:, 0]  # all that are near are of one class
    far = rough[chosen].masked_fill_(gallery_labels == own[chosen, None], torch.inf)
    has_rival = far.amin(dim=1).isfinite()
    contested = chosen[has_rival]
    rivals[contested] = _settled(comparison, rows[contested], far[has_rival], 1)[0][:, 0]
    return rivals


def _in_order(query: Tensor, column: Tensor, exact: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted by query, then distance, then gallery index; `query` and `column` come in that order already."""
    order = exact.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    return query[order], column[order], exact[order]
