import runpy
from pathlib import Path

import pytest
from caches import draw_cache

from idml.data.cache import Cache

COMMAND = str(Path(__file__).parents[2] / "benchmarks" / "swapped_cache.py")


def test_what_was_trained_on_is_scored_and_the_other_way_round(tmp_path):
    before = draw_cache(tmp_path / "data")
    runpy.run_path(COMMAND)["main"]([str(before.folder), str(tmp_path / "swapped")])
    after = Cache.open(tmp_path / "swapped")
    after.verify()
    assert after.rows("train").tolist() == before.rows("test").tolist()
    assert after.rows("test").tolist() == before.rows("train").tolist()
    assert after.names == before.names
    assert after.labels.tolist() == before.labels.tolist()
    assert after.meta.index_checksum != before.meta.index_checksum


def test_mistakes_are_told_in_a_line_and_nothing_is_overwritten(tmp_path):
    main = runpy.run_path(COMMAND)["main"]
    cache = draw_cache(tmp_path / "data")
    with pytest.raises(SystemExit, match="there is no folder"):
        main([str(tmp_path / "nothing"), str(tmp_path / "swapped")])
    with pytest.raises(SystemExit, match="is there already: name another folder"):
        main([str(cache.folder), str(cache.folder)])
    assert len(Cache.open(cache.folder)) == len(cache)
