"""Labels as membership matrices (n images × c classes).

A mixed image belongs to several classes at once. Boolean members say to which (label sets, as in
IDML, TPAMI 2023); floating-point members say how much of each (shares, as in Mixup, ICLR 2018).
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor

from idml.errors import values_can_be_read
from idml.numerics.precision import wide

Labels = Integer[Tensor, " n"] | Bool[Tensor, "n c"] | Float[Tensor, "n c"]
OtherLabels = Integer[Tensor, " m"] | Bool[Tensor, "m k"] | Float[Tensor, "m k"]
SHARE_TOLERANCE = 1e-3  # rows of half-precision shares miss 1 by this much


def as_members(labels: Labels | Iterable[Any], num_classes: int) -> Shaped[Tensor, "n c"]:
    """Who belongs to which class: boolean for class numbers and sets, floating-point for shares.

    Class numbers come as integers (n,), sets as a list of collections, shares as a list of
    mappings from class to share; a membership matrix passes through after checks.

    >>> as_members(torch.tensor([0, 2]), 3).int()
    tensor([[1, 0, 0],
            [0, 0, 1]], dtype=torch.int32)
    >>> as_members([{0, 1}, {2}], 3).int()
    tensor([[1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    >>> as_members([{0: 0.25, 1: 0.75}], 3)
    tensor([[0.2500, 0.7500, 0.0000]])
    """
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}: give at least 1.")
    if not isinstance(labels, Tensor):
        labels = _from_python(labels, num_classes)
    check_labels(labels)
    if labels.ndim == 1:
        check_class_numbers(labels, num_classes)
        return labels.long()[:, None] == torch.arange(num_classes, device=labels.device)
    if labels.shape[1] != num_classes:
        raise ValueError(
            f"the membership matrix has {labels.shape[1]} columns for {num_classes} classes: give one column a class."
        )
    if labels.is_floating_point():
        _check_shares(labels)
    return labels


def as_shares(members: Shaped[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Members as shares; a set of several classes has none, and is refused."""
    if members.dtype is torch.bool and values_can_be_read(members) and (members.sum(dim=1) > 1).any():
        row = int((members.sum(dim=1) > 1).nonzero()[0])
        raise ValueError(
            f"row {row} is a set of {int(members[row].sum())} classes, where shares are needed: "
            "give all labels as sets, or all as shares."
        )
    return wide(members)


def check_labels(labels: object) -> None:
    """Raise unless these have the form of class numbers (n,) or a membership matrix (n, c); reads no value."""
    if not isinstance(labels, Tensor):
        raise ValueError(
            f"labels are a {type(labels).__name__}: give a tensor, or make one with idml.labels.as_members."
        )
    is_matrix = labels.ndim == 2 and (labels.dtype is torch.bool or labels.is_floating_point())
    is_numbers = labels.ndim == 1 and not (
        labels.is_floating_point() or labels.is_complex() or labels.dtype is torch.bool
    )
    if not (is_matrix or is_numbers):
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and dtype {labels.dtype}: give integers (n,), "
            "or a boolean or floating-point membership matrix (n, classes)."
        )


def check_class_numbers(labels: Integer[Tensor, " n"], num_classes: int, *, row: int | None = None) -> None:
    """Raise if a label is not the number of a class; on other devices than the CPU, do nothing.

    row: where all these labels stand, if in one row.
    """
    if not values_can_be_read(labels) or len(labels) == 0:
        return
    labels = labels.long()
    lowest, highest = (int(extreme) for extreme in labels.aminmax())
    if lowest < 0 or highest >= num_classes:
        wrong = int(((labels < 0) | (labels >= num_classes)).nonzero()[0])
        where = wrong if row is None else row
        raise ValueError(
            f"label {int(labels[wrong])} (row {where}) is outside the {num_classes} classes 0 to {num_classes - 1}: "
            "renumber the labels, or raise num_classes."
        )


def _check_shares(shares: Float[Tensor, "n c"]) -> None:
    if not values_can_be_read(shares) or shares.numel() == 0:
        return
    total = shares.sum(dim=1)
    is_good = (shares >= 0).all(dim=1) & (total <= 1 + SHARE_TOLERANCE)  # False for NaN as well
    if not is_good.all():
        row = int(is_good.logical_not().nonzero()[0])
        raise ValueError(
            f"the shares of row {row} are {shares[row].tolist()[:8]}, sum {float(total[row]):.4g}: "
            "shares are 0 or more and sum to at most 1."
        )


def _from_python(labels: object, num_classes: int) -> Tensor:
    """Class numbers, sets or shares from lists and arrays."""
    if hasattr(labels, "__array__"):
        return torch.as_tensor(labels)
    if not isinstance(labels, Iterable):
        raise ValueError(f"labels are a {type(labels).__name__}: give a tensor, or a list of numbers, sets or shares.")
    rows = list(labels)
    if all(hasattr(label, "__index__") for label in rows):
        return torch.tensor([operator.index(label) for label in rows], dtype=torch.long)
    is_shares = isinstance(rows[0], Mapping)
    members = torch.zeros(len(rows), num_classes, dtype=torch.float32 if is_shares else torch.bool)
    for row, label in enumerate(rows):
        if isinstance(label, Mapping) != is_shares:
            raise ValueError(f"label {label!r} (row {row}) mixes sets with shares: give all rows in one form.")
        try:
            classes = torch.tensor([operator.index(one) for one in label], dtype=torch.long)
            amounts = [float(share) for share in label.values()] if is_shares else True
        except (TypeError, ValueError):
            raise ValueError(
                f"label {label!r} (row {row}) is neither a class number, a set of class numbers, nor their shares."
            ) from None
        check_class_numbers(classes, num_classes, row=row)
        members[row, classes] = torch.tensor(amounts)
    return members
