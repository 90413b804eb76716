"""CUB-200-2011 with ResNet-50, classes 1 to 100 to train on, 101 to 200 to retrieve among; one function a loss.

    idml train cub-proxy-anchor --data cub-cache --set backbone=resnet50_v1 --set weights=resnet50-v1.safetensors

Each is introspective with Mixup: the row "both" of a table. The other rows are one setting away: `mixing=none` is
"+ introspective", `introspective=false` is "+ Mixup", and `Config.plain` (names that end in -plain) is the baseline.
Leave `weights` out for timm's own.

Rates, epochs and averaging were chosen for the plain losses, on validation classes 51 to 100, the size of scored crops
on five folds (RESULTS.md, results/cub-search.jsonl). How uncertainty learns follows from runs on frozen features
(docs/why-it-works.md, results/frozen-heads.jsonl). Numbers are R@1 / MAP@R of scored 288 px crops, and seconds of a
whole run on an H200: of ProxyAnchor on test classes, of the others so far on validation classes, 1-50, then 51-100,
one run each.
"""

from typing import Any

from idml.training.config import Config

HEAD_RATE, PROXY_RATE = 1e-4, 1e-2  # of new layers and of proxies, whatever the backbone's is
TEST_SIZE = 288  # of crops that are scored: what is trained on 224 px sees larger birds than 224 px show when scored
UNCERTAINTY_RATE = 1e-5  # at ten times as much the level is made of the noise of its own steps


def proxy_anchor() -> Config:
    """ProxyAnchor: the one to start with.

    Test: plain 71.0 ± 0.4 / 28.4 ± 0.1 (5 seeds, 16 s), introspective 71.6 ± 0.5 / 28.9 ± 0.1 (3 seeds, 18 s), both
    71.1 ± 0.2 / 28.9 ± 0.2 (4 seeds, 26 s).
    """
    return _with_proxies("proxy_anchor", uncertainty_rate=2e-5, concentration=0.3, mixed_weight=0.5)


def proxy_nca() -> Config:
    """ProxyNCA, at a larger scale than usual, and few epochs: its push never ends.

    Validation: plain 75.4 / 37.3, 79.5 / 41.5 (8 s), both 76.4 / 37.2, 80.2 / 41.6 (13 s).
    """
    return _with_proxies(
        "proxy_nca",
        uncertainty_rate=1e-6,
        uncertainty_level=1.0,
        distance_scale="relative",
        loss_options={"scale": 32.0},
        epochs=8,
    )


def softmax() -> Config:
    """Normalised softmax with a proxy a class.

    Not run at 288 px yet.
    """
    return _with_proxies("softmax", epochs=12)


def contrastive() -> Config:
    """Contrastive; it is at its best after few epochs. As printed, the distance ruins it (docs/why-it-works.md).

    Validation: plain 76.2 / 36.4, 78.5 / 41.0 (7 s), both 75.8 / 36.9, 78.6 / 41.1 (12 s).
    """
    return _with_pairs(
        "contrastive",
        uncertainty_rate=3e-5,
        distance_scale="relative",
        loss_options={"negative_margin": 1.0},
        epochs=4,
    )


def margin() -> Config:
    """Margin with distance-weighted sampling, which in 512 dimensions takes the hardest negatives: two epochs.

    Validation: plain 65.9 / 21.5, both 64.9 / 20.3, on classes 1-50 alone: its baseline is to be tuned (RESULTS.md).
    """
    return _with_pairs("margin", distance_scale="relative", mixed_against="originals", epochs=2)


def triplet() -> Config:
    """Triplets with semi-hard negatives; mixed images have both labels, as in the paper, and the level knows them.

    Validation: plain 75.2 / 35.6 (7 s), both 74.8 / 34.1 (10 s), on classes 1-50 alone.
    """
    return _with_pairs("triplet", mixed_labels="sets", epochs=4)


def multi_similarity() -> Config:
    """Multi-similarity with its mining.

    Validation: plain 75.6 / 34.3, 77.8 / 39.5 (10 s), both 74.5 / 32.3, 78.0 / 37.7 (17 s).
    """
    return _with_pairs("multi_similarity", distance_scale="relative", mixed_against="originals")


def fast_ap() -> Config:
    """FastAP: average precision on soft histograms.

    Validation: plain 75.1 / 36.0, 77.2 / 40.3 (7 s), both 75.9 / 36.6, 78.3 / 40.6 (11 s).
    """
    return _with_pairs("fast_ap", uncertainty_level=1.0, distance_scale="relative", epochs=6)


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
