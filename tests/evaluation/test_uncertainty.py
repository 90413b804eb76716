import math
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from idml.evaluation.uncertainty import (
    aurc,
    excess_aurc,
    r_auroc,
    r_auroc_within,
    risk_coverage,
    share_that_rises,
    spearman,
)


@st.composite
def answers(draw) -> tuple[Tensor, Tensor]:
    """Levels of few distinct values, so that ties abound, and which queries are wrong: some, all or none."""
    n = draw(st.integers(1, 12))
    level = draw(st.lists(st.sampled_from([-0.0, 0.0, 0.1, 0.5, 2.0, 1e30]), min_size=n, max_size=n))
    is_wrong = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return torch.tensor(level), torch.tensor(is_wrong)


def counts_for(n: int, seed: int) -> Tensor:
    """Resamples of any size; some leave most queries out."""
    counts = torch.randint(4, (6, n), generator=torch.Generator().manual_seed(seed))
    counts[1:3] *= torch.randint(2, (2, n), generator=torch.Generator().manual_seed(seed + 1))
    counts[:, 0] += counts.sum(dim=1) == 0
    return counts


SCORES = {
    "r_auroc": r_auroc,
    "aurc": aurc,
    "excess_aurc": excess_aurc,
    "spearman": lambda level, other, counts=None: spearman(level, other.double(), counts),
    "share_that_rises": lambda level, other, counts=None: share_that_rises(level, other.float(), counts),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@given(given=answers(), seed=st.integers(0, 10**6))
def test_with_counts_a_score_is_that_of_the_set_with_its_rows_repeated(score, given, seed):
    level, other = given
    counts = counts_for(len(level), seed)
    resampled = score(level, other, counts.double())
    assert resampled.dtype is torch.float64
    for one, row in zip(resampled, counts, strict=True):
        repeated = score(level.repeat_interleave(row), other.repeat_interleave(row))
        torch.testing.assert_close(one, repeated, equal_nan=True, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@given(given=answers(), data=st.data())
def test_scores_do_not_depend_on_the_order_of_the_queries(score, given, data):
    level, other = given
    order = torch.tensor(data.draw(st.permutations(range(len(level)))))
    torch.testing.assert_close(
        score(level[order], other[order]), score(level, other), equal_nan=True, rtol=1e-12, atol=1e-12
    )


@given(given=answers())
def test_r_auroc_is_the_share_of_pairs_in_the_right_order(given):
    level, is_wrong = given
    pairs = [(float(a), float(b)) for a in level[is_wrong] for b in level[~is_wrong]]
    score = r_auroc(level, is_wrong)
    if not pairs:
        assert score.isnan()
        return
    assert score.item() == pytest.approx(sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs), abs=1e-14)
    assert score.item() == pytest.approx(roc_auc_score(is_wrong, level), abs=1e-12)


def naive_risks(is_wrong: list[bool]) -> list[float]:
    return [sum(is_wrong[:k]) / k for k in range(1, len(is_wrong) + 1)]


def test_within_groups_only_their_own_pairs_count():
    generator = torch.Generator().manual_seed(0)
    level, is_wrong = torch.randint(9, (60,), generator=generator).double(), torch.rand(60, generator=generator) < 0.3
    groups = torch.randint(4, (60,), generator=generator)
    pairs = [
        (1.0 if level[i] > level[j] else 0.5 if level[i] == level[j] else 0.0)
        for i in range(60)
        for j in range(60)
        if is_wrong[i] and not is_wrong[j] and groups[i] == groups[j]
    ]
    assert r_auroc_within(level, is_wrong, groups).item() == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    counts = torch.randint(3, (2, 60), generator=generator).double()
    for score, row in zip(r_auroc_within(level, is_wrong, groups, counts), counts, strict=True):
        repeated = (side.repeat_interleave(row.long()) for side in (level, is_wrong, groups))
        torch.testing.assert_close(score, r_auroc_within(*repeated))


@given(given=answers())
def test_risk_over_coverage_is_the_mean_over_all_orders_inside_ties(given):
    level, is_wrong = given[0][:6], given[1][:6]
    orders = [
        order for order in permutations(range(len(level))) if all(level[a] <= level[b] for a, b in pairwise(order))
    ]
    risks = torch.tensor([naive_risks([bool(is_wrong[i]) for i in order]) for order in orders], dtype=torch.float64)
    coverage, risk = risk_coverage(level, is_wrong)
    torch.testing.assert_close(risk, risks.mean(dim=0), rtol=1e-12, atol=1e-12)
    assert coverage.tolist() == pytest.approx([k / len(level) for k in range(1, len(level) + 1)])


@given(given=answers())
def test_aurc_is_the_mean_risk_and_its_excess_that_over_the_best_order(given):
    level, is_wrong = given
    _, risk = risk_coverage(level, is_wrong)
    best = naive_risks(sorted(is_wrong.tolist()))
    assert aurc(level, is_wrong).item() == pytest.approx(risk.mean().item(), abs=1e-12)
    assert excess_aurc(level, is_wrong).item() == pytest.approx(risk.mean().item() - sum(best) / len(best), abs=1e-12)


def test_a_perfect_level_has_no_excess_and_a_reversed_one_the_most():
    is_wrong = torch.tensor([False] * 7 + [True] * 3)
    level = torch.arange(10.0)
    assert excess_aurc(level, is_wrong).item() == pytest.approx(0, abs=1e-14)
    assert excess_aurc(-level, is_wrong) > excess_aurc(torch.zeros(10), is_wrong) > 0
    assert aurc(torch.zeros(10), is_wrong).item() == pytest.approx(0.3)


@pytest.mark.parametrize("wrong", [False, True])
def test_where_all_are_right_or_wrong_only_the_risk_is_known(wrong):
    level, is_wrong = torch.rand(5), torch.full((5,), wrong)
    assert r_auroc(level, is_wrong).isnan()
    assert aurc(level, is_wrong).item() == pytest.approx(float(wrong))
    assert excess_aurc(level, is_wrong).item() == pytest.approx(0, abs=1e-14)


@given(pairs=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.9]), st.sampled_from([0.0, 0.3, 1.0])), min_size=2))
def test_spearman_equals_scipy(pairs):
    level, precision = torch.tensor(pairs, dtype=torch.float64).T
    score = spearman(level, precision)
    if len(set(level.tolist())) == 1 or len(set(precision.tolist())) == 1:
        assert score.isnan()
    else:
        assert score.item() == pytest.approx(spearmanr(level, precision).statistic, abs=1e-12)  # pyright: ignore[reportAttributeAccessIssue]


def test_at_full_size_scores_equal_their_peers():
    generator = torch.Generator().manual_seed(0)
    level = torch.rand(60_502, generator=generator, dtype=torch.float64)
    is_wrong = torch.rand(60_502, generator=generator) < 0.1 + 0.3 * level
    risks = is_wrong[level.argsort()].double().cumsum(dim=0) / torch.arange(1, 60_503)
    assert r_auroc(level, is_wrong).item() == pytest.approx(roc_auc_score(is_wrong, level), abs=1e-12)
    assert aurc(level, is_wrong).item() == pytest.approx(risks.mean().item(), abs=1e-10)


def test_an_unchanged_level_has_not_risen():
    clean, changed = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([2.0, 1.0, 0.0, 1.5])
    assert share_that_rises(clean, changed).item() == 0.5


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    level, is_wrong = torch.rand(3), torch.tensor([True, False, True])
    with pytest.raises(ValueError, match=r"shapes \(3,\) and \(2,\): give two of shape"):
        r_auroc(level, is_wrong[:2])
    with pytest.raises(ValueError, match=r"counts have shape \(2, 4\): give \(resamples, 3\)"):
        aurc(level, is_wrong, torch.ones(2, 4))
    with pytest.raises(ValueError, match="there are no queries to judge"):
        aurc(level[:0], is_wrong[:0])
    with pytest.raises(ValueError, match="the value of query 1 is NaN"):
        r_auroc(torch.tensor([1.0, math.nan, 2.0]), is_wrong)
