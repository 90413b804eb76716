"""A prepared dataset in a folder: every image decoded, one after another in a single memory-mapped file.

    pixels.bin          RGB bytes, row by row, image by image, each of its own size
    index.safetensors   where each image is and how large, its class, split, name and checksum
    meta.json           format, source, resize rule, counts, checksum of the index, images left out

Written by `idml.data.prepare`; meta.json comes last, so a folder without it is unfinished.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from idml.errors import unknown_name
from idml.progress import Progress, followed, no_progress

FORMAT = 1
PIXELS, INDEX, META = "pixels.bin", "index.safetensors", "meta.json"
CHANNELS = 3
BETWEEN_NAMES = "\0"  # no file name holds it
MUCH_LARGER = 1.5  # times as large as needed: bilinear crops then skip pixels


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What a cache was made of. place: where the source was. skipped: images that could not be read, and why."""

    kind: str
    source: str
    place: str
    fingerprint: str
    size: int
    square: bool
    images: int
    pixel_bytes: int
    index_checksum: str
    skipped: list[tuple[str, str]] = field(default_factory=list)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        (folder / META).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Meta:
        if not is_cache(folder):
            raise ValueError(f"{folder} holds no finished cache: make one with `idml prepare`.")
        try:
            stored: dict[str, Any] = json.loads((folder / META).read_text(encoding="utf-8"))
            version = stored["format"]
            if version != FORMAT:
                raise ValueError(f"{folder} has format {version}, and this idml reads {FORMAT}: prepare it again.")
            stored["skipped"] = [(name, reason) for name, reason in stored["skipped"]]
            return cls(**stored)
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
            raise _damaged(folder, f"{META} is not what `idml prepare` writes") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class Index:
    """One row an image: where its bytes start, its size, class number, split number, CRC-32 and name."""

    offsets: Int[np.ndarray, " n"]
    heights: Int[np.ndarray, " n"]
    widths: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    split_numbers: Int[np.ndarray, " n"]
    checksums: Int[np.ndarray, " n"]
    names: list[str]
    class_names: list[str]
    split_names: list[str]

    def write(self, folder: Path) -> str:
        """Write it and give its checksum. The same index gives the same bytes."""
        from safetensors.numpy import save

        data = save({name: getattr(self, name) for name in _ARRAYS} | {name: self._text(name) for name in _TEXTS})
        (folder / INDEX).write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    @classmethod
    def read(cls, folder: Path, *, checksum: str) -> Index:
        from safetensors.numpy import load

        path = folder / INDEX
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).hexdigest() != checksum:
            raise _damaged(folder, f"{INDEX} does not match its checksum")
        columns: dict[str, Any] = load(data)
        for name in _TEXTS:
            text = columns[name].tobytes().decode()
            columns[name] = text.split(BETWEEN_NAMES) if text else []
        return cls(**columns)

    def _text(self, name: str) -> UInt8[np.ndarray, " bytes"]:
        return np.frombuffer(BETWEEN_NAMES.join(getattr(self, name)).encode(), dtype=np.uint8)


_ARRAYS = ("offsets", "heights", "widths", "labels", "split_numbers", "checksums")
_TEXTS = ("names", "class_names", "split_names")


class Cache:
    """A prepared dataset, open for reading; nothing is read before it is needed."""

    def __init__(self, folder: Path, meta: Meta, index: Index):
        self.folder, self.meta, self.index = folder, meta, index
        path = folder / PIXELS
        held = path.stat().st_size if path.exists() else 0
        if held != meta.pixel_bytes or len(index.names) != meta.images:
            raise _damaged(folder, f"{PIXELS} has {held:,} bytes where {meta.pixel_bytes:,} were written")
        self.pixels = np.memmap(path, dtype=np.uint8, mode="r") if held else np.empty(0, dtype=np.uint8)

    @classmethod
    def open(cls, folder: Path | str) -> Cache:
        """The cache in this folder, its sizes and its index checked; `verify` checks the pixels too."""
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}: give a cache that `idml prepare` made.")
        meta = Meta.read(folder)
        return cls(folder, meta, Index.read(folder, checksum=meta.index_checksum))

    def __len__(self) -> int:
        return len(self.index.names)

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """Class numbers, from 0, into `class_names`; all splits share them."""
        return torch.from_numpy(self.index.labels)

    @property
    def class_names(self) -> list[str]:
        return self.index.class_names

    @property
    def names(self) -> list[str]:
        return self.index.names

    @property
    def splits(self) -> list[str]:
        """The splits that have images: train and test, or train, query and gallery, or train alone."""
        return self.index.split_names

    def rows(self, split: str) -> Int[Tensor, " rows"]:
        """The rows of a split, in order."""
        if split not in self.splits:
            raise unknown_name(f"split of {self.folder}", split, self.splits)
        return torch.from_numpy(np.flatnonzero(self.index.split_numbers == self.splits.index(split)))

    def image(self, row: int) -> UInt8[np.ndarray, "h w 3"]:
        """The pixels of one image, straight from the file: a view, not to be written to."""
        height, width = int(self.index.heights[row]), int(self.index.widths[row])
        start = int(self.index.offsets[row])
        return self.pixels[start : start + height * width * CHANNELS].reshape(height, width, CHANNELS)

    def verify(self, *, progress: Progress = no_progress) -> None:
        """Read every pixel and compare checksums; raise with the images that changed."""
        changed = [
            self.names[row]
            for row in followed(range(len(self)), "verifying", progress)
            if zlib.crc32(self.image(row).data) != self.index.checksums[row]
        ]
        if changed:
            raise _damaged(self.folder, f"the pixels of {named(changed)} changed since")


def warning_about(cache: Cache, size: int) -> str | None:
    """Why crops of this cache differ from those that `idml embed` cuts out of files, if they do by much.

    size: of the short side, as is needed.
    """
    meta = cache.meta
    if meta.square:
        return (
            f"the images in {cache.folder} are distorted to squares, which `idml embed` does not do: "
            f"prepare them without --square, with --size {size}"
        )
    if meta.size > MUCH_LARGER * size:
        return (
            f"the images in {cache.folder} have a short side of {meta.size} pixels where {size} are needed, and their "
            f"crops are coarser than those of `idml embed`: prepare them with --size {size}"
        )
    return None


def is_cache(folder: Path) -> bool:
    """Whether a finished cache is there, whole or damaged; a meta.json alone may be of another program."""
    return (folder / META).is_file() and any((folder / name).is_file() for name in (PIXELS, INDEX))


def named(names: Sequence[str], *, what: str = "image", shown: int = 5) -> str:
    """The first few names and how many there are.

    >>> named(["a.jpg", "b.jpg", "c.jpg"], shown=2)
    '3 images (a.jpg, b.jpg, …)'
    """
    listed = ", ".join(names[:shown]) + (", …" if len(names) > shown else "")
    return f"{len(names):,} {what}{'s' if len(names) != 1 else ''} ({listed})"


def _damaged(folder: Path, what: str) -> ValueError:
    return ValueError(f"the cache {folder} is damaged: {what}. Remove it and run `idml prepare` again.")
