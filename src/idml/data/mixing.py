"""Mixed images: the ambiguous ones that an introspective model learns its uncertainty from.

Mixup (Zhang et al., ICLR 2018), CutMix (Yun et al., ICCV 2019), Manifold Mixup (Verma et al., ICML
2019) and Remix (Chou et al., ECCV workshops 2020). Each draws a `Mixing`, who is mixed with whom
and in which shares, from an explicit generator; the Mixing then labels the mixed images, as sets
or as shares. Nothing here waits for a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from idml.data.batches import check_between, check_images, in_float, sent, uniform
from idml.errors import unknown_name
from idml.labels import Labels, as_members, as_shares, check_class_numbers, check_labels

LEAST_CONCENTRATION = 0.01  # of Beta(a, a): with less, float32 takes a share of 0 or 1 for one of a half


@dataclass(frozen=True, eq=False)
class Mixing:
    """Image i becomes share[i] of itself and the rest of image partner[i].

    `label_share` is the share that the labels tell of; only Remix makes it differ from `share`.

    >>> mixing = Mixing(torch.tensor([1, 0]), torch.tensor([0.7, 0.7]), torch.tensor([0.7, 0.7]))
    >>> mixing.label_shares(torch.tensor([0, 2]), 3)
    tensor([[0.7000, 0.0000, 0.3000],
            [0.3000, 0.0000, 0.7000]])
    """

    partner: Int[Tensor, " n"]
    share: Float[Tensor, " n"]
    label_share: Float[Tensor, " n"]
    per_image: bool = False

    def label_sets(self, labels: Labels, num_classes: int, *, smallest_share: float = 0.0) -> Bool[Tensor, "n c"]:
        """All classes of which a mixed image has more than `smallest_share` (IDML's label sets)."""
        members, others = self._members(labels, num_classes)
        own = (members > 0) & (self.label_share > smallest_share)[:, None]
        other = (others > 0) & (1 - self.label_share > smallest_share)[:, None]
        return own | other

    def label_shares(self, labels: Labels, num_classes: int) -> Float[Tensor, "n c"]:
        """How much of each class a mixed image has (Mixup's labels)."""
        own, others = (as_shares(members).to(self.share.dtype) for members in self._members(labels, num_classes))
        return self._blend(own, others, self.label_share)

    def other_labels(self, labels: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "n ..."]:
        """The partners' labels, for `objective(mixed, labels, other_labels, share)`."""
        check_labels(labels)
        self._check_number(labels)
        return labels[self.partner]

    @property
    def batch_share(self) -> Float[Tensor, ""]:
        """The one share of the whole batch, for `objective(mixed, labels, other_labels, share)`."""
        if self.per_image:
            raise ValueError("each image has a share of its own: draw with per_image=False for one share a batch.")
        return self.label_share[0]

    def mix(self, values: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """share · values + (1 − share) · the partners' values, for images, feature maps or embeddings."""
        self._check_number(values)
        if not values.is_floating_point():
            raise ValueError(f"values have dtype {values.dtype}: convert them to a floating-point type to mix them.")
        return self._blend(values, values[self.partner], self.share)

    def beside_originals(self) -> Mixing:
        """The mixing of a batch that holds every image twice: first unmixed, then mixed as here."""
        itself, whole = torch.arange(len(self.partner), device=self.partner.device), torch.ones_like(self.share)
        return Mixing(
            torch.cat([itself, self.partner]),
            torch.cat([whole, self.share]),
            torch.cat([whole, self.label_share]),
            per_image=True,
        )

    def _members(self, labels: Labels, num_classes: int) -> tuple[Shaped[Tensor, "n c"], Shaped[Tensor, "n c"]]:
        """Of the images, and of their partners."""
        self._check_number(labels)
        return as_members(labels, num_classes), as_members(self.other_labels(labels), num_classes)

    def _check_number(self, rows: Tensor) -> None:
        if len(rows) != len(self.partner):
            raise ValueError(f"there are {len(rows)} rows and a mixing of {len(self.partner)}: draw it for as many.")

    @staticmethod
    def _blend(own: Tensor, other: Tensor, share: Tensor) -> Tensor:
        share = share.to(own.dtype).reshape(-1, *(1,) * (own.ndim - 1))
        return other + share * (own - other)


def draw_mixing(
    images: int,
    *,
    concentration: float = 1.0,
    per_image: bool = False,
    together: int = 1,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Mixing:
    """Partners by a random permutation, shares by λ ~ Beta(a, a), one a batch unless `per_image`.

    together: so many images that stand beside each other, those of a class, have partners beside each other.
    """
    if images < 1:
        raise ValueError(f"a mixing of {images} images: give at least 1.")
    if together < 1 or images % together:
        raise ValueError(f"{images} images do not divide into groups of {together}: change one of them.")
    if not LEAST_CONCENTRATION <= concentration < float("inf"):
        raise ValueError(f"concentration is {concentration}: give at least {LEAST_CONCENTRATION}, for Beta(a, a).")
    source = generator.device if generator is not None else torch.device(device or "cpu")
    groups = torch.randperm(images // together, generator=generator, device=source)
    partner = (groups[:, None] * together + torch.arange(together, device=source)).reshape(-1)
    parameters = torch.full((images if per_image else 1, 2), float(concentration), device=source)
    share = torch._sample_dirichlet(parameters, generator=generator)[:, 0]  # pyright: ignore[reportPrivateImportUsage]
    share = share.expand(images)
    partner, share = (sent(drawn.contiguous(), torch.device(device or source)) for drawn in (partner, share))
    return Mixing(partner, share, share, per_image)


def mixup(
    images: Shaped[Tensor, "n c h w"],
    *,
    concentration: float = 1.0,
    per_image: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[Shaped[Tensor, "n c h w"], Mixing]:
    """x_m = λ·x₁ + (1 − λ)·x₂."""
    check_images(images)
    mixing = draw_mixing(
        len(images), concentration=concentration, per_image=per_image, generator=generator, device=images.device
    )
    return blend(images, images[mixing.partner], mixing), mixing


def cutmix(
    images: Shaped[Tensor, "n c h w"],
    *,
    concentration: float = 1.0,
    per_image: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[Shaped[Tensor, "n c h w"], Mixing]:
    """A rectangle of the partner, about 1 − λ of the area, pasted at a random place.

    The share is what the rectangle, cut at the border and in whole pixels, really leaves.
    """
    check_images(images)
    mixing = draw_mixing(
        len(images), concentration=concentration, per_image=per_image, generator=generator, device=images.device
    )
    return paste(images, images[mixing.partner], mixing, generator=generator)


def blend(
    images: Shaped[Tensor, "n c h w"], partners: Shaped[Tensor, "n c h w"], mixing: Mixing
) -> Shaped[Tensor, "n c h w"]:
    """Mixup of images with partners that are already beside them."""
    share = mixing.share
    return in_float(images, lambda own: Mixing._blend(own, partners.to(own.dtype), share))


def paste(
    images: Shaped[Tensor, "n c h w"],
    partners: Shaped[Tensor, "n c h w"],
    mixing: Mixing,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Shaped[Tensor, "n c h w"], Mixing]:
    """CutMix of images with partners that are already beside them, and the mixing with the shares that came out."""
    boxes = len(images) if mixing.per_image else 1
    side = (1 - mixing.share[:boxes]).sqrt()
    centre = uniform((2, boxes), images, generator)
    height, width = images.shape[2:]
    in_rows = _stretch(centre[0], side, height)  # (boxes, height)
    in_columns = _stretch(centre[1], side, width)  # (boxes, width)
    is_pasted = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]  # (boxes, 1, height, width)
    share = 1 - is_pasted.float().mean(dim=(1, 2, 3)).expand(len(images))
    mixed = torch.where(is_pasted, partners, images)
    return mixed, replace(mixing, share=share, label_share=share)


def remix(
    images: Shaped[Tensor, "n c h w"],
    labels: Int[Tensor, " n"],
    class_counts: Int[Tensor, " classes"],
    *,
    kappa: float = 3.0,
    tau: float = 0.5,
    concentration: float = 1.0,
    per_image: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[Shaped[Tensor, "n c h w"], Mixing]:
    """Mixup whose labels favour rare classes.

    Where the image's class is κ times as frequent as its partner's and its share is below τ, the
    label is the partner's alone; the other way round, the image's alone.
    """
    if not kappa >= 1:
        raise ValueError(f"kappa is {kappa}: a class counts as frequent from a ratio of 1 or more.")
    check_between("tau", tau, 0.0, 1.0)
    check_labels(labels)
    if labels.ndim != 1 or len(labels) != len(images):
        raise ValueError(f"labels have shape {tuple(labels.shape)} for {len(images)} images: give class numbers (n,).")
    if not isinstance(class_counts, Tensor) or class_counts.ndim != 1:
        raise ValueError("class_counts is no tensor of shape (classes,): give the number of images of each class.")
    check_class_numbers(labels, len(class_counts))
    mixed, mixing = mixup(images, concentration=concentration, per_image=per_image, generator=generator)
    count = class_counts.to(images.device)[labels].to(mixing.share.dtype)
    frequency = count / count[mixing.partner]
    label_share = mixing.share.masked_fill((frequency >= kappa) & (mixing.share < tau), 0)
    label_share = label_share.masked_fill((frequency <= 1 / kappa) & (1 - mixing.share < tau), 1)
    return mixed, replace(mixing, label_share=label_share, per_image=True)


@contextmanager
def manifold_mixup(model: nn.Module, layer: str, mixing: Mixing) -> Iterator[None]:
    """While this is open, the output of the named layer is mixed.

    mixing = draw_mixing(len(images)).beside_originals()
    with manifold_mixup(model, "layer3", mixing):
        embedding = model(torch.cat([images, images]))
    """
    modules = dict(model.named_modules())
    if layer not in modules or layer == "":
        raise unknown_name("layer", layer, [name for name in modules if name])
    runs = 0

    def mix_output(_module: nn.Module, _inputs: tuple, output: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        if not isinstance(output, Tensor):
            raise ValueError(f"layer {layer!r} returns a {type(output).__name__}: choose one that returns a tensor.")
        return mixing.mix(output)

    handle = modules[layer].register_forward_hook(mix_output)
    try:
        yield
    finally:
        handle.remove()
    if runs != 1:
        raise ValueError(f"layer {layer!r} ran {runs} times inside manifold_mixup: it must run once.")


def _stretch(
    centre: Float[Tensor, " boxes"], side: Float[Tensor, " boxes"], length: int
) -> Bool[Tensor, "boxes length"]:
    """Which of `length` pixels lie within a box, cut at the border."""
    low = ((centre - side / 2) * length).round()[:, None]
    high = ((centre + side / 2) * length).round()[:, None]
    pixel = torch.arange(length, device=centre.device)
    return (pixel >= low) & (pixel < high)
