"""What tells queries that fail before anybody says so: of any embeddings, with uncertainty or without.

A query fails if its nearest image is of another class. `evaluation.uncertainty` judges the level of an image; here is
what else can be known: of the image alone, of its neighbours, and of their labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.embedding import Embedding
from idml.evaluation.calibration import (
    RANKS,
    Calibration,
    CrossFitted,
    cross_fitted_confidence,
    expected_calibration_error,
)
from idml.evaluation.comparing import EXACT_AT_ONCE, Comparison
from idml.evaluation.intervals import Statistic
from idml.evaluation.neighbours import Surroundings, surroundings
from idml.evaluation.scores import Queries
from idml.evaluation.statistics import among, unknown
from idml.evaluation.uncertainty import aurc, r_auroc, r_auroc_within
from idml.numerics.precision import wide
from idml.numerics.products import directions, row_lengths
from idml.progress import Progress

SCALED = 0.005  # lengths that differ by less, as in half precision, are one that rows were scaled to


def with_doubts(
    comparison: Comparison,
    found: Queries,
    labels: Int[Tensor, " q"],
    gallery_labels: Int[Tensor, " m"] | None,
    calibration: Calibration | None,
    *,
    seed: int,
    memory: int,
    shared: bool,
    progress: Progress,
) -> tuple[Queries, Calibration]:
    """What is known of each query, and how sure one may be by it: by the calibration given, or one of these queries."""
    of_gallery = labels if gallery_labels is None else gallery_labels
    around = surroundings(comparison, of_gallery, RANKS, memory=memory, shared=shared, progress=progress)
    known = _known(comparison, around)
    found = replace(
        found,
        length=row_lengths(wide(comparison.queries.semantic)),
        nearest=around.at_ranks[:, 0],
        distances=known.distances,
        gap=known.gap,
    )
    available = len(comparison.gallery) - comparison.same
    looked_at = known.distances[:, : sum(rank <= available for rank in RANKS)]
    by_distances = _cross_fitted(found, looked_at, torch.zeros_like(known.uncertainty), labels, seed=seed)
    if calibration is not None:
        confidence = calibration.confidence(known.distances, known.uncertainty)
        by_all = CrossFitted(confidence, torch.zeros_like(labels))
        return replace(found, by_distances=by_distances, by_all=by_all), calibration
    by_all = by_distances
    if comparison.queries.uncertainty is not None:
        by_all = _cross_fitted(found, looked_at, known.uncertainty, labels, seed=seed)
    judged = found.is_judged
    calibration = Calibration.fit(looked_at[judged], known.uncertainty[judged], found.is_right[judged])
    return replace(found, by_distances=by_distances, by_all=by_all), calibration


def failure_statistics(found: Queries) -> dict[str, Statistic]:
    assert found.distances is not None
    assert found.length is not None
    assert found.gap is not None
    is_judged, is_wrong = found.is_judged, ~found.is_right
    statistics: dict[str, Statistic] = {
        "r_auroc_of_length": among(is_judged, r_auroc, -found.length, is_wrong),
        "r_auroc_of_distance": among(is_judged, r_auroc, found.distances[:, 0], is_wrong),
        "r_auroc_of_neighbours": unknown,
        "r_auroc_of_confidence": unknown,
        "r_auroc_of_gap": among(is_judged, r_auroc, -found.gap, is_wrong),
        "aurc_of_confidence": unknown,
        "calibration_error": unknown,
    }
    if _is_one(found.length[is_judged]):
        statistics["r_auroc_of_length"] = unknown
    if found.by_distances is not None:
        confidence, fold = found.by_distances
        statistics["r_auroc_of_neighbours"] = among(is_judged, r_auroc_within, -confidence, is_wrong, fold)
    if found.by_all is not None:
        confidence, fold = found.by_all
        statistics["r_auroc_of_confidence"] = among(is_judged, r_auroc_within, -confidence, is_wrong, fold)
        statistics["aurc_of_confidence"] = among(is_judged, aurc, -confidence, is_wrong)
        statistics["calibration_error"] = among(is_judged, expected_calibration_error, confidence, found.is_right)
    return statistics


class _Known(NamedTuple):
    """Of each query how far the images at `RANKS` are, α, how uncertain the nearest pair is, β, and the gap."""

    distances: Float[Tensor, "q r"]
    uncertainty: Float[Tensor, " q"]
    gap: Float[Tensor, " q"]


def _known(comparison: Comparison, around: Surroundings) -> _Known:
    """In float64, for as many queries at a time as fit the memory of exact comparisons."""
    queries, gallery = comparison.queries, comparison.gallery
    at_once = max(1, EXACT_AT_ONCE // queries.semantic.shape[1])
    places = torch.arange(len(queries), device=queries.device).split(at_once)
    parts = [_known_of(queries[rows], gallery, around.at_ranks[rows], around.rival[rows]) for rows in places]
    return _Known(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _known_of(queries: Embedding, gallery: Embedding, at_ranks: Int[Tensor, "k r"], rival: Int[Tensor, " k"]) -> _Known:
    own = directions(queries.semantic.double())

    def distance(columns: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
        return row_lengths(own - directions(gallery.semantic[columns].double()))

    distances = torch.stack([distance(columns) for columns in at_ranks.unbind(dim=1)], dim=1)
    gap = distance(rival).masked_fill(rival < 0, torch.inf) - distances[:, 0]
    return _Known(distances, _pair_uncertainty(queries, gallery[at_ranks[:, 0]]), gap)


def _pair_uncertainty(queries: Embedding, others: Embedding) -> Float[Tensor, " n"]:
    """β = ‖uₐ + u_b‖ of rows beside each other; 0 where the model of the queries knows of none."""
    nothing = torch.zeros(len(queries), 1, dtype=torch.float64, device=queries.device)
    if queries.uncertainty is None:
        return nothing[:, 0]
    sides = [side.uncertainty for side in (queries, others)]
    return row_lengths(sum((side.double() for side in sides if side is not None and side.shape[1]), start=nothing))


def _cross_fitted(
    found: Queries, alpha: Float[Tensor, "q r"], beta: Float[Tensor, " q"], labels: Int[Tensor, " q"], *, seed: int
) -> CrossFitted | None:
    """Of all queries, NaN of those that are not judged; None where the others are of a single class."""
    judged = found.is_judged
    if len(labels[judged].unique()) < 2:
        return None
    confidence, fold = torch.full_like(beta, torch.nan), torch.zeros_like(labels)
    confidence[judged], fold[judged] = cross_fitted_confidence(
        alpha[judged], beta[judged], found.is_right[judged], labels[judged], seed=seed
    )
    return CrossFitted(confidence, fold)


def _is_one(length: Float[Tensor, " q"]) -> bool:
    """Whether all have one length but for rounding: somebody has scaled them to it."""
    shortest, longest = (float(extreme) for extreme in length.aminmax())
    return longest - shortest <= SCALED * longest
