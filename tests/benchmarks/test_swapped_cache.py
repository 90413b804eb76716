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
    assert after.meta.source == f"{before.meta.source}, swapped"


def test_what_was_interrupted_is_done_again(tmp_path):
    cache = draw_cache(tmp_path / "data")
    (tmp_path / "swapped").mkdir()
    (tmp_path / "swapped" / "pixels.bin").write_bytes(b"broken off")
    runpy.run_path(COMMAND)["main"]([str(cache.folder), str(tmp_path / "swapped")])
    Cache.open(tmp_path / "swapped").verify()
    cache.verify()


def test_mistakes_are_told_in_a_line_and_nothing_is_overwritten(tmp_path):
    main = runpy.run_path(COMMAND)["main"]
    cache, without_test = draw_cache(tmp_path / "data"), draw_cache(tmp_path / "more", test_share=0.0)
    with pytest.raises(SystemExit, match="there is no folder"):
        main([str(tmp_path / "nothing"), str(tmp_path / "swapped")])
    with pytest.raises(SystemExit, match="there is a cache in .* already: name another folder"):
        main([str(cache.folder), str(cache.folder)])
    with pytest.raises(SystemExit, match="has the splits train: it takes train and test to swap"):
        main([str(without_test.folder), str(tmp_path / "swapped")])
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="file"):
        main([str(cache.folder), str(tmp_path / "file" / "swapped")])
    assert len(Cache.open(cache.folder)) == len(cache)
