"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), as Python pickles and as binary files; fine labels, official splits."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from idml.data.sources.records import Record, Source, check_counts, first_holding
from idml.data.splits import TEST, TRAIN

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
EXPECTED = {TRAIN: 50_000, TEST: 10_000}
PPM_HEADER = b"P6 %d %d 255\n" % (SIDE, SIDE)  # with it the pixels are an image file, decoded as any other
HARMLESS = {  # all that a pickled numpy array names
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a release is laid out. files: with their splits; label_bytes: before each image of a binary file."""

    folder: str
    files: Mapping[str, str]
    names: str
    names_key: bytes = b""
    labels_key: bytes = b""
    label_bytes: int = 0


_TEN = {**{f"data_batch_{number}": TRAIN for number in range(1, 6)}, "test_batch": TEST}
TEN = (
    Layout(
        folder="cifar-10-batches-py",
        files=_TEN,
        names="batches.meta",
        names_key=b"label_names",
        labels_key=b"labels",
    ),
    Layout(
        folder="cifar-10-batches-bin",
        files={f"{file}.bin": split for file, split in _TEN.items()},
        names="batches.meta.txt",
        label_bytes=1,
    ),
)
HUNDRED = (
    Layout(
        folder="cifar-100-python",
        files={"train": TRAIN, "test": TEST},
        names="meta",
        names_key=b"fine_label_names",
        labels_key=b"fine_labels",
    ),
    Layout(
        folder="cifar-100-binary",
        files={"train.bin": TRAIN, "test.bin": TEST},
        names="fine_label_names.txt",
        label_bytes=2,  # the coarse label, then the fine one
    ),
)


def recognises(folder: Path, *, layouts: tuple[Layout, ...]) -> bool:
    return _found(folder, layouts) is not None


def records(
    folder: Path, *, title: str, layouts: tuple[Layout, ...], expected: Mapping[str, int] = EXPECTED
) -> list[Record]:
    """Names are those of the pickles, or the file and the number within it."""
    found = _found(folder, layouts)
    if found is None:
        raise ValueError(f"{folder} is not {title}: looked for {_looked_for(layouts)}.")
    root, layout = found
    class_names = _class_names(root, layout)
    missing = [file for file in layout.files if not (root / file).exists()]
    listed = [
        record
        for file, split in layout.files.items()
        if file not in missing
        for record in _of_file(root / file, split, layout, class_names)
    ]
    check_counts(title, listed, expected, hint=f"Missing files: {', '.join(missing)}." if missing else "")
    return listed


def _found(folder: Path, layouts: tuple[Layout, ...]) -> tuple[Path, Layout] | None:
    for layout in layouts:
        root = first_holding(folder, layout.names, (layout.folder,))
        if root is not None and any((root / file).exists() for file in layout.files):
            return root, layout
    return None


def _looked_for(layouts: tuple[Layout, ...]) -> str:
    return ", or ".join(f"{layout.names} and {next(iter(layout.files))}" for layout in layouts)


def _class_names(root: Path, layout: Layout) -> list[str]:
    if layout.names_key:
        return [name.decode() for name in _unpickled(root / layout.names)[layout.names_key]]
    return (root / layout.names).read_text().split()


def _of_file(path: Path, split: str, layout: Layout, class_names: list[str]) -> Iterator[Record]:
    names, labels, planes = (_pickled if layout.labels_key else _binary)(path, layout)
    pixels = planes.reshape(-1, CHANNELS, SIDE * SIDE).transpose(0, 2, 1)
    for name, label, image in zip(names, labels, pixels, strict=True):
        data = PPM_HEADER + image.tobytes()
        yield Record(name=name, class_name=class_names[label], split=split, length=len(data), data=data)


def _pickled(path: Path, layout: Layout) -> tuple[list[str], list[int], UInt8[np.ndarray, "n pixels"]]:
    batch = _unpickled(path)
    return [name.decode() for name in batch[b"filenames"]], batch[layout.labels_key], batch[b"data"]


def _binary(path: Path, layout: Layout) -> tuple[list[str], Int[np.ndarray, " n"], UInt8[np.ndarray, "n pixels"]]:
    data = np.fromfile(path, dtype=np.uint8)
    if len(data) % (layout.label_bytes + PIXELS):
        raise ValueError(f"{path} has {len(data):,} bytes, no whole number of images: download it again.")
    rows = data.reshape(-1, layout.label_bytes + PIXELS)
    names = [f"{path.stem}/{number:05}" for number in range(len(rows))]
    return names, rows[:, layout.label_bytes - 1].astype(int), rows[:, layout.label_bytes :]


class _Harmless(pickle.Unpickler):
    """Arrays, lists and text; anything else in a pickle could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which CIFAR does not hold")
        return super().find_class(module, name)


def _unpickled(path: Path) -> dict[bytes, Any]:
    try:
        return _Harmless(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} is refused ({error}): download it again from its official place.") from None


def _source(title: str, layouts: tuple[Layout, ...]) -> Source:
    return Source(
        title=title,
        looked_for=_looked_for(layouts),
        recognises=partial(recognises, layouts=layouts),
        records=partial(records, title=title, layouts=layouts),
        size=SIDE,
    )


SOURCE_10 = _source("CIFAR-10", TEN)
SOURCE_100 = _source("CIFAR-100", HUNDRED)
