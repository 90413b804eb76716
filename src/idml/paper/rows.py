"""Final runs by loss and row: arms named "LOSS ROW", as "proxy_anchor both". Rows that no log has yet are left out.

All rows of a loss share what does not concern their parts, but for "plain" where it has a row "shared" beside it: that
has the settings of the other rows, and "plain" those that are better for the plain loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from idml.losses import LOSSES
from idml.sweeping.lab import Line, arm_identity, with_effective_settings
from idml.sweeping.summary import Result, summarise

ROWS: dict[str, str] = {
    "plain": "plain",
    "shared": "plain, with the settings of the method",
    "passes": "plain, twice the image passes",
    "mixup": "Mixup",
    "introspective": "introspective",
    "both": "introspective + Mixup",
    "random": "control: random uncertainty vectors",
    "common": "control: one learned level for all images",
}
RIVALS: dict[str, str] = {"plain": "plain", "mixup": "Mixup", "passes": "plain with twice the passes"}
TITLES: dict[str, str] = {
    "contrastive": "Contrastive",
    "margin": "Margin",
    "triplet": "Triplet",
    "multi_similarity": "Multi-similarity",
    "softmax": "Softmax",
    "proxy_nca": "ProxyNCA",
    "proxy_anchor": "ProxyAnchor",
    "fast_ap": "FastAP",
}
COMPARED = ("recall@1", "map_at_r")  # the scores that rows are held against each other by


def final_lines(lines: Iterable[Line]) -> list[Line]:
    """The runs that were judged on test classes; settings that they could not feel make no other arm of them."""
    return [with_effective_settings(line) for line in lines if line["split"] == "test"]


def by_loss(lines: Sequence[Line]) -> tuple[dict[str, dict[str, list[Line]]], list[str]]:
    """Lines by loss and row, in the order of the tables, and the arms that are neither."""
    named: dict[str, dict[str, list[Line]]] = {loss: {row: [] for row in ROWS} for loss in LOSSES}
    others: dict[str, None] = {}
    settings: dict[str, str] = {}
    for line in lines:
        loss, _, row = line["arm"].partition(" ")
        if row not in named.get(loss, {}):
            others[line["arm"]] = None
            continue
        if settings.setdefault(line["arm"], arm_identity(line)) != arm_identity(line):
            raise ValueError(f"the logs hold arm {line['arm']!r} with two settings: give logs that have one of them.")
        named[loss][row].append(line)
    found = {loss: {row: some for row, some in rows.items() if some} for loss, rows in named.items()}
    return {loss: rows for loss, rows in found.items() if rows}, list(others)


def results_of(loss: str, rows: Mapping[str, Sequence[Line]], *, against: str) -> dict[str, Result]:
    """The rows of a loss, with differences from that one of them; without any where it is not there."""
    lines = [line for some in rows.values() for line in some]
    baseline = f"{loss} {against}" if against in rows else None
    found = {result.arm: result for result in summarise(lines, against=baseline)}
    return {row: found[f"{loss} {row}"] for row in rows if f"{loss} {row}" in found}


def at_equal_settings(row: str, rows: Mapping[str, Sequence[Line]]) -> str:
    """The row that differs from others in its parts alone."""
    return "shared" if row == "plain" and "shared" in rows else row


def held_against(rival: str, loss: str, rows: Mapping[str, Sequence[Line]], *, row: str = "both") -> Result | None:
    """A row, and its differences from a rival; None where either is missing."""
    found = results_of(loss, rows, against=rival)
    return found[row] if {rival, row} <= set(found) else None
