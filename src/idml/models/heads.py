"""From one pooled feature to two embeddings (IDML, TPAMI 2023, section 3.3).

Taken literally, two linear layers beside each other, the uncertainty's scale follows that of the
feature, its gradient competes with the semantic one in the backbone, and training suffers. The
stabilised form normalises what the uncertainty layer sees and keeps most of its gradient from the
backbone. They are one argument apart: `Heads(2048, form=LITERAL)`.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from idml.embedding import Embedding
from idml.errors import unknown_name
from idml.numerics.precision import full_precision, wide

UncertaintyKind = Literal["learned", "random", "common"]
NO_LEVEL_YET = -1.0  # of a common level, before the first batch


@dataclass(frozen=True, kw_only=True)
class UncertaintyForm:
    """How the uncertainty layer is attached.

    normalise: LayerNorm, without parameters, on the feature it sees.
    gradient_scale: how much of its gradient reaches the backbone; above 1 amplifies it.
    starting_level: the mean level on the first training batch; None leaves the layer's default.
    starts_equal: all images start with one uncertainty, of that level: whatever tells them apart is learned.
    kind: "learned", or a control. "random" learns nothing: directions, and lengths from 0 to twice the starting level
    (1 if None), are drawn anew each time; against proxies, which are certain, lengths are all that counts. "common"
    learns one length: all images of a batch have the mean of theirs, and in evaluation that of the last batch.
    """

    normalise: bool
    gradient_scale: float
    starting_level: float | None
    starts_equal: bool = False
    kind: UncertaintyKind = "learned"

    def __post_init__(self):
        if self.kind not in typing.get_args(UncertaintyKind):
            raise unknown_name("kind of uncertainty", self.kind, typing.get_args(UncertaintyKind))
        if not 0 <= self.gradient_scale < float("inf"):
            raise ValueError(f"gradient_scale is {self.gradient_scale}: give 0 or more.")
        if self.starting_level is not None and not 0 < self.starting_level < float("inf"):
            raise ValueError(f"starting_level is {self.starting_level}: give a number above 0, or None.")
        if self.starts_equal and self.starting_level is None:
            raise ValueError("starts_equal needs a starting_level, which all images have: give a number above 0.")


LITERAL = UncertaintyForm(normalise=False, gradient_scale=1.0, starting_level=None)
STABILISED = UncertaintyForm(normalise=True, gradient_scale=0.1, starting_level=0.1)


class UncertaintyHead(nn.Module):
    """A linear layer from the pooled feature to the uncertainty embedding."""

    def __init__(self, features: int, dim: int = 512, *, form: UncertaintyForm = STABILISED):
        super().__init__()
        self.form = form
        self.normalise = _normalisation(features, is_on=form.normalise)
        self.linear = nn.Linear(features, dim)
        self._starts_at = form.starting_level
        if form.starts_equal and form.starting_level is not None and form.kind != "random":
            self._start_equal(form.starting_level)
        if form.kind == "common":
            self.register_buffer("common_level", torch.tensor(NO_LEVEL_YET))

    def forward(self, feature: Float[Tensor, "n f"]) -> Float[Tensor, "n e"]:
        if self.form.kind == "random":
            return self._drawn(feature)
        feature = self.normalise(_scale_gradient(feature, self.form.gradient_scale))
        if self._starts_at is not None and self.training:
            self._start(feature.detach())
        found = self.linear(feature)
        return self._at_common_level(found) if self.form.kind == "common" else found

    def _at_common_level(self, uncertainty: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
        level = torch.linalg.vector_norm(uncertainty, dim=1).mean()
        if self.training:
            self.common_level = level.detach().to(self.common_level.dtype)
        else:
            level = torch.where(self.common_level == NO_LEVEL_YET, level, self.common_level)
        return nn.functional.normalize(uncertainty) * level

    def _drawn(self, feature: Float[Tensor, "n f"]) -> Float[Tensor, "n e"]:
        like = {"device": feature.device, "dtype": feature.dtype}
        direction = nn.functional.normalize(torch.randn(len(feature), self.linear.out_features, **like))
        return direction * torch.rand(len(feature), 1, **like) * 2 * (self.form.starting_level or 1.0)

    @torch.no_grad()
    def _start_equal(self, level: float) -> None:
        """Nothing but a bias of this length, in the direction that it has."""
        self.linear.weight.zero_()
        self.linear.bias.copy_(level * nn.functional.normalize(self.linear.bias, dim=0))
        self._starts_at = None

    @torch.no_grad()
    def _start(self, feature: Float[Tensor, "n f"]) -> None:
        """Scale the layer so that the mean level of these features, on all ranks, is the starting level."""
        if len(feature) == 0:
            return
        with full_precision(feature.device):  # autocast would keep a copy of the weights as they are now
            uncertainty = nn.functional.linear(wide(feature), *(wide(side) for side in self.linear.parameters()))
            level = torch.linalg.vector_norm(uncertainty, dim=1).mean()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(level)
            level /= torch.distributed.get_world_size()
        factor = self._starts_at / level
        factor = torch.where(torch.isfinite(factor) & (factor > 0), factor, 1.0)
        for parameter in self.linear.parameters():
            parameter.mul_(factor)
        self._starts_at = None

    def _load_from_state_dict(self, state_dict, prefix, *arguments, **options):
        """Weights that are loaded keep their scale."""
        if prefix + "linear.weight" in state_dict:
            self._starts_at = None
            if self.form.kind == "common":  # models that were saved before it was a part of them
                state_dict.setdefault(prefix + "common_level", torch.tensor(NO_LEVEL_YET))
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)


class Heads(nn.Module):
    """Semantic and uncertainty layers on one pooled feature; `uncertainty_dim=None` for a plain model.

    semantic_normalise: LayerNorm, without parameters, on the feature of the semantic layer (Teh et al., ECCV 2020).

    >>> heads = Heads(16, dim=8, uncertainty_dim=4)
    >>> embedding = heads(torch.randn(5, 16))
    >>> embedding.semantic.shape, embedding.uncertainty.shape
    (torch.Size([5, 8]), torch.Size([5, 4]))
    >>> round(embedding.level.mean().item(), 4)
    0.1
    """

    def __init__(
        self,
        features: int,
        dim: int = 512,
        uncertainty_dim: int | None = 512,
        *,
        semantic_normalise: bool = False,
        form: UncertaintyForm = STABILISED,
    ):
        super().__init__()
        for name, size in (("features", features), ("dim", dim), ("uncertainty_dim", uncertainty_dim)):
            if size is not None and size < 1:
                raise ValueError(f"{name} is {size}: give at least 1.")
        self.features = features
        self.normalise = _normalisation(features, is_on=semantic_normalise)
        self.semantic = nn.Linear(features, dim)
        self.uncertainty = None if uncertainty_dim is None else UncertaintyHead(features, uncertainty_dim, form=form)

    def forward(self, feature: Float[Tensor, "n f"]) -> Embedding:
        if feature.ndim != 2 or feature.shape[1] != self.features:
            raise ValueError(f"the pooled feature has shape {tuple(feature.shape)}: give (images, {self.features}).")
        semantic = self.semantic(self.normalise(feature))
        return Embedding(semantic, None if self.uncertainty is None else self.uncertainty(feature))


def _normalisation(features: int, *, is_on: bool) -> nn.Module:
    return nn.LayerNorm(features, elementwise_affine=False) if is_on else nn.Identity()


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, scale):
        ctx.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * ctx.scale, None


def _scale_gradient(values: Tensor, scale: float) -> Tensor:
    """The same values, whose gradient arrives scaled; 0 cuts it off."""
    if scale == 1:
        return values
    return values.detach() if scale == 0 else _ScaleGradient.apply(values, scale)  # pyright: ignore[reportReturnType]
