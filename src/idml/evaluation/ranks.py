"""At which ranks a query finds the images of its own class: all retrieval scores follow from those.

The rank of an image is one more than the number of images closer to the query, so it is counted,
not sorted for: a pass over the distances for each image of the class, and nothing to keep. Where
classes are large, sorting is cheaper, and done.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from idml.evaluation.comparing import Comparison
from idml.evaluation.neighbours import row_chunks

STRETCH = 1 << 22  # distances at once on the CPU: 16 MiB, which a large cache holds
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
) -> Ranks:
    """Ranks of the gallery images of each query's class, the query itself left out by its index."""
    gallery_labels = labels if gallery_labels is None else gallery_labels
    members = _Members(gallery_labels, labels, same=comparison.same)
    ranks = torch.zeros(len(labels), members.most, dtype=torch.long, device=labels.device)
    by_number = members.number.argsort(stable=True)  # queries with as many positives go together
    for rows in row_chunks(comparison, by_number, memory):
        most = int(members.number[rows].max())
        if most == 0:
            continue
        positives, is_there = members.of(rows, most)
        rank = _counted if most <= COUNTED else _sorted
        ranks[rows, :most] = _ascending(rank(comparison, rows, positives, is_there), is_there)
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

    def of(self, rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Gallery indices of the rows' positives (q, most), and which of them are there."""
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


def _counted(comparison: Comparison, rows: Tensor, positives: Tensor, is_there: Tensor) -> Tensor:
    """Counts over one stretch of the gallery after another, each small enough to stay in the cache."""
    query, column = is_there.nonzero(as_tuple=True)
    value = torch.full(positives.shape, -torch.inf, device=rows.device)
    value[query, column] = comparison.rough_pairs(rows[query], positives[query, column])
    below, above = value - comparison.tolerance, value + comparison.tolerance
    ranks = torch.ones_like(positives)
    step = max(1, STRETCH // len(rows)) if rows.device.type == "cpu" else len(comparison.gallery)
    for start in range(0, len(comparison.gallery), step):
        stretch = slice(start, min(start + step, len(comparison.gallery)))
        rough = comparison.rough(rows, stretch)
        is_closer, is_within = (torch.empty(rough.shape, dtype=torch.bool, device=rows.device) for _ in range(2))
        for column in range(positives.shape[1]):
            own = positives[:, column]
            closer = _count(torch.lt(rough, below[:, column, None], out=is_closer))
            within = _count(torch.le(rough, above[:, column, None], out=is_within))
            ranks[:, column] += closer
            is_here = (own >= stretch.start) & (own < stretch.stop)
            unclear = ((within - closer) > is_here.to(within.dtype)).nonzero()[:, 0]
            if len(unclear):
                doubtful = is_within[unclear] & ~is_closer[unclear]
                ranks[unclear, column] += _closer_exactly(comparison, rows[unclear], own[unclear], doubtful, start)
    return ranks


def _count(mask: Tensor) -> Tensor:
    """How many are True in each row; as bytes they are summed faster."""
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32)


def _closer_exactly(comparison: Comparison, rows: Tensor, own: Tensor, doubtful: Tensor, start: int) -> Tensor:
    """How many of the doubtful images are closer than one's own, or as close and earlier in the gallery.

    doubtful: a mask over a stretch of the gallery that begins at `start`.
    """
    query, other = doubtful.nonzero(as_tuple=True)
    other = other + start
    mine = comparison.exact(rows, own)[query]
    theirs = comparison.exact(rows[query], other)
    is_closer = (theirs < mine) | ((theirs == mine) & (other < own[query]))
    return torch.zeros_like(rows).index_add_(0, query, is_closer.long())


def _sorted(comparison: Comparison, rows: Tensor, positives: Tensor, _is_there: Tensor) -> Tensor:
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
