"""How well clusters of the embeddings agree with the classes: NMI, AMI and F1 of k-means clusters.

AMI is that of Vinh, Epps and Bailey (JMLR 2010); F1 counts pairs of images, as Manning, Raghavan and
Schütze do (Introduction to Information Retrieval, 2008, section 16.3) and deep metric learning since
Song et al. (CVPR 2016). Scores take two labelings, do not care what the labels are called, and come
from the sparse table of how often which two labels meet.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.distances import Introspective
from idml.embedding import Embedding, check_embedding
from idml.errors import check_lengths
from idml.evaluation.kmeans import RESTARTS, fill_empty, k_means
from idml.numerics.precision import wide
from idml.numerics.products import directions, row_lengths
from idml.progress import Progress, no_progress

ROUNDS = 20  # of introspective assignment, at most: 60,502 images in 11,316 clusters settle within 10
BYTES = 32  # an introspective distance costs while it is computed


@dataclass(frozen=True, kw_only=True)
class ClusteringScores:
    """Agreement of clusters with classes, 1 where they are the same."""

    nmi: float
    ami: float
    f1: float


def clustering_scores(
    embedding: Embedding,
    labels: Int[Tensor, " n"],
    *,
    introspective: Introspective | None = None,
    seed: int = 0,
    restarts: int = RESTARTS,
    memory: int = 1 << 30,
    progress: Progress = no_progress,
) -> ClusteringScores:
    """Scores of as many clusters as there are classes; see `cluster` for the options."""
    check_embedding(embedding)
    _check_labels("labels", labels)
    if len(labels) != len(embedding):
        raise ValueError(f"there are {len(labels)} labels for {len(embedding)} images: give each image one.")
    labels = labels.to(embedding.device)
    options = {"seed": seed, "restarts": restarts, "memory": memory, "progress": progress}
    found = cluster(embedding, len(labels.unique()), introspective=introspective, **options)
    table = _Table.of(labels, found)
    return ClusteringScores(nmi=_nmi(table), ami=_ami(table), f1=_f1(table))


def cluster(
    embedding: Embedding,
    clusters: int,
    *,
    introspective: Introspective | None = None,
    seed: int = 0,
    restarts: int = RESTARTS,
    memory: int = 1 << 30,
    progress: Progress = no_progress,
) -> Int[Tensor, " n"]:
    """The cluster of each image: k-means of the directions ŝ of the semantic embeddings.

    introspective: the ablation. From the k-means clusters on, each image goes to the cluster whose
    (mean ŝ, mean u) is nearest by this distance, and the means are taken again. The mean does not
    minimise this distance, so nothing makes that converge: it ends when no image changes its
    cluster, and after ROUNDS at the latest. No cluster is left empty, as in `k_means`.
    """
    check_embedding(embedding)
    semantic = wide(embedding.semantic.detach())
    check_lengths(row_lengths(semantic).cpu(), embedding.semantic, name="semantic")
    semantic = directions(semantic)
    found = k_means(semantic, clusters, restarts=restarts, seed=seed, memory=memory, progress=progress).assignment
    if introspective is None:
        return found
    with torch.no_grad():
        for _ in range(ROUNDS):
            centres = _means(Embedding(semantic, embedding.uncertainty), found, clusters)
            before, found = found, _nearest(embedding, centres, introspective, memory)
            if torch.equal(found, before):
                break
    return found


def normalised_mutual_information(labels: Int[Tensor, " n"], clusters: Int[Tensor, " n"]) -> float:
    """NMI = I(labels; clusters) / ½(H(labels) + H(clusters)).

    1 for the same partition under other names, also where it is a single cluster; 0 where only one is.

    >>> normalised_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    1.0
    """
    return _nmi(_Table.of(labels, clusters))


def adjusted_mutual_information(labels: Int[Tensor, " n"], clusters: Int[Tensor, " n"]) -> float:
    """AMI = (I − E[I]) / (½(H(labels) + H(clusters)) − E[I]): 0 in the mean for clusters drawn at random.

    E[I] is over all labelings with these cluster sizes. 1 for the same partition, 0 where one is a single cluster.
    """
    return _ami(_Table.of(labels, clusters))


def pairwise_f1(labels: Int[Tensor, " n"], clusters: Int[Tensor, " n"]) -> float:
    """F1 of "these two share a class", said of all pairs in a cluster: 2·both / (pairs in clusters + pairs in classes).

    1 where there is no pair in either, for none is missed; 0 where there is none in one only.

    >>> pairwise_f1(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
    0.4
    """
    return _f1(_Table.of(labels, clusters))


@dataclass(frozen=True, eq=False)
class _Table:
    """How often labels and clusters meet, those that do: their places in `sizes` and `others`, and their number."""

    label: Int[Tensor, " m"]
    cluster: Int[Tensor, " m"]
    together: Int[Tensor, " m"]
    sizes: Int[Tensor, " a"]
    others: Int[Tensor, " b"]

    @classmethod
    def of(cls, labels: Tensor, clusters: Tensor) -> _Table:
        _check(labels, clusters)
        _, label, sizes = labels.unique(return_inverse=True, return_counts=True)
        _, cluster, others = clusters.to(labels.device).unique(return_inverse=True, return_counts=True)
        pair, together = (label * max(1, len(others)) + cluster).unique(return_counts=True)
        return cls(pair // max(1, len(others)), pair % max(1, len(others)), together, sizes, others)

    @property
    def is_same(self) -> bool:
        """Whether both are the same partition."""
        return len(self.together) == len(self.sizes) == len(self.others)

    @property
    def information(self) -> float:
        """I = Σ p(a, b) log(p(a, b) / (p(a) p(b)))."""
        together = self.together.double()
        total = together.sum()
        ratio = total * together / (self.sizes[self.label].double() * self.others[self.cluster].double())
        return max(0.0, float((together / total * ratio.log()).sum()))

    @property
    def mean_entropy(self) -> float:
        return (_entropy(self.sizes) + _entropy(self.others)) / 2


def _nmi(table: _Table) -> float:
    if table.is_same:
        return 1.0
    return table.information / table.mean_entropy


def _ami(table: _Table) -> float:
    if table.is_same:
        return 1.0
    if len(table.sizes) == 1 or len(table.others) == 1:
        return 0.0
    expected = _expected_information(table.sizes, table.others)
    return (table.information - expected) / max(table.mean_entropy - expected, sys.float_info.epsilon)


def _f1(table: _Table) -> float:
    both, in_classes, in_clusters = (
        int((size * (size - 1) // 2).sum()) for size in (table.together, table.sizes, table.others)
    )
    return 2 * both / (in_classes + in_clusters) if in_classes + in_clusters else 1.0


def _entropy(sizes: Int[Tensor, " a"]) -> float:
    share = sizes.double() / sizes.sum()
    return -float((share * share.log()).sum())


def _expected_information(sizes: Int[Tensor, " a"], others: Int[Tensor, " b"]) -> float:
    """E[I] of two random partitions with these cluster sizes, whose overlaps are hypergeometric.

    Σ chance · overlap/n · log(n · overlap / (size · other)). It depends on sizes only, so it is
    computed once for each two different ones: of n images there are at most √(2n) different sizes.
    """
    total = int(sizes.sum())
    log_factorial = torch.lgamma(torch.arange(1, total + 2, dtype=torch.float64, device=sizes.device))
    other, times = others.unique(return_counts=True)
    expected = torch.zeros((), dtype=torch.float64, device=sizes.device)
    for size, count in zip(*(part.tolist() for part in sizes.unique(return_counts=True)), strict=True):
        overlap = torch.arange(1, min(size, int(other[-1])) + 1, device=sizes.device)[:, None]
        neither = total - size - other + overlap
        is_possible = (overlap <= other) & (neither >= 0)
        ways = log_factorial[size] + log_factorial[total - size] + log_factorial[other] + log_factorial[total - other]
        ways = ways - log_factorial[total] - log_factorial[overlap] - log_factorial[size - overlap]
        ways = ways - log_factorial[(other - overlap).clamp_(min=0)] - log_factorial[neither.clamp_(min=0)]
        overlap = overlap.double()
        gain = ways.exp() * overlap / total * (overlap * total / (size * other)).log()
        expected += count * (gain.masked_fill_(~is_possible, 0) * times).sum()
    return float(expected)


def _means(embedding: Embedding, found: Int[Tensor, " n"], clusters: int) -> Embedding:
    """Each cluster's mean semantic and mean uncertainty embedding, none of them empty."""
    order, size = found.argsort(stable=True), torch.bincount(found, minlength=clusters)

    def mean(rows: Float[Tensor, "n d"]) -> Float[Tensor, "k d"]:
        return torch.segment_reduce(wide(rows)[order].double(), "mean", lengths=size, axis=0).to(wide(rows).dtype)

    return Embedding(
        mean(embedding.semantic), None if embedding.uncertainty is None else mean(embedding.uncertainty.detach())
    )


def _nearest(embedding: Embedding, centres: Embedding, distance: Introspective, memory: int) -> Int[Tensor, " n"]:
    """The nearest centre of each image, the first of equally near ones; no centre goes without."""
    every = torch.arange(len(embedding), device=embedding.device)
    found, far = [], []
    for rows in every.split(max(1, memory // (BYTES * len(centres)))):
        distances = distance(embedding[rows], centres)
        found.append(distances.argmin(dim=1))
        far.append(distances.amin(dim=1))
    found = torch.cat(found)
    fill_empty(found, torch.cat(far), len(centres))
    return found


def _check(labels: Tensor, clusters: Tensor) -> None:
    _check_labels("labels", labels)
    _check_labels("clusters", clusters)
    if len(labels) != len(clusters):
        raise ValueError(f"there are {len(labels)} labels and {len(clusters)} clusters: give each image one of each.")


def _check_labels(name: str, values: Tensor) -> None:
    if values.ndim != 1 or values.is_floating_point() or values.is_complex():
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and dtype {values.dtype}: give one integer an image, (n,)."
        )
