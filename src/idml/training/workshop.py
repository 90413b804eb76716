"""What the runs of one process share: images on the device, and networks that are compiled already.

Compiling a ResNet-50 takes longer than a short run. A new run therefore takes over the backbone of
the one before it, if that is built alike, with its own weights copied into it: the compiled code, and
the CUDA graph, which knows places in memory only, stay good. Runs follow each other; a model of an
earlier run must not be used after the next one has begun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.embedding import Embedding
from idml.models.embedder import Embedder
from idml.training.building import build_model
from idml.training.config import Config

HELD_SETS = 6  # of images: for training, validation and test, of two ways to part the classes
RECOMPILATIONS = 64  # sizes of images and batches that one process may train with; torch gives up after 8


class RunningModel:
    """A model as training runs it: in the run's precision and memory layout, compiled once all of it is trained."""

    def __init__(self, model: Embedder, config: Config, device: torch.device, compiled: Callable[[Tensor], Tensor]):
        self.model, self.config, self.device = model, config, device
        self._compiled = compiled
        self.is_warming = False

    def features(self, images: Tensor) -> Tensor:
        run = self.config.run
        if run.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        is_compiled = run.compile and not self.is_warming
        torch.compiler.cudagraph_mark_step_begin()
        with self._precision():
            return self._compiled(images) if is_compiled else self.model.features(images)

    def embed_features(self, feature: Tensor) -> Embedding:
        return self.model.embed_features(feature)

    def _precision(self):
        if self.config.run.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


class Workshop:
    """Images and networks that later runs may use again."""

    def __init__(self):
        self._pixels: OrderedDict[tuple, Pixels] = OrderedDict()
        self._carriers: dict[tuple, tuple[Embedder, Callable[[Tensor], Tensor]]] = {}

    def pixels(
        self, cache: Cache, rows: Int[Tensor, " n"], device: torch.device, *, budget: int | None = None
    ) -> Pixels:
        """These images, held on the device if they fit there; of many sets the last few stay."""
        key = (Path(cache.folder), cache.meta.index_checksum, tuple(rows.tolist()), str(device), budget)
        if key not in self._pixels:
            while len(self._pixels) >= HELD_SETS:
                self._pixels.popitem(last=False)
            self._pixels[key] = Pixels.of(cache, rows, device, budget=budget)
        self._pixels.move_to_end(key)
        return self._pixels[key]

    def passing_pixels(self, cache: Cache, rows: Int[Tensor, " n"], device: torch.device) -> Pixels:
        """Images that a run looks at once: a GPU holds them for the next run, a CPU reads them from disk."""
        return self.pixels(cache, rows, device, budget=None if device.type == "cuda" else 0)

    def model(self, config: Config, device: torch.device) -> RunningModel:
        """The model that the config describes, with the weights it starts from."""
        model = build_model(config).to(device)
        if config.run.channels_last:
            model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        mode = _compile_mode(config, device)
        chosen = config.model
        is_frozen = (chosen.frozen_batch_norm, chosen.frozen_layers)
        is_built = (chosen.backbone, chosen.pooling, *is_frozen, model.backbone.only_size)
        key = (*is_built, config.run.channels_last, str(device), mode)
        if key in self._carriers:
            carrier, compiled = self._carriers[key]
            carrier.zero_grad(set_to_none=True)  # what a run that failed between two steps has left
            for part in ("backbone", "normalise", "pooling"):
                getattr(carrier, part).load_state_dict(getattr(model, part).state_dict())
                setattr(model, part, getattr(carrier, part))
            model.backbone.preprocessing = model.preprocessing
        else:
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
            carrier, compiled = model, torch.compile(model.features, dynamic=False, mode=mode)
            self._carriers[key] = (carrier, compiled)
        return RunningModel(model, config, device, compiled)


def _compile_mode(config: Config, device: torch.device) -> str:
    """On a GPU as a CUDA graph, whose hundreds of kernels are launched at once: else launching them takes longer
    than running them. A graph's gradients live until the next batch, so not where several are added up.
    """
    optimiser = config.optimiser
    is_graph = device.type == "cuda" and optimiser.accumulate == 1 and optimiser.cached_chunk is None
    return "reduce-overhead" if is_graph else "default"
