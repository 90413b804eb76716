import json
import runpy
from pathlib import Path

import pytest
from finals import lines
from markdown_tables import tables
from scipy.stats import ttest_rel

from idml.paper.failures import COLUMNS, failure_table

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "cub_table.py")
KNOWN = {  # by row and score, of each seed
    "plain": {
        "r_auroc_of_length": (0.55, 0.57, 0.56),
        "r_auroc_of_distance": (0.60, 0.61, 0.62),
        "r_auroc_of_neighbours": (0.750, 0.752, 0.757),
        "r_auroc_of_confidence": (0.750, 0.752, 0.757),
        "r_auroc_of_gap": (0.80, 0.81, 0.82),
    },
    "both": {
        "r_auroc": (0.65, 0.54, 0.60),
        "r_auroc_of_length": (0.54, 0.55, 0.56),
        "r_auroc_of_distance": (0.61, 0.61, 0.61),
        "r_auroc_of_neighbours": (0.76, 0.79, 0.75),
        "r_auroc_of_confidence": (0.79, 0.79, 0.80),
        "r_auroc_of_gap": (0.82, 0.82, 0.82),
    },
}


def runs(loss="margin", rows=("plain", "both"), seeds=3, **values):
    found = [line | values for line in lines(loss, rows, seeds)]
    for line in found:
        of_row = KNOWN[line["arm"].split()[1]]
        line["scores"] = line["scores"] | {name: of_seed[line["seed"]] for name, of_seed in of_row.items()}
    return found


def row(each) -> dict[str, str]:
    headings, cells = tables(failure_table(each))[0]
    return dict(zip(headings, cells, strict=True))


def test_a_row_has_means_over_seeds_and_paired_differences():
    cells = row(runs())
    for heading, column in COLUMNS.items():
        values = [KNOWN[arm][score] for arm, score in column]
        if len(values) == 1:
            assert cells[heading] == f"{sum(values[0]) / 3:.3f}"
            continue
        ours, theirs = values
        gain = sum(a - b for a, b in zip(ours, theirs, strict=True)) / 3
        is_outside = ttest_rel(ours, theirs).pvalue < 0.05
        assert cells[heading].strip("*") == f"{gain:+.3f}".replace("-", "−"), heading
        assert ("**" in cells[heading]) == is_outside, heading
    assert "**" in cells["confidence − plain's neighbours"]
    assert "**" not in cells["confidence − its own neighbours"]


def test_differences_are_of_common_seeds_and_missing_where_there_is_one_alone():
    missing = [line for line in runs() if line["arm"] != "margin both" or line["seed"] != 1]
    cells = row(missing)
    assert cells["seeds, plain / both"] == "3 / 2"
    assert cells["level − length"] == "+0.070"
    single = [line for line in runs() if line["arm"] != "margin both" or line["seed"] == 2]
    assert row(single)["level − length"] == "–"


def test_losses_without_such_scores_are_left_out_and_others_stand_in_their_order():
    older = lines("softmax", ("plain", "both"))
    alone = runs("triplet", ("plain",))
    text = failure_table([*runs("contrastive"), *older, *alone, *runs("fast_ap")])
    assert [cells[0] for cells in tables(text)[0][1:]] == ["FastAP", "Contrastive"]
    assert failure_table([*older, *alone]) == ""


def test_each_half_has_a_table_of_its_own():
    assert len(tables(failure_table([*runs(), *runs(data="swapped")]))) == 2


def test_the_command_prints_it_and_says_what_it_needs(tmp_path, monkeypatch, capsys):
    log = tmp_path / "log.jsonl"

    def call(each):
        log.write_text("".join(json.dumps(line) + "\n" for line in each))
        monkeypatch.setattr("sys.argv", [COMMAND, str(log), "--failures"])
        runpy.run_path(COMMAND, run_name="__main__")

    call(runs())
    assert capsys.readouterr().out.strip() == failure_table(runs())
    with pytest.raises(SystemExit, match="none of 6 runs was judged by what tells failures"):
        call(lines("softmax", ("plain", "both")))
