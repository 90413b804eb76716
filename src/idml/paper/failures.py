"""What tells queries that fail, in Markdown: a table of final runs of "plain" and "both", a line a loss, R-AUROCs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from idml.evaluation.intervals import paired_difference
from idml.paper.forms import IN_ORDER
from idml.paper.markdown import gain, table
from idml.paper.rows import TITLES, by_loss, final_lines, results_of
from idml.sweeping.lab import Line
from idml.sweeping.summary import FEWEST_PAIRS, NOTHING, Result, parted

Column = tuple[str, str]  # the row, and its score
LEVEL, LENGTH = ("both", "r_auroc"), ("plain", "r_auroc_of_length")
NEIGHBOURS, OWN_NEIGHBOURS = ("plain", "r_auroc_of_neighbours"), ("both", "r_auroc_of_neighbours")
CONFIDENCE = ("both", "r_auroc_of_confidence")
COLUMNS: dict[str, tuple[Column, ...]] = {  # a score, or two: how much the first is above the second
    "level": (LEVEL,),
    "length, plain": (LENGTH,),
    "level − length": (LEVEL, LENGTH),
    "nearest, plain": (("plain", "r_auroc_of_distance"),),
    "neighbours, plain": (NEIGHBOURS,),
    "confidence": (CONFIDENCE,),
    "confidence − plain's neighbours": (CONFIDENCE, NEIGHBOURS),
    "confidence − its own neighbours": (CONFIDENCE, OWN_NEIGHBOURS),
    "gap, plain": (("plain", "r_auroc_of_gap"),),
    "gap": (("both", "r_auroc_of_gap"),),
}


def failure_table(lines: Sequence[Line]) -> str:
    """Means over seeds; differences on common seeds, bold where outside the noise. The empty text without such runs.

    Of several datasets, or ways to split one, each has a table.
    """
    return "\n\n".join(text for part in parted(final_lines(lines)) if (text := _table(part)))


def _table(lines: Sequence[Line]) -> str:
    rows = []
    for loss, named in sorted(by_loss(lines)[0].items(), key=lambda item: IN_ORDER.index(item[0])):
        found = results_of(loss, named, against="plain")
        if {"plain", "both"} <= set(found) and all(_values(found, column) for column in (CONFIDENCE, NEIGHBOURS)):
            seeds = " / ".join(str(len(_values(found, column))) for column in (NEIGHBOURS, CONFIDENCE))
            rows.append([TITLES[loss], seeds, *(_cell(found, column) for column in COLUMNS.values())])
    return table(["loss", "seeds, plain / both", *COLUMNS], rows) if rows else ""


def _values(found: Mapping[str, Result], column: Column) -> dict[int, float]:
    """By seed."""
    row, score = column
    return found[row].values.get(score, {})


def _cell(found: Mapping[str, Result], column: tuple[Column, ...]) -> str:
    values = [_values(found, one) for one in column]
    seeds = sorted(set.intersection(*(set(some) for some in values)))
    if len(seeds) < (1 if len(column) == 1 else FEWEST_PAIRS):
        return NOTHING
    scores = [[some[seed] for seed in seeds] for some in values]
    if len(column) == 1:
        return f"{fmean(scores[0]):.3f}"
    return gain(paired_difference(*scores), decimals=3)
