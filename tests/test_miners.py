import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import miners as peer_miners
from strategies import generator, random_embedding, random_members, weighted_distances

from idml import Embedding, Pairs
from idml.distances import Cosine, Euclidean
from idml.miners import distance_weighted, multi_similarity, semi_hard, semi_hard_of
from idml.pairs import pairs_within


@given(case=weighted_distances())
def test_semi_hard_is_the_nearest_negative_farther_than_the_positive(case):
    chosen, found = semi_hard(case.distance, case.pairs)
    for a, row in enumerate(case.distance):
        for p in range(len(row)):
            farther = [n for n in range(len(row)) if case.pairs.negative[a, n] > 0 and row[n] > row[p]]
            assert bool(found[a, p]) == bool(farther)
            if farther:
                assert chosen[a, p] == min(farther, key=lambda n: float(row[n]))


@given(case=weighted_distances())
def test_semi_hard_of_listed_pairs_is_semi_hard_of_the_matrix(case):
    chosen, found = semi_hard(case.distance, case.pairs)
    anchor, positive = (case.pairs.positive > 0).nonzero(as_tuple=True)
    listed, listed_found = semi_hard_of(case.distance, case.pairs, anchor, positive)
    assert torch.equal(listed_found, found[anchor, positive])
    assert torch.equal(listed[listed_found], chosen[anchor, positive][listed_found])


def test_semi_hard_takes_the_first_of_equally_near_negatives():
    distance = torch.tensor([[0.1, 0.5, 0.3, 0.3, 0.3]])
    pairs = Pairs(torch.tensor([[True] + [False] * 4]), torch.tensor([[False] + [True] * 4]))
    assert semi_hard(distance, pairs)[0][0, 0] == 2
    zero = torch.tensor([0])
    assert semi_hard_of(distance, pairs, zero, zero)[0] == 2


@given(case=weighted_distances())
def test_multi_similarity_keeps_the_pairs_of_its_definition(case):
    epsilon = 0.1
    mined = multi_similarity(case.distance, case.pairs, epsilon=epsilon)
    assert mined.positive.dtype is case.pairs.positive.dtype
    for a, row in enumerate(1 - case.distance):
        positives = [float(c) for c, weight in zip(row, case.pairs.positive[a], strict=True) if weight > 0]
        negatives = [float(c) for c, weight in zip(row, case.pairs.negative[a], strict=True) if weight > 0]
        for j, c in enumerate(row):
            complete = bool(positives and negatives)
            keep_positive = complete and float(c) < max(negatives) + epsilon
            keep_negative = complete and float(c) > min(positives) - epsilon
            assert mined.positive[a, j] == case.pairs.positive[a, j] * keep_positive
            assert mined.negative[a, j] == case.pairs.negative[a, j] * keep_negative


@pytest.mark.parametrize("seed", range(3))
def test_multi_similarity_keeps_what_pytorch_metric_learning_keeps(seed):
    semantic, labels = random_embedding(30, 5, 1, seed).semantic, random_members(30, 6, "numbers", seed)
    a1, p, a2, n = peer_miners.MultiSimilarityMiner(epsilon=0.1)(semantic, labels)
    embedding = Embedding(semantic)
    mined = multi_similarity(Cosine()(embedding, embedding), pairs_within(labels))
    positive, negative = torch.zeros(30, 30, dtype=torch.bool), torch.zeros(30, 30, dtype=torch.bool)
    positive[a1, p], negative[a2, n] = True, True
    assert torch.equal(mined.positive, positive)
    assert torch.equal(mined.negative, negative)


def test_distance_weighted_draws_one_negative_for_each_positive_pair():
    embedding, labels = random_embedding(40, 8, 1, 0), random_members(40, 5, "numbers", 0)
    pairs = pairs_within(labels)
    distance = Euclidean()(embedding, embedding)
    mined = distance_weighted(distance, pairs, dim=8, generator=generator(0))
    assert torch.equal(mined.positive, pairs.positive)
    assert torch.equal(mined.negative.sum(dim=1), pairs.positive.sum(dim=1).double())
    assert not mined.negative[~pairs.negative | (distance > 1.4)].any()


def test_distance_weighted_repeats_with_its_generator():
    embedding, labels = random_embedding(40, 8, 1, 0), random_members(40, 5, "numbers", 0)
    distance, pairs = Euclidean()(embedding, embedding), pairs_within(labels)
    first, again, other = (
        distance_weighted(distance, pairs, dim=8, generator=generator(s)).negative for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_distance_weighted_draws_in_proportion_to_weight_over_density():
    dim, draws = 6, 20_000
    distance = torch.tensor([[0.3, 0.6, 0.9, 1.2, 1.39, 1.5, *[1.0] * draws]], dtype=torch.float64)
    negative = torch.tensor([[1.0, 0.5, 1.0, 2.0, 1.0, 1.0, *[0.0] * draws]], dtype=torch.float64)
    positive = torch.tensor([[0.0] * 6 + [1.0] * draws], dtype=torch.float64)
    counts = distance_weighted(distance, Pairs(positive, negative), dim=dim, generator=generator(0)).negative[0, :6]
    clipped = distance[0, :6].clamp(min=0.5)
    expected = negative[0, :6] * clipped ** (2 - dim) * (1 - clipped**2 / 4) ** ((3 - dim) / 2)
    expected[5] = 0  # beyond 1.4
    torch.testing.assert_close(counts / draws, expected / expected.sum(), rtol=0, atol=0.015)


def test_distance_weighted_leaves_an_anchor_without_candidates_without_negatives():
    pairs = Pairs(torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True] * 3, [False] * 3]))
    mined = distance_weighted(torch.tensor([[1.5, 1.6, 1.7], [1.0, 1.0, 1.0]]), pairs)
    assert not mined.negative.any()


def test_distance_weighted_needs_dimensions():
    pairs = pairs_within(torch.tensor([0, 0, 1]))
    with pytest.raises(ValueError, match="dim is -5: give the dimensions of the embeddings, at least 1"):
        distance_weighted(torch.rand(3, 3), pairs, dim=-5)


def test_distance_weighted_survives_high_dimensions():
    """Its weights span e^{±hundreds} at 2,048 dimensions."""
    distance = torch.linspace(0.01, 1.99, 50).expand(4, 50).contiguous()
    pairs = Pairs(torch.ones(4, 50, dtype=torch.bool), torch.ones(4, 50, dtype=torch.bool))
    mined = distance_weighted(distance, pairs, dim=2048, generator=generator(0))
    assert mined.negative.sum() == 200


@pytest.mark.parametrize("miner", [multi_similarity, distance_weighted])
def test_miners_keep_no_gradient(miner):
    distance = torch.rand(3, 3, requires_grad=True)
    mined = miner(distance, Pairs(torch.ones(3, 3), torch.ones(3, 3)))
    assert not mined.positive.requires_grad
    assert not mined.negative.requires_grad


@pytest.mark.parametrize("miner", [multi_similarity, distance_weighted, semi_hard])
def test_miners_refuse_pairs_that_do_not_fit(miner):
    with pytest.raises(ValueError, match="distances have shape"):
        miner(torch.rand(2, 3), Pairs(torch.ones(3, 3), torch.ones(3, 3)))
