"""Choosing the pairs worth learning from. A miner narrows or reweights pairs and keeps no gradient."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from idml.numerics.blocks import BLOCK
from idml.pairs import Pairs, fitting


@torch.no_grad()
def semi_hard(distance: Float[Tensor, "n m"], pairs: Pairs) -> tuple[Int[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """For each (anchor, positive), the nearest negative farther than the positive (FaceNet, CVPR 2015).

    Returns the column of that negative and whether there is one; entries of pairs that are not
    positive mean nothing. `triplet_loss` calls this.
    """
    distance = fitting(distance, pairs)
    if distance.shape[1] == 0:
        return distance.long(), distance.bool()
    ordered, order = distance.masked_fill(pairs.negative == 0, float("inf")).sort(dim=1, stable=True)
    rank = torch.searchsorted(ordered, distance.contiguous(), right=True)
    rank_or_last = rank.clamp(max=distance.shape[1] - 1)
    found = (rank < distance.shape[1]) & (ordered.gather(1, rank_or_last) < float("inf"))
    found |= distance.isnan()  # so that it shows in the loss
    return order.gather(1, rank_or_last), found


@torch.no_grad()
def semi_hard_of(
    distance: Float[Tensor, "n m"], pairs: Pairs, anchor: Int[Tensor, " k"], positive: Int[Tensor, " k"]
) -> tuple[Int[Tensor, " k"], Bool[Tensor, " k"]]:
    """The same for a list of (anchor, positive) pairs: faster where they are few."""
    chosen, found = torch.empty_like(anchor), torch.empty_like(anchor, dtype=torch.bool)
    at_once = max(1, BLOCK // distance.shape[1])
    for start in range(0, len(anchor), at_once):
        here = slice(start, start + at_once)
        rows = distance[anchor[here]]  # (k, m)
        too_near = rows <= rows.gather(1, positive[here, None])
        rows.masked_fill_(too_near.logical_or_(pairs.negative[anchor[here]] == 0), float("inf"))
        nearest, chosen[here] = rows.min(dim=1)
        found[here] = nearest != float("inf")  # True for NaN, so that it shows in the loss
    return chosen, found


@torch.no_grad()
def multi_similarity(distance: Float[Tensor, "n m"], pairs: Pairs, *, epsilon: float = 0.1) -> Pairs:
    """Keep pairs that are hard next to the anchor's hardest of the other kind (Wang et al., CVPR 2019).

    With c = 1 − d: positives with c < max_neg + ε, negatives with c > min_pos − ε. An anchor that
    lacks positives or negatives keeps nothing.
    """
    distance = fitting(distance, pairs)
    if distance.shape[1] == 0:
        return pairs
    is_positive, is_negative = pairs.positive > 0, pairs.negative > 0
    nearest_negative = distance.masked_fill(~is_negative, float("inf")).amin(dim=1, keepdim=True)
    farthest_positive = distance.masked_fill(~is_positive, float("-inf")).amax(dim=1, keepdim=True)
    complete = is_positive.any(dim=1, keepdim=True) & is_negative.any(dim=1, keepdim=True)
    return Pairs(
        _where_kept(pairs.positive, complete & (distance > nearest_negative - epsilon)),
        _where_kept(pairs.negative, complete & (distance < farthest_positive + epsilon)),
    )


@torch.no_grad()
def distance_weighted(
    distance: Float[Tensor, "n m"],
    pairs: Pairs,
    *,
    dim: int = 512,
    cutoff: float = 0.5,
    farthest: float = 1.4,
    generator: torch.Generator | None = None,
) -> Pairs:
    """Draw negatives evenly over distance, one for each positive pair (Wu et al., ICCV 2017).

    Random points on the sphere in `dim` dimensions lie at distance d with density
    q(d) ∝ d^{n−2}(1 − d²/4)^{(n−3)/2}; a negative is drawn with probability ∝ N/q(d), d clipped
    below at `cutoff`, those beyond `farthest` left out, with replacement. The new negative weights
    count the draws; an anchor without a candidate draws none.
    """
    if dim < 1:
        raise ValueError(f"dim is {dim}: give the dimensions of the embeddings, at least 1.")
    distance = fitting(distance, pairs)
    if distance.numel() == 0:
        return pairs
    clipped = distance.clamp(min=cutoff)
    beyond = 1 - clipped.square() / 4
    log_inverse_density = (2 - dim) * clipped.log() + (3 - dim) / 2 * beyond.masked_fill(beyond <= 0, 1).log()
    is_candidate = (pairs.negative > 0) & (distance <= farthest)
    log_inverse_density.masked_fill_(~is_candidate, float("-inf"))
    highest = log_inverse_density.amax(dim=1, keepdim=True)
    has_candidate = highest > float("-inf")
    chance = (log_inverse_density - highest.masked_fill(~has_candidate, 0)).exp() * pairs.negative
    draws = (pairs.positive > 0).sum(dim=1, keepdim=True) * has_candidate  # (n, 1)
    most = int(draws.max()) if distance.device.type == "cpu" else distance.shape[1]  # elsewhere, do not wait to know
    cumulated = chance.cumsum(dim=1)
    point = torch.rand(len(distance), most, generator=generator, dtype=distance.dtype, device=distance.device)
    drawn = torch.searchsorted(cumulated, point * cumulated[:, -1:], right=True)
    drawn = drawn.clamp(max=distance.shape[1] - 1)
    is_wanted = torch.arange(most, device=distance.device) < draws
    return Pairs(pairs.positive, torch.zeros_like(distance).scatter_add(1, drawn, is_wanted.to(distance.dtype)))


def _where_kept(weights: Tensor, kept: Bool[Tensor, "n m"]) -> Tensor:
    return weights & kept if weights.dtype is torch.bool else weights * kept
