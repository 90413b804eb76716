"""Images a second of the real training loop, beside the ceiling of its backbone alone, in one run.

    python benchmarks/train_throughput.py CACHE [--backbone resnet50_v1] [--weights FILE] [--epochs 4] [--json FILE]

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

import torch

from idml.data.cache import Cache
from idml.models.embedder import Embedder
from idml.recipes import recipe
from idml.training.loop import train
from idml.training.runs import RunFolder

TARGET = 0.85


def ceiling(backbone: str, batch: int, *, steps: int = 30) -> float:
    model = Embedder(backbone, weights=None).cuda().train().to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    network = torch.compile(model.backbone, dynamic=False)
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16).contiguous(
        memory_format=torch.channels_last
    )

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            network(images).float().mean().backward()
        model.zero_grad(set_to_none=True)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return steps * batch / (time.perf_counter() - start)


def loop(cache: Cache, name: str, changes: list[str]) -> float:
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:
        config = recipe(name).with_changes(changes)
        train(config, cache, folder, device="cuda")
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
    parser.add_argument("--json", type=Path, help="add the results there as a JSON line")
    options = parser.parse_args()
    cache = Cache.open(options.cache)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {options.backbone}, {len(cache):,} images")
    changes = [f"backbone={options.backbone}", f"weights={options.weights}", f"epochs={options.epochs}"]
    changes += ["warm_up_epochs=0"]
    found = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for name, batch in (("cub-proxy-anchor-plain", 120), ("cub-proxy-anchor", 240)):
        top = ceiling(options.backbone, batch)
        real = loop(cache, name, changes)
        found[name] = {"batch": batch, "ceiling": round(top), "loop": round(real), "share": round(real / top, 3)}
        verdict = "ok" if real >= TARGET * top else f"below {TARGET}"
        print(
            f"{name:26} batch {batch}: ceiling {top:,.0f} img/s, loop {real:,.0f}, {real / top:.2f}  {verdict}",
            flush=True,
        )
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
