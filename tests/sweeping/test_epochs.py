import math

import pytest

from idml.recipes import recipe
from idml.sweeping.epochs import curves, epoch_table
from idml.sweeping.lab import stored


def line(arm: str, seed: int, scores: dict[int, float], **changes) -> dict:
    config = stored(recipe("digits").with_changes({"seed": seed, **changes}))
    epochs = [{"epoch": epoch, "loss": 1.0, "validation_recall@1": score} for epoch, score in scores.items()]
    whole = {"arm": arm, "seed": seed, "split": "validation", "dataset": "cub", "data": "abc", "config": config}
    return whole | {"scores": {}, "epochs": [{"epoch": 1, "loss": 2.0}, *epochs], "stopped": None, "error": None}


LINES = [
    line("a", 0, {2: 0.5, 4: 0.7, 6: 0.9}),
    line("a", 1, {2: 0.5, 4: 0.5}),  # stopped after epoch 4
    line("b", 0, {2: 0.6, 3: math.nan, 4: 0.65}, tau=3),
    line("c", 0, {}, tau=4),
]


def test_scores_are_means_over_the_seeds_that_came_so_far():
    found = {curve.arm: curve for curve in curves(LINES, by="recall@1")}
    assert found["a"].means == {2: 0.5, 4: pytest.approx(0.6), 6: 0.9}
    assert found["a"].seeds == {2: 2, 4: 2, 6: 1}
    assert found["b"].means == {2: 0.6, 4: 0.65}
    assert "c" not in found


def test_the_best_epoch_is_one_that_all_seeds_reached():
    first, second = curves(LINES, by="recall@1")
    assert (first.arm, first.best) == ("b", 4)
    assert (second.arm, second.best) == ("a", 4)


def test_a_narrow_table_has_fewer_epochs_and_always_the_last():
    found = curves(LINES, by="recall@1")
    assert epoch_table(found, by="recall@1") == [
        ["arm", "seeds", "best epoch", "2", "4", "6"],
        ["b", "1", "4", "60.0", "65.0", "–"],
        ["a", "2", "4", "50.0", "60.0", "90.0"],
    ]
    for columns, shown in ((2, ["2", "6"]), (1, ["6"]), (3, ["2", "4", "6"])):
        assert epoch_table(found, by="recall@1", columns=columns)[0][3:] == shown


def test_scores_that_are_not_computed_on_the_way_are_named():
    with pytest.raises(ValueError, match="unknown score by epoch 'nmi'"):
        curves(LINES, by="nmi")
