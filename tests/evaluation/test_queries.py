import csv
from pathlib import Path

import pytest
import torch
from blobs import blobs

from idml import Embedding, evaluate
from idml.evaluation.embedded import Embedded
from idml.evaluation.queries import write_queries


def read(path: Path, embedded: Embedded, **options) -> list[dict[str, str]]:
    gallery = embedded.gallery
    within = {} if gallery is None else {"gallery": gallery.embedding, "gallery_labels": gallery.labels}
    scores = evaluate(embedded.embedding, embedded.labels, **within, clustering=False, resamples=0, **options)
    assert scores.queries is not None
    write_queries(path, scores.queries, embedded)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_query_has_what_it_found_and_how_sure_one_may_be(tmp_path):
    embedding, labels = blobs()
    names = ["gull", "tern, black", 'the "auk"', "雀", "wren"]
    images = [f"{number}.png" for number in range(60)]
    embedded = Embedded(embedding=embedding, labels=labels, class_names=names, images=images)
    rows = read(tmp_path / "queries.csv", embedded)
    scores = evaluate(embedding, labels, clustering=False, resamples=0)
    assert scores.queries is not None
    assert scores.queries.nearest is not None
    assert scores.queries.confidence is not None
    assert [row["image"] for row in rows] == images
    assert [row["class"] for row in rows] == [names[label] for label in labels.tolist()]
    nearest = scores.queries.nearest.tolist()
    assert [row["nearest"] for row in rows] == [images[place] for place in nearest]
    assert [row["nearest_class"] for row in rows] == [names[label] for label in labels[nearest].tolist()]
    assert [row["is_right"] == "true" for row in rows] == scores.queries.is_right.tolist()
    told = {"confidence": scores.queries.confidence, "level": embedding.level, "gap": scores.queries.gap}
    for name, expected in told.items():
        assert expected is not None
        assert [float(row[name]) for row in rows] == pytest.approx(expected.tolist(), rel=1e-5)


def test_what_is_not_known_is_left_empty(tmp_path):
    embedding, labels = blobs()
    labels = torch.cat([labels[:-1], torch.tensor([9])])  # alone in its class
    plain = Embedded(embedding=Embedding(embedding.semantic), labels=labels)
    rows = read(tmp_path / "queries.csv", plain)
    assert rows[3]["image"] == "3"
    assert rows[3]["class"] == str(int(labels[3]))
    assert {row["level"] for row in rows} == {""}
    assert rows[-1]["is_right"] == rows[-1]["confidence"] == rows[-1]["ap_at_r"] == ""
    assert float(rows[-1]["distance"]) > 0
    rows = read(tmp_path / "queries.csv", plain, failures=False)
    assert {row["nearest"] + row["confidence"] + row["distance"] for row in rows} == {""}
    assert {row["is_right"] for row in rows} == {"true", "false", ""}


def test_what_is_found_is_an_image_of_the_gallery(tmp_path):
    embedding, labels = blobs()
    gallery = Embedded(embedding=embedding[20:], labels=labels[20:], images=[f"g{row}" for row in range(40)])
    embedded = Embedded(
        embedding=embedding[:20], labels=labels[:20], images=list("abcdefghijklmnopqrst"), gallery=gallery
    )
    rows = read(tmp_path / "queries.csv", embedded)
    assert len(rows) == 20
    for row in rows:
        place = int(row["nearest"].removeprefix("g"))
        assert row["nearest_class"] == str(int(gallery.labels[place]))
        assert (row["is_right"] == "true") == (row["nearest_class"] == row["class"])
