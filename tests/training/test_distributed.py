import json
import os
import subprocess
import sys
from pathlib import Path
from socket import socket

import pytest
import torch
from caches import draw_cache, draw_photos

from idml.data.cache import Cache

VARIANTS = {
    "mixup": ["mixing=mixup"],
    "mixup of others": ["mixing=mixup", "mixed_from=others", "mixed_against=all", "loss=contrastive", "per_class=5"],
    "cutmix of others": ["mixing=cutmix", "mixed_from=others"],
    "cutmix": ["mixing=cutmix", "loss=contrastive", "per_class=5"],
    "features": ["mixing=features", "average=0.9"],
    "uncertainty alone": ["mixing=mixup", "mixed_teaches=uncertainty", "taught_by=positives", "distance_scale=centred"],
    "noise": ["mixing=mixup", "uncertainty_noise=0.5", "uncertainty_level=1"],
    "statistics": ["frozen_batch_norm=false", "validation_half=second"],
}
RUN = """
import json, sys, torch
from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training import loop
from idml.training.distributed import process_group, rank
from idml.training.watching import Silent
from idml.training.workshop import Workshop

cache, folder, noted = Cache.open(sys.argv[1]), sys.argv[2], []
step = loop.loss_and_gradients

def noting(*arguments, **options):
    found = step(*arguments, **options)
    noted.append(float(found.loss))
    return found

loop.loss_and_gradients = noting
with process_group(torch.device("cpu")) as device:
    for name, changes in json.loads(sys.argv[3]).items():
        changes = ["epochs=2", "batch=20", "lr=1e-3", "frozen_batch_norm=true", *changes]
        run = loop.Run(recipe("digits").with_changes(changes), cache, device, Workshop(), watch=Silent())
        run.go()
        found = {"losses": list(noted), "model": run.model.state_dict(), "records": run.records}
        torch.save(found, f"{folder}/{name}-{rank()}.pt")
        noted.clear()
"""


def start(*words: object, processes: int, folder: Path) -> subprocess.CompletedProcess:
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    return subprocess.run(
        [sys.executable, *several, *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """All variants, by one process and by two: the folder of what each rank found."""
    folder = tmp_path_factory.mktemp("trained")
    cache: Cache = draw_cache(folder / "data")
    (folder / "run.py").write_text(RUN)
    for processes in (1, 2):
        place = folder / str(processes)
        place.mkdir()
        done = start("run.py", cache.folder, place, json.dumps(VARIANTS), processes=processes, folder=folder)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


def found(trained: Path, processes: int, name: str, rank: int = 0) -> dict:
    return torch.load(trained / str(processes) / f"{name}-{rank}.pt", weights_only=True)


@pytest.mark.parametrize(
    "name", ["mixup", "mixup of others", "cutmix of others", "cutmix", "features", "uncertainty alone"]
)
def test_two_processes_train_as_one_does_with_the_same_global_batch(trained, name):
    alone, together = (found(trained, processes, name) for processes in (1, 2))
    assert together["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    for key, value in alone["model"].items():
        torch.testing.assert_close(value, together["model"][key], rtol=1e-2, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", VARIANTS)
def test_all_ranks_end_with_the_same_model_and_the_same_records(trained, name):
    """Batch-norm that is not frozen sees another share of the batch on each rank: its statistics are the first's."""
    first, second = (found(trained, 2, name, rank) for rank in (0, 1))
    assert first["losses"] == second["losses"]
    for key, value in first["model"].items():
        assert torch.equal(value, second["model"][key]), key
    for one, other in zip(first["records"], second["records"], strict=True):
        validated = [key for key in one if key.startswith("validation")]
        assert bool(validated) == (name == "statistics")
        assert [one[key] for key in validated] == [other[key] for key in validated]


def test_torchrun_prepares_once_and_speaks_once(tmp_path):
    photos = draw_photos(tmp_path / "photos", classes=4, size=64)
    words = ("-m", "idml", "train", "digits-plain", "--data", photos, "--test-share", "0.5")
    quick = ("--set", "epochs=1", "--set", "batch=20")
    done = start(*words, *quick, processes=2, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Recall@1") == 1
    assert done.stderr.count("epoch 1/1") == 1


def test_a_mistake_that_the_first_rank_finds_while_the_others_wait_is_told_once_and_ends_all(tmp_path):
    photos = draw_photos(tmp_path / "photos", classes=4, size=64)
    (photos / "class 1" / "3.png").write_bytes(b"broken off")
    done = start("-m", "idml", "train", "digits-plain", "--data", photos, processes=2, folder=tmp_path)
    assert done.returncode == 1
    told, _, _ = done.stderr.partition("torch/distributed/elastic")  # the rest is torchrun's own
    assert "1 of 40 images cannot be read" in told
    assert told.count("error:") == 1, told
    assert "Traceback" not in told, told


FAILING = """
import sys, torch
from idml.training.distributed import concatenated, process_group, rank

try:
    with process_group(torch.device("cpu")):
        concatenated(torch.ones(1))
        if rank() == 0:
            raise KeyError("a mistake of its own")
        concatenated(torch.ones(1))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_rank_whose_peer_failed_says_so_and_ends():
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    words, environments = [sys.executable, "-c", FAILING], [os.environ | meeting | {"RANK": rank} for rank in "01"]
    ranks = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) for environment in environments]
    first, second = (rank.communicate(timeout=60)[0].decode() for rank in ranks)
    assert first.startswith("KeyError")
    assert second.startswith("ValueError another rank failed, and this one cannot go on alone")
