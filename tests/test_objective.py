import copy
import pickle
from typing import Literal

import pytest
import torch
from strategies import random_embedding

from idml import Embedding, Objective
from idml.distances import Cosine, Euclidean, Introspective
from idml.losses import LOSSES, margin_loss, multi_similarity_loss
from idml.miners import distance_weighted, multi_similarity
from idml.pairs import Pairs, pairs_between, pairs_within
from idml.scales import SCALES, Compared, Term


def test_the_table_of_losses_says_what_each_needs():
    assert [name for name, loss in LOSSES.items() if loss.mines_plain] == ["margin"]
    table = {name: (loss.base, loss.proxies, loss.miner) for name, loss in LOSSES.items()}
    assert table == {
        "contrastive": ("euclidean", False, None),
        "margin": ("euclidean", False, distance_weighted),
        "triplet": ("euclidean", False, None),
        "multi_similarity": ("cosine", False, multi_similarity),
        "softmax": ("cosine", True, None),
        "proxy_nca": ("euclidean", True, None),
        "proxy_anchor": ("cosine", True, None),
        "fast_ap": ("euclidean", False, None),
    }


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, torch.tensor(0.3)])
def test_shares_of_the_loss_weigh_two_readings_of_the_labels(loss, share):
    objective = Objective(loss, Introspective(), num_classes=3, dim=4, uncertainty_dim=4)
    embedding = random_embedding(6, 4, 4, 0, torch.float32)
    labels, other = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1, 2, 0, 1, 0, 2])
    torch.manual_seed(0)
    together = objective(embedding, labels, other, share)
    torch.manual_seed(0)
    apart = share * objective(embedding, labels) + (1 - share) * objective(embedding, other)
    torch.testing.assert_close(together, apart)


def test_proxies_are_certain_unless_their_uncertainty_is_learned():
    certain = Objective("proxy_anchor", Introspective(), num_classes=3, dim=4, uncertainty_dim=4)
    assert certain.proxies is not None
    assert not certain.proxies().level.any()
    learned = Objective("proxy_anchor", Introspective(), 3, 4, 400, learn_proxy_uncertainty=True)
    assert learned.proxies is not None
    assert 0.05 < learned.proxies().level.mean() < 0.2
    learned(random_embedding(4, 4, 400, 0, torch.float32), torch.tensor([0, 1, 2, 0])).backward()
    assert learned.proxies.uncertainty is not None
    assert learned.proxies.uncertainty.grad is not None
    assert learned.proxies.uncertainty.grad.any()


def test_proxies_are_saved_with_the_objective():
    first, second = (Objective("softmax", num_classes=3, dim=4) for _ in range(2))
    second.load_state_dict(first.state_dict())
    embedding, labels = random_embedding(4, 4, 1, 0, torch.float32), torch.tensor([0, 1, 2, 0])
    assert torch.equal(first(embedding, labels), second(embedding, labels))


def test_the_margin_loss_samples_by_the_semantic_dimension_and_a_given_generator():
    embedding, labels = random_embedding(30, 16, 1, 0), torch.arange(30) // 3
    first, again, told = (
        Objective("margin", miner_options={"generator": torch.Generator().manual_seed(0)} | extra)(embedding, labels)
        for extra in ({}, {}, {"dim": 512})
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, told)


@pytest.mark.parametrize("distance_scale", ["shrunken", "relative"])
def test_the_margin_loss_draws_the_negatives_that_it_draws_without_uncertainty(distance_scale):
    embedding, labels = random_embedding(30, 16, 4, 0), torch.arange(30) // 3
    softened = softened_distance(embedding, labels, "euclidean", distance_scale)
    by_plain, by_softened = (
        distance_weighted(seen, pairs_within(labels), dim=16, generator=torch.Generator().manual_seed(0))
        for seen in (Euclidean()(embedding, embedding), softened)
    )
    assert not torch.equal(by_plain.negative, by_softened.negative)
    objective = margin_objective(distance_scale=distance_scale)
    torch.testing.assert_close(objective(embedding, labels), margin_loss(softened, by_plain))


def test_mixed_images_are_drawn_by_plain_distances_too():
    original, mixed = (random_embedding(30, 16, 4, seed) for seed in (0, 1))
    labels, other = torch.arange(30) // 3, torch.arange(30) % 10
    together = margin_objective().with_mixed(original, labels, mixed, other, 0.3)
    generator = torch.Generator().manual_seed(0)
    expected = 0.0
    for embedding, given, weight in ((original, labels, 1.0), (mixed, labels, 0.3), (mixed, other, 0.7)):
        plain = Euclidean()(embedding, embedding)
        pairs = distance_weighted(plain, pairs_within(given), dim=16, generator=generator)
        expected += weight * margin_loss(softened_distance(embedding, given, "euclidean"), pairs)
    torch.testing.assert_close(together, expected)


def test_multi_similarity_mines_by_the_distances_of_its_loss():
    embedding, labels = random_embedding(30, 16, 4, 0), torch.arange(30) // 3
    softened = softened_distance(embedding, labels, "cosine")
    mined = multi_similarity(softened, pairs_within(labels))
    assert not torch.equal(
        mined.negative, multi_similarity(Cosine()(embedding, embedding), pairs_within(labels)).negative
    )
    objective = Objective("multi_similarity", Introspective(tau=1.0))
    torch.testing.assert_close(objective(embedding, labels), multi_similarity_loss(softened, mined))


def margin_objective(**options) -> Objective:
    """Draws the same in every test."""
    generator = torch.Generator().manual_seed(0)
    return Objective("margin", Introspective(tau=1.0), miner_options={"generator": generator}, **options)


def softened_distance(
    embedding: Embedding, labels: torch.Tensor, base: Literal["euclidean", "cosine"], scale: str = "shrunken"
) -> torch.Tensor:
    compared = Compared(Introspective(base, tau=1.0), embedding, embedding)
    (found,) = SCALES[scale]([Term(compared, pairs_within(labels))])
    return found.detach()


def test_any_function_of_two_embeddings_is_a_distance():
    embedding, labels = random_embedding(6, 4, 4, 0), torch.tensor([0, 0, 1, 1, 2, 2])
    own = Objective("contrastive", lambda a, b: Cosine()(a, b))
    assert torch.equal(own(embedding, labels), Objective("contrastive", Cosine())(embedding, labels))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("tripletloss",), {}, "unknown loss 'tripletloss': did you mean 'triplet'"),
        (("triplet",), {"margn": 0.2}, "unknown option of the triplet loss 'margn': did you mean 'margin'"),
        (("triplet",), {"margin": float("nan")}, "margin, option of the triplet loss, is nan: give a finite number"),
        (
            ("multi_similarity",),
            {"alpha": 0},
            "alpha, option of the multi_similarity loss, is 0: give a number",
        ),
        (("margin",), {"miner_options": {"cutoff": float("inf")}}, "cutoff, miner option of the margin loss, is inf"),
        (
            ("margin",),
            {"miner_options": {"cutof": 1}},
            "miner option of the margin loss 'cutof': did you mean 'cutoff'",
        ),
        (("contrastive",), {"miner_options": {"epsilon": 1}}, "unknown miner option .* Known: none"),
        (("softmax",), {}, "the softmax loss has a proxy for each class: give num_classes and dim"),
        (("softmax", None, 0, 4), {}, "num_classes is 0"),
        (("softmax", None, 3, 4), {"learn_proxy_uncertainty": True}, "needs uncertainty_dim"),
        (("triplet",), {"learn_proxy_uncertainty": True}, "the triplet loss has no proxies"),
        (("softmax", None, 3, 4), {"scale": "20"}, "scale, option of the softmax loss, is '20': give a number above 0"),
        (("triplet", "cosine"), {}, "distance is 'cosine': give Euclidean"),
        (("triplet", Introspective), {}, r"give Euclidean\(\), Cosine\(\), Introspective\(\)"),
        (("triplet",), {"mining": "semi"}, "unknown mining 'semi': did you mean 'semihard'"),
        (("fast_ap",), {"bins": 10.5}, "bins is 10.5"),
        (("fast_ap",), {"max_distance": float("nan")}, "max_distance, option of the fast_ap loss, is nan"),
        (("contrastive", Introspective(ambiguous="dissimilar")), {}, "use base='cosine'"),
    ],
)
def test_mistakes_in_building_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Objective(*arguments, **options)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tensor([0, 1]),), "there are 3 embeddings and 2 labels"),
        ((torch.tensor([0, 1, 9]),), "label 9"),
        ((torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2])), "go together, and share is missing"),
        ((torch.tensor([0, 1, 2]), None, 0.5), "go together, and other_labels is missing"),
        ((torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), 1.5), "share is 1.5: give a number from 0 to 1"),
        ((torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), torch.ones(3)), r"share has shape \(3,\)"),
        ((torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), [0.5]), r"share is \[0.5\]"),
        ((torch.tensor(0),), r"labels have shape \(\)"),
    ],
)
def test_mistakes_in_calling_are_named(arguments, message):
    objective = Objective("proxy_anchor", num_classes=3, dim=2)
    with pytest.raises(ValueError, match=message):
        objective(Embedding(torch.ones(3, 2)), *arguments)


def test_an_introspective_objective_needs_uncertainty():
    with pytest.raises(ValueError, match="has no uncertainty, which the introspective distance needs"):
        Objective("triplet", Introspective())(Embedding(torch.ones(2, 2)), torch.tensor([0, 0]))


@pytest.mark.usefixtures("as_installed")
def test_a_bare_tensor_is_no_embedding():
    with pytest.raises(ValueError, match="a Tensor is no Embedding: wrap it"):
        Objective("triplet")(torch.ones(3, 2), torch.tensor([0, 0, 1]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a Tensor is no Embedding"):
        Cosine()(torch.ones(3, 2), Embedding(torch.ones(3, 2)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a Tensor is no Embedding"):
        Introspective()(Embedding(torch.ones(3, 2)), torch.ones(3, 2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("loss", list(LOSSES))
def test_objectives_can_be_pickled_and_copied(loss):
    objective = Objective(loss, Introspective(), num_classes=3, dim=4)
    embedding, labels = random_embedding(6, 4, 4, 0, torch.float32), torch.tensor([0, 0, 1, 1, 2, 2])
    values = []
    for other in (objective, copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        torch.manual_seed(0)
        values.append(other(embedding, labels))
    assert values[0] == values[1] == values[2]


LABELS, OTHERS = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 1, 2, 2])  # the last is mixed within its class
NEW_CLASSES = torch.tensor([0, 0, 1, 2, 3, 3, 4, 2])  # originals, then 0 with 1, 0 with 1, 1 with 2, 2


def random_images(count: int, seed: int) -> Embedding:
    return random_embedding(count, 4, 4, seed, torch.float32)


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if not loss.proxies])
def test_images_mixed_of_the_same_two_classes_are_a_class_of_their_own(loss):
    objective = Objective(loss, Introspective(), num_classes=3)
    original, mixed = random_images(4, 0), random_images(4, 1)
    torch.manual_seed(0)
    found = objective.with_mixed_classes(original, LABELS, mixed, OTHERS, 0.3)
    torch.manual_seed(0)
    torch.testing.assert_close(found, objective(Embedding.cat([original, mixed]), NEW_CLASSES))


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.proxies])
@pytest.mark.parametrize("learn_proxy_uncertainty", [False, True])
def test_the_proxy_of_a_class_between_two_is_mixed_like_its_images(loss, learn_proxy_uncertainty):
    objective = Objective(loss, Introspective(), 3, 4, 4, learn_proxy_uncertainty=learn_proxy_uncertainty)
    images = Embedding.cat([random_images(4, 0), random_images(4, 1)])
    found = objective.with_mixed_classes(images[:4], LABELS, images[4:], OTHERS, 0.3)
    assert objective.proxies is not None
    proxies = objective.proxies()
    direction = torch.nn.functional.normalize(proxies.semantic, dim=1)
    columns = [proxies]
    for own, other in zip(LABELS.tolist(), OTHERS.tolist(), strict=True):
        between = 0.3 * direction[own] + 0.7 * direction[other]
        uncertainty = 0.3 * proxies.uncertainty[own] + 0.7 * proxies.uncertainty[other]
        columns.append(Embedding(between[None], uncertainty[None]))
    distance = objective.distance(images, Embedding.cat(columns))
    pairs = pairs_between(NEW_CLASSES, torch.tensor([0, 1, 2, 3, 3, 4, 2]))
    torch.testing.assert_close(found, LOSSES[loss].function(distance, pairs))


@pytest.mark.parametrize("loss", ["contrastive", "softmax"])
def test_partners_can_be_no_negatives_of_the_class_between_them(loss):
    objective = Objective(loss, Introspective(), 3, 4, 4)
    original, mixed = random_images(4, 0), random_images(4, 1)
    sets = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.bool)
    found = objective.with_mixed_classes(original, LABELS, mixed, OTHERS, 0.3, label_sets=sets)
    images = Embedding.cat([original, mixed])
    of_images = [{0}, {0}, {1}, {2}, {0, 1}, {0, 1}, {1, 2}, {2}]
    if objective.proxies is None:
        columns, numbers, of_columns = images, NEW_CLASSES, of_images
    else:
        columns = Embedding.cat([objective.proxies(), objective.proxies.mixed(LABELS, OTHERS, 0.3)])
        numbers, of_columns = torch.tensor([0, 1, 2, 3, 3, 4, 2]), [{0}, {1}, {2}, *of_images[4:]]
    positive, negative = (torch.zeros(8, len(numbers), dtype=torch.bool) for _ in range(2))
    for row in range(8):
        for column in range(len(numbers)):
            is_itself = objective.proxies is None and row == column
            positive[row, column] = NEW_CLASSES[row] == numbers[column] and not is_itself
            negative[row, column] = not of_images[row] & of_columns[column]
    distance = objective.distance(images, columns)
    torch.testing.assert_close(found, LOSSES[loss].function(distance, Pairs(positive, negative)))


def test_classes_between_classes_are_numbered_in_wide_integers_and_checked():
    objective = Objective("contrastive", Introspective(), num_classes=100)
    original, mixed = random_images(4, 0), random_images(4, 1)
    labels, others = 30 * LABELS, 30 * OTHERS
    narrow = objective.with_mixed_classes(original, labels.to(torch.uint8), mixed, others.to(torch.uint8), 0.3)
    assert narrow == objective.with_mixed_classes(original, labels, mixed, others, 0.3)
    with pytest.raises(ValueError, match="label 120 .* is outside the 100 classes"):
        objective.with_mixed_classes(original, labels, mixed, 60 * OTHERS, 0.3)
    with pytest.raises(ValueError, match="classes between classes need num_classes"):
        Objective("contrastive").with_mixed_classes(original, labels, mixed, others, 0.3)


def test_a_plain_distance_has_no_uncertainty_to_teach():
    objective, embedding = Objective("contrastive"), Embedding(torch.randn(4, 3))
    labels = torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="teaches_uncertainty_alone needs an introspective distance"):
        objective.with_mixed(embedding, labels, embedding, labels.flip(0), 0.5, teaches_uncertainty_alone=True)
