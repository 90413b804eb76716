"""Which settings have an effect beside the others: a line each for those that may have none.

Warnings, `idml recipes`, what makes two runs of a log the same, and the arms of a sweep all follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from idml.losses import LOSSES

Settings = SimpleNamespace  # all leaves of a config by their names, which are unique


def _has_proxies(its: Settings) -> bool:
    return its.loss in LOSSES and LOSSES[its.loss].proxies


def _compares_images(its: Settings) -> bool:
    """Or proxies that have an uncertainty of their own: pairs of which both sides may be uncertain."""
    return its.introspective and (not _has_proxies(its) or its.learn_proxy_uncertainty)


def _is_introspective(its: Settings) -> bool:
    return its.introspective


def _learns_uncertainty(its: Settings) -> bool:
    return its.introspective and its.uncertainty != "random"


def _has_taught(its: Settings) -> bool:
    return _learns_uncertainty(its) or (its.introspective and its.learn_proxy_uncertainty)


def holds_out(its: Any) -> bool:
    """Whether some training classes are kept for validation."""
    return its.validation_share > 0 or its.validation_half != "none" or its.validation_folds is not None


def _steps_down(its: Settings) -> bool:
    return its.schedule == "step"


def _mixes(its: Settings) -> bool:
    return its.mixing != "none"


def _mixes_by_loss_shares(its: Settings) -> bool:
    return _mixes(its) and its.mixed_labels == "loss_shares"


HAS_EFFECT: dict[str, Callable[[Settings], bool]] = {
    "crop_scale": lambda its: its.crop == "random_resized",
    "validation_seed": lambda its: its.validation_share > 0,
    "validate_every": holds_out,
    "uncertainty_dim": _is_introspective,
    "uncertainty": _is_introspective,
    "uncertainty_normalise": _learns_uncertainty,
    "uncertainty_gradient": _learns_uncertainty,
    "uncertainty_level": _is_introspective,
    "uncertainty_starts_equal": _learns_uncertainty,
    "tau": _is_introspective,
    "gamma": _is_introspective,
    "smoothing": _is_introspective,
    "pair_uncertainty": _compares_images,
    "learn_proxy_uncertainty": _is_introspective,
    "distance_scale": _is_introspective,
    "taught_by": _has_taught,
    "uncertainty_noise": _is_introspective,
    "level_prior": _learns_uncertainty,
    "mixed_labels": _mixes,
    "mixed_against": lambda its: _mixes_by_loss_shares(its) and (not _has_proxies(its) or its.mixed_against == "all"),
    "mixed_from": _mixes,
    "mixed_weight": lambda its: _mixes_by_loss_shares(its) and its.mixed_against != "all",
    "mixed_teaches": lambda its: _mixes(its) and its.introspective,
    "partner_negatives": lambda its: _mixes(its) and its.mixed_labels in ("loss_shares", "classes"),
    "smallest_share": lambda its: _mixes(its) and its.mixed_labels == "sets",
    "concentration": _mixes,
    "uncertainty_factor": _learns_uncertainty,
    "proxy_factor": _has_proxies,
    "decay_epochs": _steps_down,
    "decay_factor": _steps_down,
}


def idle(values: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The settings of a config, as a dict, that have no effect beside the others."""
    settings = Settings(**{leaf: value for leaves in values.values() for leaf, value in leaves.items()})
    return {name for name, has_effect in HAS_EFFECT.items() if not has_effect(settings)}


def without_idle(
    values: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The same config with the defaults of settings that have no effect."""
    without = idle(values)
    return {
        part: {leaf: defaults[part][leaf] if leaf in without else value for leaf, value in leaves.items()}
        for part, leaves in values.items()
    }


def no_effect(names: Sequence[str]) -> str:
    """The words for it.

    >>> no_effect(["tau", "gamma"])
    'tau, gamma have no effect beside these settings'
    """
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect beside these settings"
