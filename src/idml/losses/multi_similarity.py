"""Multi-similarity loss (Wang et al., CVPR 2019)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from idml.numerics.log_sums import log_sums
from idml.pairs import Pairs, fitting


def multi_similarity_loss(
    distance: Float[Tensor, "n m"], pairs: Pairs, *, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5
) -> Float[Tensor, ""]:
    """Soft-maxima of the violations of a similarity threshold λ (`base`), with c = 1 − d.

    Mean over anchors of 1/α·log(1 + ΣP e^{−α(c−λ)}) + 1/β·log(1 + ΣN e^{β(c−λ)}); an anchor without
    pairs adds 0.
    """
    distance = fitting(distance, pairs)
    if len(distance) == 0:
        return distance.sum()
    near, far = log_sums(distance, [(pairs.positive, alpha), (pairs.negative, -beta)])
    pull = softplus(near + alpha * (base - 1)) / alpha
    push = softplus(far + beta * (1 - base)) / beta
    return (pull + push).mean()
