"""The loop of a sweep: all arms at the first seed, then all at the next, each run a line in the lab log.

What the log has is not run again, so a sweep that was killed goes on with the same command. A run that fails is a
line too, and the sweep goes on.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from idml.data.cache import Cache
from idml.errors import first_line
from idml.sweeping.halting import Halting
from idml.sweeping.lab import Lab, Line, identity, stored, without_folders
from idml.sweeping.space import Arm
from idml.sweeping.trial import check_trial, run_trial
from idml.training.building import build_model, build_objective, training_and_validation_rows
from idml.training.config import Config
from idml.training.runs import versions
from idml.training.watching import Silent, Watch
from idml.training.workshop import Workshop

Trial = Callable[..., dict[str, Any]]  # as `run_trial`


@runtime_checkable
class SweepWatch(Protocol):
    """What a sweep tells while it goes on."""

    def begin(self, *, runs: int, done: int) -> None:
        """runs in all, and those that the log has already."""
        ...

    def run(self, arm: str, seed: int) -> Watch:
        """A run begins; who watches it."""
        ...

    def finished(self, line: Line) -> None: ...

    def end(self) -> None: ...


class SilentSweep:
    """Nobody watches."""

    def begin(self, *, runs: int, done: int) -> None: ...

    def run(self, arm: str, seed: int) -> Watch:  # noqa: ARG002
        return Silent()

    def finished(self, line: Line) -> None: ...

    def end(self) -> None: ...


class Planned(NamedTuple):
    """One run, and under which identity the log knows it."""

    arm: str
    seed: int
    config: Config
    identity: str


class Plan:
    """The runs of a sweep on some data, seed by seed; is_final: judged on test classes, not on validation classes.

    seeds: of all arms that have none of their own.
    """

    def __init__(self, arms: Sequence[Arm], seeds: Sequence[int], cache: Cache, *, is_final: bool = False):
        self.arms, self.cache, self.is_final = list(arms), cache, is_final
        self.split = "test" if is_final else "validation"
        self.data = cache.meta.index_checksum
        by_arm = [(arm, seeds if arm.seeds is None else arm.seeds) for arm in arms]
        every = dict.fromkeys([*seeds, *(seed for _, some in by_arm for seed in some)])
        self.runs = [self._planned(arm, seed) for seed in every for arm, some in by_arm if seed in some]

    def known(self, lab: Lab) -> dict[str, Line]:
        """The runs that the log has, by their identity: arms that differ without effect share theirs."""
        known = lab.latest()
        return {name: known[name] for name in self.identities if name in known}

    @property
    def identities(self) -> list[str]:
        """Of all runs, each once."""
        return list(dict.fromkeys(run.identity for run in self.runs))

    def lines(self, lab: Lab) -> list[Line]:
        """What the log has of these runs, in the order of the plan, under the names and settings of these arms."""
        known = lab.latest()
        found = [(run, known.get(run.identity)) for run in self.runs]
        return [{**line, "arm": run.arm, "config": stored(run.config)} for run, line in found if line is not None]

    def check(self) -> None:
        """Raise now for what would spoil every run of an arm: too few classes, unknown options, missing weights."""
        built = set()
        for arm in self.arms:
            config = arm.config
            try:
                check_trial(config, self.cache, is_final=self.is_final)
                rows, _ = training_and_validation_rows(config, self.cache)
                build_objective(config, len(self.cache.labels[rows].unique()))
                model = config.model
                network = (model.backbone, model.weights, model.pooling, model.frozen_layers, config.data.scored_size)
                if network not in built:
                    build_model(config)
                built.add(network)
            except ValueError as mistake:
                raise ValueError(f"arm {arm.name!r}: {mistake}" if len(self.arms) > 1 else str(mistake)) from None

    def _planned(self, arm: Arm, seed: int) -> Planned:
        config = arm.config.with_changes({"seed": seed})
        return Planned(arm.name, seed, config, identity(stored(config), self.data, self.split))


def sweep(
    plan: Plan,
    lab: Lab,
    *,
    device: torch.device,
    halting: Halting | None = None,
    retry: bool = False,
    watch: SweepWatch | None = None,
    trial: Trial = run_trial,
    workshop: Workshop | None = None,
) -> list[Line]:
    """Run what the log does not have, and give the lines of the whole plan.

    retry: run again what failed; and if nothing is to be stopped, also what was stopped.
    workshop: of an earlier sweep in this process, whose images and compiled networks are used again.
    """
    halting, watch = halting or Halting(), watch or SilentSweep()
    is_open = set(plan.identities) - _done(plan.known(lab), halting, retry=retry)
    watch.begin(runs=len(plan.identities), done=len(plan.identities) - len(is_open))
    workshop, about = workshop or Workshop(), versions()
    try:
        for run in plan.runs:
            if run.identity not in is_open:
                continue
            known = plan.known(lab)  # read again, for another sweep may share the log
            if run.identity in _done(known, halting, retry=retry):
                continue
            finished = [line["epochs"] for line in known.values() if _is_comparable(line, run)]
            outcome, is_full = _outcome(
                plan, run, finished, trial, workshop, device, halting, watch.run(run.arm, run.seed)
            )
            line = _line(plan, run) | outcome | {"versions": about}
            lab.append(line)
            watch.finished(line)
            if line["error"]:
                workshop = Workshop() if is_full else workshop  # what it held may be why
                _check_device(device, line)
    finally:
        watch.end()
    return plan.lines(lab)


def _done(lines: Mapping[str, Line], halting: Halting, *, retry: bool) -> set[str]:
    """Identities of the runs that need not be run, of those that the log has."""
    is_again = {
        name: retry and bool(line["error"] or (line["stopped"] and not halting.share)) for name, line in lines.items()
    }
    return {name for name in lines if not is_again[name]}


def _is_comparable(line: Line, run: Planned) -> bool:
    """Whether that run came to its end, on the same validation classes: some are harder than others."""
    folds = run.config.data.validation_folds
    is_same_fold = folds is None or line["seed"] % folds == run.seed % folds
    return not line["error"] and not line["stopped"] and is_same_fold


def _outcome(
    plan: Plan,
    run: Planned,
    finished: Sequence[Sequence[dict[str, Any]]],
    trial: Trial,
    workshop: Workshop,
    device: torch.device,
    halting: Halting,
    watch: Watch,
) -> tuple[dict[str, Any], bool]:
    """What came of one run, and whether it failed for want of memory: whatever goes wrong is told, not raised."""
    is_hopeless = halting.watching(finished, epochs=run.config.run.epochs)
    records: list[dict[str, Any]] = []

    def should_stop(record: dict[str, Any]) -> bool:
        records.append(record)
        return is_hopeless(record)

    start = time.perf_counter()
    try:
        options = {"device": device, "workshop": workshop, "should_stop": should_stop, "watch": watch}
        return {"error": None} | trial(run.config, plan.cache, is_final=plan.is_final, **options), False
    except Exception as error:
        told = first_line(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {first_line(error)}"
        is_full = isinstance(error, torch.OutOfMemoryError | MemoryError)
    seconds = round(time.perf_counter() - start, 2)
    failed = {"error": without_folders(told), "scores": {}, "epochs": records, "stopped": None, "seconds": seconds}
    return failed, is_full


def _line(plan: Plan, run: Planned) -> Line:
    return {
        "arm": run.arm,
        "seed": run.seed,
        "split": plan.split,
        "dataset": plan.cache.folder.resolve().name,
        "data": plan.data,
        "config": stored(run.config),
    }


def _check_device(device: torch.device, line: Line) -> None:
    """After a failure: free memory, and raise if the device answers no more, for then every run would fail."""
    if device.type != "cuda":
        return
    gc.collect()
    try:
        torch.cuda.empty_cache()
        float(torch.zeros(1, device=device))
    except RuntimeError:
        raise ValueError(
            f"{device} answers no more since arm {line['arm']!r}, seed {line['seed']} failed ({line['error']}): "
            "run the same command again, it goes on with the next run."
        ) from None
