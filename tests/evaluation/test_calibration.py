import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from idml.evaluation.calibration import (
    Calibration,
    cross_fitted_confidence,
    expected_calibration_error,
    reliability,
)


def queries(n: int = 400, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """α of two neighbours, β, and whether the first is right, with confidence sigmoid(3 − 4α₁ + 2α₂ − 0.1β)."""
    generator = torch.Generator().manual_seed(seed)
    alpha = (2 * torch.rand(n, 2, generator=generator)).sort(dim=1).values
    beta = 40 * torch.rand(n, generator=generator)
    confidence = torch.sigmoid(3 - 4 * alpha[:, 0] + 2 * alpha[:, 1] - 0.1 * beta)
    return alpha, beta, torch.rand(n, generator=generator) < confidence


def numbers(calibration: Calibration) -> list[float]:
    return [calibration.bias, *calibration.weights_alpha, calibration.weight_beta]


@pytest.mark.parametrize("n", [20, 400])
def test_the_fit_is_that_of_scikit_learn_on_standardised_features(n):
    alpha, beta, is_right = queries(n)
    features = torch.cat([alpha, beta[:, None]], dim=1).double().numpy()
    scaler = StandardScaler()
    peer = LogisticRegression(tol=1e-12, max_iter=1000).fit(scaler.fit_transform(features), is_right.numpy())
    assert scaler.scale_ is not None
    assert scaler.mean_ is not None
    weights = np.ravel(peer.coef_) / scaler.scale_
    bias = np.ravel(peer.intercept_) - weights @ scaler.mean_
    assert numbers(Calibration.fit(alpha, beta, is_right)) == pytest.approx([*bias, *weights], rel=1e-3)


def test_the_fit_finds_the_weights_that_made_the_answers():
    assert numbers(Calibration.fit(*queries(200_000))) == pytest.approx([3, -4, 2, -0.1], rel=0.05)


@pytest.mark.parametrize("right", [False, True])
def test_where_all_are_right_or_wrong_so_is_the_confidence(right):
    alpha, beta, _ = queries(50)
    confidence = Calibration.fit(alpha, beta, torch.full((50,), right)).confidence(alpha, beta)
    assert (confidence - float(right)).abs().max() < 1e-3


def test_separable_answers_keep_the_weights_finite_and_the_confidence_sharp():
    alpha, beta, _ = queries(100)
    is_near = alpha[:, 0] < 0.5
    fitted = Calibration.fit(alpha, beta, is_near)
    assert all(map(math.isfinite, numbers(fitted)))
    assert ((fitted.confidence(alpha, beta) > 0.5) == is_near).double().mean() > 0.95
    assert fitted.weights_alpha[0] < -5


def test_a_feature_that_does_not_vary_has_weight_zero():
    alpha, beta, is_right = queries()
    constant = torch.full_like(beta, 0.1)
    fitted = Calibration.fit(alpha, constant, is_right)
    assert fitted.weight_beta == 0
    assert fitted.weights_alpha == pytest.approx(Calibration.fit(alpha, constant + 7, is_right).weights_alpha)
    nothing = Calibration.fit(constant[:, None], constant, is_right)
    assert nothing.confidence(constant[:1, None], constant[:1]).item() == pytest.approx(
        is_right.double().mean().item(), abs=1e-5
    )


def test_few_queries_say_little():
    """The same answers again and again speak louder against the prior."""
    alpha, beta, is_right = queries(8)
    sizes = [
        abs(Calibration.fit(alpha.repeat(times, 1), beta.repeat(times), is_right.repeat(times)).weight_beta)
        for times in (1, 3, 10)
    ]
    assert sizes == sorted(sizes)


def test_neighbours_beyond_those_with_weights_are_not_looked_at():
    alpha, beta, is_right = queries()
    first = Calibration.fit(alpha[:, :1], beta, is_right)
    torch.testing.assert_close(first.confidence(alpha, beta), first.confidence(alpha[:, :1], beta))
    with pytest.raises(
        ValueError, match=r"alpha and beta have shapes \(400, 1\) and \(400,\): give \(n, 2\) and \(n,\)"
    ):
        Calibration.fit(alpha, beta, is_right).confidence(alpha[:, :1], beta)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 1e-8, 1.0, 2.0]), st.sampled_from([0.0, 1e6, 1.0]), st.booleans()), min_size=1
    )
)
def test_any_answers_can_be_fitted(rows):
    alpha, beta, is_right = (torch.tensor(column) for column in zip(*rows, strict=True))
    alpha = torch.stack([alpha, 2 * alpha, alpha.square()], dim=1)  # the second says what the first does
    confidence = Calibration.fit(alpha, beta, is_right).confidence(alpha, beta)
    assert confidence.mean().item() == pytest.approx(is_right.double().mean().item(), abs=1e-4)


def test_a_calibration_survives_json():
    calibration = Calibration.fit(*queries())
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_a_calibration_by_the_nearest_image_alone_was_saved_with_one_weight():
    before = {"bias": 1.0, "weight_alpha": -2.0, "weight_beta": 0.5}
    assert Calibration.from_dict(before) == Calibration(bias=1.0, weights_alpha=(-2.0,), weight_beta=0.5)


def test_each_confidence_comes_from_other_classes():
    """Turning the answers of one class round changes all confidences but those of its own fold."""
    alpha, beta, is_right = queries()
    groups = torch.arange(400) % 10
    before = cross_fitted_confidence(alpha, beta, is_right, groups, folds=10).confidence
    after = cross_fitted_confidence(alpha, beta, is_right ^ (groups == 3), groups, folds=10).confidence
    assert ((before == after) == (groups == 3)).all()
    others = groups != 3
    truth = Calibration.fit(alpha[others], beta[others], is_right[others]).confidence(alpha, beta)
    torch.testing.assert_close(before[~others], truth[~others])


def test_folds_are_of_whole_classes_and_drawn_by_the_seed():
    alpha, beta, is_right = queries()
    groups = torch.arange(400) % 7 * 100
    first, again, other = (cross_fitted_confidence(alpha, beta, is_right, groups, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.confidence, again.confidence)
    assert not torch.equal(first.confidence, other.confidence)
    assert all(len(first.fold[groups == group].unique()) == 1 for group in groups.unique())
    assert first.fold.unique().tolist() == [0, 1, 2, 3, 4]
    few = cross_fitted_confidence(alpha, beta, is_right, groups % 2 + groups // 400, folds=5)
    assert few.confidence.isfinite().all()


def naive_error(confidence: list[float], is_right: list[bool], bins: int) -> float:
    """Each query is cut into `bins` equal pieces, so that every bin is filled by whole pieces."""
    pieces = sorted((c, r) for c, r in zip(confidence, is_right, strict=True) for _ in range(bins))
    for value in set(confidence):  # inside a tie, the pieces share what is right
        tied = [r for c, r in pieces if c == value]
        pieces = [(c, sum(tied) / len(tied) if c == value else r) for c, r in pieces]
    size = len(confidence)
    stretches = [pieces[k * size : (k + 1) * size] for k in range(bins)]
    return sum(abs(sum(c - r for c, r in stretch)) / size for stretch in stretches) / bins


@st.composite
def confidences(draw) -> tuple[list[float], list[bool]]:
    n = draw(st.integers(1, 12))
    confidence = draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.7, 0.9, 1.0]), min_size=n, max_size=n))
    return confidence, draw(st.lists(st.booleans(), min_size=n, max_size=n))


@given(given=confidences(), bins=st.integers(1, 7))
def test_the_calibration_error_equals_a_loop_over_pieces_of_queries(given, bins):
    confidence, is_right = given
    error = expected_calibration_error(torch.tensor(confidence, dtype=torch.float64), torch.tensor(is_right), bins=bins)
    assert error.item() == pytest.approx(naive_error(confidence, is_right, bins), abs=1e-12)


@given(given=confidences(), bins=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_with_counts_the_error_is_that_of_the_set_with_its_rows_repeated(given, bins, seed):
    confidence, is_right = torch.tensor(given[0]), torch.tensor(given[1])
    counts = torch.randint(4, (5, len(confidence)), generator=torch.Generator().manual_seed(seed))
    counts[:, 0] += 1
    errors = expected_calibration_error(confidence, is_right, counts.double(), bins=bins)
    for error, row in zip(errors, counts, strict=True):
        repeated = (side.repeat_interleave(row) for side in (confidence, is_right))
        torch.testing.assert_close(error, expected_calibration_error(*repeated, bins=bins), rtol=1e-12, atol=1e-12)


def test_honest_confidence_has_a_small_error_and_overconfidence_a_large_one():
    alpha, beta, is_right = queries(20_000)
    honest = cross_fitted_confidence(alpha, beta, is_right, torch.arange(20_000) % 50).confidence
    assert expected_calibration_error(honest, is_right) < 0.02
    assert expected_calibration_error(torch.ones(20_000), is_right).item() == pytest.approx(
        1 - is_right.double().mean().item()
    )


def test_reliability_is_what_the_error_is_made_of():
    alpha, beta, is_right = queries(1000)
    confidence = Calibration.fit(alpha, beta, is_right).confidence(alpha, beta)
    mean_confidence, share_right, number = reliability(confidence, is_right, bins=8)
    error = expected_calibration_error(confidence, is_right, bins=8)
    torch.testing.assert_close((mean_confidence - share_right).abs().mean(), error)
    assert number.tolist() == [125.0] * 8
    assert mean_confidence.tolist() == sorted(mean_confidence.tolist())
    whole_bins = confidence.sort().values.view(8, 125).mean(dim=1)
    torch.testing.assert_close(mean_confidence, whole_bins)


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    alpha, beta, is_right = queries(5)
    with pytest.raises(ValueError, match=r"shapes \(5, 2\), \(4,\) and \(5,\): give each query a row"):
        Calibration.fit(alpha, beta[:4], is_right)
    with pytest.raises(ValueError, match="alpha or beta of query 2 is not finite"):
        Calibration.fit(alpha, torch.tensor([1.0, 1.0, math.inf, 1.0, 1.0]), is_right)
    with pytest.raises(ValueError, match="unknown field of a calibration 'weight_alfa': did you mean 'weights_alpha'"):
        Calibration.from_dict({"bias": 0.0, "weight_alfa": 1.0})
    with pytest.raises(ValueError, match="a calibration without 'weight_beta'"):
        Calibration.from_dict({"bias": 0.0, "weight_alpha": 1.0})
    with pytest.raises(ValueError, match="bias has nan: a calibration needs finite numbers"):
        Calibration(bias=math.nan, weights_alpha=(0.0,), weight_beta=0.0)
    with pytest.raises(ValueError, match=r"weights_alpha has inf: a calibration needs finite numbers"):
        Calibration(bias=0.0, weights_alpha=(0.0, math.inf), weight_beta=0.0)
    for weights in (-2.0, [1.0], ()):
        with pytest.raises(ValueError, match="weights_alpha is .*: give a tuple"):
            Calibration(bias=0.0, weights_alpha=weights, weight_beta=0.0)  # pyright: ignore[reportArgumentType]
    saved = {"bias": 0.0, "weights_alpha": [1.0, 2.0], "weight_beta": 0.0}
    with pytest.raises(ValueError, match="weights_alpha is -2.0: give a list"):
        Calibration.from_dict(saved | {"weights_alpha": -2.0})
    with pytest.raises(ValueError, match=r"neighbours at ranks \(1, 3\), and \(1, 2, 4.* are known: fit it again"):
        Calibration.from_dict(saved | {"ranks": [1, 3]})
    with pytest.raises(ValueError, match="unknown field of a calibration 'weight_alpha'"):
        Calibration.from_dict(saved | {"weight_alpha": 1.0})
    with pytest.raises(ValueError, match="folds is 1"):
        cross_fitted_confidence(alpha, beta, is_right, torch.arange(5), folds=1)
    with pytest.raises(ValueError, match="all queries are of one class"):
        cross_fitted_confidence(alpha, beta, is_right, torch.zeros(5).long())
    with pytest.raises(ValueError, match="confidence goes from 0.5 to 1.5"):
        expected_calibration_error(torch.tensor([0.5, 1.5]), is_right[:2])
    with pytest.raises(ValueError, match="bins is 0"):
        reliability(torch.tensor([0.5, 1.0]), is_right[:2], bins=0)
