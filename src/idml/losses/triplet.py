"""Triplet loss (Schroff et al., FaceNet, CVPR 2015)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from idml.errors import unknown_name
from idml.miners import semi_hard, semi_hard_of
from idml.numerics.blocks import few_places
from idml.numerics.hinges import mean_over_violators, ratio, weighted
from idml.pairs import Pairs, fitting

MININGS = ("semihard", "all")


def triplet_loss(
    distance: Float[Tensor, "n m"],
    pairs: Pairs,
    *,
    margin: float = 0.1,
    mining: Literal["semihard", "all"] = "semihard",
) -> Float[Tensor, ""]:
    """Positives nearer than negatives by a margin.

    Mean over violators of [d_ap − d_an + δ]₊ with weights P[a,p]·N[a,n], p ≠ n. "semihard" takes
    for each (a, p) the nearest negative that is farther than the positive, and skips the pair if
    there is none; "all" takes every triplet, in O(m log m) an anchor.
    """
    distance = fitting(distance, pairs)
    if mining not in MININGS:
        raise unknown_name("mining", mining, MININGS)
    return _semihard(distance, pairs, margin) if mining == "semihard" else _every_triplet(distance, pairs, margin)


def _semihard(distance: Tensor, pairs: Pairs, margin: float) -> Tensor:
    few = few_places(pairs.positive)
    if few is None:  # one triplet for each entry of the matrix, most of weight 0
        chosen, found = semi_hard(distance, pairs)
        lead = distance - distance.gather(1, chosen)
        positive, negative = pairs.positive, pairs.negative.gather(1, chosen)
    else:
        chosen, found = semi_hard_of(distance, pairs, *few)
        lead = (distance[few] - distance[few[0], chosen])[None]
        positive, negative = pairs.positive[few][None], pairs.negative[few[0], chosen][None]
    weights = (positive.to(lead.dtype) * negative).masked_fill_(~found, 0)
    return mean_over_violators(lead, [(weights, 1, -margin)])


def _every_triplet(distance: Tensor, pairs: Pairs, margin: float) -> Tensor:
    """Sums over sorted negatives: those nearer than d_ap + δ are a prefix, known by its running sums."""
    distance = distance.contiguous()
    ordered, order = distance.sort(dim=1)
    negative = pairs.negative.to(distance.dtype).gather(1, order)
    limit = distance.detach() + margin
    prefix = torch.searchsorted(ordered.detach(), limit)  # (n, m): how many candidates are nearer than d_ap + δ
    number = _running_sum(negative).gather(1, prefix)
    total = _running_sum(weighted(ordered, negative)).gather(1, prefix)
    violation = (distance + margin) * number - total
    # p itself is in its own prefix, but no negative of its own pair.
    itself = weighted((limit > distance.detach()).to(distance.dtype), pairs.negative)
    number, violation = number - itself, violation - margin * itself
    return ratio(weighted(violation, pairs.positive).sum(), weighted(number, pairs.positive).sum())


def _running_sum(values: Tensor) -> Tensor:
    """(n, m + 1): the sum of the first k values, k = 0 … m."""
    return torch.nn.functional.pad(values.cumsum(dim=1), (1, 0))
