"""Whether the uncertainty level tells which queries go wrong.

R-AUROC is that of the URL benchmark (Kirchhof et al., NeurIPS 2023), risk over coverage that of
Geifman and El-Yaniv (NeurIPS 2017), the excess over the best ordering that of Geifman et al. (ICLR
2019).

Scores take one number a query and return a float64 number. Given `counts` (b, n), how often each
query is drawn in each of b resamples, they return the scores of all resamples (b,): those of the
set with its queries repeated that often. A score without meaning, as where all queries are right,
is NaN. Queries of equal level count as a group: no score depends on the order inside it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from idml.evaluation.ordering import Counts, Ordering, Score, among_first, as_asked, drawn_queries


def r_auroc(level: Float[Tensor, " n"], is_wrong: Bool[Tensor, " n"], counts: Counts | None = None) -> Score:
    """The chance that a wrong query has a higher level than a right one, equal levels counting half.

    NaN where all queries are right, or all are wrong.

    >>> r_auroc(torch.tensor([0.1, 0.2, 0.2, 0.9]), torch.tensor([False, False, True, True]))
    tensor(0.8750, dtype=torch.float64)
    """
    return r_auroc_within(level, is_wrong, torch.zeros_like(is_wrong, dtype=torch.long), counts)


def r_auroc_within(
    level: Float[Tensor, " n"],
    is_wrong: Bool[Tensor, " n"],
    groups: Int[Tensor, " n"],
    counts: Counts | None = None,
) -> Score:
    """R-AUROC over pairs of queries of one group, where levels of several cannot be compared.

    >>> level, is_wrong = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([False, True, False, True])
    >>> r_auroc_within(level, is_wrong, torch.tensor([0, 0, 1, 1])), r_auroc(level, is_wrong)
    (tensor(1., dtype=torch.float64), tensor(0.7500, dtype=torch.float64))
    """
    drawn = drawn_queries(level, is_wrong, counts)
    ahead, pairs = drawn.new_zeros(2, len(drawn), dtype=torch.float64)
    for rows in ((groups == group).nonzero()[:, 0] for group in groups.unique()):
        number, wrong = Ordering.of(level[rows]).totals(drawn.index_select(1, rows), is_wrong[rows])
        right = number - wrong
        ahead = ahead + torch.linalg.vecdot(wrong, right.cumsum(dim=1)) - torch.linalg.vecdot(wrong, right) / 2
        pairs = pairs + wrong.sum(dim=1) * right.sum(dim=1)
    return as_asked(ahead / pairs, counts)


class RiskCoverage(NamedTuple):
    """The share of queries accepted, 1/n … 1, and the share of those that are wrong."""

    coverage: Float[Tensor, " n"]
    risk: Float[Tensor, " n"]


def risk_coverage(level: Float[Tensor, " n"], is_wrong: Bool[Tensor, " n"]) -> RiskCoverage:
    """The risk as queries are accepted in the order of rising level.

    Inside a group of equal levels errors come evenly: the mean over all orders of the group.
    """
    drawn = drawn_queries(level, is_wrong, None)
    accepted = torch.arange(1, len(level) + 1, dtype=torch.float64, device=level.device)
    errors = among_first(accepted[None], *Ordering.of(level).totals(drawn, is_wrong))[0]
    return RiskCoverage(accepted / len(level), errors / accepted)


def aurc(level: Float[Tensor, " n"], is_wrong: Bool[Tensor, " n"], counts: Counts | None = None) -> Score:
    """The mean risk over the coverages 1/n … 1, the area under `risk_coverage`: lower is better.

    After k queries the risk is (e + (k − m)·rate)/k, where e errors and m queries come before the
    group and `rate` is the share of errors in it; the sum over a group needs only harmonic numbers.
    """
    drawn = drawn_queries(level, is_wrong, counts)
    number, errors = Ordering.of(level).totals(drawn, is_wrong)
    upto = number.cumsum(dim=1)
    rate = errors / number.clamp(min=1)
    offset = errors.cumsum(dim=1) - errors - (upto - number) * rate
    inverses = _harmonic(upto).diff(dim=1, prepend=upto.new_zeros(len(upto), 1))  # Σ 1/k over the group
    return as_asked((torch.linalg.vecdot(offset, inverses) + errors.sum(dim=1)) / upto[:, -1], counts)


def excess_aurc(level: Float[Tensor, " n"], is_wrong: Bool[Tensor, " n"], counts: Counts | None = None) -> Score:
    """`aurc` less that of the best ordering, which has as many errors and all of them last: 0 at best.

    The best is Σ (k − r)/k ÷ n over k = r + 1 … n, where r of n queries are right.
    """
    drawn = drawn_queries(level, is_wrong, counts)
    number, errors = drawn.sum(dim=1), drawn @ is_wrong.double()
    right = number - errors
    best = (errors - right * (_harmonic(number) - _harmonic(right))) / number
    return aurc(level, is_wrong, counts) - as_asked(best, counts)


def spearman(level: Float[Tensor, " n"], average_precision: Float[Tensor, " n"], counts: Counts | None = None) -> Score:
    """Rank correlation of the level with what the query achieves: −1 at best. Equal values share their mean rank.

    NaN where the level, or the average precision, is the same for all queries.
    """
    drawn = drawn_queries(level, average_precision, counts)
    x, y = (Ordering.of(values).centred_ranks(drawn) for values in (level, average_precision))
    drawn_x, drawn_y = drawn * x, drawn * y
    variances = torch.linalg.vecdot(drawn_x, x) * torch.linalg.vecdot(drawn_y, y)
    return as_asked(torch.linalg.vecdot(drawn_x, y) / variances.sqrt(), counts)


def share_that_rises(
    clean_level: Float[Tensor, " n"], changed_level: Float[Tensor, " n"], counts: Counts | None = None
) -> Score:
    """The share of images whose level is strictly higher after being made ambiguous: no change is no rise."""
    drawn = drawn_queries(clean_level, changed_level, counts)
    risen = drawn @ (changed_level > clean_level).double()
    return as_asked(risen / drawn.sum(dim=1), counts)


def _harmonic(number: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """1 + 1/2 + … + 1/number; 0 of 0."""
    inverses = 1 / torch.arange(1, int(number.max()) + 1, dtype=torch.float64, device=number.device)
    return functional.pad(inverses.cumsum(dim=0), (1, 0)).take(number.long())
