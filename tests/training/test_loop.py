import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.models.embedder import Embedder
from idml.recipes import recipe
from idml.training.checkpoint import LAST
from idml.training.config import Config
from idml.training.loop import train
from idml.training.runs import RunFolder

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def small(*changes: str) -> Config:
    return recipe("digits").with_changes(["epochs=3", "batch=20", *changes])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return Embedder.load(folder / "model").state_dict()


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_a_run_leaves_a_model_scores_a_report_curves_and_a_log(cache, tmp_path):
    scores = train(small(), cache, tmp_path)
    assert json.loads(json.dumps(scores)) == json.loads((tmp_path / "scores.json").read_text())
    for name in ("report.html", "curves.png", "embeddings.safetensors", "log.jsonl", "config.json", "model/model.json"):
        assert (tmp_path / name).exists(), name
    records = RunFolder(tmp_path).records()
    assert [record["epoch"] for record in records] == [1, 2, 3]
    for name in ("level_clean", "level_mixed", "saturated_pairs", "gradient_backbone", "gradient_semantic_embedding"):
        assert name in records[-1]
    saved = json.loads((tmp_path / "config.json").read_text())
    assert Config.from_dict(saved["config"]) == small()
    assert saved["versions"]["torch"] == torch.__version__


def test_the_same_seed_gives_the_same_weights_and_another_one_others(cache, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        train(small(f"seed={seed}", "epochs=1"), cache, tmp_path / name)
    assert_same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    name = "heads.semantic.weight"
    assert not torch.equal(weights(tmp_path / "one")[name], weights(tmp_path / "three")[name])


def test_the_level_of_mixed_images_and_the_loss_follow_a_golden_curve(cache, tmp_path):
    """A refactoring must not change what training does."""
    train(small(), cache, tmp_path)
    records = RunFolder(tmp_path).records()
    golden = json.loads((TESTS / "golden" / "digits.json").read_text())
    for name, values in golden.items():
        assert [record[name] for record in records] == pytest.approx(values, rel=0.02), name


def test_validation_classes_are_not_trained_on_and_choose_the_epoch(cache, tmp_path):
    train(small("validation_share=0.5", "select=best"), cache, tmp_path)
    records = RunFolder(tmp_path).records()
    assert all("validation_map_at_r" in record for record in records)
    saved = torch.load(tmp_path / "checkpoints" / "best.pt", weights_only=True)
    best = max(range(3), key=lambda place: records[place]["validation_map_at_r"])
    assert saved["place"]["best_epoch"] == best
    assert saved["objective"]["proxies.semantic"].shape[0] == 2  # of four training classes
    assert Embedder.load(tmp_path / "model").calibration is not None


@pytest.mark.parametrize("changes", [["accumulate=2"], ["cached_chunk=7"], ["schedule=cosine", "warm_up_epochs=1"]])
def test_other_ways_of_training_run(cache, tmp_path, changes):
    scores = train(small("epochs=2", *changes), cache, tmp_path)
    assert 0 < scores["map_at_r"] <= 1


@pytest.mark.parametrize(
    "loss", ["multi_similarity", "contrastive", "margin", "triplet", "fast_ap", "softmax", "proxy_nca"]
)
def test_every_loss_trains(cache, tmp_path, loss):
    config = small("epochs=1", f"loss={loss}", "per_class=5", "mixed_labels=sets")
    assert train(config, cache, tmp_path)["recall"][1] > 0.3


def test_a_plain_run_has_no_uncertainty(cache, tmp_path):
    scores = train(small("epochs=1").plain(), cache, tmp_path)
    assert scores["uncertainty"] is None
    assert Embedder.load(tmp_path / "model").heads.uncertainty is None


RUN = """
import sys
sys.path.insert(0, sys.argv[3])
from idml.training import loop
from idml.training.config import Config
from idml.recipes import recipe
loop.LOOK_EVERY = 1
config = recipe("digits").with_changes(["epochs=3", "batch=20", "checkpoint_minutes=0"])
loop.train(config, sys.argv[1], sys.argv[2])
print("finished", flush=True)
"""


def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(cache, tmp_path):
    """Killed for real, at several moments, and started again by the same command."""
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(RUN))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(folder: Path) -> subprocess.Popen:
        words = [sys.executable, str(script), str(cache.folder), str(folder), str(TESTS)]
        return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait(timeout=120) == 0
    killed = tmp_path / "killed"
    last = RunFolder(killed).checkpoint(LAST)
    for kill in range(2):
        run, before = start(killed), last.stat().st_mtime_ns if last.exists() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and run.poll() is None:
            if last.exists() and last.stat().st_mtime_ns > before:
                time.sleep(0.01 * kill)
                break
            time.sleep(0.001)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert start(killed).wait(timeout=120) == 0
    assert_same(weights(tmp_path / "whole"), weights(killed))
    assert [record["epoch"] for record in RunFolder(killed).records()] == [1, 2, 3]


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(cache, tmp_path):
    train(small("epochs=1"), cache, tmp_path / "a")
    good = torch.load(RunFolder(tmp_path / "a").checkpoint(LAST), weights_only=True)["place"]
    assert good["epoch"] == 1
    with pytest.raises(ValueError, match="NaN or infinity|the loss is (nan|inf) in epoch 1"):
        train(small("lr=1e30", "clip=none", "mixing=none", "introspective=false"), cache, tmp_path / "b")
    assert not RunFolder(tmp_path / "b").checkpoint(LAST).exists()


def test_another_config_does_not_continue_a_run(cache, tmp_path):
    train(small("epochs=1"), cache, tmp_path)
    with pytest.raises(ValueError, match="is a run with other settings \\(tau 5.0 instead of 3.0\\)"):
        train(small("epochs=1", "tau=3"), cache, tmp_path)


def test_a_damaged_checkpoint_is_named(cache, tmp_path):
    train(small("epochs=1"), cache, tmp_path)
    RunFolder(tmp_path).checkpoint(LAST).write_bytes(b"broken off")
    with pytest.raises(ValueError, match="last.pt cannot be continued from"):
        train(small("epochs=1"), cache, tmp_path)
