"""The formulas of the method as loops over float64 numbers: the outside truth of the tests."""

import math
from itertools import product

import torch
from torch import Tensor

INFINITY = float("inf")


def unit(row: Tensor) -> Tensor:
    return row / row.norm() if row.norm() > 0 else row


def length(row: Tensor, smoothing: float = 0.0) -> float:
    return math.sqrt(float(row @ row) + smoothing**2) - smoothing


def alpha_and_beta(s_a, s_b, u_a, u_b, pair_uncertainty="norm_of_sum", smoothing=0.0) -> tuple[float, float]:
    alpha = length(unit(s_a) - unit(s_b))
    if pair_uncertainty == "norm_of_sum":
        return alpha, length(u_a + u_b, smoothing)
    return alpha, length(u_a, smoothing) + length(u_b, smoothing)


def introspective(
    s_a,
    s_b,
    u_a,
    u_b,
    *,
    base="euclidean",
    tau=5.0,
    gamma=0.0,
    pair_uncertainty="norm_of_sum",
    ambiguous="similar",
    smoothing=0.0,
    strict=False,
) -> Tensor:
    result = torch.zeros(len(s_a), len(s_b), dtype=torch.float64)
    for i, j in product(range(len(s_a)), range(len(s_b))):
        alpha, beta = alpha_and_beta(s_a[i], s_b[j], u_a[i], u_b[j], pair_uncertainty, smoothing)
        cosine = float(unit(s_a[i]) @ unit(s_b[j]))
        plain = alpha if base == "euclidean" else 1 - cosine
        doubt = beta + gamma
        weight = math.exp(-doubt / alpha / tau) if alpha > 0 else float(doubt == 0)
        if strict:
            result[i, j] = plain * (alpha > doubt)
        elif ambiguous == "dissimilar":
            result[i, j] = 1 - cosine * weight
        else:
            result[i, j] = plain * weight
    return result


def mean_over_violators(terms: list[tuple[float, float]]) -> float:
    """terms: (weight, violation)."""
    total = sum(weight for weight, violation in terms if violation > 0)
    return sum(weight * violation for weight, violation in terms if violation > 0) / total if total else 0.0


def contrastive(d, positive, negative, *, positive_margin=0.0, negative_margin=0.5) -> float:
    cells = list(product(range(d.shape[0]), range(d.shape[1])))
    return mean_over_violators(
        [(float(positive[c]), float(d[c]) - positive_margin) for c in cells]
    ) + mean_over_violators([(float(negative[c]), negative_margin - float(d[c])) for c in cells])


def margin(d, positive, negative, *, positive_margin=1.0, negative_margin=1.4) -> float:
    return contrastive(d, positive, negative, positive_margin=positive_margin, negative_margin=negative_margin)


def triplet(d, positive, negative, *, margin=0.1, mining="semihard") -> float:
    terms = []
    rows, columns = d.shape
    for a, p in product(range(rows), range(columns)):
        if positive[a, p] == 0:
            continue
        candidates = [n for n in range(columns) if negative[a, n] > 0 and n != p]
        if mining == "semihard":
            candidates = sorted((n for n in candidates if d[a, n] > d[a, p]), key=lambda n: float(d[a, n]))[:1]
        terms += [
            (float(positive[a, p]) * float(negative[a, n]), float(d[a, p] - d[a, n]) + margin) for n in candidates
        ]
    return mean_over_violators(terms)


def multi_similarity(d, positive, negative, *, alpha=2.0, beta=50.0, base=0.5) -> float:
    total = 0.0
    for a in range(len(d)):
        near = sum(float(p) * math.exp(-alpha * (1 - float(x) - base)) for x, p in zip(d[a], positive[a], strict=True))
        far = sum(float(n) * math.exp(beta * (1 - float(x) - base)) for x, n in zip(d[a], negative[a], strict=True))
        total += math.log(1 + near) / alpha + math.log(1 + far) / beta
    return total / len(d)


def softmax(d, positive, negative, *, scale=20.0, include_positive=True) -> float:
    losses = []
    for x, p, n in zip(d, positive, negative, strict=True):
        terms = [math.exp(-scale * float(value)) for value in x]
        above = sum(float(weight) * term for weight, term in zip(p, terms, strict=True))
        below = sum(float(weight) * term for weight, term in zip(n, terms, strict=True))
        if above > 0 and (include_positive or below > 0):
            losses.append(-math.log(above / (below + above * include_positive)))
    return sum(losses) / len(losses) if losses else 0.0


def proxy_nca(d, positive, negative, *, scale=9.0, include_positive=False) -> float:
    return softmax(d, positive, negative, scale=scale, include_positive=include_positive)


def proxy_anchor(d, positive, negative, *, alpha=32.0, margin=0.1) -> float:
    pulls, pushes = [], []
    for x, p, n in zip(d.T, positive.T, negative.T, strict=True):
        near = sum(float(w) * math.exp(-alpha * (1 - float(v) - margin)) for v, w in zip(x, p, strict=True))
        far = sum(float(w) * math.exp(alpha * (1 - float(v) + margin)) for v, w in zip(x, n, strict=True))
        if bool((p > 0).any()):
            pulls.append(math.log(1 + near))
        pushes.append(math.log(1 + far))
    return (sum(pulls) / len(pulls) if pulls else 0.0) + sum(pushes) / len(pushes)


def fast_ap(d, positive, negative, *, bins=10, max_distance=2.0) -> float:
    width = max_distance**2 / bins
    losses = []
    for x, p, n in zip(d, positive, negative, strict=True):
        if float(p.sum()) == 0:
            continue
        average = seen_positive = seen = 0.0
        for level in range(bins + 1):
            kernel = [max(0.0, 1 - abs(float(value) ** 2 - level * width) / width) for value in x]
            here = sum(float(w) * k for w, k in zip(p, kernel, strict=True))
            seen_positive += here
            seen += here + sum(float(w) * k for w, k in zip(n, kernel, strict=True))
            average += here * seen_positive / seen if seen > 0 else 0.0
        losses.append(1 - average / float(p.sum()))
    return sum(losses) / len(losses) if losses else 0.0


LOSSES = {
    "contrastive": contrastive,
    "margin": margin,
    "triplet": triplet,
    "multi_similarity": multi_similarity,
    "softmax": softmax,
    "proxy_nca": proxy_nca,
    "proxy_anchor": proxy_anchor,
    "fast_ap": fast_ap,
}


def pair_weights(members_a: Tensor, members_b: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative weights of boolean (sets) or floating-point (shares) members."""
    positive = torch.zeros(len(members_a), len(members_b), dtype=torch.float64)
    for i, j in product(range(len(members_a)), range(len(members_b))):
        if members_a.dtype is torch.bool:
            positive[i, j] = any(bool(x) and bool(y) for x, y in zip(members_a[i], members_b[j], strict=True))
        else:
            positive[i, j] = sum(float(x) * float(y) for x, y in zip(members_a[i], members_b[j], strict=True))
    return positive, 1 - positive
