from dataclasses import replace

import pytest

from idml.losses import LOSSES
from idml.recipes import RECIPES, recipe
from idml.recipes.cub import DRAWN, HEAD_RATE, OF_PLAIN, PROXY_RATE
from idml.training.parts import MixingConfig

CUB = [name for name in RECIPES if name.startswith("cub-")]
METHODS = [name for name in CUB if not name.endswith("-plain")]


def test_every_loss_has_a_recipe_and_a_baseline():
    assert {recipe(name).objective.loss for name in METHODS} == set(LOSSES)
    assert {f"{name}-plain" for name in METHODS} < set(CUB)


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.endswith("-plain")])
def test_a_baseline_differs_in_uncertainty_mixing_and_settings_of_its_own_alone(name):
    ours, plain = recipe(name), recipe(f"{name}-plain")
    own = OF_PLAIN.get(ours.objective.loss, {}) if name in CUB else {}
    assert plain.with_changes({name: ours.leaf(name) for name in own}) == ours.plain()
    assert all(plain.leaf(name) == value for name, value in own.items())


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.endswith("-plain")])
def test_the_plain_form_of_a_run_differs_in_uncertainty_and_mixing_alone(name):
    ours, plain = recipe(name), recipe(name).plain()
    assert ours.objective.introspective
    assert not plain.objective.introspective
    assert plain.mixing == MixingConfig()
    assert (plain.data, plain.run) == (ours.data, ours.run)
    assert replace(plain.optimiser, uncertainty_factor=ours.optimiser.uncertainty_factor) == ours.optimiser
    assert (plain.objective.loss, plain.objective.loss_options) == (ours.objective.loss, ours.objective.loss_options)
    assert (plain.model.backbone, plain.model.dim, plain.model.pooling) == (
        ours.model.backbone,
        ours.model.dim,
        ours.model.pooling,
    )


def test_variants_of_a_run_share_one_baseline():
    config = recipe("cub-proxy-anchor")
    changed = config.with_changes(["tau=9", "uncertainty_level=2", "mixing=cutmix", "mixed_weight=0.5", "gamma=7"])
    changed = changed.with_changes(["uncertainty_factor=3", "distance_scale=relative", "learn_proxy_uncertainty=true"])
    assert changed.plain() == config.plain()


@pytest.mark.parametrize("name", [name for name in METHODS if recipe(name).objective.loss not in DRAWN])
def test_new_layers_and_proxies_learn_at_the_same_rates_unless_these_were_drawn(name):
    config = recipe(name)
    optimiser = config.optimiser
    assert optimiser.lr * optimiser.head_factor == pytest.approx(HEAD_RATE)
    assert optimiser.lr * optimiser.proxy_factor == pytest.approx(PROXY_RATE)


@pytest.mark.parametrize("name", METHODS)
def test_uncertainty_learns_more_slowly_than_other_new_layers(name):
    optimiser = recipe(name).optimiser
    assert 0 < optimiser.lr * optimiser.uncertainty_factor < HEAD_RATE / 3


def test_recipes_are_described_by_a_sentence_in_their_first_line():
    for make in RECIPES.values():
        assert (make.__doc__ or "").splitlines()[0].endswith(".")
