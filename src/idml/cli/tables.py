"""Scores as tables for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from idml.evaluation.intervals import Spread
from idml.evaluation.ood import OodScores
from idml.evaluation.scores import Row, Scores
from idml.evaluation.seeds import Compared

LOWER = " ↓"  # marks scores of which less is better


def scores_table(scores: Scores, *, title: str) -> Table:
    """All scores of one evaluation with their intervals, and under which conditions they hold."""
    lone = f", {scores.lone_queries} of them alone in their class" if scores.lone_queries else ""
    conditions = (
        f"{scores.query_count:,} queries{lone}, {scores.gallery_count:,} images to find, "
        f"{scores.class_count:,} classes, {_distance(scores)}"
    )
    table = Table(title=title, caption=conditions, caption_justify="left")
    table.add_column("score")
    table.add_column("", justify="right")
    table.add_column("95 % interval", justify="right")
    for row in scores.rows():
        interval = ""
        if row.interval is not None and not math.isnan(row.interval.low):
            interval = f"{row.written(row.interval.low)} – {row.written(row.interval.high)}"
        table.add_row(_name(row), row.written(row.value), interval)
    return table


def spreads_table(comparison: Sequence[Compared]) -> Table:
    """Mean ± standard deviation over seeds, and the paired difference from another method."""
    has_others = any(one.difference for one in comparison)
    caption = f"mean ± standard deviation over {comparison[0].ours.number} seeds"
    table = Table(
        caption=caption + ("; differences with half their 95 % interval, by paired t-tests" if has_others else ""),
        caption_justify="left",
    )
    table.add_column("score")
    for heading in ("ours", "against") if has_others else ("ours",):
        table.add_column(heading, justify="right")
    if has_others:
        table.add_column("difference")
    for one in comparison:
        cells = [_name(one.row), _spread(one.row, one.ours)]
        if one.theirs is not None and one.difference is not None:
            scale = 100.0 if one.row.is_share else 1.0
            cells += [_spread(one.row, one.theirs), one.difference.brief(scale=scale)]
        table.add_row(*cells)
    return table


def detection_table(found: OodScores) -> Table:
    """How well each score tells images from elsewhere, and the mean levels."""
    levels = (found.mean_level_train, found.mean_level_inside, found.mean_level_outside)
    caption = "" if None in levels else "mean level: training {:.3g}, inside {:.3g}, outside {:.3g}".format(*levels)
    table = Table(title="images from elsewhere", caption=caption, caption_justify="left")
    for heading in ("by", "AUROC", "AUPR", f"FPR95{LOWER}"):
        table.add_column(heading, justify="left" if heading == "by" else "right")
    scores = {"level": found.level, "nearest training image": found.nearest, "Mahalanobis (SSD)": found.mahalanobis}
    for name, detection in scores.items():
        if detection is not None:
            values = (detection.auroc, detection.average_precision, detection.false_positive_rate)
            table.add_row(name, *(f"{100 * value:.2f} %" for value in values))
    return table


def _distance(scores: Scores) -> str:
    chosen = scores.introspective
    return f"{scores.distance} distance" + ("" if chosen is None else f", τ {chosen.tau:g}, γ {chosen.gamma:g}")


def _name(row: Row) -> str:
    return row.name + (LOWER if row.lower_is_better else "")


def _spread(row: Row, spread: Spread) -> str:
    deviation = "" if spread.standard_deviation is None else f" ± {row.written(spread.standard_deviation)}"
    return row.written(spread.mean).removesuffix(" %") + deviation


def runs_table(runs: Mapping[str, Scores], *, keys: Sequence[str]) -> Table:
    """Several runs side by side, chosen scores with their intervals."""
    table = Table(caption="95 % intervals by bootstrap over queries", caption_justify="left")
    table.add_column("score")
    for name in runs:
        table.add_column(name, justify="right")
    columns = {name: {row.key: row for row in scores.rows()} for name, scores in runs.items()}
    names = {key: _name(row) for rows in columns.values() for key, row in rows.items()}
    for key in (key for key in keys if key in names):
        table.add_row(names[key], *(_with_interval(rows.get(key)) for rows in columns.values()))
    return table


def _with_interval(row: Row | None) -> str:
    if row is None:
        return ""
    if row.interval is None or math.isnan(row.interval.low):
        return row.written(row.value)
    ends = (row.interval.low, row.interval.high)
    low, high = (f"{100 * end:.1f}" if row.is_share else row.written(end) for end in ends)
    return f"{row.written(row.value)} ({low}–{high})"
