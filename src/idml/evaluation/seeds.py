"""Several runs of one method, and of another on the same seeds, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from idml.evaluation.intervals import Difference, Spread, over_seeds, paired_difference
from idml.evaluation.scores import Row, Scores


@dataclass(frozen=True)
class Compared:
    """One score over seeds: ours, and if there is another method, theirs and the paired difference."""

    row: Row  # of the first run: what the score is called
    ours: Spread
    theirs: Spread | None = None
    difference: Difference | None = None

    def to_dict(self) -> dict[str, Any]:
        answer: dict[str, Any] = asdict(self.ours)
        if self.theirs is not None and self.difference is not None:
            answer["theirs"] = asdict(self.theirs)
            answer["difference"] = asdict(self.difference) | {"is_inside_noise": self.difference.is_inside_noise}
        return answer


def compared(ours: Sequence[Scores], theirs: Sequence[Scores] = ()) -> list[Compared]:
    """Every score that all our runs have; a score without meaning in some run is left out."""
    first, *_ = (scores.rows() for scores in ours)
    of_ours, of_theirs = ([{row.key: row.value for row in scores.rows()} for scores in side] for side in (ours, theirs))
    found = []
    for row in first:
        mine, other = (_values(side, row.key) for side in (of_ours, of_theirs))
        if mine and other:
            found.append(Compared(row, over_seeds(mine), over_seeds(other), paired_difference(mine, other)))
        elif mine:
            found.append(Compared(row, over_seeds(mine)))
    return found


def _values(runs: Sequence[dict[str, float]], key: str) -> list[float]:
    """One value a run; none at all if some run lacks it."""
    values = [run.get(key, math.nan) for run in runs]
    return values if all(map(math.isfinite, values)) else []
