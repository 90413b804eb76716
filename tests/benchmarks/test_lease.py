import runpy
import threading
import time
from pathlib import Path

import pytest
from caches import draw_cache

from idml.sweeping.lab import Lab

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "lease.py")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return draw_cache(tmp_path_factory.mktemp("data")).folder


def test_stages_follow_each_other_wait_for_their_files_and_survive_a_mistake(cache, tmp_path, capsys):
    main = runpy.run_path(COMMAND)["main"]
    (tmp_path / "first.arms").write_text("a plain: digits-plain epochs=1 batch=20 seeds=1\n")
    (tmp_path / "wrong.arms").write_text("b: digits taus=3\n")

    def bring() -> None:
        while not (tmp_path / "wrong.done").exists():
            time.sleep(0.01)
        (tmp_path / "unfinished").write_text("c: digits epochs=1 batch=20 seeds=2\n")
        (tmp_path / "unfinished").rename(tmp_path / "last.arms")

    bringing = threading.Thread(target=bring)
    bringing.start()
    main([str(cache), "none", str(tmp_path), "final:first", "final:wrong", "final:last", "--set"])
    bringing.join()
    assert [(line["arm"], line["seed"]) for line in Lab(tmp_path / "final.jsonl").lines()] == [
        ("a plain", 0),
        ("c", 0),
        ("c", 1),
    ]
    assert {path.stem for path in tmp_path.glob("*.done")} == {"first", "wrong", "last"}
    told = capsys.readouterr().out
    assert "unknown setting 'taus'" in told
    assert told.count("recall@1") == 3


def test_each_kind_has_its_log_and_its_cache(cache, tmp_path, capsys):
    main = runpy.run_path(COMMAND)["main"]
    swapped = draw_cache(tmp_path / "swapped", classes=6).folder
    (tmp_path / "rows.arms").write_text("a: digits-plain epochs=1 batch=20 seeds=1\n")
    stages = ["final:rows", "again:rows", "swapped:rows", "final:rows"]
    main([str(cache), "none", str(tmp_path), *stages, "--swapped", str(swapped), "--set"])
    logs = {path.stem: Lab(path).lines() for path in tmp_path.glob("*.jsonl")}
    assert {name: len(lines) for name, lines in logs.items()} == {"final": 1, "again": 1, "swapped": 1}
    assert logs["final"][0]["data"] == logs["again"][0]["data"] != logs["swapped"][0]["data"]
    assert capsys.readouterr().out.count("recall@1") == 3  # what the log has is not run again


def test_mistakes_are_told_in_a_line(cache, tmp_path):
    main = runpy.run_path(COMMAND)["main"]
    with pytest.raises(SystemExit, match="'later' is no stage: write folds:NAME, final:NAME, again"):
        main([str(cache), "none", str(tmp_path), "later"])
    with pytest.raises(SystemExit, match="'swapped:all' needs --swapped"):
        main([str(cache), "none", str(tmp_path), "swapped:all"])
    with pytest.raises(SystemExit, match="there is no folder .*nowhere: make it"):
        main([str(cache), "none", str(tmp_path / "nowhere"), "final:all"])
    with pytest.raises(SystemExit, match="give a cache that `idml prepare` made"):
        main([str(tmp_path / "nothing"), "none", str(tmp_path), "final:all"])
