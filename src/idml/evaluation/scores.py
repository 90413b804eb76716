"""What an evaluation finds: every score a fraction in 0..1 with its interval, and what each query did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from idml.distances import Introspective
from idml.evaluation.calibration import Calibration, CrossFitted
from idml.evaluation.correlation import Correlation
from idml.evaluation.intervals import Interval


class Row(NamedTuple):
    """One line of a table: a score under the name that people know it by."""

    key: str  # in `Scores.intervals`, and of several runs that are compared
    name: str
    value: float
    interval: Interval | None
    lower_is_better: bool = False
    is_share: bool = True

    def written(self, value: float) -> str:
        """A value of this score for people: a percentage, or a number; a dash where it has no meaning."""
        if math.isnan(value):
            return "–"
        return f"{100 * value:.2f} %" if self.is_share else f"{value:.3f}"


@dataclass(frozen=True, kw_only=True)
class FailureScores:
    """How well what is known of a query tells that it fails: see `idml.evaluation.failures` and `.calibration`.

    r_auroc_of_length: of the image alone, by the length of its semantic embedding; the shorter, the less certain.
    r_auroc_of_distance: by the distance α to the nearest image. r_auroc_of_neighbours: by distances to neighbours
    farther out as well, in a confidence that is fitted on other classes of this set, without uncertainty.
    r_auroc_of_confidence: by the confidence, with uncertainty where there is any: that given, or one fitted likewise.
    What is fitted here is judged over pairs of queries that one calibration has judged.
    r_auroc_of_gap: by how much farther than the nearest image the nearest of another class is; needs labels.
    aurc_of_confidence: the mean risk as queries are accepted by falling confidence.
    calibration_error: of the confidence. calibration: what was given, or is fitted on all queries, for use elsewhere.
    NaN where a score has no meaning, as where all queries are right.
    """

    r_auroc_of_length: float
    r_auroc_of_distance: float
    r_auroc_of_neighbours: float
    r_auroc_of_confidence: float
    r_auroc_of_gap: float
    aurc_of_confidence: float
    calibration_error: float
    calibration: Calibration

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"calibration": self.calibration.to_dict()}


@dataclass(frozen=True, kw_only=True)
class UncertaintyScores:
    """What the level is worth: see `idml.evaluation.uncertainty` and `.correlation`. NaN where it has no meaning."""

    mean_level: float
    r_auroc: float
    aurc: float
    excess_aurc: float
    spearman: float
    correlation: Correlation | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """What each query did; NaN for queries whose class has no other image."""

    first_rank: Int[Tensor, " q"]  # of the nearest image of the class; 0 if there is none
    is_judged: Bool[Tensor, " q"]  # whether there is another image of its class to find
    r_precision: Float[Tensor, " q"]
    average_precision_at_r: Float[Tensor, " q"]
    average_precision: Float[Tensor, " q"]
    level: Float[Tensor, " q"] | None = None
    length: Float[Tensor, " q"] | None = None  # of the semantic embedding; this and what follows tells of failures
    nearest: Int[Tensor, " q"] | None = None
    distances: Float[Tensor, "q r"] | None = None  # to the neighbours at `calibration.RANKS`
    gap: Float[Tensor, " q"] | None = None  # from the nearest to the first of another class than that: infinite if none
    by_distances: CrossFitted | None = None  # confidences by these alone, if there are other classes to fit them on
    by_all: CrossFitted | None = None  # by uncertainty as well, where there is any, or by a calibration from elsewhere

    @property
    def is_right(self) -> Bool[Tensor, " q"]:
        """Whether the nearest neighbour is of the query's class."""
        return self.first_rank == 1

    @property
    def confidence(self) -> Float[Tensor, " q"] | None:
        return None if self.by_all is None else self.by_all.confidence


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one set of embeddings.

    recall counts queries whose class has no other image (`lone_queries`) as misses; all other
    scores leave them out. nmi, ami and f1 are None where clustering was not asked for, failures where these were
    not, uncertainty where the embeddings have none. rises: the share of images whose level rises, by kind of change and
    degree. introspective: the distance, where it was that. intervals: 95 % by bootstrap over queries, by
    the names in `rows`.
    """

    recall: dict[int, float]
    precision_at_1: float
    r_precision: float
    map_at_r: float
    mean_average_precision: float
    nmi: float | None
    ami: float | None
    f1: float | None
    failures: FailureScores | None
    uncertainty: UncertaintyScores | None
    distance: str
    introspective: Introspective | None = None
    rises: dict[str, dict[float, float]] = field(default_factory=dict)
    query_count: int
    gallery_count: int
    class_count: int
    lone_queries: int
    intervals: dict[str, Interval] = field(default_factory=dict)
    queries: Queries | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        named = {f"recall[{k}]": value for k, value in self.recall.items()}
        named |= {name: getattr(self, name) for name in _FRACTIONS}
        for name, value in named.items():
            if value is not None and not 0 <= value <= 1 + 1e-9:
                raise ValueError(f"{name} is {value}: a score is a fraction in 0..1.")

    def rows(self) -> list[Row]:
        """All scores in the order of a table."""
        named = [(f"recall@{k}", f"Recall@{k}", value) for k, value in self.recall.items()]
        named += [
            ("precision@1", "Precision@1", self.precision_at_1),
            ("r_precision", "R-Precision", self.r_precision),
            ("map_at_r", "MAP@R", self.map_at_r),
            ("map", "mAP", self.mean_average_precision),
            ("nmi", "NMI", self.nmi),
            ("ami", "AMI", self.ami),
            ("f1", "F1", self.f1),
        ]
        rows = [Row(key, name, value, None) for key, name, value in named if value is not None]
        rows += [*self._uncertainty_rows(), *self._failure_rows(), *self._rise_rows()]
        return [row._replace(interval=self.intervals.get(row.key)) for row in rows]

    def _uncertainty_rows(self) -> list[Row]:
        found = self.uncertainty
        if found is None:
            return []
        rows = [
            Row("r_auroc", "R-AUROC, level", found.r_auroc, None),
            Row("aurc", "AURC, level", found.aurc, None, lower_is_better=True),
            Row("excess_aurc", "excess AURC", found.excess_aurc, None, lower_is_better=True),
            Row("spearman", "Spearman, level and AP", found.spearman, None, lower_is_better=True, is_share=False),
            Row("mean_level", "mean level", found.mean_level, None, is_share=False),
        ]
        if found.correlation is not None:
            words = "of relative s and u"
            rows += [
                Row("jaccard", f"Jaccard {words}", found.correlation.jaccard, None, lower_is_better=True),
                Row("mrr", f"MRR {words}", found.correlation.mrr, None, lower_is_better=True),
                Row("cosine", f"cosine {words}", found.correlation.cosine, None, lower_is_better=True),
            ]
        return rows

    def _failure_rows(self) -> list[Row]:
        found = self.failures
        if found is None:
            return []
        return [
            Row("r_auroc_of_length", "R-AUROC, semantic length", found.r_auroc_of_length, None),
            Row("r_auroc_of_distance", "R-AUROC, nearest distance", found.r_auroc_of_distance, None),
            Row("r_auroc_of_neighbours", "R-AUROC, neighbours", found.r_auroc_of_neighbours, None),
            Row("r_auroc_of_confidence", "R-AUROC, confidence", found.r_auroc_of_confidence, None),
            Row("r_auroc_of_gap", "R-AUROC, gap between classes", found.r_auroc_of_gap, None),
            Row("aurc_of_confidence", "AURC, confidence", found.aurc_of_confidence, None, lower_is_better=True),
            Row("calibration_error", "calibration error", found.calibration_error, None, lower_is_better=True),
        ]

    def _rise_rows(self) -> list[Row]:
        return [
            Row(f"rises/{kind}/{degree:g}", f"level rises, {kind.replace('_', ' ')} {degree:g}", share, None)
            for kind, shares in self.rises.items()
            for degree, share in shares.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text and dicts only, ready for JSON; what has no meaning is None."""
        apart = ("queries", "failures", "uncertainty", "intervals", "introspective")
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in apart}
        values["introspective"] = None if self.introspective is None else asdict(self.introspective)
        values["failures"] = None if self.failures is None else self.failures.to_dict()
        values["uncertainty"] = None if self.uncertainty is None else asdict(self.uncertainty)
        values["intervals"] = {name: [interval.low, interval.high] for name, interval in self.intervals.items()}
        return without_nan(values)

    def __str__(self) -> str:
        return "\n".join(f"{row.name:28}{row.written(row.value):>10}" for row in self.rows())


_FRACTIONS = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision", "nmi", "f1")


def without_nan(value: Any) -> Any:
    """The same for JSON, which has neither NaN nor infinity: None instead."""
    if isinstance(value, dict):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
