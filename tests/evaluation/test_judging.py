import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from blobs import blobs, neighbours_in_a_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

import idml
from idml import Embedding, evaluate
from idml.distances import Introspective


@pytest.mark.parametrize("distance", [None, Introspective(tau=2.0)])
def test_all_scores_equal_loops_and_scikit_learn(distance):
    embedding, labels = blobs()
    scores = evaluate(embedding, labels, ks=(1, 3), distance=distance or "euclidean", resamples=0)
    order = neighbours_in_a_loop(embedding, distance)
    right = [[bool(labels[j] == labels[i]) for j in row] for i, row in enumerate(order)]
    assert scores.recall == {k: pytest.approx(np.mean([any(row[:k]) for row in right])) for k in (1, 3)}
    precisions = [[sum(row[: i + 1]) / (i + 1) for i in range(len(row))] for row in right]
    average = [
        sum(p for p, is_right in zip(ps, row, strict=True) if is_right) / sum(row)
        for ps, row in zip(precisions, right, strict=True)
    ]
    assert scores.mean_average_precision == pytest.approx(np.mean(average))
    assert scores.r_precision == pytest.approx(np.mean([sum(row[: sum(row)]) / sum(row) for row in right]))
    is_wrong = [not row[0] for row in right]
    level = embedding.level.double().numpy()
    found = scores.uncertainty
    assert found is not None
    assert found.r_auroc == pytest.approx(roc_auc_score(is_wrong, level))
    assert found.spearman == pytest.approx(spearmanr(level, average)[0])
    accepted = np.array(is_wrong)[np.argsort(level)]
    assert found.aurc == pytest.approx(np.mean(np.cumsum(accepted) / np.arange(1, len(accepted) + 1)))
    assert found.mean_level == pytest.approx(level.mean())
    assert scores.queries is not None
    assert scores.queries.nearest is not None
    assert scores.queries.nearest.tolist() == [row[0] for row in order]
    assert scores.failures is not None
    keys = [row.key for row in scores.rows()]
    assert keys[keys.index("r_auroc") :][:5] == ["r_auroc", "aurc", "excess_aurc", "spearman", "mean_level"]


@given(seed=st.integers(0, 1000), memory=st.sampled_from([1, 10_000, 1 << 30]))
@settings(max_examples=15)
def test_memory_changes_no_score(seed, memory):
    embedding, labels = blobs(40, 4, seed=seed)
    options = {"resamples": 20, "clustering": True}
    assert (
        evaluate(embedding, labels, memory=memory, **options).to_dict()
        == evaluate(embedding, labels, **options).to_dict()
    )


def test_a_gallery_is_searched_instead_of_the_queries():
    embedding, labels = blobs()
    gallery = Embedding(embedding.semantic.clone(), embedding.uncertainty)
    scores = evaluate(embedding, labels, gallery=gallery, gallery_labels=labels, clustering=False)
    assert scores.recall[1] == 1.0  # everybody finds its own copy
    assert scores.gallery_count == 60
    assert scores.nmi is None


def test_lone_queries_are_misses_of_recall_and_left_out_elsewhere():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    scores = evaluate(Embedding(rows, torch.ones(3, 1)), torch.tensor([0, 0, 1]), clustering=False)
    assert scores.recall[1] == pytest.approx(2 / 3)
    assert scores.precision_at_1 == scores.r_precision == scores.map_at_r == scores.mean_average_precision == 1.0
    assert scores.lone_queries == 1
    assert scores.queries is not None
    assert scores.queries.average_precision.isnan().tolist() == [False, False, True]
    assert scores.uncertainty is not None
    assert scores.uncertainty.aurc == 0.0  # the lone query is no error of the level


def test_intervals_hold_the_score_and_shrink_with_more_queries():
    widths = []
    for images in (60, 600):
        embedding, labels = blobs(images, noise=1.5)
        scores = evaluate(embedding, labels, clustering=False)
        interval = scores.intervals["map_at_r"]
        assert interval.low < scores.map_at_r < interval.high
        widths.append(interval.high - interval.low)
    assert 2 < widths[0] / widths[1] < 5  # √10 = 3.2


def test_intervals_are_those_of_resampled_queries():
    embedding, labels = blobs(noise=1.5)
    scores = evaluate(embedding, labels, clustering=False, resamples=4000)
    assert scores.queries is not None
    values = scores.queries.average_precision_at_r.numpy()
    generator = np.random.default_rng(0)
    means = [generator.choice(values, len(values)).mean() for _ in range(4000)]
    interval = scores.intervals["map_at_r"]
    assert [interval.low, interval.high] == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.01)


def test_without_uncertainty_there_are_no_uncertainty_scores():
    embedding, labels = blobs()
    scores = evaluate(embedding.semantic, labels)
    assert scores.uncertainty is None
    assert scores.failures is not None
    assert "r_auroc" not in scores.intervals
    assert "r_auroc_of_confidence" in scores.intervals
    assert scores.nmi is not None
    assert scores.ami is not None


def test_scores_without_meaning_are_null_in_json():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    scores = evaluate(Embedding(rows, torch.ones(4, 1)), torch.tensor([0, 0, 1, 1]), ks=(1,))
    assert scores.uncertainty is not None
    assert np.isnan(scores.uncertainty.r_auroc)  # no query is wrong
    read = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert read["uncertainty"]["r_auroc"] is None
    assert read["recall"] == {"1": 1.0}


@pytest.mark.parametrize(("spread", "is_known"), [(1e-6, False), (1e-2, True)])
def test_uncertainties_that_all_point_the_same_way_are_not_correlated_with_anything(spread, is_known):
    embedding, labels = blobs()
    spread = spread * torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0))
    scores = evaluate(Embedding(embedding.semantic, torch.ones(len(labels), 6) + spread), labels, clustering=False)
    assert scores.uncertainty is not None
    assert (scores.uncertainty.correlation is not None) == is_known


def test_images_known_to_be_certain_have_level_zero():
    embedding, labels = blobs()
    scores = evaluate(Embedding.certain(embedding.semantic), labels, clustering=False)
    assert scores.uncertainty is not None
    assert scores.uncertainty.mean_level == 0
    assert scores.uncertainty.r_auroc == pytest.approx(0.5)
    assert scores.uncertainty.correlation is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_numpy_arrays_and_memory_maps_are_scored_as_tensors_are(dtype, tmp_path):
    embedding, labels = blobs()
    array = embedding.semantic.numpy().astype(dtype)
    stored = np.memmap(tmp_path / "rows", dtype=dtype, mode="w+", shape=array.shape)
    stored[:] = array
    stored.flush()
    mapped = np.memmap(tmp_path / "rows", dtype=dtype, mode="r", shape=array.shape)
    expected = evaluate(torch.from_numpy(array.astype(np.dtype(dtype).newbyteorder("="))), labels).to_dict()
    assert evaluate(mapped, labels.numpy()).to_dict() == expected
    assert evaluate(array[::-1], labels.flip(0)).recall == expected["recall"]


def test_a_pair_of_arrays_is_semantic_and_uncertainty():
    embedding, labels = blobs()
    assert embedding.uncertainty is not None
    pair = (embedding.semantic.numpy(), embedding.uncertainty.numpy())
    assert evaluate(pair, labels).to_dict() == evaluate(embedding, labels).to_dict()


def test_labels_may_be_names():
    embedding, labels = blobs()
    names = [f"class {int(label)}" for label in labels]
    assert evaluate(embedding, names).to_dict() == evaluate(embedding, labels).to_dict()


def test_progress_goes_from_stage_to_stage_up_to_one():
    told: dict[str, list[float]] = {}
    embedding, labels = blobs()
    evaluate(embedding, labels, progress=lambda stage, share: told.setdefault(stage, []).append(share))
    assert {"ranks", "neighbours", "clusters", "intervals"} <= set(told)
    assert all(shares == sorted(shares) and shares[-1] == pytest.approx(1.0) for shares in told.values())


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding": torch.full((60, 8), torch.nan)}, "embedding row 0 holds NaN"),
        ({"embedding": torch.zeros(60, 8)}, "embedding row 0 is zero"),
        ({"embedding": torch.zeros(0, 8), "labels": torch.zeros(0).long()}, "the embedding is empty"),
        ({"embedding": Embedding(torch.ones(60, 8), torch.full((60, 2), torch.inf))}, "embedding uncertainty row 0"),
        ({"embedding": [1, 2, 3]}, "embedding is a list"),
        ({"embedding": np.ones((60, 8), dtype=int)}, "embedding has dtype int64"),
        ({"labels": torch.zeros(60).long()}, "all 60 images are of one class, '0'"),
        ({"labels": torch.arange(60)}, "no query has another image of its class"),
        ({"labels": torch.arange(59)}, "the embedding has 60 rows and 59 labels"),
        ({"labels": torch.rand(60)}, "labels have shape (60,) and dtype float32"),
        ({"ks": (1, 0)}, "K is 0"),
        ({"ks": (1.5,)}, "K is 1.5"),
        ({"gallery": torch.ones(2, 8)}, "gallery_labels is missing"),
        ({"gallery_labels": [1, 2]}, "gallery is missing"),
        ({"gallery": torch.ones(2, 7), "gallery_labels": [0, 1]}, "have 8 dimensions, and 7 in the gallery"),
        (
            {"gallery": (torch.ones(2, 8), torch.ones(2, 3)), "gallery_labels": [0, 1]},
            "uncertainty embeddings have 4 dimensions, and 3 in the gallery",
        ),
        ({"ks": 5}, "ks is 5: give a list"),
        ({"ks": (True,)}, "K is True"),
        ({"calibration": {"bias": 1.0}}, "calibration is a dict"),
        ({"embedding": torch.full((60, 8), 1e-30)}, "embedding row 0 is too short"),
        ({"changed_levels": {"blur": {0.5: torch.ones(3)}}}, "rises/blur/0.5: (3,) levels of 60 images"),
        ({"gallery": torch.ones(2, 8), "gallery_labels": ["a", "b"]}, "names on one side and numbers on the other"),
        ({"distance": "euclidian"}, "unknown distance 'euclidian': did you mean 'euclidean'?"),
        ({"distance": 3}, "distance is a int"),
        ({"embedding": torch.ones(60, 8), "distance": "introspective"}, "needs uncertainty"),
        ({"resamples": -1}, "resamples is -1"),
        ({"memory": 0}, "memory is 0"),
    ],
)
def test_mistakes_are_named(change, message):
    embedding, labels = blobs()
    arguments = {"embedding": embedding, "labels": labels} | change
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        evaluate(arguments.pop("embedding"), arguments.pop("labels"), **arguments)
    assert len(str(error.value).splitlines()) <= 2


@pytest.mark.usefixtures("as_installed")
def test_k_may_be_repeated_huge_and_of_any_integer_type():
    embedding, labels = blobs()
    ks: list[Any] = [np.int64(1), 1, 10**30]
    scores = evaluate(embedding, labels, ks=ks, resamples=0, clustering=False)
    assert list(scores.recall) == [1, 10**30]
    assert scores.recall[10**30] == 1.0


def test_a_gallery_without_uncertainty_counts_as_certain():
    embedding, labels = blobs()
    gallery, others = blobs(seed=1)
    found = evaluate(embedding, labels, gallery=gallery.semantic, gallery_labels=others)
    certain = evaluate(embedding, labels, gallery=Embedding.certain(gallery.semantic), gallery_labels=others)
    assert found.uncertainty is not None
    assert found.to_dict() == certain.to_dict()


def test_a_gallery_has_its_own_labels_and_may_lack_a_class():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]])
    gallery = torch.tensor([[1.0, 0.1], [0.1, 1.0]])
    scores = evaluate(rows, [0, 1, 2], gallery=gallery, gallery_labels=[1, 0], ks=(1, 2), clustering=False)
    assert scores.recall == {1: 0.0, 2: pytest.approx(2 / 3)}
    assert scores.lone_queries == 1
    assert scores.mean_average_precision == pytest.approx(0.5)


def test_large_classes_are_scored_alike_whatever_the_memory():
    embedding, labels = blobs(300, 2, noise=3.0)
    options = {"resamples": 0, "clustering": False}
    scores = evaluate(embedding, labels, **options)
    assert evaluate(embedding, labels, memory=20_000, **options).to_dict() == scores.to_dict()
    order = neighbours_in_a_loop(embedding)
    assert scores.recall[1] == pytest.approx(
        np.mean([bool(labels[row[0]] == labels[i]) for i, row in enumerate(order)])
    )


@pytest.mark.parametrize("classes", [2, 40])
@pytest.mark.parametrize(
    "distance", [Introspective(), Introspective(strict=True), Introspective("cosine", strict=True)], ids=str
)
def test_introspective_ranks_are_exact_in_a_tight_cluster(distance, classes):
    """There a float32 product divided by a small α is off by far more than its own rounding."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 64, generator=generator)
    rows = common + 0.05 * torch.randn(120, 64, generator=generator)
    embedding = Embedding(rows, 0.02 * torch.randn(120, 4, generator=generator))
    labels = torch.arange(120) % classes
    scores = evaluate(embedding, labels, distance=distance, resamples=0, clustering=False)
    order = neighbours_in_a_loop(embedding, distance)
    assert scores.queries is not None
    first = [next(place for place, j in enumerate(row, 1) if labels[j] == labels[i]) for i, row in enumerate(order)]
    assert scores.queries.first_rank.tolist() == first


def test_vectors_of_the_same_direction_are_equally_far():
    rows = torch.tensor([[0.0, 1.0], [5.0, 5.0], [1.0, 1.0], [3.0, 3.0], [0.1, 0.1]])
    scores = evaluate(rows, [0, 1, 0, 1, 1], clustering=False, resamples=0)
    assert scores.queries is not None
    assert scores.queries.first_rank.tolist() == [2, 2, 4, 1, 1]  # equal ones come in the order of the gallery


def test_the_share_that_rises_is_scored_where_it_is_known():
    embedding, labels = blobs()
    changed = embedding.level + torch.tensor([1.0, -1.0]).repeat(30)
    changed[:20] = torch.nan
    scores = evaluate(embedding, labels, changed_levels={"blur": {0.5: changed}}, clustering=False)
    assert scores.rises == {"blur": {0.5: 0.5}}
    assert scores.intervals["rises/blur/0.5"].low < 0.5 < scores.intervals["rises/blur/0.5"].high


def test_evaluate_is_a_public_name():
    assert idml.evaluate is evaluate
