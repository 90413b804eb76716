"""Stops runs that will come to nothing, so that their time goes to better ones.

After Golovin et al. (Google Vizier, KDD 2017): a run is compared with the median of those before it, at
the same epoch; here with a share of it, for late starters deserve some patience.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from idml.data.batches import check_between

Record = dict[str, Any]  # what an epoch's log holds

WATCHED = ("recall@1", "map_at_r", "r_auroc")  # scores that are computed as a run goes on
DEFAULT_SCORE = "map_at_r"
DEFAULT_SHARE = 0.8
FEWEST_RUNS = 3


@dataclass(frozen=True, kw_only=True)
class Halting:
    """When a run is hopeless: its score is below share × the median of finished runs at the same epoch.

    Nothing is stopped before `fewest` finished runs have a score at that epoch, nor in a run's last epoch.
    share 0: nothing is ever stopped.
    """

    score: str = DEFAULT_SCORE
    share: float = DEFAULT_SHARE
    fewest: int = FEWEST_RUNS

    def __post_init__(self):
        check_between("stop-below", self.share, 0.0, 1.0)

    def threshold(self, finished: Sequence[Sequence[Record]], epoch: int) -> float | None:
        """What a run must reach by the end of this epoch; None while there is too little to compare with."""
        name = f"validation_{self.score}"
        at_this_epoch = (record for records in finished for record in records if record["epoch"] == epoch)
        scores = [record[name] for record in at_this_epoch if _is_known(record.get(name))]
        return self.share * median(scores) if self.share and len(scores) >= self.fewest else None

    def watching(self, finished: Sequence[Sequence[Record]], *, epochs: int) -> Callable[[Record], bool]:
        """For a run of so many epochs: whether it should stop after the epoch of this record."""

        def should_stop(record: Record) -> bool:
            score = record.get(f"validation_{self.score}")
            if score is None or record["epoch"] >= epochs:
                return False
            threshold = self.threshold(finished, record["epoch"])
            return threshold is not None and score < threshold

        return should_stop


def _is_known(score: float | None) -> bool:
    return score is not None and math.isfinite(score)
