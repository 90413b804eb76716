"""RESULTS.md says what the log of final rows says."""

import re
from pathlib import Path
from statistics import mean

import pytest

from idml.paper.tables import final_tables
from idml.sweeping.lab import Lab

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
LINES = Lab(ROOT / "results" / "cub-final.jsonl").lines()
NAMES = {
    "FastAP": "fast_ap",
    "multi-similarity": "multi_similarity",
    "ProxyAnchor": "proxy_anchor",
    "ProxyNCA": "proxy_nca",
}
HALF_A_DIGIT = 0.051


def mean_of(arm: str, score: str) -> float:
    return mean(line["scores"][score] for line in LINES if line["arm"] == arm)


def test_tables_of_final_rows_are_those_of_the_log():
    rows = [line for line in final_tables(LINES).splitlines() if line.startswith(("|", "Without uncertainty"))]
    assert len(rows) > 50
    assert [row for row in rows if row not in RESULTS] == []


def test_the_table_in_short_is_that_of_the_log():
    short = RESULTS.partition("## In short")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in short.splitlines() if row.startswith("| ")][2:]
    assert len(rows) == 8
    for name, *cells in rows:
        loss, _, is_not_mixed = name.strip().rstrip("*").partition(", ")
        loss = NAMES.get(loss, loss)
        arms = (f"{loss} plain", f"{loss} introspective" if is_not_mixed else f"{loss} both")
        plain, both = ([100 * mean_of(arm, score) for score in ("recall@1", "map_at_r")] for arm in arms)
        told = [float(number.replace("−", "-")) for cell in cells for number in re.findall(r"[−+]?\d+\.\d+", cell)]
        gains = [after - before for after, before in zip(both, plain, strict=True)]
        assert told[:6] == pytest.approx([*plain, *both, *gains], abs=HALF_A_DIGIT), name
        known = [mean_of(arms[1], score) for score in ("r_auroc", "mixed_auroc")]
        assert told[6:] == pytest.approx(known, abs=HALF_A_DIGIT / 10), name
        reached = [gains[0] >= 1, gains[1] >= 0.5, known[0] >= 0.6, known[1] >= 0.95]
        assert ["✓" in cell for cell in cells[2:]] == reached, name
