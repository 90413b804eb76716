"""Why some forms of the introspective loss train and others do not: figures by epoch, from lines of a lab log.

Where the level grows until nearly every pair is saturated, no gradient is left, and training stands still. Where
images are learned by heart, scores of other classes fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from idml.atomic import writing
from idml.errors import unknown_name
from idml.sweeping.lab import Line, arm_identity
from idml.training.health import SATURATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DOTS = 7.2, 3.6, 200  # inches, and dots an inch: 1440 px, shown as 720
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")  # Okabe & Ito (2008)
WIDEST, THINNEST = 3.0, 1.4  # lines, from the first arm to the last: where they lie on each other, all are seen
LABEL_HEIGHT = 0.135  # of the axes: labels nearer to each other would touch
EDGE, BESIDE = 1.0, 1.03  # of the axes' width: where they end, and where labels begin
EARLY, APART = 0.6, 0.02  # of the axes: curves that end before have their label there, so far from their end
LEVEL_FILE, SATURATED_FILE, SCORE_FILE = "level-by-epoch.png", "saturated-by-epoch.png", "score-by-epoch.png"
SCORE = "validation_map_at_r"


class Curve(NamedTuple):
    """One run: the label of its arm, how that is drawn, and a number by epoch."""

    label: str
    colour: str
    width: float
    points: list[tuple[int, float]]
    was_stopped: bool
    is_mixed: bool = False


def draw_figures(lines: Sequence[Line], arms: Mapping[str, str], folder: Path) -> list[Path]:
    """The level, and the share of saturated pairs, of each epoch, as PNG files in the folder; which those are.

    arms: labels by the names of arms. All seeds of an arm are drawn, in its colour; failed runs are left out.
    """
    chosen = _chosen(lines, arms, "level_clean", "a level to draw: choose one that is introspective")
    mixed = _curves(chosen, arms, "level_mixed", is_mixed=True)
    clean, saturated = (_curves(chosen, arms, key) for key in ("level_clean", "saturated_pairs"))
    paths = [folder / LEVEL_FILE, folder / SATURATED_FILE]
    _draw(paths[0], "Mean level of training images, logarithmic", [*clean, *mixed], _in_powers)
    _draw(paths[1], f"Share of pairs whose weight is below {SATURATED:g}", saturated, _as_shares)
    return paths


def draw_scores(lines: Sequence[Line], arms: Mapping[str, str], folder: Path) -> list[Path]:
    """MAP@R of the validation classes after each epoch that was judged, drawn likewise; arms may be plain."""
    chosen = _chosen(lines, arms, SCORE, "an epoch that was judged: choose one that held out classes")
    path = folder / SCORE_FILE
    _draw(path, "MAP@R of validation classes", _curves(chosen, arms, SCORE), _in_percent)
    return [path]


def _curves(
    chosen: Mapping[str, Sequence[Line]], arms: Mapping[str, str], key: str, *, is_mixed: bool = False
) -> list[Curve]:
    """One a run that has this number, named by its arm and the score it ended with."""
    step = (WIDEST - THINNEST) / max(1, len(arms) - 1)
    found = [
        Curve(
            f"{label}\nMAP@R {_map_at_r(chosen[name])}",
            COLOURS[number],
            WIDEST - step * number,
            _points(line, key),
            line["stopped"] is not None,
            is_mixed,
        )
        for number, (name, label) in enumerate(arms.items())
        for line in chosen[name]
    ]
    return [curve for curve in found if curve.points]


def _chosen(lines: Sequence[Line], arms: Mapping[str, str], key: str, lacking: str) -> dict[str, list[Line]]:
    """The runs of each arm whose epochs have this number; of one that was tried again, the last."""
    if len(arms) > len(COLOURS):
        raise ValueError(f"{len(arms)} arms cannot be told apart by colour: choose {len(COLOURS)} at most.")
    known = {line["arm"] for line in lines}
    found: dict[str, list[Line]] = {}
    for name in arms:
        if name not in known:
            raise unknown_name("arm", name, known)
        runs = {(arm_identity(line), line["seed"]): line for line in lines if line["arm"] == name}
        if len({settings for settings, _ in runs}) > 1:
            raise ValueError(f"the log holds arm {name!r} with several settings: give a log that has one of them.")
        found[name] = [line for line in runs.values() if not line["error"] and _points(line, key)]
        if not found[name]:
            raise ValueError(f"arm {name!r} has no run with {lacking}.")
    return found


def _points(line: Line, key: str) -> list[tuple[int, float]]:
    known = ((record["epoch"], record.get(key)) for record in line["epochs"])
    return [(epoch, value) for epoch, value in known if value is not None and math.isfinite(value)]


def _map_at_r(lines: Sequence[Line]) -> str:
    """The mean over seeds, of where each run ended, and after how many epochs that was."""
    ends = [line["epochs"][-1].get(SCORE, line["scores"].get("map_at_r")) for line in lines]
    known = [end for end in ends if end is not None]
    epochs = sorted({len(line["epochs"]) for line in lines})
    return f"{100 * fmean(known):.1f} %, {' or '.join(map(str, epochs))} epochs" if known else "unknown"


def _draw(path: Path, title: str, curves: Sequence[Curve], scaled: Callable[[Axes], None]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        style = "--" if curve.is_mixed else "-"
        axes.plot(*zip(*curve.points, strict=True), style, color=curve.colour, linewidth=curve.width, alpha=0.85)
        if curve.was_stopped:
            axes.plot(*curve.points[-1], "x", color=curve.colour, markersize=8, markeredgewidth=2, clip_on=False)
    scaled(axes)
    last = max(epoch for curve in curves for epoch, _ in curve.points)
    axes.set_xlim(1, max(last, 2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    marks = ["dashed: of mixed images"] * any(curve.is_mixed for curve in curves)
    marks += ["×: stopped early"] * any(curve.was_stopped for curve in curves)
    axes.set_title(f"{title} ({'; '.join(marks)})" if marks else title, fontsize=10.5, loc="left")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(axes.get_ylim())  # as they are, whatever is written beside the axes
    _label(axes, [curve for curve in curves if not curve.is_mixed])
    with writing(path) as unfinished:
        figure.savefig(unfinished, dpi=DOTS)


def _in_powers(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _as_shares(axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def _in_percent(axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def _label(axes: Axes, curves: Sequence[Curve]) -> None:
    """The name of each arm: where all its curves end early, there; else beside the axes, as near to where they end as
    other names allow.
    """
    ends: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for curve in curves:
        ends.setdefault((curve.label, curve.colour), []).append(curve.points[-1])
    to_axes = axes.transData + axes.transAxes.inverted()
    places = {key: [to_axes.transform(point) for point in points] for key, points in ends.items()}
    for label, colour in [key for key, some in places.items() if max(place[0] for place in some) < EARLY]:
        across, up = max(places.pop((label, colour)), key=lambda place: place[0])
        axes.text(across + APART, up + APART, label, color=colour, fontsize=9, va="bottom", transform=axes.transAxes)
    wanted = {key: fmean(float(place[1]) for place in some) for key, some in places.items()}
    order = sorted(wanted, key=lambda key: wanted[key])
    margin = LABEL_HEIGHT / 3
    heights = spread_out([wanted[key] for key in order], gap=LABEL_HEIGHT, low=margin, high=1 - margin)
    for key, height in zip(order, heights, strict=True):
        label, colour = key
        across, up = max(places[key], key=lambda place: (place[0], -abs(place[1] - height)))
        leader = {"color": colour, "linewidth": 0.7, "linestyle": ":", "clip_on": False, "transform": axes.transAxes}
        axes.plot([across, EDGE, BESIDE], [up, up, height], **leader)
        axes.text(BESIDE + 0.005, height, label, color=colour, fontsize=9, va="center", transform=axes.transAxes)


def spread_out(wanted: Sequence[float], *, gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Places at least gap apart, in the same order, each as near to what is wanted as others allow.

    wanted: rising. Places that would touch stand as one block, in the middle of what they want. All are between low
    and high, unless these are too near for so many: then those at the end are beyond high.

    >>> spread_out([0.0, 0.5, 0.5, 1.0], gap=0.25)
    [0.0, 0.375, 0.625, 1.0]
    """
    blocks: list[tuple[float, int]] = []  # the sum of where its places would have its first one, and their number
    for number, place in enumerate(wanted):
        total, size = place - gap * number, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / size:
            before, count = blocks.pop()
            total, size = total + before, size + count
        blocks.append((total, size))
    highest = high - gap * (len(wanted) - 1)
    shifts = [max(low, min(total / size, highest)) for total, size in blocks for _ in range(size)]
    return [shift + gap * number for number, shift in enumerate(shifts)]
