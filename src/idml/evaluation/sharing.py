"""Work shared by the processes of torch.distributed, where all of them call the same function with the same sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")


def own_part(items: Iterable[Item], *, shared: bool) -> Iterator[Item]:
    """Every n-th item, for the n-th process; all of them, if nothing is shared."""
    if not shared or not dist.is_initialized():
        return iter(items)
    return islice(items, dist.get_rank(), None, dist.get_world_size())


def added_up(values: Tensor, *, shared: bool) -> Tensor:
    """The sum over processes, each of which knows its own part and has 0 elsewhere; in place."""
    if shared and dist.is_initialized():
        dist.all_reduce(values)
    return values
