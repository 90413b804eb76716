"""Who watches a run: the command shows it live, a program may do as it likes, and nobody is the default."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Watch(Protocol):
    """What a run tells while it goes on."""

    def begin(self, *, epochs: int, batches: int, done: int) -> None:
        """epochs in all, batches in each, and steps that were done before."""
        ...

    def step(self, *, images: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None:
        """What an epoch's log holds."""
        ...

    def say(self, words: str) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, *, epochs: int, batches: int, done: int) -> None: ...

    def step(self, *, images: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def say(self, words: str) -> None: ...

    def end(self) -> None: ...
