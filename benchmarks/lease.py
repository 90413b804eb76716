"""A whole lease of a GPU in one process, whose stages share images and compiled code.

    setsid nohup python benchmarks/lease.py CACHE WEIGHTS FOLDER folds:next final:cub-final > lease.txt 2>&1 &

Each stage KIND:NAME runs the arms in FOLDER/NAME.arms: "folds" on five folds of the training classes, into
FOLDER/search.jsonl, "final" on the test classes, into FOLDER/final.jsonl; runs that these logs have are not run again.
A stage waits for its file (move it there whole), and makes FOLDER/NAME.done when it is over: what comes later can be
decided by what came out, while the stages between go on. A stage that fails is told of, and the next one begins.
A machine that is lent may be gone at the next look: bring FOLDER home with every look, all of it.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from idml.cli.devices import chosen_device
from idml.data.cache import Cache
from idml.errors import first_line
from idml.sweeping.halting import Halting
from idml.sweeping.lab import Lab, Line
from idml.sweeping.space import arms_of_file, held_out
from idml.sweeping.sweep import Plan, SilentSweep, sweep
from idml.training.workshop import Workshop

SEEDS = {"folds": 4, "final": 3}  # of arms that name none of their own: two folds have misled
LOGS = {"folds": "search.jsonl", "final": "final.jsonl"}
FOLDS = "5-fold"
PAUSE = 0.5  # seconds between looks for a file


class Told(SilentSweep):
    """One line a run, as it ends."""

    def finished(self, line: Line) -> None:
        scores = " ".join(f"{name} {100 * line['scores'].get(name, 0):.2f}" for name in ("recall@1", "map_at_r"))
        print(line["arm"], line["seed"], f"{line['seconds']:.1f} s", line["error"] or scores, flush=True)


def run_stage(stage: str, folder: Path, cache: Cache, changes: Sequence[str], workshop: Workshop) -> None:
    kind, _, name = stage.partition(":")
    path = folder / f"{name}.arms"
    while not path.exists():
        time.sleep(PAUSE)
    try:
        is_final = kind == "final"
        arms = arms_of_file(path, changes, validation=held_out(FOLDS, is_final=is_final))
        plan = Plan(arms, range(SEEDS[kind]), cache, is_final=is_final)
        plan.check()
        options = {"device": chosen_device("auto"), "halting": Halting(share=0), "workshop": workshop}
        sweep(plan, Lab(folder / LOGS[kind]), watch=Told(), **options)
    except Exception as error:
        print(f"stage {stage} failed: {first_line(error)}", flush=True)
    (folder / f"{name}.done").touch()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("stages", nargs="+", metavar="KIND:NAME")
    parser.add_argument("--set", nargs="*", default=["backbone=resnet50_v1"], dest="changes")
    options = parser.parse_args(arguments)
    for stage in options.stages:
        if stage.partition(":")[0] not in LOGS or not stage.partition(":")[2]:
            raise SystemExit(f"{stage!r} is no stage: write folds:NAME or final:NAME, for FOLDER/NAME.arms.")
    if not options.folder.is_dir():
        raise SystemExit(f"there is no folder {options.folder}: make it, and put FOLDER/NAME.arms into it.")
    try:
        workshop, cache = Workshop(), Cache.open(options.cache)
    except ValueError as mistake:
        raise SystemExit(str(mistake)) from None
    for stage in options.stages:
        run_stage(stage, options.folder, cache, [*options.changes, f"weights={options.weights}"], workshop)


if __name__ == "__main__":
    main()
