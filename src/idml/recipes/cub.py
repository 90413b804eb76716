"""CUB-200-2011 with ResNet-50, classes 1 to 100 to train on, 101 to 200 to retrieve among; one function a loss.

    idml train cub-proxy-anchor --data cub-cache --set backbone=resnet50_v1 --set weights=resnet50-v1.safetensors

Each is introspective with Mixup: the row "both" of a table. The other rows are one setting away: `mixing=none` is
"+ introspective", `introspective=false` is "+ Mixup", and `Config.plain` (names that end in -plain) is the baseline.
Leave `weights` out for timm's own.

Learning rates, schedule, averaging and the introspective settings of ProxyAnchor were chosen on validation classes
51 to 100 (RESULTS.md, results/cub-search.jsonl); those of the other losses are not settled yet.
"""

from typing import Any

from idml.training.config import Config

HEAD_RATE, PROXY_RATE = 1e-4, 1e-2  # of new layers and of proxies, whatever the backbone's is


def proxy_anchor() -> Config:
    """ProxyAnchor.

    On validation classes, not mixed: MAP@R 41.4, plain 40.6 (2 seeds each); 9 s a run on half the classes, on an H200.
    """
    return _with_proxies("proxy_anchor", tau=1.0, gamma=2.0, distance_scale="kept", concentration=0.3, mixed_weight=0.5)


def proxy_nca() -> Config:
    """ProxyNCA."""
    return _with_proxies("proxy_nca")


def softmax() -> Config:
    """Normalised softmax with a proxy a class."""
    return _with_proxies("softmax")


def contrastive() -> Config:
    """Contrastive; it is at its best after few epochs.

    Distances are balanced, for as printed they ruin it (docs/why-it-works.md).
    """
    return _with_pairs(
        "contrastive",
        loss_options={"negative_margin": 1.0},
        epochs=6,
        tau=1.0,
        pair_uncertainty="sum_of_norms",
        distance_scale="balanced",
    )


def margin() -> Config:
    """Margin with distance-weighted sampling."""
    return _with_pairs("margin")


def triplet() -> Config:
    """Triplets with semi-hard negatives."""
    return _with_pairs("triplet")


def multi_similarity() -> Config:
    """Multi-similarity with its mining."""
    return _with_pairs("multi_similarity")


def fast_ap() -> Config:
    """FastAP: average precision on soft histograms."""
    return _with_pairs("fast_ap")


EVERY_LOSS = (proxy_anchor, multi_similarity, contrastive, margin, triplet, proxy_nca, fast_ap, softmax)


def _with_proxies(loss: str, **changes: Any) -> Config:
    """Images at random; proxies need some epochs to find their places before the backbone may move."""
    return _cub(loss, lr=3e-5, epochs=14, warm_up_epochs=5, **changes)


def _with_pairs(loss: str, **changes: Any) -> Config:
    """Four images a class, compared with each other."""
    return _cub(loss, **{"lr": 1e-5, "epochs": 10, "warm_up_epochs": 1, "per_class": 4} | changes)


def _cub(loss: str, *, lr: float, **changes: Any) -> Config:
    """A low, constant rate for the backbone, and the average of its weights: both keep what it has learned before."""
    return Config().with_changes(
        {
            "loss": loss,
            "mixing": "mixup",
            "lr": lr,
            "head_factor": HEAD_RATE / lr,
            "uncertainty_factor": HEAD_RATE / lr,
            "proxy_factor": PROXY_RATE / lr,
            "schedule": "constant",
            "average": 0.99,
            "compile": True,
        }
        | changes
    )
