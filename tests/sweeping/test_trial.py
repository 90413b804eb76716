from dataclasses import replace

import numpy as np
import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.evaluation.judging import evaluate
from idml.recipes import recipe
from idml.sweeping.trial import check_trial, run_trial
from idml.training.config import Config
from idml.training.embedding import embed_all
from idml.training.loop import Run
from idml.training.watching import Silent
from idml.training.workshop import Workshop

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def quick(*changes: str) -> Config:
    return recipe("digits").with_changes(["epochs=2", "batch=20", *changes])


@pytest.mark.parametrize(
    ("changes", "is_final"),
    [(["validation_half=second", "average=0.9"], False), (["introspective=false"], True), ([], True)],
)
def test_scores_are_those_of_the_last_epochs_embeddings(cache, changes, is_final):
    config = quick(*changes)
    found = run_trial(config, cache, device=CPU, workshop=Workshop(), is_final=is_final)
    run = Run(config, cache, CPU, Workshop(), watch=Silent())
    run.go()
    rows = cache.rows("test") if is_final else run.validation_rows
    pixels = Workshop().pixels(cache, rows, CPU)
    scores = evaluate(embed_all(run.model, pixels, config), cache.labels[rows], clustering=is_final, resamples=0)
    assert found["split"] == ("test" if is_final else "validation")
    assert found["scores"]["map_at_r"] == scores.map_at_r
    assert found["scores"]["recall@1"] == scores.recall[1]
    assert found["scores"].get("nmi") == (scores.nmi if is_final else None)
    assert found["stopped"] is None
    assert [record["epoch"] for record in found["epochs"]] == [1, 2]
    for one, other in zip(found["epochs"], run.records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    if scores.uncertainty is None:
        assert "level_clean" not in found["scores"]
    else:
        level = scores.uncertainty.mean_level
        assert found["scores"]["level_clean"] == pytest.approx(level, rel=1e-4)  # some of the images: here all
        assert 0 <= found["scores"]["mixed_auroc"] <= 1


def test_final_runs_are_also_scored_at_the_size_that_they_were_trained_at(cache):
    larger, usual = (
        run_trial(quick(*changes), cache, device=CPU, workshop=Workshop(), is_final=True)["scores"]
        for changes in (["image_size=24", "test_size=32"], ["image_size=24"])
    )
    for name in ("recall@1", "map_at_r"):
        assert larger[f"{name}_at_image_size"] == usual[name]
        assert f"{name}_at_image_size" not in usual
    assert larger["mean_level"] != usual["mean_level"]


def test_what_a_model_without_uncertainty_knows_of_its_failures_is_told(cache):
    config = quick("introspective=false", "mixing=none", "image_size=8")  # so small that some queries fail
    scores = run_trial(config, cache, device=CPU, workshop=Workshop(), is_final=True)["scores"]
    run = Run(config, cache, CPU, Workshop(), watch=Silent())
    run.go()
    rows = cache.rows("test")
    embedding = embed_all(run.model, Workshop().pixels(cache, rows, CPU), config)
    found = evaluate(embedding, cache.labels[rows], clustering=False, resamples=0)
    assert found.failures is not None
    for name in ("r_auroc_of_distance", "r_auroc_of_neighbours", "r_auroc_of_confidence", "calibration_error"):
        assert scores[name] == pytest.approx(getattr(found.failures, name))
    assert not scores.keys() & {"r_auroc", "aurc", "excess_aurc", "spearman", "mean_level"}


def test_a_common_level_tells_nothing_apart(cache):
    config = quick("uncertainty=common", "mixing=none")
    scores = run_trial(config, cache, device=CPU, workshop=Workshop(), is_final=True)["scores"]
    assert scores["mixed_auroc"] == pytest.approx(0.5, abs=0.2)  # rounding alone
    assert scores["level_mixed"] == pytest.approx(scores["level_clean"], rel=1e-5)


def test_a_run_that_is_stopped_has_the_scores_of_where_it_stopped(cache):
    stopped = run_trial(
        quick("validation_half=second"), cache, device=CPU, workshop=Workshop(), should_stop=lambda _record: True
    )
    assert stopped["stopped"] == 1
    last = stopped["epochs"][-1]
    assert last["epoch"] == 1
    assert stopped["scores"]["map_at_r"] == pytest.approx(last["validation_map_at_r"], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "is_final", "message"),
    [
        ([], False, "a sweep chooses on held-out training classes: set validation_half=second"),
        (["validation_share=0.5", "select=best"], False, "leave select=best out"),
        (["validation_share=0.5", "select=best"], True, "leave select=best out"),
    ],
)
def test_configs_that_cannot_be_judged_are_refused(cache, changes, is_final, message):
    with pytest.raises(ValueError, match=message):
        check_trial(quick(*changes), cache, is_final=is_final)


@pytest.mark.parametrize(
    ("splits", "message"),
    [(["train", "query"], "galleries are not supported by a sweep"), (["train", "other"], "prepare a cache that has")],
)
def test_final_scores_need_test_classes(cache, splits, message):
    other = Cache(cache.folder, cache.meta, replace(cache.index, split_names=splits))
    check_trial(quick(), cache, is_final=True)
    with pytest.raises(ValueError, match=f"the cache has no test classes to score: {message}"):
        check_trial(quick(), other, is_final=True)
    alone = Cache(cache.folder, cache.meta, replace(cache.index, labels=np.arange(len(cache))))
    with pytest.raises(ValueError, match="none of the 40 test images has another one of its class to find"):
        check_trial(quick(), alone, is_final=True)
