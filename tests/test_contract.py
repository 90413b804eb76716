"""What holds for every loss with every distance."""

import pytest
import torch
from strategies import LABEL_KINDS, random_embedding, random_members
from torch import Tensor

from idml import Embedding, Objective, Pairs
from idml.distances import Cosine, Euclidean, Introspective
from idml.losses import LOSSES

CLASSES, DIM = 4, 6
DISTANCES = {
    "default": None,
    "euclidean": Euclidean(),
    "cosine": Cosine(),
    "introspective": Introspective(),
    "introspective euclidean": Introspective(base="euclidean", gamma=0.5),
    "introspective cosine": Introspective(base="cosine", smoothing=1.0),
    "sum of norms": Introspective(pair_uncertainty="sum_of_norms"),
    "dissimilar": Introspective(base="cosine", ambiguous="dissimilar"),
    "strict": Introspective(strict=True),
}
every_loss = pytest.mark.parametrize("loss", list(LOSSES))
every_distance = pytest.mark.parametrize("distance", DISTANCES.values(), ids=list(DISTANCES))
every_label = pytest.mark.parametrize("kind", LABEL_KINDS)


def make(loss: str, distance, **options) -> Objective:
    torch.manual_seed(0)
    return Objective(loss, distance, num_classes=CLASSES, dim=DIM, uncertainty_dim=DIM, **options).double()


def value_and_gradients(objective: Objective, embedding: Embedding, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
    assert embedding.uncertainty is not None
    s, u = embedding.semantic.clone().requires_grad_(), embedding.uncertainty.clone().requires_grad_()
    torch.manual_seed(0)  # distance-weighted sampling draws
    value = objective(Embedding(s, u), labels)
    inputs = [s, u, *objective.parameters()]
    if not value.requires_grad:
        return value, []
    return value, [grad for grad in torch.autograd.grad(value, inputs, allow_unused=True) if grad is not None]


@every_loss
@every_distance
@every_label
def test_value_and_gradient_are_finite(loss, distance, kind):
    value, gradients = value_and_gradients(
        make(loss, distance), random_embedding(12, DIM, DIM, 0), random_members(12, CLASSES, kind, 0)
    )
    assert value.ndim == 0
    assert value != 0 or isinstance(distance, Introspective)
    assert torch.isfinite(value)
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@every_loss
@every_distance
@pytest.mark.parametrize("trouble", ["one image", "one class", "no two alike", "duplicates", "zero", "nobody"])
def test_troubled_batches_give_a_finite_loss_and_gradient(loss, distance, trouble):
    embedding, labels = random_embedding(4, DIM, DIM, 0), torch.arange(4)
    if trouble == "one image":
        embedding, labels = embedding[:1], labels[:1]
    elif trouble == "one class":
        labels = torch.zeros(4, dtype=torch.long)
    elif trouble == "duplicates":
        embedding, labels = embedding[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1])
    elif trouble == "zero":
        embedding = Embedding(torch.zeros(4, DIM).double(), torch.zeros(4, DIM).double())
    elif trouble == "nobody":
        embedding, labels = embedding[:0], labels[:0]
    value, gradients = value_and_gradients(make(loss, distance), embedding, labels)
    assert torch.isfinite(value)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_without_pairs_the_loss_and_its_gradient_are_zero(loss, dtype):
    distance = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(5, 4, dtype=dtype)
    value = LOSSES[loss].function(distance, Pairs(nothing, nothing))
    (gradient,) = torch.autograd.grad(value, distance)
    assert value == 0
    assert not gradient.any()


@every_loss
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("side", ["positive", "negative"])
def test_with_pairs_on_one_side_only_the_loss_is_finite(loss, dtype, side):
    distance = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    some, nothing = torch.ones(5, 4, dtype=dtype), torch.zeros(5, 4, dtype=dtype)
    pairs = Pairs(some, nothing) if side == "positive" else Pairs(nothing, some)
    value = LOSSES[loss].function(distance, pairs)
    (gradient,) = torch.autograd.grad(value, distance)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@every_loss
@every_distance
@every_label
def test_the_order_of_the_batch_does_not_matter(loss, distance, kind):
    # Sampling draws for rows in their order; without a miner the margin loss is all its pairs.
    embedding, labels = random_embedding(12, DIM, DIM, 1), random_members(12, CLASSES, kind, 1)
    objective = make(loss, distance)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    values = []
    for here in (torch.arange(12), order):
        other = embedding[here] if objective.proxies is None else objective.proxies()
        matrix, pairs = objective.distance(embedding[here], other), objective.pairs(labels[here])
        values.append(LOSSES[loss].function(matrix, pairs))
    torch.testing.assert_close(*values)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_a_pair_of_weight_zero_is_not_there(loss, dtype):
    random = torch.Generator().manual_seed(3)
    distance = 2 * torch.rand(6, 5, generator=random, dtype=torch.float64)
    positive = (torch.rand(6, 5, generator=random) < 0.4).to(dtype)
    negative = (torch.rand(6, 5, generator=random) < 0.5).to(dtype)
    absent = (positive == 0) & (negative == 0)
    assert absent.any()
    changed = torch.where(absent, 2 * torch.rand(6, 5, generator=random, dtype=torch.float64), distance)
    here, there = (LOSSES[loss].function(matrix, Pairs(positive, negative)) for matrix in (distance, changed))
    torch.testing.assert_close(here, there)


@every_loss
@every_label
@pytest.mark.parametrize("base", ["euclidean", "cosine"])
def test_without_uncertainty_it_is_the_plain_loss(loss, kind, base):
    embedding, labels = random_embedding(12, DIM, DIM, 2), random_members(12, CLASSES, kind, 2)
    certain = Embedding(embedding.semantic, torch.zeros(12, DIM, dtype=torch.float64))
    values = []
    for distance in (Introspective(base=base), Euclidean() if base == "euclidean" else Cosine()):
        torch.manual_seed(1)
        objective = make(loss, distance)
        torch.manual_seed(2)
        values.append(objective(certain, labels))
    assert torch.equal(*values)


@every_loss
def test_introspective_takes_the_base_of_the_loss(loss):
    objective = make(loss, Introspective())
    assert isinstance(objective.distance, Introspective)
    assert objective.distance.base == LOSSES[loss].base


@every_loss
@every_distance
def test_autocast_does_not_change_the_loss(loss, distance):
    embedding, labels = (
        random_embedding(12, DIM, DIM, 0, torch.float32),
        random_members(12, CLASSES, "shares", 0).float(),
    )
    objective = make(loss, distance).float()
    values = []
    for enabled in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            values.append(objective(embedding, labels))
    assert torch.equal(*values)


@every_loss
def test_second_derivatives_pass_through_the_whole_objective(loss):
    """Learned sample weights (L2RW, Meta-Weight-Net) differentiate through a training step."""
    objective = make(loss, Introspective(smoothing=0.5), **({"mining": "all"} if loss == "triplet" else {}))
    embedding, labels = random_embedding(6, DIM, DIM, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    assert embedding.uncertainty is not None

    def value(s: Tensor, u: Tensor) -> Tensor:
        torch.manual_seed(0)
        return objective(Embedding(s, u), labels)

    inputs = (embedding.semantic.requires_grad_(), embedding.uncertainty.requires_grad_())
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


@every_loss
@pytest.mark.parametrize("labels_in", [torch.float64, torch.float16])
@pytest.mark.parametrize("embedding_in", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("images", [12, 300], ids=["swept", "gathered"])
def test_shares_and_embeddings_may_differ_in_precision(loss, labels_in, embedding_in, images):
    embedding = random_embedding(images, DIM, DIM, 0, embedding_in)
    classes = images // 3
    shares = random_members(images, classes, "shares", 0)
    torch.manual_seed(0)
    objective = Objective(loss, Introspective(), num_classes=classes, dim=DIM)
    torch.manual_seed(0)
    value = objective(embedding, shares.to(labels_in))
    torch.manual_seed(0)
    truth = objective.double()(embedding, shares)
    torch.testing.assert_close(value.double(), truth.double(), rtol=2e-2, atol=1e-2)
