import json

import pytest
import torch
from caches import draw_cache
from trials import FakeTrial, score_of

from idml.data.cache import Cache
from idml.sweeping.halting import Halting
from idml.sweeping.lab import Lab
from idml.sweeping.space import arms_of_file, arms_of_recipes, make_arms, read_over
from idml.sweeping.summary import summarise
from idml.sweeping.sweep import Plan, sweep
from idml.sweeping.trial import run_trial
from idml.training.config import Config

CPU = torch.device("cpu")
HALF = {"validation_half": "second"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Lab:
    monkeypatch.setattr("os.fsync", lambda _file: None)
    return Lab(tmp_path / "log.jsonl")


def plan_of(cache: Cache, *overs: str, seeds=(0, 1), epochs: int = 4, is_final: bool = False) -> Plan:
    bases = arms_of_recipes(["digits"], [f"epochs={epochs}"], validation={} if is_final else HALF)
    return Plan(make_arms(bases, [read_over(text) for text in overs]), seeds, cache, is_final=is_final)


def ran(trial: FakeTrial) -> list[tuple[float, int]]:
    return [(config.objective.tau, config.run.seed) for config in trial.calls]


def table(lines: list[dict]) -> list[dict]:
    return [result.to_dict() for result in summarise(lines)]


def test_all_arms_run_at_one_seed_before_the_next_seed_begins(cache, lab):
    trial = FakeTrial()
    lines = sweep(plan_of(cache, "tau=1,3"), lab, device=CPU, trial=trial)
    assert ran(trial) == [(1, 0), (3, 0), (1, 1), (3, 1)]
    assert [(line["arm"], line["seed"]) for line in lines] == [("tau=1", 0), ("tau=3", 0), ("tau=1", 1), ("tau=3", 1)]
    assert lab.lines() == lines
    assert lines[0]["versions"]["torch"] == torch.__version__
    assert lines[0]["data"] == cache.meta.index_checksum
    assert lines[0]["scores"]["map_at_r"] == score_of(trial.calls[0], 4)
    assert Config.from_dict(lines[0]["config"]) == trial.calls[0]


def test_arms_with_seeds_of_their_own_run_as_often_as_these_say(cache, lab, tmp_path):
    path = tmp_path / "arms.txt"
    path.write_text("often: digits tau=1 seeds=3\nonce: digits tau=3 seeds=5,\nusual: digits tau=5\n")
    trial = FakeTrial()
    sweep(Plan(arms_of_file(path, ["epochs=4"], validation=HALF), (0, 1), cache), lab, device=CPU, trial=trial)
    assert ran(trial) == [(1, 0), (5, 0), (1, 1), (5, 1), (1, 2), (3, 5)]


def test_one_workshop_serves_all_runs(cache, lab):
    trial = FakeTrial()
    sweep(plan_of(cache, "tau=1,3"), lab, device=CPU, trial=trial)
    assert len(trial.workshops) == 1


@pytest.mark.parametrize("killed_at", range(6))
def test_a_sweep_that_was_interrupted_does_nothing_twice_and_ends_with_the_same_table(cache, lab, tmp_path, killed_at):
    plan = plan_of(cache, "tau=1,3,90")
    whole = sweep(plan, Lab(tmp_path / "whole.jsonl"), device=CPU, trial=FakeTrial())
    left = iter(range(killed_at))

    def interrupt(_config: Config) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    first, second = FakeTrial(interrupt), FakeTrial()
    with pytest.raises(KeyboardInterrupt):
        sweep(plan, lab, device=CPU, trial=first)
    assert len(lab.lines()) == killed_at
    lab.path.write_bytes(lab.path.read_bytes() + b'{"arm": "tau') if killed_at else None  # and torn off
    lines = sweep(plan, lab, device=CPU, trial=second)
    assert ran(first)[:-1] + ran(second) == [(1, 0), (3, 0), (90, 0), (1, 1), (3, 1), (90, 1)]
    assert table(lines) == table(whole)
    assert [line["stopped"] for line in lines] == [line["stopped"] for line in whole]
    third = FakeTrial()
    assert sweep(plan, lab, device=CPU, trial=third) == lines
    assert not third.calls


def test_more_seeds_and_arms_run_only_what_is_new(cache, lab):
    sweep(plan_of(cache, "tau=1,3", seeds=[0]), lab, device=CPU, trial=FakeTrial())
    trial = FakeTrial()
    lines = sweep(plan_of(cache, "tau=1,2,3", seeds=[0, 1]), lab, device=CPU, trial=trial)
    assert ran(trial) == [(2, 0), (1, 1), (2, 1), (3, 1)]
    assert len(lines) == 6


def test_runs_go_by_the_names_of_the_present_arms(cache, lab):
    sweep(plan_of(cache, "tau=5", seeds=[0]), lab, device=CPU, trial=FakeTrial())
    trial = FakeTrial()
    (line,) = sweep(plan_of(cache, seeds=[0]), lab, device=CPU, trial=trial)
    assert line["arm"] == "digits"  # whose tau is 5
    assert not trial.calls


def test_final_runs_are_others_than_those_to_choose_by(cache, lab):
    sweep(plan_of(cache), lab, device=CPU, trial=FakeTrial())
    lines = sweep(plan_of(cache, is_final=True), lab, device=CPU, trial=FakeTrial())
    assert {line["split"] for line in lines} == {"test"}
    assert "nmi" in lines[0]["scores"]
    assert len(lab.lines()) == 4


def failing(error: Exception, *, tau: float):
    def before(config: Config) -> None:
        if config.objective.tau == tau:
            raise error

    return before


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("the loss is nan in epoch 2: lower lr.\nMore."), "the loss is nan in epoch 2: lower lr"),
        (ValueError("there is no file /home/me/a.pt: give one"), "there is no file a.pt: give one"),
        (RuntimeError("shapes differ"), "RuntimeError: shapes differ"),
        (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemoryError: CUDA out of memory"),
        (ZeroDivisionError(), "ZeroDivisionError: ZeroDivisionError"),
    ],
)
def test_a_run_that_fails_is_written_down_and_the_sweep_goes_on(cache, lab, error, told):
    plan = plan_of(cache, "tau=1,3", seeds=[0, 1])
    lines = sweep(plan, lab, device=CPU, trial=FakeTrial(failing(error, tau=1)))
    assert [line["error"] for line in lines] == [told, None, told, None]
    again = FakeTrial()
    assert sweep(plan, lab, device=CPU, trial=again) == lines
    assert not again.calls
    lines = sweep(plan, lab, device=CPU, retry=True, trial=again)
    assert ran(again) == [(1, 0), (1, 1)]
    assert [line["error"] for line in lines] == [None] * 4


def test_after_memory_ran_out_the_next_run_gets_a_new_workshop(cache, lab):
    kept = []

    class Keeping(FakeTrial):
        def __call__(self, *args, workshop, **options):
            kept.append(workshop)
            return super().__call__(*args, workshop=workshop, **options)

    trial = Keeping(failing(torch.OutOfMemoryError("full"), tau=1))
    sweep(plan_of(cache, "tau=1,3,4", seeds=[0]), lab, device=CPU, trial=trial)
    assert kept[0] is not kept[1]
    assert kept[1] is kept[2]


def test_the_epochs_before_a_failure_are_kept(cache, lab):
    def diverging(config: Config, epoch: int) -> float:
        if epoch == 3:
            raise ValueError("the loss is nan")
        return score_of(config, epoch)

    (line,) = sweep(plan_of(cache, seeds=[0]), lab, device=CPU, trial=FakeTrial(score=diverging))
    assert [record["epoch"] for record in line["epochs"]] == [1, 2]
    assert line["scores"] == {}


def test_a_failing_lab_is_not_taken_for_a_failing_run(cache, lab, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lab, "append", full)
    with pytest.raises(OSError, match="No space left"):
        sweep(plan_of(cache), lab, device=CPU, trial=FakeTrial())


def test_hopeless_runs_are_stopped_once_three_have_finished(cache, lab):
    plan = plan_of(cache, "tau=3,4,5,90,2", seeds=[0])
    lines = sweep(plan, lab, device=CPU, trial=FakeTrial())
    assert [line["stopped"] for line in lines] == [None, None, None, 1, None]
    assert len(lines[3]["epochs"]) == 1
    trial = FakeTrial()
    sweep(plan, lab, device=CPU, trial=trial)
    sweep(plan, lab, device=CPU, trial=trial, retry=True)
    assert not trial.calls  # a stopped run is done
    lines = sweep(plan, lab, device=CPU, trial=trial, retry=True, halting=Halting(share=0))
    assert ran(trial) == [(90, 0)]
    assert [line["stopped"] for line in lines] == [None] * 5


def test_variants_without_effect_share_their_runs_and_keep_their_rows(cache, lab):
    bases = arms_of_recipes(["digits-plain", "digits"], ["epochs=1"], validation=HALF)
    plan = Plan(make_arms(bases, [read_over("tau=1,3")]), (0, 1), cache)
    trial = FakeTrial()
    lines = sweep(plan, lab, device=CPU, trial=trial)
    assert len(trial.calls) == 3 * 2  # of digits-plain one, whatever tau is
    results = summarise(lines, against="digits-plain tau=3")
    names = ["digits-plain tau=1", "digits-plain tau=3", "digits tau=1", "digits tau=3"]
    assert sorted(result.arm for result in results) == sorted(names)
    assert all(result.finished == [0, 1] for result in results)


def test_a_run_that_several_variants_share_is_one_run_to_be_held_against(cache, lab):
    bases = arms_of_recipes(["digits-plain", "digits"], ["epochs=4"], validation=HALF)
    plan = Plan(make_arms(bases, [read_over("tau=1,3,5,7")]), (0,), cache)
    trial = FakeTrial(score=lambda config, _epoch: 0.1 if config.objective.introspective else 0.9)
    lines = sweep(plan, lab, device=CPU, trial=trial, halting=Halting(share=0.8))
    assert [line["stopped"] for line in lines if line["arm"] == "digits tau=1"] == [None]


def test_unknown_layers_are_found_before_anything_is_trained(cache):
    bases = arms_of_recipes(["digits"], [], validation=HALF)
    plan = Plan(make_arms(bases, [read_over("frozen_layers=none;conv1;layr1")]), (0,), cache)
    with pytest.raises(ValueError, match="arm 'frozen_layers=layr1': unknown layer 'layr1'"):
        plan.check()


def test_runs_on_harder_classes_are_compared_among_themselves(cache, lab):
    bases = arms_of_recipes(["digits"], ["epochs=4"], validation={"validation_folds": 2})
    plan = Plan(make_arms(bases, [read_over("tau=1,3,5,90")]), (0, 1), cache)

    def score(config: Config, epoch: int) -> float:
        return score_of(config, epoch) / (1 + 9 * config.run.seed)

    lines = sweep(plan, lab, device=CPU, trial=FakeTrial(score=score))
    assert [line["stopped"] for line in lines] == [None, None, None, 1] * 2
    assert {result.arm: result.finished for result in summarise(lines)}["tau=1"] == [0, 1]


def test_runs_of_other_sweeps_in_the_log_stop_nobody(cache, lab):
    sweep(plan_of(cache, "tau=3,4,5", seeds=[0]), lab, device=CPU, trial=FakeTrial())
    (line,) = sweep(plan_of(cache, "tau=90", seeds=[0]), lab, device=CPU, trial=FakeTrial())
    assert line["stopped"] is None


def test_the_watch_hears_of_every_run(cache, lab):
    heard = []

    class Watching:
        def begin(self, *, runs: int, done: int) -> None:
            heard.append(("begin", runs, done))

        def run(self, arm: str, seed: int):
            from idml.training.watching import Silent

            heard.append((arm, seed))
            return Silent()

        def finished(self, line: dict) -> None:
            heard.append(line["error"])

        def end(self) -> None:
            heard.append("end")

    sweep(plan_of(cache, "tau=3", seeds=[0]), lab, device=CPU, trial=FakeTrial())
    trial = FakeTrial(failing(ValueError("bad"), tau=4))
    sweep(plan_of(cache, "tau=3,4", seeds=[0]), lab, device=CPU, watch=Watching(), trial=trial)
    assert heard == [("begin", 2, 1), ("tau=4", 0), "bad", "end"]


def test_a_device_that_answers_no_more_ends_the_sweep_which_can_go_on(cache, lab, monkeypatch):
    """What a GPU does after an illegal access: every later call fails."""

    def broken(*_args: object, **_options: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "zeros", broken)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    trial = FakeTrial(failing(RuntimeError("CUDA error"), tau=1))
    with pytest.raises(ValueError, match="answers no more since arm 'tau=1', seed 0 failed .*run the same command"):
        sweep(plan_of(cache, "tau=1,3"), lab, device=torch.device("cuda"), trial=trial)
    assert len(lab.lines()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["backbone=resnet5"], "unknown backbone 'resnet5'"),
        (["weights=nowhere.pt"], "there is no file nowhere.pt"),
        (["select=best"], "leave select=best out"),
    ],
)
def test_what_would_spoil_every_run_is_told_before_the_first(cache, changes, message):
    arms = make_arms(arms_of_recipes(["digits"], changes, validation=HALF), [])
    with pytest.raises(ValueError, match=message) as mistake:
        Plan(arms, [0], cache).check()
    assert "\n" not in str(mistake.value)
    with pytest.raises(ValueError, match="arm 'digits tau=1': "):
        Plan(
            make_arms([*arms, *arms_of_recipes(["digits-plain"], [], validation=HALF)], [read_over("tau=1")]),
            [0],
            cache,
        ).check()


def test_too_few_classes_are_told_before_the_first_run(tmp_path):
    cache = draw_cache(tmp_path, classes=6, per_class=2)
    with pytest.raises(ValueError, match="3 classes cannot be parted in two"):
        plan_of(cache).check()
    plan_of(cache, is_final=True).check()
    with pytest.raises(ValueError, match="no test classes to score"):
        plan_of(draw_cache(tmp_path / "other", classes=4, per_class=2, test_share=0), is_final=True).check()


def test_real_runs_are_compared_from_end_to_end(cache, lab):
    bases = arms_of_recipes(["digits", "digits-plain"], ["epochs=2", "batch=20"], validation=HALF)
    plan = Plan(make_arms(bases, []), [0, 1], cache)
    plan.check()
    lines = sweep(plan, lab, device=CPU, trial=run_trial)
    assert [line["error"] for line in lines] == [None] * 4
    assert all(len(line["epochs"]) == 2 for line in lines)
    found = {result.arm: result for result in summarise(lines)}
    assert found["digits"].finished == [0, 1]
    assert "r_auroc" in found["digits"].values or "level_clean" in found["digits"].values
    assert "level_clean" not in found["digits-plain"].values
    alone = sweep(Plan(plan.arms, [1], cache), Lab(lab.path.with_name("alone.jsonl")), device=CPU)
    kept = [line["scores"] for line in lines if line["seed"] == 1]
    assert json.dumps([line["scores"] for line in alone]) == json.dumps(kept)  # a shared workshop changes nothing
