"""What sets the recipes for CUB apart, as a table for RESULTS.md: a line a loss."""

from __future__ import annotations

from collections.abc import Callable

from idml.paper.markdown import table
from idml.paper.rows import TITLES
from idml.recipes import recipe
from idml.sweeping.summary import NOTHING
from idml.training.config import Config

TAUGHT = {"all": "all", "uncertainty": "uncertainty alone"}
SOURCES = {"batch": "the batch", "others": "others"}
COMPARED = {"mixed": "each other", "originals": "originals", "all": "all"}
IN_ORDER = ("softmax", "multi_similarity", "fast_ap", "triplet", "proxy_nca", "proxy_anchor", "margin", "contrastive")


def _written(rate: float) -> str:
    return f"{rate:.0e}".replace("e-0", "e-")


def _noise(config: Config) -> str:
    noise = config.objective.uncertainty_noise
    return f"{noise:g}" if noise else NOTHING


def _mixed(config: Config) -> str:
    """What is mixed, how much of it, and at which weight."""
    mixing = config.mixing
    what = "features" if mixing.mixing == "features" else SOURCES[mixing.mixed_from]
    strength = "" if mixing.concentration == 1 else f", Beta({mixing.concentration:g}, {mixing.concentration:g})"
    weight = "" if mixing.mixed_weight == 1 else f", weight {mixing.mixed_weight:g}"
    return f"{what}{strength}{weight}"


def _compared_with(config: Config) -> str:
    return "proxies" if config.idle(["mixed_against"]) else COMPARED[config.mixing.mixed_against]


def _options(config: Config) -> str:
    given = {**config.objective.loss_options, **config.objective.miner_options}
    return ", ".join(f"{name} {value:g}" for name, value in given.items()) or NOTHING


COLUMNS: dict[str, Callable[[Config], str]] = {
    "options": _options,
    "rate": lambda config: _written(config.optimiser.lr),
    "epochs": lambda config: f"{config.run.epochs}, {config.optimiser.warm_up_epochs} of them warm-up",
    "distances": lambda config: config.objective.distance_scale,
    "taught by": lambda config: config.objective.taught_by,
    "its layer's rate": lambda config: _written(config.optimiser.lr * config.optimiser.uncertainty_factor),
    "gradient": lambda config: f"{config.model.uncertainty_gradient:g}",
    "noise": _noise,
    "mixed": _mixed,
    "with": _compared_with,
    "mixed images teach": lambda config: TAUGHT[config.mixing.mixed_teaches],
}


def forms() -> str:
    """The table, in Markdown."""
    configs = {loss: recipe(f"cub-{loss.replace('_', '-')}") for loss in IN_ORDER}
    cells = [[TITLES[loss], *(column(config) for column in COLUMNS.values())] for loss, config in configs.items()]
    return table(["loss", *COLUMNS], cells)
