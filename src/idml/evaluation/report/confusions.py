"""Which classes are taken for each other: by the class of the nearest image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.evaluation.embedded import Embedded
from idml.evaluation.report.elements import Html, element, figure, note, percent, table
from idml.evaluation.report.names import class_name
from idml.evaluation.report.neighbourhood import MOST_QUERIES, Nearest
from idml.evaluation.report.plots import confusion_plot
from idml.evaluation.scores import Queries

MOST_PAIRS = 20  # in the table
ALL_CLASSES = 60  # up to which the whole matrix can be read
MOST_CLASSES = 30  # else so many


class Confusion(NamedTuple):
    """Queries of one class whose nearest image is of another."""

    own: int
    taken_for: int
    number: int
    share: float  # of the class's queries
    back: int  # how many queries of the other class are taken for this one


@dataclass(frozen=True, eq=False)
class Confusions:
    """How often queries of a class have their nearest image in another one, or in their own.

    own, taken_for, count: for each pair of classes that happens. queries: the number of each class.
    """

    own: Int[Tensor, " p"]
    taken_for: Int[Tensor, " p"]
    count: Int[Tensor, " p"]
    queries: dict[int, int]

    @classmethod
    def of(cls, own: Int[Tensor, " q"], taken_for: Int[Tensor, " q"]) -> Confusions:
        pairs, count = torch.stack([own, taken_for], dim=1).unique(dim=0, return_counts=True)
        classes, number = own.unique(return_counts=True)
        return cls(pairs[:, 0], pairs[:, 1], count, dict(zip(classes.tolist(), number.tolist(), strict=True)))

    def most_frequent(self, limit: int = MOST_PAIRS) -> list[Confusion]:
        """The errors that happen most; of equally frequent ones that with the larger share of its class first."""
        counts = dict(
            zip(zip(self.own.tolist(), self.taken_for.tolist(), strict=True), self.count.tolist(), strict=True)
        )
        found = [
            Confusion(own, other, count, count / self.queries[own], counts.get((other, own), 0))
            for (own, other), count in counts.items()
            if own != other
        ]
        return sorted(found, key=lambda pair: (-pair.number, -pair.share, pair.own, pair.taken_for))[:limit]

    def classes_to_show(self) -> list[int]:
        """All classes if they are few; else those which most errors are about, on either side."""
        classes, place = torch.cat([self.own, self.taken_for]).unique(return_inverse=True)
        if len(classes) <= ALL_CLASSES:
            return classes.tolist()
        errors = self.count * (self.own != self.taken_for)
        total = torch.zeros(len(classes), dtype=torch.long).index_add_(0, place, errors.repeat(2))
        most = total.argsort(descending=True, stable=True)[:MOST_CLASSES]
        return classes[most].sort().values.tolist()

    def shares(self, classes: list[int]) -> Float[Tensor, "c c"]:
        """Row by row, the shares of a class's queries with their nearest image in each class."""
        place = {number: position for position, number in enumerate(classes)}
        shares = torch.zeros(len(classes), len(classes), dtype=torch.float64)
        for own, other, count in zip(self.own.tolist(), self.taken_for.tolist(), self.count.tolist(), strict=True):
            if own in place and other in place:
                shares[place[own], place[other]] = count / self.queries[own]
        return shares


def confusion_content(queries: Queries, embedded: Embedded, closest: Nearest | None) -> list[Html]:
    """The most frequent errors as a table and a matrix, of queries that have an image of their class to find."""
    if closest is None:
        return [note(f"Left out: nearest images are searched for at most {MOST_QUERIES:,} queries.")]
    judged = queries.is_judged.cpu()
    gallery = embedded.gallery or embedded
    found = Confusions.of(embedded.labels.cpu()[judged], gallery.labels.cpu()[closest.place[judged]])
    pairs = found.most_frequent()
    if not pairs:
        return [note("None: the nearest image of every query is of its class, if there is one to find.")]
    rows = [
        [*(class_name(embedded, label) for label in pair[:2]), pair.number, percent(pair.share), pair.back]
        for pair in pairs
    ]
    head = ["queries of", "taken for", "how many", "of its queries", "the other way round"]
    classes = found.classes_to_show()
    words = f"Shares of the queries of {len(classes)} classes, one in a row: what is not on the diagonal is wrong."
    matrix = confusion_plot(found.shares(classes), [class_name(embedded, label) for label in classes])
    shown = [
        table("The most frequent errors, by the class of the nearest image.", head, rows, class_="pairs"),
        figure(matrix, alt=f"Confusion matrix. {words}", caption=words),
    ]
    return [element("div", *shown, class_="beside")]
