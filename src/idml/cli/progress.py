"""How a command tells that it is at work: bars on a terminal, silence elsewhere, tables and remarks in between."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Stages:
    """One bar a stage, with the time it will still take. Quiet: nothing at all, for a program reads the output."""

    def __init__(self, *, is_quiet: bool = False):
        self._console = Console(quiet=is_quiet, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description:32}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, quiet=is_quiet),
            transient=True,
            disable=is_quiet or not Console(stderr=True).is_terminal,
        )
        self._stages: dict[str, TaskID] = {}

    def __enter__(self) -> Stages:
        self._bars.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, heading: str) -> None:
        """A new piece of work, whose stages start over."""
        for stage in self._stages.values():
            self._bars.remove_task(stage)
        self._stages = {heading: self._bars.add_task(heading, total=None)}

    def progress(self, stage: str, share: float) -> None:
        """How much of a stage is done, from 0 to 1."""
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, total=1.0)
        self._bars.update(self._stages[stage], completed=share)

    def show(self, table: RenderableType) -> None:
        self._console.print(table)

    def say(self, remark: str) -> None:
        self._console.print(remark, markup=False, soft_wrap=True)
