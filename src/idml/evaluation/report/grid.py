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

    Queries whose class has no other image are neither good nor bad; by their level, they may be certain.
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
    elif queries.confidence is not None:
        confidence = queries.confidence.cpu()
        groups += [
            Group("Most certain", "the highest confidence", _lowest(judged, -confidence, distance)[:rows]),
            Group("Least certain", "the lowest confidence", _lowest(judged, confidence, distance)[:rows]),
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
    own = _Side(embedded, pictures)
    gallery = own if embedded.gallery is None else _Side(embedded.gallery, pictures)
    content = []
    for group in groups:
        lines = [_line(row, next(found), queries, own, gallery) for row in group.rows.tolist()]
        content += [element("h3", group.title, element("small", f" {group.explanation}")), *lines]
    explanation = "The query is on the left, then come its nearest images. ✓: of its class; ✗: of another."
    if own.level is not None:
        explanation += f" A level “above {percent(0.9, decimals=0)}” is higher than those of so many images of its set."
    return [note(explanation), *content]


def _lowest(rows: Int[Tensor, " k"], value: Float[Tensor, " n"], distance: Float[Tensor, " n"]) -> Int[Tensor, " k"]:
    """These rows by rising value; equal ones by rising distance, then in their order."""
    rows = rows[distance[rows].argsort(stable=True)]
    return rows[value[rows].argsort(stable=True)]


class _Side:
    """Queries, or what they are compared with, and how high the level of each image is among them."""

    def __init__(self, embedded: Embedded, pictures: Pictures):
        self.embedded, self.pictures = embedded, pictures
        self.level = None if embedded.embedding.uncertainty is None else embedded.embedding.level.cpu()
        self.ascending = None if self.level is None else self.level.sort().values

    def tile(self, row: int, name: str, *, role: str, facts: Sequence[str] = ()) -> Html:
        """One picture with its class and level; a grey box where there is none to show."""
        mark = {"query": "query", "right": "✓", "wrong": "✗"}[role]
        return element(
            "figure",
            element("span", mark, class_="mark", aria_hidden="true"),
            _picture(self.embedded, row, f"{role}: image {row}, {name}", self.pictures),
            element(
                "figcaption",
                element("b", name, title=name),
                *(element("span", fact) for fact in [*self._told_level(row), *facts]),
            ),
            class_=f"tile {role}",
        )

    def _told_level(self, row: int) -> list[str]:
        """The level, and the share of images whose level it is above; nothing where there is no uncertainty."""
        if self.level is None or self.ascending is None:
            return []
        level = self.level[row]
        share = int(torch.searchsorted(self.ascending, level)) / len(self.ascending)
        return [f"level {number(float(level), digits=3)}, above {percent(share, decimals=0)}"]


def _line(row: int, places: list[int], queries: Queries, own: _Side, gallery: _Side) -> Html:
    label = int(own.embedded.labels[row])
    facts = ["alone in its class"]
    if queries.is_judged[row]:
        facts = [f"AP@R {percent(float(queries.average_precision_at_r[row]), decimals=1)}"]
    if queries.confidence is not None and queries.is_judged[row]:
        facts.append(f"confidence {percent(float(queries.confidence[row]), decimals=1)}")
    name = class_name(own.embedded, label)
    tiles = [own.tile(row, name, role="query", facts=facts)]
    for place in places:
        other = int(gallery.embedded.labels[place])
        tiles.append(gallery.tile(place, class_name(own.embedded, other), role="right" if other == label else "wrong"))
    return element("div", *tiles, class_="line", tabindex=0, role="group", aria_label=f"query {row}, {name}")


def _picture(side: Embedded, row: int, alt: str, pictures: Pictures) -> Html:
    if side.images is None:
        return element("div", f"#{row}", class_="box", role="img", aria_label=alt)
    path = side.images[row]
    thumbnail = pictures.thumbnail(path)
    if thumbnail is None:
        name = PurePath(path).name or NOTHING
        return element("div", name, class_="box missing", role="img", aria_label=f"{alt}, missing", title=path)
    return element("img", src=thumbnail, alt=alt, title=path)
