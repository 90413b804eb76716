import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idml.recipes import recipe
from idml.sweeping.space import Arm, Choices, Range, arms_of_file, arms_of_recipes, make_arms, read_over

HALF = {"validation_half": "second"}
plain_texts = st.text(st.sampled_from("abz019.-_/"), min_size=1, max_size=8).filter(lambda text: ".." not in text)
positive = st.floats(1e-6, 1e6, allow_nan=False)


def bases(*names: str) -> list[Arm]:
    return arms_of_recipes(names or ("digits",), [], validation=HALF)


@given(st.lists(plain_texts, min_size=1, max_size=5))
def test_listed_values_are_read_as_they_are_written(values):
    assert read_over(f"backbone={','.join(values)}") == Choices("backbone", tuple(values))


@given(st.lists(st.lists(plain_texts, min_size=1, max_size=3).map(",".join), min_size=2, max_size=4))
def test_values_with_commas_are_parted_by_semicolons(values):
    assert read_over(f"crop_scale = {' ; '.join(values)}") == Choices("crop_scale", tuple(values))
    assert read_over(f"crop_scale={values[0]};") == Choices("crop_scale", (values[0],))


@settings(deadline=None, max_examples=30)
@given(positive, positive)
def test_two_numbers_and_dots_are_a_range_of_the_settings_type(one, other):
    low, high = sorted((one, other))
    if low == high:
        with pytest.raises(ValueError, match="is no range: give the lower end first"):
            read_over(f"lr={low}..{high}")
    else:
        assert read_over(f"lr={low}..{high}") == Range("lr", low, high, is_whole=False)


def test_ranges_of_whole_numbers_stay_whole():
    assert read_over("batch=4..64") == Range("batch", 4, 64, is_whole=True)
    assert read_over("per_class=2..4") == Range("per_class", 2, 4, is_whole=True)
    assert read_over("loss_options.margin=0..1") == Range("loss_options.margin", 0, 1, is_whole=False)


def test_a_path_upwards_is_no_range():
    assert read_over("weights=../a.pt,../b.pt") == Choices("weights", ("../a.pt", "../b.pt"))


@given(st.integers(0, 10**6), positive, positive, st.integers(1, 50), st.integers(1, 50))
def test_draws_stay_within_their_range_and_whole_numbers_stay_whole(seed, one, other, first, second):
    generator = np.random.default_rng(seed)
    ends = sorted((one, other))
    number = float(Range("lr", *ends, is_whole=False).draw(generator))
    assert ends[0] * (1 - 1e-9) <= number <= ends[1] * (1 + 1e-9)
    low, high = sorted((first, second))
    assert low <= int(Range("batch", low, high, is_whole=True).draw(generator)) <= high


def test_wide_ranges_are_drawn_log_uniformly_and_narrow_ones_uniformly():
    generator = np.random.default_rng(0)

    def middle(*ends: float, is_whole: bool = False) -> float:
        span = Range("lr", *ends, is_whole=is_whole)
        return float(np.median([float(span.draw(generator)) for _ in range(2000)]))

    assert math.log10(middle(1e-5, 1e-1)) == pytest.approx(-3, abs=0.2)
    assert middle(1, 9) == pytest.approx(5, abs=0.3)
    assert middle(-1, 99) == pytest.approx(49, abs=4)
    assert middle(1, 1000, is_whole=True) == pytest.approx(31, abs=6)
    drawn = [Range("dim", 1, 3, is_whole=True).draw(generator) for _ in range(300)]
    assert {drawn.count(value) > 70 for value in "123"} == {True}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12))
def test_more_trials_keep_the_first_ones(seed, one, other):
    overs = [read_over("lr=1e-5..1e-2"), read_over("tau=1,3,5"), read_over("batch=8..64")]
    few, many = (make_arms(bases(), overs, trials=trials, seed=seed) for trials in sorted((one, other)))
    assert many[: len(few)] == few
    assert len(many) == max(one, other)
    assert len({arm.name for arm in many}) == len(many)


def test_other_search_seeds_draw_other_arms():
    overs = [read_over("lr=1e-5..1e-2")]
    assert make_arms(bases(), overs, trials=3, seed=0) != make_arms(bases(), overs, trials=3, seed=1)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(["mixup", "cutmix", "none"]), min_size=1, max_size=3, unique=True),
)
def test_a_grid_is_every_combination_named_by_what_tells_them_apart(taus, mixings):
    overs = [Choices("tau", tuple(map(str, taus))), Choices("mixing", tuple(mixings))]
    found = make_arms(bases(), overs)
    assert [arm.name for arm in found] == [f"tau={tau} mixing={mixing}" for tau in taus for mixing in mixings]
    for arm in found:
        expected = recipe("digits").with_changes({**HALF, **arm.values})
        assert arm.config == expected


def test_several_recipes_are_named_and_one_alone_is_not():
    overs = [read_over("tau=1,2")]
    assert [arm.name for arm in make_arms(bases("digits", "digits-plain"), overs)] == [
        "digits tau=1",
        "digits tau=2",
        "digits-plain tau=1",
        "digits-plain tau=2",
    ]
    assert [arm.name for arm in make_arms(bases("digits"), [])] == ["digits"]
    assert [arm.name for arm in make_arms(bases("digits", "digits"), [])] == ["digits"]


def test_the_same_config_is_one_arm_and_weights_go_by_their_file_name():
    assert [arm.name for arm in make_arms(bases(), [read_over("tau=1,1.0,2")])] == ["tau=1", "tau=2"]
    found = make_arms(bases(), [read_over("weights=/data/a.safetensors,none")])
    assert [arm.name for arm in found] == ["weights=a", "weights=none"]
    assert found[0].config.model.weights == "/data/a.safetensors"
    with pytest.raises(ValueError, match="rename one of the files"):
        make_arms(bases(), [read_over("weights=/data/a.pt,/other/a.pt")])


def test_other_weights_of_one_name_are_refused_in_arms_that_share_their_runs():
    plain = arms_of_recipes(["digits-plain"], ["weights=/data/a.pt"], validation={})
    other = arms_of_recipes(["digits-plain"], ["weights=/other/a.pt", "tau=2"], validation={})
    with pytest.raises(ValueError, match=r"\(/data/a.pt and /other/a.pt\), which the log does not keep: rename"):
        make_arms([*plain, *other], [])


def test_arms_of_a_file_that_differ_in_settings_without_effect_are_refused(tmp_path):
    (tmp_path / "arms").write_text("a: digits-plain\nb: digits-plain tau=3\n")
    with pytest.raises(ValueError, match="line 2: arm 'b' is there already, as 'a'"):
        arms_of_file(tmp_path / "arms", [], validation={})


def test_sweeping_over_a_setting_without_effect_is_refused():
    plain = arms_of_recipes(["digits-plain"], [], validation={})
    with pytest.raises(ValueError, match="tau has no effect beside these settings, .*: leave it out of --over"):
        make_arms(plain, [read_over("tau=1,3"), read_over("lr=0.1,0.2")])


def test_values_that_are_pairs_can_be_swept():
    found = make_arms(bases(), [read_over("crop_scale=0.16,1;0.4,1")])
    assert [arm.config.data.crop_scale for arm in found] == [(0.16, 1.0), (0.4, 1.0)]


def test_a_file_holds_one_arm_a_line(tmp_path):
    path = tmp_path / "arms.txt"
    path.write_text("# ours\nsoft: digits tau=9 mixing=cutmix  # softer\n\n plain, wide :  digits-plain dim=32\n")
    soft, wide = arms_of_file(path, ["epochs=2", "dim=8"], validation=HALF)
    assert (soft.name, wide.name) == ("soft", "plain, wide")
    assert soft.config == recipe("digits").with_changes([*_half(), "epochs=2", "dim=8", "tau=9", "mixing=cutmix"])
    assert wide.config == recipe("digits-plain").with_changes([*_half(), "epochs=2", "dim=32"])


def test_an_arm_of_a_file_may_have_seeds_of_its_own(tmp_path):
    path = tmp_path / "arms.txt"
    path.write_text("soft: digits seeds=5 tau=9\nhard: digits tau=1 seeds=2,7\nusual: digits\n")
    arms = arms_of_file(path, [], validation=HALF)
    assert [arm.seeds for arm in arms] == [(0, 1, 2, 3, 4), (2, 7), None]
    assert arms[0].config == recipe("digits").with_changes([*_half(), "tau=9"])
    assert [arm.seeds for arm in make_arms(arms, [read_over("dim=8,16")])] == [arm.seeds for arm in arms for _ in "ab"]


def test_one_arm_with_two_kinds_of_seeds_is_refused(tmp_path):
    path = tmp_path / "arms.txt"
    path.write_text("often: digits seeds=5\n")
    with pytest.raises(ValueError, match="arms 'digits' and 'often' are the same, with other seeds: leave one of them"):
        make_arms([*bases(), *arms_of_file(path, [], validation=HALF)], [])


def _half() -> list[str]:
    return [f"{name}={value}" for name, value in HALF.items()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soft digits tau=9", "line 1: 'soft digits tau=9' is no arm"),
        ("soft:", "line 1: 'soft:' is no arm"),
        ("\nsoft: digit", "line 2: unknown recipe 'digit': did you mean 'digits'?"),
        ("soft: digits taus=3", "line 1: unknown setting 'taus': did you mean 'tau'?"),
        ("soft: digits tau=x", "line 1: tau is 'x': give a number."),
        ("soft: digits tau=3\nsoft: digits tau=4", "line 2: arm 'soft' is there already"),
        ("soft: digits tau=3\nhard: digits tau=3.0", "line 2: arm 'hard' is there already, as 'soft'"),
        ("soft: digits seeds=x", "line 1: seeds is 'x': give how many, such as 3, or the seeds themselves"),
        ("soft: digits seeds=0", "line 1: seeds is '0'"),
        ("soft: digits seed=3", "line 1: seed is decided by --seeds"),
        ("# nothing", "holds no arms"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_line(text, message, tmp_path):
    path = tmp_path / "arms.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as mistake:
        arms_of_file(path, [], validation=HALF)
    assert str(mistake.value).startswith(str(path))
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("overs", "trials", "message"),
    [
        (["tau"], None, "'tau' lists nothing: write NAME=VALUE,VALUE"),
        (["tau="], None, "lists nothing"),
        (["tau=1,,2"], None, "has an empty value"),
        (["taus=1,2"], None, "unknown setting 'taus': did you mean 'tau'?"),
        (["taus=1..2"], 3, "unknown setting 'taus': did you mean 'tau'?"),
        (["tau=1,x"], None, "tau is 'x': give a number."),
        (["tau=1..x"], None, "tau is '1..x': give a number."),
        (["crop=random_resized,middle"], None, "unknown crop 'middle'"),
        (["lr=1,-1"], None, "lr is -1.0"),
        (["lr=1e-3..1e-5"], 3, "is no range: give the lower end first"),
        (["lr=1..inf"], 3, "is no range"),
        (["flip=0..1"], 3, "flip is no number and has no range"),
        (["batch=1.5..3"], 3, "batch is '1.5': give a whole number."),
        (["lr=1e-5..1e-3"], None, "is a range: say how many draws, --trials 20"),
        (["tau=1,2"], 3, "--trials is for ranges"),
        (["tau=1..3"], 0, "--trials is 0: give at least 1"),
        (["batch=8..10"], 5, "hold only 3 different settings"),
        (["tau=1,2", "tau=3"], None, "tau is in --over twice"),
        (["seed=1,2"], None, "seed is decided by --seeds"),
        (["seeds=1,2"], None, "seeds is decided by --seeds, or in a file of arms by the line of one"),
        (["validation_half=first"], None, "validation_half is decided by --validate"),
        (["crop_scale=0.1,0.2"], None, "put ; between values"),
    ],
)
def test_mistakes_are_told_in_a_line(overs, trials, message):
    with pytest.raises(ValueError, match=re.escape(message)) as mistake:
        make_arms(bases(), [read_over(text) for text in overs], trials=trials)
    assert "\n" not in str(mistake.value)


def test_two_arms_of_one_name_are_refused():
    one, other = (Arm(name="same", config=recipe("digits").with_changes({"tau": tau})) for tau in (1, 2))
    with pytest.raises(ValueError, match="two different arms are called 'same'"):
        make_arms([one, other], [])
