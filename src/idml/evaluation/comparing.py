"""Queries against a gallery: fast rough distances, and exact ones for pairs too close to call.

A matrix product in float32 is fast but wrong by about 1e-7 of the rows' squared lengths, enough to
swap near neighbours, and enough to tell duplicates apart that are equal. Two things are done about
that. Embeddings are shifted by the mean of the gallery first, which changes no distance but removes what
would cancel; and where queries are no part of it, what its distances to a query have in common is left out.
Whatever is closer than `tolerance` in the product is compared again, in float64, from differences: those do
not depend on where a row stands, so equal images are exactly equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.distances import Introspective
from idml.embedding import Embedding
from idml.errors import check_lengths
from idml.numerics.precision import exact_products, full_precision, wide
from idml.numerics.products import directions, row_lengths, steady_directions, steady_sum

ROUNDING = 2e-6  # of half the largest squared length: more than any float32 product is wrong by
ROUGH_BYTES, INTROSPECTIVE_BYTES = 4, 96  # a distance costs while it is computed; introspective ones in float64
LAST_BITS = 12  # of 52: what sums in another order leave in doubt
RESOLUTION = 2.0 ** (2 + LAST_BITS - 52)  # of distances of up to 2, half squared chords, without these digits
SAME = 1e-28  # half a squared chord of two vectors that differ by rounding alone
EXACT_AT_ONCE = 1 << 22  # numbers held while pairs are compared exactly: 32 MiB of float64


@dataclass(frozen=True, eq=False)
class Comparison:
    """Queries and gallery, ready to be compared by semantic embeddings, or introspectively.

    `same` says that the queries are the gallery; each is then kept from meeting itself.
    """

    queries: Embedding
    gallery: Embedding
    same: bool
    introspective: Introspective | None
    tolerance: float
    shifted_queries: Float[Tensor, "q d"]
    shifted_gallery: Float[Tensor, "m d"]
    gallery_half: Float[Tensor, " m"]

    @classmethod
    def of(
        cls, queries: Embedding, gallery: Embedding | None = None, *, introspective: Introspective | None = None
    ) -> Comparison:
        same = gallery is None
        gallery = queries if gallery is None else gallery
        _check(gallery, "embedding" if same else "gallery")
        if not same:
            _check(queries, "query")
        mean = _mean_direction(gallery)
        shifted_gallery = _shifted(gallery, mean)
        shifted_queries = shifted_gallery if same else _shifted(queries, mean)
        longest_query, longest = (
            float(row_lengths(side).max()) if len(side) else 0.0 for side in (shifted_queries, shifted_gallery)
        )
        tolerance = ROUNDING
        if introspective is None:
            tolerance *= longest * max(longest_query, longest) / 2
            tolerance += 0 if same else RESOLUTION
        return cls(
            queries=queries,
            gallery=gallery,
            same=same,
            introspective=introspective,
            tolerance=tolerance,
            shifted_queries=shifted_queries,
            shifted_gallery=shifted_gallery,
            gallery_half=shifted_gallery.square().sum(dim=1) / 2,
        )

    def rough(
        self,
        rows: Int[Tensor, " q"],
        columns: Int[Tensor, " m"] | None = None,
        *,
        out: Float[Tensor, "q m"] | None = None,
    ) -> Float[Tensor, "q m"]:
        """Distances of some queries to some gallery images, or to all, up to `tolerance`, in float32.

        Semantic ones are half squared chords, less what is the same for all of the gallery. Infinite to oneself.
        out: where to write them; memory that was used before is faster than new.
        """
        if self.introspective is not None:
            gallery = self.gallery if columns is None else self.gallery[columns]
            values = self.introspective(_double(self.queries[rows]), _double(gallery))
            values = values.float() if out is None else out.copy_(values)
        else:
            chosen = slice(None) if columns is None else columns
            half, gallery = self.gallery_half[chosen], self.shifted_gallery[chosen]
            with full_precision(half.device), exact_products():
                values = torch.addmm(half, self.shifted_queries[rows], gallery.T, alpha=-1, out=out)
        if self.same:
            if self.introspective is None:
                values += self.gallery_half[rows, None]  # so that a pair has one distance, whichever is the query
            self._forget_oneself(values, rows, columns)
        return values

    def _forget_oneself(self, values: Tensor, rows: Tensor, columns: Tensor | None) -> None:
        place = torch.arange(len(self.gallery), device=rows.device)
        if columns is not None:
            place = torch.full_like(place, -1).index_copy_(0, columns, place[: len(columns)])
        own = place[rows]
        query = (own >= 0).nonzero()[:, 0]
        values[query, own[query]] = torch.inf

    def rough_pairs(self, i: Int[Tensor, " k"], j: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
        """The same for listed pairs, up to `tolerance`."""
        if self.introspective is not None:
            return self.exact(i, j).float()
        at_once = max(1, EXACT_AT_ONCE // self.gallery.semantic.shape[1])
        parts = [
            self.gallery_half[some_j] - torch.linalg.vecdot(self.shifted_queries[some_i], self.shifted_gallery[some_j])
            for some_i, some_j in zip(i.split(at_once), j.split(at_once), strict=True)
        ]
        values = torch.cat(parts) if parts else self.gallery_half[:0]
        return values + self.gallery_half[i] if self.same else values

    def exact(self, i: Int[Tensor, " k"], j: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
        """The distance of query i to gallery image j, pair by pair, in float64 and without its last digits.

        Those differ between vectors of the same direction, as (1, 1) and (3, 3), which are equally far from all.
        """
        parts = []
        at_once = max(1, EXACT_AT_ONCE // self.gallery.semantic.shape[1])
        for some_i, some_j in zip(i.split(at_once), j.split(at_once), strict=True):
            a, b = _double(self.queries[some_i]), _double(self.gallery[some_j])
            if self.introspective is not None:
                parts.append(self.introspective.of_rows(a, b))
            else:
                difference = steady_directions(a.semantic) - steady_directions(b.semantic)
                half = steady_sum(difference.square())[:, 0] / 2
                parts.append(half.masked_fill(half < SAME, 0))
        return _snapped(torch.cat(parts)) if parts else torch.zeros(0, dtype=torch.float64, device=i.device)

    @property
    def bytes_a_distance(self) -> int:
        """What a rough distance costs while it is computed."""
        return ROUGH_BYTES if self.introspective is None else INTROSPECTIVE_BYTES


def _check(embedding: Embedding, name: str) -> None:
    """Raise for a row that is not finite or has no direction. Evaluation may wait for the device to know."""
    length = row_lengths(wide(embedding.semantic)).cpu()
    if check_lengths(length, embedding.semantic, name=name):
        row = int((length == 0).nonzero()[0])
        if embedding.semantic[row].any():
            raise ValueError(f"{name} row {row} is too short: its squared length underflows. Scale it up.")
        raise ValueError(f"{name} row {row} is zero: it has no direction, so no neighbours. Leave it out.")


def _mean_direction(embedding: Embedding) -> Float[Tensor, " d"]:
    total = torch.zeros(embedding.semantic.shape[1], dtype=torch.float64, device=embedding.device)
    for rows in _row_chunks(embedding):
        total += directions(rows.double()).sum(dim=0)
    return total / max(1, len(embedding))


def _shifted(embedding: Embedding, mean: Float[Tensor, " d"]) -> Float[Tensor, "n d"]:
    """Directions less their mean, subtracted in float64: what cancels is gone before float32 rounds the rest."""
    shifted = [(directions(rows.double()) - mean).float() for rows in _row_chunks(embedding)]
    return torch.cat(shifted) if shifted else embedding.semantic.float()


def _row_chunks(embedding: Embedding) -> tuple[Tensor, ...]:
    return embedding.semantic.split(max(1, EXACT_AT_ONCE // embedding.semantic.shape[1]))


def _double(embedding: Embedding) -> Embedding:
    return Embedding(
        embedding.semantic.double(), None if embedding.uncertainty is None else embedding.uncertainty.double()
    )


def _snapped(values: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Rounded to 40 binary digits. values: 0 or more, in float64."""
    half = 1 << (LAST_BITS - 1)
    return (((values.view(torch.int64) + half) >> LAST_BITS) << LAST_BITS).view(torch.float64)
