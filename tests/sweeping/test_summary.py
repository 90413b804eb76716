import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from idml.recipes import recipe
from idml.sweeping.lab import stored
from idml.sweeping.summary import SCORES, caption, check_score, markdown, parted, summarise, table

CONFIGS = {tau: recipe("digits").with_changes({"tau": tau}) for tau in range(6)}


def line(arm: str, seed: int, score: float | None, *, tau: float = 0, **values) -> dict:
    config = stored(CONFIGS[int(tau)])
    config["run"]["seed"] = seed
    scores = {} if score is None else {"map_at_r": score, "recall@1": (1 + score) / 2, "aurc": 1 - score}
    whole = {"arm": arm, "seed": seed, "split": "validation", "dataset": "cub", "data": "abc", "config": config}
    return whole | {"scores": scores, "epochs": [], "stopped": None, "error": None, "seconds": 2.0} | values


def arm(name: str, tau: float, scores: list[float]) -> list[dict]:
    return [line(name, seed, score, tau=tau) for seed, score in enumerate(scores)]


FIRST, SECOND = [0.40, 0.42, 0.41, 0.44], [0.50, 0.53, 0.50, 0.55]
LINES = arm("first", 1, FIRST) + arm("second", 2, SECOND)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5), st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_means_deviations_and_differences_are_those_of_numpy_and_scipy(ours, theirs):
    found = {one.arm: one for one in summarise(arm("theirs", 1, theirs) + arm("ours", 2, ours))}
    spread = found["ours"].spreads["map_at_r"]
    assert spread.mean == pytest.approx(np.mean(ours))
    assert spread.standard_deviation == pytest.approx(np.std(ours, ddof=1), abs=1e-12)
    common = min(len(ours), len(theirs))
    gaps = np.array(ours[:common]) - np.array(theirs[:common])
    difference = found["ours"].differences["map_at_r"]
    assert difference.number == common
    assert difference.mean == pytest.approx(gaps.mean(), abs=1e-12)
    if gaps.std() > 1e-6:
        assert difference.p_value == pytest.approx(ttest_rel(ours[:common], theirs[:common])[1], rel=1e-6, abs=1e-12)
    assert found["theirs"].against is None
    assert not found["theirs"].differences


def test_the_best_comes_first_by_the_score_chosen():
    assert [one.arm for one in summarise(LINES)] == ["second", "first"]
    assert [one.arm for one in summarise(LINES, by="aurc")] == ["second", "first"]  # of which less is better
    worse = [{**one, "scores": {**one["scores"], "aurc": one["scores"]["map_at_r"]}} for one in LINES]
    assert [one.arm for one in summarise(worse, by="aurc")] == ["first", "second"]
    lacking = LINES + arm("without", 3, [0.9])
    lacking[-1]["scores"] = {"map_at_r": 0.9}
    assert [one.arm for one in summarise(lacking, by="recall@1")] == ["second", "first", "without"]


def test_any_arm_may_be_the_baseline_and_an_unknown_one_is_named():
    assert {one.against for one in summarise(LINES)} == {"first", None}
    assert {one.against for one in summarise(LINES, against="second")} == {"second", None}
    with pytest.raises(ValueError, match="unknown arm 'secnd': did you mean 'second'"):
        summarise(LINES, against="secnd")


def test_stopped_and_failed_runs_are_counted_and_do_not_enter_the_mean():
    lines = [
        *LINES,
        line("third", 0, 0.9, tau=3),
        line("third", 1, 0.1, tau=3, stopped=4),
        line("third", 2, None, tau=3, error="full"),
        line("fourth", 0, 0.1, tau=4, stopped=2),
    ]
    found = {one.arm: one for one in summarise(lines)}
    third = found["third"]
    assert (third.runs, third.finished, third.stopped, third.failed) == (
        "1, 1 stopped, 1 failed",
        [0],
        {1: 4},
        {2: "full"},
    )
    assert third.spreads["map_at_r"].mean == 0.9
    assert third.spreads["map_at_r"].standard_deviation is None
    assert third.seconds == 6
    assert not third.differences  # one pair tells nothing
    assert found["fourth"].runs == "0, 1 stopped"
    assert [one.arm for one in summarise(lines)] == ["second", "first", "third", "fourth"]  # stopped ones look too good


def test_scores_without_meaning_are_left_out():
    lines = [line("a", 0, 0.5), line("a", 1, 0.7)]
    lines[1]["scores"]["map_at_r"] = None
    lines[1]["scores"]["r_auroc"] = float("nan")
    (found,) = summarise(lines)
    assert found.values["map_at_r"] == {0: 0.5}
    assert "r_auroc" not in found.values
    assert found.spreads["recall@1"].number == 2


def test_a_run_that_was_tried_again_counts_once():
    (found,) = summarise([line("a", 0, None, error="full"), line("a", 0, 0.5)])
    assert (found.runs, found.failed) == ("1", {})


def test_arms_are_told_apart_by_their_settings_where_they_share_a_name():
    found = summarise([line("digits", 0, 0.5, tau=1), line("digits", 0, 0.6, tau=2), line("other", 0, 0.4, tau=3)])
    assert [one.arm for one in found] == ["digits (tau=2.0)", "digits (tau=1.0)", "other"]


def test_an_arm_that_failed_where_others_were_tried_hard_does_not_come_first():
    """With folds, a mean over the easy classes alone would be too good."""
    results = summarise(
        [line("a", 0, 0.9), line("a", 1, 0.3), line("b", 0, 0.8, tau=2), line("b", 1, None, tau=2, error="full")]
    )
    assert [result.arm for result in results] == ["a", "b"]


def test_one_arm_under_two_names_is_one():
    (found,) = summarise([line("tau=1", 0, 0.5, tau=1), line("digits", 1, 0.7, tau=1)])
    assert found.finished == [0, 1]


def test_lines_of_other_data_or_classes_are_in_tables_of_their_own():
    others = [line("a", 0, 0.5, split="test"), line("a", 0, 0.5, data="other")]
    for change in (
        {"validation_half": "first"},
        {"validation_share": 0.2},
        {"validation_seed": 1},
        {"validation_folds": 5},
    ):
        others.append(line("a", 0, 0.5))
        others[-1]["config"]["data"] |= change
    assert [len(part) for part in parted([*LINES, *others])] == [8, 1, 1, 1, 1, 1, 1]


def test_the_table_says_what_is_inside_the_noise():
    near = [score + gap for score, gap in zip(FIRST, (0.01, -0.01, 0.005, -0.002), strict=True)]
    results = summarise(LINES + arm("near", 3, near))
    headings, *rows = table(results, keys=["map_at_r"])
    assert headings == ["arm", "seeds", "MAP@R %", "difference of MAP@R"]
    assert rows[0][:3] == ["second", "4", "52.00 ± 2.45"]
    assert rows[0][3].startswith("+10.3 ± ")
    by_name = {row[0]: row for row in rows}
    assert by_name["near"][3].endswith("inside the noise")
    assert by_name["first"][3] == "–"


def test_one_seed_has_no_deviation_and_no_difference():
    headings, row, _ = table(summarise([line("a", 0, 0.5, tau=1), line("b", 0, 0.4, tau=2)]), keys=["map_at_r"])
    assert headings == ["arm", "seeds", "MAP@R %"]
    assert row == ["a", "1", "50.00"]


def test_scores_that_no_arm_has_get_no_column():
    headings = table(summarise(LINES), by="aurc")[0]
    assert headings == ["arm", "seeds", "Recall@1 %", "MAP@R %", "AURC % ↓", "difference of AURC"]


def test_markdown_has_a_row_an_arm_and_says_what_its_numbers_are():
    results = summarise(arm("a|b", 1, FIRST) + arm("second", 2, SECOND))
    text = markdown(results, keys=["map_at_r"])
    lines = text.splitlines()
    assert lines[0] == "| arm | seeds | MAP@R % | difference of MAP@R |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert {text.replace("\\|", "").count("|") for text in lines[:4]} == {5}
    assert lines[5] == caption(results)
    assert "validation classes of cub" in caption(results)
    assert "differences from a|b" in caption(results)
    assert lines[3].startswith("| a\\|b | 4 | 41.75 ± 1.71 | – |")


def test_results_survive_json():
    rows = json.loads(json.dumps([one.to_dict() for one in summarise(LINES)], allow_nan=False))
    assert rows[0]["scores"]["map_at_r"] == {
        "mean": pytest.approx(0.52),
        "standard_deviation": pytest.approx(np.std(SECOND, ddof=1)),
        "number": 4,
    }
    assert rows[0]["differences"]["map_at_r"]["is_inside_noise"] is False


def test_nothing_gives_an_empty_table():
    assert summarise([]) == []


def test_arms_are_ordered_by_scores_that_judge_them():
    for key in (
        "nmi",
        "r_auroc",
        "r_auroc_of_length",
        "r_auroc_of_distance",
        "r_auroc_of_neighbours",
        "r_auroc_of_confidence",
        "r_auroc_of_gap",
    ):
        check_score(key)
    with pytest.raises(ValueError, match="nmi is computed with --final alone"):
        check_score("nmi", is_final=False)
    for by in ("level_clean", "loss"):
        with pytest.raises(ValueError, match=f"unknown score '{by}'.*map_at_r"):
            check_score(by)
    assert all(check_score(key) is None for key, score in SCORES.items() if score.is_chosen_by)
