"""Which images make a batch: an epoch is a matrix, one row a global batch, one column an image.

The matrix depends on (seed, epoch) alone. Any number of ranks trains on the same global batches, and a
resumed run starts at the row where it stopped.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.batches import seeded


def random_batches(images: int, batch: int, *, seed: int, epoch: int) -> Int[Tensor, "batches batch"]:
    """Every image at most once an epoch, in random order.

    The remainder that fills no batch sits this epoch out; another one draws another.

    >>> random_batches(7, 3, seed=0, epoch=0).shape
    torch.Size([2, 3])
    """
    _check_batch(batch)
    if images < batch:
        raise ValueError(
            f"{images} images do not fill a batch of {batch}: lower it (--set batch={images}), or add some."
        )
    number = images // batch
    return torch.randperm(images, generator=seeded(seed, epoch))[: number * batch].reshape(number, batch)


def class_balanced_batches(
    labels: Int[Tensor, " n"], batch: int, *, per_class: int = 4, seed: int, epoch: int
) -> Int[Tensor, "batches batch"]:
    """Each batch holds batch / per_class random classes, with per_class images of each beside each other.

    There are n / batch batches, rounded down, at least one. A class hands out its images in random
    order and starts over when they are used up: one with fewer than per_class repeats some in a batch.
    """
    _check_batch(batch)
    if not 1 <= per_class <= batch or batch % per_class:
        raise ValueError(f"a batch of {batch} does not divide into {per_class} images a class: change one of them.")
    found, label, counts = labels.unique(return_inverse=True, return_counts=True)
    wanted = batch // per_class
    if len(found) < wanted:
        raise ValueError(
            f"a batch of {batch} with {per_class} images a class needs {wanted} classes, and there are {len(found)}: "
            f"lower the batch (--set batch={len(found) * per_class}), or raise per_class."
        )
    generator = seeded(seed, epoch)
    number = max(1, len(labels) // batch)
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[label[shuffled].argsort(stable=True)]  # class after class, each in random order
    start = counts.cumsum(0) - counts
    chosen = torch.rand(number, len(found), generator=generator).topk(wanted, dim=1).indices.reshape(-1)
    turn = _occurrence(chosen)[:, None] * per_class + torch.arange(per_class)  # (batches · wanted, per_class)
    places = start[chosen, None] + turn % counts[chosen, None]
    return by_class[places].reshape(number, batch)


def _occurrence(values: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """How many equal values came before each."""
    order = values.argsort(stable=True)
    _, counts = values[order].unique_consecutive(return_counts=True)
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    occurrence = torch.empty_like(values)
    occurrence[order] = torch.arange(len(values)) - first
    return occurrence


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"a batch of {batch} images: give at least 1.")
