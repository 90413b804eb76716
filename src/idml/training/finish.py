"""What a finished run leaves behind: the model, the test embeddings, their scores, a report and its curves."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.embedding import Embedding
from idml.evaluation.ambiguity import levels_when_changed
from idml.evaluation.calibration import Calibration
from idml.evaluation.embedded import IN_A_RUN, Embedded
from idml.evaluation.judging import evaluate
from idml.evaluation.scores import Scores
from idml.models.embedder import Embedder
from idml.training import distributed
from idml.training.building import scored_rows
from idml.training.config import Config
from idml.training.curves import draw_curves
from idml.training.embedding import centre_crops, embed_all, embed_images, some_places
from idml.training.runs import REPORT, SCORES, RunFolder
from idml.training.watching import Watch
from idml.training.workshop import Workshop


def finish(
    config: Config,
    model: Embedder,
    cache: Cache,
    folder: RunFolder,
    validation_rows: Int[Tensor, " v"],
    workshop: Workshop,
    device: torch.device,
    watch: Watch,
) -> dict[str, Any]:
    """Save the model, embed the test images, score them, once, and write everything down."""
    calibration = None
    if len(validation_rows):
        found = embed_all(model, workshop.pixels(cache, validation_rows, device), config)
        calibration = _calibration(found, cache.labels[validation_rows])
    if distributed.is_first():
        model.save(folder.model, calibration=calibration)
        draw_curves(folder)
    scored = scored_rows(cache)
    if scored is None:
        watch.say(f"there are no test classes to score (--test-share holds some out): the model is in {folder.model}")
        return {}
    watch.say("embedding the test images")
    embedded = _embedded(config, model, cache, *scored, workshop, device)
    gallery = embedded.gallery
    within = {} if gallery is None else {"gallery": gallery.embedding, "gallery_labels": gallery.labels}
    watch.say("scoring the test images, once")
    levels = embedded.changed_levels
    scores = evaluate(
        embedded.embedding, embedded.labels, **within, calibration=calibration, changed_levels=levels, shared=True
    )
    if not distributed.is_first():
        return scores.to_dict()
    embedded.save(folder.path / IN_A_RUN[0])
    folder.save_json(SCORES, scores.to_dict())
    _report(folder, scores, embedded, cache)
    return scores.to_dict()


def _embedded(
    config: Config,
    model: Embedder,
    cache: Cache,
    rows: Int[Tensor, " t"],
    gallery_rows: Int[Tensor, " g"] | None,
    workshop: Workshop,
    device: torch.device,
) -> Embedded:
    pixels = workshop.passing_pixels(cache, rows, device)
    gallery = None
    if gallery_rows is not None:
        gallery = Embedded(
            embedding=embed_all(model, workshop.passing_pixels(cache, gallery_rows, device), config),
            labels=cache.labels[gallery_rows],
            images=[cache.names[row] for row in gallery_rows.tolist()],
        )
    return Embedded(
        embedding=embed_all(model, pixels, config),
        labels=cache.labels[rows],
        class_names=cache.class_names,
        images=[cache.names[row] for row in rows.tolist()],
        changed_levels=_changed_levels(config, model, pixels),
        gallery=gallery,
        image_root=str(cache.folder.resolve()),
    )


def _changed_levels(config: Config, model: Embedder, pixels: Pixels) -> dict[str, dict[float, Tensor]]:
    """Levels of some test images made ambiguous; of the others it is not known, NaN."""
    if not config.objective.introspective or len(pixels) < 2:
        return {}
    chosen = some_places(pixels)
    model.eval()
    images = centre_crops(pixels, chosen, config)
    found = levels_when_changed(lambda batch: embed_images(model, batch, config), images)

    def spread(level: Tensor) -> Tensor:
        return torch.full((len(pixels),), torch.nan).index_copy_(0, chosen, level.float())

    return {kind: {degree: spread(level) for degree, level in levels.items()} for kind, levels in found.changed.items()}


def _calibration(embedding: Embedding, labels: Int[Tensor, " n"]) -> Calibration | None:
    """How sure to be of an answer, learned on classes that training did not see."""
    scores = evaluate(embedding, labels, ks=(1,), clustering=False, resamples=0, shared=True)
    return None if scores.failures is None else scores.failures.calibration


def _report(folder: RunFolder, scores: Scores, embedded: Embedded, cache: Cache) -> None:
    from idml.evaluation.report import write_report

    path = folder.path / REPORT
    write_report(path, scores, embedded, title=f"Run {folder.path.name}", image_root=cache.folder)
