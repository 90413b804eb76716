"""What both parts gain, loss by loss: a picture of the tables' differences, with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from idml.atomic import writing
from idml.evaluation.intervals import Difference
from idml.paper.figures import COLOURS, DOTS, WIDTH
from idml.paper.rows import COMPARED, RIVALS, TITLES, by_loss, final_lines, held_against
from idml.sweeping.lab import Line
from idml.sweeping.summary import named_score, parted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_HEIGHT, FRAME_HEIGHT = 0.42, 1.3  # inches: of a loss, and of all that is around them
APART = 0.22  # of a line: from a rival to the next
MARKS = ("o", "s", "D")


class Gain(NamedTuple):
    """Of the row with both parts, over that rival."""

    loss: str
    rival: str
    score: str
    difference: Difference


def gains(lines: Sequence[Line]) -> list[Gain]:
    """Where both rows have two or more common seeds. Raises if the runs are of several datasets, or none is final."""
    parts = parted(final_lines(lines))
    if len(parts) > 1:
        raise ValueError(f"the logs hold final runs on {len(parts)} datasets: give logs of one of them.")
    named = by_loss(parts[0])[0] if parts else {}
    held = [(loss, rival, held_against(rival, loss, rows)) for loss, rows in named.items() for rival in RIVALS]
    return [
        Gain(loss, rival, score, both.differences[score])
        for loss, rival, both in held
        if both is not None
        for score in COMPARED
        if score in both.differences
    ]


def draw_gains(lines: Sequence[Line], path: Path) -> None:
    """The picture, as a PNG file."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"the picture is to be {path}: give it a name that ends in .png.")
    figure = figure_of_gains(lines)
    with writing(path) as unfinished:
        figure.savefig(unfinished, dpi=DOTS)


def figure_of_gains(lines: Sequence[Line]) -> Figure:
    """A panel a score, a line a loss, a mark a rival; filled where its interval does not hold 0."""
    found = gains(lines)
    if not found:
        raise ValueError("no loss has its row with both parts beside another on two common seeds: run more of them.")
    from matplotlib.figure import Figure

    losses = list(dict.fromkeys(gain.loss for gain in found))
    figure = Figure(figsize=(WIDTH, FRAME_HEIGHT + LINE_HEIGHT * len(losses)), layout="constrained")
    panels = figure.subplots(1, len(COMPARED), sharex=True, sharey=True)
    for axes, score in zip(panels, COMPARED, strict=True):
        _draw(axes, [gain for gain in found if gain.score == score], {loss: line for line, loss in enumerate(losses)})
        axes.set_xlabel(f"gain in {named_score(score).name}, points")
    panels[0].set_yticks(range(len(losses)), [TITLES.get(loss, loss) for loss in losses])
    panels[0].set_ylim(len(losses) - 0.5, -0.5)
    legend = figure.legend(*_legend(), loc="outside upper left", ncols=len(RIVALS), frameon=False, fontsize=9)
    legend.set_title("What introspective + Mixup gains over (bars: 95 % intervals; filled: p < 0.05)")
    legend.set_alignment("left")
    return figure


def _draw(axes: Axes, found: Sequence[Gain], lines: Mapping[str, int]) -> None:
    axes.axvline(0, color="black", linewidth=0.8)
    for gain in found:
        number, difference = list(RIVALS).index(gain.rival), gain.difference
        scale, height = named_score(gain.score).scale, lines[gain.loss] + APART * (number - (len(RIVALS) - 1) / 2)
        colour = COLOURS[number]
        axes.plot([scale * difference.low, scale * difference.high], [height] * 2, color=colour, linewidth=1.4)
        face = "white" if difference.is_inside_noise else colour
        axes.plot(
            scale * difference.mean, height, MARKS[number], color=colour, markerfacecolor=face, markersize=5.5, zorder=3
        )
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend() -> tuple[list, list[str]]:
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], color=colour, marker=mark) for colour, mark in zip(COLOURS, MARKS, strict=False)]
    return marks, list(RIVALS.values())
