import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from idml import Embedding
from idml.evaluation.ambiguity import KINDS, levels_when_changed, told_apart


def images(n: int = 12) -> Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def flatness(batch: Tensor) -> Embedding:
    """The level is higher the less there is to see, so that every change raises it."""
    batch = batch.float() / (255 if batch.dtype is torch.uint8 else 1)
    detail = batch.diff(dim=3).abs().mean(dim=(1, 2, 3)) + batch.diff(dim=2).abs().mean(dim=(1, 2, 3))
    return Embedding(torch.ones(len(batch), 2), (1 / (0.1 + detail))[:, None])


def sums(batch: Tensor) -> Embedding:
    return Embedding(torch.ones(len(batch), 2), batch.double().sum(dim=(1, 2, 3))[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_level_that_tells_of_ambiguity_rises_by_every_change_and_degree(dtype):
    batch = (images() * (255 if dtype is torch.uint8 else 1)).to(dtype)
    found = levels_when_changed(flatness, batch)
    assert tuple(found.changed) == KINDS == ("blur", "crop", "occlusion", "low_resolution", "mix")
    torch.testing.assert_close(found.clean, flatness(batch).level)
    for kind, shares in found.share_that_rises().items():
        assert tuple(shares) == (0.25, 0.5, 0.75, 1.0)
        assert min(shares.values()) == 1, kind
        means = [float(level.mean()) for level in found.changed[kind].values()]
        assert means == sorted(means), kind


def test_the_degree_of_mixing_is_twice_the_share_of_another_image():
    batch = images(7)
    clean = sums(batch).level
    found = levels_when_changed(sums, batch, degrees=(0.0, 0.5, 1.0), batch=3)
    torch.testing.assert_close(found.changed["mix"][0.0], clean)
    partner = 2 * found.changed["mix"][1.0] - clean
    torch.testing.assert_close(found.changed["mix"][0.5], 0.75 * clean + 0.25 * partner, rtol=1e-5, atol=0)
    torch.testing.assert_close(partner.sort().values, clean.sort().values, rtol=1e-5, atol=0)  # each is one once
    assert ((partner - clean).abs() > 1e-2).all()  # and nobody's own


def test_images_of_one_tensor_meet_beyond_their_batch_and_batches_stay_among_themselves():
    """Images are 1 and 100 times as bright, in two batches."""
    batch = torch.cat([images(20), 100 * images(20)])
    partner = {}
    for name, given in (("tensor", batch), ("batches", batch.split(20))):
        found = levels_when_changed(sums, given, degrees=(1.0,), batch=20)
        partner[name] = (2 * found.changed["mix"][1.0] - found.clean) > 10_000
    is_bright = torch.arange(40) >= 20
    assert (partner["tensor"] != is_bright).any()
    assert torch.equal(partner["batches"], is_bright)


def test_a_last_batch_of_one_is_mixed_with_the_image_before_it():
    batch = images(5)
    found = levels_when_changed(sums, iter(batch.split(2)), degrees=(1.0,))
    clean = sums(batch).level
    torch.testing.assert_close(found.changed["mix"][1.0][4], (clean[4] + clean[3]) / 2, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.clean, clean)


def test_the_seed_decides():
    first, again, other = (levels_when_changed(flatness, images(), seed=seed).changed for seed in (0, 0, 1))
    for kind in ("crop", "occlusion", "mix"):
        assert torch.equal(first[kind][0.5], again[kind][0.5])
        assert not torch.equal(first[kind][0.5], other[kind][0.5])


def test_nothing_is_kept_for_gradients():
    weight = torch.ones(1, requires_grad=True)
    found = levels_when_changed(
        lambda batch: Embedding(weight * flatness(batch).semantic, weight * batch[:, 0, 0]), images()
    )
    assert not found.clean.requires_grad
    assert found.clean.device.type == "cpu"


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    for given in (images(1), [images(1)]):
        with pytest.raises(ValueError, match="1 image to mix with another: give at least two"):
            levels_when_changed(flatness, given)
    with pytest.raises(ValueError, match="there are no images to change"):
        levels_when_changed(flatness, [])
    with pytest.raises(ValueError, match="degree is 1.5"):
        levels_when_changed(flatness, images(), degrees=(1.5,))
    with pytest.raises(ValueError, match="batch is 0"):
        levels_when_changed(flatness, images(), batch=0)
    with pytest.raises(ValueError, match="a Tensor is no Embedding"):
        levels_when_changed(lambda batch: batch.flatten(1), images())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no uncertainty, so no level"):
        levels_when_changed(lambda batch: Embedding(batch.flatten(1)), images())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [1000, 5])  # few values: many are equal
def test_changed_images_are_told_apart_as_by_scikit_learn(dtype, values):
    generator = torch.Generator().manual_seed(values)
    clean = torch.randint(values, (40,), generator=generator).to(dtype)
    changed = torch.randint(values, (25,), generator=generator).to(dtype) + values // 5
    expected = roc_auc_score([0] * 40 + [1] * 25, torch.cat([clean, changed]).numpy())
    assert told_apart(clean, changed) == pytest.approx(expected)
    assert told_apart(changed, clean) == pytest.approx(1 - expected)


def test_levels_that_are_all_higher_or_all_equal_are_told_apart_wholly_or_by_chance():
    assert told_apart(torch.tensor([1.0, 2.0]), torch.tensor([3.0])) == 1
    assert told_apart(torch.tensor([1.0, 1.0]), torch.tensor([1.0])) == 0.5
    assert math.isnan(told_apart(torch.ones(3), torch.ones(0)))
