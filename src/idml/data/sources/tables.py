"""A CSV with the columns path, label and, if there are splits, split."""

from __future__ import annotations

import csv
from pathlib import Path

from idml.data.cache import named
from idml.data.sources.records import Record, Source, file_records
from idml.data.splits import SPLITS, TRAIN

NEEDED, OPTIONAL = ("path", "label"), "split"


def recognises(source: Path) -> bool:
    return source.suffix.lower() == ".csv" and source.is_file()


def records(source: Path) -> list[Record]:
    """One image a line, in that order; paths are relative to the CSV's folder. Without splits all is for training."""
    listed = []
    with source.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if lacking:
            raise ValueError(
                f"{source} has no column {' and '.join(lacking)}: begin it with path,label or path,label,split."
            )
        for row in reader:
            split = row.get(OPTIONAL) or TRAIN
            if not row["path"] or not row["label"]:
                raise ValueError(f"{source}, line {reader.line_num}: give each image a path and a label.")
            if split not in SPLITS:
                raise ValueError(f"{source}, line {reader.line_num}: split {split!r} is none of {', '.join(SPLITS)}.")
            listed.append((row["path"], row["label"], split))
    found, missing = file_records(source.parent, listed)
    if missing:
        raise ValueError(f"{source} lists {named(missing)} that are not below {source.parent}: mend their paths.")
    if not found:
        raise ValueError(f"{source} lists no images: add a line path,label for each.")
    return found


SOURCE = Source(
    title="a table", looked_for="a .csv file with path,label[,split]", recognises=recognises, records=records
)
