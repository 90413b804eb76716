import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import random_embedding

from idml import Embedding
from idml.evaluation.correlation import relative_correlation


def cosines(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(a.double()) @ torch.nn.functional.normalize(b.double()).T


def naive(embedding: Embedding, anchors: torch.Tensor, neighbours: int) -> tuple[float, float, float]:
    assert embedding.uncertainty is not None
    semantic, uncertainty = (cosines(side, side[anchors]) for side in (embedding.semantic, embedding.uncertainty))
    jaccard, reciprocal, cosine = [], [], []
    for i in range(len(embedding)):
        others = [j for j in range(len(embedding)) if j != i]
        near = []
        for space in (semantic, uncertainty):
            to_others = cosines(space[i : i + 1], space)[0].tolist()
            near.append(set(sorted(others, key=lambda j, c=to_others: (-c[j], j))[:neighbours]))
        jaccard.append(len(near[0] & near[1]) / len(near[0] | near[1]))
        across = cosines(semantic[i : i + 1], uncertainty)[0]
        reciprocal.append(1 / (1 + int((across > across[i]).sum())))
        cosine.append(across[i].item())
    return tuple(sum(values) / len(values) for values in (jaccard, reciprocal, cosine))  # pyright: ignore[reportReturnType]


@given(n=st.integers(4, 14), anchors=st.integers(2, 20), neighbours=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_all_three_equal_their_definitions_in_a_loop(n, anchors, neighbours, seed):
    embedding = random_embedding(n, 6, 4, seed)
    found = relative_correlation(embedding, anchors=anchors, neighbours=neighbours, seed=seed)
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:anchors]
    assert tuple(found.to_dict().values()) == pytest.approx(naive(embedding, chosen, neighbours), abs=1e-9)


def test_embeddings_that_say_the_same_are_fully_correlated_even_turned_and_stretched():
    rows = torch.randn(150, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    found = relative_correlation(Embedding(rows, 5 * rows @ turn))
    assert tuple(found.to_dict().values()) == pytest.approx((1, 1, 1))


def test_unrelated_embeddings_are_correlated_only_by_anchors_that_know_themselves():
    """Of 1,000 samples 100 are anchors: those find themselves, at a cosine of about a third."""
    found = relative_correlation(random_embedding(1000, 64, 64, seed=0))
    assert found.jaccard < 0.02
    assert found.mrr == pytest.approx(0.1, abs=0.02)
    assert found.cosine == pytest.approx(0.035, abs=0.01)
    fewer = relative_correlation(random_embedding(1000, 64, 64, seed=0), anchors=10)
    assert fewer.mrr < 0.03


def test_the_seed_draws_the_anchors_and_fewer_samples_than_anchors_are_all_of_them():
    embedding = random_embedding(60, 8, 8, seed=0)
    first, again, other = (relative_correlation(embedding, anchors=10, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    everything, as_well = (relative_correlation(embedding, anchors=60, seed=seed) for seed in (0, 1))
    assert everything.to_dict() == pytest.approx(as_well.to_dict())
    assert relative_correlation(embedding, anchors=100) == everything


def test_half_precision_is_compared_as_it_is():
    embedding = random_embedding(40, 8, 8, seed=0, dtype=torch.float16)
    assert embedding.uncertainty is not None
    exact = Embedding(embedding.semantic.double(), embedding.uncertainty.double())
    assert relative_correlation(embedding) == relative_correlation(exact)


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    embedding = random_embedding(5, 3, 3, seed=0)
    with pytest.raises(ValueError, match="no uncertainty to correlate"):
        relative_correlation(Embedding(embedding.semantic))
    with pytest.raises(ValueError, match="anchors is 0"):
        relative_correlation(embedding, anchors=0)
    with pytest.raises(ValueError, match="k is 10, and a query has 4 images"):
        relative_correlation(embedding)
    embedding.uncertainty[3] = 0  # pyright: ignore[reportOptionalSubscript]
    with pytest.raises(ValueError, match="uncertainty row 3 is zero"):
        relative_correlation(embedding, neighbours=2)
