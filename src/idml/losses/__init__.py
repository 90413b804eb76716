"""Losses: pure functions of a distance matrix and pair weights, and what each needs around it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from idml import miners
from idml.losses.contrastive import contrastive_loss
from idml.losses.fast_ap import fast_ap_loss
from idml.losses.margin import margin_loss
from idml.losses.multi_similarity import multi_similarity_loss
from idml.losses.proxy_anchor import proxy_anchor_loss
from idml.losses.proxy_nca import proxy_nca_loss
from idml.losses.softmax import softmax_loss
from idml.losses.triplet import triplet_loss
from idml.pairs import Pairs


@dataclass(frozen=True)
class Loss:
    """A loss with its default base distance, whether it compares with proxies, and its default miner.

    mines_plain: the miner looks at distances without uncertainty, as one must that reckons with how they are
    distributed on a sphere; otherwise at those of the loss.
    """

    function: Callable[..., Tensor]
    base: Literal["euclidean", "cosine"]
    proxies: bool = False
    miner: Callable[..., Pairs] | None = None
    mines_plain: bool = False


LOSSES: dict[str, Loss] = {
    "contrastive": Loss(contrastive_loss, base="euclidean"),
    "margin": Loss(margin_loss, base="euclidean", miner=miners.distance_weighted, mines_plain=True),
    "triplet": Loss(triplet_loss, base="euclidean"),  # chooses semi-hard negatives itself
    "multi_similarity": Loss(multi_similarity_loss, base="cosine", miner=miners.multi_similarity),
    "softmax": Loss(softmax_loss, base="cosine", proxies=True),
    "proxy_nca": Loss(proxy_nca_loss, base="euclidean", proxies=True),
    "proxy_anchor": Loss(proxy_anchor_loss, base="cosine", proxies=True),
    "fast_ap": Loss(fast_ap_loss, base="euclidean"),
}

__all__ = [
    "LOSSES",
    "Loss",
    "contrastive_loss",
    "fast_ap_loss",
    "margin_loss",
    "multi_similarity_loss",
    "proxy_anchor_loss",
    "proxy_nca_loss",
    "softmax_loss",
    "triplet_loss",
]
