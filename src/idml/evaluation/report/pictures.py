"""Thumbnails of image files, inside the page."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

from idml.data.cache import Cache, is_cache
from idml.evaluation.report.elements import readable

LONGEST_SIDE = 128  # pixels
QUALITY = 82  # of JPEG
TINY = 32  # pixels, up to which every one matters: kept without loss


class Pictures:
    """Thumbnails by path, each file opened once; knows which ones could not be.

    root: what relative paths start from, or a cache that `idml prepare` made, which holds images by
    name; without it, the working folder.
    """

    def __init__(self, root: Path | None = None):
        self.root = Path() if root is None else Path(root)
        self._thumbnails: dict[str, str | None] = {}
        self._cache = Cache.open(self.root) if is_cache(self.root) else None
        self._rows = {} if self._cache is None else {name: row for row, name in enumerate(self._cache.names)}

    def thumbnail(self, path: str) -> str | None:
        """A data URI; None if the file is missing or broken."""
        if path not in self._thumbnails:
            self._thumbnails[path] = self._from_cache(path) or _thumbnail(self.root / path)
        return self._thumbnails[path]

    def _from_cache(self, name: str) -> str | None:
        if self._cache is None or name not in self._rows:
            return None
        from PIL import Image

        small = Image.fromarray(self._cache.image(self._rows[name]))
        small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        return _data_uri(small)

    def remarks(self) -> list[str]:
        """What the user should know: how many pictures are missing, and the remedy."""
        missing = [path for path, made in self._thumbnails.items() if made is None]
        if not missing:
            return []
        count = f"{len(missing)} of {len(self._thumbnails)} images could not be opened"
        first = readable(self.root / missing[0])
        return [f"{count}, as {first}: is it there, and whole? Relative paths start from the folder given as --images."]


def _thumbnail(path: Path) -> str | None:
    from PIL import Image, ImageOps

    try:
        if not path.is_file():  # opening a pipe would wait for ever
            return None
        with Image.open(path) as image:
            image.draft("RGB", (2 * LONGEST_SIDE, 2 * LONGEST_SIDE))  # JPEG is read at about the size needed: faster
            small = _in_colours(ImageOps.exif_transpose(image))
            small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
            return _data_uri(small)
    except Exception:  # decoders raise anything on a broken file, and the report can do without it
        return None


def _in_colours(image: Any) -> Any:
    """As red, green and blue, on white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _data_uri(image: Any) -> str:
    file = BytesIO()
    if max(image.size) <= TINY:
        image.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        image.save(file, "JPEG", quality=QUALITY, optimize=True)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
