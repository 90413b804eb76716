"""ProxyAnchor loss (Kim et al., CVPR 2020)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from idml.numerics.log_sums import is_something, log_sums
from idml.pairs import Pairs, fitting


def proxy_anchor_loss(
    distance: Float[Tensor, "n c"], pairs: Pairs, *, alpha: float = 32.0, margin: float = 0.1
) -> Float[Tensor, ""]:
    """Each proxy pulls its images and pushes the others, the hardest most; c = 1 − d.

    log(1 + ΣP e^{−α(c−δ)}), the mean over proxies that have a positive in the batch, plus
    log(1 + ΣN e^{α(c+δ)}), the mean over all proxies. The sums run down the columns.
    """
    distance = fitting(distance, pairs)
    if distance.shape[1] == 0:
        return distance.sum()
    near, far = log_sums(distance, [(pairs.positive, alpha), (pairs.negative, -alpha)], dim=0)
    with_positive = is_something(near).sum().clamp(min=1)
    pull = softplus(near + alpha * (margin - 1))
    push = softplus(far + alpha * (1 + margin))
    return pull.sum() / with_positive + push.mean()
