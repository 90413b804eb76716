"""One training step: the loss of a batch, of original and mixed images in one forward pass, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from idml.embedding import Embedding
from idml.labels import as_members
from idml.objective import Objective
from idml.training.distributed import gathered
from idml.training.feeding import Batch

Embed = Callable[[Tensor], Embedding]


def loss_and_gradients(
    embed: Embed, objective: Objective, batch: Batch, *, mixed_labels: str, chunk: int | None = None, scale: float = 1.0
) -> tuple[Float[Tensor, ""], Embedding, Embedding | None, Float[Tensor, ""]]:
    """Backpropagate scale · loss; the loss, the embeddings of the global batch (original, mixed), and the mean
    norm of the loss's gradient with respect to a semantic embedding.

    chunk: embed so many images at a time, twice, and keep only embeddings between (GradCache).
    """
    images = batch.images if batch.mixed is None else torch.cat([batch.images, batch.mixed])
    parts = images.split(chunk or len(images))
    if len(parts) == 1:
        embedding = embed(images)
    else:
        with torch.no_grad():
            embedding = _leaf(Embedding.cat([embed(part) for part in parts]))
    noted: list[Tensor] = []
    if embedding.semantic.requires_grad:
        embedding.semantic.register_hook(lambda grad: noted.append(grad.detach().norm(dim=1).mean()))
    original = gathered(embedding[: len(batch.images)])
    mixed = None if batch.mixed is None else gathered(embedding[len(batch.images) :])
    loss = loss_of(objective, original, mixed, batch, mixed_labels)
    (loss * scale).backward()
    if len(parts) > 1:
        _replay(embed, parts, embedding)
    norm = noted[0] / scale if noted else loss.new_zeros(())
    return loss.detach(), _detached(original), None if mixed is None else _detached(mixed), norm


def loss_of(
    objective: Objective, original: Embedding, mixed: Embedding | None, batch: Batch, mixed_labels: str
) -> Float[Tensor, ""]:
    """J(original), and what mixed images add to it, by the chosen reading of their labels."""
    labels, mixing = batch.labels, batch.mixing
    if mixed is None or mixing is None:
        return objective(original, labels)
    if mixed_labels == "loss_shares":
        return objective(original, labels) + objective(mixed, labels, mixing.other_labels(labels), mixing.batch_share)
    classes = objective.num_classes
    assert classes is not None
    members = as_members(labels, classes)
    if mixed_labels == "sets":
        return objective(Embedding.cat([original, mixed]), torch.cat([members, mixing.label_sets(labels, classes)]))
    shares = mixing.label_shares(labels, classes)
    return objective(Embedding.cat([original, mixed]), torch.cat([members.to(shares.dtype), shares]))


def _leaf(embedding: Embedding) -> Embedding:
    s, u = embedding.semantic.float(), embedding.uncertainty
    return Embedding(s.requires_grad_(), None if u is None else u.float().requires_grad_())


def _replay(embed: Embed, parts: Sequence[Tensor], embedding: Embedding) -> None:
    """Embed again, part by part, and hand each the gradient that its embeddings received."""
    start = 0
    for part in parts:
        again = embed(part)
        here = slice(start, start + len(part))
        outputs, gradients = [again.semantic], [_gradient(embedding.semantic)[here]]
        if again.uncertainty is not None and embedding.uncertainty is not None:
            outputs.append(again.uncertainty)
            gradients.append(_gradient(embedding.uncertainty)[here])
        torch.autograd.backward(outputs, [g.to(o.dtype) for g, o in zip(gradients, outputs, strict=True)])
        start += len(part)


def _gradient(values: Tensor) -> Tensor:
    return torch.zeros_like(values) if values.grad is None else values.grad


def _detached(embedding: Embedding) -> Embedding:
    return Embedding(
        embedding.semantic.detach(), None if embedding.uncertainty is None else embedding.uncertainty.detach()
    )
