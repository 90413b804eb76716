"""Learned class representatives (Movshovitz-Attias et al., ICCV 2017)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from idml.embedding import Embedding


class Proxies(nn.Module):
    """One semantic embedding a class, certain (u = 0) unless its uncertainty is learned too.

    >>> Proxies(3, dim=4)().level
    tensor([0., 0., 0.])
    """

    def __init__(self, num_classes: int, dim: int, *, uncertainty_dim: int | None = None, starting_level: float = 0.1):
        """uncertainty_dim: learn an uncertainty of this many dimensions, of about `starting_level` at first."""
        super().__init__()
        for name, size in (("num_classes", num_classes), ("dim", dim), ("uncertainty_dim", uncertainty_dim)):
            if size is not None and size < 1:
                raise ValueError(f"{name} is {size}: give at least 1.")
        if not 0 <= starting_level < float("inf"):
            raise ValueError(f"starting_level is {starting_level}: give 0 or more.")
        self.semantic = nn.Parameter(torch.empty(num_classes, dim))
        self.uncertainty = None if uncertainty_dim is None else nn.Parameter(torch.empty(num_classes, uncertainty_dim))
        nn.init.kaiming_normal_(self.semantic, mode="fan_out")
        if self.uncertainty is not None:
            nn.init.normal_(self.uncertainty, std=starting_level / self.uncertainty.shape[1] ** 0.5)

    def forward(self) -> Embedding:
        if self.uncertainty is None:
            return Embedding.certain(self.semantic)
        return Embedding(self.semantic, self.uncertainty)

    def mixed(self, own: Int[Tensor, " n"], other: Int[Tensor, " n"], share: float | Float[Tensor, ""]) -> Embedding:
        """Representatives of classes that lie between two, `share` of the first (Gu et al., AAAI 2021)."""
        directions = normalize(self.semantic, dim=1)
        semantic = directions[other].lerp(directions[own], share)
        if self.uncertainty is None:
            return Embedding.certain(semantic)
        return Embedding(semantic, self.uncertainty[other].lerp(self.uncertainty[own], share))
