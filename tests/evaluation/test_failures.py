import numpy as np
import pytest
import torch
from blobs import blobs, neighbours_in_a_loop
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from idml import Embedding, evaluate
from idml.distances import Introspective
from idml.evaluation.calibration import RANKS, Calibration
from idml.evaluation.scores import FailureScores, Queries, Scores

NAMES = [name for name in FailureScores.__dataclass_fields__ if name.startswith("r_auroc")]
QUICK = {"clustering": False, "resamples": 0}


def judged(*arguments, **options) -> tuple[FailureScores, Queries]:
    scores: Scores = evaluate(*arguments, **QUICK, **options)
    assert scores.failures is not None
    assert scores.queries is not None
    return scores.failures, scores.queries


@pytest.mark.parametrize("distance", [None, Introspective(tau=2.0)])
def test_what_is_known_of_failures_equals_loops_and_scikit_learn(distance):
    embedding, labels = blobs(80)
    found, queries = judged(embedding, labels, distance=distance or "euclidean")
    order = neighbours_in_a_loop(embedding, distance)
    is_wrong = np.array([bool(labels[row[0]] != labels[i]) for i, row in enumerate(order)])
    ways = torch.nn.functional.normalize(embedding.semantic.double())
    far = np.array([[float((ways[i] - ways[row[rank - 1]]).norm()) for rank in RANKS] for i, row in enumerate(order)])
    rivals = [next(j for j in row if labels[j] != labels[row[0]]) for row in order]
    gap = [float((ways[i] - ways[j]).norm()) - far[i, 0] for i, j in enumerate(rivals)]
    length = embedding.semantic.double().norm(dim=1)
    assert queries.distances is not None
    assert queries.gap is not None
    np.testing.assert_allclose(queries.distances, far, atol=1e-12)
    assert queries.gap.tolist() == pytest.approx(gap)
    assert found.r_auroc_of_distance == pytest.approx(roc_auc_score(is_wrong, far[:, 0]))
    assert found.r_auroc_of_gap == pytest.approx(roc_auc_score(is_wrong, np.negative(gap)))
    assert found.r_auroc_of_length == pytest.approx(roc_auc_score(is_wrong, -length))
    assert embedding.uncertainty is not None
    u = embedding.uncertainty.double()
    beta = np.array([[float((u[i] + u[row[0]]).norm())] for i, row in enumerate(order)])
    assert queries.by_all is not None
    fold = queries.by_all.fold.numpy()
    assert found.r_auroc_of_neighbours == pytest.approx(by_scikit_learn(far, is_wrong, fold), abs=1e-3)
    both = np.concatenate([far, beta], axis=1)
    assert found.r_auroc_of_confidence == pytest.approx(by_scikit_learn(both, is_wrong, fold), abs=1e-3)


def by_scikit_learn(features: np.ndarray, is_wrong: np.ndarray, fold: np.ndarray) -> float:
    """R-AUROC over pairs of one fold, of confidences by a regression on the other folds."""
    ahead, pairs = 0.0, 0
    for held in (fold == number for number in range(fold.max() + 1)):
        model = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-12, max_iter=2000))
        confidence = model.fit(features[~held], ~is_wrong[~held]).predict_proba(features[held])[:, 1]
        right, wrong = confidence[~is_wrong[held]], confidence[is_wrong[held]]
        ahead += float(((right[:, None] > wrong) + (right[:, None] == wrong) / 2).sum())
        pairs += len(right) * len(wrong)
    return ahead / pairs


def test_a_crowd_of_neighbours_tells_what_the_nearest_alone_does_not():
    """Classes that are wide, each in a place of its own, and narrow ones, all in one place: there queries fail."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 20
    is_wide = (labels < 10)[:, None]
    places = torch.eye(40)[torch.where(labels < 10, labels, 10)]
    rows = places + torch.where(is_wide, 0.15, 0.08) * torch.randn(400, 40, generator=generator)
    found, _ = judged(rows, labels)
    assert found.r_auroc_of_distance < 0.3
    assert found.r_auroc_of_neighbours > 0.9
    assert found.r_auroc_of_confidence == found.r_auroc_of_neighbours  # there is no uncertainty


def test_models_without_uncertainty_have_a_confidence_too():
    embedding, labels = blobs()
    plain, of_plain = judged(embedding.semantic, labels)
    certain, of_certain = judged(Embedding.certain(embedding.semantic), labels)
    uncertain, _ = judged(embedding, labels)
    assert plain == certain
    assert of_plain.confidence is not None
    assert of_certain.confidence is not None
    assert torch.equal(of_plain.confidence, of_certain.confidence)
    assert plain.calibration.weight_beta == 0
    assert plain.r_auroc_of_neighbours == uncertain.r_auroc_of_neighbours


def test_without_another_class_in_the_gallery_no_gap_tells_failures():
    embedding, labels = blobs()
    shown = labels == 0
    found, queries = judged(embedding, labels, gallery=embedding[shown], gallery_labels=labels[shown])
    assert queries.gap is not None
    assert queries.gap.isinf().all()
    assert np.isnan(found.r_auroc_of_gap)


def test_the_uncertainty_of_a_gallery_says_nothing_of_queries_whose_model_has_none():
    embedding, labels = blobs()
    queries, own, of_gallery = Embedding(embedding.semantic[:30]), labels[:30], {"gallery_labels": labels[30:]}
    found, _ = judged(queries, own, gallery=embedding[30:], **of_gallery)
    expected, _ = judged(queries, own, gallery=Embedding(embedding.semantic[30:]), **of_gallery)
    assert found == expected
    assert found.calibration.weight_beta == 0
    given = Calibration(bias=0.0, weights_alpha=(0.0,), weight_beta=1.0)
    _, of_given = judged(queries, own, gallery=embedding[30:], **of_gallery, calibration=given)
    assert of_given.confidence is not None
    assert of_given.confidence.unique().tolist() == [0.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_rows_that_were_scaled_to_one_length_tell_no_failures_by_it(dtype, size):
    embedding, labels = blobs()
    scaled = (size * torch.nn.functional.normalize(embedding.semantic)).to(dtype)
    assert np.isnan(judged(Embedding(scaled, embedding.uncertainty), labels)[0].r_auroc_of_length)


def test_lengths_that_differ_by_a_little_more_than_rounding_tell_what_they_know():
    embedding, labels = blobs()
    lengths = 1 + 0.01 * torch.rand(len(labels), 1, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(embedding.semantic)
    found, queries = judged(lengths * unit, labels)
    assert found.r_auroc_of_length == pytest.approx(roc_auc_score(~queries.is_right, -lengths[:, 0]))


def test_queries_that_are_alone_in_their_class_take_no_part():
    embedding, labels = blobs()
    wide = Embedding(torch.nn.functional.pad(embedding.semantic, (0, 3)), embedding.uncertainty)
    lone = Embedding(torch.eye(11)[8:], torch.ones(3, 4))  # at right angles to all others, and nobody's nearest
    every = (Embedding.cat([wide, lone]), torch.cat([labels, torch.arange(5, 8)]))
    alone, among = (
        judged(*some, gallery=wide[:40], gallery_labels=labels[:40])[0] for some in ((wide[40:], labels[40:]), every)
    )
    assert among != alone
    every = (Embedding.cat([wide[40:], lone]), torch.cat([labels[40:], torch.arange(5, 8)]))
    among, _ = judged(*every, gallery=wide[:40], gallery_labels=labels[:40])
    for name in (*NAMES, "aurc_of_confidence", "calibration_error"):
        assert getattr(among, name) == pytest.approx(getattr(alone, name), abs=1e-9), name
    assert list(among.calibration.weights_alpha) == pytest.approx(alone.calibration.weights_alpha)


def test_a_calibration_from_elsewhere_is_used_as_it_is():
    embedding, labels = blobs()
    given_one = Calibration(bias=0.0, weights_alpha=(0.0,), weight_beta=0.0)
    found, queries = judged(embedding, labels, calibration=given_one)
    assert found.calibration == given_one
    assert queries.confidence is not None
    assert queries.confidence.unique().tolist() == [0.5]


def test_a_confidence_that_is_given_is_in_order_over_all_queries():
    embedding, labels = blobs()
    first, _ = judged(embedding, labels)
    given, queries = judged(embedding, labels, calibration=first.calibration)
    assert queries.confidence is not None
    expected = roc_auc_score(~queries.is_right, -queries.confidence)
    assert given.r_auroc_of_confidence == pytest.approx(expected)
    assert given.r_auroc_of_neighbours == first.r_auroc_of_neighbours


def test_failures_are_left_out_where_they_are_not_asked_for():
    embedding, labels = blobs()
    scores = evaluate(embedding, labels, failures=False, **QUICK)
    assert scores.failures is None
    assert scores.to_dict()["failures"] is None
    assert scores.uncertainty == evaluate(embedding, labels, **QUICK).uncertainty
    assert not {row.key for row in scores.rows()} & {*NAMES, "calibration_error"}


def test_a_gallery_smaller_than_the_farthest_rank_has_its_last_image_there():
    embedding, labels = blobs(7, 2)
    found, queries = judged(embedding, labels)
    assert queries.distances is not None
    assert torch.equal(queries.distances[:, -1], queries.distances[:, -2])
    assert (queries.distances.diff(dim=1) >= 0).all()
    assert len(found.calibration.weights_alpha) == 3  # of the ranks 1, 2 and 4 that there are
    larger, labels = blobs(80)
    assert judged(larger, labels, calibration=found.calibration)[0].calibration == found.calibration


def test_the_area_under_the_risk_is_that_of_accepting_the_most_confident_first():
    embedding, labels = blobs()
    found, queries = judged(embedding, labels)
    assert queries.confidence is not None
    wrong = (~queries.is_right)[queries.confidence.argsort(descending=True)].double()
    assert found.aurc_of_confidence == pytest.approx(float((wrong.cumsum(0) / torch.arange(1, 61)).mean()))


def test_many_queries_are_looked_at_a_few_at_a_time(monkeypatch):
    embedding, labels = blobs()
    whole, _ = judged(embedding, labels)
    monkeypatch.setattr("idml.evaluation.failures.EXACT_AT_ONCE", 7 * 8)  # seven of these rows
    assert judged(embedding, labels)[0] == whole
