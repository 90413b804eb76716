"""The introspective distance inside pytorch-metric-learning's losses and miners.

Those take one embedding an image, so rows hold both: [semantic | uncertainty]. Every loss and miner
that accepts a distance works unchanged: contrastive, triplet margin, margin, multi-similarity,
NT-Xent, SupCon, both lifted-structure losses, intra-pair variance, NCA, N-pairs, ranked list,
ProxyNCA, ProxyAnchor, normalised softmax, cross-batch memory; and the multi-similarity,
triplet margin, pair margin, batch hard, batch easy-hard and uniform histogram miners.

Those whose formula holds for one kind of distance alone refuse it by an assertion of their own:
circle, tuplet margin, SmoothAP, PNP, instance, threshold-consistent margin and the angular-margin
softmaxes (ArcFace, CosFace, SphereFace, large margin, sub-centre) work on the cosine's angle;
FastAP and dynamic soft margin on normalised Euclidean distances; angular and its miner on triangles
of embeddings; SNR on a distance of its own; SoftTriple on similarities, where larger is closer; the
distance-weighted miner on the density of Euclidean distances (`idml.miners.distance_weighted` takes
any). The histogram loss has bins for cosines from −1 to 1 and fails beyond; VICReg and the manifold
loss use no distance, or no labels.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from idml.distances import Introspective
from idml.embedding import Embedding

try:
    from pytorch_metric_learning.distances import BaseDistance
except ImportError as error:
    raise ImportError("idml.interop.pytorch_metric_learning needs an extra: pip install 'idml[pml]'") from error


class IntrospectiveDistance(BaseDistance):
    """`Introspective` for rows [s | u], of which the first `semantic_dim` numbers are s.

    Smaller is closer. Further options are those of `idml.distances.Introspective`.

        loss = losses.TripletMarginLoss(distance=IntrospectiveDistance(semantic_dim=512))
        loss(torch.cat([embedding.semantic, embedding.uncertainty], dim=1), labels)
    """

    def __init__(self, semantic_dim: int, tau: float = 5.0, gamma: float = 0.0, **options: Any):
        # The distance scales s itself, in float32 or better, so embeddings are not normalised before it.
        super().__init__(normalize_embeddings=False, p=2, power=1, is_inverted=False)
        if semantic_dim < 1:
            raise ValueError(f"semantic_dim is {semantic_dim}: give at least 1.")
        self.semantic_dim = semantic_dim
        self.introspective = Introspective(tau=tau, gamma=gamma, **options)

    def compute_mat(self, query_emb: Float[Tensor, "n k"], ref_emb: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
        query = self._split(query_emb)
        return self.introspective(query, query if ref_emb is query_emb else self._split(ref_emb))

    def pairwise_distance(self, query_emb: Float[Tensor, "n k"], ref_emb: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        """The distance of each row to the row beside it."""
        return self.introspective.of_rows(self._split(query_emb), self._split(ref_emb))

    def normalize(self, embeddings: Tensor, dim: int = 1, **options: Any) -> Tensor:
        """Scale s to length 1 and leave u as it is: its length is the level."""
        sizes = [self.semantic_dim, embeddings.shape[dim] - self.semantic_dim]
        self._check_width(embeddings.shape[dim])
        semantic, uncertainty = embeddings.split(sizes, dim=dim)
        return torch.cat([normalize(semantic, p=self.p, dim=dim, **options), uncertainty], dim=dim)

    def _split(self, rows: Float[Tensor, "n k"]) -> Embedding:
        self._check_width(rows.shape[1])
        return Embedding(rows[:, : self.semantic_dim], rows[:, self.semantic_dim :])

    def _check_width(self, width: int) -> None:
        if width <= self.semantic_dim:
            raise ValueError(
                f"rows hold {width} numbers and semantic_dim is {self.semantic_dim}: none are left for the uncertainty."
            )
