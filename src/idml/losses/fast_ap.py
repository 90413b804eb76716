"""FastAP loss (Cakir et al., Deep Metric Learning to Rank, CVPR 2019)."""

from jaxtyping import Float
from torch import Tensor

from idml.numerics.histograms import soft_histogram
from idml.pairs import Pairs, fitting


def fast_ap_loss(
    distance: Float[Tensor, "n m"], pairs: Pairs, *, bins: int = 10, max_distance: float = 2.0
) -> Float[Tensor, ""]:
    """1 − average precision, on soft histograms of squared distances.

    Centres lie at l·Δ, l = 0 … bins, Δ = max_distance²/bins; each distance is shared by its two
    nearest centres. The precision at l is H⁺_l/H_l, of cumulated histograms; an image's average
    precision Σ_l h⁺_l H⁺_l/H_l ÷ ΣP; the mean is over images that have a positive.
    """
    distance = fitting(distance, pairs)
    if not (isinstance(bins, int) and bins >= 1 and 0 < max_distance < float("inf")):
        raise ValueError(f"bins is {bins} and max_distance {max_distance}: give at least 1 bin and a distance above 0.")
    width = max_distance**2 / bins
    positive = soft_histogram(distance, pairs.positive, bins=bins, width=width)
    seen_positive = positive.cumsum(dim=1)
    seen = seen_positive + soft_histogram(distance, pairs.negative, bins=bins, width=width).cumsum(dim=1)
    precision = seen_positive / seen.masked_fill(seen == 0, 1)
    number = pairs.positive.sum(dim=1, dtype=distance.dtype)
    average = (positive * precision).sum(dim=1) / number.masked_fill(number == 0, 1)
    return (1 - average).masked_fill(number == 0, 0).sum() / (number > 0).sum().clamp(min=1)
