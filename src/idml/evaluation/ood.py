"""Whether images from elsewhere are noticed: in- against out-of-distribution (IDML, TPAMI 2023, section 4).

A score is higher the more an image looks outside. Three are compared: the uncertainty level, the
distance to the nearest training image, and the Mahalanobis distance of SSD (Sehwag et al., ICLR
2021). Outside is the positive class; rates treat images of equal score together, as scikit-learn does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from idml.data.batches import check_between
from idml.embedding import Embedding
from idml.errors import check_lengths
from idml.evaluation.comparing import Comparison
from idml.evaluation.inputs import check_uncertainty
from idml.evaluation.neighbours import nearest
from idml.evaluation.ordering import Counts, Ordering, Score, as_asked, drawn_queries
from idml.evaluation.uncertainty import r_auroc
from idml.numerics.precision import wide
from idml.numerics.products import directions, row_lengths

ACCEPTED = 0.95  # of the images inside: FPR95
RIDGE = 1e-6  # of the mean variance: keeps a covariance of few images invertible, and others as they are
ROWS = 1 << 13  # images at once


def auroc(score: Float[Tensor, " n"], is_outside: Bool[Tensor, " n"], counts: Counts | None = None) -> Score:
    """The chance that an image outside scores higher than one inside, equal scores counting half; NaN without both."""
    return r_auroc(score, is_outside, counts)


def average_precision(
    score: Float[Tensor, " n"], is_outside: Bool[Tensor, " n"], counts: Counts | None = None
) -> Score:
    """AUPR: precision, averaged over the images outside as the threshold falls; NaN if there are none."""
    drawn = drawn_queries(score, is_outside, counts)
    number, outside = Ordering.of(-score).totals(drawn, is_outside)
    precision = outside.cumsum(dim=1) / number.cumsum(dim=1).clamp(min=1)
    return as_asked(torch.linalg.vecdot(precision, outside) / outside.sum(dim=1), counts)


def false_positive_rate_at(
    score: Float[Tensor, " n"],
    is_outside: Bool[Tensor, " n"],
    counts: Counts | None = None,
    *,
    accepted: float = ACCEPTED,
) -> Score:
    """FPR95: the share of images outside that are accepted when 95 % of those inside are.

    The threshold is the lowest that accepts this share of the images inside, or more. NaN without both.
    """
    check_between("accepted", accepted, 0.0, 1.0)
    drawn = drawn_queries(score, is_outside, counts)
    number, outside = Ordering.of(score).totals(drawn, is_outside)
    inside = number - outside
    share_inside, share_outside = (side.cumsum(dim=1) / side.sum(dim=1, keepdim=True) for side in (inside, outside))
    threshold = (share_inside >= accepted).byte().argmax(dim=1, keepdim=True)
    return as_asked(share_outside.gather(1, threshold)[:, 0].masked_fill(inside.sum(dim=1) == 0, torch.nan), counts)


def nearest_distance(train: Embedding, images: Embedding, *, memory: int = 1 << 30) -> Float[Tensor, " n"]:
    """½‖ŝ − ŝ_t‖², which is 1 − C, to the nearest training image t."""
    return nearest(Comparison.of(images, train), 1, memory=memory)[1][:, 0]


def mahalanobis(
    train: Embedding, images: Embedding, *, train_labels: Int[Tensor, " m"] | None = None, ridge: float = RIDGE
) -> Float[Tensor, " n"]:
    """SSD: the smallest (z − μ)ᵀ Σ⁻¹ (z − μ) over clusters of training images, z of length 1.

    Training images are one cluster, or, by their labels, one a class (SSD+: for hundreds of classes,
    not thousands). Where a cluster has fewer images than dimensions Σ has no inverse, so each gets `ridge`
    times the mean variance of all training images on its diagonal: leaving its null space is noticed most.
    """
    rows = directions(train.semantic.double())
    if len(rows) == 0:
        raise ValueError("there are no training images to compare with: give at least one.")
    if train_labels is not None and len(train_labels) != len(train):
        raise ValueError(f"there are {len(train)} training images and {len(train_labels)} labels: give one each.")
    least = max(ridge * float(rows.var(dim=0, correction=0).mean()), torch.finfo(rows.dtype).eps)
    labels = rows.new_zeros(len(rows), dtype=torch.long) if train_labels is None else train_labels
    closest = torch.full((len(images),), torch.inf, dtype=torch.float64, device=images.device)
    for cluster in (rows[labels == label] for label in labels.unique()):
        mean = cluster.mean(dim=0)
        covariance = (cluster - mean).T @ (cluster - mean) / len(cluster)
        covariance.diagonal().add_(least)
        root = torch.linalg.cholesky(covariance)
        distance = [_squared_distances(directions(some.double()) - mean, root) for some in images.semantic.split(ROWS)]
        closest = torch.minimum(closest, torch.cat(distance))
    return closest


@dataclass(frozen=True)
class Detection:
    """How well one score tells outside from inside: higher is better, but for the false positive rate."""

    auroc: float
    average_precision: float
    false_positive_rate: float


@dataclass(frozen=True)
class OodScores:
    """Detection by each score, and the mean level of each set; None where there is no uncertainty."""

    level: Detection | None
    nearest: Detection
    mahalanobis: Detection
    mean_level_train: float | None
    mean_level_inside: float | None
    mean_level_outside: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def ood_scores(
    train: Embedding,
    inside: Embedding,
    outside: Embedding,
    *,
    train_labels: Int[Tensor, " m"] | None = None,
    memory: int = 1 << 30,
) -> OodScores:
    """Tell images outside from new ones inside, by what the training images look like.

    train_labels: for SSD+, a cluster for each class. memory: bytes for distances held at a time.
    """
    for name, images in (("training", train), ("inside", inside), ("outside", outside)):
        _check_set(name, images, inside)
    has_level = all(images.uncertainty is not None for images in (train, inside, outside))
    inside, outside = (side if has_level else Embedding(side.semantic) for side in (inside, outside))
    both = Embedding.cat([inside, outside])
    is_outside = torch.arange(len(both), device=both.device) >= len(inside)

    def detection(score: Tensor) -> Detection:
        judges = (auroc, average_precision, false_positive_rate_at)
        return Detection(*(float(judge(score, is_outside)) for judge in judges))

    levels = [float(images.level.double().mean()) if has_level else None for images in (train, inside, outside)]
    return OodScores(
        detection(both.level) if has_level else None,
        detection(nearest_distance(train, both, memory=memory)),
        detection(mahalanobis(train, both, train_labels=train_labels)),
        *levels,
    )


def _check_set(name: str, images: Embedding, inside: Embedding) -> None:
    """Raise, naming the set, if it cannot be compared with the others."""
    if len(images) == 0:
        raise ValueError(f"the {name} set is empty: give at least one image.")
    if images.semantic.shape[1] != inside.semantic.shape[1]:
        widths = f"{images.semantic.shape[1]} dimensions, and the inside set {inside.semantic.shape[1]}"
        raise ValueError(f"the {name} set has {widths}: embed all of them by one model.")
    check_lengths(row_lengths(wide(images.semantic)).cpu(), images.semantic, name=f"{name} set")
    check_uncertainty(images, name=f"{name} set")


def _squared_distances(offsets: Float[Tensor, "n d"], root: Float[Tensor, "d d"]) -> Float[Tensor, " n"]:
    """xᵀ Σ⁻¹ x of each row, from the Cholesky factor of Σ."""
    return torch.linalg.solve_triangular(root, offsets.T, upper=False).square().sum(dim=0)
