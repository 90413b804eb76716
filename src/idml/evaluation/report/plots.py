"""The figures of a report: drawn by matplotlib, as SVG inside the page, legible by day and by night."""

from __future__ import annotations

import base64
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from idml.evaluation.calibration import BINS, reliability
from idml.evaluation.report.elements import percent, readable
from idml.evaluation.report.names import shortened
from idml.evaluation.uncertainty import aurc, risk_coverage

INK, FAINT, GRID = "#1d2735", "#6a7686", "#dde2e9"  # by day; in the SVG they become variables
AT_NIGHT = {"--ink": (INK, "#e6eaf0"), "--faint": (FAINT, "#9aa6b6"), "--grid": (GRID, "#333d4b")}
BLUE, GREEN, ORANGE = "#2a78c2", "#009e73", "#d55e00"  # told apart by all eyes (Okabe and Ito), on white and on black
COLOURS = (BLUE, ORANGE)  # of lines
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
STYLE = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "idml",  # the same figure twice is the same text
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.parse_math": False,  # a class may be called $_$
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
POINTS = 400  # of a curve: as many as can be seen
LEAST_BINS, MOST_BINS = 8, 40  # of levels
OVERLAP = 1.3  # the height of a ridge, in distances between ridges
SIZE = (4.1, 3.5)  # inches of a figure of which three stand side by side
CELL = 0.15  # inches of a class in the heat map
LABEL_SIZE = 7.5  # points of its name, which fits into a cell
LONGEST_NAME = 26  # letters of it


def risk_coverage_plot(doubts: Mapping[str, Float[Tensor, " n"]], is_wrong: Bool[Tensor, " n"]) -> str:
    """The share of errors among accepted queries, least doubtful first, beside the best possible and a random order.

    doubts: by what gives them; two at most.
    """
    shown = torch.linspace(0, len(is_wrong) - 1, min(POINTS, len(is_wrong))).round().long()
    colours = COLOURS[: len(doubts)]
    lines = [(f"by {name}", doubt, colour, "-") for (name, doubt), colour in zip(doubts.items(), colours, strict=True)]
    lines.append(("best order", is_wrong.double(), GREEN, "--"))
    overall = float(is_wrong.double().mean())

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(overall, color=FAINT, linestyle=":", label=f"random order, {percent(overall)}")
        highest = 0.01
        for name, doubt, colour, style in lines:
            coverage, risk = (side[shown].numpy() for side in risk_coverage(doubt, is_wrong))
            label = f"{name}, AURC {percent(float(aurc(doubt, is_wrong)))}"
            axes.plot(coverage, risk, color=colour, linestyle=style, linewidth=2 if style == "-" else 1.5, label=label)
            highest = max(highest, 1.05 * risk.max())
        axes.set(xlabel="queries accepted, least doubtful first", ylabel="share that is wrong", xlim=(0, 1))
        axes.set_ylim(0, highest)
        _as_percent(axes.xaxis, axes.yaxis)
        figure.legend(loc="outside upper left")

    return _drawn(*SIZE, paint)


def reliability_plot(confidence: Float[Tensor, " n"], is_right: Bool[Tensor, " n"]) -> str:
    """The share that is right over the confidence, in bins of equally many queries."""
    found = reliability(confidence, is_right, bins=min(BINS, len(confidence)))
    promised, kept = found.confidence.numpy(), found.share_right.numpy()

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linestyle=":", label="as it should be")
        axes.vlines(promised, promised, kept, color=ORANGE, linewidth=3, alpha=0.45)
        number = f"in {len(found.number)} bins of {float(found.number[0]):.3g} queries"
        axes.plot(promised, kept, "o-", color=BLUE, markersize=5, linewidth=1.2, label=number)
        axes.set(xlabel="confidence", ylabel="share that is right", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        _as_percent(axes.xaxis, axes.yaxis)
        figure.legend(loc="outside upper left")

    return _drawn(*SIZE, paint)


def right_and_wrong_plot(level: Float[Tensor, " n"], is_wrong: Bool[Tensor, " n"]) -> str:
    """The levels of right queries and of wrong ones, each as shares of their own number."""
    edges = _edges([level[~is_wrong], level[is_wrong]])
    groups = [("✓ right", level[~is_wrong], GREEN, "-"), ("✗ wrong", level[is_wrong], ORANGE, "--")]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, values, colour, line in groups:
            heights = _shares(values, edges)
            label = f"{name}, {len(values):,} queries"
            axes.stairs(heights, edges, fill=True, color=colour, alpha=0.22)
            axes.stairs(heights, edges, color=colour, linestyle=line, linewidth=1.6, label=label)
        axes.set(xlabel="level", ylabel="share of the group", ylim=(0, None))
        _as_percent(axes.yaxis)
        figure.legend(loc="outside upper left")

    return _drawn(*SIZE, paint)


def changed_levels_plots(
    clean: Float[Tensor, " n"], changed: Mapping[str, Mapping[float, Float[Tensor, " n"]]]
) -> dict[str, str]:
    """A figure for each kind of change: the levels of the images as they are on top, and below by rising degree.

    All have the same scale of levels; each histogram fills its own height.
    """
    edges = _edges([clean, *(level for levels in changed.values() for level in levels.values())])
    middle = float(clean.double().median())

    def drawn(kind: str, levels: Mapping[float, Tensor]) -> str:
        ridges = [("clean", clean)] + [(f"{degree:g}", levels[degree]) for degree in sorted(levels)]

        def paint(figure: Any) -> None:
            axes = figure.subplots()
            axes.set_title(readable(kind).replace("_", " "), loc="left", fontweight="bold")
            _paint_ridges(axes, ridges, edges)
            axes.axvline(middle, color=FAINT, linestyle=":", linewidth=1, zorder=len(ridges))
            axes.set_xlabel("level")

        return _drawn(2.5, 1.0 + 0.36 * len(ridges), paint)

    return {kind: drawn(kind, levels) for kind, levels in changed.items()}


def confusion_plot(shares: Float[Tensor, "c c"], names: Sequence[str]) -> str:
    """How the queries of each class, in rows, are spread over the classes of their nearest images."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    number = len(names)
    diagonal = torch.eye(number, dtype=torch.bool)
    right, wrong = (shares.where(side, torch.nan).numpy() for side in (diagonal, ~diagonal))
    shades = {
        colour: LinearSegmentedColormap.from_list(colour, [to_rgba(colour, 0.0), to_rgba(colour, 1.0)])
        for colour in (BLUE, ORANGE)
    }
    short = [shortened(readable(name), LONGEST_NAME) for name in names]
    side = 2.0 + CELL * max(number, 8)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        drawn = [
            axes.imshow(part, cmap=shades[colour], vmin=0, vmax=most, interpolation="nearest")
            for part, colour, most in ((right, BLUE, 1.0), (wrong, ORANGE, None))
        ]
        axes.set_xticks(range(number), short, rotation=90)
        axes.set_yticks(range(number), short)
        borders = [place + 0.5 for place in range(number - 1)]
        axes.set_xticks(borders, minor=True)
        axes.set_yticks(borders, minor=True)
        axes.grid(visible=False, which="major")
        axes.grid(visible=True, which="minor")
        axes.tick_params(which="both", length=0, labelsize=LABEL_SIZE)
        axes.set(xlabel="class of the nearest image", ylabel="class of the query")
        for part, words in zip(drawn, ("right", "wrong"), strict=True):
            bar = figure.colorbar(part, ax=axes, shrink=0.6, aspect=25, pad=0.03)
            bar.ax.set_title(words, fontsize=LABEL_SIZE, loc="left")
            bar.outline.set_visible(False)
            _as_percent(bar.ax.yaxis)

    return _drawn(side + 1.8, side + 0.4, paint)


def _paint_ridges(axes: Any, ridges: Sequence[tuple[str, Float[Tensor, " n"]]], edges: np.ndarray) -> None:
    """Histograms below each other, each in front of the one above."""
    centres = (edges[1:] + edges[:-1]) / 2
    for place, (_, values) in enumerate(ridges):
        heights = _shares(values, edges)
        top = heights / (heights.max() or 1.0) * OVERLAP - place
        colour = BLUE if place else FAINT
        strength = 0.3 + 0.35 * place / len(ridges)
        axes.fill_between(centres, -place, top, color=colour, alpha=strength, linewidth=0, zorder=place)
        axes.plot(centres, top, color=colour, linewidth=1.1, zorder=place)
    axes.set_yticks([-place for place in range(len(ridges))], [name for name, _ in ridges])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(0.8 - len(ridges), OVERLAP + 0.1)


def _edges(levels: Sequence[Shaped[Tensor, " _"]]) -> np.ndarray:
    """Bins for all these levels together, fewer where one group is small; of some width even if all are the same."""
    every = torch.cat([level.double() for level in levels])
    smallest = min(len(level) for level in levels if len(level))
    bins = min(max(round(math.sqrt(smallest)), LEAST_BINS), MOST_BINS)
    return np.histogram_bin_edges(every[every.isfinite()].numpy(), bins=bins)


def _shares(values: Float[Tensor, " n"], edges: np.ndarray) -> np.ndarray:
    """The share of the values in each bin; 0 everywhere if there are none."""
    return np.histogram(values.double().numpy(), bins=edges)[0] / max(1, len(values))


def _as_percent(*axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    for side in axis:
        side.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol="\u202f%"))


def _drawn(width: float, height: float, paint: Callable[[Any], None]) -> str:
    """What is painted on a figure of so many inches, as the data URI of an SVG."""
    import matplotlib.style
    from matplotlib.figure import Figure

    file = BytesIO()
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the browser has them
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = _by_day_and_night(file.getvalue().decode())
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _by_day_and_night(svg: str) -> str:
    """Colours of text and lines as variables, which the reader's preference sets."""
    day, night = (";".join(f"{name}:{pair[place]}" for name, pair in AT_NIGHT.items()) for place in (0, 1))
    for name, (by_day, _) in AT_NIGHT.items():
        svg = svg.replace(by_day, f"var({name})")
    svg = svg.replace("'DejaVu Sans'", FONT)
    style = f"<style>:root{{{day}}}@media(prefers-color-scheme:dark){{:root{{{night}}}}}</style>"
    return svg[svg.index("<svg") :].replace("<defs>", f"{style}<defs>", 1)
