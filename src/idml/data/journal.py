"""A cache in the making: the pixels so far, and a journal with one line for each image among them.

Pixels are written before their lines. Whatever is interrupted and wherever, the lines whose pixels
match their checksums are work that is done, and the next run goes on after them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from idml.atomic import writing
from idml.data.cache import CHANNELS, PIXELS
from idml.data.decoder import Decoded
from idml.locking import lock
from idml.progress import Progress, followed

JOURNAL = "journal.jsonl"


class Line(NamedTuple):
    """One image: the identity of its record, its size and checksum; or the problem with it."""

    identity: int
    height: int
    width: int
    checksum: int
    problem: str | None = None

    @property
    def length(self) -> int:
        return self.height * self.width * CHANNELS


class Journal:
    """The unfinished folder, open for going on. Use it in a `with`."""

    def __init__(
        self, folder: Path, options: str, identities: Sequence[int], *, keep_problems: bool, progress: Progress
    ):
        """Take up what is done of these images under these options; a line that differs ends it.

        keep_problems: images that could not be read last time are not tried again.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._identities = folder, identities
        with ExitStack() as files:  # closed again if anything goes wrong before all is ready
            self._pixels = files.enter_context((folder / PIXELS).open("ab"))
            if not lock(self._pixels.fileno(), wait=False):
                raise ValueError(
                    f"another `idml prepare` is writing to {folder}: wait for it, or choose another folder."
                )
            self.lines = self._intact(options, keep_problems=keep_problems, progress=progress)
            self.length = sum(line.length for line in self.lines)
            self._pixels.truncate(self.length)
            with writing(folder / JOURNAL) as file:
                file.write_text("".join(f"{json.dumps(entry)}\n" for entry in (options, *self.lines)))
            self._journal = files.enter_context((folder / JOURNAL).open("a"))
            self._files = files.pop_all()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def append(self, images: Sequence[Decoded]) -> None:
        """Write the next images: their pixels, then their lines."""
        lines = [
            Line(self._identities[len(self.lines) + place], image.height, image.width, image.checksum, image.problem)
            for place, image in enumerate(images)
        ]
        for image in images:
            self._pixels.write(image.pixels)
        self._pixels.flush()
        self._journal.writelines(f"{json.dumps(line)}\n" for line in lines)
        self._journal.flush()
        self.lines += lines
        self.length += sum(line.length for line in lines)

    def _intact(self, options: str, *, keep_problems: bool, progress: Progress) -> list[Line]:
        written = self._written(options)
        kept: list[Line] = []
        with (self.folder / PIXELS).open("rb") as pixels:
            for line, identity in zip(followed(written, "checking what is done", progress), self._identities):  # noqa: B905
                if line.identity != identity or (line.problem is not None and not keep_problems):
                    break
                if zlib.crc32(pixels.read(line.length)) != line.checksum:
                    break
                kept.append(line)
        return kept

    def _written(self, options: str) -> list[Line]:
        """The lines of the journal, as far as they are whole; none if it was begun under other options."""
        path = self.folder / JOURNAL
        text = path.read_text().splitlines() if path.exists() else []
        entries = []
        for line in text:
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:  # where writing was interrupted
                break
        return [Line(*entry) for entry in entries[1:]] if entries[:1] == [options] else []
