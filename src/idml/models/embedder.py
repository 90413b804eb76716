"""The whole model: images in, embeddings out (IDML, TPAMI 2023, section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from idml.distances import Introspective
from idml.embedding import Embedding
from idml.evaluation.calibration import Calibration
from idml.models.backbones import Backbone
from idml.models.files import read_crops
from idml.models.heads import STABILISED, Heads, UncertaintyForm
from idml.models.pooling import Pooling
from idml.models.preprocessing import Normalise, Preprocessing
from idml.models.saved import load_folder, save_folder
from idml.models.weights import load_weights
from idml.numerics.precision import full_precision
from idml.progress import Progress, followed, no_progress


class Embedder(nn.Module):
    """A backbone, a pooling, and both heads; `uncertainty_dim=None` gives a plain model.

    Images are RGB, (n, 3, h, w), in uint8 or in floats from 0 to 1: the model normalises them itself.
    The backbone runs under autocast if that is on; pooling and heads run in float32 always.

    backbone: "resnet50_v1", "efficientnet_lite0", or any name of timm's.
    weights: of the backbone: "pretrained", a file (.safetensors, or from torch.save), or None for random ones.
    pooling: "average", "max", "average_max", "gem", or "class_token" for transformers that have one.
    frozen_batch_norm: batch-norm keeps its statistics through training; False for a backbone with random weights.
    frozen_layers: of the backbone, by name: they are never trained.
    semantic_normalise: LayerNorm on the pooled feature that the semantic head sees.
    form: how the uncertainty head is attached.
    image_size: of the crops; None is what the backbone was made for.

    What a trained model knows beside its weights is saved with it: `calibration`, the confidence in an answer;
    `distance`, the one it was trained with; `class_names`, of the training classes.

    >>> model = Embedder("test_resnet", dim=8, uncertainty_dim=4).eval()
    >>> model(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).semantic.shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        backbone: str,
        dim: int = 512,
        uncertainty_dim: int | None = 512,
        weights: Path | str | None = None,
        *,
        pooling: str = "average_max",
        frozen_batch_norm: bool = True,
        frozen_layers: Sequence[str] = (),
        semantic_normalise: bool = False,
        form: UncertaintyForm = STABILISED,
        image_size: int | None = None,
    ):
        super().__init__()
        self.backbone = Backbone(
            backbone,
            weights,
            image_size=image_size,
            frozen_batch_norm=frozen_batch_norm,
            frozen_layers=frozen_layers,
        )
        self.preprocessing: Preprocessing = self.backbone.preprocessing
        self.normalise = Normalise(self.preprocessing)
        self.pooling = Pooling(pooling, prefix_tokens=self.backbone.prefix_tokens)
        self.heads = Heads(self.backbone.width, dim, uncertainty_dim, semantic_normalise=semantic_normalise, form=form)
        self.calibration: Calibration | None = None
        self.distance: Introspective | None = None
        self.class_names: list[str] | None = None
        self._options = {
            "backbone": backbone,
            "dim": dim,
            "uncertainty_dim": uncertainty_dim,
            "pooling": pooling,
            "frozen_batch_norm": frozen_batch_norm,
            "frozen_layers": list(frozen_layers),
            "semantic_normalise": semantic_normalise,
            "form": asdict(form),
        }

    def features(self, images: Shaped[Tensor, "n 3 h w"]) -> Float[Tensor, "n f"]:
        """The pooled features that both heads see."""
        features = self.backbone(self.normalise(images))
        with full_precision(images.device):
            return self.pooling(features)

    def embed_features(self, feature: Float[Tensor, "n f"]) -> Embedding:
        """Both heads on pooled features, which may be mixed ones."""
        with full_precision(feature.device):
            return self.heads(feature.to(self.heads.semantic.weight.dtype))

    def forward(self, images: Shaped[Tensor, "n 3 h w"]) -> Embedding:
        return self.embed_features(self.features(images))

    @torch.inference_mode()
    def embed_files(
        self,
        paths: Sequence[Path | str],
        *,
        batch: int = 64,
        problems: MutableMapping[Path | str, str] | None = None,
        progress: Progress = no_progress,
    ) -> Embedding:
        """Embeddings of image files, in their order, on the model's device; a file that is no image is an error.

        problems: given one, such files are left out, and told of in it.
        """
        if not paths:
            raise ValueError("there are no files to embed: give at least one path.")
        was_training = self.training
        self.eval()
        crops = read_crops(paths, self.preprocessing, batch=batch, problems=problems)
        crops = followed(crops, "embedding", progress, length=math.ceil(len(paths) / batch))
        found = [self(images.to(self.normalise.mean.device)) for images in crops]
        self.train(was_training)
        if problems and not found:
            raise ValueError(f"none of the {len(paths)} files can be read. {next(iter(problems.values()))}")
        return Embedding.cat(found)

    def requires_grad_(self, requires_grad: bool = True) -> Embedder:
        super().requires_grad_(requires_grad)
        self.backbone.requires_grad_(requires_grad)  # but for its frozen layers
        return self

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by role, for an optimiser: backbone, semantic and, unless the model is plain, uncertainty.

        Pooling, where it has a parameter, is of the semantic group: new, and on the way to both heads.
        """
        groups: dict[str, list[nn.Parameter]] = {
            "backbone": list(self.backbone.parameters()),
            "semantic": [*self.heads.semantic.parameters(), *self.pooling.parameters()],
        }
        if self.heads.uncertainty is not None:
            groups["uncertainty"] = list(self.heads.uncertainty.parameters())
        return groups

    def save(
        self,
        folder: Path | str,
        *,
        calibration: Calibration | None = None,
        distance: Introspective | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        """Write `model.safetensors` and `model.json`; what is given here becomes the model's own."""
        self.calibration = calibration or self.calibration
        self.distance = distance or self.distance
        self.class_names = list(class_names) if class_names is not None else self.class_names
        save_folder(folder, self.state_dict(), self._description())

    @classmethod
    def load(cls, folder: Path | str) -> Embedder:
        """The model that was saved there, ready to embed (`.eval()`), on the CPU; this needs no network."""
        weights, description = load_folder(folder)
        try:
            model = _described(description)
            load_weights(model, weights, source="model.safetensors")
        except (KeyError, TypeError, ValueError) as error:
            told = f"there is no {error} in its description" if isinstance(error, KeyError) else error
            raise ValueError(f"the model in {folder} cannot be loaded: {told}") from None
        return model.eval()

    def _description(self) -> dict[str, Any]:
        return {
            **self._options,
            "preprocessing": self.preprocessing.to_dict(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "distance": None if self.distance is None else asdict(self.distance),
            "class_names": self.class_names,
        }


def _described(description: Mapping[str, Any]) -> Embedder:
    """A model with random weights and everything else as described."""
    options = dict(description)
    preprocessing = Preprocessing.from_dict(options.pop("preprocessing"))
    calibration, distance = options.pop("calibration"), options.pop("distance")
    class_names, form = options.pop("class_names"), UncertaintyForm(**options.pop("form"))
    model = Embedder(**options, form=form, image_size=preprocessing.size)
    model.preprocessing, model.normalise = preprocessing, Normalise(preprocessing)  # timm's may have changed since
    model.calibration = None if calibration is None else Calibration.from_dict(calibration)
    model.distance = None if distance is None else Introspective(**distance)
    model.class_names = class_names
    return model
