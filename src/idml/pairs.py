"""Which images are compared, and how much each comparison counts (IDML, TPAMI 2023, section 3.3).

A pair is positive when two label sets meet and negative when they are disjoint; with shares it is
both, each to a degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from idml.errors import values_can_be_read
from idml.labels import Labels, OtherLabels, as_members, as_shares, check_labels
from idml.numerics.precision import full_precision, wide


@dataclass(frozen=True, eq=False)
class Pairs:
    """Weights over an (n, m) distance matrix: rows are anchors, columns candidates.

    A weight of 0 means the pair is not there. Boolean weights are 0 and 1, and cheaper.

    >>> Pairs(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, -1.0]]))
    Traceback (most recent call last):
    ...
    ValueError: negative weights reach down to -1: weights are 0 or more, and 0 leaves a pair out.
    """

    positive: Shaped[Tensor, "n m"]
    negative: Shaped[Tensor, "n m"]

    def __post_init__(self):
        for name in ("positive", "negative"):
            _check_weights(name, getattr(self, name))
        if self.positive.shape != self.negative.shape:
            raise ValueError(
                f"positive weights have shape {tuple(self.positive.shape)} and negative ones "
                f"{tuple(self.negative.shape)}: both are (anchors, candidates)."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.positive.shape[0], self.positive.shape[1]


def fitting(distance: Tensor, pairs: Pairs) -> Float[Tensor, "n m"]:
    """The distances in float32 or better, after a check that there is one weight for each."""
    if tuple(distance.shape) != pairs.shape:
        raise ValueError(
            f"distances have shape {tuple(distance.shape)} and pair weights {pairs.shape}: "
            "both are (anchors, candidates)."
        )
    return wide(distance)


def pairs_within(labels: Labels) -> Pairs:
    """All pairs inside one batch, n × n; nobody is paired with itself.

    >>> pairs_within(torch.tensor([0, 0, 1])).positive.int()
    tensor([[0, 1, 0],
            [1, 0, 0],
            [0, 0, 0]], dtype=torch.int32)
    """
    pairs = pairs_between(labels, labels)
    pairs.positive.fill_diagonal_(0)
    pairs.negative.fill_diagonal_(0)
    return pairs


def pairs_between(labels_a: Labels, labels_b: OtherLabels) -> Pairs:
    """All pairs of one batch with another, n × m.

    Class numbers and boolean members are sets: positive where they meet. Floating-point members
    are shares: the positive weight is the sum over classes of the product of shares, the negative
    weight 1 minus that.
    """
    check_labels(labels_a)
    check_labels(labels_b)
    if labels_a.ndim == labels_b.ndim == 1:
        return _exclusive(labels_a[:, None] == labels_b[None, :])
    classes = labels_a.shape[1] if labels_a.ndim == 2 else labels_b.shape[1]
    members_a = as_members(labels_a, classes)
    members_b = members_a if labels_b is labels_a else as_members(labels_b, classes)
    with full_precision(members_a.device):
        if members_a.dtype is torch.bool and members_b.dtype is torch.bool:
            return _exclusive(members_a.float() @ members_b.float().T > 0)
        shares_a, shares_b = as_shares(members_a), as_shares(members_b)
        precision = torch.promote_types(shares_a.dtype, shares_b.dtype)
        return _complementary(shares_a.to(precision) @ shares_b.to(precision).T)


def pairs_with_classes(labels: Labels, num_classes: int) -> Pairs:
    """All pairs of a batch with the classes (their proxies), n × c."""
    members = as_members(labels, num_classes)
    return _exclusive(members) if members.dtype is torch.bool else _complementary(wide(members))


def _exclusive(positive: Bool[Tensor, "n m"]) -> Pairs:
    return Pairs(positive, ~positive)


def _complementary(positive: Shaped[Tensor, "n m"]) -> Pairs:
    positive = positive.clamp(max=1)  # rounding may leave a sum of shares just above 1
    return Pairs(positive, 1 - positive)


def _check_weights(name: str, weights: object) -> None:
    if not isinstance(weights, Tensor):
        raise ValueError(
            f"{name} weights are a {type(weights).__name__}: give a tensor of shape (anchors, candidates)."
        )
    if weights.ndim != 2:
        raise ValueError(f"{name} weights have shape {tuple(weights.shape)}: give (anchors, candidates).")
    if weights.dtype is torch.bool:
        return
    if not weights.is_floating_point():
        raise ValueError(f"{name} weights have dtype {weights.dtype}: give booleans or floating-point numbers.")
    if values_can_be_read(weights) and weights.numel():
        lowest, highest = (float(extreme) for extreme in weights.detach().aminmax())
        if lowest < 0:
            raise ValueError(
                f"{name} weights reach down to {lowest:g}: weights are 0 or more, and 0 leaves a pair out."
            )
        if not highest < float("inf"):  # also False for NaN
            raise ValueError(f"{name} weights hold {highest:g}: weights are finite numbers.")
