import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import EmpiricalCovariance
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from strategies import random_embedding
from torch import Tensor

from idml import Embedding
from idml.evaluation.ood import (
    auroc,
    average_precision,
    false_positive_rate_at,
    mahalanobis,
    nearest_distance,
    ood_scores,
)


@st.composite
def judged(draw) -> tuple[Tensor, Tensor]:
    """Scores full of ties; at least one image inside and one outside."""
    n = draw(st.integers(2, 40))
    score = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 3.0]) | st.floats(-2, 2), min_size=n, max_size=n))
    is_outside = draw(st.lists(st.booleans(), min_size=n - 2, max_size=n - 2))
    return torch.tensor(score, dtype=torch.float64), torch.tensor([True, False, *is_outside])


@given(given=judged(), accepted=st.sampled_from([0.05, 0.5, 0.9, 0.95, 1.0]))
def test_scores_equal_scikit_learn(given, accepted):
    score, is_outside = given
    assert auroc(score, is_outside).item() == pytest.approx(roc_auc_score(is_outside, score), abs=1e-12)
    assert average_precision(score, is_outside).item() == pytest.approx(
        average_precision_score(is_outside, score), abs=1e-12
    )
    rate, accepts, _ = roc_curve(~is_outside, -score, drop_intermediate=False)
    truth = rate[(accepts >= accepted).argmax()]
    assert false_positive_rate_at(score, is_outside, accepted=accepted).item() == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("judge", [auroc, average_precision, false_positive_rate_at])
@given(given=judged(), seed=st.integers(0, 10**6))
def test_with_counts_a_score_is_that_of_the_set_with_its_rows_repeated(judge, given, seed):
    score, is_outside = given
    counts = torch.randint(3, (5, len(score)), generator=torch.Generator().manual_seed(seed))
    counts[:, 2:] += counts.sum(dim=1, keepdim=True) == 0
    counts[:, 0] += counts.sum(dim=1) == 0
    for one, row in zip(judge(score, is_outside, counts.double()), counts, strict=True):
        repeated = judge(score.repeat_interleave(row), is_outside.repeat_interleave(row))
        torch.testing.assert_close(one, repeated, equal_nan=True, rtol=1e-12, atol=1e-12)


def test_without_both_sides_there_is_nothing_to_tell_apart():
    score = torch.rand(4)
    for is_outside in (torch.ones(4).bool(), torch.zeros(4).bool()):
        assert auroc(score, is_outside).isnan()
        assert false_positive_rate_at(score, is_outside).isnan()


def test_fpr95_is_the_share_outside_that_looks_inside():
    inside, outside = torch.arange(20.0), torch.tensor([0.5, 17.5, 18.0, 18.5, 30.0])
    score, is_outside = torch.cat([inside, outside]), torch.arange(25) >= 20
    assert false_positive_rate_at(score, is_outside).item() == pytest.approx(3 / 5)  # up to 18.0: 19 of 20 inside


def unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double())


def test_mahalanobis_equals_scikit_learn_in_one_cluster():
    train, images = random_embedding(300, 6, 1, seed=0), random_embedding(50, 6, 1, seed=1)
    peer = EmpiricalCovariance().fit(unit(train.semantic).numpy())
    truth = torch.from_numpy(peer.mahalanobis(unit(images.semantic).numpy()))
    torch.testing.assert_close(mahalanobis(train, images, ridge=0), truth)
    torch.testing.assert_close(mahalanobis(train, images), truth, rtol=1e-4, atol=0)


def test_with_labels_it_is_the_distance_to_the_nearest_class():
    train, images = random_embedding(300, 5, 1, seed=0), random_embedding(50, 5, 1, seed=1)
    labels = torch.arange(300) % 3 * 7
    each = [mahalanobis(train[labels == label], images, ridge=0) for label in labels.unique()]
    torch.testing.assert_close(mahalanobis(train, images, train_labels=labels, ridge=0), torch.stack(each).amin(dim=0))


def test_fewer_images_than_dimensions_are_enough():
    train = Embedding(torch.randn(10, 64, generator=torch.Generator().manual_seed(0)))
    images = Embedding(torch.randn(5, 64, generator=torch.Generator().manual_seed(1)))
    labels = torch.tensor([0] * 9 + [1])
    for some in (None, labels):
        distance = mahalanobis(train, images, train_labels=some)
        assert distance.isfinite().all()
        assert distance.min() > 100 * mahalanobis(train, train, train_labels=some).max()
    same = Embedding(torch.ones(4, 3))
    assert mahalanobis(same, same).abs().max() < 1e-9


def test_chunks_change_nothing(monkeypatch):
    train, images = random_embedding(30, 6, 1, seed=0), random_embedding(20, 6, 1, seed=1)
    whole = mahalanobis(train, images)
    monkeypatch.setattr("idml.evaluation.ood.ROWS", 3)
    torch.testing.assert_close(mahalanobis(train, images), whole)


def test_the_nearest_distance_is_one_less_the_highest_cosine():
    train, images = random_embedding(30, 6, 1, seed=0), random_embedding(20, 6, 1, seed=1)
    cosine = unit(images.semantic) @ unit(train.semantic).T
    torch.testing.assert_close(nearest_distance(train, images), 1 - cosine.amax(dim=1))


def around(direction: int, n: int, seed: int, level: float) -> Embedding:
    noise = random_embedding(n, 8, 4, seed)
    assert noise.uncertainty is not None
    semantic = 0.3 * noise.semantic
    semantic[:, direction] += 2
    return Embedding(semantic, level * torch.nn.functional.normalize(noise.uncertainty))


def test_images_from_elsewhere_are_noticed_by_every_score():
    scores = ood_scores(around(0, 200, 0, 1.0), around(0, 100, 1, 2.0), around(3, 80, 2, 3.0))
    for detection in (scores.level, scores.nearest, scores.mahalanobis):
        assert detection is not None
        assert detection.auroc > 0.99
        assert detection.average_precision > 0.99
        assert detection.false_positive_rate < 0.05
    assert (scores.mean_level_train, scores.mean_level_inside, scores.mean_level_outside) == pytest.approx((1, 2, 3))
    assert json.loads(json.dumps(scores.to_dict()))["nearest"]["auroc"] == scores.nearest.auroc


def test_without_uncertainty_there_is_no_level():
    sets = [Embedding(around(direction, 40, direction, 1.0).semantic) for direction in (0, 0, 1)]
    scores = ood_scores(*sets, train_labels=torch.arange(40) % 2)
    assert scores.level is None
    assert scores.mean_level_outside is None
    assert scores.mahalanobis.auroc > 0.9


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    some = around(0, 5, 0, 1.0)
    with pytest.raises(ValueError, match="the outside set is empty"):
        ood_scores(some, some, some[:0])
    with pytest.raises(ValueError, match="5 training images and 3 labels"):
        mahalanobis(some, some, train_labels=torch.zeros(3).long())
    with pytest.raises(ValueError, match="accepted is 95"):
        false_positive_rate_at(torch.rand(2), torch.tensor([True, False]), accepted=95)
