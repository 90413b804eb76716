"""Tensors in a .safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, texts: dict[str, str] | None = None) -> None:
    """Write tensors, wherever they are, and texts for the file's header.

    The file is for all whom the umask lets read it: safetensors alone, from 0.8, leaves it to its owner.
    """
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, metadata=texts)
    path.chmod(mode)
