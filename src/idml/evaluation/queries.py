"""What each query did, as a table for spreadsheets: what it found, whether that is right, and how sure one may be."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from idml.atomic import writing
from idml.evaluation.embedded import Embedded
from idml.evaluation.scores import Queries


def write_queries(path: Path, queries: Queries, embedded: Embedded) -> None:
    """Write a line a query; what is not known is left empty. Images are named by their path, or by their number."""
    with writing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(_rows(queries, embedded))


def _rows(queries: Queries, embedded: Embedded) -> Iterator[list[str]]:
    places = range(len(queries.is_right))
    gallery = embedded.gallery or embedded
    of_gallery = gallery.labels.tolist()
    found = [-1 for _ in places] if queries.nearest is None else queries.nearest.tolist()
    judged = zip(queries.is_judged.tolist(), queries.is_right.tolist(), strict=True)
    distance = None if queries.distances is None else queries.distances[:, 0]
    columns = {
        "image": [_image(embedded, place) for place in places],
        "class": [_class(embedded, number) for number in embedded.labels.tolist()],
        "is_right": [str(is_right).lower() if is_judged else "" for is_judged, is_right in judged],
        "confidence": _written(queries.confidence, places),
        "level": _written(queries.level, places),
        "nearest": [_image(gallery, place) if place >= 0 else "" for place in found],
        "nearest_class": [_class(embedded, of_gallery[place]) if place >= 0 else "" for place in found],
        "distance": _written(distance, places),
        "gap": _written(queries.gap, places),
        "ap_at_r": _written(queries.average_precision_at_r, places),
    }
    yield list(columns)
    yield from map(list, zip(*columns.values(), strict=True))


def _written(values: Tensor | None, places: range) -> list[str]:
    """Six digits of each; nothing for what is not known, or not finite."""
    known = [math.nan for _ in places] if values is None else values.tolist()
    return [f"{value:.6g}" if math.isfinite(value) else "" for value in known]


def _image(embedded: Embedded, place: int) -> str:
    return str(place) if embedded.images is None else embedded.images[place]


def _class(embedded: Embedded, number: int) -> str:
    return str(number) if embedded.class_names is None else embedded.class_names[number]
