"""What tells queries that fail before anybody says so: of any embeddings, with uncertainty or without.

A query fails if its nearest image is of another class. `evaluation.uncertainty` judges the level of an image; here is
what else can be known: of the image alone, of its neighbours, and of their labels.
"""

from __future__ import annotations

from dataclasses import replace

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
from idml.evaluation.comparing import Comparison
from idml.evaluation.intervals import Statistic
from idml.evaluation.neighbours import surroundings
from idml.evaluation.scores import Queries
from idml.evaluation.statistics import among, unknown
from idml.evaluation.uncertainty import r_auroc, r_auroc_within
from idml.numerics.precision import wide
from idml.numerics.products import directions, row_lengths
from idml.progress import Progress

SCALED = 0.01  # lengths that differ by less, in half precision too, are one that rows were scaled to


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
    """Distances, gaps and confidences; the calibration given, or one of these queries.

    Queries of a single class cannot be calibrated on other classes: their confidence is not known.
    """
    of_gallery = labels if gallery_labels is None else gallery_labels
    around = surroundings(comparison, of_gallery, RANKS, memory=memory, shared=shared, progress=progress)
    queries, nearest, rival = comparison.queries, around.at_ranks[:, 0], around.rival
    alpha = torch.stack(
        [_distances(queries, comparison.gallery[column]) for column in around.at_ranks.unbind(dim=1)], dim=1
    )
    of_rival = _distances(queries, comparison.gallery[rival]).masked_fill(rival < 0, torch.inf)
    beta = _uncertainties(queries, comparison.gallery[nearest])
    confidence, fold = None, torch.zeros_like(labels)
    by_distances = by_both = _cross_fitted(found, alpha, torch.zeros_like(beta), labels, seed=seed)
    if calibration is not None:
        confidence = calibration.confidence(alpha, beta)
    else:
        judged = found.is_judged
        calibration = Calibration.fit(alpha[judged], beta[judged], found.is_right[judged])
        if queries.uncertainty is not None:
            by_both = _cross_fitted(found, alpha, beta, labels, seed=seed)
        if by_both is not None:
            confidence, fold = by_both
    return replace(
        found,
        nearest=nearest,
        distances=alpha,
        gap=of_rival - alpha[:, 0],
        length=row_lengths(wide(queries.semantic)),
        by_distances=by_distances,
        confidence=confidence,
        fold=fold,
    ), calibration


def failure_statistics(found: Queries) -> dict[str, Statistic]:
    assert found.distances is not None
    assert found.length is not None
    assert found.gap is not None
    is_wrong = ~found.is_right
    is_one = _is_one(found.length)
    statistics: dict[str, Statistic] = {
        "r_auroc_of_length": unknown if is_one else among(found.is_judged, r_auroc, -found.length, is_wrong),
        "r_auroc_of_distance": among(found.is_judged, r_auroc, found.distances[:, 0], is_wrong),
        "r_auroc_of_neighbours": unknown,
        "r_auroc_of_confidence": unknown,
        "r_auroc_of_gap": among(found.is_judged, r_auroc, -found.gap, is_wrong),
        "calibration_error": unknown,
    }
    if found.by_distances is not None:
        by_distances, fold = found.by_distances
        statistics["r_auroc_of_neighbours"] = among(found.is_judged, r_auroc_within, -by_distances, is_wrong, fold)
    if found.confidence is not None:
        assert found.fold is not None
        doubt = -found.confidence
        statistics["r_auroc_of_confidence"] = among(found.is_judged, r_auroc_within, doubt, is_wrong, found.fold)
        error = among(found.is_judged, expected_calibration_error, found.confidence, found.is_right)
        statistics["calibration_error"] = error
    return statistics


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


def _distances(a: Embedding, b: Embedding) -> Float[Tensor, " n"]:
    """α = ‖ŝₐ − ŝ_b‖ of rows beside each other, in float64."""
    return torch.linalg.vector_norm(directions(a.semantic.double()) - directions(b.semantic.double()), dim=1)


def _uncertainties(a: Embedding, b: Embedding) -> Float[Tensor, " n"]:
    """β = ‖uₐ + u_b‖ of rows beside each other, in float64; 0 where neither has any."""
    known = [side.uncertainty.double() for side in (a, b) if side.uncertainty is not None and side.uncertainty.shape[1]]
    nothing = torch.zeros(len(a), 1, dtype=torch.float64, device=a.device)
    return torch.linalg.vector_norm(sum(known, start=nothing), dim=1)


def _is_one(length: Float[Tensor, " q"]) -> bool:
    """Whether all have one length but for rounding: somebody has scaled them to it."""
    shortest, longest = (float(extreme) for extreme in length.aminmax())
    return longest - shortest <= SCALED * longest
