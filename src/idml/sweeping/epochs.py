"""Scores by epoch: how long to train, chosen on validation classes.

Where the learning rate is constant and weights are averaged, every epoch is a finished model, and one run shows what
all shorter ones would have come to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from idml.errors import unknown_name
from idml.sweeping.halting import WATCHED
from idml.sweeping.lab import Line
from idml.sweeping.summary import NOTHING, arms_of, named_score


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An arm's score after each epoch that was validated, the mean over the seeds that came so far; seeds: how many."""

    arm: str
    means: dict[int, float]
    seeds: dict[int, int]

    @property
    def best(self) -> int:
        """The epoch after which the score is highest, of those that most seeds reached; of equal ones the first."""
        most = max(self.seeds.values())
        return max((epoch for epoch in self.means if self.seeds[epoch] == most), key=lambda epoch: self.means[epoch])


def curves(lines: Sequence[Line], *, by: str) -> list[Curve]:
    """The arms of one table that were validated on the way, the best first."""
    if by not in WATCHED:
        raise unknown_name("score by epoch", by, WATCHED)
    found = []
    for arm, runs in arms_of(lines).items():
        scores: dict[int, list[float]] = {}
        for record in (record for line in runs for record in line["epochs"]):
            score = record.get(f"validation_{by}")
            if score is not None and math.isfinite(score):
                scores.setdefault(record["epoch"], []).append(score)
        if scores:
            by_epoch = sorted(scores.items())
            means = {epoch: fmean(values) for epoch, values in by_epoch}
            found.append(Curve(arm=arm, means=means, seeds={epoch: len(values) for epoch, values in by_epoch}))
    return sorted(found, key=lambda curve: -curve.means[curve.best])


def epoch_table(found: Sequence[Curve], *, by: str, columns: int | None = None) -> list[list[str]]:
    """Cells: the headings, then a row an arm: its best epoch, and its scores after some epochs, the last among them.

    columns: of epochs, at most.
    """
    epochs = sorted({epoch for curve in found for epoch in curve.means})
    step = 1 if columns is None else math.ceil(len(epochs) / max(columns, 1))
    shown = epochs[::-1][::step][::-1]
    score = named_score(by)
    rows = [["arm", "seeds", "best epoch", *(str(epoch) for epoch in shown)]]
    for curve in found:
        cells = [f"{score.scale * curve.means[epoch]:.1f}" if epoch in curve.means else NOTHING for epoch in shown]
        rows.append([curve.arm, str(max(curve.seeds.values())), str(curve.best), *cells])
    return rows
