"""FastAP loss (Cakir et al., Deep Metric Learning to Rank, CVPR 2019)."""

from jaxtyping import Float
from torch import Tensor

from idml.hinges import ratio, weighted
from idml.pairs import Pairs, check_fits


def fast_ap_loss(
    distance: Float[Tensor, "n m"], pairs: Pairs, *, bins: int = 10, max_distance: float = 2.0
) -> Float[Tensor, ""]:
    """1 − average precision, on soft histograms of squared distances.

    Centres lie at l·Δ, l = 0 … bins, Δ = max_distance²/bins; each distance is shared by its two
    nearest centres. The precision at l is H⁺_l/H_l, of cumulated histograms; an image's average
    precision Σ_l h⁺_l H⁺_l/H_l ÷ ΣP; the mean is over images that have a positive.
    """
    check_fits(distance, pairs)
    if bins < 1 or max_distance <= 0:
        raise ValueError(f"bins is {bins} and max_distance {max_distance}: give at least 1 bin and a distance above 0.")
    place = distance.square() * (bins / max_distance**2)
    # Two places past the last centre take what lies beyond the range, and are dropped.
    lower = place.detach().floor().clamp_(0, bins + 1).long()
    upper_share = (place - lower).clamp(max=1)
    lower_share = 1 - upper_share

    def histogram(weights: Tensor) -> Tensor:
        counts = distance.new_zeros(len(distance), bins + 3)
        counts = counts.scatter_add(1, lower, weighted(lower_share, weights))
        counts = counts.scatter_add(1, lower + 1, weighted(upper_share, weights))
        return counts[:, : bins + 1]

    positive = histogram(pairs.positive)
    seen_positive = positive.cumsum(dim=1)
    seen = seen_positive + histogram(pairs.negative).cumsum(dim=1)
    precision = seen_positive / seen.masked_fill(seen == 0, 1)
    number = pairs.positive.to(distance.dtype).sum(dim=1)
    average = (positive * precision).sum(dim=1) / number.masked_fill(number == 0, 1)
    return ratio((1 - average).masked_fill(number == 0, 0).sum(), (number > 0).sum().to(distance.dtype))
