"""The parts of a config: images, network, objective, mixing, optimiser, and how a run goes on; each checks itself.

Docstrings say what each setting is, `name: …`, one after another: `idml recipes RECIPE` shows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from idml.data.batches import check_between
from idml.data.mixing import LEAST_CONCENTRATION
from idml.data.splits import check_validation_split
from idml.distances import Introspective
from idml.errors import unknown_name
from idml.losses import LOSSES
from idml.models.heads import UncertaintyForm, UncertaintyKind
from idml.models.preprocessing import resized
from idml.training import effects
from idml.training.reading import check_above_0, check_at_least, check_options, written


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and how they are cut out.

    crop: "random_resized" (torchvision's), or "resize_and_crop" (the paper's: 256 × 256, then a random image_size).
    crop_scale: the least and the largest share of the area that a random-resized crop has.
    image_size: pixels of a side of the crops that are trained on.
    test_size: of the crops that are scored; none is image_size. Random-resized crops show objects larger than they
    are when scored, so networks trained on somewhat smaller crops do better, and faster (Touvron et al., 2019).
    flip: mirror half of the crops.
    batch: images a step, without mixed ones; over all processes.
    per_class: images of each class in a batch; none takes images at random, for losses with proxies.
    validation_share: of the training classes, held out to choose epochs and settings by; 0 trains on all of them.
    validation_half: hold out that half of the class numbers instead.
    validation_folds: hold out one of so many parts of them, another one with each seed: over as many seeds, every class
    is validated on once.
    validation_seed: which classes a share holds out, whatever the seed of the run.
    validation_split: of which classes are held out; all but train is refused, with the reason.
    """

    crop: Literal["random_resized", "resize_and_crop"] = "random_resized"
    crop_scale: tuple[float, float] = (0.16, 1.0)
    image_size: int = 224
    test_size: int | None = None
    flip: bool = True
    batch: int = 120
    per_class: int | None = None
    validation_share: float = 0.0
    validation_half: Literal["none", "first", "second"] = "none"
    validation_folds: int | None = None
    validation_seed: int = 0
    validation_split: Literal["train", "test", "query", "gallery"] = "train"

    def __post_init__(self):
        check_at_least(self, 1, "image_size", "test_size", "batch", "per_class")
        check_between("validation_share", self.validation_share, 0.0, 0.9)
        check_at_least(self, 2, "validation_folds")
        self._check_one_way_to_hold_out()
        check_validation_split(self.validation_split)
        smallest, largest = self.crop_scale
        if not 0 < smallest <= largest <= 1:
            raise ValueError(f"crop_scale is {smallest:g},{largest:g}: give two shares of the image's area, as 0.16,1.")

    @property
    def holds_out(self) -> bool:
        """Whether some training classes are kept for validation."""
        return effects.holds_out(self)

    def _check_one_way_to_hold_out(self) -> None:
        ways = {
            "validation_share": self.validation_share > 0,
            "validation_half": self.validation_half != "none",
            "validation_folds": self.validation_folds is not None,
        }
        given = [f"{name}={written(getattr(self, name))}" for name, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both hold out classes: hold them out in one way.")

    @property
    def scored_size(self) -> int:
        return self.image_size if self.test_size is None else self.test_size

    @property
    def prepared_size(self) -> int:
        """The short side that images are best prepared with: scored crops are then cut out pixel by pixel."""
        return resized(max(self.image_size, self.scored_size))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network: see `idml.Embedder`.

    backbone: any of timm's; resnet50_v1, with strides where the first ResNets have them; or efficientnet_lite0, whose
    weights come with a package.
    weights: "pretrained", a file, or none.
    pooling: of the last feature map; "class_token" for transformers that have one.
    dim: of the semantic embedding.
    uncertainty_dim: of the uncertainty embedding, where there is one.
    frozen_batch_norm: statistics of batch-norm stay as they are; its scale and shift are learned.
    frozen_layers: of the backbone, not trained: conv1,bn1,layer1 of a ResNet.
    semantic_normalise: LayerNorm, without parameters, on what the semantic layer sees.
    uncertainty: "random" is a control that learns nothing: directions, and lengths around uncertainty_level, drawn anew
    in each step; "common" one that learns how much, but not of which image: all of a batch have the same length.
    uncertainty_normalise: LayerNorm, without parameters, on what the uncertainty layer sees.
    uncertainty_gradient: the share of the uncertainty layer's gradient that reaches the backbone; above 1 amplifies it.
    uncertainty_level: the mean level at the start; none leaves it to chance.
    uncertainty_starts_equal: all images have that level at the start.
    """

    backbone: str = "resnet50"
    weights: str | None = "pretrained"
    pooling: Literal["average", "max", "average_max", "gem", "class_token"] = "average_max"
    dim: int = 512
    uncertainty_dim: int = 512
    frozen_batch_norm: bool = True
    frozen_layers: tuple[str, ...] = ()
    semantic_normalise: bool = False
    uncertainty: UncertaintyKind = "learned"
    uncertainty_normalise: bool = True
    uncertainty_gradient: float = 0.1
    uncertainty_level: float | None = 0.1
    uncertainty_starts_equal: bool = False

    def __post_init__(self):
        check_at_least(self, 1, "dim", "uncertainty_dim")
        check_at_least(self, 0, "uncertainty_gradient")
        check_above_0(self, "uncertainty_level")
        if self.uncertainty_starts_equal and self.uncertainty_level is None:
            raise ValueError(
                "uncertainty_starts_equal needs an uncertainty_level, which all images start with: give a number."
            )

    @property
    def form(self) -> UncertaintyForm:
        """How the uncertainty layer is attached."""
        return UncertaintyForm(
            normalise=self.uncertainty_normalise,
            gradient_scale=self.uncertainty_gradient,
            starting_level=self.uncertainty_level,
            starts_equal=self.uncertainty_starts_equal,
            kind=self.uncertainty,
        )


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised.

    loss: which of the losses.
    loss_options: of the loss: its margins and scales.
    miner_options: of the miner that chooses pairs for the loss.
    introspective: otherwise the loss is on its plain distance, and there is no uncertainty.
    tau: by how much a relative uncertainty softens a distance, exp(−β̃/τ): the smaller, the more.
    gamma: doubt that every pair has besides.
    smoothing: ε in √(‖·‖² + ε²) − ε, which replaces every length in β; 0 is the paper's.
    pair_uncertainty: β of a pair: the length of the sum of both uncertainties, as in the paper, or the sum of lengths.
    learn_proxy_uncertainty: proxies have uncertainties of their own; else they are certain.
    distance_scale: "relative" divides distances by their mean weight in the batch, so that margins keep their meaning;
    "centred" leaves pairs of mean uncertainty at the distance of certain images: what counts is who is more ambiguous.
    taught_by: "positives" lets uncertainty learn from positive pairs alone, how far they are apart; take centred
    distances with it, for in others nothing holds uncertainty back.
    uncertainty_noise: 0 to 1; in each step uncertainty is multiplied by numbers from 1 − noise to 1 + noise, so that
    distances from an uncertain image are uncertain themselves.
    level_prior: so much of the mean squared level is added to the loss.
    """

    loss: str = "proxy_anchor"
    loss_options: dict[str, Any] = field(default_factory=dict)
    miner_options: dict[str, Any] = field(default_factory=dict)
    introspective: bool = True
    tau: float = 5.0
    gamma: float = 0.0
    smoothing: float = 1.0
    pair_uncertainty: Literal["norm_of_sum", "sum_of_norms"] = "norm_of_sum"
    learn_proxy_uncertainty: bool = False
    distance_scale: Literal["shrunken", "relative", "centred"] = "shrunken"
    taught_by: Literal["all", "positives"] = "all"
    uncertainty_noise: float = 0.0
    level_prior: float = 0.0

    def __post_init__(self):
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        check_options(self.loss, "loss_options", self.loss_options)
        check_options(self.loss, "miner_options", self.miner_options)
        if self.learn_proxy_uncertainty and self.introspective and not LOSSES[self.loss].proxies:
            raise ValueError(
                f"learn_proxy_uncertainty is true, and {self.loss} has no proxies: set it to false, or change the loss."
            )
        check_between("uncertainty_noise", self.uncertainty_noise, 0.0, 1.0)
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
    """Mixed images beside the originals.

    mixing: of images (Zhang et al., ICLR 2018; Yun et al., ICCV 2019), or "features", which mixes pooled features
    (Venkataramanan et al., ICLR 2022) and needs no pass of its own.
    mixed_labels: "loss_shares" adds mixed_weight · (share · J(own labels) + (1 − share) · J(partners' labels)) of the
    mixed images, compared with proxies, or where a loss has none with mixed_against. "sets" (of classes that have more
    than smallest_share), "shares" and "classes" label all images so, originals and mixed ones compared together; with
    "classes" each two classes that are mixed make a new one, with a mixed proxy (Gu et al., AAAI 2021).
    mixed_against: what mixed images are compared with, where a loss has no proxies; "all", with proxies too, has one J
    of originals and mixed images, for each of the two labels, without a weight.
    mixed_from: the images of the batch are mixed with each other, or as many "others", drawn like it and apart from it,
    are: at the same cost a step shows up to twice as many images.
    mixed_weight: of what mixed images add to the loss.
    mixed_teaches: "uncertainty" keeps what mixed images teach from semantic embeddings, of images and of proxies, for
    losses that Mixup harms; they go through the backbone without gradients, which has its share (uncertainty_gradient)
    of what originals' uncertainty learns beside them. They still count in the mean by which centred and relative
    distances of originals are scaled. Without uncertainty, all learns.
    partner_negatives: otherwise, by shares of the loss or classes, no pair whose label sets meet is a negative.
    smallest_share: a mixed image is in both of its classes, by sets, if it has more than this share of each.
    concentration: shares are drawn from Beta(concentration, concentration): the smaller, the less is mixed.
    """

    mixing: Literal["none", "mixup", "cutmix", "features"] = "none"
    mixed_labels: Literal["loss_shares", "sets", "shares", "classes"] = "loss_shares"
    mixed_against: Literal["mixed", "originals", "all"] = "mixed"
    mixed_from: Literal["batch", "others"] = "batch"
    mixed_weight: float = 1.0
    mixed_teaches: Literal["all", "uncertainty"] = "all"
    partner_negatives: bool = True
    smallest_share: float = 0.0
    concentration: float = 1.0

    def __post_init__(self):
        check_at_least(self, 0, "mixed_weight")
        check_between("smallest_share", self.smallest_share, 0.0, 1.0)
        check_at_least(self, LEAST_CONCENTRATION, "concentration")
        if self.mixing == "features" and self.mixed_from == "others":
            raise ValueError(
                "mixed_from=others has images of its own, and mixing=features none: choose mixup, or the batch."
            )

    def check_teaching_alone(self) -> None:
        """Raise where what mixed images add to the loss cannot be kept from semantic embeddings."""
        told = "and mixed images that teach uncertainty alone need a J of their own"
        if self.mixed_labels != "loss_shares":
            raise ValueError(
                f"mixed_labels is {self.mixed_labels}, {told}: set mixed_labels=loss_shares, or mixed_teaches=all."
            )
        if self.mixed_against == "all":
            raise ValueError(f"mixed_against is all, {told}: set it to mixed or originals, or mixed_teaches=all.")


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """AdamW, with a learning rate for each part.

    lr: of the backbone.
    head_factor: the semantic layer learns at so many times that rate.
    uncertainty_factor: the same, for the uncertainty layer.
    proxy_factor: the same, for proxies.
    weight_decay: of all weights.
    schedule: "step" multiplies rates by decay_factor every decay_epochs, "cosine" lets them fall to 0.
    decay_epochs: between two steps of the schedule.
    decay_factor: of a step of the schedule.
    warm_up_epochs: in which only new layers and proxies are trained.
    clip: no element of a gradient is larger than this; none leaves them as they are.
    average: the model is the moving average of its weights, of which each step keeps this share (0.99); none: the last.
    accumulate: batches a step.
    cached_chunk: embed large batches by so many images, keeping only embeddings (GradCache: Gao et al., 2021): the same
    gradients in less memory, where batch-norm is frozen; else each chunk is normalised by itself.
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
        check_above_0(self, "lr", "decay_factor")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is {self.clip}: give a number above 0.")
        check_at_least(self, 1, "decay_epochs", "accumulate", "cached_chunk")
        factors = ("head_factor", "uncertainty_factor", "proxy_factor")
        check_at_least(self, 0, *factors, "weight_decay", "warm_up_epochs")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average is {self.average}: give a share between 0 and 1, such as 0.99, or none.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long, on what, and how often to look.

    epochs: passes over the training images.
    seed: of everything random.
    precision: "bfloat16" runs the backbone in it under autocast.
    compile: the backbone, by torch.compile: slow to start, and faster from then on.
    channels_last: memory in the order that convolutions on a GPU prefer.
    validate_every: epochs between validations.
    select: which epoch becomes the model, the last, or the best on validation classes.
    checkpoint_minutes: between two checkpoints, beside those after epochs.
    """

    epochs: int = 30
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    compile: bool = False
    channels_last: bool = True
    validate_every: int = 1
    select: Literal["last", "best"] = "last"
    checkpoint_minutes: float = 5.0

    def __post_init__(self):
        check_at_least(self, 1, "epochs", "validate_every")
        check_at_least(self, 0, "checkpoint_minutes")
