import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idml.locking import lock
from idml.recipes import recipe
from idml.sweeping.lab import Lab, arm_identity, identity, stored
from idml.training.config import Config

texts = st.text(max_size=12)
scores = st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=3)


def line(arm: str = "a", *, config: Config | None = None, seed: int = 0, **values) -> dict:
    config = (config or recipe("digits")).with_changes({"seed": seed})
    whole = {"arm": arm, "seed": seed, "split": "validation", "data": "abc", "config": stored(config)}
    return whole | {"scores": {}, "epochs": [], "stopped": None, "error": None, "seconds": 1.0} | values


PLAIN = line()  # made here, for typeguards draw random numbers, and strategies must not
lines = st.fixed_dictionaries(
    {"arm": texts, "seed": st.integers(0, 99), "scores": scores, "error": st.none() | texts}
).map(lambda values: PLAIN | values)


@pytest.fixture(scope="module", autouse=True)
def _disk():
    """Waiting for the disk is what takes the time, and a test reads from memory anyway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _file: None)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("lab")


def fresh(folder: Path) -> Lab:
    path = folder / "log.jsonl"
    path.unlink(missing_ok=True)
    return Lab(path)


@settings(max_examples=60)
@given(st.lists(lines, max_size=4))
def test_what_is_appended_is_read_back(folder, given_lines):
    lab = fresh(folder)
    for one in given_lines:
        lab.append(one)
    assert lab.lines() == given_lines


@settings(max_examples=100)
@given(st.lists(lines, min_size=1, max_size=3), lines, st.data())
def test_a_line_that_a_crash_tore_off_costs_no_other_line(folder, before, after, data):
    """Wherever writing stopped, all lines before it are read, and the next one stands on its own."""
    lab = fresh(folder)
    for one in before:
        lab.append(one)
    written = lab.path.read_bytes()
    start_of_last = written[:-1].rfind(b"\n") + 1
    cut = data.draw(st.integers(start_of_last, len(written)))
    lab.path.write_bytes(written[:cut])
    is_whole = cut >= len(written) - 1
    kept = before if is_whole else before[:-1]
    assert lab.lines() == kept
    lab.append(after)
    assert lab.lines() == [*kept, after]
    assert lab.path.read_bytes().endswith(b"\n")
    assert all(json.loads(text) for text in lab.path.read_text().splitlines())


def test_a_line_is_on_the_disk_before_the_next_run_begins(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    Lab(tmp_path / "log.jsonl").append(line())
    assert len(synced) == 1


def test_a_log_that_is_none_is_refused_and_not_harmed(tmp_path):
    for text in ("hello", "hello\n", '{"arm": 1}\n', '{"loss": 1}', '[1]\n{"arm": "a"'):
        path = tmp_path / "notes.txt"
        path.write_text(text)
        with pytest.raises(ValueError, match="line 1 is no run of a sweep"):
            Lab(path).prepare()
        assert path.read_text() == text


def test_a_log_that_cannot_be_written_is_told_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "log.jsonl"):
        with pytest.raises(ValueError, match="choose another --log"):
            Lab(path).prepare()
    Lab(tmp_path / "new" / "folder" / "log.jsonl").prepare()


def _append_many(path: Path, arm: str) -> None:
    for seed in range(20):
        Lab(path).append(line(arm, seed=seed))


def test_two_sweeps_may_write_to_one_log(tmp_path):
    path = tmp_path / "log.jsonl"
    with ThreadPoolExecutor(2) as writers:
        for writing in [writers.submit(_append_many, path, arm) for arm in "ab"]:
            writing.result()
    found = Lab(path).lines()
    assert sorted((one["arm"], one["seed"]) for one in found) == [(arm, seed) for arm in "ab" for seed in range(20)]


def test_who_writes_waits_until_the_other_has_written(tmp_path):
    lab = Lab(tmp_path / "log.jsonl")
    lab.append(line("a"))
    with ThreadPoolExecutor(1) as writers:
        with lab.path.open("ab") as other:
            assert lock(other.fileno(), wait=False)
            writing = writers.submit(lab.append, line("b"))
            with pytest.raises(TimeoutError):
                writing.result(timeout=0.2)
            assert len(lab.lines()) == 1
        writing.result()
    assert len(lab.lines()) == 2


def test_what_is_written_out_is_no_other_run():
    def known_as(*changes: str) -> str:
        return identity(stored(recipe("digits").with_changes(changes)), "", "")

    assert known_as("loss_options.alpha=32", "test_size=32") == known_as()
    margin = ("loss=margin", "dim=96")
    assert known_as(*margin, "miner_options.dim=96") == known_as(*margin), "a miner takes the model's dimension"
    assert known_as(*margin, "miner_options.dim=512") != known_as(*margin)
    for change in ("loss_options.alpha=16", "test_size=48"):
        assert known_as(change) != known_as()


def test_a_run_is_found_by_its_config_its_data_and_its_split(tmp_path):
    lab, config = Lab(tmp_path / "log.jsonl"), recipe("digits")
    assert lab.finished(config, "abc", split="validation") is None
    lab.append(line(config=config, seed=0))
    found = lab.finished(config, "abc", split="validation")
    assert found is not None
    assert found["arm"] == "a"
    assert lab.finished(config, "abd", split="validation") is None
    assert lab.finished(config, "abc", split="test") is None
    assert lab.finished(config.with_changes(["tau=4"]), "abc", split="validation") is None
    assert lab.finished(config.with_changes(["seed=1"]), "abc", split="validation") is None


def test_of_a_run_that_was_tried_again_the_last_line_counts(tmp_path):
    lab = Lab(tmp_path / "log.jsonl")
    lab.append(line(error="full"))
    lab.append(line(scores={"map_at_r": 0.5}))
    assert [one["error"] for one in lab.latest().values()] == [None]


def test_logs_hold_no_path_and_weights_are_the_same_in_any_folder(tmp_path):
    here, there = (
        recipe("digits").with_changes({"weights": weights})
        for weights in ("/home/someone/models/resnet50-v1.safetensors", "elsewhere/resnet50-v1.pt")
    )
    lab = Lab(tmp_path / "log.jsonl")
    lab.append(line(config=here))
    assert "/" not in lab.path.read_text()
    assert lab.lines()[0]["config"]["model"]["weights"] == "resnet50-v1"
    assert lab.finished(there, "abc", split="validation") is not None
    assert stored(recipe("digits"))["model"]["weights"] is None


def test_a_setting_that_is_newer_than_a_line_has_its_default_there():
    config = stored(recipe("digits"))
    older = {part: dict(leaves) for part, leaves in config.items()}
    del older["objective"]["smoothing"]  # which is 1 by default, and in the recipe
    assert identity(older, "", "") == identity(config, "", "")
    older["objective"]["smoothing"] = 0.5
    assert identity(older, "", "") != identity(config, "", "")


def test_lines_of_simpler_logs_are_read_too(tmp_path):
    needed = {name: line()[name] for name in ("arm", "seed", "split", "data", "config")}
    (tmp_path / "log.jsonl").write_text(json.dumps(needed) + "\n")
    (found,) = Lab(tmp_path / "log.jsonl").lines()
    assert (found["scores"], found["error"], found["stopped"]) == ({}, None, None)


def test_runs_of_one_arm_differ_in_their_seeds_alone():
    assert arm_identity(line(seed=0)) == arm_identity(line(seed=1))
    assert arm_identity(line(seed=0)) != arm_identity(line(config=recipe("digits-plain")))


def test_a_rate_that_was_computed_is_the_rate_that_was_written():
    computed, written, other = (
        line(config=recipe("digits").with_changes({"uncertainty_factor": factor, "crop_scale": (share, 1.0)} | options))
        for factor, share, options in (
            (1e-7 / 1e-5, 0.1 + 0.2, {"loss_options.margin": 0.1 + 0.2}),
            (0.01, 0.3, {"loss_options.margin": 0.3}),
            (0.01 + 1e-11, 0.3, {"loss_options.margin": 0.3}),
        )
    )
    assert computed["config"] != written["config"]
    for made in (arm_identity, lambda run: identity(run["config"], "", "")):
        assert made(computed) == made(written) != made(other)


def test_numbers_without_meaning_become_null(tmp_path):
    lab = Lab(tmp_path / "log.jsonl")
    lab.append(line(scores={"map_at_r": float("nan")}, epochs=[{"epoch": 1, "loss": float("inf")}]))
    assert lab.lines()[0]["scores"] == {"map_at_r": None}
    assert lab.lines()[0]["epochs"] == [{"epoch": 1, "loss": None}]


def test_lines_with_settings_that_are_no_more_are_read():
    config = stored(recipe("digits-plain"))
    older = {**config, "model": {**config["model"], "uncertainty_shape": 3}, "former": {"part": 1}}
    assert identity(older, "", "") != identity(config, "", "")


@pytest.mark.parametrize(
    ("idle", "telling"),
    [
        (
            ["introspective=false"],
            [
                "tau=7",
                "uncertainty_factor=3",
                "uncertainty_level=none",
                "distance_scale=relative",
                "taught_by=positives",
                "uncertainty_noise=0.5",
            ],
        ),
        (
            ["uncertainty=random"],
            ["uncertainty_factor=3", "uncertainty_starts_equal=true", "taught_by=positives", "uncertainty_gradient=1"],
        ),
        (["mixing=none"], ["mixed_weight=0.5", "concentration=3", "mixed_from=others"]),
        (["crop=resize_and_crop"], ["crop_scale=0.5,1"]),
        (["loss=contrastive"], ["proxy_factor=7"]),
        (["mixed_against=all"], ["mixed_weight=0.5"]),
        (["loss=contrastive", "mixed_labels=sets"], ["mixed_weight=0.5", "mixed_against=all"]),
        (["loss=contrastive", "mixed_labels=shares"], ["mixed_weight=0.5", "partner_negatives=false"]),
        (["loss=contrastive", "mixed_labels=classes"], ["mixed_weight=0.5", "mixed_against=all"]),
    ],
)
def test_settings_without_effect_make_no_other_run(idle, telling):
    def known_as(changes: list[str]) -> str:
        return identity(stored(recipe("digits").with_changes(changes)), "", "")

    assert known_as([*idle, *telling]) == known_as(idle)
    for change in telling:
        assert known_as([change]) != known_as([])
        assert known_as([*idle, "lr=1", change]) == known_as([*idle, "lr=1"]) != known_as(idle)


def test_settings_of_validation_tell_runs_apart_that_hold_classes_out():
    def known_as(*changes: str) -> str:
        return identity(stored(Config().with_changes(changes)), "", "")

    assert known_as("validation_seed=3", "validate_every=2") == known_as()
    assert known_as("validation_half=first", "validation_seed=3") == known_as("validation_half=first")
    assert known_as("validation_half=first", "validate_every=2") != known_as("validation_half=first")
    assert known_as("validation_share=0.2", "validation_seed=3") != known_as("validation_share=0.2")


def test_how_rates_step_down_tells_runs_apart_that_do():
    def known_as(*changes: str) -> str:
        return identity(stored(Config().with_changes(changes)), "", "")

    for change in ("decay_factor=0.1", "decay_epochs=3"):
        assert known_as("schedule=cosine", change) == known_as("schedule=cosine")
        assert known_as("schedule=step", change) != known_as("schedule=step")


def test_how_two_uncertainties_add_up_is_no_matter_where_one_is_certain():
    def known_as(*changes: str) -> str:
        return identity(stored(Config().with_changes(changes)), "", "")

    other = "pair_uncertainty=sum_of_norms"
    assert known_as(other) == known_as()
    for changes in (["loss=contrastive"], ["learn_proxy_uncertainty=true"]):
        assert known_as(*changes, other) != known_as(*changes)


def test_who_teaches_tells_runs_of_random_uncertainty_apart_whose_proxies_learn_theirs():
    def known_as(*changes: str) -> str:
        random = ["uncertainty=random", "learn_proxy_uncertainty=true"]
        return identity(stored(recipe("digits").with_changes([*random, *changes])), "", "")

    assert known_as("taught_by=positives") != known_as()
    assert known_as("uncertainty_factor=3") == known_as()


def test_a_smallest_share_tells_label_sets_apart_and_nothing_else():
    def known_as(*changes: str) -> str:
        return identity(stored(recipe("digits").with_changes(changes)), "", "")

    assert known_as("mixed_labels=sets", "smallest_share=0.2") != known_as("mixed_labels=sets")
    for labels in ("loss_shares", "shares", "classes"):
        assert known_as(f"mixed_labels={labels}", "smallest_share=0.2") == known_as(f"mixed_labels={labels}")


def test_whom_mixed_images_are_compared_with_tells_losses_without_proxies_apart():
    def known_as(*changes: str) -> str:
        return identity(stored(recipe("digits").with_changes(changes)), "", "")

    assert known_as("mixed_against=originals") == known_as()
    assert known_as("mixed_against=all") != known_as()
    assert known_as("loss=contrastive", "mixed_against=originals") != known_as("loss=contrastive")
