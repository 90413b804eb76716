"""The arms of a search: complete configs under a name, from recipes, grids, random draws, or a file.

Random search is better than a grid where only some of many settings matter (Bergstra & Bengio, JMLR 2012).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from idml.recipes import recipe
from idml.sweeping.lab import identity, name_of_weights, stored
from idml.training.config import Config, read_setting
from idml.training.effects import no_effect

LOG_FROM = 10.0  # a range whose end is so many times its start is drawn log-uniformly
DIGITS = 4  # of numbers that are drawn, so that their names can be typed
DRAWS = 100  # for each trial that is wanted, before a range is found to hold too few different values
COMMENT = re.compile(r"(?:^|\s)#.*")
SEEDS = "seeds="
ELSEWHERE = {
    "seeds": "--seeds, or in a file of arms by the line of one",
    "seed": "--seeds",
    "validation_share": "--validate",
    "validation_half": "--validate",
    "validation_folds": "--validate",
    "validation_seed": "--validate",
}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train. base: the recipe or line it comes from; values: what it has of the settings that vary.

    seeds: its own, where they are not those of the sweep.
    """

    name: str
    config: Config
    base: str = ""
    values: dict[str, str] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Choices:
    """A setting and the values it takes."""

    name: str
    values: tuple[str, ...]

    def draw(self, generator: np.random.Generator) -> str:
        return self.values[generator.integers(len(self.values))]


@dataclass(frozen=True)
class Range:
    """A number between two others, both included: log-uniform where it spans a factor of ten or more, else uniform."""

    name: str
    low: float
    high: float
    is_whole: bool

    def draw(self, generator: np.random.Generator) -> str:
        end = self.high + self.is_whole  # whole numbers are rounded down
        if self.low > 0 and self.high / self.low >= LOG_FROM:
            value = math.exp(generator.uniform(math.log(self.low), math.log(end)))
        else:
            value = generator.uniform(self.low, end)
        value = math.floor(value) if self.is_whole else float(f"{value:.{DIGITS}g}")
        value = min(max(value, self.low), self.high)
        return str(int(value)) if self.is_whole else f"{value:.12g}"


Over = Choices | Range


def read_over(text: str) -> Over:
    """What varies: NAME=VALUE,VALUE, with ; between values that hold commas themselves, or NAME=LOW..HIGH.

    >>> read_over("tau=1,3,5")
    Choices(name='tau', values=('1', '3', '5'))
    >>> read_over("crop_scale=0.16,1; 0.4,1").values
    ('0.16,1', '0.4,1')
    >>> read_over("batch=16..64")
    Range(name='batch', low=16.0, high=64.0, is_whole=True)
    """
    name, sign, values = (part.strip() for part in text.partition("="))
    if not (name and sign and values):
        raise ValueError(
            f"--over {text!r} lists nothing: write NAME=VALUE,VALUE, such as tau=1,3,5, or NAME=LOW..HIGH."
        )
    check_changes([text])
    low, dots, high = (part.strip() for part in values.partition(".."))
    if dots and _is_number(low) and _is_number(high):
        return _range(name, low, high)
    between = ";" if ";" in values else ","
    parts = [part.strip() for part in values.removesuffix(";").split(between)]
    if not all(parts):
        raise ValueError(f"--over {text!r} has an empty value: leave out the {between!r} that is too many.")
    return Choices(name, tuple(parts))


def read_seeds(text: str, *, name: str = "--seeds") -> tuple[int, ...]:
    """How many, or the seeds themselves.

    >>> read_seeds("3"), read_seeds("0,4,7")
    ((0, 1, 2), (0, 4, 7))
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    found = tuple(range(numbers[0]) if len(numbers) == 1 and "," not in text else dict.fromkeys(numbers))
    if not found or min(found) < 0:
        raise ValueError(f"{name} is {text!r}: give how many, such as 3, or the seeds themselves, such as 0,4,7.")
    return found


def held_out(validate: str, *, is_final: bool = False) -> dict[str, Any]:
    """Settings that hold out the classes asked for."""
    nothing = {"validation_share": 0.0, "validation_half": "none", "validation_folds": None}
    if is_final:
        return nothing
    if validate in ("first", "second"):
        return nothing | {"validation_half": validate}
    if (folds := re.fullmatch(r"(\d+)-fold", validate)) is not None and int(folds[1]) > 1:
        return nothing | {"validation_folds": int(folds[1])}
    try:
        share = float(validate)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ValueError(f"--validate is {validate!r}: give second, first, a share of the classes, or 5-fold.")
    return nothing | {"validation_share": share}


def check_changes(changes: Iterable[str]) -> None:
    """Raise if a change is to a setting that the sweep itself decides."""
    for change in changes:
        name = change.partition("=")[0].strip()
        if name in ELSEWHERE:
            raise ValueError(f"{name} is decided by {ELSEWHERE[name]}: leave it out of the settings of an arm.")


def arms_of_recipes(names: Sequence[str], changes: Sequence[str], *, validation: Mapping[str, Any]) -> list[Arm]:
    """An arm for each recipe, with the same changes; validation: which classes are held out."""
    check_changes(changes)
    return [_arm(name, name, changes, validation) for name in dict.fromkeys(names)]


def arms_of_file(path: Path | str, changes: Sequence[str], *, validation: Mapping[str, Any]) -> list[Arm]:
    """One arm a line, `NAME: RECIPE CHANGE CHANGE …`, # for comments; its own changes come after the common ones.

    A change seeds=5, or seeds=0,4, gives the arm other seeds than the sweep's.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"--arms: there is no text file {path}.") from None
    found: dict[str, Arm] = {}
    runs: dict[str, str] = {}  # names of arms by what makes two of them the same
    for number, line in enumerate(lines, start=1):
        text = COMMENT.sub("", line).strip()
        if not text:
            continue
        name, _, words = (part.strip() for part in text.partition(":"))
        try:
            if not (name and words):
                raise ValueError(f"{text!r} is no arm. Write NAME: RECIPE CHANGE …, as in soft: digits tau=9.")
            base, *own = words.split()
            seeds, own = _own_seeds(own)
            check_changes([*changes, *own])
            arm = replace(_arm(name, base, [*changes, *own], validation), seeds=seeds)
            other = name if name in found else runs.setdefault(_run_of(arm), name)
            if other != name or name in found:
                raise ValueError(f"arm {name!r} is there already, as {other!r}: leave one of them out.")
        except ValueError as mistake:
            raise ValueError(f"{path}, line {number}: {mistake}") from None
        found[name] = arm
    if not found:
        raise ValueError(f"{path} holds no arms: write one a line, NAME: RECIPE CHANGE …, as in soft: digits tau=9.")
    return list(found.values())


def make_arms(bases: Sequence[Arm], overs: Sequence[Over], *, trials: int | None = None, seed: int = 0) -> list[Arm]:
    """Each base with every combination of the choices; or, where there are ranges, with `trials` random draws.

    The first draws of a seed are the same whatever `trials` is, so a search can be made longer. Arms that come out
    the same are one.
    """
    _check_overs(overs, trials)
    if trials is None:
        points = list(itertools.product(*(over.values for over in overs if isinstance(over, Choices))))
    else:
        points = _drawn(overs, trials, seed)
    found = []
    for base in bases:
        for point in points:
            values = {over.name: value for over, value in zip(overs, point, strict=True)}
            words = [f"{name}={_shown(name, value)}" for name, value in values.items()]
            name = " ".join([base.name, *words] if len(bases) > 1 or not words else words)
            config = _changed(base.config, values)
            found.append(Arm(name=name, config=config, base=base.name, values=values, seeds=base.seeds))
    if idle := idle_in_all(found, [over.name for over in overs]):
        raise ValueError(f"{no_effect(idle)}, and every value would score the same: leave it out of --over.")
    return _distinct(found)


def idle_in_all(arms: Sequence[Arm], names: Iterable[str]) -> list[str]:
    """Of these settings those that have an effect on none of the arms."""
    return [name for name in names if all(arm.config.idle([name]) for arm in arms)]


def _arm(name: str, base: str, changes: Sequence[str], validation: Mapping[str, Any]) -> Arm:
    config = recipe(base).with_changes(validation).with_changes(changes)
    return Arm(name=name, config=config, base=name)


def _own_seeds(words: Sequence[str]) -> tuple[tuple[int, ...] | None, list[str]]:
    """The seeds among the words of an arm, the last where there are several, and the other words."""
    given = [word for word in words if word.startswith(SEEDS)]
    others = [word for word in words if word not in given]
    return (read_seeds(given[-1].removeprefix(SEEDS), name="seeds") if given else None), others


def _range(name: str, low: str, high: str) -> Range:
    """A range, its ends as the setting reads them."""
    ends = [read_setting(name, end) for end in (low, high)]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ValueError(f"{name} is no number and has no range: list its values, {name}=VALUE,VALUE.")
    first, last = (float(end) for end in ends)
    if not (first < last and math.isfinite(last - first)):
        raise ValueError(f"{name}={low}..{high} is no range: give the lower end first, and a higher one.")
    return Range(name, first, last, is_whole=all(isinstance(end, int) for end in ends))


def _check_overs(overs: Sequence[Over], trials: int | None) -> None:
    names = [over.name for over in overs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is in --over twice: put all its values in one, {name}=VALUE,VALUE.")
    ranges = [over for over in overs if isinstance(over, Range)]
    if ranges and trials is None:
        name, low, high = ranges[0].name, ranges[0].low, ranges[0].high
        raise ValueError(f"{name}={low:g}..{high:g} is a range: say how many draws, --trials 20, or list its values.")
    if trials is not None and not ranges:
        raise ValueError("--trials is for ranges, such as --over lr=1e-5..1e-3: a list of values is tried in full.")
    if trials is not None and trials < 1:
        raise ValueError(f"--trials is {trials}: give at least 1.")


def _drawn(overs: Sequence[Over], trials: int, seed: int) -> list[tuple[str, ...]]:
    """So many different points, in the order in which they were drawn."""
    generator = np.random.default_rng(seed)
    found: dict[tuple[str, ...], None] = {}
    for _ in range(DRAWS * trials):
        found[tuple(over.draw(generator) for over in overs)] = None
        if len(found) == trials:
            return list(found)
    raise ValueError(f"the ranges hold only {len(found)} different settings: lower --trials, or widen them.")


def _changed(config: Config, values: Mapping[str, str]) -> Config:
    for name, value in values.items():
        leaf = config.leaf(name)
        if isinstance(leaf, tuple) and leaf and not isinstance(leaf[0], str) and "," not in value:
            raise ValueError(f"{name} takes two numbers, and {value!r} is one: put ; between values, 0.16,1;0.4,1.")
    return config.with_changes(values)


def _distinct(arms: Sequence[Arm]) -> list[Arm]:
    """Each config once, under its first name. Settings without effect make other arms, which share their runs."""
    by_name: dict[str, Arm] = {}
    by_config: dict[str, Arm] = {}
    by_run: dict[str, Arm] = {}
    for arm in arms:
        first = by_run.setdefault(_run_of(arm), arm)
        if first.config.model.weights != arm.config.model.weights:
            raise ValueError(
                f"two arms differ in where their weights are alone ({first.config.model.weights} and "
                f"{arm.config.model.weights}), which the log does not keep: rename one of the files."
            )
        twin = by_config.setdefault(json.dumps(stored(arm.config), sort_keys=True), arm)
        if twin.seeds != arm.seeds:
            raise ValueError(
                f"arms {twin.name!r} and {arm.name!r} are the same, with other seeds: leave one of them out."
            )
        if twin is arm and by_name.setdefault(arm.name, arm) is not arm:
            raise ValueError(f"two different arms are called {arm.name!r}: rename one of them.")
    return list(by_config.values())


def _run_of(arm: Arm) -> str:
    """What the log knows the runs of an arm by, on whatever data."""
    return identity(stored(arm.config), data="", split="")


def _shown(name: str, value: str) -> str | None:
    return name_of_weights(value) if name == "weights" else value


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
