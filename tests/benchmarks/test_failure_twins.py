import json

import pytest
import torch
from blobs import blobs
from caches import draw_cache
from scripts import benchmark

from idml import Embedding, evaluate
from idml.data.pixels import Pixels
from idml.data.splits import TEST
from idml.models.embedder import Embedder
from idml.training.config import Config
from idml.training.embedding import embed_all

twins = benchmark("failure_twins")


@pytest.fixture(scope="module")
def known():
    embedding, labels = blobs(300)
    scores = evaluate(embedding, labels, clustering=False, resamples=0)
    return embedding, labels, scores


def test_neighbours_and_what_uncertainty_adds_are_those_of_evaluation(known):
    embedding, labels, scores = known
    found = twins.twins(embedding, labels, embedding.semantic, draws=2)
    assert found["neighbours"] == pytest.approx(scores.failures.r_auroc_of_neighbours, abs=1e-5)
    assert found["neighbours"] + found["+ β"] == pytest.approx(scores.failures.r_auroc_of_confidence, abs=2e-5)
    assert found["length"] == pytest.approx(scores.failures.r_auroc_of_length, abs=1e-5)
    assert found["level"] == pytest.approx(scores.uncertainty.r_auroc, abs=1e-5)
    assert found["feature"] == found["length"]
    assert found["+ feature lengths"] == found["+ lengths"]


def test_what_tells_failures_adds_and_what_does_not_tell_them_hardly_adds(known):
    embedding, labels, scores = known
    told = torch.where(scores.queries.is_right, 1.0, 2.0)[:, None]
    lengths = told * torch.nn.functional.normalize(torch.randn(300, 8, generator=torch.Generator().manual_seed(0)))
    alone = Embedding(embedding.semantic)
    found = twins.twins(alone, labels, lengths, draws=2)
    assert found["feature"] == 0  # the longer, the worse
    assert found["neighbours"] + found["+ feature lengths"] == pytest.approx(1, abs=1e-3)
    assert found["neighbours"] + found["+ all of these"] == pytest.approx(1, abs=1e-3)
    assert abs(found["+ untrained"]) < 0.05
    assert found["+ luckiest"] >= found["+ untrained"]
    assert not {"level", *twins.OF_UNCERTAINTY} & set(found)


def test_features_count_by_how_far_the_two_are_and_levels_by_their_lengths(known):
    embedding, labels, scores = known
    nearest, is_right = scores.queries.nearest.tolist(), scores.queries.is_right.tolist()

    def side(query: int) -> int:
        """Opposite to that of its nearest image where that is wrong; two that are nearest to each other agree on it."""
        other = nearest[query]
        if nearest[other] == query < other:
            return 1
        return side(other) if is_right[query] else -side(other)

    features = torch.tensor([[side(query), 0.0] for query in range(len(nearest))])
    told = torch.where(scores.queries.is_right, 1.0, 2.0)[:, None]
    level = told * torch.nn.functional.normalize(torch.randn(300, 4, generator=torch.Generator().manual_seed(1)))
    found = twins.twins(Embedding(embedding.semantic, level), labels, features, draws=1)
    certain = {name for name, value in found.items() if name[0] == "+" and value + found["neighbours"] > 0.999}
    by_features = {"+ features", "+ all of these", "+ untrained", "+ luckiest"}  # a layer of any weights sees two sides
    assert certain == by_features | {"+ levels", "+ levels and features"}
    assert found["level"] == 1


def test_a_run_is_embedded_as_training_embeds_it_and_a_plain_one_without_uncertainty(tmp_path):
    cache = draw_cache(tmp_path, classes=4, per_class=3)
    config = Config().with_changes({"image_size": 32, "precision": "float32", "backbone": "resnet18", "weights": None})
    model = Embedder("resnet18", weights=None, dim=8, uncertainty_dim=4, image_size=32)
    model.save(tmp_path / "model")
    for is_introspective in (True, False):
        saved = config.with_changes({"introspective": is_introspective})
        (tmp_path / "config.json").write_text(json.dumps({"config": saved.to_dict()}))
        found, labels, pooled = twins.of_run(tmp_path, cache)
        rows = cache.rows(TEST)
        expected = embed_all(model, Pixels.of(cache, rows, "cpu", budget=0), saved)
        torch.testing.assert_close(found.semantic, expected.semantic)
        assert (found.uncertainty is None) == (not is_introspective)
        assert labels.equal(cache.labels[rows])
        assert len(pooled) == len(rows)


def test_lines_and_the_table_say_the_same_and_names_are_needed(tmp_path, monkeypatch, capsys):
    cache = draw_cache(tmp_path, classes=4, per_class=2)
    scores = [{"+ lengths": -0.001, "neighbours": 0.75}, {"+ lengths": 0.003, "neighbours": 0.77}]
    monkeypatch.setattr(twins, "of_run", lambda *_: ())
    monkeypatch.setattr(twins, "twins", lambda *_: scores[len(log.read_text().splitlines()) if log.exists() else 0])
    log = tmp_path / "log.jsonl"
    twins.main([str(log), str(cache.folder), "plain=one", "plain=two"])
    assert capsys.readouterr().out.splitlines()[2:] == ["| plain | 0.760 | 0.001 |"]
    assert [json.loads(line)["scores"] for line in log.read_text().splitlines()] == scores
    with pytest.raises(SystemExit, match="'one' names no model"):
        twins.main([str(log), str(cache.folder), "one"])
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="config.json"):
        twins.main([str(log), str(cache.folder), f"a={tmp_path / 'none'}"])
    with pytest.raises(SystemExit, match="there are no features in"):
        twins.main([str(log), str(cache.folder), "a=b", "--frozen", "weights", str(tmp_path / "none.pt")])
