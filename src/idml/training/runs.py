"""The folder of a run: its config, what it ran on, its log, its checkpoints, its model and its scores."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import idml
from idml.atomic import writing
from idml.training import distributed, effects
from idml.training.checkpoint import LAST
from idml.training.config import Config

CONFIG, LOG, MODEL = "config.json", "log.jsonl", "model"
SCORES, REPORT = "scores.json", "report.html"  # the last that is written of a run


class RunFolder:
    """Where one run keeps everything. The same config continues it; once there is a checkpoint, others are refused."""

    def __init__(self, path: Path | str):
        self.path = Path(path)

    def begin(self, config: Config, data: dict[str, Any]) -> bool:
        """Save the config, unless there is a checkpoint to continue from; whether there is one."""
        asked = json.loads(json.dumps({"config": config.to_dict(), "data": data}))
        saved = self._saved()
        if saved is not None and self.checkpoint(LAST).exists():
            if changed := _differences(saved, asked):
                raise ValueError(
                    f"{self.path} is a run with other settings ({', '.join(changed[:5])}): "
                    "give another --output, or the same settings to continue it."
                )
            return True
        if distributed.is_first():
            with writing(self.path / CONFIG) as unfinished:
                unfinished.write_text(json.dumps(asked | {"versions": versions()}, indent=2) + "\n")
        return False

    def checkpoint(self, name: str) -> Path:
        return self.path / "checkpoints" / name

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def records(self) -> list[dict[str, Any]]:
        """The log: one record an epoch."""
        file = self.path / LOG
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def record(self, values: dict[str, Any]) -> None:
        """Add an epoch's record; one that was written before a restart is replaced."""
        kept = [record for record in self.records() if record["epoch"] < values["epoch"]]
        with writing(self.path / LOG) as unfinished:
            unfinished.write_text("".join(json.dumps(record) + "\n" for record in [*kept, values]))

    def scores(self) -> dict[str, Any] | None:
        """As `Scores.to_dict` has them, if they and the report are of the last checkpoint; None before."""
        files = [self.path / name for name in (SCORES, REPORT)]
        trained = self.checkpoint(LAST).stat().st_mtime
        if not all(file.exists() and file.stat().st_mtime >= trained for file in files):
            return None
        found = json.loads((self.path / SCORES).read_text())
        rises = {kind: {float(degree): share for degree, share in of.items()} for kind, of in found["rises"].items()}
        return {**found, "recall": {int(k): share for k, share in found["recall"].items()}, "rises": rises}

    def save_json(self, name: str, values: dict[str, Any]) -> None:
        with writing(self.path / name) as unfinished:
            unfinished.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n")

    def _saved(self) -> dict[str, Any] | None:
        """The config that began this run, and its data; None where none did. Other programs have a config.json too."""
        file = self.path / CONFIG
        if not file.exists():
            return None
        try:
            saved = json.loads(file.read_text())
            if all(isinstance(part, dict) for part in (saved["data"], *saved["config"].values())):
                return saved
        except (ValueError, LookupError, TypeError, AttributeError):
            pass
        raise ValueError(f"{file} is not of a run of idml: give another --output, or remove that file.")


def versions() -> dict[str, str | None]:
    """What this ran on."""
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "idml": idml.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": cuda or platform.machine(),
        "revision": _revision(),
    }


def _revision() -> str | None:
    """The git revision of this code, with a mark if it was changed since; None outside a checkout."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _differences(saved: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Names of settings that are not the same; one that is newer than the run had its default value in it.

    Those without an effect on either may differ.
    """
    found = []
    defaults = json.loads(json.dumps(Config().to_dict()))
    before = {part: defaults[part] | saved["config"].get(part, {}) for part in defaults}
    idle = effects.idle(before) & effects.idle(asked["config"])
    for part, leaves in asked["config"].items():
        old = before[part]
        found += [
            f"{name} {old.get(name)!r} instead of {new!r}"
            for name, new in leaves.items()
            if old.get(name) != new and name not in idle
        ]
    return found + [f"data {name}" for name, new in asked["data"].items() if saved["data"].get(name) != new]
