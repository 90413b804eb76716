import json

import pytest
import torch
from blobs import blobs
from scripts import benchmark
from sklearn.metrics import roc_auc_score

from idml import Embedding, evaluate
from idml.evaluation.calibration import Calibration
from idml.evaluation.embedded import Embedded

failures = benchmark("failures")


def test_votes_are_those_of_a_loop():
    embedding, labels = blobs(40)
    gallery, queries = embedding[:30], embedding[30:]
    ways = [torch.nn.functional.normalize(side.semantic.double()) for side in (queries, gallery)]
    order = torch.cdist(ways[0], ways[1]).argsort(dim=1).tolist()
    expected = [
        sum(1 / rank for rank, place in enumerate(row[1:], start=2) if labels[place] == labels[row[0]]) for row in order
    ]
    assert failures.votes(queries, gallery, labels[:30]).tolist() == pytest.approx(expected)


def test_what_is_known_is_what_evaluation_knows_of_queries_beside_a_gallery():
    embedding, labels = blobs(300)
    own, others = torch.arange(100), torch.arange(100, 300)
    found = failures.known(embedding, labels, own, others)
    gallery = {"gallery": embedding[others], "gallery_labels": labels[others]}
    scores = evaluate(embedding[own], labels[own], **gallery, resamples=0)
    assert scores.failures is not None
    assert scores.queries is not None
    assert scores.queries.distances is not None
    assert scores.queries.nearest is not None
    assert found["confidence"] == scores.failures.r_auroc_of_confidence
    assert embedding.uncertainty is not None
    beta = (embedding.uncertainty[own] + embedding.uncertainty[others][scores.queries.nearest]).double().norm(dim=1)
    is_right = scores.queries.is_right
    pair = Calibration.fit(scores.queries.distances[:, :1], beta, is_right).confidence(scores.queries.distances, beta)
    assert found["pair"] == pytest.approx(roc_auc_score(is_right, pair), abs=0.05)  # which is fitted on these queries


def test_the_gallery_has_as_many_images_of_each_class_and_classes_without_are_left_out(monkeypatch):
    embedding, _ = blobs(16)
    labels = torch.tensor([0] * 8 + [1] * 5 + [2] * 3)
    seen = []
    monkeypatch.setitem(failures.of_split.__globals__, "known", lambda *given: seen.append(given) or {})
    for seed in (0, 1):
        failures.of_split(Embedded(embedding=embedding, labels=labels), 3, seed)
    for _, _, own, others in seen:
        assert labels[others].sort().values.tolist() == [0, 0, 0, 1, 1, 1]
        assert sorted([*own.tolist(), *others.tolist()]) == list(range(13))
    assert seen[0][3].tolist() != seen[1][3].tolist()
    with pytest.raises(SystemExit, match="1 classes have more than 5 images: give smaller --sizes"):
        failures.of_split(Embedded(embedding=embedding, labels=labels), 5, 0)


def test_lines_and_the_table_say_the_same(tmp_path, capsys):
    embedding, labels = blobs(120)
    for name, uncertainty in (("plain", None), ("both", embedding.uncertainty)):
        Embedded(embedding=Embedding(embedding.semantic, uncertainty), labels=labels).save(tmp_path / f"{name}.npz")
    files = [f"{name}={tmp_path / name}.npz" for name in ("plain", "both")]
    failures.main([str(tmp_path / "log.jsonl"), *files, "--sizes", "8", "4", "--splits", "2"])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["name"], line["size"]) for line in lines] == [("plain", 8), ("plain", 4), ("both", 8), ("both", 4)]
    assert "level" not in lines[0]["scores"]
    assert failures.table(lines) in capsys.readouterr().out
    with pytest.raises(SystemExit, match="write NAME=EMBEDDINGS.npz"):
        failures.main([str(tmp_path / "log.jsonl"), "nothing"])


def test_a_confidence_is_carried_over_to_other_classes(tmp_path, capsys):
    for name, seed in (("first", 0), ("other", 1)):
        embedding, labels = blobs(200, 8, seed=seed)
        Embedded(embedding=Embedding(embedding.semantic), labels=labels).save(tmp_path / f"{name}.npz")
    first, other = (Embedded.load(tmp_path / f"{name}.npz") for name in ("first", "other"))
    failures.main([str(tmp_path / "log.jsonl"), f"a={tmp_path}/first.npz", "--carried", f"a={tmp_path}/other.npz"])
    (line,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    calibration = failures.judged(first)[0].calibration
    told, _ = failures.judged(other, calibration=calibration)
    assert line["scores"]["neighbours"] == pytest.approx(told.r_auroc_of_confidence, abs=1e-5)
    assert line["scores"]["error, neighbours"] == pytest.approx(told.calibration_error, abs=1e-5)
    by_distance = evaluate(other.embedding, other.labels, resamples=0).failures
    assert by_distance is not None
    assert line["scores"]["nearest alone"] == pytest.approx(by_distance.r_auroc_of_distance, abs=1e-5)
    assert "nearest alone" in capsys.readouterr().out
