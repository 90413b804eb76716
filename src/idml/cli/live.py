"""A run, live: a bar with loss, level, images a second and time left on a terminal; plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from idml.training import distributed


class Live:
    """Shows a run; the first rank only."""

    def __init__(self, *, is_quiet: bool = False):
        self._console = Console(stderr=True, quiet=is_quiet or not distributed.is_first(), highlight=False)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def begin(self, *, epochs: int, batches: int, done: int) -> None:
        self._epochs, self._batches, self._done = epochs, batches, done
        self._images, self._since = 0, time.perf_counter()
        self._task = self._bar.add_task(
            "", total=epochs * batches, completed=done, epoch=done // batches + 1, speed="", state=""
        )
        self._bar.start()

    def step(self, *, images: int) -> None:
        self._images += images
        self._done += 1
        speed = self._images / (time.perf_counter() - self._since)
        epoch = min(self._epochs, self._done // self._batches + 1)
        self._bar.update(self._task, completed=self._done, epoch=epoch, speed=f"{speed:,.0f} img/s")

    def epoch(self, record: dict[str, Any]) -> None:
        shown = {
            "loss": "loss {:.3f}",
            "level_clean": "level {:.3f}",
            "level_mixed": "mixed {:.3f}",
            "validation_recall@1": "R@1 {:.1%}",
            "validation_map_at_r": "MAP@R {:.1%}",
        }
        words = "  ".join(form.format(record[name]) for name, form in shown.items() if name in record)
        self._bar.update(self._task, state=f"  {words}")
        if not self._console.is_terminal:
            self._console.print(f"epoch {record['epoch']}/{self._epochs}  {words}  {record['seconds']:.1f} s")

    def say(self, words: str) -> None:
        self._console.print(words, markup=False, soft_wrap=True)

    def end(self) -> None:
        self._bar.stop()
