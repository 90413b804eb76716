"""From images to maps of features, or to tokens: what timm's many networks have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from idml.models.networks import make_network
from idml.models.preprocessing import Preprocessing


class Backbone(nn.Module):
    """Normalised images to maps (n, c, y, x), or tokens (n, t, c), with c = `width`.

    weights: "pretrained", a file, or None for random ones. image_size: None is what the network was made for.
    prefix_tokens: how many tokens, of the class for instance, come before those of places in the image.
    frozen_batch_norm: batch-norm keeps the statistics it has, through training too, as is usual in the field;
    its scale and shift are learned all the same.
    """

    def __init__(
        self,
        name: str,
        weights: Path | str | None = None,
        *,
        image_size: int | None = None,
        frozen_batch_norm: bool = True,
    ):
        super().__init__()
        self.name = name
        self.frozen_batch_norm = frozen_batch_norm
        self.network: Any = make_network(name, weights, image_size=image_size)
        self.width: int = getattr(self.network, "head_hidden_size", None) or self.network.num_features
        self.prefix_tokens: int = getattr(self.network, "num_prefix_tokens", 0)
        made_for = self.network.pretrained_cfg
        self.preprocessing = Preprocessing.for_size(
            image_size or made_for["input_size"][-1], mean=tuple(made_for["mean"]), std=tuple(made_for["std"])
        )
        self.only_size = self.preprocessing.size if made_for.get("fixed_input_size") else None
        self.train()

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n c y x"] | Float[Tensor, "n t c"]:
        height, width = images.shape[2:]
        if self.only_size is not None and not height == width == self.only_size:
            raise ValueError(
                f"images are {height} × {width} and backbone {self.name!r} works at {self.only_size} alone: "
                "crop them to that, or make the model with another image_size."
            )
        features = self.network(images)
        if features.ndim == 2:
            raise ValueError(f"backbone {self.name!r} gives one feature an image: use one that gives maps or tokens.")
        is_channels_last = features.ndim == 4 and features.shape[1] != self.width  # Swin's, for one
        return features.movedim(-1, 1) if is_channels_last else features

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.frozen_batch_norm:
            for layer in self.modules():
                if isinstance(layer, _BatchNorm):
                    layer.eval()
        return self
