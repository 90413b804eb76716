"""RESULTS.md says what the log of final rows says."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest
from scripts import benchmark

from idml.evaluation.intervals import over_seeds
from idml.paper.failures import failure_table
from idml.paper.forms import forms
from idml.paper.rows import COMPARED, TITLES, by_loss, final_lines, held_against
from idml.paper.tables import final_tables
from idml.sweeping.lab import Lab, Line
from idml.sweeping.summary import named_score

ROOT = Path(__file__).parents[2]
RESULTS, README, HISTORY, EVIDENCE = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("RESULTS.md", "README.md", "docs/search-history.md", "docs/evidence.md")
)
LINES, AGAIN, SWAPPED, FORMER, FORMER_SWAPPED, OTHER_FORMS = (
    list(Lab(ROOT / "results" / f"cub-{name}.jsonl").latest().values())
    for name in ("final", "again", "swapped", "final-former-settings", "swapped-former-settings", "final-other-forms")
)
NAMES = {
    "FastAP": "fast_ap",
    "multi-similarity": "multi_similarity",
    "ProxyAnchor": "proxy_anchor",
    "ProxyNCA": "proxy_nca",
}
KNOWN = (
    ("both", "r_auroc"),
    ("both", "mixed_auroc"),
    ("plain", "r_auroc_of_distance"),
    ("both", "r_auroc_of_distance"),
    ("both", "r_auroc_of_pair"),
    ("plain", "r_auroc_of_gap"),
    ("both", "r_auroc_of_gap"),
)
HALF_A_DIGIT = 0.051
IN_SHORT = RESULTS.partition("## In short")[2].partition("\n## ")[0]


def mean_of(arm: str, score: str, lines: Sequence[Line] = LINES) -> float:
    return mean(line["scores"][score] for line in lines if line["arm"] == arm)


def retrieval(loss: str, lines: Sequence[Line] = LINES) -> list[float]:
    """R@1 and MAP@R of plain and then of both, in %."""
    return [100 * mean_of(f"{loss} {row}", score, lines) for row in ("plain", "both") for score in COMPARED]


def gained(loss: str, lines: Sequence[Line] = LINES, *, rival: str = "plain") -> list[tuple[float, bool]]:
    """What both parts gain over plain, in points of R@1 and MAP@R, and whether that is outside the noise."""
    both = held_against(rival, loss, by_loss(final_lines(lines))[0][loss])
    assert both is not None
    differences = [both.differences[score] for score in COMPARED]
    return [(100 * difference.mean, not difference.is_inside_noise) for difference in differences]


def assert_confidence(text: str, loss: str, lines: Sequence[Line]) -> None:
    """That of plain, and that of both, bold where it is better outside the noise."""
    found = held_against("plain", loss, by_loss(final_lines(lines))[0][loss])
    assert found is not None
    gain = found.differences["r_auroc_of_confidence"]
    assert numbers_in(text) == share(
        [mean_of(f"{loss} {row}", "r_auroc_of_confidence", lines) for row in ("plain", "both")]
    )
    assert ("**" in text) == (gain.mean > 0 and not gain.is_inside_noise), loss


def gained_before(loss: str) -> list[tuple[float, bool]]:
    """The same before plain losses had as much search."""
    if loss == "softmax":
        return gained(loss, rival="shared")
    if loss == "proxy_anchor":
        rows = {"proxy_anchor both, gradient 0.1": f"{loss} both", f"{loss} plain": f"{loss} plain"}
        lines = [{**line, "arm": rows[line["arm"]]} for line in [*LINES, *OTHER_FORMS] if line["arm"] in rows]
        return gained(loss, lines)
    is_former = any(line["arm"] == f"{loss} both" for line in FORMER)
    return gained(loss, FORMER if is_former else LINES)


def assert_gained(text: str, gains: Sequence[tuple[float, bool]]) -> None:
    """Gains are bold where they are outside the noise."""
    assert numbers_in(text) == percent([gain for gain, _ in gains]), text
    assert ["**" in part for part in text.split(" / ")] == [is_outside for _, is_outside in gains], text


def numbers_in(text: str) -> list[float]:
    """Those with a decimal point."""
    return [float(number.replace("−", "-")) for number in re.findall(r"[−+]?\d+\.\d+", text)]


def percent(expected: Sequence[float]) -> object:
    return pytest.approx(expected, abs=HALF_A_DIGIT)


def share(expected: Sequence[float]) -> object:
    return pytest.approx(expected, abs=HALF_A_DIGIT / 10)


def rows_of(table: str) -> list[list[str]]:
    """Its cells, without those of the head."""
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def missing_rows(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.startswith(("|", "Without uncertainty"))]
    assert rows
    return [row for row in rows if row not in RESULTS]


@pytest.mark.parametrize("lines", [LINES, FORMER], ids=["recipes", "former settings"])
def test_tables_of_final_rows_are_those_of_the_log(lines):
    *glances, ingredients = final_tables(lines).split("### Which ingredient")
    blocks = "| loss |" + ingredients.partition("| loss |")[2]
    assert missing_rows(blocks if lines is FORMER else "".join([*glances, blocks])) == []


@pytest.mark.parametrize("lines", [AGAIN, SWAPPED], ids=["test classes", "other half"])
def test_what_tells_failures_is_that_of_the_log(lines):
    assert len(rows_of(failure_table(lines))) == 8
    assert missing_rows(failure_table(lines)) == []


def test_what_each_recipe_is_told_to_be_it_is():
    assert missing_rows(forms()) == []


def test_the_table_in_short_is_that_of_the_log():
    rows = rows_of(IN_SHORT)
    assert len(rows) == 8
    for name, epochs, plain, both, *reached, confidence, other_half in rows:
        loss = NAMES.get(name, name)
        assert {int(epochs)} == {line["config"]["run"]["epochs"] for line in LINES if line["arm"] == f"{loss} both"}
        known = [mean_of(f"{loss} both", score) for score in ("r_auroc", "mixed_auroc")]
        assert numbers_in(plain) + numbers_in(both) == percent(retrieval(loss)), name
        assert numbers_in(" ".join(reached[2:])) == share(known), name
        assert_gained(" / ".join(reached[:2]), gained(loss))
        assert_confidence(confidence, loss, AGAIN)
        assert_gained(other_half, gained(loss, SWAPPED))
        (recall, _), (map_at_r, _) = gained(loss)
        aims = [recall >= 1, map_at_r >= 0.5, known[0] >= 0.6, known[1] >= 0.95]
        assert ["✓" in cell for cell in reached] == aims, name


def test_the_table_of_other_forms_is_that_of_its_log():
    told = [
        (loss, int(seeds), recall, map_at_r)
        for loss, _, seeds, recall, map_at_r, *_ in rows_of(
            RESULTS.partition("### Other forms")[2].partition("\n## ")[0]
        )
    ]
    arms: dict[str, list[Line]] = {}
    for line in OTHER_FORMS:
        arms.setdefault(line["arm"], []).append(line)
    expected = [
        (
            TITLES[arm.partition(" ")[0]],
            len(lines),
            *(named_score(key).written(over_seeds([line["scores"][key] for line in lines])) for key in COMPARED),
        )
        for arm, lines in arms.items()
    ]
    assert sorted(told) == sorted(expected)


def test_the_table_of_the_other_half_is_that_of_its_log():
    rows = rows_of(RESULTS.partition("## The other half")[2].partition("\n## ")[0])
    assert len(rows) == 8
    for name, seeds, plain, both, gain, gain_on_test, *known, confidence in rows:
        loss = NAMES.get(name, name)
        assert int(seeds) == sum(line["arm"] == f"{loss} both" for line in SWAPPED)
        assert numbers_in(plain)[::2] + numbers_in(both)[::2] == percent(retrieval(loss, SWAPPED)), name
        assert_gained(gain, gained(loss, SWAPPED))
        assert_gained(gain_on_test, gained(loss))
        expected = [mean_of(f"{loss} both", score, SWAPPED) for score in ("r_auroc", "mixed_auroc")]
        assert [float(cell) for cell in known] == share(expected), name
        assert_confidence(confidence, loss, SWAPPED)


def test_the_former_table_of_the_other_half_is_that_of_its_log():
    rows = rows_of(HISTORY.partition("## The other half")[2].partition("\n## ")[0])
    assert len(rows) == 8
    for name, seeds, plain, both, gain, gain_on_test, *known in rows:
        loss = NAMES.get(name, name)
        assert int(seeds) == sum(line["arm"] == f"{loss} both" for line in FORMER_SWAPPED)
        assert numbers_in(plain)[::2] + numbers_in(both)[::2] == percent(retrieval(loss, FORMER_SWAPPED)), name
        assert_gained(gain, gained(loss, FORMER_SWAPPED))
        assert_gained(gain_on_test, gained_before(loss))
        expected = [mean_of(f"{loss} {row}", score, FORMER_SWAPPED) for row, score in KNOWN]
        assert [float(cell) for cell in known] == share(expected), name


def test_the_table_of_peers_is_that_of_its_log():
    lines = Lab(ROOT / "results" / "peer-baselines.jsonl").lines()
    assert missing_rows(benchmark("peer_baselines").table(lines)) == []


def test_the_table_of_what_neighbours_know_is_that_of_its_log():
    lines = [json.loads(line) for line in (ROOT / "results" / "failures.jsonl").read_text().splitlines()]
    rows = benchmark("failures").table([line for line in lines if line["size"] == 30]).splitlines()
    assert len(rows) == 2 + 16
    assert [row for row in rows if row not in EVIDENCE] == []


def test_the_readme_has_the_table_in_short():
    told = rows_of(README.partition("What to expect on real data")[2].partition("\n## ")[0])
    short = [[cell.removesuffix("✓").strip() for cell in row] for row in rows_of(IN_SHORT)]
    expected = [
        [name, plain, both, f"{recall} / {map_at_r}", *known]
        for name, _, plain, both, recall, map_at_r, *known in short
    ]
    assert told == expected


def test_the_tables_of_plain_twins_are_those_of_their_log():
    lines = [json.loads(line) for line in (ROOT / "results" / "failure-twins.jsonl").read_text().splitlines()]
    frozen, whole = ([line for line in lines if line["is_frozen"] == is_frozen] for is_frozen in (True, False))
    rows = (
        benchmark("failure_twins").table(frozen).splitlines() + benchmark("failure_twins").table(whole).splitlines()[2:]
    )
    assert len(rows) == 2 + 16 + 2
    assert [row for row in rows if row not in EVIDENCE] == []
