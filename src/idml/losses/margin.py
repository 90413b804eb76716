"""Margin loss (Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017)."""

from jaxtyping import Float
from torch import Tensor

from idml.losses.contrastive import contrastive_loss
from idml.pairs import Pairs


def margin_loss(
    distance: Float[Tensor, "n m"], pairs: Pairs, *, positive_margin: float = 1.0, negative_margin: float = 1.4
) -> Float[Tensor, ""]:
    """Contrastive with slack for positives too: Wu et al.'s boundary 1.2 ∓ margin 0.2.

    `Objective` chooses its negatives by distance-weighted sampling. The paper prints a minus
    before the negative term, which would pull negatives together: it is a plus.
    """
    return contrastive_loss(distance, pairs, positive_margin=positive_margin, negative_margin=negative_margin)
