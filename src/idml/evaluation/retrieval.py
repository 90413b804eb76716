"""Retrieval scores from the ranks at which queries find their class.

R-Precision and MAP@R are those of Musgrave et al. (A Metric Learning Reality Check, ECCV 2020).
Everything takes `Ranks` and returns fractions in 0..1, one a query or their mean over queries.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from idml.evaluation.ranks import Ranks


def is_found(ranks: Ranks, k: int) -> Bool[Tensor, " q"]:
    """Whether an image of the query's class is among its k nearest; False for a class without another image."""
    if k < 1:
        raise ValueError(f"K is {k}: count at least 1 neighbour.")
    return (ranks.first >= 1) & (ranks.first <= min(k, torch.iinfo(torch.long).max))


def recall_at(ranks: Ranks, ks: Sequence[int] = (1, 2, 4, 8)) -> dict[int, float]:
    """Recall@K: the share of queries with an image of their class among the K nearest.

    Queries whose class has no other image count as misses. K may exceed every class, and the gallery.

    >>> ranks = Ranks(torch.tensor([[1, 3], [2, 0], [0, 0]]), torch.tensor([2, 1, 0]))
    >>> recall_at(ranks, (1, 2))
    {1: 0.3333333333333333, 2: 0.6666666666666666}
    """
    _check_some(ranks.number)
    return {k: is_found(ranks, k).double().mean().item() for k in ks}


def r_precision(ranks: Ranks) -> Float[Tensor, " q"]:
    """For each query that has R others in its class, the share of those among its R nearest."""
    known, number = _with_class(ranks)
    return (_inside(known, number)).sum(dim=1) / number[:, 0].double()


def average_precision_at_r(ranks: Ranks) -> Float[Tensor, " q"]:
    """For each query that has R others in its class, average precision over its R nearest; its mean is MAP@R."""
    known, number = _with_class(ranks)
    return (_precision(known) * _inside(known, number)).sum(dim=1) / number[:, 0]


def average_precision(ranks: Ranks) -> Float[Tensor, " q"]:
    """For each query that has others in its class, average precision over the whole gallery; its mean is mAP."""
    known, number = _with_class(ranks)
    return _precision(known).sum(dim=1) / number[:, 0]


def _with_class(ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Ranks (q, r) and numbers (q, 1) of the queries that can find something."""
    has_class = ranks.number > 0
    _check_some(ranks.number[has_class])
    return ranks.ranks[has_class], ranks.number[has_class, None]


def _inside(ranks: Tensor, number: Tensor) -> Tensor:
    return (ranks >= 1) & (ranks <= number)


def _precision(ranks: Tensor) -> Tensor:
    """At each image of the class, the share of the class among all up to it; 0 past their number."""
    found = torch.arange(1, ranks.shape[1] + 1, device=ranks.device, dtype=torch.float64)
    return (found / ranks.clamp(min=1)).masked_fill(ranks == 0, 0)


def _check_some(queries: Tensor) -> None:
    if len(queries) == 0:
        raise ValueError("no query has another image of its class to find: give at least two images of some class.")
