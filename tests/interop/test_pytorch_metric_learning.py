import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import LpDistance
from strategies import random_embedding
from torch import Tensor

from idml import Objective
from idml.distances import Introspective
from idml.interop.pytorch_metric_learning import IntrospectiveDistance

DIM, UNCERTAINTY_DIM, CLASSES = 6, 4, 5
WIDTH = DIM + UNCERTAINTY_DIM

# Every loss of that library that takes a distance and no other arrangement.
LOSSES = {
    "ContrastiveLoss": lambda d: losses.ContrastiveLoss(pos_margin=0, neg_margin=1, distance=d),
    "TripletMarginLoss": lambda d: losses.TripletMarginLoss(distance=d),
    "MarginLoss": lambda d: losses.MarginLoss(distance=d),
    "MultiSimilarityLoss": lambda d: losses.MultiSimilarityLoss(distance=d),
    "NTXentLoss": lambda d: losses.NTXentLoss(distance=d),
    "SupConLoss": lambda d: losses.SupConLoss(distance=d),
    "LiftedStructureLoss": lambda d: losses.LiftedStructureLoss(distance=d),
    "GeneralizedLiftedStructureLoss": lambda d: losses.GeneralizedLiftedStructureLoss(distance=d),
    "IntraPairVarianceLoss": lambda d: losses.IntraPairVarianceLoss(distance=d),
    "NCALoss": lambda d: losses.NCALoss(distance=d),
    "NPairsLoss": lambda d: losses.NPairsLoss(distance=d),
    "RankedListLoss": lambda d: losses.RankedListLoss(margin=0.4, Tn=1, distance=d),
    "ProxyNCALoss": lambda d: losses.ProxyNCALoss(CLASSES, WIDTH, distance=d),
    "ProxyAnchorLoss": lambda d: losses.ProxyAnchorLoss(CLASSES, WIDTH, distance=d),
    "NormalizedSoftmaxLoss": lambda d: losses.NormalizedSoftmaxLoss(CLASSES, WIDTH, distance=d),
    "CrossBatchMemory": lambda d: losses.CrossBatchMemory(losses.ContrastiveLoss(distance=d), WIDTH, memory_size=64),
}
MINERS = {
    "MultiSimilarityMiner": lambda d: miners.MultiSimilarityMiner(distance=d),
    "TripletMarginMiner": lambda d: miners.TripletMarginMiner(distance=d),
    "PairMarginMiner": lambda d: miners.PairMarginMiner(distance=d),
    "BatchHardMiner": lambda d: miners.BatchHardMiner(distance=d),
    "BatchEasyHardMiner": lambda d: miners.BatchEasyHardMiner(distance=d),
    "UniformHistogramMiner": lambda d: miners.UniformHistogramMiner(distance=d),
}
# Their formulas hold for one distance alone, and they say so.
REFUSING = {
    "CircleLoss": lambda d: losses.CircleLoss(distance=d),
    "FastAPLoss": lambda d: losses.FastAPLoss(distance=d),
    "AngularLoss": lambda d: losses.AngularLoss(distance=d),
    "ArcFaceLoss": lambda d: losses.ArcFaceLoss(CLASSES, WIDTH, distance=d),
    "CosFaceLoss": lambda d: losses.CosFaceLoss(CLASSES, WIDTH, distance=d),
    "SphereFaceLoss": lambda d: losses.SphereFaceLoss(CLASSES, WIDTH, distance=d),
    "LargeMarginSoftmaxLoss": lambda d: losses.LargeMarginSoftmaxLoss(CLASSES, WIDTH, distance=d),
    "TupletMarginLoss": lambda d: losses.TupletMarginLoss(distance=d),
    "SignalToNoiseRatioContrastiveLoss": lambda d: losses.SignalToNoiseRatioContrastiveLoss(distance=d),
    "DynamicSoftMarginLoss": lambda d: losses.DynamicSoftMarginLoss(distance=d),
    "InstanceLoss": lambda d: losses.InstanceLoss(distance=d),
    "PNPLoss": lambda d: losses.PNPLoss(distance=d),
    "SmoothAPLoss": lambda d: losses.SmoothAPLoss(distance=d),
    "ThresholdConsistentMarginLoss": lambda d: losses.ThresholdConsistentMarginLoss(distance=d),
    "SoftTripleLoss": lambda d: losses.SoftTripleLoss(CLASSES, WIDTH, distance=d),  # larger must be closer
    "AngularMiner": lambda d: miners.AngularMiner(distance=d),
    "DistanceWeightedMiner": lambda d: miners.DistanceWeightedMiner(distance=d),
}


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    embedding = random_embedding(20, DIM, UNCERTAINTY_DIM, seed, torch.float32)
    assert embedding.uncertainty is not None
    rows = torch.cat([embedding.semantic, embedding.uncertainty], dim=1)
    return rows, torch.arange(20) % CLASSES


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
def test_it_is_the_introspective_distance(base):
    rows, _ = batch()
    a, b = (random_embedding(20, DIM, UNCERTAINTY_DIM, seed, torch.float32) for seed in (0, 1))
    other, _ = batch(1)
    distance = IntrospectiveDistance(DIM, tau=3.0, gamma=0.5, base=base)
    ours = Introspective(base=base, tau=3.0, gamma=0.5)
    torch.testing.assert_close(distance(rows, other), ours(a, b))
    torch.testing.assert_close(distance(rows), ours(a, a))
    torch.testing.assert_close(distance.pairwise_distance(rows, other), ours(a, b).diagonal())


@pytest.mark.parametrize("name", list(LOSSES))
def test_losses_learn_both_embeddings_through_it(name):
    rows, labels = batch()
    rows.requires_grad_()
    loss = LOSSES[name](IntrospectiveDistance(DIM))
    value = loss(rows, labels)
    value.backward()
    assert torch.isfinite(value)
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()
    assert rows.grad[:, :DIM].any()
    assert rows.grad[:, DIM:].any()


@pytest.mark.parametrize("name", list(MINERS))
def test_miners_mine_with_it(name):
    rows, labels = batch()
    mined = MINERS[name](IntrospectiveDistance(DIM))(rows, labels)
    value = losses.TripletMarginLoss(distance=IntrospectiveDistance(DIM))(rows, labels, mined)
    assert torch.isfinite(value)


@pytest.mark.parametrize("name", list(REFUSING))
def test_losses_of_one_distance_alone_refuse_it(name):
    with pytest.raises(AssertionError):
        REFUSING[name](IntrospectiveDistance(DIM))


def test_their_losses_on_it_equal_ours():
    rows, labels = batch()
    embedding = random_embedding(20, DIM, UNCERTAINTY_DIM, 0, torch.float32)
    peer = losses.TripletMarginLoss(margin=0.1, distance=IntrospectiveDistance(DIM))
    ours = Objective("triplet", Introspective(), mining="all")
    torch.testing.assert_close(peer(rows, labels), ours(embedding, labels))
    peer = losses.ContrastiveLoss(pos_margin=0, neg_margin=1, distance=IntrospectiveDistance(DIM))
    ours = Objective("contrastive", Introspective(), negative_margin=1.0)
    torch.testing.assert_close(peer(rows, labels), ours(embedding, labels))


def test_without_uncertainty_it_is_their_own_distance():
    rows, _ = batch()
    rows[:, DIM:] = 0
    ours, theirs = IntrospectiveDistance(DIM), LpDistance()
    torch.testing.assert_close(ours(rows), theirs(rows[:, :DIM]), rtol=1e-4, atol=1e-3)


def test_rows_without_room_for_uncertainty_are_named():
    with pytest.raises(ValueError, match="rows hold 6 numbers and semantic_dim is 6: none are left"):
        IntrospectiveDistance(6)(torch.ones(2, 6))
    with pytest.raises(ValueError, match="semantic_dim is 0"):
        IntrospectiveDistance(0)
    with pytest.raises(ValueError, match="unknown option of Introspective 'bas': did you mean 'base'"):
        IntrospectiveDistance(3, bas="cosine")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_are_compared_in_float32(dtype):
    rows = batch()[0].to(dtype)
    torch.testing.assert_close(IntrospectiveDistance(DIM)(rows), IntrospectiveDistance(DIM)(rows.float()))
