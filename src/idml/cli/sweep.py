"""`idml sweep`: many runs compared, on training classes that are held out, or finally on the test classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from idml.cli.devices import chosen_device

SPEED_OVER = 3600.0  # seconds of the past by which the time left is estimated: runs are long
SEEDS = "3"
SHOWN_SCORES = ("map_at_r", "recall@1", "r_auroc")  # in the line of a run that is done


def sweep(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RECIPE", help="Names from `idml recipes`, to be compared.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A cache that `idml prepare` made.")] = None,
    arms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ways to train, one a line: NAME: RECIPE CHANGE CHANGE …, # for comments. A change seeds=5 gives one "
            "seeds of its own.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting of all of them: epochs=10. May be repeated. `idml recipes RECIPE` tells all.",
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="Try several values of a setting: tau=1,3,5. Repeated: all combinations. Values with commas of their "
            "own: crop_scale=0.16,1;0.4,1. A range to draw from, with --trials: lr=1e-5..1e-3."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="How many random draws from the ranges in --over.")] = None,
    search_seed: Annotated[
        int, typer.Option(min=0, help="Of these draws; with more --trials the first ones stay the same.")
    ] = 0,
    seeds: Annotated[
        str | None,
        typer.Option(help="How often each is trained, if not given 3 times: 5 for seeds 0 to 4; or the seeds, 0,4,7."),
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            metavar="second|first|SHARE|N-fold",
            help="Training classes to hold out and compare by: a half of the class numbers (if not given, the second), "
            "a share such as 0.2, or with 5-fold another fifth of them with each seed.",
        ),
    ] = None,
    final: Annotated[
        bool,
        typer.Option("--final", help="Train on all training classes and score the test classes: for what is chosen."),
    ] = False,
    log: Annotated[
        Path, typer.Option(help="Where each run is written down, one JSON line. What it has is not run again.")
    ] = Path("results.jsonl"),
    by: Annotated[str, typer.Option(help="The score that decides: recall@1, map_at_r, r_auroc, …")] = "map_at_r",
    stop_below: Annotated[
        float,
        typer.Option(
            help="Stop a run whose score is below this share of the median of finished runs, epoch by epoch; 0: never."
        ),
    ] = 0.8,
    against: Annotated[
        str | None, typer.Option(metavar="ARM", help="The one that others are compared with; if not given, the first.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run again what failed; with --stop-below 0 also what was stopped.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the score against the one or two settings in --over.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing, show the table of what is in --log.")] = False,
    epochs: Annotated[
        bool, typer.Option("--epochs", help="With --show: the score after each epoch, to choose how long to train.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train several variants with several seeds each, and compare them.

    Which τ is best for my images? Prepare them once, then

        idml sweep photos --data photos-cache --over tau=1,3,5,9 --seeds 3 --plot tau.png

    trains each variant three times on half of the training classes, scores it on the other half, and prints a table,
    the best first, with differences from the first variant and whether they are more than noise. It may be interrupted
    at any moment: the same command goes on. Then score what you chose, once, on the test classes:

        idml sweep photos photos-plain --set tau=3 --data photos-cache --final
    """
    from idml.sweeping.summary import check_score

    check_score(by, is_final=final or show)
    if show:
        _check_nothing_to_run(names, data, arms, changes, over, trials, seeds, plot, validate, final, retry)
        from idml.cli.sweep_tables import tell, tell_epochs

        lines = _existing(log)
        if epochs:
            tell_epochs(lines, by=by, as_json=as_json)
        else:
            tell(lines, by=by, against=against, as_json=as_json)
        return
    if epochs:
        raise ValueError("--epochs shows runs that are done: give it with --show and --log.")
    from idml.cli.sweep_tables import tell
    from idml.sweeping import picture, space
    from idml.sweeping.halting import WATCHED, Halting
    from idml.sweeping.lab import Lab
    from idml.sweeping.summary import summarise
    from idml.sweeping.sweep import Plan
    from idml.sweeping.sweep import sweep as run
    from idml.sweeping.trial import run_trial
    from idml.training.effects import no_effect

    _check_choice(over, validate, final=final)
    overs = [space.read_over(text) for text in over or []]
    _check_once(changes or [], [one.name for one in overs])
    held_out = space.held_out(validate or "second", is_final=final)
    bases = space.arms_of_recipes(names or [], changes or [], validation=held_out)
    bases += [] if arms is None else space.arms_of_file(arms, changes or [], validation=held_out)
    if not bases:
        raise ValueError("there is nothing to train: name a recipe (`idml recipes` lists them), or give --arms FILE.")
    found = space.make_arms(bases, overs, trials=trials, seed=search_seed)
    if idle := space.idle_in_all(found, _names(changes or [])):
        typer.echo(f"warning: {no_effect(idle)}", err=True)
    if against is not None:
        _check_against(against, [arm.name for arm in found])
    if plot is not None:
        picture.check_picture(plot, found, overs)
    halting = Halting(share=stop_below, score=by if by in WATCHED else Halting.score)
    lab = Lab(log)
    plan = Plan(found, space.read_seeds(SEEDS if seeds is None else seeds), _cache(data), is_final=final)
    place = chosen_device(device)
    plan.check()
    lab.prepare()
    try:
        lines = run(plan, lab, device=place, halting=halting, retry=retry, watch=_Live(by), trial=run_trial)
    except KeyboardInterrupt:
        done, every = len(plan.known(lab)), len(plan.identities)
        typer.echo(f"{done} of {every} runs are in {log}: the same command goes on from there.", err=True)
        raise
    if all(line["error"] for line in lines):
        raise ValueError(f"all {len(lines)} runs failed, the first with: {lines[0]['error']} (--retry tries again)")
    tell(lines, by=by, against=against, as_json=as_json)
    if plot is not None:
        picture.draw(plot, found, summarise(lines, by=by, against=against), by=by)
        typer.echo(f"wrote {plot}", err=as_json)


def _check_nothing_to_run(*options: object) -> None:
    if any(option for option in options):
        raise ValueError(
            "--show runs nothing: give it --log alone, with --by, --against, --epochs or --json, or leave it out."
        )


def _existing(log: Path) -> list[dict[str, Any]]:
    from idml.sweeping.lab import Lab

    if not log.is_file():
        is_what = "is a folder" if log.is_dir() else "is not there"
        raise ValueError(f"--log {log} {is_what}: give the log of a sweep.")
    lines = Lab(log).lines()
    if not lines:
        raise ValueError(f"{log} holds no runs yet.")
    return lines


def _check_choice(over: list[str] | None, validate: str | None, *, final: bool) -> None:
    if validate is not None and final:
        raise ValueError(
            f"--validate {validate} holds training classes out, and --final trains on all of them: give one of them."
        )
    if over and final:
        raise ValueError(
            "--over with --final would choose on the test classes, and their score would be too good: choose without "
            "--final, then give what you chose with --set or --arms."
        )


def _check_once(changes: Sequence[str], swept: Sequence[str]) -> None:
    for name in _names(changes):
        if name in swept:
            raise ValueError(f"{name} is in --set and in --over: leave it out of one of them.")


def _names(changes: Sequence[str]) -> list[str]:
    return [change.partition("=")[0].strip() for change in changes]


def _check_against(against: str, names: Sequence[str]) -> None:
    from idml.errors import unknown_name

    if against not in names:
        raise unknown_name("arm", against, names)


def _cache(data: Path | None) -> Any:
    from idml.data.cache import Cache

    if data is None:
        raise ValueError("--data is missing: give a cache that `idml prepare` made.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("a sweep runs on one device: start it without torchrun, one for each --device and --log.")
    return Cache.open(data)


class _Live:
    """A sweep, live on standard error: a bar of runs with the time left on a terminal, and a line for each run."""

    def __init__(self, by: str):
        self._by = by
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            speed_estimate_period=SPEED_OVER,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def begin(self, *, runs: int, done: int) -> None:
        self._runs, self._done = runs, done
        self._task = self._bar.add_task("", total=runs, completed=done)
        if done:
            self._console.print(f"{done} of {runs} runs are in the log already")
        self._bar.start()

    def run(self, arm: str, seed: int) -> _LiveRun:
        return _LiveRun(self, f"{arm}, seed {seed}")

    def share(self, words: str, share: float) -> None:
        """How much of the present run is done, from 0 to 1."""
        self._bar.update(self._task, description=words, completed=self._done + share)

    def finished(self, line: dict[str, Any]) -> None:
        from idml.evaluation.intervals import over_seeds
        from idml.sweeping.summary import named_score

        self._done += 1
        self._bar.update(self._task, completed=self._done)
        scores = line["scores"]
        keys = [key for key in dict.fromkeys([self._by, *SHOWN_SCORES]) if scores.get(key) is not None]
        known = [(named_score(key), over_seeds([scores[key]])) for key in keys]
        words = "  ".join(f"{score.name} {score.written(value)}{score.unit}" for score, value in known)
        if line["error"]:
            words = f"failed: {line['error']}"
        elif line["stopped"]:
            words = f"stopped after epoch {line['stopped']}, for it is behind: {words}"
        text = f"{self._done}/{self._runs}  {line['arm']}, seed {line['seed']}  {words}  {line['seconds']:.0f} s"
        self._console.print(text, markup=False, soft_wrap=True)

    def end(self) -> None:
        self._bar.stop()


class _LiveRun:
    """One run of it: moves the bar on, step by step."""

    def __init__(self, live: _Live, words: str):
        self._live, self._words = live, words

    def begin(self, *, epochs: int, batches: int, done: int) -> None:
        self._steps, self._done = epochs * batches, done
        self._live.share(self._words, 0.0)

    def step(self, *, images: int) -> None:  # noqa: ARG002
        self._done += 1
        self._live.share(self._words, self._done / self._steps)

    def epoch(self, record: dict[str, Any]) -> None: ...

    def say(self, words: str) -> None: ...  # a line a run is enough, and the log has every epoch

    def end(self) -> None: ...
