"""An image as the model sees it: what it shows, and how ambiguous it is (IDML, TPAMI 2023)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from idml.numerics.precision import wide


@dataclass(frozen=True, eq=False)
class Embedding:
    """Semantic embeddings s, and uncertainty embeddings u beside them, one row an image.

    Plain (not introspective) models have `uncertainty=None`. An uncertainty of width 0 says
    "known to be certain" and may be compared with any other width: see `certain`.

    >>> images = Embedding(torch.eye(3), torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]))
    >>> images.level
    tensor([5., 0., 1.])
    >>> len(images[1:])
    2
    """

    semantic: Float[Tensor, "n d"]
    uncertainty: Float[Tensor, "n e"] | None = None

    def __post_init__(self):
        _check_matrix("semantic", self.semantic)
        if self.semantic.shape[1] == 0:
            raise ValueError("semantic has shape (n, 0): give it at least one dimension.")
        if self.uncertainty is None:
            return
        _check_matrix("uncertainty", self.uncertainty)
        if self.uncertainty.shape[0] != self.semantic.shape[0]:  # `len` would fix the number of images in an export
            raise ValueError(
                f"semantic has {len(self.semantic)} rows and uncertainty {len(self.uncertainty)}: "
                "each image needs one of each."
            )
        if self.uncertainty.device != self.semantic.device:
            raise ValueError(
                f"semantic is on {self.semantic.device} and uncertainty on {self.uncertainty.device}: move one of them."
            )

    @classmethod
    def certain(cls, semantic: Float[Tensor, "n d"]) -> Embedding:
        """Embeddings without any doubt, u = 0: class proxies, for one."""
        return cls(semantic, semantic.new_zeros(len(semantic), 0))

    @classmethod
    def cat(cls, parts: Sequence[Embedding]) -> Embedding:
        """Stack several embeddings, in order. All of them have uncertainty, or none has; certain ones get zeros."""
        if not parts:
            raise ValueError("Embedding.cat needs at least one embedding, got an empty list.")
        if len({part.semantic.shape[1] for part in parts}) > 1:
            widths = sorted({part.semantic.shape[1] for part in parts})
            raise ValueError(f"semantic embeddings have {widths} dimensions: stack equal ones.")
        semantic = torch.cat([part.semantic for part in parts])
        uncertainty = [part.uncertainty for part in parts if part.uncertainty is not None]
        if not uncertainty:
            return cls(semantic)
        if len(uncertainty) != len(parts):
            raise ValueError(
                f"{len(uncertainty)} of {len(parts)} embeddings have uncertainty: give it to all of them, or to none."
            )
        widths = sorted({side.shape[1] for side in uncertainty} - {0})
        if len(widths) > 1:
            raise ValueError(f"uncertainty embeddings have {widths} dimensions: stack equal ones.")
        width = widths[0] if widths else 0
        return cls(
            semantic, torch.cat([side if side.shape[1] else side.new_zeros(len(side), width) for side in uncertainty])
        )

    @property
    def level(self) -> Float[Tensor, " n"]:
        """How ambiguous each image is: the length of its uncertainty embedding."""
        if self.uncertainty is None:
            raise ValueError("this embedding has no uncertainty, so no level: use a model with an uncertainty head.")
        return torch.linalg.vector_norm(wide(self.uncertainty), dim=1)

    @property
    def device(self) -> torch.device:
        return self.semantic.device

    def __len__(self) -> int:
        return len(self.semantic)

    def __getitem__(self, rows: SupportsIndex | slice | Sequence[int] | Tensor) -> Embedding:
        """The chosen rows; a single index gives an embedding of one row."""
        if hasattr(rows, "__index__") and not (isinstance(rows, Tensor) and rows.ndim):
            rows = operator.index(rows)  # pyright: ignore[reportArgumentType]
            if not -len(self) <= rows < len(self):  # also what ends a `for` loop over the rows
                raise IndexError(f"row {rows} is outside this embedding of {len(self)} images.")
            rows = [rows]
        return Embedding(self.semantic[rows], None if self.uncertainty is None else self.uncertainty[rows])


def _check_matrix(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}: give a torch tensor of shape (images, dimensions).")
    if value.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(value.shape)}: give (images, dimensions).")
    if not value.is_floating_point():
        raise ValueError(f"{name} has dtype {value.dtype}: convert it to a floating-point type.")


def check_embedding(value: object) -> None:
    """Raise unless this is an Embedding: a bare tensor is an easy mistake."""
    if not isinstance(value, Embedding):
        raise ValueError(f"a {type(value).__name__} is no Embedding: wrap it, Embedding(semantic, uncertainty).")
