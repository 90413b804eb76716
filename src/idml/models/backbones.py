"""From images to maps of features, or to tokens: what timm's many networks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
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
    frozen_layers: names of layers, first ones for instance, that are never trained: training is faster without them.
    """

    def __init__(
        self,
        name: str,
        weights: Path | str | None = None,
        *,
        image_size: int | None = None,
        frozen_batch_norm: bool = True,
        frozen_layers: Sequence[str] = (),
    ):
        super().__init__()
        self.name = name
        self.frozen_batch_norm = frozen_batch_norm
        self.network: Any = make_network(name, weights, image_size=image_size)
        if isinstance(frozen_layers, str):
            raise ValueError(f"frozen_layers is {frozen_layers!r}: give a list of names, [{frozen_layers!r}].")
        self._frozen = [_layer(self.network, layer) for layer in frozen_layers]
        self.width: int = getattr(self.network, "head_hidden_size", None) or self.network.num_features
        self.prefix_tokens: int = getattr(self.network, "num_prefix_tokens", 0)
        made_for = self.network.pretrained_cfg
        self.preprocessing = Preprocessing.for_size(
            image_size or made_for["input_size"][-1], mean=tuple(made_for["mean"]), std=tuple(made_for["std"])
        )
        self.only_size = self.preprocessing.size if made_for.get("fixed_input_size") else None
        self.train()
        self.requires_grad_()

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
        for layer in self._frozen:
            layer.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Backbone:
        super().requires_grad_(requires_grad)
        for layer in self._frozen:
            layer.requires_grad_(False)
        return self


def _layer(network: nn.Module, name: str) -> nn.Module:
    """The layer of that name; of a misspelt one the nearest are named, and all at the top."""
    layers = {known: layer for known, layer in network.named_modules() if known}
    if name in layers:
        return layers[name]
    nearest = get_close_matches(name, layers, n=1)
    hint = f" did you mean {nearest[0]!r}?" if nearest else ""
    at_the_top = ", ".join(each for each, _ in network.named_children())
    raise ValueError(f"unknown layer {name!r} in frozen_layers:{hint} Known: {at_the_top}, and layers inside of them.")
