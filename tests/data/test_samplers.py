import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from idml.data.samplers import class_balanced_batches, random_batches


def test_random_batches_show_every_image_at_most_once_and_leave_out_the_remainder():
    batches = random_batches(23, 5, seed=0, epoch=0)
    assert batches.shape == (4, 5)
    assert len(batches.unique()) == 20


def test_every_image_has_its_turn_over_the_epochs():
    seen = torch.cat([random_batches(23, 5, seed=0, epoch=epoch).reshape(-1) for epoch in range(6)])
    assert len(seen.unique()) == 23


@pytest.mark.parametrize(
    "draw", [random_batches, lambda n, b, **at: class_balanced_batches(torch.arange(n) % 9, b, **at)]
)
def test_batches_follow_from_seed_and_epoch_alone(draw):
    first = draw(40, 8, seed=1, epoch=2)
    torch.manual_seed(5)
    assert torch.equal(first, draw(40, 8, seed=1, epoch=2))
    assert not torch.equal(first, draw(40, 8, seed=1, epoch=3))
    assert not torch.equal(first, draw(40, 8, seed=2, epoch=2))


@given(
    counts=st.lists(st.integers(1, 9), min_size=3, max_size=8),
    per_class=st.integers(1, 4),
    wanted=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_class_balanced_batches_hold_so_many_images_of_so_many_classes(counts, per_class, wanted, seed):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = 7 * labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    batches = class_balanced_batches(labels, per_class * wanted, per_class=per_class, seed=seed, epoch=0)
    assert batches.shape == (max(1, len(labels) // (per_class * wanted)), per_class * wanted)
    for batch in batches:
        groups = batch.reshape(wanted, per_class)
        assert (labels[groups] == labels[groups[:, :1]]).all()
        assert len(labels[groups[:, 0]].unique()) == wanted
        for group in groups:
            available = int((labels == labels[group[0]]).sum())
            assert len(group.unique()) == min(per_class, available)  # repeated only where there are too few


def test_a_class_shows_all_its_images_before_it_repeats_one():
    labels = torch.zeros(12, dtype=torch.long)
    batches = class_balanced_batches(labels, 4, per_class=4, seed=0, epoch=0)
    assert sorted(batches.reshape(-1).tolist()) == list(range(12))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_batches(3, 4, seed=0, epoch=0), "3 images do not fill a batch of 4: lower it .--set batch=3."),
        (lambda: random_batches(3, 0, seed=0, epoch=0), "a batch of 0 images"),
        (
            lambda: class_balanced_batches(torch.arange(9), 10, per_class=4, seed=0, epoch=0),
            "a batch of 10 does not divide into 4",
        ),
        (
            lambda: class_balanced_batches(torch.arange(9) % 3, 16, per_class=4, seed=0, epoch=0),
            "needs 4 classes, and there are 3: lower the batch .--set batch=12.",
        ),
    ],
)
def test_batches_that_cannot_be_say_why(call, message):
    with pytest.raises(ValueError, match=message):
        call()
