import pytest

from idml.losses import LOSSES
from idml.recipes import RECIPES, recipe
from idml.recipes.cub import HEAD_RATE, PROXY_RATE

CUB = [name for name in RECIPES if name.startswith("cub-")]


def test_every_loss_has_a_recipe_and_a_baseline():
    losses = {recipe(name).objective.loss for name in CUB if not name.endswith("-plain")}
    assert losses == set(LOSSES)
    assert {f"{name}-plain" for name in CUB if not name.endswith("-plain")} < set(CUB)


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.endswith("-plain")])
def test_a_baseline_differs_in_uncertainty_and_mixing_alone(name):
    ours, plain = recipe(name), recipe(f"{name}-plain")
    assert ours.objective.introspective
    assert ours.with_changes({"introspective": False, "mixing": "none"}) == plain


@pytest.mark.parametrize("name", CUB)
def test_new_layers_and_proxies_learn_at_the_same_rates_whatever_the_backbone_does(name):
    optimiser = recipe(name).optimiser
    assert optimiser.lr * optimiser.head_factor == pytest.approx(HEAD_RATE)
    assert optimiser.lr * optimiser.uncertainty_factor == pytest.approx(HEAD_RATE)
    assert optimiser.lr * optimiser.proxy_factor == pytest.approx(PROXY_RATE)


def test_recipes_are_described():
    assert all((make.__doc__ or "").strip() for make in RECIPES.values())
