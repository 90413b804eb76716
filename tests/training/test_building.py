from dataclasses import replace

import numpy as np
import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training.building import (
    build_model,
    build_objective,
    check_can_be_scored,
    scored_rows,
    training_and_validation_rows,
)
from idml.training.loop import train


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def changed(cache: Cache, **columns) -> Cache:
    return Cache(cache.folder, cache.meta, replace(cache.index, **columns))


def with_single_images(cache: Cache, split: str) -> Cache:
    """Each image of the split is of a class of its own."""
    labels = cache.index.labels.copy()
    rows = cache.rows(split).numpy()
    labels[rows] = 100 + np.arange(len(rows))
    return changed(cache, labels=labels, class_names=[str(number) for number in range(200)])


def test_a_single_class_teaches_nothing_and_is_refused(cache):
    one = changed(cache, labels=np.full_like(cache.index.labels, 3))
    with pytest.raises(ValueError, match="all training images of .* are of one class, '.*': add others, a folder each"):
        training_and_validation_rows(recipe("digits"), one)


def test_classes_of_single_images_are_refused_where_images_are_compared(cache):
    single = with_single_images(cache, "train")
    assert len(training_and_validation_rows(recipe("digits"), single)[0])
    with pytest.raises(ValueError, match="no training class of .* has two images, and triplet compares images of a"):
        training_and_validation_rows(recipe("digits").with_changes(["loss=triplet"]), single)


def test_pairs_of_classes_that_are_held_out_are_nothing_to_train_on(cache):
    single = with_single_images(cache, "train")
    rows = single.rows("train")
    labels = single.index.labels.copy()
    last = sorted(set(labels[rows].tolist()))[-2:]
    labels[rows[:4]] = last[0]
    labels[rows[4:8]] = last[1]
    config = recipe("digits").with_changes(["loss=triplet", "validation_half=second"])
    with pytest.raises(ValueError, match="no training class of .* has two images"):
        training_and_validation_rows(config, changed(cache, labels=labels))


def test_test_images_are_scored_among_themselves_or_queries_in_their_gallery(cache):
    scored = scored_rows(cache)
    assert scored is not None
    assert torch.equal(scored[0], cache.rows("test"))
    assert scored[1] is None
    splits = np.where(np.arange(len(cache)) % 3 == 0, 1, 2)
    parted = changed(cache, split_names=["train", "query", "gallery"], split_numbers=splits)
    scored = scored_rows(parted)
    assert scored is not None
    assert torch.equal(scored[0], parted.rows("query"))
    assert scored[1] is not None
    assert torch.equal(scored[1], parted.rows("gallery"))
    assert scored_rows(changed(cache, split_names=["train", "other"])) is None


def test_what_cannot_be_scored_in_the_end_is_refused_before_training(cache, tmp_path):
    for bad, message in (
        (changed(cache, split_names=["train", "query"]), "has queries and no gallery"),
        (with_single_images(cache, "test"), "none of the 40 test images has another one of its class to find"),
    ):
        with pytest.raises(ValueError, match=message):
            train(recipe("digits"), bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_network_is_built_as_the_config_says():
    model = build_model(recipe("digits").with_changes(["semantic_normalise=true", "frozen_layers=conv1,bn1"]))
    assert isinstance(model.heads.normalise, torch.nn.LayerNorm)
    assert not any(parameter.requires_grad for parameter in model.backbone.network.conv1.parameters())
    equal = build_model(recipe("digits").with_changes(["uncertainty_starts_equal=true", "uncertainty_level=0.4"]))
    levels = equal.heads(torch.rand(3, equal.heads.features)).level
    torch.testing.assert_close(levels, torch.full((3,), 0.4))


@pytest.mark.parametrize("teacher", ["all", "positives"])
def test_the_objective_is_built_as_the_config_says(teacher):
    objective = build_objective(recipe("digits").with_changes({"taught_by": teacher, "distance_scale": "centred"}), 4)
    assert objective.taught_by == teacher
    assert objective.is_centred


def test_with_folds_each_seed_holds_out_other_classes(cache):
    config = recipe("digits").with_changes(["validation_folds=2"])
    held_out = [
        set(cache.labels[training_and_validation_rows(config.with_changes({"seed": seed}), cache)[1]].tolist())
        for seed in range(3)
    ]
    assert not held_out[0] & held_out[1]
    assert held_out[0] | held_out[1] == set(cache.labels[cache.rows("train")].tolist())
    assert held_out[2] == held_out[0]


@pytest.mark.parametrize("change", ["validation_half=first", "validation_share=0.1"])
def test_validation_classes_of_single_images_are_refused_before_training(cache, change):
    with pytest.raises(ValueError, match="none of the .* validation images has another one of its class to find"):
        training_and_validation_rows(recipe("digits").with_changes([change]), with_single_images(cache, "train"))


@pytest.mark.parametrize(
    ("labels", "gallery", "message"),
    [
        ([0, 0, 1], None, None),
        ([0, 1, 2], None, "none of the 3 test images has another one"),
        ([4, 4, 4], None, "of 1 class"),
        ([0], [0, 1], None),
        ([0, 1], [2, 3], "none of the 2 test images has one of its class in the gallery"),
        ([0], [0], "of 1 class"),
    ],
)
def test_some_image_must_have_another_one_of_its_class_to_find(labels, gallery, message):
    labels, gallery = torch.tensor(labels), None if gallery is None else torch.tensor(gallery)
    if message is None:
        check_can_be_scored("test", labels, gallery)
    else:
        with pytest.raises(ValueError, match=message):
            check_can_be_scored("test", labels, gallery)
