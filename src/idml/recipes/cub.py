"""CUB-200-2011 with ResNet-50, classes 1 to 100 to train on, 101 to 200 to retrieve among; one function a loss.

    idml train cub-proxy-anchor --data cub-cache --set backbone=resnet50_v1 --set weights=resnet50-v1.safetensors

Each is introspective with Mixup: the row "both" of a table. The other rows are one setting away: `mixing=none` is
"+ introspective", `introspective=false` is "+ Mixup", and `Config.plain` (names that end in -plain) is the baseline.
Leave `weights` out for timm's own.

Rates, epochs and averaging were chosen for the plain losses, on validation classes 51 to 100 (RESULTS.md,
results/cub-search.jsonl). How uncertainty learns follows from runs on frozen features (docs/why-it-works.md,
results/frozen-heads.jsonl), and has not been on a GPU yet.
"""

from typing import Any

from idml.training.config import Config

HEAD_RATE, PROXY_RATE = 1e-4, 1e-2  # of new layers and of proxies, whatever the backbone's is
TEST_SIZE = 288  # of crops that are scored: what is trained on 224 px sees larger birds than 224 px show when scored
UNCERTAINTY_RATE = 1e-5  # at ten times as much the level is made of the noise of its own steps


def proxy_anchor() -> Config:
    """ProxyAnchor: 15 s a plain run on an H200, R@1 67.5 ± 0.4, MAP@R 26.2 ± 0.2 on test classes (5 seeds)."""
    return _with_proxies("proxy_anchor", uncertainty_rate=2e-5, concentration=0.3, mixed_weight=0.5)


def proxy_nca() -> Config:
    """ProxyNCA, at a larger scale than usual, and few epochs: its push never ends."""
    return _with_proxies(
        "proxy_nca", uncertainty_rate=1e-6, distance_scale="relative", loss_options={"scale": 32.0}, epochs=8
    )


def softmax() -> Config:
    """Normalised softmax with a proxy a class."""
    return _with_proxies("softmax", epochs=12)


def contrastive() -> Config:
    """Contrastive; it is at its best after few epochs. As printed, the distance ruins it (docs/why-it-works.md)."""
    return _with_pairs(
        "contrastive",
        uncertainty_rate=3e-5,
        distance_scale="relative",
        loss_options={"negative_margin": 1.0},
        epochs=4,
    )


def margin() -> Config:
    """Margin with distance-weighted sampling, which in 512 dimensions takes the hardest negatives: two epochs."""
    return _with_pairs("margin", distance_scale="relative", mixed_against="originals", epochs=2)


def triplet() -> Config:
    """Triplets with semi-hard negatives; mixed images have both labels, as in the paper: here that does not harm."""
    return _with_pairs("triplet", mixed_labels="sets", epochs=4)


def multi_similarity() -> Config:
    """Multi-similarity with its mining."""
    return _with_pairs("multi_similarity", distance_scale="relative", mixed_against="originals")


def fast_ap() -> Config:
    """FastAP: average precision on soft histograms."""
    return _with_pairs("fast_ap", distance_scale="relative", epochs=6)


EVERY_LOSS = (proxy_anchor, multi_similarity, contrastive, margin, triplet, proxy_nca, fast_ap, softmax)


def _with_proxies(loss: str, **changes: Any) -> Config:
    """Images at random; proxies need some epochs to find their places before the backbone may move."""
    return _cub(loss, **{"lr": 3e-5, "epochs": 14, "warm_up_epochs": 5} | changes)


def _with_pairs(loss: str, **changes: Any) -> Config:
    """Four images a class, compared with each other."""
    return _cub(loss, **{"lr": 1e-5, "epochs": 10, "warm_up_epochs": 1, "per_class": 4} | changes)


def _cub(loss: str, *, lr: float, uncertainty_rate: float = UNCERTAINTY_RATE, **changes: Any) -> Config:
    """A low, constant rate for the backbone, and the average of its weights: both keep what it has learned before."""
    return Config().with_changes(
        {
            "loss": loss,
            "mixing": "mixup",
            "tau": 1.0,
            "smoothing": 0.1,
            "pair_uncertainty": "sum_of_norms",
            "lr": lr,
            "head_factor": HEAD_RATE / lr,
            "uncertainty_factor": uncertainty_rate / lr,
            "proxy_factor": PROXY_RATE / lr,
            "schedule": "constant",
            "average": 0.99,
            "test_size": TEST_SIZE,
            "compile": True,
        }
        | changes
    )
