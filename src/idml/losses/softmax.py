"""Normalised softmax loss against class proxies (Wang et al., NormFace, ACM MM 2017)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from idml.numerics.log_sums import NOTHING, is_something, log_sums
from idml.pairs import Pairs, fitting


def softmax_loss(
    distance: Float[Tensor, "n c"], pairs: Pairs, *, scale: float = 20.0, include_positive: bool = True
) -> Float[Tensor, ""]:
    """−log(ΣP e^{s·c} / Σ(P + N) e^{s·c}) with c = 1 − d, the mean over images that have a positive.

    include_positive=False is the denominator as the paper prints it, ΣN e^{s·c}; images without a
    negative are then left out of the mean.
    """
    return proxy_softmax(distance, pairs, scale=scale, include_positive=include_positive)


def proxy_softmax(
    distance: Float[Tensor, "n c"], pairs: Pairs, *, scale: float, include_positive: bool
) -> Float[Tensor, ""]:
    """The loss that softmax and ProxyNCA share; 1 − d or −d is the same to it."""
    distance = fitting(distance, pairs)
    positive, negative = log_sums(distance, [(pairs.positive, -scale), (pairs.negative, -scale)])
    is_counted = is_something(positive)
    if not include_positive:
        is_counted = is_counted & is_something(negative)
    lead = (negative - positive).masked_fill(~is_counted, NOTHING if include_positive else 0)
    each = softplus(lead) if include_positive else lead
    return each.sum() / is_counted.sum().clamp(min=1)
