"""Contrastive loss (Hadsell et al., CVPR 2006; Hu et al., CVPR 2014)."""

from jaxtyping import Float
from torch import Tensor

from idml.numerics.hinges import mean_over_violators
from idml.pairs import Pairs, fitting


def contrastive_loss(
    distance: Float[Tensor, "n m"], pairs: Pairs, *, positive_margin: float = 0.0, negative_margin: float = 0.5
) -> Float[Tensor, ""]:
    """Positives nearer than one margin, negatives farther than another.

    Mean over violators of [d − m₊]₊ over positive pairs, plus the same of [m₋ − d]₊ over negative
    ones. A side without violators is 0.
    """
    distance = fitting(distance, pairs)
    return mean_over_violators(distance, [(pairs.positive, 1, positive_margin), (pairs.negative, -1, negative_margin)])
