"""Caltech-UCSD Birds 200-2011 (Wah et al., 2011): classes 1 to 100 train, 101 to 200 test (Song et al., CVPR 2016)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from idml.data.sources.records import Record, Source, check_counts, file_records, first_holding
from idml.data.splits import TEST, TRAIN

TITLE = "CUB-200-2011"
EXPECTED = {TRAIN: 5_864, TEST: 5_924}
TRAINING_CLASSES = 100
FIRST_CLASS, LAST_CLASS = "001.Black_footed_Albatross", "200.Common_Yellowthroat"
LIST, LABELS, BELOW = "images.txt", "image_class_labels.txt", ("CUB_200_2011",)
USUAL_IMAGES = 60  # of a class; these have fewer, by class number
FEWER_IMAGES = {
    59: "9 19 20 23 28 33 34 37 39 43 60 78 97 107 115 117 119 124 125 126 135 149 153 157 160 166 168 169 179 181 196",
    58: "3 15 16 58 141 190",
    57: "17 75",
    56: "12 22 178",
    53: "7 32 84",
    52: "24",
    51: "151",
    50: "65 101 113 187",
    49: "105",
    48: "8",
    45: "18",
    44: "5",
    41: "6",
}
_FEWER = {int(number): count for count, numbers in FEWER_IMAGES.items() for number in numbers.split()}


def recognises(folder: Path) -> bool:
    root = first_holding(folder, LIST, BELOW)
    return root is not None and (root / LABELS).exists()


def records(folder: Path, *, expected: Mapping[str, int] = EXPECTED) -> list[Record]:
    """As images.txt and image_class_labels.txt list them, the files below images/."""
    root = first_holding(folder, LIST, BELOW) or folder
    names, labels = _table(root / LIST), _table(root / LABELS)
    listed = [(name, name.split("/")[0], split_of(int(labels[number]))) for number, name in names.items()]
    found, missing = file_records(root / "images", listed)
    check_counts(TITLE, found, expected, missing=missing, hint="" if missing else short_classes(found))
    return found


def split_of(class_number: int) -> str:
    return TRAIN if class_number <= TRAINING_CLASSES else TEST


def is_bird_class(name: str) -> bool:
    """Whether a class is named as CUB's are, number first: 001.Black_footed_Albatross."""
    return re.fullmatch(r"\d{3}\.[\w-]+", name) is not None


def short_classes(records: Sequence[Record], *, shown: int = 5) -> str:
    """In words, which classes have fewer images than they should, as far as classes are CUB's."""
    found = Counter(record.class_name for record in records if is_bird_class(record.class_name))
    short = [
        f"{name} has {found[name]} of {usual}" for name in sorted(found) if found[name] < (usual := images_of(name))
    ]
    if not short:
        return ""
    return f"{len(short)} classes lack images: {', '.join(short[:shown])}{', …' if len(short) > shown else ''}."


def images_of(class_name: str) -> int:
    return _FEWER.get(int(class_name[:3]), USUAL_IMAGES)


def _table(path: Path) -> dict[str, str]:
    """Lines of a number and a value."""
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
    return {number: value.strip() for number, value in pairs}


SOURCE = Source(title=TITLE, looked_for=f"{LIST} and {LABELS}", recognises=recognises, records=records)
