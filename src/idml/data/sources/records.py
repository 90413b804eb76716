"""What every source tells of its images, and how a wrong number of them is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from idml.data.cache import named
from idml.data.decoder import Stored

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"}
PHOTOGRAPH = 256  # pixels of the short side, unless a source is smaller


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One image of a dataset: what it is called, its class, its split, and where its bytes are.

    They are `length` bytes of a file from `start` on; or, where no image file holds them, `data`.
    changed: the time at which they last were, in nanoseconds, where it is known.
    """

    name: str
    class_name: str
    split: str
    length: int
    changed: int = 0
    path: str = ""
    start: int = 0
    data: bytes | None = None

    @property
    def stored(self) -> Stored:
        return self.path, self.start, self.length, self.data


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of dataset on disk. looked_for: what it is recognised by, in words. size: its usual short side."""

    title: str
    looked_for: str
    recognises: Callable[[Path], bool]
    records: Callable[[Path], list[Record]]
    size: int = PHOTOGRAPH


def is_image(path: PurePath) -> bool:
    """By its name; hidden files are none, such as the ._1.jpg that macOS leaves beside 1.jpg."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def first_holding(folder: Path, file: str, below: Sequence[str] = ()) -> Path | None:
    """The folder itself, or one of those below it, that holds the file."""
    return next((place for place in (folder, *(folder / name for name in below)) if (place / file).exists()), None)


def file_records(root: Path, listed: Iterable[tuple[str, str, str]]) -> tuple[list[Record], list[str]]:
    """Records of (name, class, split), the names being paths below the root; and the names of missing files."""
    records, missing = [], []
    for name, class_name, split in listed:
        path = root / name
        try:
            about = path.stat()
        except OSError:
            missing.append(name)
        else:
            length, changed = about.st_size, about.st_mtime_ns
            records.append(
                Record(name=name, class_name=class_name, split=split, length=length, changed=changed, path=str(path))
            )
    return records, missing


def check_counts(
    title: str, records: Sequence[Record], expected: Mapping[str, int], *, missing: Sequence[str] = (), hint: str = ""
) -> None:
    """Raise unless each split has its standard number of images, saying which are missing if that is known."""
    found = Counter(record.split for record in records)
    if not missing and all(found[split] == number for split, number in expected.items()):
        return
    counts = ", ".join(f"{found[split]:,} of {number:,} {split}" for split, number in expected.items())
    lacking = f" Missing: {named(missing)}." if missing else ""
    raise ValueError(f"{title} is not complete: {counts} images.{lacking}{hint and ' ' + hint} Unpack it again.")
