import json
from pathlib import Path

import pytest
from caches import draw_cache
from trials import FakeTrial

from idml.sweeping.lab import Lab

QUICK = ("--set", "epochs=4", "--device", "cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return Path(draw_cache(tmp_path_factory.mktemp("data")).folder)


@pytest.fixture
def trial(monkeypatch) -> FakeTrial:
    """Runs that train nothing."""
    fake = FakeTrial()
    monkeypatch.setattr("idml.sweeping.trial.run_trial", fake)
    monkeypatch.setattr("os.fsync", lambda _file: None)
    return fake


def test_a_grid_is_compared_drawn_and_shown_again(idml, cache, trial):
    words = ("sweep", "digits", "--data", cache, "--over", "tau=2,3,4", "--plot", "tau.png", *QUICK)
    code, output, errors = idml(*words)
    assert code == 0, errors
    assert len(trial.calls) == 9
    rows = [line for line in output.splitlines() if line.startswith("│ tau=")]
    assert "tau=3" in rows[0]
    assert "differences from tau=2" in " ".join(output.split())
    assert "validation classes of cache: mean ± standard deviation over seeds" in output
    assert "9/9  tau=4, seed 2  MAP@R " in errors
    assert Path("tau.png").stat().st_size > 0
    again = idml(*words)
    assert again[1] == output
    assert "9 of 9 runs are in the log already" in again[2]
    assert len(trial.calls) == 9
    assert idml("sweep", "--show", "--log", "results.jsonl")[1] in output


def test_json_is_all_that_is_printed_for_programs(idml, cache, trial):
    words = ("sweep", "digits", "digits-plain", "--data", cache, "--seeds", "0,4", "--by", "recall@1", *QUICK, "--json")
    code, output, errors = idml(*words)
    assert code == 0, errors
    rows = json.loads(output)
    assert {row["arm"] for row in rows} == {"digits", "digits-plain"}
    assert rows[0]["seeds"] == [0, 4]
    assert rows[0]["split"] == "validation"
    assert json.loads(idml("sweep", "--show", "--json")[1]) == json.loads(idml("sweep", "--show", "--json")[1])
    assert [config.data.validation_half for config in trial.calls] == ["second"] * 4


def test_arms_of_a_file_are_scored_finally_on_the_test_classes(idml, cache, trial):
    Path("arms.txt").write_text("ours: digits tau=3  # chosen on validation classes\nplain: digits-plain\n")
    words = ("sweep", "--arms", "arms.txt", "--final", "--data", cache, "--against", "plain", *QUICK)
    code, output, errors = idml(*words)
    assert code == 0, errors
    assert "NMI" in output
    assert "test classes of cache" in output
    assert "differences from plain" in " ".join(output.split())
    assert {config.data.validation_half for config in trial.calls} == {"none"}
    assert {line["split"] for line in Lab("results.jsonl").lines()} == {"test"}


def test_a_log_of_validation_and_test_runs_is_shown_as_two_tables(idml, cache, trial):
    idml("sweep", "digits", "--data", cache, "--over", "tau=1,3", "--seeds", 2, *QUICK)
    idml("sweep", "digits", "--data", cache, "--set", "tau=3", "--final", "--seeds", 2, *QUICK)
    code, output, errors = idml("sweep", "--show", "--against", "tau=3")
    assert code == 0, errors
    assert "validation classes of" in output
    assert "test classes of" in output
    assert len(trial.calls) == 6
    code, _, errors = idml("sweep", "--show", "--against", "tau=4")
    assert code == 1
    assert "unknown arm 'tau=4'" in errors


def test_what_does_not_fit_the_window_is_left_out_and_said(idml, cache, trial, monkeypatch):
    Path("arms.txt").write_text("[bold] ours: digits\nplain: digits-plain\n")
    code, output, errors = idml("sweep", "--arms", "arms.txt", "--data", cache, *QUICK)
    assert code == 0, errors
    assert "[bold] ours" in output  # no markup
    assert "R-AUROC %" in output
    assert "wider window" not in output
    monkeypatch.setenv("COLUMNS", "60")
    output = idml("sweep", "--show")[1]
    assert "R-AUROC %" not in output
    assert "MAP@R %" in output
    assert "wider window" in output
    assert len(trial.calls) == 6


def test_settings_without_effect_are_told_and_none_is_swept_over(idml, cache, trial):
    words = ("sweep", "digits-plain", "--data", cache, "--seeds", "1", *QUICK)
    assert "warning: tau has no effect beside these settings" in idml(*words, "--set", "tau=3")[2]
    assert "warning" not in idml(*words, "digits", "--set", "tau=3")[2]
    code, _, errors = idml(*words, "--over", "tau=1,3")
    assert code != 0
    assert "tau has no effect beside these settings" in errors
    assert len(trial.calls) == 2


def test_a_random_search_is_prolonged_without_repeating_itself(idml, cache, trial):
    words = ("sweep", "digits", "--data", cache, "--over", "lr=1e-4..1e-2", "--seeds", 1, *QUICK)
    assert idml(*words, "--trials", 3)[0] == 0
    assert idml(*words, "--trials", 5)[0] == 0
    assert len({config.optimiser.lr for config in trial.calls}) == len(trial.calls) == 5
    assert all(1e-4 <= config.optimiser.lr <= 1e-2 for config in trial.calls)


def test_an_interrupted_sweep_says_that_the_same_command_goes_on(idml, cache, trial):
    def interrupt(config) -> None:
        if config.run.seed == 1:
            raise KeyboardInterrupt

    trial.before = interrupt
    code, output, errors = idml("sweep", "digits", "--data", cache, *QUICK)
    assert code == 130
    assert output == ""
    assert "1 of 3 runs are in results.jsonl: the same command goes on from there." in errors


def test_failed_and_stopped_runs_are_told_and_tried_again_when_asked(idml, cache, trial):
    def fail(config) -> None:
        if config.objective.tau == 4:
            raise RuntimeError("CUDA out of [memory]")

    trial.before = fail
    words = ("sweep", "digits", "--data", cache, "--over", "tau=2,3,4,5,90", "--seeds", 1, *QUICK)
    code, output, errors = idml(*words)
    assert code == 0, errors
    assert "tau=4, seed 0 failed: RuntimeError: CUDA out of [memory]" in output
    assert "failed: RuntimeError: CUDA out of [memory]" in errors
    assert "stopped after epoch 1, for it is behind" in errors
    assert "0, 1 stopped" in output
    trial.before = lambda _config: None
    assert "failed" in idml(*words)[1]
    assert "failed" not in idml(*words, "--retry")[1]
    assert "stopped" not in idml(*words, "--retry", "--stop-below", 0)[1]


def test_a_sweep_of_failures_alone_is_a_failure(idml, cache, trial):
    def fail(_config) -> None:
        raise ValueError("the loss is nan: lower lr")

    trial.before = fail
    code, _, errors = idml("sweep", "digits", "--data", cache, *QUICK)
    assert code == 1
    assert "all 3 runs failed, the first with: the loss is nan: lower lr" in errors


def test_validation_classes_may_be_the_first_half_a_share_or_folds(idml, cache, trial):
    words = ("sweep", "digits", "--data", cache, "--seeds", 1, *QUICK)
    assert idml(*words, "--validate", "first")[0] == 0
    assert idml(*words, "--validate", "0.5")[0] == 0
    assert idml(*words, "--validate", "2-fold")[0] == 0
    first, share, folds = (config.data for config in trial.calls)
    assert (first.validation_half, first.validation_share) == ("first", 0)
    assert (share.validation_half, share.validation_share) == ("none", 0.5)
    assert (folds.validation_half, folds.validation_share, folds.validation_folds) == ("none", 0, 2)


@pytest.mark.usefixtures("trial")
def test_scores_by_epoch_are_shown_of_a_log(idml, cache):
    assert idml("sweep", "digits", "--data", cache, "--over", "tau=1,3", "--set", "epochs=3", *QUICK)[0] == 0
    code, output, _ = idml("sweep", "--show", "--epochs")
    assert code == 0
    assert "best epoch" in output
    assert [curve["arm"] for curve in json.loads(idml("sweep", "--show", "--epochs", "--json")[1])] == [
        "tau=3",
        "tau=1",
    ]
    code, _, errors = idml("sweep", "--show", "--epochs", "--by", "nmi")
    assert code == 1
    assert "unknown score by epoch 'nmi'" in errors
    assert idml("sweep", "digits", "--data", cache, "--final", "--log", "final.jsonl", *QUICK)[0] == 0
    assert (
        "no run in the log was validated on the way" in idml("sweep", "--show", "--epochs", "--log", "final.jsonl")[2]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits", "--data", "{cache}", "--epochs"], "--epochs shows runs that are done"),
        (["digits"], "--data is missing"),
        (["digits", "--data", "nowhere"], "there is no folder nowhere"),
        (["digits", "--data", "."], "holds no finished cache"),
        (["--data", "{cache}"], "there is nothing to train: name a recipe"),
        (["digit", "--data", "{cache}"], "unknown recipe 'digit': did you mean 'digits'?"),
        (["digits", "--data", "{cache}", "--set", "taus=3"], "unknown setting 'taus': did you mean 'tau'?"),
        (["digits", "--data", "{cache}", "--over", "taus=3,4"], "unknown setting 'taus': did you mean 'tau'?"),
        (["digits", "--data", "{cache}", "--over", "tau=3,x"], "tau is 'x'"),
        (["digits", "--data", "{cache}", "--set", "tau=1", "--over", "tau=3,4"], "tau is in --set and in --over"),
        (["digits", "--data", "{cache}", "--set", "seed=1"], "seed is decided by --seeds"),
        (["digits", "--data", "{cache}", "--over", "tau=3,4", "--final"], "would choose on the test classes"),
        (["digits", "--data", "{cache}", "--over", "tau=3,4", "--trials", "3"], "--trials is for ranges"),
        (["digits", "--data", "{cache}", "--trials", "3"], "--trials is for ranges"),
        (["digits", "--data", "{cache}", "--over", "tau=1..9"], "is a range: say how many draws"),
        (["digits", "--data", "{cache}", "--seeds", "x"], "--seeds is 'x'"),
        (["digits", "--data", "{cache}", "--seeds", "0"], "--seeds is '0'"),
        (["digits", "--data", "{cache}", "--seeds", "-1,2"], "--seeds is '-1,2'"),
        (["digits", "--data", "{cache}", "--validate", "third"], "--validate is 'third'"),
        (["digits", "--data", "{cache}", "--validate", "0"], "--validate is '0'"),
        (["digits", "--data", "{cache}", "--by", "map"], "unknown score 'map'"),
        (["digits", "--data", "{cache}", "--by", "nmi"], "nmi is computed with --final alone"),
        (["digits", "--data", "{cache}", "--stop-below", "80"], "stop-below is 80"),
        (["digits", "--data", "{cache}", "--against", "digit"], "unknown arm 'digit': did you mean 'digits'?"),
        (["digits", "--data", "{cache}", "--plot", "a.png"], "--plot draws a grid over one or two settings"),
        (["digits", "--data", "{cache}", "--arms", "arms.txt"], "there is no text file arms.txt"),
        (["digits", "--data", "{cache}", "--log", "."], "choose another --log"),
        (["digits", "--data", "{cache}", "--device", "tpu"], "device 'tpu' is not here"),
        (["digits", "--data", "{cache}", "--set", "backbone=resnet5"], "unknown backbone 'resnet5'"),
        (["digits", "--data", "{cache}", "--validate", "1-fold"], "--validate is '1-fold'"),
        (["digits", "--data", "{cache}", "--validate", "5-fold", "--final"], "--final trains on all of them"),
        (
            ["digits", "--data", "{cache}", "--over", "tau=3,4", "--plot", "{cache}/meta.json/tau.png"],
            "meta.json/tau.png cannot be written",
        ),
        (["--show", "--log", "none.jsonl"], "--log none.jsonl is not there"),
        (["--show", "--log", "."], "--log . is a folder"),
        (["--show", "--final"], "--show runs nothing"),
        (["--show", "--seeds", "3"], "--show runs nothing"),
        (["--show", "--retry"], "--show runs nothing"),
        (["digits", "--show"], "--show runs nothing"),
    ],
)
def test_mistakes_are_told_in_a_line_or_two_before_anything_runs(idml, cache, trial, words, message):
    code, output, errors = idml("sweep", *(word.format(cache=cache) for word in words))
    assert code == 1
    assert output == ""
    assert message in errors
    assert len(errors.strip().splitlines()) <= 2
    assert not trial.calls


def test_torchrun_is_told_that_a_sweep_needs_one_device(idml, cache, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, errors = idml("sweep", "digits", "--data", cache)
    assert code == 1
    assert "a sweep runs on one device" in errors


def test_an_empty_log_has_nothing_to_show(idml):
    Path("results.jsonl").write_text("")
    assert "results.jsonl holds no runs yet" in idml("sweep", "--show")[2]


def test_a_real_sweep_leaves_its_log_alone(idml, cache, tmp_path):
    words = ("--set", "epochs=1", "--set", "batch=20", "--seeds", "1", "--device", "cpu", "--json")
    code, output, errors = idml("sweep", "digits", "digits-plain", "--data", cache, *words)
    assert code == 0, errors
    assert {row["arm"] for row in json.loads(output)} == {"digits", "digits-plain"}
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]
    assert str(tmp_path) not in Path("results.jsonl").read_text()
