"""Embeddings of many images with the test-time centre crop, shared by all ranks."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.cache import Cache
from idml.data.crops import centre_boxes
from idml.data.pixels import Pixels
from idml.embedding import Embedding
from idml.models.embedder import Embedder
from idml.progress import Progress, followed, no_progress
from idml.training.config import Config, resized
from idml.training.distributed import concatenated, rank, ranks

BATCH = 256  # images at once


@torch.inference_mode()
def embed_rows(
    model: Embedder,
    cache: Cache,
    rows: Int[Tensor, " n"],
    config: Config,
    *,
    device: torch.device,
    progress: Progress = no_progress,
) -> Embedding:
    """Embeddings of these rows, in their order, on the device; each rank embeds a share of them."""
    was_training = model.training
    model.eval()
    parts = []
    for some in followed(own_rows(rows).split(BATCH), "embedding", progress):
        parts.append(embed_images(model, centre_crops(cache, some, config.data.image_size, device), config))
    semantic = concatenated(torch.cat([part.semantic for part in parts]))
    uncertain = [part.uncertainty for part in parts if part.uncertainty is not None]
    model.train(was_training)
    return Embedding(semantic, concatenated(torch.cat(uncertain)) if uncertain else None)


def own_rows(rows: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """This rank's stretch of the rows."""
    return rows.tensor_split(ranks())[rank()]


def centre_crops(cache: Cache, rows: Int[Tensor, " n"], size: int, device: torch.device) -> Tensor:
    pixels = Pixels.of(cache, rows, device)
    places = torch.arange(len(rows))
    boxes = centre_boxes(*pixels.sizes(places), size=size, of=resized(size))
    return pixels.crops(places, boxes, size)


def embed_images(model: Embedder, images: Tensor, config: Config) -> Embedding:
    """In the precision and memory layout that the model was trained in; embeddings in float32."""
    if config.run.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=config.run.precision == "bfloat16"):
        found = model(images)
    return Embedding(found.semantic.float(), None if found.uncertainty is None else found.uncertainty.float())
