"""Whether semantic and uncertainty embeddings say the same (IDML, TPAMI 2023, section 4; table "Correlation").

Both are made comparable as relative embeddings (Moschella et al., ICLR 2023): the cosines to a few
anchors, which are samples themselves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.embedding import Embedding
from idml.errors import check_lengths
from idml.evaluation.comparing import Comparison
from idml.evaluation.neighbours import nearest
from idml.evaluation.ranks import ranks_of_positives
from idml.numerics.products import directions, row_lengths

ANCHORS = 100  # the paper's K
NEIGHBOURS = 10  # Moschella et al.
ROWS = 1 << 13  # samples at once, while they are compared with the anchors
ALIKE = 1e-4  # of their length: vectors that differ by less have relative embeddings that differ by its square


@dataclass(frozen=True)
class Correlation:
    """How alike the two are, over all samples; each is 1 where they are the same.

    jaccard: the mean overlap |A ∩ B| / |A ∪ B| of a sample's nearest neighbours in the two spaces.
    mrr: the mean of 1/rank, at which a sample's semantic embedding finds its own uncertainty embedding.
    cosine: the mean cosine of a sample's two relative embeddings.
    """

    jaccard: float
    mrr: float
    cosine: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def relative_correlation(
    embedding: Embedding,
    *,
    anchors: int = ANCHORS,
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
    memory: int = 1 << 30,
) -> Correlation:
    """Compare relative semantic with relative uncertainty embeddings, all by their cosines.

    Anchors are drawn uniformly, by the seed; of fewer samples than that, all are anchors. A sample
    is none of its own neighbours. Equally near ones come in the order of the samples. Anchors know
    themselves in both spaces, so unrelated embeddings reach an MRR of about anchors / samples.
    """
    if embedding.uncertainty is None:
        raise ValueError("this embedding has no uncertainty to correlate: use a model with an uncertainty head.")
    if anchors < 1:
        raise ValueError(f"anchors is {anchors}: give at least 1.")
    chosen = torch.randperm(len(embedding), generator=torch.Generator().manual_seed(seed))[:anchors]
    semantic = _relative("semantic", embedding.semantic, chosen)
    uncertainty = _relative("uncertainty", embedding.uncertainty, chosen)
    found = [nearest(Comparison.of(space), neighbours, memory=memory)[0] for space in (semantic, uncertainty)]
    own = torch.arange(len(embedding), device=embedding.device)
    rank = ranks_of_positives(Comparison.of(semantic, uncertainty), own, own, memory=memory).first
    cosine = torch.linalg.vecdot(directions(semantic.semantic), directions(uncertainty.semantic))
    return Correlation(
        jaccard=float(_overlap(*found).mean()),
        mrr=float(rank.double().reciprocal().mean()),
        cosine=float(cosine.mean()),
    )


def are_alike(rows: Float[Tensor, "n d"]) -> bool:
    """Whether all point the same way, up to rounding: their cosines to anchors then say nothing."""
    first = directions(rows[:1].double())
    return all(float(row_lengths(directions(some.double()) - first).max()) < ALIKE for some in rows.split(ROWS))


def _relative(name: str, rows: Float[Tensor, "n d"], anchors: Int[Tensor, " k"]) -> Embedding:
    """The cosines of all samples to the anchors, in float64."""
    length = row_lengths(rows.double()).cpu()
    if check_lengths(length, rows, name=name):
        row = int((length == 0).nonzero()[0])
        raise ValueError(f"{name} row {row} is zero: it has no cosine to any anchor. Leave it out.")
    to_anchors = directions(rows[anchors.to(rows.device)].double()).T
    return Embedding(torch.cat([directions(some.double()) @ to_anchors for some in rows.split(ROWS)]))


def _overlap(a: Int[Tensor, "n k"], b: Int[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Jaccard similarity of the two sets in each row."""
    shared = (a[:, :, None] == b[:, None, :]).sum(dim=(1, 2)).double()
    return shared / (2 * a.shape[1] - shared)
