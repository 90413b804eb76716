"""One call for every score: retrieval, clustering, uncertainty and known failures of a set of embeddings."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.distances import Cosine, Euclidean, Introspective
from idml.embedding import Embedding
from idml.errors import unknown_name
from idml.evaluation.calibration import Calibration
from idml.evaluation.clustering import clustering_scores
from idml.evaluation.comparing import Comparison
from idml.evaluation.correlation import NEIGHBOURS, Correlation, are_alike, relative_correlation
from idml.evaluation.failures import failure_statistics, with_doubts
from idml.evaluation.inputs import as_class_numbers, as_embedding, check_uncertainty
from idml.evaluation.intervals import RESAMPLES, Statistic, bootstrap
from idml.evaluation.ranks import Ranks, ranks_of_positives
from idml.evaluation.retrieval import average_precision, average_precision_at_r, is_found, r_precision
from idml.evaluation.scores import FailureScores, Queries, Scores, UncertaintyScores
from idml.evaluation.statistics import among, mean
from idml.evaluation.uncertainty import aurc, excess_aurc, r_auroc, share_that_rises, spearman
from idml.progress import Progress, no_progress

Distance = Euclidean | Cosine | Introspective
DISTANCES: dict[str, Distance] = {"euclidean": Euclidean(), "cosine": Cosine(), "introspective": Introspective()}
ChangedLevels = Mapping[str, Mapping[float, Float[Tensor, " q"]]]
RISES = "rises/"
MEMORY = 1 << 30  # bytes to use beyond the embeddings
COPIES = 3  # of the embeddings in float32 that are held beside the distances


@torch.no_grad()
def evaluate(
    embedding: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    clustering: bool = True,
    failures: bool = True,
    distance: str | Distance = "euclidean",
    calibration: Calibration | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    memory: int = MEMORY,
    changed_levels: ChangedLevels | None = None,
    shared: bool = False,
    progress: Progress = no_progress,
) -> Scores:
    """Score embeddings: each image queries all others, or, given a gallery, that.

    embedding, gallery: an `Embedding`; or rows, or a pair of semantic and uncertainty rows, as
    tensors or numpy arrays, memory-mapped ones too. A gallery without uncertainty counts as certain.
    labels: class numbers, or names.
    ks: K of Recall@K, as large as one likes. clustering: whether to run k-means for NMI, AMI and F1, of the queries.
    failures: whether to judge what tells queries that fail, for which neighbours are sought once more.
    distance: by which images are near. Euclidean and cosine order them alike; introspective is an ablation.
    calibration: a confidence fitted elsewhere; without it, it is fitted on other classes of this set.
    resamples: of the bootstrap behind the intervals; 0 leaves them out. memory: bytes to use beyond the embeddings.
    changed_levels: of the same images made ambiguous, by kind and degree (`evaluation.ambiguity`); NaN: not tried.
    shared: all processes of torch.distributed call this with the same sets, and share the search; all get the scores.
    progress: called with the name of a stage and the share of it that is done.

    >>> rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> scores = evaluate(rows, ["wren", "wren", "gull", "gull"], ks=(1,))
    >>> scores.recall, scores.map_at_r, scores.nmi
    ({1: 1.0}, 1.0, 1.0)
    """
    ks = _check_options(ks, resamples, memory, calibration)
    queries, own, others, of_gallery = _read(embedding, labels, gallery, gallery_labels)
    memory = _left_for_distances(memory, queries, others)
    distance = _as_distance(distance, queries, others)
    introspective = distance if isinstance(distance, Introspective) else None
    comparison = Comparison.of(queries, others, introspective=introspective)
    ranks = ranks_of_positives(comparison, own, of_gallery, memory=memory, shared=shared, progress=progress)
    found = _what_queries_did(ranks)
    statistics = _retrieval_statistics(ranks, found, ks)
    if queries.uncertainty is not None:
        found = replace(found, level=queries.level)
        statistics |= _uncertainty_statistics(found) | _rise_statistics(found, changed_levels or {})
    used = None
    if failures:
        found, used = with_doubts(
            comparison, found, own, of_gallery, calibration, seed=seed, memory=memory, shared=shared, progress=progress
        )
        statistics |= failure_statistics(found)
    scored = {name: float(score(torch.ones(1, len(queries), device=own.device))) for name, score in statistics.items()}
    rises = _nested({name: scored.pop(name) for name in list(scored) if name.startswith(RISES)})
    clusters = None
    if clustering:
        clusters = clustering_scores(
            queries, own, introspective=introspective, seed=seed, memory=memory, progress=progress
        )
    return Scores(
        recall={k: scored.pop(f"recall@{k}") for k in ks},
        precision_at_1=scored.pop("precision@1"),
        r_precision=scored.pop("r_precision"),
        map_at_r=scored.pop("map_at_r"),
        mean_average_precision=scored.pop("map"),
        nmi=None if clusters is None else clusters.nmi,
        ami=None if clusters is None else clusters.ami,
        f1=None if clusters is None else clusters.f1,
        failures=None
        if used is None
        else FailureScores(**_part(FailureScores, scored, without="calibration"), calibration=used),
        uncertainty=None
        if queries.uncertainty is None
        else UncertaintyScores(
            **_part(UncertaintyScores, scored, without="correlation"),
            correlation=_correlation(queries, seed=seed, memory=memory),
        ),
        distance=type(distance).__name__.lower(),
        introspective=introspective,
        rises=rises,
        query_count=len(queries),
        gallery_count=len(comparison.gallery) - int(comparison.same),
        class_count=len(own.unique()),
        lone_queries=int((ranks.number == 0).sum()),
        intervals={}
        if resamples == 0
        else bootstrap(statistics, len(queries), resamples=resamples, seed=seed, device=own.device, progress=progress),
        queries=found,
    )


def _what_queries_did(ranks: Ranks) -> Queries:
    is_judged = ranks.number > 0

    def of_all(values: Float[Tensor, " k"]) -> Float[Tensor, " q"]:
        return values.new_full(is_judged.shape, torch.nan).masked_scatter_(is_judged, values)

    return Queries(
        first_rank=ranks.first,
        is_judged=is_judged,
        r_precision=of_all(r_precision(ranks)),
        average_precision_at_r=of_all(average_precision_at_r(ranks)),
        average_precision=of_all(average_precision(ranks)),
    )


def _retrieval_statistics(ranks: Ranks, found: Queries, ks: Sequence[int]) -> dict[str, Statistic]:
    """Means over queries: Recall@K over all of them, the others over those that are judged."""
    return {f"recall@{k}": partial(mean, is_found(ranks, k)) for k in ks} | {
        "precision@1": among(found.is_judged, mean, found.is_right),
        "r_precision": among(found.is_judged, mean, found.r_precision),
        "map_at_r": among(found.is_judged, mean, found.average_precision_at_r),
        "map": among(found.is_judged, mean, found.average_precision),
    }


def _uncertainty_statistics(found: Queries) -> dict[str, Statistic]:
    assert found.level is not None
    level, is_wrong = found.level.double(), ~found.is_right
    return {
        "mean_level": partial(mean, level),
        "r_auroc": among(found.is_judged, r_auroc, level, is_wrong),
        "aurc": among(found.is_judged, aurc, level, is_wrong),
        "excess_aurc": among(found.is_judged, excess_aurc, level, is_wrong),
        "spearman": among(found.is_judged, spearman, level, found.average_precision),
    }


def _part(kind: type, scored: Mapping[str, float], *, without: str) -> dict[str, float]:
    """The scores that this kind of scores has, but for what is no number."""
    return {part.name: scored[part.name] for part in fields(kind) if part.name != without}


def _rise_statistics(found: Queries, changed_levels: ChangedLevels) -> dict[str, Statistic]:
    """The share of images whose level rises, of those whose changed level is known."""
    assert found.level is not None
    statistics = {}
    for kind, levels in changed_levels.items():
        for degree, changed in levels.items():
            name = f"{RISES}{kind}/{degree:g}"
            if changed.shape != found.level.shape:
                raise ValueError(f"{name}: {tuple(changed.shape)} levels of {len(found.level)} images: give each one.")
            changed = changed.to(found.level.device)
            statistics[name] = among(~changed.isnan(), share_that_rises, found.level, changed)
    return statistics


def _nested(shares: dict[str, float]) -> dict[str, dict[float, float]]:
    nested: dict[str, dict[float, float]] = {}
    for name, share in shares.items():
        kind, degree = name.removeprefix(RISES).rsplit("/", 1)
        nested.setdefault(kind, {})[float(degree)] = share
    return nested


def _correlation(embedding: Embedding, *, seed: int, memory: int) -> Correlation | None:
    """None where it has no meaning: too few images, some without any uncertainty, or all of one direction."""
    assert embedding.uncertainty is not None
    if len(embedding) <= NEIGHBOURS or bool((embedding.level == 0).any()) or are_alike(embedding.uncertainty):
        return None
    return relative_correlation(embedding, seed=seed, memory=memory)


def _read(
    embedding: Any, labels: Any, gallery: Any, gallery_labels: Any
) -> tuple[Embedding, Int[Tensor, " q"], Embedding | None, Int[Tensor, " m"] | None]:
    """Embeddings and class numbers, on one device, checked."""
    if (gallery is None) != (gallery_labels is None):
        missing = "gallery" if gallery is None else "gallery_labels"
        raise ValueError(f"{missing} is missing: give a gallery with its labels, or neither.")
    queries = as_embedding(embedding)
    others = None if gallery is None else as_embedding(gallery, name="gallery")
    own, of_gallery, classes = as_class_numbers(labels, gallery_labels)
    for name, images, numbers in (("embedding", queries, own), ("gallery", others, of_gallery)):
        if images is None or numbers is None:
            continue
        if len(images) == 0:
            raise ValueError(f"the {name} is empty: give at least one image.")
        if len(images) != len(numbers):
            raise ValueError(f"the {name} has {len(images)} rows and {len(numbers)} labels: give each image one.")
        check_uncertainty(images, name=name)
    if others is not None:
        _check_widths(queries, others)
        if queries.uncertainty is not None and others.uncertainty is None:
            others = Embedding.certain(others.semantic)
    if len(queries) == 1 and others is None:
        raise ValueError("a single image has no other to find: give at least two, or a gallery.")
    if len(classes) < 2:
        raise ValueError(f"all {len(queries)} images are of one class, {classes[0]!r}: give at least two classes.")
    return queries, own.to(queries.device), others, None if of_gallery is None else of_gallery.to(queries.device)


def _check_widths(queries: Embedding, gallery: Embedding) -> None:
    for side in ("semantic", "uncertainty"):
        widths = [0 if rows is None else rows.shape[1] for rows in (getattr(queries, side), getattr(gallery, side))]
        if all(widths) and widths[0] != widths[1]:
            raise ValueError(
                f"{side} embeddings have {widths[0]} dimensions, and {widths[1]} in the gallery: use one model."
            )


def _as_distance(distance: str | Distance, queries: Embedding, gallery: Embedding | None) -> Distance:
    if isinstance(distance, str):
        if distance not in DISTANCES:
            raise unknown_name("distance", distance, DISTANCES)
        distance = DISTANCES[distance]
    elif not isinstance(distance, Euclidean | Cosine | Introspective):
        raise ValueError(f"distance is a {type(distance).__name__}: give one of idml.distances, or its name.")
    has_uncertainty = all(side is None or side.uncertainty is not None for side in (queries, gallery))
    if isinstance(distance, Introspective) and not has_uncertainty:
        raise ValueError("the introspective distance needs uncertainty, which these embeddings lack: use 'euclidean'.")
    return distance


def _left_for_distances(memory: int, *sides: Embedding | None) -> int:
    copies = COPIES * torch.float32.itemsize * sum(side.semantic.numel() for side in sides if side is not None)
    return max(memory - copies, memory // 4)


def _check_options(ks: Sequence[int], resamples: int, memory: int, calibration: object) -> tuple[int, ...]:
    """The K that are asked for, each once, as plain numbers; raises for options that make no sense."""
    if isinstance(ks, int):
        raise ValueError(f"ks is {ks}: give a list, such as ({ks},).")
    numbers = []
    for k in ks:
        if isinstance(k, bool) or not hasattr(k, "__index__") or operator.index(k) < 1:
            raise ValueError(f"K is {k!r}: count at least 1 neighbour, in whole numbers.")
        numbers.append(operator.index(k))
    if resamples < 0:
        raise ValueError(f"resamples is {resamples}: give 0 for no intervals, or 1,000.")
    if memory < 1:
        raise ValueError(f"memory is {memory} bytes: give at least 1; 2**30 is 1 GiB.")
    if calibration is not None and not isinstance(calibration, Calibration):
        raise ValueError(f"calibration is a {type(calibration).__name__}: give a Calibration, or None.")
    return tuple(dict.fromkeys(numbers))
