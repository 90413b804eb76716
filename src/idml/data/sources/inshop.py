"""In-shop Clothes Retrieval of DeepFashion (Liu et al., CVPR 2016): training images, queries and their gallery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from idml.data.sources.records import Record, Source, check_counts, file_records, first_holding
from idml.data.splits import GALLERY, QUERY, TRAIN

TITLE = "In-shop Clothes Retrieval"
EXPECTED = {TRAIN: 25_882, QUERY: 14_218, GALLERY: 12_612}
LIST = "list_eval_partition.txt"
BELOW = ("Eval", "Anno")
HEADER = 2  # lines: how many images, and the names of the columns
IMAGES = ("Img", "img_highres")  # folders in which releases keep the listed img/


def recognises(folder: Path) -> bool:
    return first_holding(folder, LIST, BELOW) is not None


def records(folder: Path, *, expected: Mapping[str, int] = EXPECTED) -> list[Record]:
    """As the partition lists them, in lines of path, item and status."""
    root = first_holding(folder, LIST, BELOW) or folder
    found, missing = file_records(first_holding(folder, "img", IMAGES) or folder, _listed(root / LIST))
    check_counts(TITLE, found, expected, missing=missing)
    return found


def _listed(path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text().splitlines()[HEADER:]:
        if line.strip():
            name, item, split = line.split()
            yield name, item, split


SOURCE = Source(title=TITLE, looked_for=f"Eval/{LIST}", recognises=recognises, records=records)
