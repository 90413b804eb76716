"""What people have at hand, as embeddings and labels: tensors, numpy arrays, memory-mapped files, names of classes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from idml.embedding import Embedding
from idml.errors import check_lengths


def as_embedding(value: Any, *, name: str = "embedding") -> Embedding:
    """An Embedding from itself, from semantic rows alone, or from a pair of semantic and uncertainty rows.

    Rows are tensors or numpy arrays of any floating-point type; memory-mapped arrays are not read into memory.
    """
    if isinstance(value, Embedding):
        return value
    if isinstance(value, tuple | list) and len(value) == 2 and all(hasattr(side, "shape") for side in value):
        semantic, uncertainty = (as_tensor(side, name=name) for side in value)
        return Embedding(semantic, uncertainty)
    if not isinstance(value, Tensor | np.ndarray):
        raise ValueError(f"{name} is a {type(value).__name__}: give an Embedding, or a tensor or array (images, dims).")
    return Embedding(as_tensor(value, name=name))


def as_tensor(value: Tensor | np.ndarray, *, name: str) -> Tensor:
    """The array's own memory as a tensor."""
    if isinstance(value, Tensor):
        return value
    if not np.issubdtype(value.dtype, np.floating):
        raise ValueError(f"{name} has dtype {value.dtype}: convert it to a floating-point type.")
    if value.dtype.itemsize > np.dtype(np.float64).itemsize:
        value = value.astype(np.float64)
    if not value.dtype.isnative or any(stride < 0 for stride in value.strides):
        value = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing here writes
        return torch.from_numpy(value)


def check_uncertainty(embedding: Embedding, *, name: str) -> None:
    """Raise, naming the row, if an uncertainty is not finite."""
    if embedding.uncertainty is not None:
        check_lengths(embedding.level.cpu(), embedding.uncertainty, name=f"{name} uncertainty")


def as_class_numbers(
    labels: Any, gallery_labels: Any = None
) -> tuple[Int[Tensor, " q"], Int[Tensor, " m"] | None, list[str]]:
    """Labels, of any integers or names, as class numbers from 0, and what the classes are called.

    >>> as_class_numbers(["wren", "gull", "wren"])
    (tensor([1, 0, 1]), None, ['gull', 'wren'])
    """
    sides = [_as_array(labels, "labels")]
    if gallery_labels is not None:
        sides.append(_as_array(gallery_labels, "gallery labels"))
    if len({side.dtype.kind in "US" for side in sides}) > 1:
        raise ValueError("labels are names on one side and numbers on the other: give the same on both.")
    sides = [side.astype(np.int64) if side.dtype.kind == "b" else side for side in sides]
    names, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    numbers = torch.from_numpy(numbers.astype(np.int64))
    of_gallery = None if gallery_labels is None else numbers[len(sides[0]) :]
    return numbers[: len(sides[0])], of_gallery, [str(name) for name in names]


def _as_array(labels: Tensor | np.ndarray | Sequence[int] | Sequence[str], name: str) -> np.ndarray:
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "biuUS":
        raise ValueError(
            f"{name} have shape {array.shape} and dtype {array.dtype}: give one class number, or name, an image."
        )
    return array
