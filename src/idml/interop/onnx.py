"""A model as an ONNX file, checked against PyTorch before it takes its place.

Input `images`: uint8, (n, 3, size, size), RGB; any n. Resizing and cropping are done before it, as the file's
metadata `preprocessing` says; normalising is inside. Outputs, in float32: `semantic` (n, d), as the model gives it:
scale it to length 1 before comparing; and unless the model is plain `uncertainty` (n, e) and its length `level` (n,).
"""

from __future__ import annotations

import json
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from idml.atomic import writing
from idml.errors import first_line
from idml.models.embedder import Embedder
from idml.models.preprocessing import Preprocessing

TOLERANCE = 1e-4  # of the largest number in an output
CHECKED_BATCHES = (1, 3)  # other sizes than the one that is traced
TRACED_BATCH = 2  # the exporter takes 0 and 1 for constants
LEAST_OPSET = 18  # what PyTorch's exporter is written for; older ones it cannot reach from there


def export_onnx(
    model: Embedder, path: Path | str, *, size: int | None = None, opset: int | None = None
) -> dict[str, float]:
    """Write the model; by output, its largest difference from PyTorch as a share of the largest number.

    size: of the square images; None is the model's own. opset: of ONNX; None is the exporter's choice.
    A difference above 1e-4 is an error, and nothing is written.
    """
    _check_installed()
    _check_opset(opset)
    preprocessing = _preprocessing(model, size)
    outputs = _Outputs(deepcopy(model)).cpu().eval()
    with writing(path) as unfinished:
        _write(outputs, unfinished, preprocessing=preprocessing, opset=opset)
        differences = _differences(outputs, unfinished, size=preprocessing.size)
        for name, difference in differences.items():
            if not difference <= TOLERANCE:
                raise ValueError(
                    f"{name} of the ONNX model differs from PyTorch's by {difference:.2g}, more than {TOLERANCE:g}: "
                    "nothing was written. Try another --opset, or newer versions of torch and onnxruntime."
                )
    return differences


class _Outputs(nn.Module):
    """The model with tensors for outputs, by these names."""

    def __init__(self, model: Embedder):
        super().__init__()
        self.model = model
        is_plain = model.heads.uncertainty is None
        self.names = ("semantic",) if is_plain else ("semantic", "uncertainty", "level")

    def forward(self, images: UInt8[Tensor, "n 3 h w"]) -> tuple[Tensor, ...]:
        embedding = self.model(images)
        return tuple(getattr(embedding, name) for name in self.names)


def _preprocessing(model: Embedder, size: int | None) -> Preprocessing:
    """The model's own, at another size where one is given."""
    own, only = model.preprocessing, model.backbone.only_size
    if size is None or size == own.size:
        return own
    if only is not None:
        raise ValueError(
            f"size is {size}, and backbone {model.backbone.name!r} works at {only} alone: leave --size out, "
            f"or train with image_size={size}."
        )
    return Preprocessing.for_size(size, mean=own.mean, std=own.std)


def _write(outputs: _Outputs, path: Path, *, preprocessing: Preprocessing, opset: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its insides
        program: Any = torch.onnx.export(
            outputs,
            (_noise(TRACED_BATCH, preprocessing.size),),
            dynamo=True,
            input_names=["images"],
            output_names=list(outputs.names),
            dynamic_shapes={"images": {0: torch.export.Dim("n")}},
            opset_version=opset,
            verbose=False,
        )
    program.model.metadata_props["preprocessing"] = json.dumps(preprocessing.to_dict())
    program.save(path, external_data=False)


@torch.inference_mode()
def _differences(outputs: _Outputs, path: Path, *, size: int) -> dict[str, float]:
    """Of each output, the largest over several batches; NaN if there is one."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own have no other base in common
        raise ValueError(f"onnxruntime refuses the model, try a lower --opset: {first_line(error)}.") from None
    differences: dict[str, list[Tensor]] = {name: [] for name in outputs.names}
    for number in CHECKED_BATCHES:
        images = _noise(number, size)
        found = session.run(list(outputs.names), {"images": images.numpy()})
        for name, theirs, ours in zip(outputs.names, found, outputs(images), strict=True):
            differences[name].append((torch.from_numpy(theirs) - ours).abs().max() / ours.abs().max())
    return {name: float(torch.stack(parts).max()) for name, parts in differences.items()}


def _noise(number: int, size: int) -> UInt8[Tensor, "n 3 h w"]:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(256, (number, 3, size, size), dtype=torch.uint8, generator=generator)


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [package for package in ("onnx", "onnxruntime", "onnxscript") if find_spec(package) is None]
    if missing:
        raise ValueError(f"the export needs {', '.join(missing)}: pip install 'idml[onnx]'.")


def _check_opset(opset: int | None) -> None:
    from onnx.defs import onnx_opset_version

    if opset is not None and not LEAST_OPSET <= opset <= onnx_opset_version():
        raise ValueError(f"opset is {opset}: give a number from {LEAST_OPSET} to {onnx_opset_version()}.")
