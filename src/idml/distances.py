"""How far two images are apart, with or without regard to their ambiguity (IDML, TPAMI 2023, section 3.2).

Smaller is closer, always. Distances are computed in float32 or better with autocast off, on
semantic embeddings scaled to length 1. A zero semantic vector has no direction: it stays zero, at
Euclidean distance 1 and cosine distance 1 from every other image, and receives no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from idml.embedding import Embedding, check_embedding
from idml.errors import check_lengths, unknown_name
from idml.numerics.pairwise import half_squared_chords, half_squared_sums, lengths
from idml.numerics.precision import full_precision, wide
from idml.numerics.products import row_lengths, steady_directions, steady_sum
from idml.numerics.softening import soften, softened

BASES = ("euclidean", "cosine")
PAIR_UNCERTAINTIES = ("norm_of_sum", "sum_of_norms")
AMBIGUOUS = ("similar", "dissimilar")


@dataclass(frozen=True)
class Euclidean:
    """α = ‖ŝₐ − ŝ_b‖₂.

    >>> a = Embedding(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> Euclidean()(a, a)
    tensor([[0.0000, 1.4142],
            [1.4142, 0.0000]])
    """

    def __call__(self, a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
        check_embedding(a)
        with full_precision(a.device):
            return lengths(_chords(a, b))


@dataclass(frozen=True)
class Cosine:
    """1 − C, where C is the cosine of the angle between two semantic embeddings."""

    def __call__(self, a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
        check_embedding(a)
        with full_precision(a.device):
            chords, missing = _chords_and_missing(a, b, cosine=True)
            return chords if missing is None else chords + missing


class Parts(NamedTuple):
    """What introspective distances are made of: ½α², what is missing from it to 1 − C, and β + γ."""

    chords: Float[Tensor, "n m"]
    missing: Float[Tensor, "n m"] | None
    doubt: Float[Tensor, "#n #m"]

    def without_semantic_gradient(self) -> Parts:
        return self._replace(chords=self.chords.detach())

    def without_uncertainty_gradient(self) -> Parts:
        return self._replace(doubt=self.doubt.detach())


@dataclass(frozen=True, kw_only=True)
class Introspective:
    """The plain distance, softened where the pair is too ambiguous to judge.

    With α = ‖ŝₐ − ŝ_b‖, β = ‖uₐ + u_b‖ and the relative uncertainty β̃ = (β + γ)/α, the distance is
    α·exp(−β̃/τ) on the Euclidean base and (1 − C)·exp(−β̃/τ) on the cosine base. At u = 0 and γ = 0
    it is the plain distance; where α = 0 it is 0, with gradient 0.

    base: None takes the base of the loss inside `Objective`, and "euclidean" elsewhere.
    tau: how slowly uncertainty softens. gamma: doubt that remains without any uncertainty.
    pair_uncertainty: "sum_of_norms" is the ablation β = ‖uₐ‖ + ‖u_b‖.
    ambiguous: "dissimilar" is the ablation C·exp(−β̃/τ), on the cosine base.
    smoothing: ε in √(‖·‖² + ε²) − ε, which replaces every norm in β.
    strict: the plain distance where α > β + γ, else 0.
    """

    base: Literal["euclidean", "cosine"] | None = field(default=None, kw_only=False)
    tau: float = 5.0
    gamma: float = 0.0
    pair_uncertainty: Literal["norm_of_sum", "sum_of_norms"] = "norm_of_sum"
    ambiguous: Literal["similar", "dissimilar"] = "similar"
    smoothing: float = 0.0
    strict: bool = False

    def __new__(cls, *_base: Any, **options: Any) -> Introspective:
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise unknown_name("option of Introspective", name, known)
        return super().__new__(cls)

    def __post_init__(self):
        if self.base is not None and self.base not in BASES:
            raise unknown_name("base", self.base, BASES)
        if self.pair_uncertainty not in PAIR_UNCERTAINTIES:
            raise unknown_name("pair_uncertainty", self.pair_uncertainty, PAIR_UNCERTAINTIES)
        if self.ambiguous not in AMBIGUOUS:
            raise unknown_name("ambiguous", self.ambiguous, AMBIGUOUS)
        if not (_is_number(self.tau) and self.tau > 0):
            raise ValueError(f"tau is {self.tau!r}: give a number above 0 (the paper uses 5).")
        for name in ("gamma", "smoothing"):
            if not (_is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} is {getattr(self, name)!r}: give 0 or more.")
        if self.ambiguous == "dissimilar" and self.base == "euclidean":
            raise ValueError("ambiguous='dissimilar' is defined on similarities: use base='cosine'.")
        if self.ambiguous == "dissimilar" and self.strict:
            raise ValueError("ambiguous='dissimilar' has no strict form: use one of the two.")

    def with_base(self, base: Literal["euclidean", "cosine"]) -> Introspective:
        """This distance on the given base, unless it has chosen its own."""
        return self if self.base is not None else replace(self, base=base)

    def __call__(self, a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
        return self.of_parts(self.parts(a, b))

    def parts(self, a: Embedding, b: Embedding) -> Parts:
        """What the distances of these images are made of, for those who need more than one kind of distance."""
        self._check_base()
        check_embedding(a)
        with full_precision(a.device):
            return Parts(*_chords_and_missing(a, b, cosine=self._on_cosine), self._doubt(a, b))

    def of_parts(self, parts: Parts) -> Float[Tensor, "n m"]:
        with full_precision(parts.chords.device):
            return self._apply(*parts)

    def plain_of_parts(self, parts: Parts) -> Float[Tensor, "n m"]:
        """The distances without uncertainty, on the same base; they have no gradient."""
        chords = parts.chords.detach()
        if not self._on_cosine:
            return lengths(chords.clone())
        return chords if parts.missing is None else chords + parts.missing

    def about_mean(self, parts: Parts, mean: Float[Tensor, ""]) -> Float[Tensor, "n m"]:
        """plain · `weight_about_mean`. Dissimilar and strict have no such form."""
        if not self.is_main_form:
            raise ValueError("about_mean is defined for the 'similar', not strict, distance.")
        with full_precision(parts.chords.device):
            alpha = lengths(parts.chords.clone())
            gap = parts.chords if parts.missing is None else parts.chords + parts.missing
            return (gap if self._on_cosine else alpha) * self._weight_about_mean(parts, alpha, mean)

    def weight_about_mean(self, parts: Parts, mean: Float[Tensor, ""]) -> Float[Tensor, "n m"]:
        """exp(−γ/(τ·α)) · exp(−(β − β̄)/(τ·α + β̄)), in the place of e^{−β̃/τ}; the second factor is at most e.

        mean: β̄ + γ, of some pairs. β̄ has no gradient below the line, so that nothing is gained by adding to all.
        """
        with full_precision(parts.chords.device):
            return self._weight_about_mean(parts, lengths(parts.chords.clone()), mean)

    def of_rows(self, a: Embedding, b: Embedding) -> Float[Tensor, " n"]:
        """The distance of each image to the one beside it, without the others; the same wherever they stand."""
        self._check_base()
        if len(a) != len(b):
            raise ValueError(f"there are {len(a)} images beside {len(b)}: compare as many with as many.")
        with full_precision(a.device):
            x, y = (steady_directions(rows.semantic) for rows in _semantics(a, b))
            chords = steady_sum((x - y).square()) / 2
            missing = None
            if self._on_cosine:
                missing = ((x == 0).all(dim=1, keepdim=True).to(x.dtype) + (y == 0).all(dim=1, keepdim=True)) / 2
            u_a, u_b = _uncertainties(a, b)
            sides = [_sum(u_a, u_b)] if self.pair_uncertainty == "norm_of_sum" else [u_a, u_b]
            norms = [lengths(steady_sum(side.square()) / 2, self.smoothing) for side in sides]
            return self._apply(chords, missing, sum(norms, start=torch.zeros_like(chords)) + self.gamma)[:, 0]

    def relative_uncertainty(self, a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
        """β̃ = (β + γ)/α: above 1 the pair is more ambiguous than it is different.

        Where α = 0 it is infinite, or 0 if β + γ = 0 as well.
        """
        with full_precision(a.device):
            alpha, doubt = lengths(_chords(a, b)), self._doubt(a, b)
            undefined = (alpha == 0) & (doubt == 0)
            return doubt / alpha.masked_fill(undefined, 1)

    def gradient_weight(self, a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
        """How much of the plain distance's gradient is left, from 1 (certain) to 0.

        With x = β̃/τ: ∂D/∂α = e^{−x}(1 + x) on the Euclidean base, and the derivative with respect
        to 1 − C, e^{−x}(1 + x/2), on the cosine base. Dissimilar and strict have none.
        """
        if not self.is_main_form:
            raise ValueError("gradient_weight is defined for the 'similar', not strict, distance.")
        x = self.relative_uncertainty(a, b) / self.tau
        return torch.where(torch.isinf(x), 0.0, (-x).exp() * (1 + (x / 2 if self._on_cosine else x)))

    @property
    def is_main_form(self) -> bool:
        """Whether it is the paper's distance, neither of the variants in its ablation."""
        return self.ambiguous == "similar" and not self.strict

    @property
    def _on_cosine(self) -> bool:
        return self.base == "cosine"

    def _check_base(self) -> None:
        if self.ambiguous == "dissimilar" and not self._on_cosine:
            raise ValueError("ambiguous='dissimilar' is defined on similarities: use base='cosine'.")

    def _apply(
        self,
        chords: Float[Tensor, "n m"],
        missing: Float[Tensor, "n m"] | None,
        doubt: Float[Tensor, "#n #m"],
    ) -> Float[Tensor, "n m"]:
        if self.is_main_form:
            return soften(chords, doubt, missing, tau=self.tau, cosine=self._on_cosine)
        gap = chords if missing is None else chords + missing
        if self.ambiguous == "dissimilar":
            return 1 - (1 - gap) * softened(chords, doubt, tau=self.tau)
        is_clear = lengths(chords.detach().clone()) > doubt.detach()
        return (gap if self._on_cosine else lengths(chords.clone())) * is_clear

    def _weight_about_mean(self, parts: Parts, alpha: Tensor, mean: Tensor) -> Float[Tensor, "n m"]:
        least = math.sqrt(torch.finfo(alpha.dtype).tiny)
        weight = torch.exp((mean - parts.doubt) / (self.tau * alpha + mean.detach() - self.gamma).clamp(min=least))
        if not self.gamma:
            return weight
        return weight * softened(parts.chords, mean.new_full((1, 1), self.gamma), tau=self.tau)

    def _doubt(self, a: Embedding, b: Embedding) -> Float[Tensor, "#n #m"]:
        """β + γ; of shape (n, 1) or (1, m) where only one side is uncertain."""
        u_a, u_b = _uncertainties(a, b)
        if u_a.shape[1] == 0 or u_b.shape[1] == 0 or self.pair_uncertainty == "sum_of_norms":
            level_a, level_b = self._level(u_a), self._level(u_b).T
            beta = level_a if u_b.shape[1] == 0 else level_b if u_a.shape[1] == 0 else level_a + level_b
        else:
            beta = lengths(half_squared_sums(u_a, None if b is a else u_b), self.smoothing)
        return beta + self.gamma if self.gamma else beta

    def _level(self, uncertainty: Float[Tensor, "n e"]) -> Float[Tensor, "n 1"]:
        return lengths(uncertainty.square().sum(dim=1, keepdim=True) / 2, self.smoothing)


Distance = Euclidean | Cosine | Introspective


def _chords(a: Embedding, b: Embedding) -> Float[Tensor, "n m"]:
    """½‖ŝₐ − ŝ_b‖², which is 1 − C of vectors that have a direction."""
    return _chords_and_missing(a, b, cosine=False)[0]


def _chords_and_missing(
    a: Embedding, b: Embedding, *, cosine: bool
) -> tuple[Float[Tensor, "n m"], Float[Tensor, "n m"] | None]:
    """½‖ŝₐ − ŝ_b‖², and on the cosine base what is missing from it to 1 − C.

    Missing is ½ for each side that is zero, or None if there is none.
    """
    x, y = _semantics(a, b)
    may_be_zero = x.may_be_zero or y.may_be_zero
    chords = half_squared_chords(
        x.semantic, None if b is a else y.semantic, x.length, y.length, may_be_zero=may_be_zero
    )
    if not (cosine and may_be_zero):
        return chords, None
    return chords, ((x.length == 0)[:, None].to(chords.dtype) + (y.length == 0)) / 2


class _Rows(NamedTuple):
    semantic: Float[Tensor, "n d"]
    length: Float[Tensor, " n"]
    may_be_zero: bool


def _semantics(a: Embedding, b: Embedding) -> tuple[_Rows, _Rows]:
    """Both sides' semantic embeddings in one precision, their lengths, and whether some may be 0; checked."""
    check_embedding(a)
    check_embedding(b)
    if a.semantic.shape[1] != b.semantic.shape[1]:
        raise ValueError(
            f"semantic embeddings have {a.semantic.shape[1]} and {b.semantic.shape[1]} dimensions: compare equal ones."
        )
    if a.device != b.device:
        raise ValueError(f"embeddings are on {a.device} and {b.device}: move one of them.")
    precision = torch.promote_types(wide(a.semantic).dtype, wide(b.semantic).dtype)
    first = _with_lengths(a, precision)
    return first, first if b is a else _with_lengths(b, precision)


def _with_lengths(embedding: Embedding, precision: torch.dtype) -> _Rows:
    semantic = embedding.semantic.to(precision)
    length = row_lengths(semantic.detach())
    return _Rows(semantic, length, check_lengths(length, semantic, name="semantic"))


def _uncertainties(a: Embedding, b: Embedding) -> tuple[Float[Tensor, "n e"], Float[Tensor, "m f"]]:
    """Both sides' uncertainty, checked, in one precision; of width 0 for a certain side."""
    u_a = _uncertainty(a, "first")
    if b is a:
        return u_a, u_a
    u_b = _uncertainty(b, "second")
    if u_a.shape[1] and u_b.shape[1] and u_a.shape[1] != u_b.shape[1]:
        raise ValueError(
            f"uncertainty embeddings have {u_a.shape[1]} and {u_b.shape[1]} dimensions: compare equal ones."
        )
    precision = torch.promote_types(u_a.dtype, u_b.dtype)
    return u_a.to(precision), u_b.to(precision)


def _uncertainty(embedding: Embedding, which: str) -> Float[Tensor, "n e"]:
    if embedding.uncertainty is None:
        raise ValueError(
            f"the {which} embedding has no uncertainty, which the introspective distance needs: use a model with "
            "an uncertainty head, Embedding.certain(...) for certain images, or a plain distance."
        )
    uncertainty = wide(embedding.uncertainty)
    check_lengths(row_lengths(uncertainty.detach()), uncertainty, name="uncertainty")
    return uncertainty


def _sum(u_a: Float[Tensor, "n e"], u_b: Float[Tensor, "n f"]) -> Float[Tensor, "n g"]:
    """uₐ + u_b, where a side of width 0 is zero."""
    return u_a if u_b.shape[1] == 0 else u_b if u_a.shape[1] == 0 else u_a + u_b


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
