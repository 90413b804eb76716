"""What the table of effects says of a setting is held against runs: without effect, all weights come out the same."""

from functools import cache as remembered
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training.config import Config
from idml.training.effects import HAS_EFFECT
from idml.training.loop import Run
from idml.training.watching import Silent
from idml.training.workshop import Workshop

SMALL = ("epochs=1", "batch=12", "image_size=16", "compile=false")
OTHER = {  # a value that each setting has in no scene
    "crop_scale": "0.3,0.5",
    "validation_seed": "5",
    "validate_every": "2",
    "uncertainty_dim": "7",
    "uncertainty": "common",
    "uncertainty_normalise": "false",
    "uncertainty_gradient": "0.7",
    "uncertainty_level": "0.9",
    "uncertainty_starts_equal": "true",
    "tau": "2",
    "gamma": "0.7",
    "smoothing": "0.3",
    "pair_uncertainty": "sum_of_norms",
    "learn_proxy_uncertainty": "true",
    "distance_scale": "relative",
    "taught_by": "positives",
    "uncertainty_noise": "0.6",
    "level_prior": "0.4",
    "mixed_labels": "shares",
    "mixed_against": "originals",
    "mixed_from": "others",
    "mixed_weight": "0.3",
    "mixed_teaches": "uncertainty",
    "partner_negatives": "false",
    "smallest_share": "0.45",
    "concentration": "0.2",
    "uncertainty_factor": "30",
    "proxy_factor": "3",
    "decay_epochs": "2",
    "decay_factor": "0.1",
}
PAIRS = ("loss=contrastive", "per_class=4", "loss_options.negative_margin=1")
SCENES = {
    "proxies": (),
    "proxies, plain": ("introspective=false",),
    "proxies, not mixed": ("mixing=none",),
    "proxies, all together": ("mixed_against=all",),
    "proxies, features": ("mixing=features",),
    "proxies, uncertain": ("learn_proxy_uncertainty=true",),
    "proxies, uncertain, of random images": ("learn_proxy_uncertainty=true", "uncertainty=random"),
    "proxies, random": ("uncertainty=random",),
    "proxies, centred": ("distance_scale=centred", "uncertainty_level=1"),
    "pairs": PAIRS,
    "pairs, plain": (*PAIRS, "introspective=false", "mixed_against=originals"),
    "pairs, plain, not mixed": (*PAIRS, "introspective=false", "mixing=none"),
    "pairs, all together": (*PAIRS, "mixed_against=all"),
    "pairs, sets": (*PAIRS, "mixed_labels=sets"),
    "pairs, classes": (*PAIRS, "mixed_labels=classes"),
    "held out": ("validation_share=0.5", "crop=resize_and_crop", "epochs=2"),
    "half held out": ("validation_half=first", "schedule=step", "decay_epochs=1", "epochs=2"),
}


class Outcome(NamedTuple):
    """What a config comes to: all weights, and what its epochs noted."""

    weights: list[torch.Tensor]
    records: list[dict[str, float]]


@pytest.fixture(scope="module")
def outcome():
    workshop = Workshop()
    with TemporaryDirectory() as place:
        data: Cache = draw_cache(Path(place), per_class=6, size=20)

        @remembered
        def known(changes: tuple[str, ...]) -> Outcome:
            run = Run(configured(changes), data, torch.device("cpu"), workshop, watch=Silent())
            run.go()
            weights = [*run.model.state_dict().values(), *run.objective.state_dict().values()]
            records = [{name: value for name, value in each.items() if name != "seconds"} for each in run.records]
            return Outcome([weight.clone() for weight in weights], records)

        yield known


def configured(changes: tuple[str, ...]) -> Config:
    return recipe("digits").with_changes([*SMALL, *changes])


def are_same(one: Outcome, other: Outcome) -> bool:
    """But for rounding: who teaches an uncertainty that does not learn decides in which order gradients are added."""
    if [each.keys() for each in one.records] != [each.keys() for each in other.records]:
        return False
    weights = len(one.weights) == len(other.weights) and all(map(are_close, one.weights, other.weights))
    return weights and all(
        before == pytest.approx(after, rel=1e-4) for before, after in zip(one.records, other.records, strict=True)
    )


def are_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, atol=3e-4)  # a step moves weights by 3e-3


def test_every_setting_of_the_table_is_tried():
    assert set(OTHER) == set(HAS_EFFECT)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("scene", SCENES)
def test_settings_have_an_effect_where_the_table_says_so_and_nowhere_else(scene, outcome):
    before = SCENES[scene]
    for setting, value in OTHER.items():
        changes = (*before, f"{setting}={value}")
        try:
            config = configured(changes)
        except ValueError:
            continue  # what excludes each other
        if config == configured(before):
            continue
        is_idle = setting in config.idle([setting]) and setting in configured(before).idle([setting])
        assert are_same(outcome(changes), outcome(before)) == is_idle, setting
