import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from idml.paper.figures import (
    COLOURS,
    LEVEL_FILE,
    SATURATED_FILE,
    SCORE,
    SCORE_FILE,
    draw_figures,
    draw_scores,
    spread_out,
)
from idml.recipes import recipe
from idml.sweeping.lab import stored

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "why_it_works.py")
places = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(sorted)


def line(arm: str, seed: int = 0, *, growth: float = 1.0, epochs: int = 4, tau: float = 5, **values) -> dict:
    config = recipe("digits").with_changes({"tau": tau, "seed": seed})
    records = [
        {"epoch": epoch, "level_clean": 0.1 * growth**epoch, "saturated_pairs": min(1.0, 0.01 * growth**epoch)}
        for epoch in range(1, epochs + 1)
    ]
    whole = {"arm": arm, "seed": seed, "split": "validation", "data": "abc", "config": stored(config)}
    whole |= {"scores": {"map_at_r": 0.4}, "epochs": records, "stopped": None, "error": None, "seconds": 1.0}
    return whole | values


LINES = [
    *(line("grows", seed, growth=5, stopped=4) for seed in (0, 1)),
    *(line("stays", seed, epochs=9, tau=1) for seed in (0, 1)),
]


def colours_in(path: Path) -> set[str]:
    with Image.open(path) as image:
        assert image.width == 1440
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return {f"#{number:06X}" for number in np.unique(pixels @ [1 << 16, 1 << 8, 1])}


def test_both_figures_show_every_arm_in_its_colour(tmp_path):
    paths = draw_figures(LINES, {"grows": "literal", "stays": "stabilised"}, tmp_path / "new")
    assert [path.name for path in paths] == [LEVEL_FILE, SATURATED_FILE]
    for path in paths:
        assert set(COLOURS[:2]) <= colours_in(path)  # of the labels: lines are a little transparent
        assert not set(COLOURS[2:4]) & colours_in(path)


def test_arms_that_end_early_are_named_where_they_end_and_others_beside_the_axes(tmp_path, monkeypatch):
    seen = {}

    def saved(figure, *_arguments, **_options):
        seen.update({text.get_text().splitlines()[0]: text.get_position()[0] for text in figure.axes[0].texts})

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", saved)
    with pytest.raises(FileNotFoundError):  # nothing was saved
        draw_figures(LINES, {"grows": "literal", "stays": "stabilised"}, tmp_path)
    assert 0 < seen["literal"] < 0.5 < 1 < seen["stabilised"]


def test_mixed_images_runs_of_one_epoch_and_runs_without_scores_are_drawn(tmp_path):
    mixed = line("mixed")
    mixed["epochs"] = [{**record, "level_mixed": 0.5} for record in mixed["epochs"]]
    lines = [mixed, line("short", epochs=1, tau=2, scores={}), line("odd", tau=3)]
    lines[-1]["epochs"][1]["level_clean"] = None  # as a log writes what is no number
    draw_figures(lines, {"mixed": "mixed", "short": "short", "odd": "odd"}, tmp_path)
    assert set(COLOURS[:3]) <= colours_in(tmp_path / LEVEL_FILE)
    draw_figures(lines, {"short": "short"}, tmp_path)
    assert COLOURS[0] in colours_in(tmp_path / SATURATED_FILE)


def judged(arm: str, **changes) -> dict:
    """A run without uncertainty, of which every second epoch was judged."""
    run = line(arm, **changes)
    run["epochs"] = [
        {"epoch": epoch, SCORE: 0.3 + epoch / 100} if epoch % 2 else {"epoch": epoch} for epoch in (1, 2, 3)
    ]
    return run


def test_scores_are_drawn_of_plain_arms_too(tmp_path):
    lines = [judged("plain"), judged("other", tau=2), line("never judged", tau=3)]
    (path,) = draw_scores(lines, {"plain": "plain", "other": "other"}, tmp_path)
    assert path.name == SCORE_FILE
    assert set(COLOURS[:2]) <= colours_in(path)
    with pytest.raises(ValueError, match="arm 'never judged' has no run with an epoch that was judged"):
        draw_scores(lines, {"never judged": "x"}, tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["grow"], "unknown arm 'grow': did you mean 'grows'"),
        (["plain"], "arm 'plain' has no run with a level to draw: choose one that is introspective"),
        (["failed"], "arm 'failed' has no run with a level"),
        (["twice"], "arm 'twice' with several settings: give a log that has one"),
        ([f"arm {number}" for number in range(8)], "8 arms cannot be told apart by colour: choose 7 at most"),
    ],
)
def test_what_cannot_be_drawn_is_told(names, message, tmp_path):
    plain = line("plain")
    plain["epochs"] = [{"epoch": 1, "loss": 1.0}]
    lines = [*LINES, plain, line("failed", error="full"), line("twice", tau=2), line("twice", tau=3)]
    with pytest.raises(ValueError, match=message):
        draw_figures(lines, {name: name for name in names}, tmp_path)
    assert not list(tmp_path.iterdir())


@given(places, st.floats(0.01, 0.2))
def test_labels_keep_their_order_and_distance_and_stay_beside_the_axes(wanted, gap):
    found = spread_out(wanted, gap=gap)
    assert len(found) == len(wanted)
    assert all(after - before >= gap - 1e-9 for before, after in itertools.pairwise(found))
    assert found[0] >= 0
    assert found[-1] <= 1 + 1e-9


@given(places)
def test_labels_that_have_room_stay_where_they_are_wanted(wanted):
    gaps = [after - before for before, after in itertools.pairwise(wanted)]
    gap = min(gaps, default=1.0)
    assert spread_out(wanted, gap=gap / 2) == pytest.approx(wanted)


def test_the_command_takes_labels_and_names_the_files(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in LINES))
    main = runpy.run_path(COMMAND)["main"]
    main([str(log), "--arms", "grows:τ = 0.5, stays", "--output", str(tmp_path)])
    assert [Path(text).name for text in capsys.readouterr().out.splitlines()] == [LEVEL_FILE, SATURATED_FILE]
    log.write_text(json.dumps(judged("plain, twice")) + "\n")
    main([str(log), "--arms", "plain, twice:plain;", "--scores", "--output", str(tmp_path)])
    assert Path(capsys.readouterr().out.strip()).name == SCORE_FILE
    with pytest.raises(SystemExit, match="unknown arm 'other'"):
        main([str(log), "--arms", "other"])
    with pytest.raises(SystemExit, match="there is no log"):
        main([str(tmp_path / "none.jsonl"), "--arms", "grows"])
