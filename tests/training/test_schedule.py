import math

import pytest
import torch
from torch import nn

from idml.training.parts import OptimiserConfig
from idml.training.schedule import optimiser_for, set_learning_rates

CPU = torch.device("cpu")


def rates(config: OptimiserConfig, *, epoch: int, share: float = 0.0) -> dict[str, float]:
    """The learning rates of a run of 20 epochs."""
    groups = {name: [nn.Parameter(torch.zeros(1))] for name in ("backbone", "semantic", "uncertainty", "proxies")}
    optimiser = optimiser_for(groups, config, device=CPU)
    set_learning_rates(optimiser, config, epoch=epoch, epochs=20, share=share)
    return {group["name"]: group["lr"] for group in optimiser.param_groups}


@pytest.mark.parametrize(
    ("schedule", "epoch", "share", "factor"),
    [
        ("constant", 19, 0.9, 1.0),
        ("step", 0, 0.0, 1.0),
        ("step", 4, 0.9, 1.0),
        ("step", 5, 0.0, 0.1),
        ("step", 14, 0.5, 0.01),
        ("cosine", 0, 0.0, 1.0),
        ("cosine", 5, 0.0, (1 + math.sqrt(0.5)) / 2),
        ("cosine", 10, 0.0, 0.5),
        ("cosine", 19, 1.0, 0.0),
    ],
)
def test_learning_rates_follow_the_schedule(schedule, epoch, share, factor):
    config = OptimiserConfig(lr=0.3, schedule=schedule, decay_epochs=5, decay_factor=0.1)
    assert rates(config, epoch=epoch, share=share)["backbone"] == pytest.approx(0.3 * factor, abs=1e-12)


def test_each_part_has_its_own_factor_at_all_times():
    config = OptimiserConfig(
        lr=0.1, head_factor=2.0, uncertainty_factor=3.0, proxy_factor=50.0, schedule="step", decay_epochs=5
    )
    expected = {"backbone": 0.05, "semantic": 0.1, "uncertainty": 0.15, "proxies": 2.5}
    assert rates(config, epoch=7) == pytest.approx(expected)
