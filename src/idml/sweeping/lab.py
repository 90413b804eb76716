"""The lab log: one JSON line a run, added when the run ends, so that a sweep can be killed and goes on where it was.

    {"arm", "seed", "split", "dataset", "data", "config", "scores", "epochs", "stopped", "error", "seconds", "versions"}

Logs are committed, so they hold no path of the machine: weights are named by their file alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from idml.evaluation.scores import without_nan
from idml.locking import lock
from idml.training.config import Config
from idml.training.effects import without_idle
from idml.training.reading import OPTIONS, option_defaults

Line = dict[str, Any]

NEEDED = ("arm", "seed", "split", "data", "config")
WITHOUT_RESULT: Line = {"scores": {}, "epochs": [], "stopped": None, "error": None, "seconds": 0.0}
BEGINNING = b'{"arm": '  # of each line, by which a torn one is told from what is no log at all
DIGITS = 12  # of a number in what makes two runs the same: a rate of 1e-7 / 1e-5 is one of 0.01
FOLDERS = re.compile(r"(?<![\w.~])~?(?:/[^/\s:'\"]+)+/")  # of an absolute path in a sentence


class Lab:
    """The log in a file, which need not exist yet."""

    def __init__(self, path: Path | str):
        self.path = Path(path)

    def lines(self) -> list[Line]:
        """All runs, in the order in which they ended; a last line that a crash tore off is no run."""
        data = self.path.read_bytes() if self.path.exists() else b""
        texts = data.split(b"\n")
        found = []
        for number, text in enumerate(texts, start=1):
            line = _read(text)
            if line is not None:
                found.append(line)
            elif text.strip() and not (number == len(texts) and _is_torn(text)):
                remedy = "mend that line, or remove it" if found else "give the --log of a sweep, or a new file"
                raise ValueError(f"{self.path}, line {number} is no run of a sweep: {remedy}.")
        return found

    def latest(self) -> dict[str, Line]:
        """The runs by their identity; of one that was tried again, the last time."""
        return {identity(line["config"], line["data"], line["split"]): line for line in self.lines()}

    def finished(self, config: Config, data: str, *, split: str) -> Line | None:
        """The run of this config on the data of that checksum, if it is here: finished, stopped or failed."""
        return self.latest().get(identity(stored(config), data, split))

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a run, whole and on the disk before this returns; what a crash left of another line is removed first."""
        text = json.dumps(without_nan({"arm": line["arm"], **line}), allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            lock(file.fileno(), wait=True)  # two sweeps may share a log
            file.seek(0)
            data = file.read()
            tail = data[data.rfind(b"\n") + 1 :]
            if _is_torn(tail):
                file.truncate(len(data) - len(tail))
            elif tail:  # whole but for its end
                text = b"\n" + text
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def prepare(self) -> None:
        """Raise if the file cannot be read or written, before hours of work depend on it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise ValueError(f"{self.path} cannot be written ({error.strerror}): choose another --log.") from None
        self.lines()


def stored(config: Config) -> dict[str, Any]:
    """The config as the log holds it: JSON's own types, and of the weights' file only its name.

    >>> stored(Config().with_changes({"weights": "/home/me/resnet50-v1.safetensors"}))["model"]["weights"]
    'resnet50-v1'
    """
    values = json.loads(json.dumps(config.to_dict()))
    values["model"]["weights"] = name_of_weights(config.model.weights)
    return values


def name_of_weights(weights: str | None) -> str | None:
    """A file's name without folder and suffix; "pretrained" and None are as they are."""
    return None if weights is None else Path(weights).stem


def identity(config: Mapping[str, Any], data: str, split: str) -> str:
    """What makes two runs the same: a stored config, the checksum of the data, and what was scored.

    A setting that a line lacks, for it is newer than the line, has its default value; and so has one without effect.
    Options that are a loss's defaults are left out, and crops that are scored at the size of training have none.
    """
    return json.dumps([without_idle(_whole(config), _defaults()), data, split], sort_keys=True)


def _whole(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults of settings that it lacks, and without the last digits of numbers that were computed."""
    defaults = _defaults()
    whole = {part: _rounded({**defaults.get(part, {}), **config.get(part, {})}) for part in {*defaults, *config}}
    data, objective = whole["data"], whole["objective"]
    if data["test_size"] == data["image_size"]:
        data["test_size"] = None
    for leaf in OPTIONS:
        usual = option_defaults(leaf, objective["loss"], dim=whole["model"]["dim"])
        objective[leaf] = {name: value for name, value in objective[leaf].items() if usual.get(name) != value}
    return whole


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


@cache
def _defaults() -> dict[str, Any]:
    return stored(Config())


def arm_identity(line: Mapping[str, Any]) -> str:
    """What the runs of an arm have in common: they differ in their seeds alone."""
    config = {**line["config"], "run": {**line["config"]["run"], "seed": None}}
    return json.dumps([_whole(config), line["data"], line["split"]], sort_keys=True)


def with_effective_settings(line: Line) -> Line:
    """The line with defaults for settings that its run could not feel, and numbers rounded: what makes no other arm."""
    return {**line, "config": without_idle(_whole(line["config"]), _defaults())}


def without_folders(text: str) -> str:
    """A sentence with the absolute paths in it cut down to their last parts.

    >>> without_folders("there is no file /home/me/weights/a.pt: give another, and/or wait.")
    'there is no file a.pt: give another, and/or wait.'
    """
    return FOLDERS.sub("", text)


def _read(text: bytes) -> Line | None:
    """A line, if it is a run's; no beginning of one is."""
    try:
        line = json.loads(text)
    except ValueError:  # of JSON, or of UTF-8
        return None
    return {**WITHOUT_RESULT, **line} if isinstance(line, dict) and all(name in line for name in NEEDED) else None


def _is_torn(tail: bytes) -> bool:
    """Whether this is the beginning of a line, and not the whole."""
    is_ours = tail.startswith(BEGINNING) or BEGINNING.startswith(tail)
    return bool(tail) and is_ours and _read(tail) is None
