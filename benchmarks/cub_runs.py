"""Real runs on CUB-200-2011, one after another, each a line in the lab log.

    python benchmarks/cub_runs.py CACHE WEIGHTS LOG --runs cub-proxy-anchor-plain:0 cub-proxy-anchor:0 [--set epochs=40]

Test classes are scored once, after the last epoch. Seconds count from the first step to the report.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training.loop import train
from idml.training.runs import RunFolder, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("log", type=Path)
    parser.add_argument("--runs", nargs="+", required=True, help="RECIPE:SEED")
    parser.add_argument("--set", nargs="*", default=[], dest="changes")
    options = parser.parse_args()
    cache = Cache.open(options.cache)
    for run in options.runs:
        name, seed = run.split(":")
        config = recipe(name).with_changes(
            [f"seed={seed}", "backbone=resnet50_v1", f"weights={options.weights}", *options.changes]
        )
        torch._dynamo.reset()
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            scores = train(config, cache, folder, device="cuda")
            records = RunFolder(folder).records()
        seconds = time.perf_counter() - start
        epochs = sorted(record["seconds"] for record in records)
        config = config.with_changes({"weights": "resnet50-v1-imagenet"})
        line = {
            "recipe": name,
            "seed": int(seed),
            "split": "test",
            "scores": scores,
            "seconds": round(seconds, 1),
            "epoch_seconds": [record["seconds"] for record in records],
            "last_epoch": records[-1],
            "config": config.to_dict(),
            "versions": versions(),
        }
        with options.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        found = scores["uncertainty"] or {}
        print(
            f"{name} seed {seed}: R@1 {scores['recall'][1]:.4f} MAP@R {scores['map_at_r']:.4f} NMI {scores['nmi']:.4f} "
            f"R-AUROC {found.get('r_auroc')} level {found.get('mean_level')} mixed {scores['rises'].get('mix')} "
            f"{seconds:.0f} s in all, median epoch {epochs[len(epochs) // 2]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
