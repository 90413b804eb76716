"""Everything that decides a training run, in one tree of frozen dataclasses.

A run saves its config whole. Leaves have names of their own, so that `--set tau=3` needs no path.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from idml.data.batches import check_between
from idml.data.splits import check_validation_split
from idml.distances import Introspective
from idml.errors import unknown_name
from idml.losses import LOSSES
from idml.models.preprocessing import resized
from idml.training.reading import (
    check_above_0,
    check_at_least,
    check_choices,
    options_of,
    read,
    read_option,
    split_change,
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and how they are cut out.

    crop: "random_resized" (torchvision's), or "resize_and_crop" (the paper's: 256 × 256, then a random `image_size`).
    validation_share: of the training classes, held out to choose epochs and settings by; 0 trains on all of them.
    validation_half: hold out that half of the class numbers instead.
    test_size: of the crops that are scored; None is image_size. Random-resized crops show objects larger than they
    are when scored, so networks trained on somewhat smaller crops do better, and faster (Touvron et al., 2019).
    """

    crop: Literal["random_resized", "resize_and_crop"] = "random_resized"
    crop_scale: tuple[float, float] = (0.16, 1.0)
    image_size: int = 224
    test_size: int | None = None
    flip: bool = True
    batch: int = 120
    per_class: int | None = None  # images of each class in a batch; None: at random
    validation_share: float = 0.0
    validation_half: Literal["none", "first", "second"] = "none"
    validation_seed: int = 0
    validation_split: Literal["train", "test", "query", "gallery"] = "train"  # the others are refused, with the reason

    def __post_init__(self):
        check_at_least(self, 1, "image_size", "test_size", "batch", "per_class")
        check_between("validation_share", self.validation_share, 0.0, 0.9)
        check_validation_split(self.validation_split)
        smallest, largest = self.crop_scale
        if not 0 < smallest <= largest <= 1:
            raise ValueError(f"crop_scale is {smallest:g},{largest:g}: give two shares of the image's area, as 0.16,1.")

    @property
    def scored_size(self) -> int:
        return self.image_size if self.test_size is None else self.test_size

    @property
    def prepared_size(self) -> int:
        """The short side that images are best prepared with: scored crops are then cut out pixel by pixel."""
        return resized(max(self.image_size, self.scored_size))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network: see `idml.Embedder`. uncertainty_dim is used by introspective runs only.

    uncertainty: "random" is a control: directions drawn anew in each step, of length uncertainty_level, learn nothing.
    """

    backbone: str = "resnet50"
    weights: str | None = "pretrained"  # or a file, or None
    pooling: Literal["average", "max", "average_max", "gem"] = "average_max"
    dim: int = 512
    uncertainty_dim: int = 512
    frozen_batch_norm: bool = True
    uncertainty: Literal["learned", "random"] = "learned"
    uncertainty_normalise: bool = True
    uncertainty_gradient: float = 0.1
    uncertainty_level: float | None = 0.1  # mean level at the start

    def __post_init__(self):
        check_at_least(self, 1, "dim", "uncertainty_dim")
        check_between("uncertainty_gradient", self.uncertainty_gradient, 0.0, 1.0)
        check_above_0(self, "uncertainty_level")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised. introspective=False is the loss on its plain distance, without an uncertainty head.

    distance_scale: "kept" and "balanced" divide distances by mean weights, so that margins keep their meaning.
    level_prior: so much of the mean squared level is added to the loss.
    """

    loss: str = "proxy_anchor"
    loss_options: dict[str, Any] = field(default_factory=dict)
    introspective: bool = True
    tau: float = 5.0
    gamma: float = 0.0
    smoothing: float = 1.0
    pair_uncertainty: Literal["norm_of_sum", "sum_of_norms"] = "norm_of_sum"
    learn_proxy_uncertainty: bool = False
    distance_scale: Literal["shrunken", "kept", "balanced"] = "shrunken"
    level_prior: float = 0.0

    def __post_init__(self):
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        for name in self.loss_options:
            if name not in options_of(self.loss):
                raise unknown_name(f"option of the {self.loss} loss", name, options_of(self.loss))
        check_at_least(self, 0, "level_prior")

    @property
    def distance(self) -> Introspective | None:
        if not self.introspective:
            return None
        return Introspective(
            tau=self.tau, gamma=self.gamma, smoothing=self.smoothing, pair_uncertainty=self.pair_uncertainty
        )


@dataclass(frozen=True, kw_only=True)
class MixingConfig:
    """Mixed images beside the originals, in one forward pass.

    mixing: "features" mixes pooled features (Venkataramanan et al., ICLR 2022), which needs no pass of its own.
    mixed_labels: "loss_shares" adds mixed_weight · (share · J(own labels) + (1 − share) · J(partners' labels)) of the
    mixed images, compared with proxies, or where a loss has none with mixed_against; unless partner_negatives, no pair
    whose label sets meet is a negative in it. "sets" (of classes that have more
    than smallest_share) and "shares" label all images so, originals and mixed ones compared together. So does
    "classes", where each two classes that are mixed make a new one, with a mixed proxy (Gu et al., AAAI 2021).
    """

    mixing: Literal["none", "mixup", "cutmix", "features"] = "none"
    mixed_labels: Literal["loss_shares", "sets", "shares", "classes"] = "loss_shares"
    mixed_against: Literal["mixed", "originals"] = "mixed"
    mixed_weight: float = 1.0
    partner_negatives: bool = True
    smallest_share: float = 0.0
    concentration: float = 1.0

    def __post_init__(self):
        check_at_least(self, 0, "mixed_weight")
        check_between("smallest_share", self.smallest_share, 0.0, 1.0)
        check_above_0(self, "concentration")


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """AdamW with a learning rate for each part; factors are of `lr`.

    warm_up_epochs: only the new layers are trained. schedule: "step" halves (by decay_factor) every decay_epochs.
    average: the model is the moving average of its weights, of which each step keeps this share (0.99); None: the last.
    accumulate: batches a step. cached_chunk: embed large batches by so many images, keeping only embeddings
    (GradCache: Gao et al., 2021): the same gradients in less memory, where batch-norm is frozen; else each chunk is
    normalised by itself.
    """

    lr: float = 1e-4
    head_factor: float = 1.0
    uncertainty_factor: float = 1.0
    proxy_factor: float = 100.0
    weight_decay: float = 1e-4
    schedule: Literal["constant", "step", "cosine"] = "step"
    decay_epochs: int = 5
    decay_factor: float = 0.5
    warm_up_epochs: int = 5
    clip: float | None = 10.0
    average: float | None = None
    accumulate: int = 1
    cached_chunk: int | None = None

    def __post_init__(self):
        check_above_0(self, "lr", "decay_factor", "clip")
        check_at_least(self, 1, "decay_epochs", "accumulate", "cached_chunk")
        factors = ("head_factor", "uncertainty_factor", "proxy_factor")
        check_at_least(self, 0, *factors, "weight_decay", "warm_up_epochs")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average is {self.average}: give a share between 0 and 1, such as 0.99, or none.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long, on what, and how often to look.

    precision: "bfloat16" runs the backbone in it under autocast. validate_every: epochs between validations.
    select: which epoch becomes the model, the last, or the best on validation classes.
    """

    epochs: int = 30
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    compile: bool = False
    channels_last: bool = True
    validate_every: int = 1
    select: Literal["last", "best"] = "last"
    checkpoint_minutes: float = 5.0  # and after epochs

    def __post_init__(self):
        check_at_least(self, 1, "epochs", "validate_every")
        check_at_least(self, 0, "checkpoint_minutes")


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
        if self.run.select == "best" and self.data.validation_share == 0 and self.data.validation_half == "none":
            raise ValueError(
                "select=best needs validation classes, and validation_share is 0: hold some out (validation_share=0.2) "
                "or take the last epoch. Test classes are never selected on."
            )

    def with_changes(self, changes: Iterable[str] | Mapping[str, Any]) -> Config:
        """This config with leaves changed: "tau=3", "loss_options.margin=0.2", or by a mapping.

        >>> Config().with_changes(["tau=3", "batch=64"]).objective.tau
        3.0
        """
        given = dict(changes) if isinstance(changes, Mapping) else dict(split_change(change) for change in changes)
        changed: dict[str, dict[str, Any]] = {}  # part by part, so that leaves which belong together change together
        for name, value in given.items():
            place, leaf, key = _located(name)
            leaves = changed.setdefault(place, {})
            value = read_setting(name, value)
            if key:  # inside a leaf that is a dict: loss_options.margin=0.2
                value = {**leaves.get(leaf, getattr(getattr(self, place), leaf)), key: value}
            leaves[leaf] = value
        return replace(self, **{place: replace(getattr(self, place), **leaves) for place, leaves in changed.items()})

    def leaf(self, name: str) -> Any:
        """The value of a setting, or of a key in it, which is None where it is not set.

        >>> Config().leaf("tau"), Config().leaf("loss_options.margin")
        (5.0, None)
        """
        place, leaf, key = _located(name)
        value = getattr(getattr(self, place), leaf)
        return value.get(key) if key else value

    def plain(self) -> Config:
        """The baseline of this run: the loss on its plain distance, without uncertainty and mixed images.

        What would concern these has its default value, so that variants of a run share one baseline.
        """
        given, usual = self.model, ModelConfig()
        of_uncertainty = [leaf.name for leaf in fields(ModelConfig) if leaf.name.startswith("uncertainty")]
        return replace(
            self,
            model=replace(given, **{name: getattr(usual, name) for name in of_uncertainty}),
            objective=ObjectiveConfig(
                loss=self.objective.loss, loss_options=self.objective.loss_options, introspective=False
            ),
            mixing=MixingConfig(),
        )

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
    raise unknown_name("setting", leaf, [known.name for kind in PARTS.values() for known in fields(kind)])


def _names_are_unique() -> bool:
    names = [leaf.name for kind in PARTS.values() for leaf in fields(kind)]
    return len(names) == len(set(names))


assert _names_are_unique(), "two settings share a name: --set could not tell them apart"
