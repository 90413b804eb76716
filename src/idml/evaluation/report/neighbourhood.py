"""The neighbours that a report shows: the nearest one of all queries, and more of a few."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.distances import Introspective
from idml.evaluation.comparing import Comparison
from idml.evaluation.embedded import Embedded
from idml.evaluation.neighbours import nearest
from idml.evaluation.scores import Queries

MOST_QUERIES = 20_000  # whose nearest neighbours are looked for if nobody has yet


class Nearest(NamedTuple):
    """Of every query the nearest image in the gallery, and how far that is; on the CPU."""

    place: Int[Tensor, " q"]
    distance: Float[Tensor, " q"]


def nearest_of_all(
    queries: Queries, embedded: Embedded, *, introspective: Introspective | None, memory: int
) -> Nearest | None:
    """As the evaluation found it, if it did; else searched, or None where that would take long."""
    known = queries.nearest
    if known is None and len(embedded.embedding) > MOST_QUERIES:
        return None
    gallery = None if embedded.gallery is None else embedded.gallery.embedding
    comparison = Comparison.of(embedded.embedding, gallery, introspective=introspective)
    if known is None:
        return Nearest(*(side[:, 0].cpu() for side in nearest(comparison, 1, memory=memory)))
    query = torch.arange(len(known), device=known.device)
    return Nearest(known.cpu(), comparison.exact(query, known).cpu())


def nearest_of(
    rows: Int[Tensor, " r"], embedded: Embedded, *, k: int, introspective: Introspective | None, memory: int
) -> Int[Tensor, "r k"]:
    """The k nearest images of a few queries, or all there are if they are fewer; on the CPU.

    Without a gallery one more is asked for, and the query is left out by its index: its duplicates stay.
    """
    gallery = (embedded.gallery or embedded).embedding
    same = embedded.gallery is None
    k = min(k, len(gallery) - same)
    rows = rows.to(gallery.device)
    comparison = Comparison.of(embedded.embedding[rows], gallery, introspective=introspective)
    places = nearest(comparison, k + same, memory=memory)[0]
    if same:
        is_other = places != rows[:, None]
        is_other[:, -1] &= ~is_other.all(dim=1)  # where the query is beyond its duplicates, the last is one too many
        places = places[is_other].view(len(rows), k)
    return places.cpu()
