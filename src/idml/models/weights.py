"""Weights from a file into a network: nothing in it is executed, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from idml.errors import first_line

Weights = Mapping[str, Tensor]

INSIDE = ("state_dict", "model")  # where training scripts keep the weights in what they save
WRAPPER = "module."  # what DistributedDataParallel puts before each name
OPTIONAL = "num_batches_tracked"  # of batch-norm, which uses it for nothing here
NAMED = 3  # so many of the weights that do not fit are named, the others counted


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of what `torch.save` wrote; half precision is widened to float32."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give weights as .safetensors, or as saved by torch.save.")
    found = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    return {name.removeprefix(WRAPPER): _widened(tensor) for name, tensor in found.items()}


def load_weights(network: nn.Module, weights: Weights, *, source: object, ignored: Collection[str] = ()) -> None:
    """Copy the weights into the network; each of its weights must be there, finite, in its shape, and nothing else.

    ignored: layers that the network does not have and the weights may, a classifier for instance.
    """
    own = network.state_dict()
    given = {
        name: tensor
        for name, tensor in weights.items()
        if name in own or not any(name.startswith(f"{layer}.") for layer in ignored)
    }
    problems = {
        "missing": [name for name in own if name not in given and not name.endswith(OPTIONAL)],
        "unexpected": [name for name in given if name not in own],
        "of other shape": [
            f"{name} {tuple(tensor.shape)} instead of {tuple(own[name].shape)}"
            for name, tensor in given.items()
            if name in own and tensor.shape != own[name].shape
        ],
    }
    told = "; ".join(f"{kind}: {_listed(names)}" for kind, names in problems.items() if names)
    if told:
        raise ValueError(f"{source} does not fit this network. {told}. Give the weights of this very network.")
    spoilt = [name for name, tensor in given.items() if not tensor.isfinite().all()]
    if spoilt:
        raise ValueError(f"{source} holds NaN or infinity in {_listed(spoilt)}: its training diverged. Give others.")
    network.load_state_dict(given, strict=False)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as .safetensors ({error}): was its writing interrupted?") from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise ValueError(
            f"{path} is no file of plain tensors, and other objects are not loaded, for they may run code: "
            "save the state dict alone, at best as .safetensors."
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as PyTorch weights ({first_line(error)}): was its writing interrupted?"
        ) from None
    for key in INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(part, Tensor) for part in found.values()):
        raise ValueError(f"{path} holds no state dict: save `model.state_dict()`.")
    return dict(found)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest
