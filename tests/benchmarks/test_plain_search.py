import pytest
import torch
from caches import draw_cache
from scripts import benchmark

from idml.losses import LOSSES
from idml.sweeping.lab import Lab


@pytest.fixture(scope="module")
def search():
    return benchmark("plain_search")


@pytest.mark.parametrize("loss", LOSSES)
def test_every_draw_is_a_plain_configuration_of_its_loss_and_another_one(search, loss):
    base, draws = search.arms_of(loss, "none")
    assert len({arm.name for arm in draws}) == search.DRAWS[loss]
    assert all(arm.config.objective.loss == loss for arm in draws)
    assert all(arm.config == arm.config.plain() for arm in [base, *draws])
    assert all(arm.config.run.epochs == base.config.run.epochs for arm in draws)


def nomination(search, tmp_path, scores):
    """What the rule takes of fast_ap's draws, where a run of a config and a seed has that score."""

    def trial(config, *_, **__):
        total = scores(config.objective.loss_options.get("bins"), config.run.seed)
        of_run = {"recall@1": total / 100, "map_at_r": 0.0}
        return {"split": "validation", "scores": of_run, "epochs": [], "stopped": None, "seconds": 0.0}

    base, draws = search.arms_of("fast_ap", "none")
    cache = draw_cache(tmp_path)
    lab = Lab(tmp_path / "log.jsonl")
    found = search.nominated(base, draws, cache=cache, lab=lab, device=torch.device("cpu"), trial=trial)
    return found, {arm.name: arm.config for arm in draws}, lab.lines()


def test_the_finalist_with_the_best_fresh_seeds_is_nominated_not_the_luckiest(search, tmp_path):
    bins = sorted({arm.config.objective.loss_options["bins"] for arm in search.arms_of("fast_ap", "none")[1]})
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
    assert len(lines) == search.DRAWS["fast_ap"] + 1 + len(search.FRESH) * len(fresh)


def test_what_is_hardly_better_than_the_recipe_is_not_nominated(search, tmp_path):
    found, *_ = nomination(search, tmp_path, lambda of, _: 75 if of is None else 75.2)
    assert found is None
