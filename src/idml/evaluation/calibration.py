"""How sure one may be of an answer, and whether that is honest.

A logistic function (Platt, 1999) of how far the neighbours are and how uncertain the nearest pair is, fitted on
queries of other classes, and the expected calibration error (Guo et al., ICML 2017) over bins of equally many
queries (Nixon et al., CVPR workshops 2019). `counts` is as in `evaluation.uncertainty`.

A nearest image that is far may belong to a class whose images are all far apart, and be right. So a confidence also
looks at neighbours farther out: where many are about as near as the first one, that is one of a crowd.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from idml.errors import unknown_name
from idml.evaluation.ordering import Counts, Ordering, Score, among_first, as_asked, drawn_queries

RANKS = (1, 2, 4, 8, 16, 32, 64)  # of the neighbours whose distances a confidence looks at
BINS = 15  # Guo et al.
PRIOR = 1.0  # precision of the normal prior on weights of standardised features, as scikit-learn's by default
RIDGE = 1e-6  # on the bias: too little to be seen, enough to keep it finite where all are right
NEWTON_STEPS = 50  # separable data take about 20, others 5 to 8
SETTLED = 1e-10  # a Newton step this short is the last
CONSTANT = 1e-9  # a feature that varies by less than this share of its size says nothing


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The confidence that a query's nearest neighbour is of its class.

    sigmoid(bias + Σ weights_alpha·α + weight_beta·β), where α = ‖ŝ_query − ŝ_neighbour‖ of the neighbours at `RANKS`,
    or at the first few of these, and β = ‖u_query + u_neighbour‖ of the nearest. How far neighbours are depends on the
    gallery: use it in one of about as many images a class.
    """

    bias: float
    weights_alpha: tuple[float, ...]
    weight_beta: float

    def __post_init__(self):
        for name in ("bias", "weight_beta"):
            _check_number(name, getattr(self, name))
        if not isinstance(self.weights_alpha, tuple) or not self.weights_alpha:
            raise ValueError(f"weights_alpha is {self.weights_alpha!r}: give a tuple, of a weight for each neighbour.")
        for weight in self.weights_alpha:
            _check_number("weights_alpha", weight)

    @classmethod
    def fit(cls, alpha: Float[Tensor, "n r"], beta: Float[Tensor, " n"], is_right: Bool[Tensor, " n"]) -> Calibration:
        """The most likely weights by queries and a prior, which keeps them small where queries are few.

        A feature that does not vary has weight 0. Where all are right, or all wrong, confidence is near 1, or 0.
        """
        _check_queries(alpha, beta, is_right)
        features = torch.cat([alpha, beta[:, None]], dim=1).double().cpu()  # few numbers: no work for a device
        centre, scale = features.mean(dim=0), features.std(dim=0, correction=0)
        is_constant = scale <= CONSTANT * features.abs().amax(dim=0)
        scale = scale.masked_fill(is_constant, torch.inf)
        standard = functional.pad((features - centre) / scale, (1, 0), value=1.0)  # a column of ones, for the bias
        ridge = torch.full_like(standard[0], PRIOR / len(features))
        ridge[0] = RIDGE
        fitted = _logistic_regression(standard, is_right.double().cpu(), ridge)
        weights = fitted[1:] / scale
        bias = fitted[0] - weights @ centre
        *of_alpha, of_beta = weights.tolist()
        return cls(bias=float(bias), weights_alpha=tuple(of_alpha), weight_beta=of_beta)

    def confidence(self, alpha: Float[Tensor, "n r"], beta: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """From 0 to 1, in float64."""
        known = len(self.weights_alpha)
        if alpha.ndim != 2 or alpha.shape[1] < known or beta.shape != alpha.shape[:1]:
            given = f"{tuple(alpha.shape)} and {tuple(beta.shape)}"
            raise ValueError(f"alpha and beta have shapes {given}: give (n, {known}) and (n,), as when it was fitted.")
        weights = torch.tensor(self.weights_alpha, dtype=torch.float64, device=alpha.device)
        return torch.sigmoid(self.bias + alpha[:, :known].double() @ weights + self.weight_beta * beta.double())

    def to_dict(self) -> dict[str, Any]:
        weights = list(self.weights_alpha)
        return asdict(self) | {"weights_alpha": weights, "ranks": list(RANKS[: len(weights)])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Of what was saved; before a confidence looked at more neighbours than the nearest, that was one weight."""
        if "weight_alpha" in values and "weights_alpha" not in values:
            nearest = {"weights_alpha": [values["weight_alpha"]]}
            values = {name: value for name, value in values.items() if name != "weight_alpha"} | nearest
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in (*known, "ranks"):
                raise unknown_name("field of a calibration", name, known)
        for name in known:
            if name not in values:
                raise ValueError(f"a calibration without {name!r}: give {', '.join(known)}.")
        weights = values["weights_alpha"]
        if not isinstance(weights, list | tuple):
            raise ValueError(f"weights_alpha is {weights!r}: give a list, of a weight for each neighbour.")
        ranks = tuple(values.get("ranks", RANKS[: len(weights)]))
        if ranks != RANKS[: len(weights)]:
            raise ValueError(
                f"this calibration is of neighbours at ranks {ranks}, and {RANKS} are known: fit it again."
            )
        return cls(bias=values["bias"], weights_alpha=tuple(weights), weight_beta=values["weight_beta"])


class CrossFitted(NamedTuple):
    """Confidences, and by which of several calibrations: a fold of easy classes is judged by harder ones, and the other
    way round, so that the order of confidences of two folds says little.
    """

    confidence: Float[Tensor, " n"]
    fold: Int[Tensor, " n"]


def cross_fitted_confidence(
    alpha: Float[Tensor, "n r"],
    beta: Float[Tensor, " n"],
    is_right: Bool[Tensor, " n"],
    groups: Int[Tensor, " n"],
    *,
    folds: int = 5,
    seed: int = 0,
) -> CrossFitted:
    """Each query's confidence, by a calibration on queries of other classes: an honest one.

    groups: the classes. Folds are made of whole classes, drawn by the seed; there are at most as many as classes.
    """
    _check_queries(alpha, beta, is_right)
    if folds < 2:
        raise ValueError(f"folds is {folds}: give at least 2, for each is judged by the others.")
    classes, member = groups.unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError("all queries are of one class: a calibration on other classes needs at least 2.")
    folds = min(folds, len(classes))
    generator = torch.Generator().manual_seed(seed)
    fold = torch.randperm(len(classes), generator=generator).to(groups.device)[member] % folds
    confidence = torch.empty_like(beta, dtype=torch.float64)
    for held in (fold == number for number in range(folds)):
        calibration = Calibration.fit(alpha[~held], beta[~held], is_right[~held])
        confidence[held] = calibration.confidence(alpha[held], beta[held])
    return CrossFitted(confidence, fold)


def expected_calibration_error(
    confidence: Float[Tensor, " n"], is_right: Bool[Tensor, " n"], counts: Counts | None = None, *, bins: int = BINS
) -> Score:
    """The mean over bins of |mean confidence − share right|; bins hold n/bins queries each, by rising confidence.

    A query that lies across a border is shared between its bins, and so is a group of equal confidence.
    """
    drawn = drawn_queries(confidence, is_right, counts)
    _check_bins(confidence, bins)
    number, excess = Ordering.of(confidence).totals(drawn, confidence.double() - is_right.double())
    return as_asked(_means_in_bins(number, excess, bins).abs().mean(dim=1), counts)


class Reliability(NamedTuple):
    """For each bin, by rising confidence: its mean confidence, the share that is right, and its number of queries.

    The number is n/bins in all of them, and seldom whole: see `expected_calibration_error`.
    """

    confidence: Float[Tensor, " bins"]
    share_right: Float[Tensor, " bins"]
    number: Float[Tensor, " bins"]


def reliability(confidence: Float[Tensor, " n"], is_right: Bool[Tensor, " n"], *, bins: int = BINS) -> Reliability:
    """What `expected_calibration_error` compares, for a plot."""
    drawn = drawn_queries(confidence, is_right, None)
    _check_bins(confidence, bins)
    by_confidence = Ordering.of(confidence)
    mean_confidence, share_right = (
        _means_in_bins(*by_confidence.totals(drawn, values), bins)[0] for values in (confidence, is_right)
    )
    return Reliability(mean_confidence, share_right, torch.full_like(share_right, len(confidence) / bins))


def _means_in_bins(number: Float[Tensor, "b g"], sums: Float[Tensor, "b g"], bins: int) -> Float[Tensor, "b bins"]:
    """The mean in each of so many stretches of equally many queries, from groups' numbers and sums."""
    every = number.sum(dim=1, keepdim=True)
    borders = every * torch.arange(1, bins + 1, device=every.device) / bins
    return among_first(borders, number, sums).diff(dim=1, prepend=torch.zeros_like(every)) * bins / every


def _logistic_regression(
    features: Float[Tensor, "n d"], target: Float[Tensor, " n"], ridge: Float[Tensor, " d"]
) -> Float[Tensor, " d"]:
    """Weights of least mean log loss + Σ ridge·weights²/2, by Newton steps, halved until they do not go uphill."""

    def loss(weights: Tensor) -> Tensor:
        surprise = functional.softplus((1 - 2 * target) * (features @ weights)).mean()
        return surprise + ridge @ weights.square() / 2

    weights = features.new_zeros(features.shape[1])
    for _ in range(NEWTON_STEPS):
        share = torch.sigmoid(features @ weights)
        slope = features.T @ (share - target) / len(target) + ridge * weights
        curvature = (features.T * (share * (1 - share))) @ features / len(target)
        step = torch.linalg.solve(curvature + ridge.diag(), slope)
        while step.abs().max() > SETTLED and loss(weights - step) > loss(weights):
            step = step / 2
        weights = weights - step
        if step.abs().max() <= SETTLED:
            break
    return weights


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not (isinstance(value, int | float) and math.isfinite(value)):
        raise ValueError(f"{name} has {value!r}: a calibration needs finite numbers.")


def _check_queries(alpha: Tensor, beta: Tensor, is_right: Tensor) -> None:
    number = len(beta)
    shapes = [tuple(side.shape) for side in (alpha, beta, is_right)]
    if number == 0 or alpha.ndim != 2 or shapes != [(number, alpha.shape[1]), (number,), (number,)]:
        given = "{}, {} and {}".format(*shapes)
        raise ValueError(f"alpha, beta and is_right have shapes {given}: give each query a row, and one of the others.")
    is_finite = alpha.isfinite().all(dim=1) & beta.isfinite()
    if not is_finite.all():
        row = int((~is_finite).nonzero()[0])
        raise ValueError(f"alpha or beta of query {row} is not finite: leave it out, or look for a diverged model.")


def _check_bins(confidence: Tensor, bins: int) -> None:
    lowest, highest = (float(extreme) for extreme in confidence.aminmax())
    if lowest < 0 or highest > 1:
        raise ValueError(f"confidence goes from {lowest:g} to {highest:g}: give shares in 0..1.")
    if bins < 1:
        raise ValueError(f"bins is {bins}: give at least 1.")
