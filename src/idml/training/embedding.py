"""Embeddings of many images with the test-time centre crop, shared by all ranks."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.crops import centre_boxes
from idml.data.pixels import Pixels
from idml.embedding import Embedding
from idml.models.embedder import Embedder
from idml.models.preprocessing import resized
from idml.progress import Progress, followed, no_progress
from idml.training.config import Config
from idml.training.distributed import concatenated, rank, ranks

BATCH = 256  # images at once
CHANGED_IMAGES = 512  # of those that are scored, whose level is measured when they are blurred, cropped or mixed


@torch.inference_mode()
def embed_all(model: Embedder, pixels: Pixels, config: Config, *, progress: Progress = no_progress) -> Embedding:
    """Embeddings of these images, in their order, on their device; each rank embeds a share of them."""
    was_training = model.training
    model.eval()
    parts = []
    for some in followed(_own(torch.arange(len(pixels))).split(BATCH), "embedding", progress):
        parts.append(embed_images(model, centre_crops(pixels, some, config), config))
    semantic = concatenated(torch.cat([part.semantic for part in parts]))
    uncertain = [part.uncertainty for part in parts if part.uncertainty is not None]
    model.train(was_training)
    return Embedding(semantic, concatenated(torch.cat(uncertain)) if uncertain else None)


def centre_crops(pixels: Pixels, places: Int[Tensor, " n"], config: Config) -> Tensor:
    size = config.data.scored_size
    boxes = centre_boxes(*pixels.sizes(places), size=size, of=resized(size))
    return pixels.crops(places, boxes, size)


def some_places(pixels: Pixels) -> Int[Tensor, " some"]:
    """Evenly spread places, about `CHANGED_IMAGES` of them."""
    return torch.arange(0, len(pixels), max(1, len(pixels) // CHANGED_IMAGES))


def embed_images(model: Embedder, images: Tensor, config: Config) -> Embedding:
    """In the precision and memory layout that the model was trained in; embeddings in float32."""
    if config.run.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=config.run.precision == "bfloat16"):
        found = model(images)
    return Embedding(found.semantic.float(), None if found.uncertainty is None else found.uncertainty.float())


def _own(places: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """This rank's stretch of them."""
    return places.tensor_split(ranks())[rank()]
