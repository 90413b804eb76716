import runpy
from pathlib import Path

import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.sweeping.lab import Lab
from idml.training.config import Config
from idml.training.workshop import Workshop

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "speed_record.py")
TINY = ["--device", "cpu", "--recipe", "digits", "--set", "backbone=test_resnet", "epochs=3", "batch=20"]
PARTS = ("building", "training", "judging")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(COMMAND)


def test_each_seed_is_a_line_with_its_seconds_and_what_was_not_counted(script, cache, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    script["main"]([str(cache.folder), "none", str(log), "--seeds", "2", *TINY])
    lines = Lab(log).lines()
    assert [(line["arm"], line["seed"], line["split"]) for line in lines] == [
        ("speed digits", 0, "test"),
        ("speed digits", 1, "test"),
    ]
    for line in lines:
        assert line["seconds"] == pytest.approx(sum(line[f"seconds_{part}"] for part in PARTS), abs=0.01)
        assert len(line["epochs"]) == line["config"]["run"]["epochs"] == 3
        assert 0 < line["scores"]["recall@1"] <= 1
        assert line["seconds_compiling"] > 0
        assert line["seconds_loading"] > 0
        assert line["images_on_device"] is False  # a CPU reads test images as it needs them
        assert line["versions"]["torch"]
        assert line["versions"]["device"].startswith("CPU")
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].startswith("not counted: ")
    assert [text.split(":")[0] for text in printed[2:4]] == ["seed 0", "seed 1"]
    assert printed[4].startswith("R@1 ")
    assert printed[4].endswith(("at least 68", "below 68"))


def test_the_run_that_is_thrown_away_changes_no_later_one(script, cache, tmp_path):
    log = tmp_path / "log.jsonl"
    options = ["--seeds", "1", "--first-seed", "5", *TINY]
    script["main"]([str(cache.folder), "none", str(log), *options, "warm_up_epochs=1"])
    (line,) = Lab(log).lines()
    assert line["seed"] == 5
    config = Config.from_dict(line["config"])
    alone = script["timed_run"](config, cache, torch.device("cpu"), Workshop())
    assert alone["scores"] == line["scores"]
    assert [record["loss"] for record in alone["epochs"]] == [record["loss"] for record in line["epochs"]]


def test_mistakes_are_told_in_a_line_before_anything_runs(script, cache, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    with pytest.raises(SystemExit, match="unknown setting 'epoch'"):
        script["main"]([str(cache.folder), "none", str(log), *TINY, "epoch=2"])
    with pytest.raises(SystemExit, match="judges the last epoch"):
        script["main"]([str(cache.folder), "none", str(log), *TINY, "select=best", "validation_half=second"])
    with pytest.raises(SystemExit):
        script["main"]([str(cache.folder), "none", str(log), "--seeds", "0", *TINY])
    assert "--seeds is 0: give at least 1." in capsys.readouterr().err
    assert not log.exists()
