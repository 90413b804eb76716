"""Queries and what they find, as pictures: the best, the worst, the most and the least certain ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.distances import Introspective
from idml.evaluation.embedded import Embedded
from idml.evaluation.report.elements import NOTHING, Html, element, note, number, percent
from idml.evaluation.report.names import class_name
from idml.evaluation.report.neighbourhood import Nearest, nearest_of
from idml.evaluation.report.pictures import Pictures
from idml.evaluation.scores import Queries

ROWS = 4  # queries of each kind


@dataclass(frozen=True, eq=False)
class Group:
    """Queries that are shown together, and why."""

    title: str
    explanation: str
    rows: Int[Tensor, " r"]


def chosen_groups(queries: Queries, closest: Nearest | None, *, rows: int = ROWS) -> list[Group]:
    """The queries to show; of equally good, or equally certain ones those closest to what they find.

    Queries whose class has no other image are neither good nor bad, but may be certain.
    """
    distance = torch.zeros(len(queries.is_judged)) if closest is None else closest.distance
    every = torch.arange(len(queries.is_judged))
    judged = every[queries.is_judged.cpu()]
    quality = queries.average_precision_at_r.cpu()
    groups = [
        Group("Best", "the highest average precision at R", _lowest(judged, -quality, distance)[:rows]),
        Group("Worst", "the lowest average precision at R", _lowest(judged, quality, distance)[:rows]),
    ]
    if queries.level is not None:
        level = queries.level.cpu()
        groups += [
            Group("Most certain", "the lowest level", _lowest(every, level, distance)[:rows]),
            Group("Least certain", "the highest level", _lowest(every, -level, distance)[:rows]),
        ]
    return groups


def retrieval_content(
    queries: Queries,
    embedded: Embedded,
    closest: Nearest | None,
    pictures: Pictures,
    *,
    introspective: Introspective | None,
    neighbours: int,
    memory: int,
) -> list[Html]:
    """A line of pictures for each chosen query: itself, then its nearest neighbours."""
    groups = chosen_groups(queries, closest)
    rows = torch.cat([group.rows for group in groups])
    found = iter(nearest_of(rows, embedded, k=neighbours, introspective=introspective, memory=memory).tolist())
    content = []
    for group in groups:
        lines = [_line(row, next(found), queries, embedded, pictures) for row in group.rows.tolist()]
        content += [element("h3", group.title, element("small", f" {group.explanation}")), *lines]
    explanation = "The query is on the left, then come its nearest images. ✓: of its class; ✗: of another."
    return [note(explanation), *content]


def _lowest(rows: Int[Tensor, " k"], value: Float[Tensor, " n"], distance: Float[Tensor, " n"]) -> Int[Tensor, " k"]:
    """These rows by rising value; equal ones by rising distance, then in their order."""
    rows = rows[distance[rows].argsort(stable=True)]
    return rows[value[rows].argsort(stable=True)]


def _line(row: int, places: list[int], queries: Queries, embedded: Embedded, pictures: Pictures) -> Html:
    gallery = embedded.gallery or embedded
    own = int(embedded.labels[row])
    facts = ["alone in its class"]
    if queries.is_judged[row]:
        facts = [f"AP@R {percent(float(queries.average_precision_at_r[row]), decimals=1)}"]
    if queries.confidence is not None and queries.is_judged[row]:
        facts.append(f"confidence {percent(float(queries.confidence[row]), decimals=1)}")
    name = class_name(embedded, own)
    tiles = [_tile(embedded, row, name, pictures, role="query", facts=facts)]
    for place in places:
        label = int(gallery.labels[place])
        role = "right" if label == own else "wrong"
        tiles.append(_tile(gallery, place, class_name(embedded, label), pictures, role=role))
    return element("div", *tiles, class_="line", tabindex=0, role="group", aria_label=f"query {row}, {name}")


def _tile(side: Embedded, row: int, name: str, pictures: Pictures, *, role: str, facts: Sequence[str] = ()) -> Html:
    """One picture with its class and level; a grey box where there is none to show."""
    mark = {"query": "query", "right": "✓", "wrong": "✗"}[role]
    level = None if side.embedding.uncertainty is None else number(float(side.embedding[row].level), digits=3)
    known = facts if level is None else [f"level {level}", *facts]
    return element(
        "figure",
        element("span", mark, class_="mark", aria_hidden="true"),
        _picture(side, row, f"{role}: image {row}, {name}", pictures),
        element("figcaption", element("b", name, title=name), *(element("span", fact) for fact in known)),
        class_=f"tile {role}",
    )


def _picture(side: Embedded, row: int, alt: str, pictures: Pictures) -> Html:
    if side.images is None:
        return element("div", f"#{row}", class_="box", role="img", aria_label=alt)
    path = side.images[row]
    thumbnail = pictures.thumbnail(path)
    if thumbnail is None:
        name = PurePath(path).name or NOTHING
        return element("div", name, class_="box missing", role="img", aria_label=f"{alt}, missing", title=path)
    return element("img", src=thumbnail, alt=alt, title=path)
