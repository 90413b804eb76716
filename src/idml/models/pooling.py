"""From a map of features, or a row of tokens, to one feature an image, in float32 or better.

Average and maximum add up in the code of ProxyAnchor (Kim et al., CVPR 2020), which most of the field
started from; the generalised mean is that of Radenović et al. (TPAMI 2019). Maps have shape
(n, c, h, w); tokens (n, t, c), of which the first `prefix_tokens` stand for no place in the image.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from idml.errors import unknown_name
from idml.numerics.precision import wide

STARTING_POWER = 3.0  # Radenović et al.
LEAST_POWER = 1.0  # the plain mean
FLOOR = 1e-6  # Radenović et al.: powers want positive numbers, so features below it count as this

Places = tuple[int, ...]  # the dimensions to pool over
Pool = Callable[[Tensor, Places], Tensor]


def average(features: Tensor, places: Places) -> Float[Tensor, "n c"]:
    return features.mean(dim=places, dtype=torch.promote_types(features.dtype, torch.float32))


def maximum(features: Tensor, places: Places) -> Float[Tensor, "n c"]:
    return wide(features.amax(dim=places))


def average_max(features: Tensor, places: Places) -> Float[Tensor, "n c"]:
    """Their sum, not their mean."""
    return average(features, places) + maximum(features, places)


class GeneralisedMean(nn.Module):
    """(mean xᵖ)^{1/p} with a learned p: 1 is the average, and p → ∞ the maximum. p stays at 1 or more.

    It takes features to be positive, as after a ReLU; others count as almost 0.
    """

    def __init__(self):
        super().__init__()
        self.power = nn.Parameter(torch.tensor(STARTING_POWER))

    def forward(self, features: Tensor, places: Places) -> Float[Tensor, "n c"]:
        positive = wide(features).clamp(min=FLOOR)
        # The mean scales with its input, so this changes no value and no gradient; and no power overflows.
        largest = positive.detach().amax(dim=places, keepdim=True)
        power = wide(self.power).clamp(min=LEAST_POWER)
        shares = (positive / largest).pow(power).mean(dim=places, keepdim=True).pow(1 / power)
        return (largest * shares).flatten(1)


def class_token(features: Tensor, _places: Places) -> Float[Tensor, "n c"]:
    return wide(features[:, 0])


POOLINGS: dict[str, Pool | type[GeneralisedMean]] = {
    "average": average,
    "max": maximum,
    "average_max": average_max,
    "gem": GeneralisedMean,
    "class_token": class_token,
}


class Pooling(nn.Module):
    """One of POOLINGS, over the places of a map or the tokens that stand for places.

    >>> Pooling("average_max")(torch.tensor([[[[1.0, 3.0]]]]))
    tensor([[5.]])
    """

    def __init__(self, name: str, *, prefix_tokens: int = 0):
        super().__init__()
        if name not in POOLINGS:
            raise unknown_name("pooling", name, POOLINGS)
        if name == "class_token" and not prefix_tokens:
            raise ValueError(f"pooling is {name!r} and this backbone has no class token: use 'average_max'.")
        self.name = name
        self.prefix_tokens = prefix_tokens
        chosen = POOLINGS[name]
        self.pool: Pool = chosen() if isinstance(chosen, type) else chosen

    def forward(self, features: Float[Tensor, "n c h w"] | Float[Tensor, "n t c"]) -> Float[Tensor, "n c"]:
        if features.ndim == 4:
            return self.pool(features, (2, 3))
        return self.pool(features if self.name == "class_token" else features[:, self.prefix_tokens :], (1,))

    def extra_repr(self) -> str:
        return self.name
