import subprocess
import sys

import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training.config import Config
from idml.training.loop import Run
from idml.training.watching import Silent
from idml.training.workshop import HELD_SETS, Workshop

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def some_config(*changes: str) -> Config:
    return recipe("digits").with_changes(["epochs=2", "batch=20", "validation_half=second", *changes])


def trained(config: Config, cache: Cache, workshop: Workshop) -> dict[str, torch.Tensor]:
    run = Run(config, cache, CPU, workshop, watch=Silent())
    assert run.go()
    return {name: value.clone() for name, value in run.model.state_dict().items()}


@pytest.mark.parametrize("after", [["seed=5"], ["introspective=false", "mixing=none"], ["uncertainty_dim=3", "seed=1"]])
def test_a_run_after_others_is_the_run_it_would_be_alone(cache, after):
    workshop = Workshop()
    trained(some_config(*after), cache, workshop)
    second = trained(some_config(), cache, workshop)
    alone = trained(some_config(), cache, Workshop())
    assert second.keys() == alone.keys()
    assert all(torch.equal(second[name], alone[name]) for name in alone)


def test_what_a_failed_run_left_does_not_reach_the_next(cache):
    workshop = Workshop()
    failed = Run(some_config("seed=5"), cache, CPU, workshop, watch=Silent())
    for parameter in failed.model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    second, alone = trained(some_config(), cache, workshop), trained(some_config(), cache, Workshop())
    assert all(torch.equal(second[name], alone[name]) for name in alone)


def test_a_run_that_is_stopped_leaves_the_average_of_its_weights(cache):
    config = some_config("average=0.9", "epochs=3")
    run = Run(config, cache, CPU, Workshop(), watch=Silent())
    assert not run.go(lambda record: record["epoch"] == 2)
    assert run.average is not None
    averages = run.average.state_dict()["averages"]
    assert all(torch.equal(one, other) for one, other in zip(run.model.parameters(), averages, strict=True))


def test_few_sets_of_images_are_held(cache):
    workshop = Workshop()
    sets = [workshop.pixels(cache, torch.arange(number + 1), CPU) for number in range(HELD_SETS + 1)]
    assert workshop.pixels(cache, torch.arange(HELD_SETS + 1), CPU) is sets[-1]
    assert workshop.pixels(cache, torch.arange(1), CPU) is not sets[0]


def test_a_backbone_of_one_size_is_another_network_at_another_size_and_tests_at_its_own():
    workshop = Workshop()
    sizes = [
        workshop.model(some_config("backbone=test_vit", "pooling=average", f"image_size={size}"), CPU).model.backbone
        for size in (64, 96)
    ]
    assert sizes[0] is not sizes[1]
    with pytest.raises(ValueError, match="image_size is 64 and test_size 96: backbone 'test_vit' works at one size"):
        workshop.model(some_config("backbone=test_vit", "image_size=64", "test_size=96"), CPU)


def test_runs_share_images_and_the_backbone(cache):
    workshop = Workshop()
    one, two = (Run(some_config(f"seed={seed}"), cache, CPU, workshop, watch=Silent()) for seed in (0, 1))
    assert one.feed.pixels is two.feed.pixels
    assert one.model.backbone is two.model.backbone
    assert one.model.heads is not two.model.heads


@pytest.mark.parametrize("change", ["pooling=gem", "frozen_layers=conv1"])
def test_another_pooling_or_frozen_layers_make_another_network(cache, change):
    workshop = Workshop()
    one, two = (Run(some_config(*changes), cache, CPU, workshop, watch=Silent()) for changes in ([], [change]))
    assert one.model.backbone is not two.model.backbone


def test_compiled_code_is_used_again(cache):
    """In a process of its own: the checks of shapes under tests cannot be compiled."""
    script = """
import sys, torch
from idml.data.cache import Cache
from idml.recipes import recipe
from idml.training.loop import Run
from idml.training.watching import Silent
from idml.training.workshop import HELD_SETS, Workshop

workshop, cache = Workshop(), Cache.open(sys.argv[1])
config = recipe("digits").with_changes(["epochs=1", "batch=20", "validation_half=second", "compile=true"])
Run(config, cache, torch.device("cpu"), workshop, watch=Silent()).go()
with torch.compiler.set_stance("fail_on_recompile"):
    other = config.with_changes(["seed=3", "uncertainty_dim=3", "lr=1e-3"])
    Run(other, cache, torch.device("cpu"), workshop, watch=Silent()).go()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(cache.folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
