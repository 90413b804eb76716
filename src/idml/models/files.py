"""Image files straight into a model, cut out as it wants them, without preparing a cache first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
        raise ValueError(f"{path} cannot be read: {error}.") from None
    top, left = (round((side - preprocessing.size) / 2) for side in pixels.shape[:2])
    square = pixels[top : top + preprocessing.size, left : left + preprocessing.size]
    return torch.tensor(square).permute(2, 0, 1)


def read_crops(
    paths: Sequence[Path | str], preprocessing: Preprocessing, *, batch: int
) -> Iterator[UInt8[Tensor, "n 3 h w"]]:
    """Batches in order; while one is used, threads read the next."""
    read = partial(read_crop, preprocessing=preprocessing)
    parts = [paths[start : start + batch] for start in range(0, len(paths), batch)]
    with ThreadPoolExecutor() as pool:
        coming = pool.map(read, parts[0])
        for following in [*parts[1:], []]:
            crops, coming = coming, pool.map(read, following)
            yield torch.stack(list(crops))
