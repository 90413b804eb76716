"""The sentences users read when something is wrong: the value, then the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor

NEAREST = 3  # names to suggest
MANY = 12  # names, more than anybody reads in an error


def unknown_name(kind: str, given: object, known: Iterable[str]) -> ValueError:
    """The error for a misspelt name: lists the known ones and suggests the nearest.

    Of many names only the few nearest ones are told, if some are near.

    >>> print(unknown_name("loss", "triplets", ["triplet", "margin"]))
    unknown loss 'triplets': did you mean 'triplet'? Known: margin, triplet.
    """
    names = sorted(known)
    begun = [name for name in names if given and name.startswith(str(given))]
    nearest = list(dict.fromkeys([*begun, *get_close_matches(str(given), names, n=NEAREST, cutoff=0.5)]))[:NEAREST]
    hint = f" did you mean {nearest[0]!r}?" if nearest else ""
    if nearest and len(names) > MANY:
        others = f" Or {' or '.join(map(repr, nearest[1:]))}?" if nearest[1:] else ""
        return ValueError(f"unknown {kind} {given!r}:{hint}{others}")
    listed = ", ".join(names) if names else "none"
    return ValueError(f"unknown {kind} {given!r}:{hint} Known: {listed}.")


def first_line(error: Exception) -> str:
    """What other libraries tell at length, for a place inside our own sentence.

    >>> first_line(OSError("no such host.\\nThen a long story."))
    'no such host'
    """
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is why: on a GPU, in Python, or as a CPU tells it, in a RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


class NotFiniteError(ValueError):
    """A row without a finite length: of a bad input, or of a model that diverged."""


def values_can_be_read(tensor: Tensor) -> bool:
    """Whether looking at a value is free: on the CPU, and not while a graph is being compiled."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_lengths(length: Tensor, rows: Tensor, *, name: str) -> bool:
    """Raise if the length of a row is not finite; whether some row may have length 0.

    On other devices than the CPU this looks at nothing, for it would wait for the device, and says True.
    """
    if not values_can_be_read(length) or length.numel() == 0:
        return length.numel() > 0
    lowest, highest = (float(extreme) for extreme in length.aminmax())
    if highest < float("inf"):  # False for NaN
        return lowest == 0
    row = int(torch.isfinite(length).logical_not().nonzero()[0])
    if torch.isfinite(rows[row]).all():
        raise NotFiniteError(
            f"{name} row {row} is too long for {rows.dtype}: its squared length overflows. Scale it down."
        )
    raise NotFiniteError(
        f"{name} row {row} holds NaN or infinity. Look for a diverged model (lower the learning rate) or a bad input."
    )
