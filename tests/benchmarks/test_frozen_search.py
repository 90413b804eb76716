import pytest
import torch
from caches import draw_cache
from scripts import benchmark

from idml.losses import LOSSES
from idml.sweeping.lab import Lab

DRAWS = 30


@pytest.fixture(scope="module")
def search():
    return benchmark("frozen_search")


def searched(search, kind, loss, draws=60):
    """The recipe, and draws."""
    return search.KINDS[kind](loss, "none", draws=draws, seed=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_draw_is_a_plain_configuration_of_its_loss_and_another_one(search, loss):
    base, draws = searched(search, "plain", loss)
    assert len({arm.name for arm in draws}) == 60
    assert all(arm.config.objective.loss == loss for arm in draws)
    assert all(arm.config == arm.config.plain() for arm in [base, *draws])
    assert all(arm.config.run.epochs == base.config.run.epochs for arm in draws)


@pytest.mark.parametrize("loss", LOSSES)
def test_draws_of_the_method_differ_from_its_recipe_in_uncertainty_and_mixing_alone(search, loss):
    base, draws = searched(search, "method", loss)
    assert len({arm.name for arm in draws}) == 60
    assert all(arm.config.plain().effective == base.config.plain().effective for arm in draws)
    assert {arm.config.mixing.mixing for arm in draws} == {"none", "mixup", "features"}
    assert all(arm.config.objective.introspective for arm in draws)


def nomination(search, tmp_path, scores, *, knows=lambda _: {}):
    """What the rule takes of fast_ap's draws, where a run of a config and a seed has that score."""

    def trial(config, *_, **__):
        bins = config.objective.loss_options.get("bins")
        of_run = {"recall@1": scores(bins, config.run.seed) / 100, "map_at_r": 0.0, **knows(bins)}
        return {"split": "validation", "scores": of_run, "epochs": [], "stopped": None, "seconds": 0.0}

    base, draws = searched(search, "plain", "fast_ap", DRAWS)
    cache = draw_cache(tmp_path)
    lab = Lab(tmp_path / "log.jsonl")
    found = search.nominated(base, draws, cache=cache, lab=lab, device=torch.device("cpu"), trial=trial)
    return found, {arm.name: arm.config for arm in draws}, lab.lines()


def test_the_finalist_with_the_best_fresh_seeds_is_nominated_not_the_luckiest(search, tmp_path):
    bins = sorted({arm.config.objective.loss_options["bins"] for arm in searched(search, "plain", "fast_ap", DRAWS)[1]})
    lucky, good = bins[0], bins[1]

    def scores(of, seed):
        if of == lucky:
            return 90 if seed == 0 else 70
        return 80 if of == good else 75

    (arm, above), configs, lines = nomination(search, tmp_path, scores)
    assert configs[arm.name].objective.loss_options["bins"] == good
    assert above == pytest.approx(5)
    fresh = {line["arm"] for line in lines if line["seed"] in search.FRESH}
    assert len(fresh) == search.FINALISTS + 1
    assert len(lines) == DRAWS + 1 + len(search.FRESH) * len(fresh)


def test_what_is_hardly_better_than_the_recipe_is_not_nominated(search, tmp_path):
    found, *_ = nomination(search, tmp_path, lambda of, _: 75 if of is None else 75.2)
    assert found is None


def test_levels_that_know_no_errors_are_not_nominated(search, tmp_path):
    bins = sorted({arm.config.objective.loss_options["bins"] for arm in searched(search, "plain", "fast_ap", DRAWS)[1]})
    best, knowing = bins[0], bins[1]

    def scores(of, _):
        return {best: 90, knowing: 80}.get(of, 75)

    def knows(of):
        return {"r_auroc": search.KNOWING if of == knowing else search.KNOWING - 0.01}

    (arm, above), configs, _ = nomination(search, tmp_path, scores, knows=knows)
    assert configs[arm.name].objective.loss_options["bins"] == knowing
    assert above == pytest.approx(5)
