import naive
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as peer_losses
from pytorch_metric_learning import miners as peer_miners
from pytorch_metric_learning.distances import LpDistance
from strategies import generator, random_embedding, random_members, weighted_distances
from torch import Tensor

from idml import Embedding, Objective, Pairs
from idml.losses import LOSSES, contrastive_loss, fast_ap_loss, softmax_loss, triplet_loss
from idml.pairs import pairs_within

OPTIONS: dict[str, list[dict]] = {
    "contrastive": [{}, {"positive_margin": 0.3, "negative_margin": 1.5}],
    "margin": [{}, {"positive_margin": 0.2, "negative_margin": 0.8}],
    "triplet": [
        {},
        {"margin": 0.7},
        {"mining": "all"},
        {"mining": "all", "margin": 0.7},
        {"mining": "all", "margin": 0.0},
    ],
    "multi_similarity": [{}, {"alpha": 5.0, "beta": 10.0, "base": 0.2}],
    "softmax": [{}, {"scale": 3.0}, {"include_positive": False}],
    "proxy_nca": [{}, {"scale": 2.0, "include_positive": True}],
    "proxy_anchor": [{}, {"alpha": 4.0, "margin": 0.4}],
    "fast_ap": [{}, {"bins": 4}, {"bins": 7, "max_distance": 1.2}],
}
CASES = [pytest.param(name, options, id=f"{name}-{options}") for name, cases in OPTIONS.items() for options in cases]


@pytest.fixture(params=["swept", "gathered", "in blocks"])
def way(request, monkeypatch):
    """Small matrices are swept at once; here they also take the ways that large ones take."""
    if request.param != "swept":
        monkeypatch.setattr("idml.numerics.blocks.SMALL", 0)
    monkeypatch.setattr("idml.numerics.blocks.FEW", 1.0 if request.param == "gathered" else 0.0)
    if request.param == "in blocks":
        monkeypatch.setattr("idml.numerics.blocks.BLOCK", 7)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("name", "options"), CASES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=weighted_distances())
def test_the_loss_equals_its_formula_in_a_loop(name, options, case):
    ours = LOSSES[name].function(case.distance, case.pairs, **options)
    loop = naive.LOSSES[name](case.distance, case.pairs.positive, case.pairs.negative, **options)
    assert ours.item() == pytest.approx(loop, rel=1e-9, abs=1e-9)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_derivatives_equal_finite_differences(name, options, kind):
    random = generator(5)
    distance = (0.1 + 1.8 * torch.rand(5, 6, generator=random, dtype=torch.float64)).requires_grad_()
    positive = torch.rand(5, 6, generator=random) < 0.4
    negative = ~positive
    negative[4] = False
    if kind == "float":
        positive = positive * torch.rand(5, 6, generator=random, dtype=torch.float64)
        negative = 1 - positive
    pairs = Pairs(positive, negative)

    def loss(values: Tensor) -> Tensor:
        return LOSSES[name].function(values, pairs, **options)

    assert torch.autograd.gradcheck(loss, (distance,))
    assert torch.autograd.gradgradcheck(loss, (distance,))


@pytest.mark.parametrize("name", ["multi_similarity", "softmax", "proxy_nca", "proxy_anchor"])
@pytest.mark.parametrize("far", [1e3, -1e3])
def test_exponentials_do_not_overflow(name, far):
    distance = torch.tensor([[0.0, far], [far, 0.0]], requires_grad=True)
    pairs = Pairs(torch.eye(2, dtype=torch.bool), ~torch.eye(2, dtype=torch.bool))
    value = LOSSES[name].function(distance, pairs)
    (grad,) = torch.autograd.grad(value, distance)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@given(case=weighted_distances(), mining=st.sampled_from(["semihard", "all"]))
def test_triplet_ignores_the_order_of_candidates(case, mining):
    order = torch.randperm(case.distance.shape[1])
    shuffled = Pairs(case.pairs.positive[:, order], case.pairs.negative[:, order])
    here = triplet_loss(case.distance, case.pairs, mining=mining)
    there = triplet_loss(case.distance[:, order], shuffled, mining=mining)
    torch.testing.assert_close(here, there)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_weights_can_be_learned(name, options):
    """Sample-weighting methods (L2RW, Meta-Weight-Net) differentiate the loss, and its gradient, by the weights."""
    random = generator(7)
    distance = (0.1 + 1.8 * torch.rand(4, 5, generator=random, dtype=torch.float64)).requires_grad_()
    weights = [0.1 + torch.rand(4, 5, generator=random, dtype=torch.float64) for _ in range(2)]
    fixed = LOSSES[name].function(distance, Pairs(*weights), **options)
    learned = [weight.clone().requires_grad_() for weight in weights]

    def loss(values: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return LOSSES[name].function(values, Pairs(positive, negative), **options)

    torch.testing.assert_close(loss(distance, *learned), fixed)
    assert torch.autograd.gradcheck(loss, (distance, *learned))
    assert torch.autograd.gradgradcheck(loss, (distance, *learned))


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("learned", [False, True])
def test_a_masked_pair_may_be_at_infinite_distance(name, options, dtype, learned):
    distance = 2 * torch.rand(6, 6, generator=generator(0))
    masked = distance.clone().fill_diagonal_(torch.inf).requires_grad_()
    positive = (torch.rand(6, 6, generator=generator(1)) < 0.5).fill_diagonal_(False).to(dtype)
    pairs = Pairs(positive, (1 - positive.float()).fill_diagonal_(0).to(dtype))
    if learned and dtype is not torch.bool:
        pairs = Pairs(pairs.positive.requires_grad_(), pairs.negative.requires_grad_())
    value = LOSSES[name].function(masked, pairs, **options)
    torch.testing.assert_close(value, LOSSES[name].function(distance, pairs, **options))
    (grad,) = torch.autograd.grad(value, masked)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_diverged_model_does_not_read_as_a_loss_of_zero(name, options, dtype):
    distance = torch.full((6, 6), float("nan"))
    pairs = pairs_within(torch.arange(6) // 2)
    assert LOSSES[name].function(distance, Pairs(pairs.positive.to(dtype), pairs.negative.to(dtype)), **options).isnan()


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_in_half_precision_are_widened(name, options, dtype):
    distance = (2 * torch.rand(5, 6, generator=generator(0))).to(dtype)
    positive = torch.rand(5, 6, generator=generator(1)) < 0.5
    value = LOSSES[name].function(distance, Pairs(positive, ~positive), **options)
    assert value.dtype is torch.float32
    torch.testing.assert_close(value, LOSSES[name].function(distance.float(), Pairs(positive, ~positive), **options))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_transposed_matrix_is_as_good(name, options):
    distance = 2 * torch.rand(5, 6, generator=generator(0))
    positive = torch.rand(5, 6, generator=generator(1)) < 0.5
    pairs = Pairs(positive.T.contiguous().T, ~positive)
    value = LOSSES[name].function(distance.T.contiguous().T, pairs, **options)
    torch.testing.assert_close(value, LOSSES[name].function(distance, Pairs(positive, ~positive), **options))


def test_softmax_is_cross_entropy():
    logits = torch.randn(7, 5, generator=generator(0), dtype=torch.float64)
    labels = torch.randint(5, (7,), generator=generator(1))
    members = torch.nn.functional.one_hot(labels, 5).bool()
    ours = softmax_loss(1 - logits, Pairs(members, ~members), scale=20.0)
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(20 * logits, labels))


def test_softmax_with_shares_is_not_cross_entropy_with_soft_labels_but_its_lower_bound():
    """A pair's share weighs it inside the sum: −log Σ w·p ≤ −Σ w·log p."""
    logits = torch.randn(7, 5, generator=generator(0), dtype=torch.float64)
    shares = torch.softmax(torch.randn(7, 5, generator=generator(1), dtype=torch.float64), dim=1)
    ours = softmax_loss(1 - logits, Pairs(shares, 1 - shares), scale=1.0)
    assert ours <= torch.nn.functional.cross_entropy(logits, shares)


def test_fast_ap_of_a_perfect_ranking_is_zero():
    distance = torch.tensor([[0.0, 0.0, 2.0, 2.0]], dtype=torch.float64)
    pairs = Pairs(torch.tensor([[True, True, False, False]]), torch.tensor([[False, False, True, True]]))
    assert fast_ap_loss(distance, pairs).item() == pytest.approx(0)


def test_losses_of_a_mistaken_call_say_what_fits():
    pairs = Pairs(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"distances have shape \(3, 2\) and pair weights \(2, 3\)"):
        contrastive_loss(torch.ones(3, 2), pairs)
    with pytest.raises(ValueError, match="bins is 0"):
        fast_ap_loss(torch.ones(2, 3), pairs, bins=0)


@pytest.mark.usefixtures("as_installed")
def test_an_unknown_way_of_mining_is_named():
    with pytest.raises(ValueError, match="unknown mining 'hard': .*semihard"):
        triplet_loss(torch.ones(1, 1), Pairs(torch.ones(1, 1), torch.ones(1, 1)), mining="hard")  # pyright: ignore[reportArgumentType]


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    return random_embedding(24, 6, 1, seed).semantic, random_members(24, 5, "numbers", seed)


@pytest.mark.parametrize("seed", range(3))
def test_contrastive_equals_pytorch_metric_learning(seed):
    semantic, labels = batch(seed)
    peer = peer_losses.ContrastiveLoss(pos_margin=0, neg_margin=1, distance=LpDistance())
    ours = Objective("contrastive", negative_margin=1.0)(Embedding(semantic), labels)
    torch.testing.assert_close(ours, peer(semantic, labels))


@pytest.mark.parametrize("seed", range(3))
def test_triplet_equals_pytorch_metric_learning(seed):
    semantic, labels = batch(seed)
    peer = peer_losses.TripletMarginLoss(margin=0.1)
    ours = Objective("triplet", mining="all")(Embedding(semantic), labels)
    torch.testing.assert_close(ours, peer(semantic, labels))


@pytest.mark.parametrize("seed", range(3))
def test_multi_similarity_equals_pytorch_metric_learning_with_its_miner(seed):
    semantic, labels = batch(seed)
    peer = peer_losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
    mined = peer_miners.MultiSimilarityMiner(epsilon=0.1)(semantic, labels)
    ours = Objective("multi_similarity")(Embedding(semantic), labels)
    torch.testing.assert_close(ours, peer(semantic, labels, mined))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "peer", "weight"),
    [
        ("softmax", peer_losses.NormalizedSoftmaxLoss(5, 6, temperature=1 / 20), "W"),
        ("proxy_anchor", peer_losses.ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies"),
    ],
)
def test_proxy_losses_equal_pytorch_metric_learning(name, peer, weight, seed):
    semantic, labels = batch(seed)
    objective = Objective(name, num_classes=5, dim=6).double()
    assert objective.proxies is not None
    proxies = torch.randn(5, 6, generator=generator(seed), dtype=torch.float64)
    objective.proxies.semantic.data = proxies
    getattr(peer, weight).data = proxies.T.clone() if weight == "W" else proxies.clone()
    if name == "softmax":  # that library leaves the images' lengths in
        semantic = torch.nn.functional.normalize(semantic)
    torch.testing.assert_close(objective(Embedding(semantic), labels), peer(semantic, labels))


@pytest.mark.parametrize("seed", range(3))
def test_proxy_nca_with_positives_equals_pytorch_metric_learning(seed):
    """Its ProxyNCALoss keeps positives in the denominator and squares the distance unless told otherwise."""
    semantic, labels = batch(seed)
    peer = peer_losses.ProxyNCALoss(5, 6, softmax_scale=9, distance=LpDistance(power=1))
    objective = Objective("proxy_nca", num_classes=5, dim=6, include_positive=True).double()
    assert objective.proxies is not None
    objective.proxies.semantic.data = torch.randn(5, 6, generator=generator(seed), dtype=torch.float64)
    peer.proxies.data = objective.proxies.semantic.data.clone()
    torch.testing.assert_close(objective(Embedding(semantic), labels), peer(semantic, labels))


@pytest.mark.parametrize("seed", range(3))
def test_fast_ap_equals_pytorch_metric_learning(seed):
    semantic, labels = batch(seed)
    ours = Objective("fast_ap")(Embedding(semantic), labels)
    torch.testing.assert_close(ours, peer_losses.FastAPLoss(num_bins=10)(semantic, labels))
