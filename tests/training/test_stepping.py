from dataclasses import replace

import pytest
import torch
from torch import nn

from idml import Embedding, Objective
from idml.data.mixing import mixup
from idml.distances import Introspective
from idml.losses import contrastive_loss, proxy_nca_loss
from idml.models.heads import LITERAL, Heads, UncertaintyForm
from idml.pairs import Pairs, pairs_between, pairs_within
from idml.training.feeding import Batch
from idml.training.parts import MixingConfig
from idml.training.stepping import Step, loss_and_gradients, loss_of, with_noise

CLASSES = 4


class Small(nn.Module):
    """A network in its two parts, which notes how many images it saw."""

    def __init__(self, *, introspective: bool = True, form: UncertaintyForm = LITERAL):
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh())
        self.embed_features = Heads(8, 5, 5 if introspective else None, form=form)
        self.seen = []
        self.features.register_forward_hook(lambda _module, images, _features: self.seen.append(len(images[0])))

    def forward(self, images):
        return self.embed_features(self.features(images))


MIXINGS = {
    "shares of the loss": MixingConfig(mixing="mixup"),
    "against originals": MixingConfig(mixing="mixup", mixed_against="originals", mixed_weight=0.5),
    "against all": MixingConfig(mixing="mixup", mixed_against="all"),
    "against all, partners apart": MixingConfig(mixing="mixup", mixed_against="all", partner_negatives=False),
    "partners apart": MixingConfig(mixing="mixup", partner_negatives=False),
    "uncertainty alone": MixingConfig(mixing="mixup", mixed_teaches="uncertainty"),
    "uncertainty alone, against originals": MixingConfig(
        mixing="mixup", mixed_teaches="uncertainty", mixed_against="originals", mixed_weight=0.5
    ),
    "sets": MixingConfig(mixing="mixup", mixed_labels="sets"),
    "shares": MixingConfig(mixing="mixup", mixed_labels="shares"),
    "classes": MixingConfig(mixing="mixup", mixed_labels="classes"),
    "classes, partners apart": MixingConfig(mixing="mixup", mixed_labels="classes", partner_negatives=False),
}


def some_batch(mixing: str = "mixup") -> Batch:
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.rand(8, 3, 2, 2, generator=generator), torch.arange(8) % CLASSES
    mixed, drawn = mixup(images, generator=generator)
    return Batch(images, mixed if mixing == "mixup" else None, labels, None if mixing == "none" else drawn)


def run(batch: Batch, config: MixingConfig, loss: str = "proxy_anchor", **options) -> tuple[float, list[torch.Tensor]]:
    model = Small().double()
    torch.manual_seed(0)
    objective = Objective(loss, Introspective(), num_classes=CLASSES, dim=5).double()
    batch = replace(batch, images=batch.images.double(), mixed=None if batch.mixed is None else batch.mixed.double())
    step = loss_and_gradients(model, objective, batch, config, **options)
    parameters = [*model.parameters(), *objective.parameters()]
    return float(step.loss), [parameter.grad for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("config", MIXINGS.values(), ids=MIXINGS)
@pytest.mark.parametrize("mixing", ["none", "mixup", "features"])
@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize("loss", ["proxy_anchor", "contrastive"])
def test_embedding_by_chunks_gives_the_same_loss_and_gradients(config, mixing, chunk, loss):
    batch = some_batch(mixing)
    value, gradients = run(batch, config, loss, level_prior=0.1)
    by_chunks, of_chunks = run(batch, config, loss, level_prior=0.1, chunk=chunk)
    assert by_chunks == pytest.approx(value)
    for one, other in zip(gradients, of_chunks, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("mixing", "passes"), [("mixup", 16), ("features", 8)])
def test_images_share_one_forward_pass_and_mixed_features_need_none(mixing, passes):
    model, objective = Small(), Objective("contrastive", Introspective(), num_classes=CLASSES)
    step = loss_and_gradients(model, objective, some_batch(mixing), MIXINGS["shares of the loss"])
    assert model.seen == [passes]
    assert step.mixed is not None
    assert len(step.original) == len(step.mixed) == 8
    assert step.gradient > 0


@pytest.mark.parametrize("name", ["uncertainty alone", "uncertainty alone, against originals"])
@pytest.mark.parametrize("mixing", ["mixup", "features"])
@pytest.mark.parametrize("loss", ["softmax", "contrastive"])
def test_of_images_that_teach_uncertainty_alone_nothing_else_learns(name, mixing, loss):
    compared_with_proxies = loss == "softmax"  # else originals hand on to the backbone what they learn beside others
    form = replace(LITERAL, gradient_scale=float(compared_with_proxies))
    step, found = step_and_gradients(MIXINGS[name], mixing, loss, form)
    of_all, taught_all = step_and_gradients(replace(MIXINGS[name], mixed_teaches="all"), mixing, loss, form)
    of_none, not_mixed = step_and_gradients(MixingConfig(), "none", loss, form)
    torch.testing.assert_close(step.loss, of_all.loss)
    torch.testing.assert_close(step.gradient, of_none.gradient)
    assert found.keys() == taught_all.keys() == not_mixed.keys()
    for part, gradient in found.items():
        expected, other = (taught_all, not_mixed) if is_of_uncertainty(part) else (not_mixed, taught_all)
        torch.testing.assert_close(gradient, expected[part])
        assert not torch.allclose(gradient, other[part]), part


@pytest.mark.parametrize("name", ["uncertainty alone", "uncertainty alone, against originals"])
@pytest.mark.parametrize("loss", ["softmax", "contrastive"])
@pytest.mark.parametrize("scale", ["shrunken", "centred"])
@pytest.mark.parametrize("taught_by", ["all", "positives"])
def test_nor_does_anything_else_where_distances_share_a_mean(name, loss, scale, taught_by):
    """With one uncertainty for all images that mean is the same without mixed ones, and so are all distances."""
    form = UncertaintyForm(normalise=True, gradient_scale=0.0, starting_level=1.0, starts_equal=True)
    options = {"distance_scale": scale, "taught_by": taught_by}
    _, found = step_and_gradients(MIXINGS[name], "mixup", loss, form, **options)
    _, not_mixed = step_and_gradients(MixingConfig(), "none", loss, form, **options)
    moved = [part for part, gradient in found.items() if not torch.allclose(gradient, not_mixed[part], atol=1e-7)]
    assert moved
    assert all(is_of_uncertainty(part) for part in moved), moved


def step_and_gradients(
    config: MixingConfig, mixing: str, loss: str, form: UncertaintyForm, **options
) -> tuple[Step, dict[str, torch.Tensor]]:
    """Of a network and an objective that start alike, by the names of their parts."""
    model = Small(form=form)
    torch.manual_seed(0)
    objective = Objective(loss, Introspective(), num_classes=CLASSES, dim=5, **options)
    step = loss_and_gradients(model, objective, some_batch(mixing), config)
    named = [*model.named_parameters(), *objective.named_parameters()]
    return step, {name: parameter.grad for name, parameter in named if parameter.grad is not None}


def is_of_uncertainty(part: str) -> bool:
    return part.startswith("embed_features.uncertainty")


@pytest.mark.parametrize("change", [{"mixed_against": "all"}, {"mixed_labels": "sets"}])
def test_what_would_teach_semantics_too_is_refused_where_uncertainty_alone_is_to_learn(change):
    config = MixingConfig(mixing="mixup", mixed_teaches="uncertainty", **change)
    with pytest.raises(ValueError, match="mixed images that teach uncertainty alone need a J of their own"):
        run(some_batch(), config, loss="contrastive")


def test_images_that_teach_uncertainty_alone_go_through_the_backbone_without_gradients():
    model, objective = Small(), Objective("contrastive", Introspective(), num_classes=CLASSES)
    learns = []
    model.features.register_forward_hook(lambda _module, _images, features: learns.append(features.requires_grad))
    loss_and_gradients(model, objective, some_batch(), MIXINGS["uncertainty alone"])
    assert model.seen == [8, 8]
    assert learns == [False, True]
    model.seen.clear()
    loss_and_gradients(model, objective, some_batch(), MIXINGS["uncertainty alone"], chunk=4)
    assert model.seen == [4] * 6  # mixed ones, and originals twice


def test_without_uncertainty_mixed_images_teach_all_there_is():
    alone, usual = (
        loss_and_gradients(
            Small(introspective=False),
            Objective("contrastive", num_classes=CLASSES),
            some_batch(),
            MIXINGS[name],
        )
        for name in ("uncertainty alone", "shares of the loss")
    )
    torch.testing.assert_close(alone.gradient, usual.gradient)
    torch.testing.assert_close(alone.loss, usual.loss)


def test_shares_of_the_loss_are_the_objectives_own():
    batch, model = some_batch(), Small()
    objective = Objective("contrastive", Introspective(), num_classes=CLASSES)
    step = loss_and_gradients(model, objective, batch, MIXINGS["shares of the loss"])
    assert batch.mixing is not None
    share, other = batch.mixing.batch_share, batch.labels[batch.mixing.partner]
    expected = objective(model(batch.images), batch.labels)
    expected = expected + objective(model(batch.mixed), batch.labels, other, share)
    torch.testing.assert_close(step.loss, expected.detach())


def test_mixed_images_can_be_compared_with_originals_and_weighed():
    batch, model = some_batch(), Small()
    objective = Objective("contrastive", Introspective(), num_classes=CLASSES)
    step = loss_and_gradients(model, objective, batch, MIXINGS["against originals"])
    assert batch.mixing is not None
    original, mixed = model(batch.images), model(batch.mixed)
    distance, share = objective.distance(mixed, original), batch.mixing.batch_share
    expected = objective(original, batch.labels)
    for labels, weight in ((batch.labels, share), (batch.labels[batch.mixing.partner], 1 - share)):
        expected = expected + 0.5 * weight * contrastive_loss(distance, pairs_between(labels, batch.labels))
    torch.testing.assert_close(step.loss, expected.detach())


def test_in_one_batch_too_what_an_image_has_a_part_of_can_be_left_out_of_its_negatives():
    batch, model = some_batch(), Small()
    objective = Objective("contrastive", num_classes=CLASSES, negative_margin=1.5)
    step = loss_and_gradients(model, objective, batch, MIXINGS["against all, partners apart"])
    assert batch.mixed is not None
    assert batch.mixing is not None
    every, share = model(torch.cat([batch.images, batch.mixed])), batch.mixing.batch_share
    firsts, others = batch.labels.tolist(), batch.labels[batch.mixing.partner].tolist()
    sets = [{label} for label in firsts] + [{first, other} for first, other in zip(firsts, others, strict=True)]
    meet = torch.tensor([[bool(one & other) for other in sets] for one in sets])
    expected = torch.zeros(())
    for labels, weight in ((firsts + firsts, share), (firsts + others, 1 - share)):
        pairs = pairs_within(torch.tensor(labels))
        pairs = Pairs(pairs.positive, pairs.negative * ~meet)
        expected = expected + weight * contrastive_loss(objective.distance(every, every), pairs, negative_margin=1.5)
    torch.testing.assert_close(step.loss, expected.detach())


@pytest.mark.parametrize("loss", ["contrastive", "proxy_nca"])
def test_originals_and_mixed_images_can_be_one_batch(loss):
    batch, model = some_batch(), Small()
    objective = Objective(loss, Introspective(), num_classes=CLASSES, dim=5)
    step = loss_and_gradients(model, objective, batch, MIXINGS["against all"])
    assert batch.mixed is not None
    assert batch.mixing is not None
    every, share = model(torch.cat([batch.images, batch.mixed])), batch.mixing.batch_share
    own, other = (torch.cat([batch.labels, given]) for given in (batch.labels, batch.labels[batch.mixing.partner]))
    expected = share * objective(every, own) + (1 - share) * objective(every, other)
    torch.testing.assert_close(step.loss, expected.detach())


def of_others(share: float) -> Batch:
    """Other images than those of the batch, of classes in another order, with this share of the first."""
    batch = some_batch()
    assert batch.mixing is not None
    shares = torch.full((8,), share)
    mixing = replace(batch.mixing, share=shares, label_share=shares)
    return replace(batch, mixing=mixing, others=torch.tensor([2, 2, 0, 1, 1, 0, 2, 1]))


@pytest.mark.parametrize("name", ["shares of the loss", "against originals", "against all", "sets", "shares"])
@pytest.mark.parametrize("is_first", [True, False])
def test_other_images_that_were_mixed_bring_labels_of_their_own(name, is_first):
    """Where nothing is left of one of the two, a mixed image is one of the other's class."""
    model, objective = Small(), Objective("contrastive", num_classes=CLASSES)
    batch = of_others(1.0 if is_first else 0.0)
    config, others = replace(MIXINGS[name], mixed_weight=1.0), batch.others
    assert batch.mixed is not None
    assert batch.mixing is not None
    assert others is not None
    labels = others if is_first else others[batch.mixing.partner]
    step = loss_and_gradients(model, objective, batch, config)
    original, mixed = model(batch.images), model(batch.mixed)
    if name == "shares of the loss":
        expected = objective(original, batch.labels) + objective(mixed, labels)
    elif name == "against originals":
        across = objective.distance(mixed, original)
        expected = objective(original, batch.labels) + contrastive_loss(across, pairs_between(labels, batch.labels))
    else:
        expected = objective(model(torch.cat([batch.images, batch.mixed])), torch.cat([batch.labels, labels]))
    torch.testing.assert_close(step.loss, expected.detach())


def test_classes_between_classes_are_those_of_the_images_that_were_mixed():
    model, objective, batch = Small(), Objective("contrastive", num_classes=CLASSES), of_others(0.3)
    assert batch.mixed is not None
    assert batch.mixing is not None
    assert batch.others is not None
    step = loss_and_gradients(model, objective, batch, MIXINGS["classes"])
    names = [(int(label), int(label)) for label in batch.labels]
    names += [
        (int(own), int(other)) for own, other in zip(batch.others, batch.others[batch.mixing.partner], strict=True)
    ]
    numbers = torch.tensor([sorted(set(names)).index(name) for name in names])
    expected = objective(model(torch.cat([batch.images, batch.mixed])), numbers)
    torch.testing.assert_close(step.loss, expected.detach())


def test_what_an_image_has_a_part_of_can_be_left_out_of_its_negatives():
    batch, model = some_batch(), Small()
    objective = Objective("proxy_nca", Introspective(), num_classes=CLASSES, dim=5)
    step = loss_and_gradients(model, objective, batch, MIXINGS["partners apart"])
    assert batch.mixing is not None
    other, share = batch.labels[batch.mixing.partner], batch.mixing.batch_share
    distance = objective.distance(mixed := model(batch.mixed), objective.compared(mixed))
    own, others = (nn.functional.one_hot(given, CLASSES).bool() for given in (batch.labels, other))
    expected = objective(model(batch.images), batch.labels)
    for members, weight in ((own, share), (others, 1 - share)):
        expected = expected + weight * proxy_nca_loss(distance, Pairs(members, ~(own | others)))
    torch.testing.assert_close(step.loss, expected.detach())


def test_mixed_features_are_what_the_heads_see():
    batch, model = some_batch("features"), Small()
    step = loss_and_gradients(
        model, Objective("contrastive", Introspective(), num_classes=CLASSES), batch, MIXINGS["shares of the loss"]
    )
    assert batch.mixing is not None
    assert step.mixed is not None
    expected = model.embed_features(batch.mixing.mix(model.features(batch.images)))
    torch.testing.assert_close(step.mixed.semantic, expected.semantic.detach())
    torch.testing.assert_close(step.mixed.uncertainty, expected.uncertainty.detach())


def test_the_prior_adds_the_mean_squared_level_of_all_images():
    batch, model = some_batch(), Small()
    objective = Objective("contrastive", Introspective(), num_classes=CLASSES)
    without, with_prior = (
        loss_and_gradients(model, objective, batch, MIXINGS["shares of the loss"], level_prior=prior).loss
        for prior in (0.0, 0.5)
    )
    assert batch.mixed is not None
    level = model(torch.cat([batch.images, batch.mixed])).level
    torch.testing.assert_close(with_prior - without, 0.5 * level.square().mean().detach())


def test_noise_multiplies_each_uncertainty_by_a_number_of_its_own():
    uncertainty = torch.randn(4000, 5)
    embedding = Embedding(torch.randn(4000, 3), uncertainty)
    found = with_noise(embedding, 0.5, generator=torch.Generator().manual_seed(0))
    factor = found.level / embedding.level
    assert found.semantic is embedding.semantic
    torch.testing.assert_close(found.uncertainty, factor[:, None] * uncertainty)
    assert 0.5 <= factor.min() < 0.51
    assert 1.49 < factor.max() <= 1.5
    assert factor.mean().item() == pytest.approx(1, abs=0.02)
    assert factor.std().item() == pytest.approx(0.5 / 3**0.5, abs=0.02)
    again, other = (with_noise(embedding, 0.5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    torch.testing.assert_close(again.uncertainty, found.uncertainty)
    assert not torch.equal(other.level, found.level)


def test_the_number_that_noise_multiplies_by_does_not_scale_gradients():
    uncertainty = torch.randn(6, 5, requires_grad=True)
    found = with_noise(Embedding(torch.randn(6, 3), uncertainty), 1.0).uncertainty
    assert found is not None
    found.sum().backward()
    torch.testing.assert_close(uncertainty.grad, torch.ones(6, 5))


def test_certain_images_and_no_noise_stay_as_they_are():
    semantic = Embedding(torch.randn(6, 3))
    uncertain = Embedding(torch.randn(6, 3), torch.randn(6, 5))
    assert with_noise(semantic, 0.5) is semantic
    assert with_noise(uncertain, 0.0) is uncertain


@pytest.mark.parametrize("mixing", ["none", "mixup"])
def test_a_step_with_noise_has_its_loss_and_leaves_embeddings_without(mixing):
    batch, model = some_batch(mixing), Small()
    objective = Objective("contrastive", Introspective(), num_classes=CLASSES)
    options = {"noise": 0.7, "generator": torch.Generator().manual_seed(0)}
    step = loss_and_gradients(model, objective, batch, MIXINGS["shares of the loss"], **options)
    generator = torch.Generator().manual_seed(0)
    clean = [model(images) for images in (batch.images, batch.mixed) if images is not None]
    noisy = [with_noise(part, 0.7, generator=generator) for part in clean]
    expected = loss_of(objective, noisy[0], noisy[1] if len(noisy) > 1 else None, batch, MIXINGS["shares of the loss"])
    torch.testing.assert_close(step.loss, expected.detach())
    torch.testing.assert_close(step.original.uncertainty, clean[0].uncertainty.detach())
    if step.mixed is not None:
        torch.testing.assert_close(step.mixed.uncertainty, clean[1].uncertainty.detach())


def test_a_small_share_is_left_out_of_label_sets():
    batch = some_batch()
    mixed = batch.mixed
    assert mixed is not None
    assert batch.mixing is not None
    all_own = replace(batch.mixing, share=torch.full((8,), 0.9), label_share=torch.full((8,), 0.9))
    batch = Batch(batch.images, mixed, batch.labels, all_own)
    config = replace(MIXINGS["sets"], smallest_share=0.2)
    model, objective = Small(), Objective("contrastive", Introspective(), num_classes=CLASSES)
    step = loss_and_gradients(model, objective, batch, config)
    expected = objective(model(torch.cat([batch.images, mixed])), batch.labels.repeat(2))
    torch.testing.assert_close(step.loss, expected.detach())


def test_a_plain_model_has_no_uncertainty():
    model, objective = Small(introspective=False), Objective("contrastive", num_classes=CLASSES)
    step = loss_and_gradients(model, objective, some_batch("none"), MIXINGS["sets"], level_prior=1.0, chunk=3)
    assert torch.isfinite(step.loss)
    assert step.original.uncertainty is None
    assert step.mixed is None


@pytest.mark.parametrize("partner_negatives", [True, False])
def test_mixed_images_can_be_classes_of_their_own(partner_negatives):
    model, objective, batch = Small(), Objective("contrastive", Introspective(), num_classes=CLASSES), some_batch()
    assert batch.mixed is not None
    assert batch.mixing is not None
    config = MixingConfig(mixing="mixup", mixed_labels="classes", partner_negatives=partner_negatives)
    step = loss_and_gradients(model, objective, batch, config)
    others, sets = batch.mixing.other_labels(batch.labels), batch.mixing.label_sets(batch.labels, CLASSES)
    expected = objective.with_mixed_classes(
        model(batch.images),
        batch.labels,
        model(batch.mixed),
        others,
        batch.mixing.batch_share,
        label_sets=None if partner_negatives else sets,
    )
    torch.testing.assert_close(step.loss, expected)
