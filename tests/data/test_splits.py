import pytest
import torch

from idml.data.splits import Fold, check_validation_split, held_out_classes

LABELS = torch.arange(60) % 20 * 3
ROWS = torch.arange(60) + 100


def test_no_class_both_trains_and_validates():
    training, validation = held_out_classes(ROWS, LABELS, share=0.25, seed=3)
    of_training, of_validation = (set(LABELS[rows - 100].tolist()) for rows in (training, validation))
    assert not of_training & of_validation
    assert len(of_validation) == 5
    assert sorted([*training.tolist(), *validation.tolist()]) == ROWS.tolist()


def test_the_held_out_classes_follow_from_the_seed():
    first, again, other = (held_out_classes(ROWS, LABELS, seed=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_halves_go_by_class_number():
    training, validation = held_out_classes(ROWS, LABELS, share="first half")
    assert LABELS[validation - 100].max() < LABELS[training - 100].min()
    again = held_out_classes(ROWS, LABELS, share="second half")
    assert torch.equal(again[0], validation)
    assert torch.equal(again[1], training)


@pytest.mark.parametrize("parts", [2, 3, 10])
def test_folds_hold_out_every_class_once_in_the_order_of_their_numbers(parts):
    folds = [held_out_classes(ROWS, LABELS, share=Fold(part, parts)) for part in range(parts)]
    held_out = [LABELS[validation - 100].unique() for _, validation in folds]
    assert torch.equal(torch.cat(held_out), LABELS.unique())
    for (training, _), classes in zip(folds, held_out, strict=True):
        assert not torch.isin(LABELS[training - 100], classes).any()
    again = held_out_classes(ROWS, LABELS, share=Fold(parts + 1, parts))
    assert torch.equal(again[1], folds[1][1])


@pytest.mark.parametrize("parts", [1, 11])
def test_parts_too_few_or_too_many_are_refused(parts):
    with pytest.raises(
        ValueError, match=f"20 classes cannot be parted in {parts}, .*: give at least 2 folds, and at most 10"
    ):
        held_out_classes(ROWS, LABELS, share=Fold(0, parts))


def test_five_classes_can_be_parted_in_two_alone():
    with pytest.raises(ValueError, match="5 classes cannot be parted in 5, .*: give 2 folds"):
        held_out_classes(torch.arange(5), torch.arange(5), share=Fold(part=0, parts=5))


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_each_side_keeps_two_classes(share):
    for rows in held_out_classes(ROWS, LABELS, share=share):
        assert len(LABELS[rows - 100].unique()) >= 2


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("share", [0.0, 1.0, 5, "third"])
def test_other_shares_are_refused(share):
    with pytest.raises(ValueError, match="give a number between 0 and 1"):
        held_out_classes(ROWS, LABELS, share=share)


def test_too_few_classes_are_refused():
    with pytest.raises(ValueError, match="3 classes cannot be parted in two, with 2 or more on each side"):
        held_out_classes(torch.arange(6), torch.arange(6) % 3)


@pytest.mark.parametrize("name", ["test", "query", "gallery"])
def test_choosing_on_the_test_split_is_refused_with_the_reason(name):
    with pytest.raises(ValueError, match="scored once, at the end"):
        check_validation_split(name)


def test_choosing_on_training_classes_is_fine():
    check_validation_split("train")
