import math
import statistics
from copy import deepcopy

import pytest
import torch
from caches import draw_cache

from idml import Embedding
from idml.distances import Introspective
from idml.pairs import pairs_with_classes, pairs_within
from idml.recipes import recipe
from idml.training.health import Averages, doubts, gradient_norms, warnings
from idml.training.loop import train
from idml.training.watching import Silent


def test_averages_are_means_since_the_last_reading():
    averages = Averages()
    for value in (1.0, 3.0):
        averages.add({"loss": torch.tensor(value)})
    averages.add({"level": torch.tensor(5.0)})
    assert averages.read() == {"loss": 2.0, "level": 5.0}
    assert averages.read() == {}


def test_averages_go_on_where_a_checkpoint_left_them():
    whole, resumed = Averages(), Averages()
    whole.add({"loss": torch.tensor(1.0)})
    whole.add({"loss": torch.tensor(2.0), "level": torch.tensor(5.0)})
    resumed.load_state_dict(deepcopy(whole.state_dict()))
    for averages in (whole, resumed):
        averages.add({"loss": torch.tensor(6.0)})
    assert resumed.read() == whole.read() == {"loss": 3.0, "level": 5.0}


def test_doubts_equal_loops_over_pairs():
    generator = torch.Generator().manual_seed(0)
    embedding = Embedding(torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    distance = Introspective(tau=0.3)
    found = doubts(embedding, embedding, pairs_within(labels), distance, mixed=embedding[:2])
    relative = distance.relative_uncertainty(embedding, embedding)
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    for name, same in (("positive", True), ("negative", False)):
        values = [float(relative[i, j]) for i, j in pairs if (labels[i] == labels[j]) == same]
        assert float(found[f"relative_uncertainty_{name}"]) == pytest.approx(sum(values) / len(values), rel=1e-5)
        weights = [math.exp(-value / 0.3) for value in values]
        assert float(found[f"weight_{name}"]) == pytest.approx(sum(weights) / len(weights), rel=1e-4)
    every = [math.exp(-float(relative[i, j]) / 0.3) for i, j in pairs]
    assert float(found["weight_deviation"]) == pytest.approx(statistics.pstdev(every), rel=1e-4)
    saturated = [math.exp(-float(relative[i, j]) / 0.3) < 0.01 for i, j in pairs]
    assert float(found["saturated_pairs"]) == pytest.approx(sum(saturated) / len(saturated))
    assert float(found["level_mixed"]) == pytest.approx(float(embedding.level[:2].mean()))
    assert float(found["weight_mixed"]) == pytest.approx(math.exp(-float(relative[0, 1]) / 0.3), rel=1e-4)


def test_weights_of_centred_distances_are_about_the_mean_of_the_pairs():
    generator = torch.Generator().manual_seed(0)
    semantic, noise = torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator)
    embedding, labels = Embedding(semantic, 50 + noise), torch.tensor([0, 0, 1, 1, 2, 2])
    distance = Introspective("euclidean", tau=0.3)
    options = {"mixed": embedding[:2], "is_centred": True}
    found = doubts(embedding, embedding, pairs_within(labels), distance, **options)
    parts, is_pair = distance.parts(embedding, embedding), ~torch.eye(6, dtype=torch.bool)
    mean = parts.doubt[is_pair].mean()
    weight = distance.about_mean(parts, mean) / distance.plain_of_parts(parts).clamp(min=1e-9)
    is_same = (labels[:, None] == labels) & is_pair
    assert float(found["weight_positive"]) == pytest.approx(float(weight[is_same].mean()), rel=1e-5)
    assert float(found["weight_mixed"]) == pytest.approx(float(weight[0, 1]), rel=1e-5)
    assert found["saturated_pairs"] == 0
    assert doubts(embedding, embedding, pairs_within(labels), distance)["saturated_pairs"] == 1


def test_doubts_of_a_loss_with_proxies_are_those_of_images_and_proxies():
    generator = torch.Generator().manual_seed(0)
    embedding = Embedding(torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator))
    proxies = Embedding.certain(torch.randn(3, 3, generator=generator))
    labels, distance = torch.tensor([0, 1, 2, 0]), Introspective(tau=2.0)
    found = doubts(embedding, proxies, pairs_with_classes(labels, 3), distance, mixed=embedding[:1])
    weight = torch.exp(-distance.relative_uncertainty(embedding, proxies) / 2.0)
    assert float(found["weight_positive"]) == pytest.approx(float(weight[range(4), labels].mean()), rel=1e-5)
    assert float(found["weight_mixed"]) == pytest.approx(float(weight[0].mean()), rel=1e-5)


def test_gradient_norms_are_those_of_all_parameters_of_a_group():
    one, two, unused = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    one.grad, two.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    assert gradient_norms({"backbone": [one, two], "proxies": [unused]}) == {"gradient_backbone": torch.tensor(5.0)}


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ({"level_clean": 1.0, "gradient_uncertainty": 1e-9, "gradient_semantic": 1.0}, "dead"),
        ({"level_clean": 9.0, "saturated_pairs": 0.9}, "saturated"),
        (
            {"loss": 0.0, "gradient_semantic_embedding": 0.0},
            r"no pair has taught anything (loss 0): give more images of a class",
        ),
        ({"level_clean": 1.0, "level_deviation": 1e-5}, "collapsed"),
        ({"level_clean": 1.0, "loss_with_uncertainty": 7.4, "loss_without_uncertainty": 5.8}, "learns too fast"),
        ({"level_clean": 1.0, "loss_with_uncertainty": -7.0, "loss_without_uncertainty": -10.0}, "learns too fast"),
    ],
)
def test_what_is_wrong_is_said_in_words(means, word):
    (told,) = warnings(means)
    assert word in told


def test_images_that_are_compared_with_proxies_need_no_others_of_their_class():
    (told,) = warnings({"loss": 0.0, "gradient_semantic_embedding": 0.0}, has_proxies=True)
    assert "per_class" not in told


def test_a_healthy_or_plain_run_is_not_warned():
    well = {"level_clean": 0.4, "level_deviation": 0.1, "saturated_pairs": 0.0}
    well |= {"loss_with_uncertainty": 6.0, "loss_without_uncertainty": 5.8}
    assert warnings(well | {"gradient_uncertainty": 0.1, "gradient_semantic": 1.0}) == []
    assert warnings({"loss": 1.0}) == []


def test_levels_that_are_meant_to_be_equal_have_not_collapsed():
    assert warnings({"level_clean": 0.3, "level_deviation": 1e-7}, may_be_equal=True) == []


@pytest.mark.parametrize("change", ["uncertainty_starts_equal=true", "uncertainty=common"])
def test_a_run_whose_images_start_equal_is_not_warned_of_it(change, tmp_path):
    told = []

    class Listening(Silent):
        def say(self, words: str) -> None:
            told.append(words)

    config = recipe("digits").with_changes([change, "uncertainty_factor=0.000001", "epochs=1", "batch=20"])
    train(config, draw_cache(tmp_path), tmp_path / "run", watch=Listening())
    assert not [words for words in told if "collapsed" in words]
