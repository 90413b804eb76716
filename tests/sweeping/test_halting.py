import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idml.sweeping.halting import Halting

NAME = "validation_map_at_r"
curves = st.lists(st.none() | st.floats(0, 1) | st.just(float("nan")), max_size=5)


def records(curve: list[float | None]) -> list[dict]:
    """One record an epoch; None: that epoch was not validated."""
    return [{"epoch": place + 1, "loss": 1.0} | ({} if s is None else {NAME: s}) for place, s in enumerate(curve)]


@given(st.lists(curves, max_size=6), curves, st.sampled_from([0.0, 0.5, 0.8, 1.0]), st.integers(1, 4))
def test_a_run_is_stopped_where_a_naive_computation_says_so(before, curve, share, fewest):
    halting = Halting(share=share, fewest=fewest)
    should_stop = halting.watching([records(other) for other in before], epochs=len(curve))
    for place, (record, score) in enumerate(zip(records(curve), curve, strict=True)):
        others = [c[place] for c in before if place < len(c)]
        others = [float(other) for other in others if other is not None and not np.isnan(other)]
        is_last = place + 1 == len(curve)
        expected = False
        if score is not None and not np.isnan(score) and share > 0 and len(others) >= fewest and not is_last:
            expected = bool(score < share * np.median(others))
        assert should_stop(record) == expected


def test_runs_are_compared_by_the_score_that_decides():
    before = [[{"epoch": 1, "validation_recall@1": 0.9, NAME: 0.1}]] * 3
    record = {"epoch": 1, "validation_recall@1": 0.5, NAME: 0.5}
    assert Halting(score="recall@1").watching(before, epochs=5)(record)
    assert not Halting(score="map_at_r").watching(before, epochs=5)(record)


def test_a_median_of_zero_stops_nobody():
    before = [[{"epoch": 1, NAME: 0.0}]] * 3
    assert Halting().threshold(before, 1) == 0
    assert not Halting().watching(before, epochs=5)({"epoch": 1, NAME: 0.0})


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match="stop-below is 8"):
        Halting(share=8)
