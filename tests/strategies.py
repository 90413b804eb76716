"""Random inputs: small, of every kind, and full of the cases that break things."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from idml import Embedding, Pairs

LABEL_KINDS = ("numbers", "sets", "shares")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_embedding(n: int, dim: int, uncertainty_dim: int, seed: int, dtype=torch.float64) -> Embedding:
    draw = generator(seed)
    semantic = torch.randn(n, dim, generator=draw, dtype=torch.float64)
    uncertainty = torch.randn(n, uncertainty_dim, generator=draw, dtype=torch.float64)
    return Embedding(semantic.to(dtype), uncertainty.to(dtype))


def random_members(n: int, classes: int, kind: str, seed: int) -> Tensor:
    """Class numbers (n,), label sets or shares (n, c)."""
    draw = generator(seed)
    numbers = torch.randint(classes, (n, 2), generator=draw)
    if kind == "numbers":
        return numbers[:, 0]
    one_hot = torch.nn.functional.one_hot(numbers, classes).double()
    if kind == "sets":
        return one_hot.sum(dim=1) > 0
    share = torch.rand(n, 1, generator=draw, dtype=torch.float64).round(decimals=1)
    return share * one_hot[:, 0] + (1 - share) * one_hot[:, 1]


@st.composite
def embeddings(draw, dtype=torch.float64) -> tuple[Embedding, Embedding]:
    """Two embeddings of one kind; some rows are duplicates, zero, opposite in u, or of a huge level."""
    dim, uncertainty_dim = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    first, second = (
        random_embedding(draw(st.integers(1, 5)), dim, uncertainty_dim, draw(st.integers(0, 10**6)), dtype)
        for _ in range(2)
    )
    for trouble in draw(
        st.sets(st.sampled_from(["duplicate", "zero s", "zero u", "opposite u", "huge u", "tiny alpha"]))
    ):
        i, j = draw(st.integers(0, len(first) - 1)), draw(st.integers(0, len(second) - 1))
        if trouble == "duplicate":
            second.semantic[j] = 3 * first.semantic[i]
        elif trouble == "zero s":
            first.semantic[i] = 0
        elif trouble == "zero u":
            first.uncertainty[i] = 0  # pyright: ignore[reportOptionalSubscript]
        elif trouble == "opposite u":
            second.uncertainty[j] = -first.uncertainty[i]  # pyright: ignore[reportOptionalSubscript]
        elif trouble == "huge u":
            second.uncertainty[j] *= 1e4  # pyright: ignore[reportOptionalSubscript]
        else:
            second.semantic[j] = first.semantic[i] * (1 + 1e-9)
    return first, second


@dataclass(frozen=True)
class Weighted:
    """A distance matrix with pair weights, as losses see it."""

    distance: Tensor
    pairs: Pairs


@st.composite
def weighted_distances(draw) -> Weighted:
    """Distances in [0, 2] and weights of any pattern: boolean or not, overlapping or not, empty rows or all of it."""
    n, m, seed = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 10**6))
    random = generator(seed)
    distance = 2 * torch.rand(n, m, generator=random, dtype=torch.float64)
    density = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    weights = []
    for _ in range(2):
        present = torch.rand(n, m, generator=random) < density
        amount = torch.rand(n, m, generator=random, dtype=torch.float64)
        weights.append(present if draw(st.booleans()) else present * amount)
    return Weighted(distance, Pairs(*weights))
