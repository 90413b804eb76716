"""Small generated images and datasets."""

from pathlib import Path

import numpy as np
from PIL import Image

from idml.data.cache import Cache
from idml.data.prepare import prepare


def picture(height: int = 20, width: int = 30, seed: int = 0) -> np.ndarray:
    """Random pixels (h, w, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, *, height: int = 20, width: int = 30, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(height, width, seed)).save(path)
    return path


def class_folders(root: Path, *, classes: int = 4, per_class: int = 3) -> Path:
    """A folder per class of images of different sizes, without loss."""
    for number in range(classes * per_class):
        label, seed = divmod(number, per_class)
        size = {"height": 16 + number % 5, "width": 16 + (3 * number) % 7}
        save(root / f"class{label}" / f"{seed}.png", seed=number, **size)
    return root


def small_cache(folder: Path, *, classes: int = 4, per_class: int = 3, size: int = 16) -> Cache:
    """A cache of such a folder."""
    return prepare(class_folders(folder / "images", classes=classes, per_class=per_class), folder / "cache", size=size)
