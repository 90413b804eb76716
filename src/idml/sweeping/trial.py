"""One run of a sweep: trained without leaving files, judged on validation classes, or finally on the test classes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.data.splits import QUERY, TEST
from idml.embedding import Embedding
from idml.evaluation.ambiguity import told_apart
from idml.evaluation.judging import evaluate
from idml.evaluation.scores import Scores
from idml.models.embedder import Embedder
from idml.training.building import scored_rows
from idml.training.config import Config
from idml.training.embedding import centre_crops, embed_all, embed_images, some_places
from idml.training.loop import Run, never
from idml.training.watching import Silent, Watch
from idml.training.workshop import Workshop

AT_IMAGE_SIZE = ("recall@1", "map_at_r")  # also scored on crops as large as those of training, for comparison
OF_TRAINING = (  # in the last epoch
    "weight_positive",
    "weight_negative",
    "weight_mixed",
    "weight_deviation",
    "saturated_pairs",
)


def run_trial(
    config: Config,
    cache: Cache,
    *,
    device: torch.device,
    workshop: Workshop,
    should_stop: Callable[[dict[str, Any]], bool] = never,
    is_final: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Train one config; what came out, ready for the lab log.

    is_final: score the test classes, with NMI, and where test_size is another than image_size, on crops of both sizes;
    otherwise the validation classes, which the config must hold out.
    A run that was stopped has the scores of where it stopped.
    """
    check_trial(config, cache, is_final=is_final)
    start = time.perf_counter()
    run = Run(config, cache, device, workshop, watch=watch or Silent())
    prepared = time.perf_counter()
    reached_the_end = run.go(should_stop)
    trained = time.perf_counter()
    rows = cache.rows(TEST) if is_final else run.validation_rows
    pixels = workshop.passing_pixels(cache, rows, device) if is_final else run.validation
    found = _scores(config, run.model, pixels, cache.labels[rows], clustering=is_final)
    if is_final and config.data.scored_size != config.data.image_size:
        found |= _scores_at_image_size(config, run.model, pixels, cache.labels[rows])
    last = run.records[-1]
    return {
        "split": "test" if is_final else "validation",
        "scores": found | {name: last[name] for name in OF_TRAINING if name in last},
        "epochs": [_rounded(record) for record in run.records],
        "stopped": None if reached_the_end else last["epoch"],
        "seconds": round(time.perf_counter() - start, 2),
        "seconds_preparing": round(prepared - start, 2),
        "seconds_training": round(trained - prepared, 2),
    }


def check_trial(config: Config, cache: Cache, *, is_final: bool) -> None:
    """Raise for a config that cannot be judged so."""
    if is_final and TEST not in cache.splits:
        needed = "galleries are not supported by a sweep" if QUERY in cache.splits else "prepare a cache that has some"
        raise ValueError(f"the cache has no test classes to score: {needed}.")
    if is_final:
        scored_rows(cache)
    if not is_final and not config.data.holds_out:
        raise ValueError("a sweep chooses on held-out training classes: set validation_half=second, for instance.")
    if config.run.select == "best":
        raise ValueError("a sweep judges the last epoch of each run: leave select=best out, and sweep over epochs.")


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    """Five digits of each number: logs are read by people, and kept."""
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in record.items()}


def _scores(
    config: Config, model: Embedder, pixels: Pixels, labels: torch.Tensor, *, clustering: bool
) -> dict[str, float]:
    embedding = embed_all(model, pixels, config)
    found = _known(evaluate(embedding, labels, clustering=clustering, resamples=0))
    if embedding.uncertainty is None:
        return found
    clean, mixed = _clean_and_mixed_levels(config, model, pixels)
    return found | {
        "level_clean": float(clean.mean()),
        "level_mixed": float(mixed.mean()),
        "mixed_auroc": told_apart(clean, mixed),
    }


def _scores_at_image_size(config: Config, model: Embedder, pixels: Pixels, labels: torch.Tensor) -> dict[str, float]:
    semantic = embed_all(model, pixels, config.with_changes({"test_size": None})).semantic
    scores = evaluate(Embedding(semantic), labels, clustering=False, failures=False, resamples=0)
    return {f"{key}_at_image_size": value for key, value in _known(scores).items() if key in AT_IMAGE_SIZE}


def _known(scores: Scores) -> dict[str, float]:
    """Those that have a meaning."""
    return {row.key: row.value for row in scores.rows() if math.isfinite(row.value)}


@torch.inference_mode()
def _clean_and_mixed_levels(config: Config, model: Embedder, pixels: Pixels) -> tuple[torch.Tensor, torch.Tensor]:
    """Of some images, as they are and mixed half and half with another one."""
    model.eval()
    places = some_places(pixels)
    partners = places.roll(len(places) // 2)  # of another class, since classes follow each other
    levels = []
    for own, other in zip(places.split(256), partners.split(256), strict=True):
        images, others = (centre_crops(pixels, some, config) for some in (own, other))
        mixed = torch.lerp(images.float(), others.float(), 0.5).round().to(images.dtype)
        together = embed_images(model, torch.cat([images, mixed]), config).level  # for some uncertainty knows its batch
        levels.append(together.chunk(2))
    clean, mixed = (torch.cat(parts) for parts in zip(*levels, strict=True))
    return clean, mixed
