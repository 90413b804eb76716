"""A model as a folder: its weights, and in words and numbers all that is needed to use them.

`model.safetensors` holds the weights, `model.json` the rest. Neither can hold code. Both are written
whole or not at all; the second names the checksum of the first, so that they cannot be mixed up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from idml.atomic import writing
from idml.models.weights import read_weights
from idml.tensors import save_tensors

FORMAT = "idml embedder"
VERSION = 1
WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
IN_A_RUN = "model"  # the folder of it in that of a trained run


def save_folder(folder: Path | str, weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write both files; a model that was there before is replaced."""
    folder = Path(folder)
    with writing(folder / WEIGHTS) as file:
        save_tensors(file, weights)
    head = {"format": FORMAT, "version": VERSION, "sha256": _checksum(folder / WEIGHTS)}
    with writing(folder / DESCRIPTION) as file:
        file.write_text(json.dumps({**head, **description}, indent=2, allow_nan=False) + "\n")


def load_folder(folder: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights, and the description without what is of the format itself; the folder may be that of a run."""
    folder = Path(folder)
    if (folder / IN_A_RUN / DESCRIPTION).is_file():
        folder = folder / IN_A_RUN
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: give that of a model, or of the run that trained it.")
    for name in (DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"there is no {name} in {folder}: give the folder of a model, or of a run that is done.")
    try:
        description = json.loads((folder / DESCRIPTION).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION} is no JSON ({error}): save the model again.") from None
    if not isinstance(description, dict) or description.pop("format", None) != FORMAT:
        raise ValueError(f"{folder / DESCRIPTION} describes no {FORMAT}: give a folder that Embedder.save wrote.")
    version = description.pop("version", None)
    if version != VERSION:
        raise ValueError(f"{folder} has format version {version}, and this idml reads {VERSION}: install a newer idml.")
    if description.pop("sha256", None) != _checksum(folder / WEIGHTS):
        raise ValueError(
            f"{folder / WEIGHTS} is not the file that {DESCRIPTION} describes: was saving interrupted? Save it again."
        )
    return read_weights(folder / WEIGHTS), description


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
