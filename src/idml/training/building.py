"""What a config describes, built: rows to train and to validate on, the network, the objective."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.cache import Cache
from idml.data.splits import FEWEST_CLASSES, GALLERY, QUERY, TEST, TRAIN, Fold, held_out_classes
from idml.losses import LOSSES
from idml.models.embedder import Embedder
from idml.objective import Objective
from idml.training.config import Config

FEW = 2  # images of a class in a batch, on average: below, a loss that compares them has little to do


def training_and_validation_rows(config: Config, cache: Cache) -> tuple[Int[Tensor, " n"], Int[Tensor, " v"]]:
    """Rows of the classes to train on, and of those held out; without validation the latter are none."""
    rows, data = cache.rows(TRAIN), config.data
    classes = cache.labels[rows].unique().tolist()
    if len(classes) < FEWEST_CLASSES:
        named = ", ".join(repr(cache.class_names[number]) for number in classes)
        raise ValueError(
            f"all training images of {cache.meta.place} are of one class, {named}: add others, a folder each, for a "
            "model learns to tell classes apart."
        )
    if not data.holds_out:
        _check_that_classes_have_pairs(config, cache, rows)
        return rows, rows[:0]
    share = data.validation_share if data.validation_half == "none" else f"{data.validation_half} half"
    if data.validation_folds is not None:
        share = Fold(config.run.seed, data.validation_folds)
    rows, held_out = held_out_classes(rows, cache.labels[rows], share=share, seed=data.validation_seed)  # pyright: ignore[reportArgumentType]
    _check_that_classes_have_pairs(config, cache, rows)
    check_can_be_scored("validation", cache.labels[held_out])
    return rows, held_out


def _check_that_classes_have_pairs(config: Config, cache: Cache, rows: Int[Tensor, " n"]) -> None:
    """Raise for a loss that compares images, where no class has two."""
    if not LOSSES[config.objective.loss].proxies and cache.labels[rows].unique(return_counts=True)[1].max() < 2:
        raise ValueError(
            f"no training class of {cache.meta.place} has two images, and {config.objective.loss} compares images of a "
            "class: add images, or take a loss with proxies (loss=proxy_anchor)."
        )


def warning_about_batches(config: Config, classes: int) -> str | None:
    """Why a loss may find little to compare in a batch of so many classes, if it may."""
    is_filled = config.data.batch >= FEW * classes
    if config.data.per_class is not None or LOSSES[config.objective.loss].proxies or is_filled:
        return None
    return (
        f"{config.objective.loss} compares images of a class, and per_class is none: batches of images at random may "
        "hold few of one class. Set per_class=4"
    )


def scored_rows(cache: Cache) -> tuple[Int[Tensor, " t"], Int[Tensor, " g"] | None] | None:
    """Rows to score at the end, and of the gallery they are looked for in, if that is another; None without any."""
    if TEST in cache.splits:
        rows, gallery = cache.rows(TEST), None
    elif QUERY not in cache.splits:
        return None
    elif GALLERY not in cache.splits:
        raise ValueError(f"{cache.folder} has queries and no gallery to find them in: prepare it with both.")
    else:
        rows, gallery = cache.rows(QUERY), cache.rows(GALLERY)
    check_can_be_scored("test", cache.labels[rows], None if gallery is None else cache.labels[gallery])
    return rows, gallery


def check_can_be_scored(kind: str, labels: Int[Tensor, " n"], gallery: Int[Tensor, " m"] | None = None) -> None:
    """Raise where retrieval has no meaning: too few classes, or no image has another one of its class to find."""
    classes, counts = labels.unique(return_counts=True)
    number = len(classes) if gallery is None else len(torch.cat([labels, gallery]).unique())
    if number < FEWEST_CLASSES:
        raise ValueError(f"the {kind} images are of {number} class, and cannot be scored: it takes {FEWEST_CLASSES}.")
    can_be_found = counts > 1 if gallery is None else torch.isin(classes, gallery)
    if not can_be_found.any():
        where = "another one of its class" if gallery is None else "one of its class in the gallery"
        raise ValueError(f"none of the {len(labels)} {kind} images has {where} to find: add images, or prepare anew.")


def build_model(config: Config) -> Embedder:
    """The network that a config describes, with the weights it starts from."""
    model = config.model
    built = Embedder(
        model.backbone,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim if config.objective.introspective else None,
        weights=model.weights,
        pooling=model.pooling,
        frozen_batch_norm=model.frozen_batch_norm,
        frozen_layers=model.frozen_layers,
        semantic_normalise=model.semantic_normalise,
        form=model.form,
        image_size=config.data.scored_size,
    )
    only = built.backbone.only_size
    if only is not None and config.data.image_size != only:
        raise ValueError(
            f"image_size is {config.data.image_size} and test_size {only}: backbone {model.backbone!r} works at one "
            "size, so leave test_size out."
        )
    return built


def build_objective(config: Config, classes: int) -> Objective:
    """What the run minimises, with a proxy for each class where the loss has proxies."""
    chosen, model = config.objective, config.model
    return Objective(
        chosen.loss,
        chosen.distance,
        num_classes=classes,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim,
        learn_proxy_uncertainty=chosen.introspective and chosen.learn_proxy_uncertainty,
        distance_scale=chosen.distance_scale,
        taught_by=chosen.taught_by,
        miner_options=chosen.miner_options,
        **dict[str, Any](chosen.loss_options),
    )
