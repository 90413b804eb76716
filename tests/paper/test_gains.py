import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from finals import line, lines
from PIL import Image
from scipy import stats

from idml.paper.figures import COLOURS
from idml.paper.gains import draw_gains, figure_of_gains, gains
from idml.paper.rows import RIVALS

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "cub_table.py")


def spread_lines(loss: str, *, of_both: tuple[float, ...]) -> list[dict]:
    """Five seeds of plain at 0.5, and of both at what is given."""
    plain = [line(loss, "plain", seed, scores={"recall@1": 0.5, "map_at_r": 0.25}) for seed in range(5)]
    both = [line(loss, "both", n, scores={"recall@1": r, "map_at_r": r / 2}) for n, r in enumerate(of_both)]
    return plain + both


def colours_in(path: Path) -> dict[str, int]:
    """How many pixels have each of the colours that rivals are drawn in."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    wanted = {colour: [int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in COLOURS[: len(RIVALS)]}
    return {colour: int((pixels == parts).all(axis=1).sum()) for colour, parts in wanted.items()}


def test_gains_are_paired_differences_with_the_intervals_of_a_t_test():
    of_both = (0.52, 0.51, 0.53, 0.515, 0.52)
    found = gains(spread_lines("contrastive", of_both=of_both))
    assert [(gain.loss, gain.rival, gain.score) for gain in found] == [
        ("contrastive", "plain", "recall@1"),
        ("contrastive", "plain", "map_at_r"),
    ]
    expected = stats.ttest_rel(of_both, [0.5] * 5).confidence_interval()
    assert found[0].difference.low == pytest.approx(expected.low)
    assert found[0].difference.high == pytest.approx(expected.high)


def test_every_rival_has_its_colour(tmp_path):
    draw_gains(lines() + lines("margin"), tmp_path / "all.png")
    assert all(count > 50 for count in colours_in(tmp_path / "all.png").values())


def test_marks_are_filled_where_the_interval_does_not_hold_zero():
    noise, gain = (0.53, 0.47, 0.52, 0.48, 0.5), (0.53, 0.51, 0.54, 0.52, 0.53)
    some = spread_lines("margin", of_both=noise) + spread_lines("triplet", of_both=gain)
    panels = figure_of_gains(some).axes
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["Margin", "Triplet"]
    for axes in panels:
        marks = [mark for mark in axes.get_lines() if mark.get_marker() == "o"]
        faces = {int(np.round(np.asarray(mark.get_ydata())[0])): mark.get_markerfacecolor() for mark in marks}
        assert faces == {0: "white", 1: COLOURS[0]}


def test_validation_runs_single_seeds_and_several_datasets_are_no_gains(tmp_path):
    assert gains([{**one, "split": "validation"} for one in lines()]) == []
    with pytest.raises(ValueError, match="no loss has its row with both parts beside another on two common seeds"):
        draw_gains(lines(seeds=1), tmp_path / "gains.png")
    with pytest.raises(ValueError, match="final runs on 2 datasets: give logs of one of them"):
        gains([*lines(), *({**one, "data": "x"} for one in lines())])
    assert list(tmp_path.iterdir()) == []


def test_the_command_draws_and_says_where(tmp_path, capsys):
    log, picture = tmp_path / "log.jsonl", tmp_path / "gains.png"
    log.write_text("".join(json.dumps(one) + "\n" for one in lines()))
    main = runpy.run_path(COMMAND)["main"]
    main([str(log), "--plot", str(picture)])
    assert capsys.readouterr().out == f"wrote {picture}\n"
    assert picture.exists()
    with pytest.raises(SystemExit, match="name that ends in .png"):
        main([str(log), "--plot", str(tmp_path / "gains")])
    with pytest.raises(SystemExit):
        main([str(log), "--plot", str(picture), "--validation"])
    log.write_text("")
    with pytest.raises(SystemExit, match="no loss has its row with both parts"):
        main([str(log), "--plot", str(picture)])
