"""Which images may be used for what: training, choosing (validation), and the one final score (test).

In metric learning, test classes are classes that training never saw. Validation follows the same
rule: it holds out whole classes of the training split. Test images are scored once, at the end.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

TRAIN, TEST, QUERY, GALLERY = "train", "test", "query", "gallery"
SPLITS = (TRAIN, TEST, QUERY, GALLERY)
SCORED_ONCE = (TEST, QUERY, GALLERY)
FEWEST_CLASSES = 2  # of each side: one class alone cannot be told from another
Half = Literal["first half", "second half"]


class Fold(NamedTuple):
    """One of so many parts, in the order of their numbers."""

    part: int
    parts: int


def check_validation_split(name: str) -> None:
    """Raise if models would be chosen on images that are meant for their final score."""
    if name in SCORED_ONCE:
        raise ValueError(
            f"choosing a model on the {name!r} split would make its final score too good: those classes are scored "
            "once, at the end. Choose on training classes that are held out, for instance a share of 0.1."
        )


def held_out_classes(
    rows: Int[Tensor, " n"], labels: Int[Tensor, " n"], *, share: float | Half | Fold = 0.1, seed: int = 0
) -> tuple[Int[Tensor, " training"], Int[Tensor, " validation"]]:
    """The rows of the classes that train, and of those held out for validation; no class is on both sides.

    share: of the classes, drawn by the seed, at least two; or the first or second half of the class numbers; or, of so
    many equal parts of them, the one with that number.

    >>> rows, labels = torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 3])
    >>> held_out_classes(rows, labels, share="second half")
    (tensor([0, 1, 2, 3]), tensor([4, 5]))
    >>> held_out_classes(rows, labels, share=Fold(part=0, parts=2))
    (tensor([4, 5]), tensor([0, 1, 2, 3]))
    """
    if len(rows) != len(labels):
        raise ValueError(f"there are {len(rows)} rows and {len(labels)} labels: give the labels of those rows.")
    classes = labels.unique()
    number = len(classes)
    if number < 2 * FEWEST_CLASSES:
        raise ValueError(
            f"{number} classes cannot be parted in two, with {FEWEST_CLASSES} or more on each side: "
            f"it takes {2 * FEWEST_CLASSES} or more."
        )
    if isinstance(share, Fold):
        held_out = _part(classes, share)
    elif share == "first half":
        held_out = classes[: number // 2]
    elif share == "second half":
        held_out = classes[number - number // 2 :]
    elif isinstance(share, str) or not 0 < share < 1:
        raise ValueError(f"share is {share!r}: give a number between 0 and 1, 'first half' or 'second half'.")
    else:
        wanted = min(max(round(share * number), FEWEST_CLASSES), number - FEWEST_CLASSES)
        held_out = classes[torch.randperm(number, generator=torch.Generator().manual_seed(seed))[:wanted]]
    is_held_out = torch.isin(labels, held_out)
    return rows[~is_held_out], rows[is_held_out]


def _part(classes: Int[Tensor, " c"], fold: Fold) -> Int[Tensor, " held_out"]:
    most = len(classes) // FEWEST_CLASSES
    if not 2 <= fold.parts <= most:
        raise ValueError(
            f"{len(classes)} classes cannot be parted in {fold.parts}, with {FEWEST_CLASSES} or more in each part: "
            + ("give 2 folds." if most == 2 else f"give at least 2 folds, and at most {most}.")
        )
    return classes.tensor_split(fold.parts)[fold.part % fold.parts]
