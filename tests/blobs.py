"""Classes as noisy points around their centres, and who is whose neighbour, by loops."""

import torch

from idml import Embedding
from idml.distances import Introspective


def blobs(images: int = 60, classes: int = 5, *, seed: int = 0, noise: float = 0.8) -> tuple[Embedding, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=generator)
    semantic = torch.randn(classes, 8, generator=generator)[labels]
    semantic = semantic + noise * torch.randn(images, 8, generator=generator)
    return Embedding(semantic, torch.rand(images, 4, generator=generator)), labels


def neighbours_in_a_loop(embedding: Embedding, distance: Introspective | None = None) -> list[list[int]]:
    """All others by their distance, in float64."""
    unit = torch.nn.functional.normalize(embedding.semantic.double())
    if distance is None:
        matrix = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    else:
        assert embedding.uncertainty is not None
        both = Embedding(unit, embedding.uncertainty.double())
        matrix = distance(both, both)
    rows = matrix.tolist()
    return [sorted((j for j in range(len(rows)) if j != i), key=lambda j: rows[i][j]) for i in range(len(rows))]
