"""Everything that decides a training run, in one tree of frozen dataclasses.

A run saves its config whole. Leaves have names of their own, so that `--set tau=3` needs no path.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from idml.errors import unknown_name
from idml.losses import LOSSES
from idml.training import effects
from idml.training.parts import DataConfig, MixingConfig, ModelConfig, ObjectiveConfig, OptimiserConfig, RunConfig
from idml.training.reading import OPTIONS, check_choices, read, read_option, split_change


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. Equal configs, data and seeds give equal runs."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    mixing: MixingConfig = field(default_factory=MixingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self):
        for part in PARTS:
            check_choices(getattr(self, part))
        if self.run.select == "best" and not self.data.holds_out:
            raise ValueError(
                "select=best needs validation classes, and validation_share is 0: hold some out (validation_share=0.2) "
                "or take the last epoch. Test classes are never selected on."
            )
        if self.objective.uncertainty_noise and self.objective.introspective and self.model.uncertainty != "learned":
            raise ValueError(
                f"uncertainty_noise is {self.objective.uncertainty_noise:g}, and uncertainty={self.model.uncertainty} "
                "is a control without it: set one of them back (uncertainty_noise=0, uncertainty=learned)."
            )
        if self.mixing.mixed_teaches == "uncertainty" and not self.idle(["mixed_teaches"]):
            self._check_that_mixed_images_can_teach_uncertainty_alone()

    def _check_that_mixed_images_can_teach_uncertainty_alone(self) -> None:
        self.mixing.check_teaching_alone()
        if self.model.uncertainty == "random":
            raise ValueError(
                "uncertainty is random, which learns nothing, and mixed images are to teach it alone: set mixing=none, "
                "or mixed_teaches=all."
            )
        if self.mixing.mixing != "features" and not self.model.frozen_batch_norm:
            raise ValueError(
                "frozen_batch_norm is false, and mixed images that teach uncertainty alone would be normalised apart "
                "from originals: set frozen_batch_norm=true, mixing=features, or mixed_teaches=all."
            )

    def with_changes(self, changes: Iterable[str] | Mapping[str, Any]) -> Config:
        """This config with leaves changed: "tau=3", "loss_options.margin=0.2", or by a mapping.

        >>> Config().with_changes(["tau=3", "batch=64"]).objective.tau
        3.0
        """
        given: dict[str, Any] = {}  # in the order of the last word on each
        for name, value in changes.items() if isinstance(changes, Mapping) else map(split_change, changes):
            given.pop(name, None)
            given[name] = value
        changed: dict[str, dict[str, Any]] = {}  # part by part, so that leaves which belong together change together
        for name, value in given.items():
            place, leaf, key = _located(name)
            leaves = changed.setdefault(place, {})
            value = read_setting(name, value)
            if key:  # inside a leaf that is a dict: loss_options.margin=0.2
                value = {**leaves.get(leaf, getattr(getattr(self, place), leaf)), key: value}
            leaves[leaf] = value
        self._check_options_of_another_loss(given)
        return replace(self, **{place: replace(getattr(self, place), **leaves) for place, leaves in changed.items()})

    def _check_options_of_another_loss(self, given: Mapping[str, Any]) -> None:
        """Raise if options that were chosen for one loss would go on to another unnoticed."""
        loss = given.get("loss", self.objective.loss)
        if loss == self.objective.loss:
            return
        for leaf in OPTIONS:
            left = [name for name in getattr(self.objective, leaf) if f"{leaf}.{name}" not in given]
            if left and leaf not in given:
                raise ValueError(
                    f"{leaf}.{left[0]} is set for {self.objective.loss}, not for {loss}: give {leaf}=none, and after "
                    "it what is to be set."
                )

    def leaf(self, name: str) -> Any:
        """The value of a setting, or of a key in it, which is None where it is not set.

        >>> Config().leaf("tau"), Config().leaf("loss_options.margin")
        (5.0, None)
        """
        place, leaf, key = _located(name)
        value = getattr(getattr(self, place), leaf)
        return value.get(key) if key else value

    def idle(self, names: Iterable[str]) -> list[str]:
        """Of these settings those that have no effect beside the others.

        >>> Config().with_changes(["introspective=false", "mixing=none"]).idle(["tau", "lr", "mixing"])
        ['tau']
        """
        leaves = {name: _located(name)[1] for name in names}
        known = effects.idle(self.to_dict())
        return [name for name, leaf in leaves.items() if leaf in known]

    @property
    def effective(self) -> Config:
        """The same run, by settings alone that have an effect: others have their default values."""
        return Config.from_dict(effects.without_idle(self.to_dict(), Config().to_dict()))

    def plain(self) -> Config:
        """The baseline of this run: the loss on its plain distance, without uncertainty and mixed images.

        What has an effect beside these alone has its default value, so that variants of a run share one baseline.
        """
        plain = self.with_changes({"introspective": False, "mixing": "none"})
        before, after = (effects.idle(config.to_dict()) for config in (self, plain))
        return plain.with_changes({name: Config().leaf(name) for name in sorted(after - before)})

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """The config that was saved; an unknown key is an error."""
        known = {part.name: part for part in fields(cls)}
        parts = {}
        for name, leaves in values.items():
            if name not in known:
                raise unknown_name("part of a config", name, known)
            kind = PARTS[name]
            leaf_names = [leaf.name for leaf in fields(kind)]
            for leaf in leaves:
                if leaf not in leaf_names:
                    raise unknown_name(f"setting of {name}", leaf, leaf_names)
            stored = {leaf: tuple(value) if isinstance(value, list) else value for leaf, value in leaves.items()}
            parts[name] = kind(**stored)
        return cls(**parts)


PARTS: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "objective": ObjectiveConfig,
    "mixing": MixingConfig,
    "optimiser": OptimiserConfig,
    "run": RunConfig,
}


def read_setting(name: str, value: Any) -> Any:
    """A value as the setting of this name, or a key in it, wants it; text is read as its type."""
    place, leaf, key = _located(name)
    return read_option(name, key, value) if key else read(name, value, typing.get_type_hints(PARTS[place])[leaf])


def _located(name: str) -> tuple[str, str, str]:
    """Part, leaf and key of a setting: "objective", "loss_options" and "margin"; the key of most is ""."""
    leaf, _, key = name.partition(".")
    for place, kind in PARTS.items():
        if leaf in (known.name for known in fields(kind)):
            if key and typing.get_origin(typing.get_type_hints(kind)[leaf]) is not dict:
                raise ValueError(f"{name} is no setting, for {leaf} has no keys: write {leaf}=VALUE.")
            return place, leaf, key
    for options, (_, known_to) in OPTIONS.items():
        if any(leaf in known_to(loss) for loss in LOSSES):
            raise ValueError(f"{leaf} is one of the {options}: write {options}.{leaf}=VALUE.")
    raise unknown_name("setting", leaf, [known.name for kind in PARTS.values() for known in fields(kind)])


def _names_are_unique() -> bool:
    names = [leaf.name for kind in PARTS.values() for leaf in fields(kind)]
    return len(names) == len(set(names))


assert _names_are_unique(), "two settings share a name: --set could not tell them apart"
