"""One training step: the loss of a batch, of original and mixed images, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from idml.embedding import Embedding
from idml.labels import as_members
from idml.objective import Objective
from idml.training.distributed import gathered, gathered_features, own_share
from idml.training.feeding import Batch
from idml.training.parts import MixingConfig


@runtime_checkable
class Network(Protocol):
    """A model in its two parts, as `idml.Embedder` has them."""

    def features(self, images: Tensor) -> Tensor: ...

    def embed_features(self, feature: Tensor) -> Embedding: ...


class Step(NamedTuple):
    """What a step leaves: the loss, the embeddings of the global batch without gradients, and the mean norm of the
    loss's gradient with respect to a semantic embedding that learns.
    """

    loss: Float[Tensor, ""]
    original: Embedding
    mixed: Embedding | None
    gradient: Float[Tensor, ""]


def loss_and_gradients(
    network: Network,
    objective: Objective,
    batch: Batch,
    mixing: MixingConfig,
    *,
    level_prior: float = 0.0,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
    scale: float = 1.0,
) -> Step:
    """Backpropagate scale · loss.

    noise: of uncertainty, see `with_noise`; what the step leaves has none.
    chunk: so many images at a time go through the backbone, twice, and only their features are kept (GradCache).
    """
    alone = _teach_uncertainty_alone(objective, mixing)
    number = len(batch.images)
    features, replay = _features(network, batch, chunk=chunk, mixed_are_still=alone)
    embedding = network.embed_features(features)
    norms = _norms_of_gradients(embedding.semantic)
    original = gathered(embedding[:number])
    mixed = gathered(embedding[number:]) if len(embedding) > number else None
    noisy = with_noise(original, noise, generator=generator)
    noisy_mixed = None if mixed is None else with_noise(mixed, noise, generator=generator)
    loss = loss_of(objective, noisy, noisy_mixed, batch, mixing)
    every = original if mixed is None else Embedding.cat([original, mixed])
    if level_prior and every.uncertainty is not None and every.uncertainty.requires_grad:  # else it learns nothing
        loss = loss + level_prior * every.uncertainty.square().sum(dim=1).mean()
    (loss * scale).backward()
    replay()
    learning = number if alone else len(embedding)
    norm = norms[0][:learning].mean() / scale if norms else loss.new_zeros(())
    return Step(loss.detach(), _detached(original), None if mixed is None else _detached(mixed), norm)


def with_noise(embedding: Embedding, noise: float, *, generator: torch.Generator | None = None) -> Embedding:
    """Each uncertainty multiplied by a number from 1 − noise to 1 + noise, drawn by the generator.

    What that adds counts as a constant: the number does not scale the gradient, in which a slow layer would learn it.
    """
    uncertainty = embedding.uncertainty
    if not noise or uncertainty is None:
        return embedding
    drawn = torch.rand(len(embedding), 1, generator=generator, device=uncertainty.device, dtype=uncertainty.dtype)
    return Embedding(embedding.semantic, uncertainty + noise * (2 * drawn - 1) * uncertainty.detach())


def loss_of(
    objective: Objective, original: Embedding, mixed: Embedding | None, batch: Batch, config: MixingConfig
) -> Float[Tensor, ""]:
    """J(original), and what mixed images add to it, by the chosen reading of their labels."""
    labels, first, mixing = batch.labels, batch.first_labels, batch.mixing
    if mixed is None or mixing is None:
        return objective(original, labels)
    classes = objective.num_classes
    assert classes is not None
    others = mixing.other_labels(first)
    sets = None if config.partner_negatives else mixing.label_sets(first, classes)
    if config.mixed_labels == "loss_shares" and config.mixed_against == "all":
        every_set = None if sets is None else torch.cat([as_members(labels, classes), sets])
        own, other = (torch.cat([labels, given]) for given in (first, others))
        every = Embedding.cat([original, mixed])
        return objective(every, own, other, mixing.batch_share, label_sets=every_set)
    if config.mixed_labels == "loss_shares":
        return objective.with_mixed(
            original,
            labels,
            mixed,
            others,
            mixing.batch_share,
            first_labels=first,
            weight=config.mixed_weight,
            label_sets=sets,
            against_originals=config.mixed_against == "originals",
            teaches_uncertainty_alone=_teach_uncertainty_alone(objective, config),
        )
    if config.mixed_labels == "classes":
        return objective.with_mixed_classes(
            original, labels, mixed, others, mixing.batch_share, first_labels=first, label_sets=sets
        )
    if config.mixed_labels == "sets":
        mixed_members = mixing.label_sets(first, classes, smallest_share=config.smallest_share)
    else:
        mixed_members = mixing.label_shares(first, classes)
    members = as_members(labels, classes).to(mixed_members.dtype)
    return objective(Embedding.cat([original, mixed]), torch.cat([members, mixed_members]))


def _teach_uncertainty_alone(objective: Objective, config: MixingConfig) -> bool:
    """Whether that is all that learns of mixed images, if there is any."""
    is_asked = config.mixed_teaches == "uncertainty" and objective.is_introspective
    if is_asked:
        config.check_teaching_alone()
    return is_asked


def _features(
    network: Network, batch: Batch, *, chunk: int | None, mixed_are_still: bool
) -> tuple[Float[Tensor, "n f"], Callable[[], None]]:
    """Of the originals and then of mixed images, and what is left to do when these have their gradients.

    mixed_are_still: the backbone does not learn from mixed images.
    """
    images, beside = batch.images, []
    if batch.mixed is not None and mixed_are_still:
        beside = [_still_features(network, batch.mixed.split(chunk or len(batch.mixed)))]
    elif batch.mixed is not None:
        images = torch.cat([batch.images, batch.mixed])
    parts = images.split(chunk or len(images))
    if len(parts) == 1:
        features, replay = network.features(images), _nothing
    else:
        features = _still_features(network, parts).requires_grad_()
        replay = partial(_replay, network, parts, features)
    if batch.mixing is not None and batch.mixed is None:
        mixed_from = features.detach() if mixed_are_still else features
        beside = [own_share(batch.mixing.mix(gathered_features(mixed_from)))]
    return torch.cat([features, *beside]) if beside else features, replay


def _nothing() -> None:
    """What is left to do after a single pass."""


@torch.no_grad()
def _still_features(network: Network, parts: Sequence[Tensor]) -> Float[Tensor, "n f"]:
    """What the backbone makes of images that it does not learn from, not yet or not at all.

    A copy, even of a single part: what a CUDA graph returns is overwritten when it runs again.
    """
    return torch.cat([network.features(part) for part in parts])


def _replay(network: Network, parts: Sequence[Tensor], features: Float[Tensor, "n f"]) -> None:
    """Go through the backbone again, part by part, and hand each the gradient that its features received."""
    if features.grad is None:
        return
    for part, gradient in zip(parts, features.grad.split([len(part) for part in parts]), strict=True):
        again = network.features(part)
        if again.requires_grad:  # not while only the heads are trained
            torch.autograd.backward(again, gradient.to(again.dtype))


def _norms_of_gradients(rows: Float[Tensor, "n d"]) -> list[Float[Tensor, " n"]]:
    """Empty; holds, when the rows have their gradient, the norm of each of them."""
    noted: list[Tensor] = []
    if rows.requires_grad:
        rows.register_hook(lambda gradient: noted.append(gradient.detach().norm(dim=1)))
    return noted


def _detached(embedding: Embedding) -> Embedding:
    return Embedding(
        embedding.semantic.detach(), None if embedding.uncertainty is None else embedding.uncertainty.detach()
    )
