"""Images a second of `idml prepare` against a plain multi-process Pillow loop, in turns.

    python benchmarks/prepare.py [SOURCE] [--rounds 3] [--workers 2] [--images 2000]

The plain loop is `multiprocessing.Pool.imap`: open, convert to RGB, resize the short side to 256, hand
the pixels to the parent, which writes them to one file. Ours does the same and also keeps checksums, a
journal and an index, and waits at the end until all is on the disk. Without a SOURCE, JPEG photos of
500 × 375 pixels are generated; with one, a folder, .csv or .tar that `idml prepare` takes, all of its images are read.
"""

import argparse
import io
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from idml.data.decoder import Stored
from idml.data.prepare import prepare
from idml.data.sources import SOURCES, find_source

SIZE, CHUNK = 256, 16
TARGET = 1.0


def draw_photos(folder: Path, images: int) -> Path:
    """Smooth random photos, ten classes."""
    generator = np.random.default_rng(0)
    for number in range(images):
        place = folder / f"class{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)
    return folder


def plain_image(stored: Stored) -> np.ndarray:
    path, start, length, data = stored
    if data is None:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(start)
            data = file.read(length)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = SIZE / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR) if scale != 1 else image)


def plain(source: Path, folder: Path, workers: int) -> None:
    stored = [record.stored for record in SOURCES[find_source(source)].records(source)]
    folder.mkdir()
    with multiprocessing.Pool(workers) as pool, (folder / "pixels.bin").open("wb") as file:
        for image in pool.imap(plain_image, stored, chunksize=CHUNK):
            file.write(image.data)


def ours(source: Path, folder: Path, workers: int) -> None:
    prepare(source, folder, size=SIZE, workers=workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        source = options.source or draw_photos(Path(temporary) / "photos", options.images)
        number = len(SOURCES[find_source(source)].records(source))
        seconds: dict[str, list[float]] = {"plain": [], "ours": []}
        for _ in range(options.rounds):
            for name, contender in (("plain", plain), ("ours", ours)):
                folder = Path(temporary) / name
                start = time.perf_counter()
                contender(source, folder, options.workers)
                seconds[name].append(time.perf_counter() - start)
                shutil.rmtree(folder)
                os.sync()
    load = os.getloadavg()[0]
    print(f"{number:,} images, {options.workers} processes, {options.rounds} rounds in turns, load {load:.1f}")
    for name, times in seconds.items():
        print(f"{name:6} {number / statistics.median(times):8.0f} images/s   {statistics.median(times):6.2f} s")
    ratio = statistics.median(first / second for first, second in zip(*seconds.values(), strict=True))
    print(f"ratio  {ratio:.2f} (target: at least {TARGET:.2f})")


if __name__ == "__main__":
    main()
