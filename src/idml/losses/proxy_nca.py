"""ProxyNCA loss (Movshovitz-Attias et al., ICCV 2017)."""

from jaxtyping import Float
from torch import Tensor

from idml.losses.softmax import proxy_softmax
from idml.pairs import Pairs


def proxy_nca_loss(
    distance: Float[Tensor, "n c"], pairs: Pairs, *, scale: float = 9.0, include_positive: bool = False
) -> Float[Tensor, ""]:
    """−log(ΣP e^{−s·d} / ΣN e^{−s·d}), the mean over images that have a positive and a negative.

    include_positive=True puts the positives into the denominator, as ProxyNCA++ (ECCV 2020) does.
    """
    return proxy_softmax(distance, pairs, scale=scale, include_positive=include_positive)
