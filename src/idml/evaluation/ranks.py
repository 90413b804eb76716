"""At which ranks a query finds the images of its own class: all retrieval scores follow from those.

The rank of an image is one more than the number of images closer to the query, so it is counted,
not sorted for: a pass over the distances for each image of the class, and nothing to keep. Where
queries and gallery are one set, each distance is computed once and counted for both its ends.
Where classes are large, sorting is cheaper, and done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import torch
from jaxtyping import Int
from torch import Tensor

from idml.evaluation.comparing import Comparison
from idml.evaluation.neighbours import row_chunks
from idml.evaluation.sharing import added_up, own_part
from idml.progress import Progress, followed, no_progress

TILE = 2048  # queries and gallery images at once on the CPU: enough for a fast matrix product
LARGE_TILE = 8192  # elsewhere
TILE_BYTES = 12  # a distance costs while it is counted, beside computing it: its transpose, masks
LANES = 8  # truth values, a byte each, in the 64-bit words that are added up at once
WORDS = 128  # words whose lanes can be added without overflow
WORTH_COPYING = 0.5  # of a tile's rows: if fewer have something to count, they are copied and the others left alone
COUNTED = 64  # images of a class: up to here ranks are counted, beyond they are sorted for


@dataclass(frozen=True, eq=False)
class Ranks:
    """For each query the ranks, from 1, of its class's gallery images, ascending; 0 past their number."""

    ranks: Int[Tensor, "q r"]
    number: Int[Tensor, " q"]

    @property
    def first(self) -> Int[Tensor, " q"]:
        """The rank of the nearest image of the class; 0 if it has none."""
        return self.ranks[:, 0] if self.ranks.shape[1] else torch.zeros_like(self.number)


def ranks_of_positives(
    comparison: Comparison,
    labels: Int[Tensor, " q"],
    gallery_labels: Int[Tensor, " m"] | None = None,
    *,
    memory: int = 1 << 30,
    shared: bool = False,
    progress: Progress = no_progress,
) -> Ranks:
    """Ranks of the gallery images of each query's class, the query itself left out by its index.

    memory: bytes to use beyond the embeddings and the result. shared: all processes of torch.distributed
    call this with the same sets; each does a part, and all get the whole.
    """
    members = _Members(labels if gallery_labels is None else gallery_labels, labels, same=comparison.same)
    ranks = torch.zeros(len(labels), members.most, dtype=torch.long, device=labels.device)
    by_number = members.number.argsort(stable=True)  # queries with as many positives go together
    is_counted = members.number[by_number] <= COUNTED
    for group in _counted(comparison, members, by_number[is_counted], memory, shared, progress):
        ranks[group.rows, : group.most] = _ascending(group.ranks, group.is_there)
    chunks = followed(row_chunks(comparison, by_number[~is_counted], memory), "ranks in large classes", progress)
    for rows in own_part(chunks, shared=shared):
        positives, is_there = members.of(rows)
        ranks[rows, : positives.shape[1]] = _ascending(_sorted(comparison, rows, positives), is_there)
    ranks[by_number[~is_counted]] = added_up(ranks[by_number[~is_counted]], shared=shared)
    return Ranks(ranks, members.number)


class _Members:
    """The gallery images of each class, in gallery order."""

    def __init__(self, gallery_labels: Tensor, labels: Tensor, *, same: bool):
        self.order = gallery_labels.argsort(stable=True)
        ordered = gallery_labels[self.order]
        self.start = torch.searchsorted(ordered, labels)
        self.stop = torch.searchsorted(ordered, labels, right=True)
        self.same = same
        self.number = self.stop - self.start - int(same)
        self.most = int(self.number.max()) if len(labels) else 0

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Gallery indices of the rows' positives (q, most of them), and which of them are there."""
        most = int(self.number[rows].max())
        place = self.start[rows, None] + torch.arange(most + self.same, device=rows.device)
        is_there = place < self.stop[rows, None]
        positives = self.order[place.clamp(max=len(self.order) - 1)]
        if self.same:  # close the gap that the query itself leaves
            is_there &= positives != rows[:, None]
            keep = (~is_there).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
            positives, is_there = positives.gather(1, keep), is_there.gather(1, keep)
        return positives, is_there


def _ascending(ranks: Tensor, is_there: Tensor) -> Tensor:
    """Sorted in each row; those that are not there come last, as 0."""
    last = torch.iinfo(torch.long).max
    ordered = ranks.masked_fill(~is_there, last).sort(dim=1).values
    return ordered.masked_fill_(ordered == last, 0)


class _Group:
    """Queries with about as many positives, what is certainly closer than each of those, and their ranks so far."""

    def __init__(self, comparison: Comparison, members: _Members, rows: Tensor):
        self.rows = rows
        self.positives, self.is_there = members.of(rows)
        query, place = self.is_there.nonzero(as_tuple=True)
        value = torch.full(self.positives.shape, -torch.inf, device=rows.device)  # nothing is closer than no positive
        value[query, place] = comparison.rough_pairs(rows[query], self.positives[query, place])
        value, nearest_first = value.sort(dim=1)
        self.positives, self.is_there = (side.gather(1, nearest_first) for side in (self.positives, self.is_there))
        self.below, self.above = value - comparison.tolerance, value + comparison.tolerance
        self.ranks = torch.ones_like(self.positives)

    @property
    def most(self) -> int:
        return self.positives.shape[1]


def _counted(
    comparison: Comparison, members: _Members, rows: Tensor, memory: int, shared: bool, progress: Progress
) -> Sequence[_Group]:
    tile = TILE if rows.device.type == "cpu" else LARGE_TILE
    side = min(tile, max(1, math.isqrt(memory // (TILE_BYTES + comparison.bytes_a_distance))))
    groups = [_Group(comparison, members, some) for some in rows.split(side) if len(rows)]
    parts = len(groups) * -(-len(comparison.gallery) // side)
    for group, columns, rough in followed(_tiles(comparison, groups, side, shared), "ranks", progress, length=parts):
        _count_closer(comparison, group, columns, rough)
    for group in groups:
        group.ranks = added_up(group.ranks - 1, shared=shared) + 1
    return groups


def _tiles(
    comparison: Comparison, groups: Sequence[_Group], side: int, shared: bool
) -> Iterator[tuple[_Group, Tensor, Tensor]]:
    """Rough distances of each group to all of the gallery, by parts; overwritten by the next ones."""
    device = comparison.queries.device
    space = torch.empty(2, side * side, device=device)

    def rough(rows: Tensor, columns: Tensor) -> Tensor:
        size = (len(rows), len(columns))
        return comparison.rough(rows, columns, out=space[0, : math.prod(size)].view(size))

    number = len(comparison.gallery)
    if not comparison.same or sum(len(group.rows) for group in groups) < number:
        pairs = product(groups, torch.arange(number, device=device).split(side))
        for group, columns in own_part(pairs, shared=shared):
            yield group, columns, rough(group.rows, columns)
        return
    for group, other in own_part(combinations_with_replacement(groups, 2), shared=shared):
        values = rough(group.rows, other.rows)
        yield group, other.rows, values
        if other is not group:
            yield other, group.rows, space[1, : values.numel()].view(values.shape[::-1]).copy_(values.T)


def _count_closer(comparison: Comparison, group: _Group, columns: Tensor, rough: Tensor) -> None:
    """Add to the group's ranks how many of these gallery images are closer than its positives."""
    closest = rough.amin(dim=1)
    is_column = torch.zeros(len(comparison.gallery), dtype=torch.bool, device=rough.device)
    is_column[columns] = True
    closer_mask, within_mask = _masks(rough)
    for place in range(group.most):
        active = (closest <= group.above[:, place]).nonzero()[:, 0]  # rows that have something here to count
        if len(active) > len(rough) * WORTH_COPYING:
            active, values = torch.arange(len(rough), device=rough.device), rough
        elif len(active):
            values = rough[active]
        else:
            continue
        is_closer, is_within = closer_mask[: len(active)], within_mask[: len(active)]
        closer = _count(torch.lt(values, group.below[active, place, None], out=is_closer))
        within = _count(torch.le(values, group.above[active, place, None], out=is_within))
        group.ranks[:, place].index_add_(0, active, closer)
        own = group.positives[active, place]
        unclear = (within - closer > is_column[own]).nonzero()[:, 0]
        if len(unclear):
            query, other = (is_within[unclear] & ~is_closer[unclear]).nonzero(as_tuple=True)
            rows = group.rows[active[unclear]]
            found = _closer_exactly(comparison, rows, own[unclear], query, columns[other])
            group.ranks[active[unclear], place] += found


def _masks(values: Tensor) -> tuple[Tensor, Tensor]:
    """Room for truth values beside each value, in rows of whole words: those past the end stay False."""
    padded = -(-values.shape[1] // (LANES * WORDS)) * LANES * WORDS
    first, second = torch.zeros(2, len(values), padded, dtype=torch.bool, device=values.device)
    return first[:, : values.shape[1]], second[:, : values.shape[1]]


def _count(mask: Tensor) -> Tensor:
    """How many are True in each row: eight bytes are added as one word, which never carries from lane to lane."""
    whole = mask.as_strided((len(mask), mask.stride(0)), mask.stride())
    words = whole.view(torch.int64).view(len(mask), -1, WORDS).sum(dim=2)
    return words.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()


def _closer_exactly(comparison: Comparison, rows: Tensor, own: Tensor, query: Tensor, other: Tensor) -> Tensor:
    """How many other images are closer to each row than its own, or as close and earlier in the gallery.

    query, other: doubtful pairs, as a place in `rows` and a gallery index.
    """
    mine = comparison.exact(rows, own)[query]
    theirs = comparison.exact(rows[query], other)
    is_closer = (theirs < mine) | ((theirs == mine) & (other < own[query]))
    return torch.zeros_like(rows).index_add_(0, query, is_closer.long())


def _sorted(comparison: Comparison, rows: Tensor, positives: Tensor) -> Tensor:
    ordered, order = comparison.rough(rows).sort(dim=1, stable=True)
    _settle_near_ties(comparison, rows, ordered, order)
    place = torch.empty_like(order)
    place.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    return place.gather(1, positives) + 1


def _settle_near_ties(comparison: Comparison, rows: Tensor, ordered: Tensor, order: Tensor) -> None:
    """Put runs of neighbours that are too close to call into their exact order, in place."""
    starts_run = torch.ones_like(ordered, dtype=torch.bool)
    starts_run[:, 1:] = ordered.diff(dim=1) > 2 * comparison.tolerance
    alone = starts_run.clone()
    alone[:, :-1] &= starts_run[:, 1:]
    alone |= torch.isinf(ordered)
    query, place = (~alone).nonzero(as_tuple=True)
    if len(query) == 0:
        return
    run = starts_run.flatten().cumsum(dim=0).view_as(order)[query, place]
    item = order[query, place]
    by = item.argsort(stable=True)
    by = by[comparison.exact(rows[query[by]], item[by]).argsort(stable=True)]
    by = by[run[by].argsort(stable=True)]
    order[query, place] = item[by]
