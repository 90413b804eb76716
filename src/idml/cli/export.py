"""`idml export`: a model for other runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from idml.models.embedder import Embedder

FILE = "model.onnx"


def export(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that trained it.")],
    output: Annotated[
        Path | None, typer.Option(help=f"The file to write; if not given, {FILE} in the model's folder.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the square images; if not given, what the model was trained on.")
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="Version of ONNX's operators; if not given, the exporter's choice.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a model as ONNX and check it against PyTorch.

    Input `images`: uint8, (n, 3, size, size), RGB, any n; it is normalised inside. Outputs `semantic`, and unless
    the model is plain `uncertainty` and `level`, the length of the uncertainty. Scale `semantic` to length 1
    before you compare images. Needs `pip install 'idml[onnx]'`.
    """
    from idml.interop.onnx import TOLERANCE, export_onnx

    path = output or model / FILE
    differences = export_onnx(Embedder.load(model), path, size=size, opset=opset)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "differences": differences, "tolerance": TOLERANCE}, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name, difference in differences.items():
        console.print(f"{name}: differs from PyTorch by {difference:.1e} of its largest value at most")
    console.print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)", markup=False)
