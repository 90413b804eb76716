import json

import pytest
import torch
from blobs import blobs
from scripts import benchmark
from sklearn.metrics import roc_auc_score

from idml import Embedding, evaluate
from idml.evaluation.embedded import Embedded

failures = benchmark("failures")


def test_the_gallery_has_as_many_images_of_each_class_and_leaves_queries():
    labels = torch.tensor([0] * 8 + [1] * 5 + [2] * 3)
    chosen = failures.split(labels, 3, seed=0)
    assert [int(chosen[labels == number].sum()) for number in range(3)] == [3, 3, 0]  # of the last all are queries
    assert not torch.equal(chosen, failures.split(labels, 3, seed=1))


def test_votes_are_those_of_a_loop():
    embedding, labels = blobs(40)
    gallery, queries = embedding[:30], embedding[30:]
    ways = [torch.nn.functional.normalize(side.semantic.double()) for side in (queries, gallery)]
    order = torch.cdist(ways[0], ways[1]).argsort(dim=1).tolist()
    expected = [
        sum(1 / rank for rank, place in enumerate(row[1:], start=2) if labels[place] == labels[row[0]]) for row in order
    ]
    assert failures.votes(queries, gallery, labels[:30]).tolist() == pytest.approx(expected)


def test_what_is_known_is_what_evaluation_knows_and_a_pair_knows_less():
    embedding, labels = blobs(300)
    in_gallery = failures.split(labels, 20, seed=0)
    found = failures.known(embedding, labels, in_gallery)
    queries, gallery = embedding[~in_gallery], embedding[in_gallery]
    scores = evaluate(queries, labels[~in_gallery], gallery=gallery, gallery_labels=labels[in_gallery], resamples=0)
    assert scores.failures is not None
    assert scores.queries is not None
    assert found["confidence"] == scores.failures.r_auroc_of_confidence
    told = roc_auc_score(~scores.queries.is_right, -failures.votes(queries, gallery, labels[in_gallery]))
    assert found["votes"] == pytest.approx(told)
    assert 0.4 < found["pair"] < 1


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
