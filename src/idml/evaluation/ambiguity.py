"""Whether the level rises when an image is made ambiguous on purpose: the question that decides what it means.

Images are blurred, cropped, occluded, made coarse, or mixed with another one, by degrees (IDML,
TPAMI 2023, figure "uncertainty levels on the test split", which mixes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from idml.data.batches import check_between, check_images, in_float
from idml.data.corruptions import blur, crop, low_resolution, occlusion
from idml.embedding import Embedding, check_embedding
from idml.evaluation.uncertainty import r_auroc, share_that_rises

DEGREES = (0.25, 0.5, 0.75, 1.0)
CORRUPTIONS = {"blur": blur, "crop": crop, "occlusion": occlusion, "low_resolution": low_resolution}
KINDS = (*CORRUPTIONS, "mix")

Images = Shaped[Tensor, "n c h w"]


@dataclass(frozen=True, eq=False)
class ChangedLevels:
    """The level of each image as it is, and changed: `changed["blur"][0.5]`. On the CPU."""

    clean: Float[Tensor, " n"]
    changed: dict[str, dict[float, Float[Tensor, " n"]]]

    def share_that_rises(self) -> dict[str, dict[float, float]]:
        """For each kind and degree, the share of images whose level is higher than before."""
        return {
            kind: {degree: float(share_that_rises(self.clean, level)) for degree, level in levels.items()}
            for kind, levels in self.changed.items()
        }


def told_apart(clean_level: Float[Tensor, " n"], changed_level: Float[Tensor, " m"]) -> float:
    """AUROC: the chance that a changed image has a higher level than a clean one, equal levels counting half.

    NaN where there are none of one kind.
    """
    is_changed = torch.arange(len(clean_level) + len(changed_level)) >= len(clean_level)
    return float(r_auroc(torch.cat([clean_level, changed_level]).cpu(), is_changed))


@torch.inference_mode()
def levels_when_changed(
    embed: Callable[[Tensor], Embedding],
    images: Images | Iterable[Images],
    *,
    degrees: Sequence[float] = DEGREES,
    batch: int = 256,
    seed: int = 0,
) -> ChangedLevels:
    """Embed all images as they are and changed in every way, by every degree.

    images: uint8 or floating point, as `embed` takes them, in one tensor or in batches. Of a tensor,
    any image may be mixed with any other; batches are mixed within themselves, so shuffle them. At
    degree d, 1 − d/2 of a mixed image is itself: half and half at degree 1.
    """
    for degree in degrees:
        check_between("degree", degree, 0.0, 1.0)
    generator = torch.Generator().manual_seed(seed)
    clean: list[Tensor] = []
    changed = {kind: {degree: [] for degree in degrees} for kind in KINDS}
    for own, partners in _beside_partners(images, batch, generator):
        clean.append(_level(embed(own)))
        for kind, levels in changed.items():
            for degree, parts in levels.items():
                parts.append(_level(embed(_changed(own, partners, kind, degree, generator))))
    if not clean:
        raise ValueError("there are no images to change: give at least two.")
    return ChangedLevels(
        torch.cat(clean),
        {kind: {degree: torch.cat(parts) for degree, parts in levels.items()} for kind, levels in changed.items()},
    )


def _level(embedding: Embedding) -> Float[Tensor, " n"]:
    check_embedding(embedding)
    return embedding.level.cpu()


def _changed(own: Images, partners: Images, kind: str, degree: float, generator: torch.Generator) -> Images:
    if kind != "mix":
        return CORRUPTIONS[kind](own, degree=degree, generator=generator)
    return in_float(own, lambda images: torch.lerp(images, partners.to(images.dtype), degree / 2))


def _beside_partners(
    images: Images | Iterable[Images], batch: int, generator: torch.Generator
) -> Iterator[tuple[Images, Images]]:
    """Batches of images, and beside each image the one it is mixed with.

    A single image in a batch, as the last one may hold, takes the image before it.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}: give at least 1 image at once.")
    if isinstance(images, Tensor):
        check_images(images)
        partner = _partners(len(images), generator).to(images.device)
        for rows in torch.arange(len(images), device=images.device).split(batch):
            yield images[rows], images[partner[rows]]
        return
    before = None
    for own in images:
        check_images(own)
        pool = own if before is None or len(own) > 1 else torch.cat([own, before])
        partner = _partners(len(pool), generator).to(own.device)
        yield own, pool[partner[: len(own)]]
        before = own[-1:]


def _partners(images: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Another image for each, every image once: the next one in a random circle."""
    if images < 2:
        raise ValueError(f"{images} image to mix with another: give at least two.")
    circle = torch.randperm(images, generator=generator)
    partner = torch.empty_like(circle)
    partner[circle] = circle.roll(1)
    return partner
