"""A search as a picture: the score against the setting that was varied, with every seed and the spread of each arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from idml.atomic import check_place, writing
from idml.sweeping.space import LOG_FROM, Arm, Choices, Over
from idml.sweeping.summary import SCORES, Result

FORMATS = (".png", ".svg", ".pdf")
MOST_FIELDS = 2


def check_picture(path: Path, arms: Sequence[Arm], overs: Sequence[Over]) -> None:
    """Raise if there will be nothing to draw, or no way to write it."""
    if path.suffix not in FORMATS:
        raise ValueError(f"--plot {path} ends in {path.suffix!r}: give a name that ends in .png, .svg or .pdf.")
    several = len({arm.base for arm in arms}) > 1
    most = MOST_FIELDS - several
    if not 1 <= len(overs) <= most or not all(isinstance(over, Choices) for over in overs):
        limits = "one setting where there are several recipes or arms" if several else "one or two settings"
        raise ValueError(f"--plot draws a grid over {limits}: list values, --over tau=1,3,5, or leave --plot out.")
    try:
        check_place(path)
    except OSError as error:
        raise ValueError(f"--plot {path} cannot be written ({error.strerror}): choose another place.") from None


def draw(path: Path, arms: Sequence[Arm], results: Sequence[Result], *, by: str) -> None:
    """The first setting along the axis; a curve for each value of the second, or for each recipe."""
    from matplotlib.figure import Figure

    first, *others = arms[0].values
    places = _places([arm.values[first] for arm in arms])
    curves: dict[str, list[tuple[float, Result]]] = {}
    known = {result.arm: result for result in results}
    for arm in arms:
        result = known.get(arm.name)
        if result is not None and by in result.values:
            label = ", ".join(f"{name}={arm.values[name]}" for name in others) or arm.base
            curves.setdefault(label, []).append((places[arm.values[first]], result))
    score = SCORES[by]
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, (label, points) in enumerate(curves.items()):
        points.sort(key=lambda point: point[0])
        spreads = [result.spreads[by] for _, result in points]
        axes.errorbar(
            [place for place, _ in points],
            [score.scale * spread.mean for spread in spreads],
            yerr=[score.scale * (spread.standard_deviation or 0.0) for spread in spreads],
            marker="o",
            capsize=3,
            color=f"C{number}",
            label=label,
        )
        seeds = [(place, score.scale * value) for place, result in points for value in result.values[by].values()]
        axes.scatter(*zip(*seeds, strict=True), s=12, alpha=0.4, color=f"C{number}")
    if _spans_a_lot(list(places.values())):
        axes.set_xscale("log")
    axes.set_xticks(list(places.values()), list(places), minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(first)
    axes.set_ylabel(score.heading)
    axes.set_title("mean ± standard deviation; small dots are seeds", fontsize=9)
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(fontsize=8)
    with writing(path) as unfinished:
        figure.savefig(unfinished, dpi=130)


def _places(texts: Sequence[str]) -> dict[str, float]:
    """Where on the axis each value stands: at itself if all are numbers, else one after another from 0."""
    different = list(dict.fromkeys(texts))
    try:
        places = {text: float(text) for text in different}
    except ValueError:
        places = {}
    if places and all(map(math.isfinite, places.values())):
        return places
    return {text: float(number) for number, text in enumerate(different)}


def _spans_a_lot(places: Sequence[float]) -> bool:
    return min(places) > 0 and max(places) / min(places) >= LOG_FROM
