"""Stanford Online Products (Song et al., CVPR 2016): 11,318 products train, 11,316 test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from idml.data.sources.records import Record, Source, check_counts, file_records, first_holding
from idml.data.splits import TEST, TRAIN

TITLE = "Stanford Online Products"
EXPECTED = {TRAIN: 59_551, TEST: 60_502}
LISTS = {TRAIN: "Ebay_train.txt", TEST: "Ebay_test.txt"}
BELOW = ("Stanford_Online_Products",)


def recognises(folder: Path) -> bool:
    return first_holding(folder, LISTS[TRAIN], BELOW) is not None


def records(folder: Path, *, expected: Mapping[str, int] = EXPECTED) -> list[Record]:
    """As the two lists say, in lines of image, class, super-class and path."""
    root = first_holding(folder, LISTS[TRAIN], BELOW) or folder
    found, missing = file_records(root, _listed(root))
    check_counts(TITLE, found, expected, missing=missing)
    return found


def _listed(root: Path) -> Iterator[tuple[str, str, str]]:
    for split, file in LISTS.items():
        if not (root / file).exists():
            raise ValueError(f"{root} holds no {file}: {TITLE} has {' and '.join(LISTS.values())}. Unpack it again.")
        for line in (root / file).read_text().splitlines()[1:]:
            _image, class_number, _super_class, path = line.split(maxsplit=3)
            yield path, class_number, split


SOURCE = Source(title=TITLE, looked_for=" and ".join(LISTS.values()), recognises=recognises, records=records)
