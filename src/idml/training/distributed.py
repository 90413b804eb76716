"""Several processes as one: every rank embeds its share of the global batch, and all see the pairs of the whole of it.

Each rank computes the loss of the global batch, so the gradient that reaches its own embeddings is
complete; ranks then add up the gradients of their images' parts of the network. A run is the same
under any number of ranks, up to the order of sums, where batch-norm is frozen. Where it is not, each
rank normalises its share by itself, and the model's running statistics are the first rank's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from idml.embedding import Embedding

PATIENCE = timedelta(days=7)  # ranks wait so long while the first one prepares images
LOST = ("Connection closed by peer", "Connection reset by peer", "remote process exited")  # gloo's words, and NCCL's


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the rank that writes and speaks."""
    return rank() == 0


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the ranks that torchrun started, if it did; the device of this one.

    When one rank fails, the others cannot go on: a ValueError that says no more, for the first has told why.
    """
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1 or dist.is_initialized():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    except RuntimeError as error:
        if not any(words in str(error) for words in LOST):
            raise
        raise _another_failed() from None
    finally:
        dist.destroy_process_group()


@contextmanager
def first_rank_first() -> Iterator[None]:
    """The first rank goes through this alone, however long it takes, and then all the others; if it fails, none."""
    if ranks() == 1:
        yield
        return
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    has_failed = torch.zeros((), dtype=torch.long)
    try:
        if is_first():
            yield
    except BaseException:
        has_failed.fill_(1)
        raise
    finally:
        dist.broadcast(has_failed, 0, group=group)  # pyright: ignore[reportArgumentType]
    if has_failed:
        raise _another_failed()
    if not is_first():
        yield


def _another_failed() -> ValueError:
    return ValueError("another rank failed, and this one cannot go on alone: see what that one told.")


def own_share(values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "m ..."]:
    """This rank's part of something that all ranks know: equal stretches, in the order of ranks."""
    if len(values) % ranks():
        raise ValueError(f"{len(values)} images cannot be shared equally by {ranks()} ranks: change the batch.")
    return values.chunk(ranks())[rank()] if ranks() > 1 else values


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, values):
        parts = [torch.empty_like(values) for _ in range(ranks())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(_ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad.chunk(ranks())[rank()]


class _GatherAndAdd(_Gather):
    @staticmethod
    def backward(_ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        dist.all_reduce(grad := grad.contiguous())
        return grad.chunk(ranks())[rank()]


def gathered_features(features: Float[Tensor, "n f"]) -> Float[Tensor, "g f"]:
    """The features of all ranks, of which each may use any: what reaches them is added up over the ranks."""
    return features if ranks() == 1 else _GatherAndAdd.apply(features)  # pyright: ignore[reportReturnType]


def gathered(embedding: Embedding) -> Embedding:
    """The embeddings of all ranks, in their order; gradients reach this rank's own."""
    if ranks() == 1:
        return embedding
    u = embedding.uncertainty
    return Embedding(
        _Gather.apply(embedding.semantic),  # pyright: ignore[reportArgumentType]
        None if u is None else _Gather.apply(u),  # pyright: ignore[reportArgumentType]
    )


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of a network whose ranks each saw a part of the batch, in one message."""
    if ranks() == 1:
        return
    with_gradient = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in with_gradient:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    grads = [parameter.grad for parameter in with_gradient if parameter.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def copy_buffers(model: nn.Module) -> None:
    """The first rank's buffers, such as running statistics, on all of them."""
    if ranks() > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def concatenated(values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "m ..."]:
    """Rows of all ranks, in their order; ranks may have different numbers of them."""
    if ranks() == 1:
        return values
    numbers = [torch.zeros(1, dtype=torch.long, device=values.device) for _ in range(ranks())]
    dist.all_gather(numbers, torch.tensor([len(values)], device=values.device))
    most = max(int(number) for number in numbers)
    padded = torch.cat([values, values.new_zeros(most - len(values), *values.shape[1:])])
    parts = [torch.empty_like(padded) for _ in range(ranks())]
    dist.all_gather(parts, padded.contiguous())
    return torch.cat([part[: int(number)] for part, number in zip(parts, numbers, strict=True)])


def agree(value: float, device: torch.device) -> float:
    """The first rank's value, on all of them."""
    if ranks() == 1:
        return value
    told: Float[Tensor, ""] = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(told, 0)
    return float(told)
