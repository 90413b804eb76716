"""The path every user walks: photos in folders, trained, killed, continued, evaluated, embedded, exported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from caches import draw_photos

from idml.data.cache import Cache
from idml.evaluation.embedded import Embedded

QUICK = ["--set", "epochs=3", "--set", "batch=20"]
NARROW = 80  # columns of a terminal


def test_from_photos_to_a_model_that_was_killed_continued_evaluated_embedded_and_exported(idml, tmp_path):
    photos = draw_photos(tmp_path / "photos")
    code, output, errors = idml("prepare", photos, "--output", "cache", "--size", 40, "--test-share", 0.5, "--json")
    assert code == 0, errors
    words = ["train", "digits", "--data", "cache", "--output", "run", *QUICK]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        [sys.executable, "-m", "idml", *words], env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    checkpoint, deadline = Path("run/checkpoints/last.pt"), time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    code, output, errors = idml(*words)
    assert code == 0, errors
    assert "Recall@1" in output
    own = Path("run/scores.json").read_text()
    code, output, errors = idml("evaluate", "run", "--json", "--resamples", 20)
    assert code == 0, errors
    assert Path("run/scores.json").read_text() == own
    assert json.loads(output)["rises"]["blur"]
    code, output, errors = idml("embed", "run/model", photos, "--output", "all.npz")
    assert code == 0, errors
    found = Embedded.load("all.npz")
    assert len(found.labels) == 80
    assert found.class_names is not None
    assert found.class_names[0] == "class 0"
    assert found.embedding.uncertainty is not None
    code, output, errors = idml("export", "run/model", "--output", "model.onnx")
    assert code == 0, errors
    assert Path("model.onnx").stat().st_size > 0


def test_a_plain_folder_is_prepared_on_the_way(idml, tmp_path):
    photos = draw_photos(tmp_path / "photos", classes=4)
    (photos / "meta.json").write_text('{"album": "of another program"}')
    code, _, errors = idml("train", "digits-plain", "--data", photos, "--set", "epochs=1", "--set", "batch=20")
    assert code == 0, errors
    assert "there are no test classes to score" in errors
    assert Path("runs/digits-plain-photos-seed0/model/model.json").exists()
    (folder,) = Path("runs/caches").iterdir()
    assert Cache.open(folder).meta.size == 37  # for crops of 32


def test_images_that_cannot_be_read_are_listed_or_left_out(idml, tmp_path):
    photos = draw_photos(tmp_path / "photos", classes=4, size=64)
    (photos / "class 1" / "3.png").write_bytes(b"broken off")
    words = ("train", "digits-plain", "--data", photos, "--set", "epochs=1", "--set", "batch=20")
    code, _, errors = idml(*words)
    assert code == 1
    assert "class 1/3.png" in errors
    code, _, errors = idml(*words, "--skip-bad")
    assert code == 0, errors


def test_a_share_of_the_classes_is_kept_for_testing(idml, tmp_path):
    photos = draw_photos(tmp_path / "photos", size=64)
    words = (
        "train",
        "digits",
        "--data",
        photos,
        "--test-share",
        0.25,
        "--set",
        "epochs=1",
        "--set",
        "batch=20",
        "--json",
    )
    code, output, errors = idml(*words)
    assert code == 0, errors
    assert json.loads(output)["class_count"] == 2


@pytest.mark.parametrize(("is_saved", "told"), [(True, "goes on from the checkpoint in run."), (False, "starts anew.")])
def test_an_interrupted_run_says_how_to_go_on(idml, tmp_path, monkeypatch, is_saved, told):
    def interrupt(_config, _cache, folder: Path, **_options) -> None:
        if is_saved:
            (folder / "checkpoints").mkdir(parents=True)
            (folder / "checkpoints" / "last.pt").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("idml.training.loop.train", interrupt)
    photos = draw_photos(tmp_path / "photos", classes=4)
    code, _, errors = idml("train", "digits-plain", "--data", photos, "--output", "run")
    assert code == 130
    assert f"the same command {told}" in errors
    assert "nothing half-written was left behind" in errors


def test_batches_with_few_images_of_a_class_are_told(idml, tmp_path):
    photos = draw_photos(tmp_path / "photos")
    words = ["train", "digits", "--data", photos, "--set", "epochs=1", "--set", "loss=triplet"]
    warning = "warning: triplet compares images of a class, and per_class is none"
    assert warning in idml(*words, "--set", "per_class=none", "--set", "batch=12")[2]
    assert warning not in idml(*words, "--set", "per_class=none", "--set", "batch=20", "--output", "larger")[2]
    assert warning not in idml(*words, "--set", "per_class=4", "--set", "batch=20", "--output", "other")[2]


def test_settings_without_effect_are_told(idml, tmp_path):
    words = ["train", "digits", "--data", draw_photos(tmp_path / "photos"), *QUICK, "--set", "introspective=false"]
    code, output, errors = idml(*words, "--set", "tau=3", "--set", "uncertainty_factor=2", "--test-share", 0.5)
    assert code == 0, errors
    assert "warning: tau, uncertainty_factor have no effect beside these settings" in errors
    assert " classes" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "--data is missing"),
        (["train", "--data", "nowhere"], "there is no nowhere"),
        (["train", "--data", "photos"], "photos is empty: give a folder with one folder of images a class."),
        (["train", "photos/"], "photos/ is there, but no recipe: did you mean --data photos/?"),
        (["train", "digits", "--data", ".", "--set", "margin=3"], "write loss_options.margin=VALUE."),
        (["train", "digit", "--data", "."], "unknown recipe 'digit': did you mean 'digits'?"),
        (["train", "digits", "--data", ".", "--set", "taus=3"], "unknown setting 'taus': did you mean 'tau'?"),
        (["train", "digits", "--data", ".", "--set", "select=best"], "Test classes are never selected on"),
        (
            ["train", "digits", "--data", "photos", "--test-share", "1"],
            "test_share is 1.0: give a share of the classes",
        ),
        (["embed", "nowhere", "nothing.png"], "there is no image nothing.png"),
        (["embed", "nowhere", ".", "--output", "x.csv"], "ends in '.csv'"),
    ],
)
def test_mistakes_are_told_in_a_line_or_two(idml, words, message):
    Path("photos").mkdir()
    code, _, errors = idml(*words)
    assert code == 1
    assert message in errors
    assert len(errors.strip().splitlines()) <= 2


def test_the_demo_prints_both_rows_and_draws_a_report(idml, monkeypatch):
    monkeypatch.setattr("idml.cli.demo.recipe", lambda name: _quick(name))
    code, output, errors = idml("demo", "--output", "demo")
    assert code == 0, errors
    assert "introspective" in output
    assert "level rises, blur" in output
    table = [line for line in output.splitlines() if line.startswith(("┃", "│"))]
    assert {len(line) for line in table} <= set(range(NARROW + 1))
    assert all(line.count("(") == line.count(")") for line in table)  # no interval is broken in two
    assert Path("demo/introspective/report.html").exists()


def _quick(name: str):
    from idml.recipes import recipe

    return recipe(name).with_changes(["epochs=1"])
