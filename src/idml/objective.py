"""A training objective: distance + proxies + miner + loss, by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from idml.distances import Cosine, Distance, Euclidean, Introspective
from idml.embedding import Embedding, check_embedding
from idml.errors import unknown_name
from idml.labels import Labels, as_members, check_class_numbers, check_labels
from idml.losses import LOSSES
from idml.numerics.precision import full_precision
from idml.pairs import Pairs, pairs_between, pairs_with_classes, pairs_within
from idml.proxies import Proxies
from idml.scales import SCALES, TEACHERS, Compared, Term

SHRUNKEN, CENTRED = "shrunken", "centred"  # scales: distances that are left alone, and those about a mean uncertainty
EVERY_PAIR = "all"  # teaches uncertainty
EXPONENTS = ("alpha", "beta", "scale")  # options of losses; below 0 they would turn a loss upside down
PLAIN_DISTANCES = {"euclidean": Euclidean(), "cosine": Cosine()}


class Objective(nn.Module):
    """What a model is trained on: `objective(embedding, labels)` is a scalar to minimise.

    loss: a key of `LOSSES`. distance: None for the loss's plain default; `Introspective()` takes
    the loss's base. num_classes and dim: needed by losses with proxies, unused by the others.
    miner_options: keywords of the loss's default miner, which looks at the loss's distances; that of the margin loss
    at what introspective ones are without uncertainty. learn_proxy_uncertainty: give proxies an
    uncertainty embedding of `uncertainty_dim` dimensions, instead of u = 0. distance_scale: "relative" brings
    introspective distances to the scale of plain ones, "centred" has them about their mean uncertainty (`idml.scales`);
    "shrunken" leaves them as they are. taught_by: "positives" lets uncertainty learn from pairs that are more positive
    than negative alone, for centred distances: in others nothing holds it back.
    loss_options: keywords of the loss function, such as `margin=0.2`.

    >>> objective = Objective("proxy_anchor", Introspective(tau=3.0), num_classes=4, dim=8)
    >>> embedding = Embedding(torch.randn(6, 8), torch.randn(6, 5))
    >>> objective(embedding, torch.tensor([0, 1, 2, 3, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        loss: str,
        distance: Distance | Callable[[Embedding, Embedding], Tensor] | None = None,
        num_classes: int | None = None,
        dim: int | None = None,
        uncertainty_dim: int | None = None,
        *,
        learn_proxy_uncertainty: bool = False,
        miner_options: Mapping[str, Any] | None = None,
        distance_scale: str = SHRUNKEN,
        taught_by: str = EVERY_PAIR,
        **loss_options: Any,
    ):
        super().__init__()
        if loss not in LOSSES:
            raise unknown_name("loss", loss, LOSSES)
        self.loss = loss
        self._loss = LOSSES[loss]
        self.loss_options = loss_options
        self.miner_options = dict(miner_options or {})
        _check_options(f"option of the {loss} loss", self.loss_options, self._loss.function)
        _check_options(f"miner option of the {loss} loss", self.miner_options, self._loss.miner)
        self.distance = _resolve_distance(distance, self._loss.base)
        if distance_scale not in SCALES:
            raise unknown_name("distance_scale", distance_scale, SCALES)
        if distance_scale == CENTRED and isinstance(self.distance, Introspective) and not self.distance.is_main_form:
            raise ValueError(
                "distance_scale='centred' is defined for the 'similar', not strict, distance: take another scale."
            )
        if taught_by not in TEACHERS:
            raise unknown_name("taught_by", taught_by, TEACHERS)
        chosen = (distance_scale, taught_by)
        self.distance_scale, self.taught_by = chosen if self.is_introspective else (SHRUNKEN, EVERY_PAIR)
        self.num_classes = num_classes
        self.proxies: Proxies | None = None
        if self._loss.proxies:
            if num_classes is None or dim is None:
                raise ValueError(
                    f"the {loss} loss has a proxy for each class: give num_classes and dim (the semantic dimension)."
                )
            if learn_proxy_uncertainty and uncertainty_dim is None:
                raise ValueError("learn_proxy_uncertainty needs uncertainty_dim, that of the images.")
            self.proxies = Proxies(
                num_classes, dim, uncertainty_dim=uncertainty_dim if learn_proxy_uncertainty else None
            )
        elif learn_proxy_uncertainty:
            raise ValueError(f"the {loss} loss has no proxies whose uncertainty could be learned.")

    def forward(
        self,
        embedding: Embedding,
        labels: Labels,
        other_labels: Labels | None = None,
        share: float | Float[Tensor, ""] | None = None,
        *,
        label_sets: Labels | None = None,
        candidates: tuple[Embedding, Labels] | None = None,
    ) -> Float[Tensor, ""]:
        """J(labels), or for mixed images share·J(labels) + (1 − share)·J(other_labels), one distance matrix.

        label_sets: of mixed images; pairs whose sets meet are then negative in neither J.
        candidates: compare with these images instead of among themselves, where the loss has no proxies.
        """
        _check_shares_of_the_loss(other_labels, share)
        terms = self._terms(embedding, labels, other_labels, share, label_sets, candidates)
        return self._sum(terms, dim=embedding.semantic.shape[1])

    def with_mixed(
        self,
        original: Embedding,
        labels: Labels,
        mixed: Embedding,
        other_labels: Labels,
        share: float | Float[Tensor, ""],
        *,
        first_labels: Labels | None = None,
        weight: float = 1.0,
        label_sets: Labels | None = None,
        against_originals: bool = False,
        teaches_uncertainty_alone: bool = False,
    ) -> Float[Tensor, ""]:
        """J(original) + weight · (share·J(mixed, first_labels) + (1 − share)·J(mixed, other_labels)), of one batch.

        That is the sum of two calls, but for relative and centred distances, whose mean is that of the whole batch.
        first_labels: those of the originals, unless other images were mixed.
        teaches_uncertainty_alone: what mixed images add to the loss moves no semantic embedding, of them, of originals
        or of proxies; it takes an introspective distance. In the mean by which relative distances are divided, or about
        which centred ones are, they still count, and so a little in what originals are worth.
        """
        if teaches_uncertainty_alone and not self.is_introspective:
            raise ValueError("teaches_uncertainty_alone needs an introspective distance: others have none to teach.")
        candidates = (original, labels) if against_originals else None
        _check_shares_of_the_loss(other_labels, share)
        first = labels if first_labels is None else first_labels
        terms = self._terms(mixed, first, other_labels, share, label_sets, candidates)
        if teaches_uncertainty_alone:
            terms = [term._replace(compared=term.compared.with_still_semantics) for term in terms]
        terms = [term._replace(weight=weight * term.weight) for term in terms]
        return self._sum([*self._terms(original, labels), *terms], dim=original.semantic.shape[1])

    def with_mixed_classes(
        self,
        original: Embedding,
        labels: Integer[Tensor, " n"],
        mixed: Embedding,
        other_labels: Integer[Tensor, " n"],
        share: float | Float[Tensor, ""],
        *,
        first_labels: Integer[Tensor, " n"] | None = None,
        label_sets: Labels | None = None,
    ) -> Float[Tensor, ""]:
        """J of original and mixed images together, where what lies between two classes is a class of its own.

        Images mixed of the same two classes, the same one first, are of one class. Each brings a proxy mixed like it:
        such a class has as many proxies as images, all equal.
        first_labels: those of the originals, unless other images were mixed.
        label_sets: of mixed images; pairs whose sets meet are then no negatives.
        """
        _check_shares_of_the_loss(other_labels, share)
        first = labels if first_labels is None else first_labels
        for embedding, given in ((original, labels), (mixed, first), (mixed, other_labels)):
            check_embedding(embedding)
            _check_number(embedding, given)
        if self.num_classes is None:
            raise ValueError("classes between classes need num_classes, to number them after the others.")
        for given in (labels, first, other_labels):
            check_class_numbers(given, self.num_classes)
        labels, first, other_labels = labels.long(), first.long(), other_labels.long()
        own = torch.arange(self.num_classes, device=labels.device)
        between = torch.where(first == other_labels, first, (1 + first) * self.num_classes + other_labels)
        images, numbers = Embedding.cat([original, mixed]), torch.cat([labels, between])
        with full_precision(original.device):
            if self.proxies is None:
                columns, pairs = images, pairs_within(numbers)
            else:
                columns = Embedding.cat([self.proxies(), self.proxies.mixed(first, other_labels, share)])
                pairs = pairs_between(numbers, torch.cat([own, between]))
            if label_sets is not None:
                sets = as_members(label_sets, self.num_classes)
                of_images = torch.cat([as_members(labels, self.num_classes), sets])
                of_columns = of_images if self.proxies is None else torch.cat([as_members(own, len(own)), sets])
                pairs = Pairs(pairs.positive, pairs.negative & pairs_between(of_images, of_columns).negative)
            compared = Compared(self.distance, images, columns)
        return self._sum([Term(compared, pairs)], dim=original.semantic.shape[1])

    @property
    def is_introspective(self) -> bool:
        """Whether distances know of uncertainty."""
        return isinstance(self.distance, Introspective)

    @property
    def is_centred(self) -> bool:
        """Whether distances are about the mean uncertainty of the batch."""
        return self.distance_scale == CENTRED

    def compared(self, embedding: Embedding, candidates: Embedding | None = None) -> Embedding:
        """What these images are compared with: the proxies, the candidates, or themselves."""
        if self.proxies is not None:
            return self.proxies()
        return embedding if candidates is None else candidates

    def pairs(self, labels: Labels, candidate_labels: Labels | None = None) -> Pairs:
        """The pairs that this objective compares, before mining."""
        if self.proxies is not None:
            return pairs_with_classes(labels, self.num_classes)  # pyright: ignore[reportArgumentType]
        return pairs_within(labels) if candidate_labels is None else pairs_between(labels, candidate_labels)

    def _terms(
        self,
        embedding: Embedding,
        labels: Labels,
        other_labels: Labels | None = None,
        share: float | Float[Tensor, ""] | None = None,
        label_sets: Labels | None = None,
        candidates: tuple[Embedding, Labels] | None = None,
    ) -> list[Term]:
        """One J, or two that share the distances."""
        check_embedding(embedding)
        for given in (labels, other_labels, label_sets):
            if given is not None:
                check_labels(given)
                _check_number(embedding, given)
        against, against_labels = (None, None) if candidates is None or self.proxies is not None else candidates
        with full_precision(embedding.device):
            compared = Compared(self.distance, embedding, self.compared(embedding, against))
            sets = None if label_sets is None else self.pairs(label_sets, against_labels)

            def of(given: Labels, weight: float | Tensor) -> Term:
                pairs = self.pairs(given, against_labels)
                if sets is not None:
                    pairs = Pairs(pairs.positive, pairs.negative * sets.negative)
                return Term(compared, pairs, weight)

            if other_labels is None or share is None:
                return [of(labels, 1.0)]
            return [of(labels, share), of(other_labels, 1 - share)]

    def _sum(self, terms: Sequence[Term], *, dim: int) -> Float[Tensor, ""]:
        """The weighted sum of what each term costs. dim: of semantic embeddings."""
        distances = TEACHERS[self.taught_by](terms, SCALES[self.distance_scale])
        with full_precision(distances[0].device):
            first, *others = (
                term.weight * self._loss.function(distance, self._mined(term, distance, dim), **self.loss_options)
                for distance, term in zip(distances, terms, strict=True)
            )
            return sum(others, start=first)

    def _mined(self, term: Term, distance: Float[Tensor, "n m"], dim: int) -> Pairs:
        """The pairs that the loss's miner chooses; all where it has none."""
        if self._loss.miner is None:
            return term.pairs
        options = self.miner_options
        if "dim" in _keywords(self._loss.miner):
            options = {"dim": dim, **options}
        seen = term.compared.plain if self._loss.mines_plain and self.is_introspective else distance.detach()
        return self._loss.miner(seen, term.pairs, **options)

    def extra_repr(self) -> str:
        return f"loss={self.loss!r}, distance={self.distance!r}"


def _resolve_distance(
    distance: Distance | Callable[[Embedding, Embedding], Tensor] | None, base: Literal["euclidean", "cosine"]
) -> Callable[[Embedding, Embedding], Tensor]:
    if distance is None:
        return PLAIN_DISTANCES[base]
    if isinstance(distance, Introspective):
        return distance.with_base(base)
    if not callable(distance) or isinstance(distance, type):
        raise ValueError(f"distance is {distance!r}: give Euclidean(), Cosine(), Introspective() or None.")
    return distance


def _keywords(function: Callable[..., Any] | None) -> list[str]:
    if function is None:
        return []
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _check_options(kind: str, given: Mapping[str, Any], function: Callable[..., Any] | None) -> None:
    """Raise for a name that the function does not know, and let it object to values, on a pair of nobody."""
    known = _keywords(function)
    for name, value in given.items():
        if name not in known:
            raise unknown_name(kind, name, known)
        if isinstance(value, int | float) and not math.isfinite(value):
            raise ValueError(f"{name}, {kind}, is {value}: give a finite number.")
        if name in EXPONENTS and (isinstance(value, str) or not value > 0):
            raise ValueError(f"{name}, {kind}, is {value!r}: give a number above 0.")
    if function is not None:
        nobody = torch.zeros(1, 1, dtype=torch.bool)
        options = {name: value for name, value in given.items() if not isinstance(value, torch.Generator)}
        function(torch.ones(1, 1), Pairs(nobody, nobody), **options)


def _check_number(embedding: Embedding, labels: Tensor) -> None:
    if len(labels) != len(embedding):
        raise ValueError(f"there are {len(embedding)} embeddings and {len(labels)} labels: give one for each.")


def _check_shares_of_the_loss(other_labels: object, share: float | Tensor | None) -> None:
    if (other_labels is None) != (share is None):
        missing = "share" if share is None else "other_labels"
        raise ValueError(f"other_labels and share go together, and {missing} is missing.")
    if share is None:
        return
    if isinstance(share, Tensor) and share.ndim != 0:
        raise ValueError(f"share has shape {tuple(share.shape)}: it is one number for the whole batch.")
    if not isinstance(share, int | float | Tensor):
        raise ValueError(f"share is {share!r}: give a number from 0 to 1.")
    if (not isinstance(share, Tensor) or share.device.type == "cpu") and not 0 <= float(share) <= 1:
        raise ValueError(f"share is {float(share)}: give a number from 0 to 1.")
