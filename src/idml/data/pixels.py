"""Images of a cache on a device, and crops of them: a batch in a handful of kernels, without waiting.

Pixels are held as 32-bit words: red, green, blue and one empty byte. One gather then brings all three
channels of a pixel, four gathers make a bilinear crop where single bytes would take twelve. The words
take a third more memory than the bytes.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int32, Shaped, UInt8
from torch import Tensor
from torch.nn import functional

from idml.data.batches import sent
from idml.data.cache import CHANNELS, Cache
from idml.data.memory import free_memory

WORD = 4  # bytes of a pixel on the device
SHARE_OF_FREE_MEMORY = 0.5  # what the images may take of it, unless a budget is given
PORTION = 64 << 20  # bytes that travel to the device at a time
CPU_BLOCK = 4  # crops that a CPU makes at a time: over twice as fast as all at once, for they fit its caches


class Pixels:
    """Chosen images of a cache, ready to be cropped on a device.

    They are held there as a whole, or, if they exceed the budget, stay on the memory map, and the bytes
    of each batch travel when it is cropped. Places count among the chosen rows, from 0.
    """

    def __init__(self, cache: Cache, rows: Int[Tensor, " n"], device: torch.device | str, *, is_held: bool):
        self.device = torch.empty(0, device=device).device  # cuda becomes cuda:0, as tensors say
        self._cache, self._rows = cache, rows
        heights, widths = (torch.from_numpy(side)[rows].long() for side in (cache.index.heights, cache.index.widths))
        self._areas = heights * widths  # stays on the CPU
        self._heights, self._widths = heights.to(self.device), widths.to(self.device)
        self._words = self._loaded(torch.arange(len(rows))) if is_held else None
        self._starts = sent(_starts(self._areas), self.device)

    @classmethod
    def of(
        cls, cache: Cache, rows: Int[Tensor, " n"], device: torch.device | str = "cpu", *, budget: int | None = None
    ) -> Pixels:
        """The images in these rows. budget: bytes of device memory for them; if not given, half of what is free."""
        areas = cache.index.heights.astype(np.int64) * cache.index.widths
        needed = WORD * int(areas[rows.numpy()].sum())
        allowed = SHARE_OF_FREE_MEMORY * free_memory(torch.device(device)) if budget is None else budget
        return cls(cache, rows, device, is_held=needed <= allowed)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_held(self) -> bool:
        """Whether the images are on the device as a whole."""
        return self._words is not None

    def sizes(self, places: Int[Tensor, " batch"]) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
        """Heights and widths of the images at these places, on the device."""
        there = sent(places, self.device)
        return self._heights[there], self._widths[there]

    def crops(
        self,
        places: Int[Tensor, " batch"],
        boxes: Float[Tensor, "batch 4"],
        size: int,
        *,
        flip: Bool[Tensor, " batch"] | None = None,
        dtype: torch.dtype = torch.uint8,
    ) -> Shaped[Tensor, "batch 3 size size"]:
        """One box of each image, as `resampled` makes it. places: on the CPU, or anywhere if the images are held."""
        heights, widths = self.sizes(places)
        if self._words is not None:
            words, starts = self._words, self._starts[sent(places, self.device)]
        else:
            words, starts = self._loaded(places), sent(_starts(self._areas[places]), self.device)
        return resampled(words, starts, heights, widths, boxes, size, flip=flip, dtype=dtype)

    def _loaded(self, places: Int[Tensor, " batch"]) -> Int32[Tensor, " pixels"]:
        """The pixels at these places, one after another, as words on the device."""
        areas = self._areas[places]
        words = torch.empty(int(areas.sum()), dtype=torch.int32, device=self.device)
        portion = _starts(areas) * CHANNELS // PORTION  # the number of the portion that each image travels in
        first = 0
        for rows in self._rows[places].split(torch.unique_consecutive(portion, return_counts=True)[1].tolist()):
            stored = [self._cache.image(row).reshape(-1) for row in rows.tolist()]
            gathered = torch.empty(sum(map(len, stored)), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
            np.concatenate(stored, out=gathered.numpy())
            part = as_words(gathered.to(self.device, non_blocking=True))
            words[first : first + len(part)] = part
            first += len(part)
        return words


def as_words(pixels: UInt8[Tensor, " bytes"]) -> Int32[Tensor, " pixels"]:
    """Three bytes a pixel, one after another, as one word a pixel."""
    return functional.pad(pixels.view(-1, CHANNELS), (0, WORD - CHANNELS)).view(torch.int32).view(-1)


def resampled(
    words: Int32[Tensor, " pixels"],
    starts: Int[Tensor, " n"],
    heights: Int[Tensor, " n"],
    widths: Int[Tensor, " n"],
    boxes: Float[Tensor, "n 4"],
    size: int,
    *,
    flip: Bool[Tensor, " n"] | None = None,
    dtype: torch.dtype = torch.uint8,
) -> Shaped[Tensor, "n 3 size size"]:
    """Boxes (top, left, height, width, in pixels) of images, bilinearly resized to size × size, channels last.

    The centre of a pixel lies half a pixel from its border; beyond the image its border is repeated. A
    box of size × size whole pixels gives these pixels exactly. uint8 is rounded, other types are 0 to 1.
    flip: which crops are mirrored, left to right.
    """
    flip = torch.zeros_like(starts, dtype=torch.bool) if flip is None else flip
    images = (starts, heights, widths, boxes, flip)
    if words.device.type != "cpu" or torch.compiler.is_compiling():
        return _resampled(words, *images, size=size, dtype=dtype)
    blocks = zip(*(column.split(CPU_BLOCK) for column in images), strict=True)
    return torch.cat([_resampled(words, *block, size=size, dtype=dtype) for block in blocks])


def _resampled(
    words: Tensor,
    starts: Tensor,
    heights: Tensor,
    widths: Tensor,
    boxes: Tensor,
    flip: Tensor,
    *,
    size: int,
    dtype: torch.dtype,
) -> Tensor:
    top, left, tall, wide = boxes.unbind(dim=1)
    above, below, down = _neighbours(top, tall, heights, size)  # (n, size) each
    before, after, right = (
        torch.where(flip[:, None], side.flip(1), side) for side in _neighbours(left, wide, widths, size)
    )
    upper, lower = ((starts[:, None] + row * widths[:, None])[:, :, None] for row in (above, below))  # (n, size, 1)
    before, after = before[:, None, :], after[:, None, :]  # (n, 1, size)
    right, down = right[:, None, :, None], down[:, :, None, None]
    along_upper = _colours(words, upper + before).lerp_(_colours(words, upper + after), right)  # (n, size, size, 4)
    along_lower = _colours(words, lower + before).lerp_(_colours(words, lower + after), right)
    crops = along_upper.lerp_(along_lower, down)
    crops = crops.round_().to(torch.uint8) if dtype is torch.uint8 else crops.div_(255).to(dtype)
    return crops.movedim(3, 1)[:, :CHANNELS].contiguous(memory_format=torch.channels_last)


def _neighbours(
    first: Float[Tensor, " n"], length: Float[Tensor, " n"], limit: Int[Tensor, " n"], size: int
) -> tuple[Int[Tensor, "n size"], Int[Tensor, "n size"], Float[Tensor, "n size"]]:
    """The two pixels around each sampling point along one side, and how far it lies towards the second."""
    middle = torch.arange(size, device=first.device) + 0.5
    point = first[:, None] + middle * (length / size)[:, None] - 0.5
    last = limit[:, None] - 1
    point = torch.minimum(point.clamp(min=0), last)
    near = point.floor()
    return near.long(), torch.minimum(near.long() + 1, last), point - near


def _colours(words: Int32[Tensor, " pixels"], places: Int[Tensor, "n h w"]) -> Float[Tensor, "n h w 4"]:
    """The bytes of the words at these places, as numbers from 0 to 255."""
    found = words.index_select(0, places.reshape(-1)).view(*places.shape, 1)
    if torch.compiler.is_compiling():  # shifts become one kernel with the gather, which another view would not
        return ((found >> torch.arange(0, 8 * WORD, 8, device=found.device, dtype=found.dtype)) & 255).float()
    return found.view(torch.uint8).float()


def _starts(areas: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    return areas.cumsum(0) - areas
