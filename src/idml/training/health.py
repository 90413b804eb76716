"""Whether a run does what it should: what the uncertainty learns, and words of warning when it learns nothing.

Everything is summed on the device and read once an epoch, so that looking costs no waiting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from idml.distances import Introspective
from idml.embedding import Embedding
from idml.pairs import Pairs

SATURATED = 0.01  # a pair of less weight e^{−β̃/τ} than this moves nothing any more
DEAD = 1e-4  # of the semantic head's gradient: an uncertainty head that gets less learns nothing
MOST_SATURATED = 0.5  # of the pairs: beyond, training stands still
NOISE = 0.25  # of the loss: uncertainty that adds more than this to it learns too fast, for it could be 0
COLLAPSED = 0.01  # a level that varies by less than this share of its mean says nothing


class Averages:
    """Means over an epoch of numbers that stay on the device until they are asked for; a checkpoint keeps them."""

    def __init__(self):
        self._sums: dict[str, Tensor] = {}
        self._numbers: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            value = value.detach().double()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._numbers[name] = self._numbers.get(name, 0) + 1

    def read(self) -> dict[str, float]:
        """All means, in one message from the device; then start over."""
        if not self._sums:
            return {}
        values = torch.stack(list(self._sums.values())).tolist()
        means = {name: value / self._numbers[name] for name, value in zip(self._sums, values, strict=True)}
        self.__init__()
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self._sums, "numbers": self._numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self._numbers = dict(state["sums"]), dict(state["numbers"])


@torch.no_grad()
def doubts(
    embedding: Embedding,
    compared: Embedding,
    pairs: Pairs,
    distance: Introspective,
    *,
    mixed: Embedding | None = None,
    is_centred: bool = False,
) -> dict[str, Tensor]:
    """Levels of clean and mixed images; relative uncertainty and weight e^(−β̃/τ) of the pairs that are compared.

    compared: proxies, or the images themselves, and then mixed images are compared among themselves as well.
    is_centred: weights are those about the mean uncertainty of the pairs. Since they are near 1 on average, whatever
    that is, it is their deviation that shows whether uncertainty counts.
    """
    level = embedding.level
    values = {"level_clean": level.mean(), "level_deviation": level.std(correction=0)}
    relative = distance.relative_uncertainty(embedding, compared)
    positive, negative = pairs.positive > 0, pairs.negative > 0
    is_pair, mean = positive | negative, None
    if is_centred:
        parts = distance.parts(embedding, compared)
        mean = _mean(parts.doubt, is_pair)
        weight = distance.weight_about_mean(parts, mean)
    else:
        weight = torch.exp(-relative / distance.tau)
    for name, chosen in (("positive", positive), ("negative", negative)):
        values[f"relative_uncertainty_{name}"] = _mean(relative.clamp(max=1e6), chosen)
        values[f"weight_{name}"] = _mean(weight, chosen)
    values["weight_deviation"] = _mean((weight - _mean(weight, is_pair)).square(), is_pair).sqrt()
    values["saturated_pairs"] = _mean((weight < SATURATED).float(), is_pair)
    if mixed is not None and len(mixed):
        values["level_mixed"] = mixed.level.mean()
        others = mixed if compared is embedding else compared
        if mean is not None:
            weight = distance.weight_about_mean(distance.parts(mixed, others), mean)
        else:
            weight = torch.exp(-distance.relative_uncertainty(mixed, others) / distance.tau)
        is_pair = ~torch.eye(*weight.shape, dtype=torch.bool, device=weight.device) if others is mixed else weight > -1
        values["weight_mixed"] = _mean(weight, is_pair)
    return values


@torch.no_grad()
def gradient_norms(groups: Mapping[str, list[nn.Parameter]]) -> dict[str, Tensor]:
    """‖gradient‖ of each group of parameters that has one."""
    norms = {}
    for name, parameters in groups.items():
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if grads:
            norms[f"gradient_{name}"] = torch.stack([grad.norm() for grad in grads]).norm()
    return norms


def warnings(means: Mapping[str, float], *, may_be_equal: bool = False, has_proxies: bool = False) -> list[str]:
    """What is wrong in this epoch, with the loss or with the uncertainty, in words; nothing, if all is well.

    may_be_equal: levels of all images, since they were so at the start, or are meant to be.
    has_proxies: images are compared with these, and not with each other.
    """
    told = []
    if means.get("gradient_semantic_embedding") == 0:
        more = "" if has_proxies else "give more images of a class to a batch (per_class=4), or "
        told.append(f"no pair has taught anything (loss {means['loss']:.3g}): {more}take other margins or scales.")
    level = means.get("level_clean")
    if level is None:
        return told
    learning, beside = means.get("gradient_uncertainty", math.inf), means.get("gradient_semantic", 0.0)
    if learning < DEAD * beside:
        told.append(
            f"the uncertainty layer is dead: its gradient is {learning:.2g} beside {beside:.2g}. "
            "Raise uncertainty_factor, or lower tau."
        )
    if means.get("saturated_pairs", 0.0) > MOST_SATURATED:
        told.append(
            f"{means['saturated_pairs']:.0%} of the pairs are saturated (level {level:.3g}): training stands still. "
            "Raise tau, or lower uncertainty_level and uncertainty_gradient."
        )
    with_it, without = (means.get(f"loss_{kind}_uncertainty", 0.0) for kind in ("with", "without"))
    if with_it - without > NOISE * abs(without):
        told.append(
            f"uncertainty makes the loss larger, {with_it:.3g} where it is {without:.3g} without: it learns too fast. "
            "Lower uncertainty_factor."
        )
    if not may_be_equal and means.get("level_deviation", math.inf) < COLLAPSED * level:
        told.append(
            f"the level has collapsed: {level:.3g} for all images. "
            "Mix images (mixing=mixup), or raise uncertainty_factor."
        )
    return told


def _mean(values: Float[Tensor, "#n #m"], chosen: Bool[Tensor, "n m"]) -> Tensor:
    """Over the chosen places; 0 where there are none."""
    return torch.where(chosen, values, 0).sum() / chosen.sum().clamp(min=1)
