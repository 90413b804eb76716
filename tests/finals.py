"""Lines of a lab log as final runs leave them."""

from idml.sweeping.lab import stored
from idml.training.config import Config

CONFIG = Config().with_changes({"mixing": "mixup", "epochs": 30})
SETTINGS = {
    "plain": {"introspective": False, "mixing": "none"},
    "shared": {"introspective": False, "mixing": "none", "lr": 2e-4},
    "passes": {"introspective": False, "mixing": "none", "epochs": 60},
    "mixup": {"introspective": False},
    "introspective": {"mixing": "none"},
    "both": {},
    "random": {"uncertainty": "random"},
    "common": {"uncertainty": "common"},
}
GAINS = dict(zip(SETTINGS, (0.0, -0.001, 0.001, 0.01, 0.008, 0.015, 0.009, 0.007), strict=True))
AT_EQUAL_SETTINGS = tuple(row for row in SETTINGS if row != "shared")
WITHOUT_UNCERTAINTY = ("plain", "shared", "passes", "mixup")


def line(loss: str, row: str, seed: int, **values) -> dict:
    """A run whose scores rise with the row, and a little with the seed."""
    config = CONFIG.with_changes({"loss": loss, "seed": seed, **SETTINGS[row]})
    level = 0.68 + GAINS[row] + (0.001, 0.002, 0.004)[seed % 3] * (1 + GAINS[row])
    scores = {f"recall@{k}": level + 0.05 * place for place, k in enumerate((1, 2, 4, 8))}
    scores |= {"nmi": level + 0.02, "r_precision": level - 0.3, "map_at_r": level - 0.4 + 0.1 * GAINS[row]}
    if row not in WITHOUT_UNCERTAINTY:
        scores |= {"r_auroc": 0.6, "aurc": 0.28, "mixed_auroc": 0.98, "level_clean": 0.5, "level_mixed": 1.25}
        scores |= {"weight_positive": 0.91, "weight_negative": 0.93}
        scores |= {} if row == "introspective" else {"weight_mixed": 0.8, "weight_deviation": 0.04}
    whole = {"arm": f"{loss} {row}", "seed": seed, "split": "test", "dataset": "cub-cache", "data": "abc"}
    whole |= {"config": stored(config), "scores": scores, "epochs": [], "stopped": None, "error": None}
    return whole | {"seconds": 30.0 + seed, "versions": {"device": "NVIDIA H200", "torch": "2.11.0"}} | values


def lines(loss: str = "proxy_anchor", rows=tuple(SETTINGS), seeds: int = 3) -> list[dict]:
    return [line(loss, row, seed) for seed in range(seeds) for row in rows]
