"""Batches for the trainer: which images, how they are cut and with whom they are mixed.

All of it follows from (seed, epoch, batch) and is drawn for the whole global batch on every rank, which
then cuts out only its own share: the images are the same under any number of ranks, and after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from idml.data.batches import seeded, sent
from idml.data.crops import random_flips, random_resized_boxes, resize_and_crop_boxes
from idml.data.mixing import Mixing, blend, draw_mixing, paste
from idml.data.pixels import Pixels
from idml.data.samplers import class_balanced_batches, random_batches
from idml.models.preprocessing import resized
from idml.training.distributed import own_share, ranks
from idml.training.parts import DataConfig, MixingConfig

OTHERS = 1  # with the seed, the numbers by which the images are drawn that are mixed in place of the batch's


@dataclass(frozen=True, eq=False)
class Batch:
    """This rank's images, mixed ones beside them, and the labels and mixing of the whole global batch.

    A mixing without mixed images is one of their features. `others` are the labels of images that were mixed in place
    of those of the batch.
    """

    images: Shaped[Tensor, "n c h w"]
    mixed: Shaped[Tensor, "n c h w"] | None
    labels: Int[Tensor, " g"]
    mixing: Mixing | None
    others: Int[Tensor, " g"] | None = None

    @property
    def first_labels(self) -> Int[Tensor, " g"]:
        """Of mixed images, those of the image that each was before a partner came to it."""
        return self.labels if self.others is None else self.others


class Feed:
    """Batches of training images on the device."""

    def __init__(self, pixels: Pixels, labels: Int[Tensor, " n"], data: DataConfig, mixing: MixingConfig, *, seed: int):
        self.pixels, self.data, self.mixing, self.seed = pixels, data, mixing, seed
        self.labels = labels
        self.device_labels = labels.to(pixels.device)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._places(0))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The epoch's batches from number `start` on."""
        every = self._places(epoch)
        of_others = self._places(epoch, seed=seeded(self.seed, OTHERS).initial_seed()) if self._mixes_others else every
        for number, (places, others) in enumerate(zip(every, of_others, strict=True)):
            if number >= start:
                yield self._batch(places, others, seeded(self.seed, epoch, number))

    def _places(self, epoch: int, *, seed: int | None = None) -> Int[Tensor, "batches g"]:
        seed = self.seed if seed is None else seed
        if self.data.per_class is None:
            return random_batches(len(self.labels), self.data.batch, seed=seed, epoch=epoch)
        return class_balanced_batches(
            self.labels, self.data.batch, per_class=self.data.per_class, seed=seed, epoch=epoch
        )

    def _batch(self, places: Int[Tensor, " g"], others: Int[Tensor, " g"], generator: torch.Generator) -> Batch:
        boxes, flips = self._cuts(places, generator)
        images = self._crops(own_share(places), own_share(boxes), own_share(flips))
        labels = self._labels_of(places)
        if self.mixing.mixing == "none":
            return Batch(images, None, labels, None)
        mixing = draw_mixing(
            len(places),
            concentration=self.mixing.concentration,
            together=self._images_of_a_class,
            generator=generator,
        )
        if self.mixing.mixing == "features":
            return Batch(images, None, labels, _on(mixing, images.device))
        first, labels_of_others = images, None
        if self._mixes_others:
            boxes, flips = self._cuts(others, generator)
            first = self._crops(own_share(others), own_share(boxes), own_share(flips))
            labels_of_others = self._labels_of(others)
        own = own_share(mixing.partner)
        there = sent(own, images.device)
        is_alone = ranks() == 1  # otherwise partners may belong to another rank
        partners = first[there] if is_alone else self._crops(others[own], boxes[there], flips[there])
        mixing = _on(mixing, images.device)
        local = replace(mixing, share=own_share(mixing.share), label_share=own_share(mixing.label_share))
        if self.mixing.mixing == "mixup":
            return Batch(images, blend(first, partners, local), labels, mixing, labels_of_others)
        mixed, pasted = paste(first, partners, local, generator=generator)
        share = pasted.share[:1].expand(len(places))
        mixing = replace(mixing, share=share, label_share=share)
        return Batch(images, mixed, labels, mixing, labels_of_others)

    @property
    def _mixes_others(self) -> bool:
        return self.mixing.mixing != "none" and self.mixing.mixed_from == "others"

    @property
    def _images_of_a_class(self) -> int:
        """That are mixed with those of one other class, so that the new class between both has as many."""
        return (self.data.per_class or 1) if self.mixing.mixed_labels == "classes" else 1

    def _cuts(
        self, places: Int[Tensor, " g"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "g 4"], Bool[Tensor, " g"]]:
        size, (heights, widths) = self.data.image_size, self.pixels.sizes(places)
        if self.data.crop == "random_resized":
            boxes = random_resized_boxes(heights, widths, scale=self.data.crop_scale, generator=generator)
        else:
            boxes = resize_and_crop_boxes(heights, widths, size=size, of=resized(size), generator=generator)
        flips = random_flips(heights, generator=generator) & self.data.flip
        return boxes, flips

    def _labels_of(self, places: Int[Tensor, " g"]) -> Int[Tensor, " g"]:
        return self.device_labels[sent(places, self.device_labels.device)]

    def _crops(self, places: Tensor, boxes: Tensor, flips: Tensor) -> Tensor:
        return self.pixels.crops(places, boxes, self.data.image_size, flip=flips)


def _on(mixing: Mixing, device: torch.device) -> Mixing:
    parts = {name: sent(getattr(mixing, name), device) for name in ("partner", "share", "label_share")}
    return replace(mixing, **parts)
