import pytest
import torch
from torch import nn

from idml import Embedding, Objective
from idml.data.mixing import mixup
from idml.distances import Introspective
from idml.models.heads import LITERAL, Heads
from idml.training.feeding import Batch
from idml.training.stepping import loss_and_gradients

CLASSES = 4


def network(*, introspective: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), Heads(8, 5, 5 if introspective else None, form=LITERAL)
    )


def some_batch(*, is_mixed: bool) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.rand(8, 3, 2, 2, generator=generator), torch.arange(8) % CLASSES
    mixed, mixing = mixup(images, generator=generator)
    return Batch(images, mixed if is_mixed else None, labels, mixing if is_mixed else None)


def run(batch: Batch, mixed_labels: str, **options) -> tuple[float, list[torch.Tensor]]:
    model = network()
    torch.manual_seed(0)
    objective = Objective("proxy_anchor", Introspective(), num_classes=CLASSES, dim=5)
    loss, *_ = loss_and_gradients(model, objective, batch, mixed_labels=mixed_labels, **options)
    parameters = [*model.parameters(), *objective.parameters()]
    return float(loss), [parameter.grad for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("mixed_labels", ["loss_shares", "sets", "shares"])
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_embedding_by_chunks_gives_the_same_loss_and_gradients(mixed_labels, is_mixed, chunk):
    batch = some_batch(is_mixed=is_mixed)
    loss, gradients = run(batch, mixed_labels)
    by_chunks, of_chunks = run(batch, mixed_labels, chunk=chunk)
    assert by_chunks == pytest.approx(loss)
    for one, other in zip(gradients, of_chunks, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_original_and_mixed_images_share_one_forward_pass():
    seen = []

    def embed(images):
        seen.append(len(images))
        return network()(images)

    objective = Objective("contrastive", Introspective())
    _, original, mixed, norm = loss_and_gradients(
        embed, objective, some_batch(is_mixed=True), mixed_labels="loss_shares"
    )
    assert seen == [16]
    assert mixed is not None
    assert len(original) == len(mixed) == 8
    assert norm > 0


def test_shares_of_the_loss_are_the_objectives_own():
    batch, model = some_batch(is_mixed=True), network()
    objective = Objective("contrastive", Introspective())
    loss, *_ = loss_and_gradients(model, objective, batch, mixed_labels="loss_shares")
    assert batch.mixing is not None
    share, other = batch.mixing.batch_share, batch.labels[batch.mixing.partner]
    expected = objective(model(batch.images), batch.labels)
    expected = expected + objective(model(batch.mixed), batch.labels, other, share)
    torch.testing.assert_close(loss, expected.detach())


def test_a_plain_model_has_no_uncertainty_to_replay():
    batch = some_batch(is_mixed=False)
    objective = Objective("contrastive")
    loss, original, mixed, _ = loss_and_gradients(
        network(introspective=False), objective, batch, mixed_labels="sets", chunk=3
    )
    assert torch.isfinite(loss)
    assert isinstance(original, Embedding)
    assert mixed is None
