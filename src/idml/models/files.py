"""Image files straight into a model, cut out as it wants them, without preparing a cache first."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from idml.data.decoding import decode
from idml.models.preprocessing import Preprocessing


def read_crop(path: Path | str, preprocessing: Preprocessing) -> UInt8[Tensor, "3 h w"]:
    """The central square of an image file, as at test time."""
    try:
        pixels = decode(Path(path).read_bytes(), size=preprocessing.resize)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Mend or remove it, or leave such images out (--skip-bad)."
        ) from None
    top, left = (round((side - preprocessing.size) / 2) for side in pixels.shape[:2])
    square = pixels[top : top + preprocessing.size, left : left + preprocessing.size]
    return torch.tensor(square).permute(2, 0, 1)


def read_crops(
    paths: Sequence[Path | str],
    preprocessing: Preprocessing,
    *,
    batch: int,
    problems: MutableMapping[Path | str, str] | None = None,
) -> Iterator[UInt8[Tensor, "n 3 h w"]]:
    """Batches in order; while one is used, threads read the next.

    problems: files that cannot be read are left out, and told of here; without it the first of them raises.
    """

    def read(path: Path | str) -> list[UInt8[Tensor, "3 h w"]]:
        try:
            return [read_crop(path, preprocessing)]
        except ValueError as problem:
            if problems is None:
                raise
            problems[path] = str(problem)
            return []

    parts = [paths[start : start + batch] for start in range(0, len(paths), batch)]
    with ThreadPoolExecutor() as pool:
        coming = pool.map(read, parts[0])
        for following in [*parts[1:], []]:
            crops, coming = coming, pool.map(read, following)
            if found := [crop for some in crops for crop in some]:
                yield torch.stack(found)
