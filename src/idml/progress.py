"""How the library tells that it is at work: it calls back with the name of a stage and the share of it that is done."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

Progress = Callable[[str, float], None]  # a stage's name, and how much of it is done, from 0 to 1
Item = TypeVar("Item")


def no_progress(_stage: str, _share: float) -> None:
    """Tell nobody."""


def followed(items: Iterable[Item], stage: str, progress: Progress, *, length: int | None = None) -> Iterator[Item]:
    """The same items; progress is told after each. length: how many there are, where they cannot be counted.

    >>> told = []
    >>> list(followed("ab", "letters", lambda stage, share: told.append((stage, share))))
    ['a', 'b']
    >>> told
    [('letters', 0.5), ('letters', 1.0)]
    """
    number = len(items) if isinstance(items, Sized) else length
    for place, item in enumerate(items, start=1):
        yield item
        if number:
            progress(stage, place / number)
