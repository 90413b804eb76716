"""A folder of images for each class; or one for each split, each with a folder for each class."""

from __future__ import annotations

from pathlib import Path

from idml.data.sources.records import IMAGE_SUFFIXES, Record, Source, file_records
from idml.data.splits import SPLITS, TRAIN


def recognises(folder: Path) -> bool:
    return folder.is_dir() and any(_is_image(path) for place in _subfolders(folder) for path in place.rglob("*"))


def records(folder: Path) -> list[Record]:
    """Sorted by name. Folders train, test, query or gallery above the classes are splits; else all is for training."""
    classes = _subfolders(folder)
    has_splits = bool(classes) and {place.name for place in classes} <= set(SPLITS)
    listed = []
    for split in sorted(classes, key=lambda place: SPLITS.index(place.name)) if has_splits else [folder]:
        for place in _subfolders(split):
            called = split.name if has_splits else TRAIN
            listed += [
                (str(path.relative_to(folder)), place.name, called)
                for path in sorted(place.rglob("*"))
                if _is_image(path)
            ]
    if not listed:
        raise ValueError(f"{folder} holds no folders with images: put the images of each class into one of its own.")
    return file_records(folder, listed)[0]


def _subfolders(folder: Path) -> list[Path]:
    return sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


SOURCE = Source(
    title="a folder per class", looked_for="folders with images in them", recognises=recognises, records=records
)
