import pytest
import torch
from scipy.stats import ttest_rel

from idml import Embedding, evaluate
from idml.evaluation.seeds import compared


def runs(noise: float, *, uncertain: bool = True):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(60) % 6
        rows = torch.eye(6)[labels] + noise * torch.randn(60, 6, generator=generator)
        uncertainty = torch.rand(60, 2, generator=generator) if uncertain else None
        yield evaluate(Embedding(rows, uncertainty), labels, resamples=0, clustering=False)


def test_each_score_is_compared_seed_by_seed():
    ours, theirs = list(runs(0.3)), list(runs(0.6, uncertain=False))
    found = {one.row.key: one for one in compared(ours, theirs)}
    expected = ttest_rel([run.map_at_r for run in ours], [run.map_at_r for run in theirs])
    difference = found["map_at_r"].difference
    assert difference is not None
    assert difference.p_value == pytest.approx(expected[1])
    assert not difference.is_inside_noise
    assert found["map_at_r"].to_dict()["difference"]["is_inside_noise"] is False
    assert found["aurc"].difference is None  # the others have no uncertainty


def test_the_same_runs_differ_by_nothing():
    ours = list(runs(0.5))
    assert all(one.difference is not None and one.difference.is_inside_noise for one in compared(ours, ours))
