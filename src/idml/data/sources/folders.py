"""A folder of images for each class; or one for each split, each with a folder for each class."""

from __future__ import annotations

from pathlib import Path

from idml.data.cache import named
from idml.data.sources.records import Record, Source, file_records, is_image
from idml.data.splits import SPLITS, TRAIN


def recognises(folder: Path) -> bool:
    return folder.is_dir() and any(_holds_images(place) for place in _subfolders(folder))


def records(folder: Path) -> list[Record]:
    """Sorted by name. Folders train, test, query or gallery above the classes are splits; else all is for training."""
    splits = _splits(folder)
    listed = []
    for split in splits or [folder]:
        for place in _subfolders(split):
            called = split.name if splits else TRAIN
            listed += [
                (str(path.relative_to(folder)), place.name, called)
                for path in sorted(place.rglob("*"))
                if is_image(path)
            ]
    if not listed:
        raise ValueError(f"{folder} holds no folders with images: put the images of each class into one of its own.")
    found, missing = file_records(folder, listed)
    if missing:
        raise ValueError(f"{folder} holds {named(missing, what='link')} to nowhere: mend or remove them.")
    return found


def _splits(folder: Path) -> list[Path]:
    """The folders that are splits, if all are: a class may be called train too, among other classes."""
    places = _subfolders(folder)
    splits = [place for place in places if place.name in SPLITS]
    others = [place.name for place in places if place.name not in SPLITS and _holds_images(place)]
    if not others:
        return sorted(splits, key=lambda place: SPLITS.index(place.name))
    if any(_subfolders(place) for place in splits):
        raise ValueError(
            f"{folder} has splits ({', '.join(place.name for place in splits)}) and beside them "
            f"{named(others, what='folder')}: splits are called {', '.join(SPLITS)}. Move the rest into train, or away."
        )
    return []


def _subfolders(folder: Path) -> list[Path]:
    places = sorted(place for place in folder.iterdir() if not place.name.startswith("."))
    for place in places:
        if not place.exists():
            raise ValueError(f"{place} is a link to nowhere: mend or remove it.")
    return [place for place in places if place.is_dir()]


def _holds_images(folder: Path) -> bool:
    return any(is_image(path) for path in folder.rglob("*"))


SOURCE = Source(
    title="a folder per class", looked_for="folders with images in them", recognises=recognises, records=records
)
