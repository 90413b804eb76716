"""What a config describes, built: rows to train and to validate on, the network, the objective."""

from __future__ import annotations

from typing import Any

from jaxtyping import Int
from torch import Tensor

from idml.data.cache import Cache
from idml.data.splits import TRAIN, held_out_classes
from idml.models.embedder import Embedder
from idml.models.heads import UncertaintyForm
from idml.objective import Objective
from idml.training.config import Config


def training_and_validation_rows(config: Config, cache: Cache) -> tuple[Int[Tensor, " n"], Int[Tensor, " v"]]:
    """Rows of the classes to train on, and of those held out; without validation the latter are none."""
    rows, data = cache.rows(TRAIN), config.data
    if data.validation_half != "none":
        return held_out_classes(rows, cache.labels[rows], share=f"{data.validation_half} half")  # pyright: ignore[reportArgumentType]
    if data.validation_share == 0:
        return rows, rows[:0]
    return held_out_classes(rows, cache.labels[rows], share=data.validation_share, seed=data.validation_seed)


def build_model(config: Config) -> Embedder:
    """The network that a config describes, with the weights it starts from."""
    model = config.model
    form = UncertaintyForm(
        normalise=model.uncertainty_normalise,
        gradient_scale=model.uncertainty_gradient,
        starting_level=model.uncertainty_level,
        is_random=model.uncertainty == "random",
    )
    return Embedder(
        model.backbone,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim if config.objective.introspective else None,
        weights=model.weights,
        pooling=model.pooling,
        frozen_batch_norm=model.frozen_batch_norm,
        form=form,
        image_size=config.data.scored_size,
    )


def build_objective(config: Config, classes: int) -> Objective:
    """What the run minimises, with a proxy for each class where the loss has proxies."""
    chosen, model = config.objective, config.model
    return Objective(
        chosen.loss,
        chosen.distance,
        num_classes=classes,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim,
        learn_proxy_uncertainty=chosen.learn_proxy_uncertainty,
        keep_scale=chosen.keep_scale,
        **dict[str, Any](chosen.loss_options),
    )
