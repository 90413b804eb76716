"""From the bytes of a file to an RGB image of the wanted size; also a program of its own.

`python decoder.py SIZE SQUARE` decodes what it is sent until its input ends. That needs Pillow alone, so
a decoder starts in a fraction of the time that `import idml` takes, whatever the main program is; and it
ends with the process that started it, even if that was killed.
"""

from __future__ import annotations

import io
import pickle
import signal
import sys
import warnings
import zlib
from typing import BinaryIO, NamedTuple

from PIL import Image, ImageOps

WHITE = (255, 255, 255)
EIGHT_BITS, SIXTEEN_BITS = 255, 65535
LARGEST = 178_956_970  # pixels, of a file or after resizing; Pillow refuses more as a decompression bomb
DRAFT = 2  # a JPEG is decoded at a fraction of its size that leaves at least this many times the wanted one

Stored = tuple[str, int, int, bytes | None]  # path, first byte, number of bytes; or the bytes themselves


class Decoded(NamedTuple):
    """One image as it goes into a cache. problem: why there are no pixels."""

    height: int
    width: int
    checksum: int
    pixels: bytes
    problem: str | None = None


def decode_image(data: bytes, *, size: int | None = None, square: bool = False) -> Image.Image:
    """The RGB image that these bytes of a file hold, upright as its EXIF orientation says.

    size: of the short side, smaller images are enlarged, those of that size are untouched; square: of both sides.
    Resized with an antialiased bilinear filter, as torchvision's Resize. Transparent parts lie over white;
    16 bits are scaled to 8. What cannot be read is a ValueError with the reason.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if size is not None:
                width, height = _resized(image.size, size, square)
                image.draft(None, (DRAFT * width, DRAFT * height))
            ImageOps.exif_transpose(image, in_place=True)
            upright = _in_rgb(image)
            wanted = upright.size if size is None else _resized(upright.size, size, square)
            return upright if wanted == upright.size else upright.resize(wanted, Image.Resampling.BILINEAR)
    except Image.DecompressionBombError:
        raise ValueError(f"it has more than {LARGEST:,} pixels, a decompression bomb: shrink it first") from None
    except Exception as error:  # a corrupt file can raise nearly anything in Pillow
        raise ValueError(_reason(error)) from None


def _in_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # I;16 and its relatives, or I: 16-bit files, which Pillow would clip
        image = _in_eight_bits(image)
    elif image.mode == "F":
        raise ValueError("its pixels are floating-point numbers: convert it to 8 or 16 bits")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        over = image.convert("RGBA")
        below = Image.new("RGBA", over.size, (*WHITE, EIGHT_BITS))
        return Image.alpha_composite(below, over).convert("RGB")
    return image.convert("RGB")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    import numpy as np

    values = np.asarray(image)
    if values.min(initial=0) < 0 or values.max(initial=0) > SIXTEEN_BITS:
        raise ValueError("its pixels have more than 16 bits: convert it to 8 or 16")
    scaled = (values.astype(np.uint32) * EIGHT_BITS + SIXTEEN_BITS // 2) // SIXTEEN_BITS
    return Image.fromarray(scaled.astype(np.uint8))


def _resized(now: tuple[int, int], size: int, square: bool) -> tuple[int, int]:
    if square:
        return size, size
    width, height = (max(size, round(side * size / min(now))) for side in now)
    if width * height > LARGEST:
        raise ValueError(f"its {now[0]} × {now[1]} pixels are too long and narrow for a short side of {size}: cut it")
    return width, height


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "it is no image, or of an unknown format"
    return str(error).rstrip(".") or type(error).__name__


def decode_stored(stored: Stored, *, size: int, square: bool) -> Decoded:
    """Read and decode one image; a problem is told, not raised."""
    path, start, length, data = stored
    try:
        if data is None:
            with open(path, "rb") as file:  # noqa: PTH123 (a Path for each image would cost more than opening it)
                file.seek(start)
                data = file.read(length)
        image = decode_image(data, size=size, square=square)
    except (OSError, ValueError) as error:
        return Decoded(0, 0, 0, b"", getattr(error, "strerror", None) or str(error))
    pixels = image.tobytes()
    return Decoded(image.height, image.width, zlib.crc32(pixels), pixels)


def _serve(requests: BinaryIO, answers: BinaryIO, *, size: int, square: bool) -> None:
    while True:
        try:
            images: list[Stored] = pickle.load(requests)
        except EOFError:
            return
        pickle.dump([tuple(decode_stored(stored, size=size, square=square)) for stored in images], answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody there to answer: end without a word
    warnings.simplefilter("ignore")  # Pillow's remarks about odd metadata; what matters raises
    _serve(sys.stdin.buffer, sys.stdout.buffer, size=int(sys.argv[1]), square=sys.argv[2] == "1")
