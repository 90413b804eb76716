"""What sets the recipes for CUB apart, as a table for RESULTS.md: a line a loss."""

from __future__ import annotations

from collections.abc import Callable

from idml.paper.markdown import table
from idml.paper.rows import TITLES
from idml.recipes import recipe
from idml.sweeping.summary import NOTHING
from idml.training.config import Config

IN_ORDER = ("softmax", "multi_similarity", "fast_ap", "triplet", "proxy_nca", "proxy_anchor", "margin", "contrastive")


def _layer_rate(config: Config) -> str:
    return f"{config.optimiser.lr * config.optimiser.uncertainty_factor:.0e}".replace("e-0", "e-")


def _mixed(config: Config) -> str:
    """What is mixed, how much of it, and at which weight."""
    mixing = config.mixing
    what = "features" if mixing.mixing == "features" else {"batch": "the batch", "others": "others"}[mixing.mixed_from]
    strength = "" if mixing.concentration == 1 else f", Beta({mixing.concentration:g}, {mixing.concentration:g})"
    weight = "" if mixing.mixed_weight == 1 else f", weight {mixing.mixed_weight:g}"
    return f"{what}{strength}{weight}"


def _compared_with(config: Config) -> str:
    if config.idle(["mixed_against"]):
        return "proxies"
    return {"mixed": "each other", "originals": "originals", "all": "all"}[config.mixing.mixed_against]


def _options(config: Config) -> str:
    given = {**config.objective.loss_options, **config.objective.miner_options}
    return ", ".join(f"{name} {value:g}" for name, value in given.items()) or NOTHING


COLUMNS: dict[str, Callable[[Config], str]] = {
    "options": _options,
    "rate": lambda config: f"{config.optimiser.lr:.0e}".replace("e-0", "e-"),
    "epochs": lambda config: f"{config.run.epochs}, {config.optimiser.warm_up_epochs} of them warm-up",
    "distances": lambda config: config.objective.distance_scale,
    "taught by": lambda config: config.objective.taught_by,
    "its layer's rate": _layer_rate,
    "gradient": lambda config: f"{config.model.uncertainty_gradient:g}",
    "noise": lambda config: f"{config.objective.uncertainty_noise:g}" if config.objective.uncertainty_noise else NOTHING,
    "mixed": _mixed,
    "with": _compared_with,
    "mixed images teach": lambda config: {"all": "all", "uncertainty": "uncertainty alone"}[config.mixing.mixed_teaches],
}


def forms() -> str:
    """The table, in Markdown."""
    configs = {loss: recipe(f"cub-{loss.replace('_', '-')}") for loss in IN_ORDER}
    cells = [[TITLES[loss], *(column(config) for column in COLUMNS.values())] for loss, config in configs.items()]
    return table(["loss", *COLUMNS], cells)
