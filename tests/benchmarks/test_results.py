"""RESULTS.md says what the log of final rows says."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest

from idml.paper.tables import final_tables
from idml.sweeping.lab import Lab

ROOT = Path(__file__).parents[2]
RESULTS, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "README.md"))
LINES = Lab(ROOT / "results" / "cub-final.jsonl").lines()
NAMES = {
    "FastAP": "fast_ap",
    "multi-similarity": "multi_similarity",
    "ProxyAnchor": "proxy_anchor",
    "ProxyNCA": "proxy_nca",
}
HALF_A_DIGIT = 0.051
IN_SHORT = RESULTS.partition("## In short")[2].partition("\n## ")[0]


def held(loss: str) -> tuple[list[float], list[float]]:
    """R@1 and MAP@R of plain and both, and what is gained, in %; R-AUROC and mixed AUROC of both."""

    def mean_of(row: str, score: str) -> float:
        return mean(line["scores"][score] for line in LINES if line["arm"] == f"{loss} {row}")

    plain, both = ([100 * mean_of(row, score) for score in ("recall@1", "map_at_r")] for row in ("plain", "both"))
    gains = [after - before for after, before in zip(both, plain, strict=True)]
    return [*plain, *both, *gains], [mean_of("both", score) for score in ("r_auroc", "mixed_auroc")]


def assert_told(text: str, scores: Sequence[float], known: Sequence[float]) -> None:
    told = [float(number.replace("−", "-")) for number in re.findall(r"[−+]?\d+\.\d+", text)]
    assert told[: len(scores)] == pytest.approx(scores, abs=HALF_A_DIGIT), text
    assert told[len(scores) :] == pytest.approx(known, abs=HALF_A_DIGIT / 10), text


def rows_of(table: str) -> list[list[str]]:
    """Its cells, without those of the head."""
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def missing_rows(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.startswith(("|", "Without uncertainty"))]
    assert rows
    return [row for row in rows if row not in RESULTS]


def test_tables_of_final_rows_are_those_of_the_log():
    assert missing_rows(final_tables(LINES)) == []


def test_the_table_in_short_is_that_of_the_log():
    rows = rows_of(IN_SHORT)
    assert len(rows) == 8
    for name, epochs, *cells in rows:
        loss = NAMES.get(name, name)
        assert {int(epochs)} == {line["config"]["run"]["epochs"] for line in LINES if line["arm"] == f"{loss} both"}
        scores, known = held(loss)
        assert_told(" ".join(cells), scores, known)
        reached = [scores[4] >= 1, scores[5] >= 0.5, known[0] >= 0.6, known[1] >= 0.95]
        assert ["✓" in cell for cell in cells[2:]] == reached, name


def test_the_readme_has_the_table_in_short():
    told = rows_of(README.partition("What to expect on real data")[2].partition("\n## ")[0])
    short = [[cell.removesuffix("✓").strip() for cell in row] for row in rows_of(IN_SHORT)]
    expected = [
        [name, plain, both, f"{recall} / {map_at_r}", *known]
        for name, _, plain, both, recall, map_at_r, *known in short
    ]
    assert told == expected
