import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from caches import draw_cache, draw_photos

from idml.data.cache import Cache

TESTS = Path(__file__).parents[1]
RUN = """
import sys, torch
from idml.recipes import recipe
from idml.training import loop
from idml.training.distributed import rank, ranks

changes = ["epochs=2", "batch=20", "lr=1e-3", *sys.argv[3:]]
noted = []
step = loop.loss_and_gradients

def noting(*arguments, **options):
    found = step(*arguments, **options)
    noted.append(float(found[0]))
    return found

loop.loss_and_gradients = noting
scores = loop.train(recipe("digits").with_changes(changes), sys.argv[1], sys.argv[2])
if rank() == 0:
    torch.save(noted, sys.argv[2] + "/losses.pt")
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def run(cache: Cache, folder: Path, processes: int, *changes: str) -> None:
    script = folder.with_suffix(".py")
    script.write_text(RUN)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    if processes == 1:
        words = [sys.executable]
    done = subprocess.run(
        [*words, str(script), str(cache.folder), str(folder), *changes],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_torchrun_prepares_once_and_speaks_once(tmp_path):
    photos = draw_photos(tmp_path / "photos", classes=4, size=64)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "idml", "train", "digits-plain"]
    done = subprocess.run(
        [
            sys.executable,
            *words,
            "--data",
            str(photos),
            "--test-share",
            "0.5",
            "--set",
            "epochs=1",
            "--set",
            "batch=20",
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Recall@1") == 1
    assert done.stderr.count("epoch 1/1") == 1


@pytest.mark.parametrize("changes", [["mixing=mixup"], ["mixing=cutmix", "loss=contrastive", "per_class=5"]])
def test_two_processes_train_as_one_does_with_the_same_global_batch(cache, tmp_path, changes):
    from idml.models.embedder import Embedder

    changes = [*changes, "frozen_batch_norm=true"]  # statistics of half a batch would differ
    for processes in (1, 2):
        run(cache, tmp_path / str(processes), processes, *changes)
    losses = [torch.load(tmp_path / str(processes) / "losses.pt") for processes in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    alone, together = (Embedder.load(tmp_path / str(processes) / "model").state_dict() for processes in (1, 2))
    for name, value in alone.items():
        torch.testing.assert_close(value, together[name], rtol=1e-2, atol=1e-4, msg=name)
