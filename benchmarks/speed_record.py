"""Seconds on one GPU from nothing to the Recall@1 of the test classes, over seeds.

    python benchmarks/speed_record.py CACHE WEIGHTS LOG [--seeds 5] [--recipe cub-proxy-anchor] [--set epochs=14 ...]
    python benchmarks/speed_record.py CACHE none LOG --device cpu --recipe digits --set backbone=test_resnet

The clock runs from the construction of the run (model built, weights read) to the Recall@1 that is known on the CPU.
Before it starts, in a short run that is thrown away, the images are loaded onto the device and the network is compiled,
for later runs of a process have both: those seconds are told apart, and are in every line of the log.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from idml.data.cache import Cache
from idml.data.splits import TEST
from idml.errors import first_line
from idml.evaluation.intervals import over_seeds
from idml.evaluation.judging import evaluate
from idml.recipes import recipe
from idml.sweeping.lab import Lab, stored
from idml.sweeping.trial import check_trial
from idml.training.building import training_and_validation_rows
from idml.training.config import Config
from idml.training.embedding import embed_all
from idml.training.loop import Run
from idml.training.runs import versions
from idml.training.watching import Silent
from idml.training.workshop import Workshop

TARGET = 68.0  # Recall@1 in percent, of the mean over seeds


class Clock:
    """Seconds since the last look; looking waits for the device."""

    def __init__(self, device: torch.device):
        self._device = device
        self._last = self._now()

    def lap(self) -> float:
        before, self._last = self._last, self._now()
        return self._last - before

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def load_images(config: Config, cache: Cache, device: torch.device, workshop: Workshop) -> bool:
    """What all runs look at, kept by the workshop for them; whether all of it is on the device, and not read again."""
    rows, _ = training_and_validation_rows(config, cache)
    training = workshop.pixels(cache, rows, device)
    return training.is_held and workshop.passing_pixels(cache, cache.rows(TEST), device).is_held


def timed_run(config: Config, cache: Cache, device: torch.device, workshop: Workshop) -> dict[str, Any]:
    """Train, and score the test classes once: Recall@1, and the seconds of each part and in all."""
    clock = Clock(device)
    run = Run(config, cache, device, workshop, watch=Silent())
    building = clock.lap()
    run.go()
    training = clock.lap()
    rows = cache.rows(TEST)
    embedding = embed_all(run.model, workshop.passing_pixels(cache, rows, device), config)
    recall = evaluate(embedding, cache.labels[rows], ks=(1,), clustering=False, failures=False, resamples=0).recall[1]
    judging = clock.lap()
    return {
        "scores": {"recall@1": recall},
        "seconds": round(building + training + judging, 3),
        "seconds_building": round(building, 3),
        "seconds_training": round(training, 3),
        "seconds_judging": round(judging, 3),
        "epochs": run.records,
    }


def prepared(config: Config, cache: Cache, device: torch.device, workshop: Workshop) -> dict[str, Any]:
    """Load, and throw a run of an epoch away, or of two where the first only warms up; what that took."""
    clock = Clock(device)
    are_held = load_images(config, cache, device, workshop)
    loading = clock.lap()
    warming = min(1, config.optimiser.warm_up_epochs)
    timed_run(config.with_changes({"epochs": warming + 1, "warm_up_epochs": warming}), cache, device, workshop)
    compiling = clock.lap()
    return {
        "images_on_device": are_held,
        "seconds_loading": round(loading, 3),
        "seconds_compiling": round(compiling, 3),
    }


def record(options: argparse.Namespace) -> None:
    device, lab, cache = torch.device(options.device), Lab(options.log), Cache.open(options.cache)
    changes = ["backbone=resnet50_v1", f"weights={options.weights}", *options.changes]
    config = recipe(options.recipe).with_changes(changes)
    check_trial(config, cache, is_final=True)
    lab.prepare()
    workshop, about = Workshop(), versions()
    place = about["device"] if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {about['torch']}, {place}, {options.recipe}, {config.run.epochs} epochs, {len(cache):,} images")
    before = prepared(config, cache, device, workshop)
    where = "all images, which stay on the device" if before["images_on_device"] else "images; runs read some again"
    print(
        f"not counted: {before['seconds_loading']:.1f} s to load {where}; "
        f"{before['seconds_compiling']:.1f} s for a short run that compiles",
        flush=True,
    )
    recalls, seconds = [], []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        own = config.with_changes({"seed": seed})
        found = timed_run(own, cache, device, workshop)
        recalls.append(100 * found["scores"]["recall@1"])
        seconds.append(found["seconds"])
        line = {"arm": f"speed {options.recipe}", "seed": seed, "split": "test", "dataset": cache.folder.resolve().name}
        line |= {"data": cache.meta.index_checksum, "config": stored(own), **found, **before}
        lab.append(line | {"versions": about | {"device": place}})
        parts = ", ".join(f"{part} {found[f'seconds_{part}']:.1f}" for part in ("building", "training", "judging"))
        print(f"seed {seed}: R@1 {recalls[-1]:.2f} in {seconds[-1]:.2f} s ({parts})", flush=True)
    told = "at least" if over_seeds(recalls).mean >= TARGET else "below"
    print(f"R@1 {spread(recalls)} in {spread(seconds)} s over {options.seeds} seeds: {told} {TARGET:g}")


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; the mean alone of a single one."""
    found = over_seeds(values)
    return " ± ".join(f"{value:.2f}" for value in (found.mean, found.standard_deviation) if value is not None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights", help="the backbone's file, or none")
    parser.add_argument("log", type=Path, help="a lab log, to which a line is added for each seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="5 for five that a record of five has not had")
    parser.add_argument("--recipe", default="cub-proxy-anchor")
    parser.add_argument("--set", nargs="*", default=[], dest="changes", metavar="NAME=VALUE")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds is {options.seeds}: give at least 1.")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here: add --device cpu.")
    try:
        record(options)
    except ValueError as mistake:
        raise SystemExit(first_line(mistake) + ".") from None


if __name__ == "__main__":
    main()
