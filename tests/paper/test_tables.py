import itertools
import json
import runpy
from pathlib import Path

import pytest
from finals import AT_EQUAL_SETTINGS, CONFIG, SETTINGS, WITHOUT_UNCERTAINTY, line, lines
from markdown_tables import tables

from idml.paper.rows import ROWS
from idml.paper.tables import final_tables, paper_dataset, validation_tables
from idml.sweeping.lab import stored

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "cub_table.py")


def is_of_the_paper(row: list[str]) -> bool:
    return row[0].endswith(", in the paper*")


def blocks(text: str) -> list[list[list[str]]]:
    """The tables of single losses, without rows of the paper: those below the three that have a line a loss."""
    return [[row for row in table if not is_of_the_paper(row)] for table in tables(text)[3:]]


def test_rows_stand_in_their_order_with_scores_and_differences():
    scores, _ = blocks(final_tables(lines()[::-1]))
    headings, *rows = scores
    assert headings[:9] == ["row", "seeds", "R@1", "R@2", "R@4", "R@8", "NMI", "RP", "MAP@R"]
    assert headings[9:] == ["R@1 − plain", "MAP@R − plain"]
    assert [row[0] for row in rows] == list(ROWS.values())
    plain, *_, both, _, _ = rows
    assert plain[:3] == [ROWS["plain"], "3", "68.23 ± 0.15"]
    assert plain[9:] == ["–", "–"]
    assert both[9].startswith("+1.50")
    assert len({len(row) for row in scores}) == 1


def test_each_row_that_the_paper_has_is_followed_by_its_numbers_in_the_same_columns():
    table = tables(final_tables(lines()))[3]
    of_the_paper = {above[0]: below for above, below in itertools.pairwise(table) if is_of_the_paper(below)}
    assert list(of_the_paper) == [ROWS[row] for row in ("plain", "mixup", "introspective", "both")]
    plain = ["69.0 ± 0.1", "79.4 ± 0.1", "–", "–", "72.3 ± 0.1", "38.5 ± 0.2", "27.5 ± 0.3"]
    assert of_the_paper[ROWS["plain"]][1:9] == ["–", *plain]
    assert of_the_paper[ROWS["mixup"]][2:9] == ["69.8", "–", "–", "–", "73.0", "39.1", "28.1"]
    assert {len(row) for row in table} == {len(table[0])}


def test_scores_at_the_size_of_training_stand_at_the_end():
    each = lines(rows=("plain", "both"))
    for run in each:
        run["scores"] |= {"recall@1_at_image_size": 0.5, "map_at_r_at_image_size": 0.25}
    headings, *rows = blocks(final_tables(each))[0]
    assert headings[-2:] == ["R@1 at 224 px", "MAP@R at 224 px"]
    assert [row[-2:] for row in rows] == [["50.00 ± 0.00", "25.00 ± 0.00"]] * 2
    assert "Scored on crops of 224 px." in final_tables(each)


def test_what_both_parts_gain_on_crops_as_large_as_in_training_stands_in_the_line_of_a_loss():
    each = lines(rows=("plain", "both"))
    for run in each:
        gain = (0.01 + 0.001 * run["seed"]) * run["arm"].endswith("both")
        run["scores"] |= {"recall@1_at_image_size": 0.5 + gain, "map_at_r_at_image_size": 0.25 + 2 * gain}
    recall, precision = tables(final_tables([*each, *lines("margin", ("plain", "both"))]))[:2]
    assert recall[0][-2] == precision[0][-2] == "both − plain at 224 px"
    assert [row[-2][:4] for row in recall[1:]] == ["–", "+1.1"]
    assert [row[-2][:4] for row in precision[1:]] == ["–", "+2.2"]
    assert "224 px" not in " ".join(tables(final_tables(lines()))[0][0])


def test_what_uncertainty_does_is_told_of_rows_that_have_it():
    text = final_tables(lines())
    _, (headings, *rows) = blocks(text)
    assert headings[1:4] == ["R-AUROC", "AURC ↓", "mixed AUROC"]
    assert [row[0] for row in rows] == [ROWS[row] for row in SETTINGS if row not in WITHOUT_UNCERTAINTY]
    introspective, both, _, _ = rows
    assert introspective[4:] == ["0.5 / 1.25", "0.91 / 0.93 / –", "–", "30", "31.0"]
    assert both[4:] == ["0.5 / 1.25", "0.91 / 0.93 / 0.8", "0.04", "30", "31.0"]
    assert f"{ROWS['passes']}: 60 epochs, 31.0 s a run" in text
    assert "NVIDIA H200, torch 2.11.0" in text


def test_every_loss_has_a_line_with_its_rows_and_what_both_parts_gain_over_each_rival():
    text = final_tables(lines() + lines("margin") + lines("triplet", ("plain", "both")))
    recall, precision = tables(text)[:2]
    assert text.index("Every loss: R@1") < text.index("Every loss: MAP@R") < text.index("### Margin")
    headings, *rows = recall
    assert headings[:5] == ["loss", "plain", "Mixup", "introspective", "introspective + Mixup"]
    assert headings[5:8] == ["both − plain", "both − Mixup", "both − plain with twice the passes"]
    assert headings[8:] == ["common seeds", "paper"]
    margin, triplet, anchor = rows
    assert [row[0] for row in rows] == [row[0] for row in precision[1:]] == ["Margin", "Triplet", "ProxyAnchor"]
    assert anchor[1:3] == ["68.23 ± 0.15", "69.24 ± 0.15"]
    assert [cell[:5] for cell in anchor[5:8]] == ["+1.50", "+0.50", "+1.40"]
    assert margin[5:8] == anchor[5:8]
    assert triplet[2:4] == ["–", "–"]
    assert triplet[6:8] == ["–", "–"]
    assert [row[8] for row in rows] == ["3 / 3 / 3", "3 / – / –", "3 / 3 / 3"]
    assert precision[-1][1:3] == ["28.23 ± 0.15", "29.34 ± 0.15"]
    assert [cell[:5] for cell in precision[-1][5:8]] == ["+1.65", "+0.55", "+1.54"]
    assert anchor[-1] == "69.0 → 70.7"
    assert precision[-1][-1] == "27.5 → 28.4"


def test_each_ingredient_has_its_gain_in_bold_where_it_is_outside_the_noise():
    text = final_tables(lines(rows=AT_EQUAL_SETTINGS) + lines("triplet", ("plain", "both")))
    headings, triplet, anchor = tables(text)[2]
    gains = dict(zip(headings, anchor, strict=True))
    assert gains["Mixup"] == "**+1.0** / **+1.1**"
    assert gains["both"] == "**+1.5** / **+1.7**"
    assert gains["uncertainty beside Mixup"] == "**+0.5** / **+0.6**"
    assert gains["Mixup beside uncertainty"] == "**+0.7** / **+0.8**"
    assert gains["twice the passes"] == "**+0.1** / **+0.1**"
    assert triplet == ["Triplet", "–", "–", "**+1.5** / **+1.7**", *["–"] * 5]
    noisy = lines(rows=("plain", "both"))
    noisy[-1]["scores"]["recall@1"] -= 0.1
    both = dict(zip(*tables(final_tables(noisy))[2], strict=True))["both"]
    assert both.startswith("−1.8 / **")


def test_ingredients_are_held_against_the_plain_row_that_shares_their_settings():
    gains = dict(zip(*tables(final_tables(lines()))[2], strict=True))
    assert gains["Mixup"] == "**+1.1** / **+1.2**"
    assert gains["uncertainty beside Mixup"] == "**+0.5** / **+0.6**"


def test_the_line_of_a_loss_does_without_rows_that_failed_and_without_the_papers_numbers():
    failed = line("proxy_anchor", "both", 0, scores={}, error="full")
    other = [{**one, "dataset": "my birds"} for one in (line("proxy_anchor", "plain", 0), failed)]
    assert tables(final_tables(other))[0][1] == ["ProxyAnchor", "68.10", *["–"] * 6, "– / – / –", "–"]


def test_seeds_whose_settings_differ_without_effect_are_one_row():
    some = lines(rows=("plain", "mixup"), seeds=2)
    other = CONFIG.with_changes({"loss": "proxy_anchor", "seed": 2, "uncertainty_level": 0.7, **SETTINGS["mixup"]})
    some.append(line("proxy_anchor", "mixup", 2, config=stored(other)))
    assert [row[1] for row in blocks(final_tables(some))[0][1:]] == ["2", "3"]


def test_differences_are_paired_over_common_seeds():
    some = lines(rows=("plain",)) + [line("proxy_anchor", "both", seed) for seed in (1, 2, 5)]
    (scores, *_) = blocks(final_tables(some))
    assert scores[2][9].startswith("+1.50")
    one_common = [*some[:1], *some[3:], line("proxy_anchor", "both", 0)]
    (scores, *_) = blocks(final_tables(one_common))
    assert scores[2][9] == "–"


def test_missing_rows_are_absent_and_without_plain_there_are_no_differences():
    text = final_tables(lines(rows=("both", "mixup"), seeds=1))
    scores, _ = blocks(text)
    assert [row[0] for row in scores[1:]] == [ROWS["mixup"], ROWS["both"]]
    assert {row[9] for row in scores[1:]} == {"–"}
    assert set(tables(text)[0][1][5:8]) == {"–"}
    assert final_tables([]) == ""
    assert final_tables([{**one, "split": "validation"} for one in lines()]) == ""


def test_failed_and_stopped_runs_are_counted_beside_the_seeds():
    failed = line("proxy_anchor", "both", 1, scores={}, error="full")
    stopped = line("proxy_anchor", "plain", 0, stopped=3)
    (scores, *_) = blocks(final_tables([line("proxy_anchor", "both", 0), failed, stopped]))
    assert [row[1] for row in scores[1:]] == ["0, 1 stopped", "1, 1 failed"]
    assert set(scores[1][2:11]) == {"–"}


def test_other_arms_are_named_and_other_data_stand_apart():
    odd = [{**line("proxy_anchor", "both", 0), "arm": "literal"}, {**line("softmax", "plain", 0), "arm": "proxy plain"}]
    text = final_tables([*lines(seeds=1), *odd, *({**one, "data": "x", "dataset": "my birds"} for one in lines())])
    assert "Not shown, for their names are no LOSS ROW: literal, proxy plain." in text
    assert text.count("\n### ProxyAnchor\n") == 2
    assert not any(is_of_the_paper(row) for row in tables(text)[8])  # of my birds the paper knows nothing


def test_two_settings_under_one_name_are_refused():
    twice = [*lines(), {**line("proxy_anchor", "passes", 0), "arm": "proxy_anchor plain"}]
    with pytest.raises(ValueError, match="'proxy_anchor plain' with two settings: give logs that have one"):
        final_tables(twice)


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("cub-cache", "cub200"), ("Cars196", "cars196"), ("sop", "products"), ("products-256", "products"), ("x", None)],
)
def test_caches_are_known_by_their_names(name, dataset):
    assert paper_dataset(name) == dataset


def search(**changes) -> list[dict]:
    settings = {"plain": {"introspective": False}, "a|b": {"tau": 1}, "slow": {"lr": 1e-5}}
    found = []
    for place, (name, own) in enumerate(settings.items()):
        config = stored(CONFIG.with_changes({**own, **changes}))
        one = line("proxy_anchor", "both", 0, arm=name, split="validation", config=config)
        found.append({**one, "scores": {**one["scores"], "map_at_r": 0.3 + 0.05 * place}})
    return found


def test_arms_of_a_search_share_a_table_where_they_share_common_settings():
    text = validation_tables(search() + search(epochs=7))
    titles = [each for each in text.splitlines() if each.startswith("### ")]
    first = "### image_size 224, test_size None, lr 0.0001, schedule step, epochs 30, average None"
    assert titles[0] == first
    assert titles[1] == first.replace("lr 0.0001", "lr 1e-05")
    assert len(titles) == 4
    headings, *rows = tables(text.replace("a\\|b", "a/b"))[0]
    assert headings == [
        *("arm", "seeds", "R@1 %", "MAP@R %", "R-AUROC %", "mixed AUROC %"),
        *("level clean / mixed", "weight positive / negative / mixed", "deviation of weights"),
    ]
    assert [row[0] for row in rows] == ["a/b", "plain"]  # the better one first
    assert rows[0][3] == "35.00"
    assert validation_tables(lines()) == ""


def test_a_setting_that_a_line_is_too_old_for_has_its_default():
    old = search()
    del old[0]["config"]["optimiser"]["average"]
    assert len(tables(validation_tables(old))) == 2


def test_the_command_prints_what_logs_hold_and_says_what_they_lack(tmp_path, capsys):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(json.dumps(one) + "\n" for one in lines(seeds=1) + search()))
    second.write_text("".join(json.dumps(line("proxy_anchor", row, 1)) + "\n" for row in SETTINGS))
    main = runpy.run_path(COMMAND)["main"]
    main([str(first), str(second)])
    assert blocks(capsys.readouterr().out)[0][1][1] == "2"
    main([str(first), "--validation"])
    assert "### image_size 224" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="none of 8 runs was judged on validation classes: leave --validation out"):
        main([str(second), "--validation"])
    with pytest.raises(SystemExit, match="there is no log"):
        main([str(tmp_path / "none.jsonl")])
    first.write_text("nonsense\n")
    with pytest.raises(SystemExit, match="line 1 is no run of a sweep"):
        main([str(first)])
