import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from idml.evaluation.intervals import (
    Difference,
    Interval,
    bootstrap,
    bootstrap_counts,
    interval_of_mean,
    over_seeds,
    paired_difference,
)
from idml.evaluation.uncertainty import r_auroc


def test_counts_are_draws_with_replacement(monkeypatch):
    monkeypatch.setattr("idml.evaluation.intervals.AT_ONCE", 700)
    chunks = list(bootstrap_counts(100, 500, seed=0))
    assert {len(chunk) for chunk in chunks} == {7, 3}
    counts = torch.cat(chunks)
    assert counts.shape == (500, 100)
    assert (counts.sum(dim=1) == 100).all()
    assert counts.var().item() == pytest.approx(1 - 1 / 100, rel=0.03)
    assert (counts == 0).double().mean().item() == pytest.approx((1 - 1 / 100) ** 100, abs=0.01)


def test_the_seed_decides_whatever_the_chunks(monkeypatch):
    whole = torch.cat(list(bootstrap_counts(30, 20, seed=4)))
    monkeypatch.setattr("idml.evaluation.intervals.AT_ONCE", 1)
    assert torch.equal(torch.cat(list(bootstrap_counts(30, 20, seed=4))), whole)
    assert not torch.equal(torch.cat(list(bootstrap_counts(30, 20, seed=5))), whole)


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.7
    ours = interval_of_mean(values.double(), resamples=4000)
    half = 1.96 * math.sqrt(0.7 * 0.3 / 300)
    peer = stats.bootstrap((values.double().numpy(),), lambda x, axis: x.mean(axis=axis), method="percentile", rng=0)
    mean = values.double().mean().item()
    assert (ours.low, ours.high) == pytest.approx((mean - half, mean + half), abs=0.01)
    assert (ours.low, ours.high) == pytest.approx(tuple(peer.confidence_interval), abs=0.01)


def test_a_95_percent_interval_holds_the_truth_about_95_times_in_a_hundred():
    generator = torch.Generator().manual_seed(0)
    held = 0
    for seed in range(200):
        interval = interval_of_mean(torch.randn(60, generator=generator), resamples=200, seed=seed)
        held += interval.low <= 0 <= interval.high
    assert 180 <= held <= 198


def test_more_confidence_needs_a_wider_interval():
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    narrow, wide = (interval_of_mean(values, confidence=confidence) for confidence in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_statistics_share_their_resamples_and_leave_out_those_without_meaning():
    level, is_wrong = torch.arange(6.0), torch.tensor([False] * 5 + [True])
    found = bootstrap(
        {
            "auroc": partial(r_auroc, level, is_wrong),
            "again": partial(r_auroc, level, is_wrong),
            "never": lambda counts: torch.full((len(counts),), math.nan),
        },
        6,
        resamples=100,
    )
    assert found["auroc"] == found["again"] == Interval(1.0, 1.0)
    assert math.isnan(found["never"].low)
    assert math.isnan(found["never"].high)


def test_one_seed_has_no_deviation():
    assert over_seeds([0.7]).standard_deviation is None
    spread = over_seeds([0.7, 0.9, 0.8])
    assert (spread.mean, spread.standard_deviation, spread.number) == pytest.approx((0.8, 0.1, 3))


@given(pairs=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=8))
def test_paired_differences_equal_scipy(pairs):
    ours, baseline = ([float(value) for value in side] for side in zip(*pairs, strict=True))
    gaps = torch.tensor(ours).double() - torch.tensor(baseline).double()
    found = paired_difference(ours, baseline)
    assert found.low <= found.mean <= found.high
    if gaps.std() < 1e-6:
        return
    peer = stats.ttest_rel(ours, baseline)
    interval = peer.confidence_interval(0.95)  # pyright: ignore[reportAttributeAccessIssue]
    assert found.p_value == pytest.approx(peer.pvalue, rel=1e-6, abs=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert found.is_inside_noise == (interval.low <= 0 <= interval.high)


def test_equal_gaps_are_certain():
    assert paired_difference([1.5, 2.5], [1.0, 2.0]) == Difference(0.5, 0.5, 0.5, 0.0, 2)
    nothing = paired_difference([1.0, 2.0], [1.0, 2.0])
    assert nothing.p_value == 1
    assert nothing.is_inside_noise


@pytest.mark.parametrize(
    ("difference", "scale", "words"),
    [
        (Difference(0.013, 0.009, 0.017, 0.003, 5), 1, "+0.013 ± 0.004 (95 % +0.009 to +0.017, p 0.003, 5 pairs)"),
        (Difference(0.013, 0.009, 0.017, 0.003, 5), 100, "+1.3 ± 0.4 (95 % +0.9 to +1.7, p 0.003, 5 pairs)"),
        (Difference(-12.0, -14, -10, 0.00001, 3), 1, "-12.0 ± 2.0 (95 % -14.0 to -10.0, p < 0.001, 3 pairs)"),
        (Difference(0.02, 0.02, 0.02, 0.0, 2), 1, "+0.02 ± 0.00 (95 % +0.02 to +0.02, p < 0.001, 2 pairs)"),
        (Difference(0, 0, 0, 1.0, 2), 1, "+0.0 ± 0.0 (95 % +0.0 to +0.0, p 1, 2 pairs): inside the noise"),
    ],
)
def test_a_difference_is_told_with_the_decimals_it_deserves(difference, scale, words):
    assert difference.describe(scale=scale) == words


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    with pytest.raises(ValueError, match="3 scores of ours and 2 of the baseline: give pairs"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="1 pair cannot tell a difference from noise"):
        paired_difference([1.0], [2.0])
    with pytest.raises(ValueError, match=r"ours\[1\] is nan: leave that seed out"):
        paired_difference([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match="there are no values"):
        over_seeds([])
    with pytest.raises(ValueError, match="0 resamples of 5 queries"):
        interval_of_mean(torch.rand(5), resamples=0)
    with pytest.raises(ValueError, match="confidence is 95: give a number from 0 to 1"):
        interval_of_mean(torch.rand(5), confidence=95)
