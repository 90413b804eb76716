"""CUB-200-2011 with ResNet-50, classes 1 to 100 to train on, 101 to 200 to retrieve among; one function a loss.

    idml train cub-proxy-anchor --data cub-cache --set backbone=resnet50_v1 --set weights=resnet50-v1.safetensors

Each is introspective with Mixup, the row "both" of a table. The other rows are one setting away: `mixing=none` is
"+ introspective", `introspective=false` is "+ Mixup" (ProxyAnchor: with `mixed_weight=0.5`), and names that end in
-plain are baselines; all are in benchmarks/arms/cub-final.arms. Leave `weights` out for timm's own.

Settings were chosen on training classes, for the plain losses with as much search as the method has had: rates, epochs
and averaging on halves and folds, four losses' by random draws (DRAWN), the size of scored crops on five folds, and how
uncertainty learns on frozen features, halves and folds (docs/search-history.md, docs/evidence.md). Numbers are
R@1 / MAP@R of scored 288 px crops, and seconds of a whole run on an H200: on the test classes, mean ± standard
deviation over five seeds unless said otherwise.
"""

from typing import Any

from idml.training.config import Config

HEAD_RATE, PROXY_RATE = 1e-4, 1e-2  # of new layers and of proxies, whatever the backbone's is
TEST_SIZE = 288  # of crops that are scored: what is trained on 224 px sees larger birds than 224 px show when scored
TAUGHT_BY_POSITIVES = {
    "distance_scale": "centred",
    "taught_by": "positives",
    "uncertainty_level": 1.0,
    "uncertainty_starts_equal": True,
    "uncertainty_rate": 1e-7,  # at ten times as much levels spread until they harm most losses
}
TEACHING_ALONE = {"mixed_teaches": "uncertainty"}  # what mixed images add moves no semantic embedding, nor proxies
OTHERS = {"mixed_from": "others", "mixed_against": "all", "concentration": 0.1}  # hardly mixed: a larger batch
FEATURES = {"mixing": "features", "mixed_against": "originals"}  # mixed after the backbone: no more image passes

DRAWN: dict[str, dict[str, Any]] = {  # at random, for the plain loss; better on four folds, with uncertainty as well
    "multi_similarity": {
        "loss_options": {"alpha": 2.043, "beta": 30.61, "base": 0.7337},
        "miner_options": {"epsilon": 0.3736},
        "head_factor": 6.838,
        "weight_decay": 0.001932,
        "average": 0.98,
    },
    "fast_ap": {
        "loss_options": {"bins": 33},
        "head_factor": 4.023,
        "weight_decay": 1.969e-05,
        "average": 0.98,
        "per_class": 3,
    },
    "triplet": {
        "loss_options": {"margin": 0.3448},
        "head_factor": 3.152,
        "weight_decay": 0.02018,
        "average": 0.98,
        "per_class": 6,
    },
    "proxy_nca": {
        "loss_options": {"scale": 26.05},
        "head_factor": 1.164,
        "proxy_factor": 693.9,
        "weight_decay": 1.848e-05,
        "average": 0.995,
    },
}
OF_PLAIN: dict[str, dict[str, Any]] = {  # better for the plain loss alone
    "softmax": {"lr": 6e-5, "head_factor": 1.667, "proxy_factor": 166.7},
}


def proxy_anchor() -> Config:
    """ProxyAnchor, which knows best when it fails; five times uncertainty's gradient in the backbone costs it R@1.

    Test: plain 71.0 ± 0.4 / 28.4 ± 0.1 (16 s), introspective 70.3 ± 0.3 / 28.7 ± 0.4 (3 seeds, 15 s), both 70.2 ± 0.4 /
    28.8 ± 0.4 (20 s; R-AUROC 0.67, mixed AUROC 0.82, and of the confidence 0.81, plain 0.77, 3 seeds). Four folds chose
    that gradient, and were wrong on 288 px, not on 224 px (RESULTS.md); with `uncertainty_gradient=0.1` both have
    70.9 ± 0.7 / 29.1 ± 0.3 (R-AUROC 0.66, mixed AUROC 0.82).
    """
    slow = TAUGHT_BY_POSITIVES | {"uncertainty_rate": 2e-8}
    return _with_proxies(
        "proxy_anchor", concentration=0.3, uncertainty_noise=0.3, uncertainty_gradient=5.0, **TEACHING_ALONE, **slow
    )


def proxy_nca() -> Config:
    """ProxyNCA, at a larger scale than usual, and few epochs: its push never ends. Its level costs next to nothing.

    Test: plain 69.5 ± 0.6 / 28.3 ± 0.2 (7 s), both 69.8 ± 0.5 / 28.4 ± 0.1 (13 s; R-AUROC 0.66, mixed AUROC 0.88).
    """
    return _with_proxies("proxy_nca", epochs=8, **DRAWN["proxy_nca"], **TAUGHT_BY_POSITIVES)


def softmax() -> Config:
    """Normalised softmax with a proxy a class; mixed images, which harm it, teach uncertainty alone. It gains.

    What uncertainty learns reaches the backbone, by 0.3 of its gradient (docs/evidence.md, section 9).
    Test: plain 67.7 ± 0.5 / 25.7 ± 0.4 (13 s; at the rate of this recipe 66.9 ± 0.4 / 24.9 ± 0.3), Mixup 65.8 ± 0.3 /
    23.3 ± 0.3 (3 seeds, 23 s), introspective 67.6 ± 0.3 / 25.4 ± 0.3 (16 s; R-AUROC 0.63), both 68.8 ± 0.4 / 26.1 ± 0.5
    (23 s; R-AUROC 0.65, mixed AUROC 0.85, and of the confidence 0.79, plain 0.77, 3 seeds).
    """
    return _with_proxies("softmax", epochs=14, uncertainty_gradient=0.3, **TEACHING_ALONE, **TAUGHT_BY_POSITIVES)


def contrastive() -> Config:
    """Contrastive, which is better without uncertainty: take cub-contrastive-plain, or its Mixup alone.

    Test: plain 67.6 ± 0.1 / 26.2 ± 0.3 (8 s), Mixup 68.0 ± 0.3 / 26.6 ± 0.3 (3 seeds, 12 s), both 66.9 ± 0.5 /
    26.2 ± 0.2 (13 s; R-AUROC 0.61). Folds chose its noise, and were wrong (RESULTS.md). With `uncertainty_noise=0
    uncertainty_factor=0.01` both have 68.1 ± 0.4 / 26.5 ± 0.3, and lose 0.5 / 0.8 on the other half of CUB.
    """
    slow = OTHERS | {"uncertainty_rate": 2e-8}
    return _pairs_taught_by_positives(
        "contrastive", loss_options={"negative_margin": 1.0}, epochs=6, uncertainty_noise=0.2, **slow
    )


def margin() -> Config:
    """Margin with distance-weighted sampling by the density of 64 dimensions; by that of 512 it takes but the hardest.

    The boundary is one that positives of a pretrained network do not fulfil from the start.
    Test: plain 67.5 ± 0.5 / 25.7 ± 0.4 (6 s), both 67.6 ± 0.4 / 25.7 ± 0.4 (11 s; R-AUROC 0.64).
    """
    return _pairs_taught_by_positives(
        "margin",
        loss_options={"positive_margin": 0.0, "negative_margin": 1.0},
        miner_options={"dim": 64},
        mixed_against="originals",
        mixed_weight=0.1,
        epochs=4,
    )


def triplet() -> Config:
    """Triplets with semi-hard negatives; as many other images, hardly mixed, make a larger batch of them.

    Test: plain 65.8 ± 0.2 / 24.3 ± 0.1 (5 s), Mixup 66.7 ± 0.5 / 25.3 ± 0.2 (3 seeds, 7 s), both 66.7 ± 0.3 /
    25.3 ± 0.1 (7 s; R-AUROC 0.57).
    """
    return _pairs_taught_by_positives("triplet", epochs=3, **DRAWN["triplet"], **OTHERS)


def multi_similarity() -> Config:
    """Multi-similarity with its mining, flatter than usual: better plain, or with its mixed features alone.

    Test: plain 68.2 ± 0.5 / 27.3 ± 0.2 (11 s), mixed features 68.9 ± 0.8 / 27.8 ± 0.3 (3 seeds, 13 s), both 67.8 ± 0.3
    / 27.0 ± 0.1 (13 s; R-AUROC 0.63). Its noise gains a steep loss (beta=50), and costs this one.
    """
    return _pairs_taught_by_positives(
        "multi_similarity", uncertainty_noise=0.75, **DRAWN["multi_similarity"], **FEATURES
    )


def fast_ap() -> Config:
    """FastAP: average precision on soft histograms.

    Test: plain 67.5 ± 0.4 / 26.1 ± 0.2 (9 s), introspective 67.9 ± 0.4 / 26.3 ± 0.2 (3 seeds, 10 s), both 67.7 ± 0.3 /
    26.6 ± 0.2 (16 s; R-AUROC 0.54, mixed AUROC 0.88). For a level that knows more (0.61, 0.98), at 67.1 ± 0.5 /
    26.6 ± 0.2: its former settings, in benchmarks/arms/cub-final-former-settings.arms.
    """
    return _with_pairs(
        "fast_ap",
        uncertainty_rate=1e-6,
        uncertainty_level=1.0,
        uncertainty_starts_equal=True,
        uncertainty_noise=0.3,
        distance_scale="relative",
        pair_uncertainty="sum_of_norms",
        mixed_from="others",
        epochs=8,
        **DRAWN["fast_ap"],
    )


EVERY_LOSS = (proxy_anchor, multi_similarity, contrastive, margin, triplet, proxy_nca, fast_ap, softmax)


def _with_proxies(loss: str, **changes: Any) -> Config:
    """Images at random; proxies need some epochs to find their places before the backbone may move."""
    return _cub(loss, **{"lr": 3e-5, "epochs": 14, "warm_up_epochs": 5} | changes)


def _with_pairs(loss: str, **changes: Any) -> Config:
    """Four images a class, compared with each other."""
    return _cub(loss, **{"lr": 1e-5, "epochs": 10, "warm_up_epochs": 1, "per_class": 4} | changes)


def _pairs_taught_by_positives(loss: str, **changes: Any) -> Config:
    """Uncertainty learns how far positives are apart. β is the sum of lengths: that of a sum would be learned by
    heart, as a direction for each class.
    """
    return _with_pairs(loss, pair_uncertainty="sum_of_norms", **TAUGHT_BY_POSITIVES | changes)


def _cub(loss: str, *, lr: float, uncertainty_rate: float, **changes: Any) -> Config:
    """A low, constant rate for the backbone, and the average of its weights: both keep what it has learned before."""
    return Config().with_changes(
        {
            "loss": loss,
            "mixing": "mixup",
            "tau": 1.0,
            "smoothing": 0.1,
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
