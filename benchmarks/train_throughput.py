"""Images a second of the real training loop, beside the ceiling of its backbone alone, in one run.

    python benchmarks/train_throughput.py CACHE [--backbone resnet50_v1] [--weights FILE] [--epochs 4] [--json FILE]
    python benchmarks/train_throughput.py CACHE --device cpu --batch 16 --epochs 2

The ceiling is forward and backward of the compiled backbone on one batch of images that is on the GPU
already: bfloat16, channels last, batch-norm frozen, no data, no loss, no optimiser. The loop is
`idml.training.loop.train` with all of it: crops, Mixup, loss, optimiser, health. Its first epoch, in
which things are compiled and found out, is left out.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from idml.data.cache import Cache
from idml.models.embedder import Embedder
from idml.recipes import recipe
from idml.training.loop import train
from idml.training.runs import RunFolder

TARGET = 0.85


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def ceiling(backbone: str, batch: int, device: str) -> float:
    on_gpu = device == "cuda"
    warm_up, steps = (5, 30) if on_gpu else (1, 5)
    model = Embedder(backbone, weights=None).to(device).train().to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    network = torch.compile(model.backbone, dynamic=False) if on_gpu else model.backbone
    images = torch.randn(batch, 3, 224, 224, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    images = images.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
            network(images).float().mean().backward()
        model.zero_grad(set_to_none=True)

    for _ in range(warm_up):
        step()
    wait(device)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait(device)
    return steps * batch / (time.perf_counter() - start)


def loop(cache: Cache, name: str, changes: list[str], device: str) -> float:
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:
        config = recipe(name).with_changes(changes)
        train(config, cache, folder, device=device)
        records = RunFolder(folder).records()[1:]
    rows = len(cache.rows("train")) // config.data.batch * config.data.batch
    images = rows * (2 if config.mixing.mixing != "none" else 1)
    return images * len(records) / sum(record["seconds"] for record in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--backbone", default="resnet50_v1")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--batch", type=int, default=120)
    parser.add_argument("--json", type=Path, help="add the results there as a JSON line")
    options = parser.parse_args()
    cache = Cache.open(options.cache)
    device = options.device
    place = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {place}, {options.backbone}, {len(cache):,} images")
    changes = [f"backbone={options.backbone}", f"weights={options.weights}", f"epochs={options.epochs}"]
    changes += ["warm_up_epochs=0", f"batch={options.batch}"]
    changes += [] if device == "cuda" else ["compile=false", "precision=float32"]
    found: dict[str, Any] = {"torch": torch.__version__, "device": place}
    for name, times in (("cub-proxy-anchor-plain", 1), ("cub-proxy-anchor", 2)):
        batch = times * options.batch
        top = ceiling(options.backbone, batch, device)
        real = loop(cache, name, changes, device)
        found[name] = {"batch": batch, "ceiling": round(top, 1), "loop": round(real, 1), "share": round(real / top, 3)}
        verdict = "ok" if real >= TARGET * top else f"below {TARGET}"
        speeds = f"ceiling {top:,.1f} img/s, loop {real:,.1f}, {real / top:.2f}  {verdict}"
        print(f"{name:26} batch {batch}: {speeds}", flush=True)
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
