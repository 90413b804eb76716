"""From the lines of a lab log to a table: each arm over its seeds, and its paired difference from a baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from idml.errors import unknown_name
from idml.evaluation.intervals import Difference, Spread, over_seeds, paired_difference
from idml.sweeping.lab import Line, arm_identity

FEWEST_PAIRS = 2  # of seeds, to tell a difference from noise
NOTHING = "–"
DIFFERENCE = "difference"  # begins the heading of that column


class Score(NamedTuple):
    """What a score is called, and how it is read. is_chosen_by: whether more, or less, of it is better."""

    name: str
    lower_is_better: bool = False
    is_share: bool = True
    is_chosen_by: bool = True

    @property
    def heading(self) -> str:
        """Its name in a table, with its unit, and a mark if less is better."""
        return self.name + self.unit + (" ↓" if self.lower_is_better else "")

    @property
    def unit(self) -> str:
        return " %" if self.is_share else ""

    @property
    def scale(self) -> float:
        """Shares are written as percentages."""
        return 100.0 if self.is_share else 1.0

    def written(self, spread: Spread) -> str:
        """Mean ± standard deviation under that heading; the mean alone of a single seed."""
        decimals = 2 if self.is_share else 3
        values = [value for value in (spread.mean, spread.standard_deviation) if value is not None]
        return " ± ".join(f"{self.scale * value:.{decimals}f}" for value in values)


SCORES: dict[str, Score] = {
    "recall@1": Score("Recall@1"),
    "recall@2": Score("Recall@2"),
    "recall@4": Score("Recall@4"),
    "recall@8": Score("Recall@8"),
    "r_precision": Score("R-Precision"),
    "map_at_r": Score("MAP@R"),
    "recall@1_at_image_size": Score("Recall@1 at image_size"),
    "map_at_r_at_image_size": Score("MAP@R at image_size"),
    "nmi": Score("NMI"),
    "r_auroc": Score("R-AUROC"),
    "r_auroc_of_length": Score("R-AUROC, semantic length"),
    "r_auroc_of_distance": Score("R-AUROC, nearest distance"),
    "r_auroc_of_neighbours": Score("R-AUROC, neighbours"),
    "r_auroc_of_confidence": Score("R-AUROC, confidence"),
    "r_auroc_of_gap": Score("R-AUROC, gap between classes"),
    "r_auroc_of_pair": Score("R-AUROC, nearest pair"),  # in logs from before a confidence looked at more neighbours
    "aurc_of_confidence": Score("AURC, confidence", lower_is_better=True),
    "aurc": Score("AURC", lower_is_better=True),
    "mixed_auroc": Score("mixed AUROC"),
    "level_clean": Score("level", is_share=False, is_chosen_by=False),
    "level_mixed": Score("level, mixed", is_share=False, is_chosen_by=False),
    "weight_positive": Score("weight of positive pairs", is_share=False, is_chosen_by=False),
    "weight_negative": Score("weight of negative pairs", is_share=False, is_chosen_by=False),
}
ONLY_FINAL = ("nmi", "recall@1_at_image_size", "map_at_r_at_image_size")
DEFAULT_SCORE = "map_at_r"
SHOWN = ("recall@1", "map_at_r", "nmi", "r_auroc", "mixed_auroc")  # what fits on a screen; the log has all


def named_score(key: str) -> Score:
    """The score of that key; one that is not known here is a number under its own name."""
    return SCORES.get(key, Score(key, is_share=False))


def check_score(by: str, *, is_final: bool = True) -> None:
    """Raise if arms cannot be ordered by this score."""
    known = [key for key, score in SCORES.items() if score.is_chosen_by]
    if by not in known:
        raise unknown_name("score", by, known)
    if by in ONLY_FINAL and not is_final:
        raise ValueError(f"{by} is computed with --final alone: choose by another score, such as {DEFAULT_SCORE}.")


@dataclass(frozen=True, kw_only=True)
class Result:
    """An arm over its seeds. values: by score and seed, of runs that finished; stopped: the epoch, and failed: the
    reason, by seed; differences: from the baseline, on the seeds that both finished.
    """

    arm: str
    split: str
    dataset: str
    values: dict[str, dict[int, float]]
    finished: list[int]
    stopped: dict[int, int]
    failed: dict[int, str]
    seconds: float
    config: dict[str, Any] = field(repr=False)
    against: str | None = None  # None: this is the baseline
    differences: dict[str, Difference] = field(default_factory=dict)

    @property
    def spreads(self) -> dict[str, Spread]:
        return {key: over_seeds(list(values.values())) for key, values in self.values.items()}

    @property
    def runs(self) -> str:
        """How many runs stand behind the scores, and how many do not."""
        words = [str(len(self.finished))]
        words += [f"{len(runs)} {what}" for what, runs in (("stopped", self.stopped), ("failed", self.failed)) if runs]
        return ", ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; without the config, which the log has."""
        return {
            "arm": self.arm,
            "split": self.split,
            "dataset": self.dataset,
            "seeds": self.finished,
            "stopped": self.stopped,
            "failed": self.failed,
            "seconds": self.seconds,
            "scores": {key: asdict(spread) for key, spread in self.spreads.items()},
            "against": self.against,
            "differences": {
                key: asdict(one) | {"is_inside_noise": one.is_inside_noise} for key, one in self.differences.items()
            },
        }


def parted(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that may stand in one table: of the same data, scored on the same classes."""
    found: dict[tuple, list[Line]] = {}
    for line in lines:
        found.setdefault((line["data"], line["split"], *_held_out(line)), []).append(line)
    return list(found.values())


def _held_out(line: Line) -> list[Any]:
    """Which classes validate."""
    data = line["config"].get("data", {})
    return [data.get(name) for name in ("validation_half", "validation_share", "validation_seed", "validation_folds")]


def summarise(lines: Sequence[Line], *, by: str = DEFAULT_SCORE, against: str | None = None) -> list[Result]:
    """The arms of one table, the best first; arms of which runs were stopped or failed follow those that have all.

    Runs are of one arm if their configs differ in the seed alone. Of a run that was tried again, the last line counts.
    against: the baseline, by default the first arm.
    """
    results = [_result(name, runs) for name, runs in arms_of(lines).items()]
    if not results:
        return []
    known = {result.arm: result for result in results}
    if against is not None and against not in known:
        raise unknown_name("arm", against, known)
    baseline = results[0] if against is None else known[against]
    results = [result if result is baseline else _compared(result, baseline) for result in results]
    return sorted(results, key=lambda result: _place(result, by))


def arms_of(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The runs of each arm, one a seed, by a name that no other arm has."""
    arms: dict[str, dict[int, Line]] = {}
    for line in lines:
        arms.setdefault(arm_identity(line), {})[line["seed"]] = line
    return {name: list(runs.values()) for name, runs in zip(_names(arms), arms.values(), strict=True)}


def table(results: Sequence[Result], *, by: str = DEFAULT_SCORE, keys: Sequence[str] = SHOWN) -> list[list[str]]:
    """Cells for any kind of table: the headings, then a row an arm; scores that no arm has are left out."""
    wanted = [key for key in dict.fromkeys([*keys, by]) if any(key in result.values for result in results)]
    marks = {key: named_score(key) for key in wanted}
    headings = ["arm", "seeds", *(mark.heading for mark in marks.values())]
    rows = [_cells(result, marks) for result in results]
    if any(by in result.differences for result in results):
        headings.append(f"{DIFFERENCE} of {named_score(by).name}")
        for result, row in zip(results, rows, strict=True):
            difference = result.differences.get(by)
            row.append(NOTHING if difference is None else difference.brief(scale=named_score(by).scale))
    return [headings, *rows]


def markdown(results: Sequence[Result], *, by: str = DEFAULT_SCORE, keys: Sequence[str] = SHOWN) -> str:
    """The same as a Markdown table, with what its numbers are below it."""
    headings, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table(results, by=by, keys=keys))
    rule = ["---", *["---:"] * (len(headings) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)]
    return "\n".join([*lines, "", caption(results), ""])


def caption(results: Sequence[Result]) -> str:
    """Under which conditions the numbers of a table hold."""
    words = "mean ± standard deviation over seeds"
    if any(result.config.get("data", {}).get("validation_folds") for result in results):
        words += ", each on other classes"
    baseline = next((result.against for result in results if result.differences), None)
    if baseline is not None:
        words += f"; differences from {baseline} with half their 95 % interval, by paired t-tests on common seeds"
    return f"{results[0].split} classes of {results[0].dataset}: {words}" if results else words


def _names(arms: Mapping[str, Mapping[int, Line]]) -> list[str]:
    """The arms' own names; where different arms share one, with the settings that tell them apart."""
    names = [next(iter(runs.values()))["arm"] for runs in arms.values()]
    leaves = [_leaves(json.loads(arm)[0]) for arm in arms]
    found = []
    for name, own in zip(names, leaves, strict=True):
        alike = [other for other_name, other in zip(names, leaves, strict=True) if other_name == name]
        apart = [leaf for leaf, value in own.items() if any(other.get(leaf) != value for other in alike)]
        words = ", ".join(f"{leaf}={own[leaf]}" for leaf in apart)
        found.append(f"{name} ({words})" if words else name)
    return found


def _leaves(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {leaf: value for part in config.values() for leaf, value in part.items()}


def _result(name: str, lines: Sequence[Line]) -> Result:
    finished = [line for line in lines if not line["error"] and not line["stopped"]]
    keys = dict.fromkeys(key for line in finished for key in line["scores"])
    values = {key: {line["seed"]: line["scores"].get(key) for line in finished} for key in keys}
    values = {key: {seed: one for seed, one in ones.items() if _is_known(one)} for key, ones in values.items()}
    return Result(
        arm=name,
        split=lines[0]["split"],
        dataset=lines[0].get("dataset", ""),
        values={key: ones for key, ones in values.items() if ones},
        finished=[line["seed"] for line in finished],
        stopped={line["seed"]: line["stopped"] for line in lines if line["stopped"] and not line["error"]},
        failed={line["seed"]: line["error"] for line in lines if line["error"]},
        seconds=round(sum(line["seconds"] for line in lines), 2),
        config=lines[0]["config"],
    )


def _compared(result: Result, baseline: Result) -> Result:
    differences = {}
    for key, ours in result.values.items():
        theirs = baseline.values.get(key, {})
        seeds = [seed for seed in ours if seed in theirs]
        if len(seeds) >= FEWEST_PAIRS:
            pairs = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
            differences[key] = paired_difference(*pairs)
    return replace(result, against=baseline.arm, differences=differences)


def _place(result: Result, by: str) -> tuple[bool, bool, float]:
    values = result.values.get(by)
    if values is None:
        return True, True, 0.0
    mean = over_seeds(list(values.values())).mean
    return False, bool(result.stopped or result.failed), mean if named_score(by).lower_is_better else -mean


def _cells(result: Result, marks: Mapping[str, Score]) -> list[str]:
    spreads = result.spreads
    scores = [mark.written(spreads[key]) if key in spreads else NOTHING for key, mark in marks.items()]
    return [result.arm, result.runs, *scores]


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
