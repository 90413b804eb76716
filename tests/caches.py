"""Small datasets of generated images, for tests of what comes after preparation."""

from pathlib import Path

import numpy as np
from PIL import Image

from idml.data.cache import Cache
from idml.data.prepare import prepare


def draw_photos(folder: Path, *, classes: int = 8, per_class: int = 10, size: int = 40, seed: int = 0) -> Path:
    """A folder for each class; its images share a colour and a stripe, and differ in width."""
    generator = np.random.default_rng(seed)
    colours = np.random.default_rng(99).uniform(40, 215, size=(classes, 3))
    for label in range(classes):
        place = folder / f"class {label}"
        place.mkdir(parents=True)
        for number in range(per_class):
            image = colours[label] + generator.normal(0, 25, size=(size, size + int(generator.integers(0, 9)), 3))
            image[:, (label * 5) % size : (label * 5) % size + 4] += 60
            Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(place / f"{number}.png")
    return folder


def draw_cache(folder: Path, *, size: int = 40, test_share: float = 0.5, **options) -> Cache:
    """The same, prepared; half of the classes are for testing."""
    photos = draw_photos(folder / "photos", size=size, **options)
    return prepare(photos, folder / "cache", size=size, test_share=test_share, workers=1)
