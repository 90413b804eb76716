"""A whole lease of a GPU in one process, whose stages share images and compiled code.

    setsid nohup python benchmarks/lease.py CACHE WEIGHTS FOLDER final:cub-final again:cub-again > lease.txt 2>&1 &

Each stage KIND:NAME runs the arms in FOLDER/NAME.arms: "folds" on five folds of the training classes, into
FOLDER/folds.jsonl, "final" on the test classes, into FOLDER/final.jsonl, "again" likewise, into FOLDER/again.jsonl, for
rows whose scores are known and are to have more of them, "swapped" on the other half (--swapped, a cache of
`benchmarks/swapped_cache.py`), into FOLDER/swapped.jsonl. Runs that these logs have are not run again: put them there.
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

KINDS = ("folds", "final", "again", "swapped")
FOLDS = "5-fold"
OF_FOLDS, OF_SEEDS = 4, 3  # runs of arms that name no seeds: two folds have misled
PAUSE = 0.5  # seconds between looks for a file


class Told(SilentSweep):
    """One line a run, as it ends."""

    def finished(self, line: Line) -> None:
        scores = " ".join(f"{name} {100 * line['scores'].get(name, 0):.2f}" for name in ("recall@1", "map_at_r"))
        print(line["arm"], line["seed"], f"{line['seconds']:.1f} s", line["error"] or scores, flush=True)


def run_stage(stage: str, folder: Path, cache: Cache, changes: Sequence[str], workshop: Workshop) -> None:
    """cache: that of its kind."""
    kind, _, name = stage.partition(":")
    path = folder / f"{name}.arms"
    while not path.exists():
        time.sleep(PAUSE)
    try:
        is_final = kind != "folds"
        arms = arms_of_file(path, changes, validation=held_out(FOLDS, is_final=is_final))
        plan = Plan(arms, range(OF_SEEDS if is_final else OF_FOLDS), cache, is_final=is_final)
        plan.check()
        options = {"device": chosen_device("auto"), "halting": Halting(share=0), "workshop": workshop}
        sweep(plan, Lab(folder / f"{kind}.jsonl"), watch=Told(), **options)
    except Exception as error:
        print(f"stage {stage} failed: {first_line(error)}", flush=True)
    (folder / f"{name}.done").touch()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("stages", nargs="+", metavar="KIND:NAME")
    parser.add_argument("--swapped", type=Path, help="the cache of stages swapped:NAME")
    parser.add_argument("--set", nargs="*", default=["backbone=resnet50_v1"], dest="changes")
    options = parser.parse_args(arguments)
    for stage in options.stages:
        kind, _, name = stage.partition(":")
        if kind not in KINDS or not name:
            raise SystemExit(f"{stage!r} is no stage: write {', '.join(f'{kind}:NAME' for kind in KINDS)}.")
        if kind == "swapped" and options.swapped is None:
            raise SystemExit(f"{stage!r} needs --swapped, a cache whose halves are swapped.")
    if not options.folder.is_dir():
        raise SystemExit(f"there is no folder {options.folder}: make it, and put FOLDER/NAME.arms into it.")
    try:
        workshop, cache = Workshop(), Cache.open(options.cache)
        caches = {} if options.swapped is None else {"swapped": Cache.open(options.swapped)}
    except ValueError as mistake:
        raise SystemExit(str(mistake)) from None
    for stage in options.stages:
        chosen = caches.get(stage.partition(":")[0], cache)
        run_stage(stage, options.folder, chosen, [*options.changes, f"weights={options.weights}"], workshop)


if __name__ == "__main__":
    main()
