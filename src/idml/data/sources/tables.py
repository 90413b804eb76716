"""A CSV with the columns path, label and, if there are splits, split."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from idml.data.cache import named
from idml.data.sources.records import Record, Source, file_records
from idml.data.splits import SPLITS, TRAIN

NEEDED, OPTIONAL = ("path", "label"), "split"


def recognises(source: Path) -> bool:
    return source.suffix.lower() == ".csv" and source.is_file()


def records(source: Path) -> list[Record]:
    """One image a line, in that order; paths are relative to the CSV's folder. Without splits all is for training."""
    with source.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            listed = list(_listed(source, reader))
        except UnicodeDecodeError:
            raise ValueError(f"{source} is not in UTF-8: save it as such.") from None
        except csv.Error as error:
            raise ValueError(
                f"{source}, line {reader.line_num}: {error}. Is a quote before it open? Close or double it."
            ) from None
    found, missing = file_records(source.parent, listed)
    if missing:
        raise ValueError(f"{source} lists {named(missing)} that are not below {source.parent}: mend their paths.")
    if not found:
        raise ValueError(f"{source} lists no images: add a line path,label for each.")
    return found


def _listed(source: Path, reader: csv.DictReader) -> Iterator[tuple[str, str, str]]:
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
        yield row["path"], row["label"], split


SOURCE = Source(
    title="a table", looked_for="a .csv file with path,label[,split]", recognises=recognises, records=records
)
