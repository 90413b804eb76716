"""K-means (Lloyd, 1982) with a k-means++ start (Arthur and Vassilvitskii, SODA 2007), both exact, both in few products.

The start draws rows with probability D², their squared distance to the nearest centre so far. Up to
GREEDY clusters it is the greedy variant of the same paper: of several draws, the one that leaves the
least inertia. Beyond, many rows are drawn at once and gone through one by one: a row is kept with
the chance that what is left of its D² gives it. That is rejection sampling, so the centres follow
the distribution of the sequential k-means++, while distances come from one matrix product a batch.

Lloyd's iterations compare rows only with centres that moved. Each row keeps a lower bound on its
distance to all centres but its own, as in Hamerly (SDM 2010); where that does not prove that the
nearest centre is among its own and the moved ones, the row is compared with all of them. With
thousands of small clusters nearly all centres stand still after a few iterations.

As in `comparing`, float32 products of shifted rows are rough, and what is too close to call is
decided in float64: the result is that of a plain Lloyd loop, whatever the chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from idml.errors import check_lengths
from idml.evaluation.comparing import ROUNDING
from idml.numerics.precision import exact_products, full_precision, wide
from idml.numerics.products import row_lengths
from idml.progress import Progress, followed, no_progress

RESTARTS = 3  # the best of three has 0.3 % less inertia than one: 5,924 rows in 100 clusters, mean of nine starts
ITERATIONS = 100  # at most: 5,924 rows in 100 clusters settle within 50, 60,502 rows in 11,316 clusters within 20
EXACT_ROUNDING = 1e-13  # of the largest squared length: distances this close in float64 are equal
BYTES = 16  # a distance costs while it is compared: itself in float64, a mask, room to spare
STRETCH = 1 << 24  # distances at once on the CPU: enough for fast matrix products, where few rows are not
GREEDY = 1000  # clusters: beyond, comparing all rows with several draws a centre would cost more than all the rest
MOST_DRAWS = 1024  # rows drawn at once for more clusters than that


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which cluster each row belongs to, the clusters' centres, and Σ‖row − its centre‖²."""

    assignment: Int[Tensor, " n"]
    centres: Float[Tensor, "k d"]
    inertia: float


def k_means(
    rows: Float[Tensor, "n d"],
    clusters: int,
    *,
    restarts: int = RESTARTS,
    iterations: int = ITERATIONS,
    seed: int = 0,
    memory: int = 1 << 30,
    progress: Progress = no_progress,
) -> Clusters:
    """The clustering of least inertia among several starts, each followed to a fixed point of Lloyd's iterations.

    A row belongs to its nearest centre, the first of equally near ones; a centre is the mean of its
    rows. No cluster is empty: one that is left without rows takes the row that is farthest from its
    centre, even where there are fewer distinct rows than clusters. A start that has not converged
    after `iterations` ends there. The same seed gives the same clusters, whatever the memory.

    memory: bytes for distances held at a time, besides some copies of the rows.

    >>> k_means(torch.tensor([[0.0], [1.0], [10.0], [11.0]]), 2).inertia
    1.0
    """
    _check(rows, clusters, restarts, iterations)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad(), full_precision(rows.device), exact_products():
        points = _Points.of(rows)
        starts = followed(range(restarts), "clusters", progress)
        fits = (_Fit(points, clusters, memory).run(iterations, generator) for _ in starts)
        return min(fits, key=lambda fit: fit.inertia)


def fill_empty(assignment: Int[Tensor, " n"], distance: Float[Tensor, " n"], clusters: int) -> Int[Tensor, " m"]:
    """Give each empty cluster the row farthest from its centre that is not its cluster's nearest; who was moved.

    Changes `assignment` in place. Equally far rows are taken in their order.
    """
    size = torch.bincount(assignment, minlength=clusters)
    empty = (size == 0).nonzero()[:, 0]
    if len(empty) == 0:
        return empty
    farthest_first = distance.argsort(descending=True, stable=True)
    cluster = assignment[farthest_first]
    place = torch.arange(len(cluster), device=cluster.device)
    nearest_place = torch.zeros_like(size).scatter_reduce(0, cluster, place, "amax")
    taken = farthest_first[place != nearest_place[cluster]][: len(empty)]
    assignment[taken] = empty
    return taken


@dataclass(frozen=True, eq=False)
class _Points:
    """Rows, and what rough distances need: shifted by their mean and scaled to at most length 1, in float32."""

    rows: Float[Tensor, "n d"]
    mean: Float64[Tensor, " d"]
    scale: Float64[Tensor, ""]
    rough: Float[Tensor, "n d"]
    half: Float[Tensor, " n"]

    @classmethod
    def of(cls, rows: Float[Tensor, "n d"]) -> _Points:
        parts = rows.split(max(1, (1 << 22) // max(1, rows.shape[1])))
        total = sum((part.double().sum(dim=0) for part in parts), rows.new_zeros((), dtype=torch.float64))
        mean = total / len(rows)
        longest = torch.stack([row_lengths(part.double() - mean).max() for part in parts]).max()
        scale = longest.masked_fill(longest == 0, 1).log2().ceil().exp2()  # a power of two rounds nothing
        rough = torch.cat([((part.double() - mean) / scale).float() for part in parts])
        return cls(rows, mean, scale, rough, rough.square().sum(dim=1) / 2)

    def exact(self, index: Int[Tensor, " k"] | slice) -> Float64[Tensor, "k d"]:
        return (self.rows[index].double() - self.mean) / self.scale


class _Fit:
    """One start: the centres, and for each row its centre, its score, and a bound on the scores of all others.

    A score is half a squared distance less the row's own half squared length, up to ROUNDING.
    """

    def __init__(self, points: _Points, clusters: int, memory: int):
        self.points, self.clusters, self.memory = points, clusters, memory
        device, (number, dimensions) = points.rough.device, points.rough.shape
        self.every = torch.arange(number, device=device)
        self.centres = torch.zeros(clusters, dimensions, dtype=torch.float64, device=device)
        self.rough = torch.zeros(clusters, dimensions, device=device)
        self.half = torch.zeros(clusters, device=device)
        self.nearest = torch.zeros_like(self.every)
        self.score = torch.full_like(points.half, torch.inf)
        self.bound = torch.full_like(points.half, torch.inf)

    def run(self, iterations: int, generator: torch.Generator) -> Clusters:
        self._start(generator)
        moved = torch.arange(self.clusters, device=self.every.device)
        for _ in range(iterations):
            before = self.nearest.clone()
            self._centre(moved)
            self._assign(moved)
            changed = self.nearest != before
            moved = torch.cat([before[changed], self.nearest[changed]]).unique()
            if len(moved) == 0:
                break
        return self._result()

    def _start(self, generator: torch.Generator) -> None:
        """k-means++: the best of 2 + ln k draws a centre, or as many draws at a time as there are centres already."""
        first = torch.randint(len(self.every), (1,), generator=generator)
        chosen = self._add(0, first.to(self.every.device))
        spread = self._squared_distances(self.every)  # in float64, lest rounding change who is drawn
        while chosen < self.clusters and spread.any():
            before = self.nearest.clone()
            chosen = self._add_drawn(chosen, spread, generator)
            changed = (self.nearest != before).nonzero()[:, 0]
            spread[changed] = self._squared_distances(changed)
        if chosen < self.clusters:  # every distinct row is a centre: any rows will do, `fill_empty` deals them out
            self._place(slice(chosen, None), self.points.exact(self.every[: self.clusters - chosen]))
        self._settle_doubtful()
        self._fill_empty()

    def _add_drawn(self, chosen: int, spread: Tensor, generator: torch.Generator) -> int:
        """Make centres of rows drawn by their D²; how many centres there are now."""
        is_greedy = self.clusters <= GREEDY
        draws = 2 + int(math.log(self.clusters)) if is_greedy else min(chosen, MOST_DRAWS)
        place, chance = torch.rand(2, draws, generator=generator, dtype=torch.float64)
        total = spread.cpu().cumsum(dim=0)  # which other devices do not always sum alike
        drawn = torch.searchsorted(total, place * total[-1], right=True).clamp_(max=len(total) - 1).to(spread.device)
        if is_greedy:
            return self._add_best(chosen, drawn)
        kept = _kept(self.points.exact(drawn).cpu(), spread[drawn].cpu(), chance)
        return self._add(chosen, drawn[kept[: self.clusters - chosen]])

    def _add_best(self, chosen: int, drawn: Tensor) -> int:
        """Make a centre of the one of these rows that leaves the least inertia; how many centres there are now."""
        scores = torch.addmm(self.points.half[drawn], self.points.rough, self.points.rough[drawn].T, alpha=-1)
        inertia = torch.minimum(scores, self.score[:, None]).sum(dim=0, dtype=torch.float64)
        best = inertia.argmin()[None]
        new = torch.tensor([chosen], device=drawn.device)
        self._place(new, self.points.exact(drawn[best]))
        self._update(slice(None), new, scores[:, best])
        return chosen + 1

    def _add(self, chosen: int, rows: Tensor) -> int:
        """Make centres of these rows; how many centres there are now."""
        new = torch.arange(chosen, chosen + len(rows), device=rows.device)
        self._place(new, self.points.exact(rows))
        self._compare(self.every, new)
        return chosen + len(rows)

    def _place(self, which: Tensor | slice, centres: Tensor) -> None:
        self.centres[which] = centres
        self.rough[which] = centres.float()
        self.half[which] = (centres.square().sum(dim=1) / 2).float()

    def _centre(self, moved: Tensor) -> None:
        """Put centres to the mean of their rows, summed in float64 and in row order, on any device."""
        is_moved = self._mask(moved)
        members = is_moved[self.nearest].nonzero()[:, 0]
        members = members[self.nearest[members].argsort(stable=True)]
        size = torch.bincount(self.nearest[members], minlength=self.clusters)[moved]
        columns = max(1, self.memory // (2 * BYTES * len(members)))
        sums = [
            torch.segment_reduce(part[members].double(), "sum", lengths=size, axis=0)
            for part in self.points.rows.split(columns, dim=1)
        ]
        self._place(moved, (torch.cat(sums, dim=1) / size[:, None] - self.points.mean) / self.points.scale)

    def _assign(self, moved: Tensor) -> None:
        """Find the nearest centre of every row, where only these have moved since the last time."""
        self.score.masked_fill_(self._mask(moved)[self.nearest], torch.inf)
        if len(moved) == self.clusters:
            self.bound.fill_(torch.inf)
        self._compare(self.every, moved)
        self._settle_doubtful()
        self._fill_empty()

    def _fill_empty(self) -> None:
        if torch.bincount(self.nearest, minlength=self.clusters).all():
            return
        taken = fill_empty(self.nearest, self._squared_distances(self.every), self.clusters)
        self._place(self.nearest[taken], self.points.exact(taken))
        self.bound[taken] = -torch.inf  # so that they are compared with all centres the next time

    def _settle_doubtful(self) -> None:
        """Compare rows that may have a nearer centre, or an equally near one, with all centres."""
        doubtful = self.every[self._is_doubtful(self.every)]
        self.score[doubtful] = self.bound[doubtful] = torch.inf
        self._compare(doubtful, torch.arange(self.clusters, device=doubtful.device))
        self._compare_exactly(doubtful[self._is_doubtful(doubtful)])

    def _is_doubtful(self, rows: Tensor) -> Tensor:
        return self.score[rows] + 2 * ROUNDING >= self.bound[rows]

    def _compare(self, rows: Tensor, columns: Tensor) -> None:
        """Compare some rows with some centres."""
        centres, half = self.rough[columns].T, self.half[columns]
        for some in self._chunks(rows, len(columns)):
            self._update(some, columns, torch.addmm(half, self.points.rough[some], centres, alpha=-1))

    def _update(self, rows: Tensor | slice, columns: Tensor, scores: Tensor) -> None:
        """Bring nearest centre, score and bound of some rows up to date with their scores at some centres."""
        before, best = self.score[rows], scores.amin(dim=1)
        nearer = (best < before).nonzero()[:, 0]  # only they need the slower argmin
        column, second = _first_and_second(scores if len(nearer) == len(scores) else scores[nearer])
        self.nearest[self.every[rows][nearer]] = columns[column]
        other = best.index_put((nearer,), torch.minimum(before[nearer], second))
        self.bound[rows] = torch.minimum(self.bound[rows], other)
        self.score[rows] = torch.minimum(before, best)

    def _compare_exactly(self, rows: Tensor) -> None:
        """The same with all centres, in float64, where the first of equally near centres is taken."""
        if len(rows) == 0:
            return
        half = self.centres.square().sum(dim=1) / 2
        for some in self._chunks(rows, self.clusters):
            scores = torch.addmm(half, self.points.exact(some), self.centres.T, alpha=-1)
            best = scores.amin(dim=1)
            self.nearest[some] = (scores <= best[:, None] + EXACT_ROUNDING).to(torch.uint8).argmax(dim=1)
            self.score[some], self.bound[some] = best.float(), _first_and_second(scores)[1].float()

    def _squared_distances(self, rows: Tensor) -> Float64[Tensor, " k"]:
        """D² of some rows to their centres."""
        parts = [
            (self.points.exact(some) - self.centres[self.nearest[some]]).square_().sum(dim=1)
            for some in self._chunks(rows, 2 * self.centres.shape[1])
        ]
        return torch.cat(parts) if parts else self.centres.new_zeros(0)

    def _result(self) -> Clusters:
        inertia = self._squared_distances(self.every).sum() * self.points.scale.square()
        centres = (self.centres * self.points.scale + self.points.mean).to(wide(self.points.rows).dtype)
        return Clusters(self.nearest, centres, float(inertia))

    def _mask(self, moved: Tensor) -> Tensor:
        mask = torch.zeros(self.clusters, dtype=torch.bool, device=moved.device)
        mask[moved] = True
        return mask

    def _chunks(self, rows: Tensor, width: int) -> Iterator[Tensor | slice]:
        """Rows whose scores fit the memory, if each has so many; slices where all rows are meant, for speed."""
        at_once = max(1, self.memory // (BYTES * width))
        at_once = min(at_once, 1 + STRETCH // width) if rows.device.type == "cpu" else at_once
        for start in range(0, len(rows), at_once):
            here = slice(start, start + at_once)
            yield here if rows is self.every else rows[here]


def _kept(candidates: Tensor, spread: Tensor, chance: Tensor) -> list[int]:
    """Which candidates, drawn by the same D², a sequential k-means++ would have kept.

    One by one: kept if its chance is below the share of its D² that those kept before it have left.
    """
    between = torch.cdist(candidates, candidates).square_()
    left, kept = spread, []
    for candidate, least in enumerate((spread * chance).tolist()):
        if least < left[candidate]:
            kept.append(candidate)
            left = torch.minimum(left, between[candidate])
    return kept


def _first_and_second(scores: Tensor) -> tuple[Tensor, Tensor]:
    """In each row the first column of the smallest score, and the smallest of the rest; changes the scores."""
    column = scores.argmin(dim=1, keepdim=True)
    return column[:, 0], scores.scatter_(1, column, torch.inf).amin(dim=1)


def _check(rows: Tensor, clusters: int, restarts: int, iterations: int) -> None:
    if not 1 <= clusters <= len(rows):
        raise ValueError(f"clusters is {clusters}, and there are {len(rows)} rows: give 1 to {len(rows)}.")
    for name, value in (("restarts", restarts), ("iterations", iterations)):
        if value < 1:
            raise ValueError(f"{name} is {value}: give at least 1.")
    check_lengths(row_lengths(wide(rows)).cpu(), rows, name="rows")
