"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from idml.evaluation.intervals import Difference


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Numbers to the right, names to the left.

    >>> print(table(["loss", "R@1"], [["a|b", "70.7"]]))
    | loss | R@1 |
    | --- | ---: |
    | a\\|b | 70.7 |
    """
    rule = ["---", *["---:"] * (len(headings) - 1)]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (headings, rule, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def gain(difference: Difference, *, scale: float = 1.0, decimals: int) -> str:
    """With its sign, bold where it is outside the noise."""
    text = f"{scale * difference.mean:+.{decimals}f}".replace("-", "−")
    return text if difference.is_inside_noise else f"**{text}**"
