import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import LABEL_KINDS, random_members

from idml import Pairs
from idml.labels import as_members
from idml.pairs import pairs_between, pairs_with_classes, pairs_within

kinds = st.sampled_from(LABEL_KINDS)
seeds = st.integers(0, 10**6)
sizes = st.integers(1, 6)


@given(kind=kinds, n=sizes, m=sizes, classes=sizes, seed=seeds)
def test_pairs_equal_the_definition_in_a_loop(kind, n, m, classes, seed):
    a, b = random_members(n, classes, kind, seed), random_members(m, classes, kind, seed + 1)
    members_a, members_b = as_members(a, classes), as_members(b, classes)
    positive, negative = naive.pair_weights(members_a, members_b)
    between = pairs_between(a, b)
    torch.testing.assert_close(between.positive.double(), positive, rtol=0, atol=1e-12)
    torch.testing.assert_close(between.negative.double(), negative, rtol=0, atol=1e-12)
    own_positive, own_negative = naive.pair_weights(members_a, members_a)
    within = pairs_within(a)
    torch.testing.assert_close(within.positive.double(), own_positive.fill_diagonal_(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(within.negative.double(), own_negative.fill_diagonal_(0), rtol=0, atol=1e-12)
    classes_as_images = torch.eye(classes, dtype=members_a.dtype)
    with_classes = pairs_with_classes(a, classes)
    torch.testing.assert_close(with_classes.positive.double(), naive.pair_weights(members_a, classes_as_images)[0])


def test_class_numbers_can_meet_sets_and_shares():
    numbers = torch.tensor([0, 2])
    assert pairs_between(numbers, as_members([{0, 1}, {1, 2}], 3)).positive.tolist() == [[True, False], [False, True]]
    shares = as_members([{0: 0.25, 1: 0.75}], 3)
    assert pairs_between(numbers, shares).positive.tolist() == [[0.25], [0.0]]
    assert pairs_between(shares.double(), numbers).negative.tolist() == [[0.75, 1.0]]


def test_sets_give_boolean_and_shares_floating_point_members():
    assert as_members(torch.tensor([1]), 2).dtype is torch.bool
    assert as_members([0, 1], 2).tolist() == [[True, False], [False, True]]
    assert as_members([{0, 1}], 2).dtype is torch.bool
    assert as_members([{0: 0.5}], 2).tolist() == [[0.5, 0.0]]
    assert as_members([], 2).shape == (0, 2)
    matrix = torch.tensor([[0.5, 0.5]])
    assert as_members(matrix, 2) is matrix


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16, torch.uint32, torch.uint64])
def test_class_numbers_may_be_of_any_integer_type(dtype):
    assert torch.equal(as_members(torch.tensor([0, 2]).to(dtype), 3), as_members(torch.tensor([0, 2]), 3))


def test_class_numbers_may_come_from_numpy():
    expected = as_members([0, 2], 3)
    assert torch.equal(as_members(np.array([0, 2]), 3), expected)  # pyright: ignore[reportArgumentType]
    assert torch.equal(as_members([np.int64(0), torch.tensor(2)], 3), expected)  # pyright: ignore[reportArgumentType]


def test_shares_in_half_precision_are_widened():
    assert pairs_with_classes(torch.tensor([[0.25, 0.75]], dtype=torch.float16), 2).negative.dtype is torch.float32


def test_boolean_weights_stay_boolean():
    assert pairs_within(torch.tensor([0, 0, 1])).positive.dtype is torch.bool


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 5]), r"label 5 \(row 1\) is outside the 3 classes 0 to 2"),
        (torch.tensor([-1, 0]), r"label -1 \(row 0\)"),
        (torch.tensor([0.0, 1.0]), r"labels have shape \(2,\) and dtype torch.float32"),
        (torch.tensor([[0, 1]]), r"shape \(1, 2\) and dtype torch.int64"),
        (torch.tensor([True, False, True]), r"shape \(3,\) and dtype torch.bool"),
        (torch.ones(2, 4, dtype=torch.bool), "has 4 columns for 3 classes"),
        (torch.tensor([[0.5, 0.4, 0.3]]), "the shares of row 0 .* sum 1.2: shares are 0 or more and sum to at most 1"),
        (torch.tensor([[0.5, -0.4, 0.3]]), "shares are 0 or more"),
        (torch.tensor([[0.5, float("nan"), 0.3]]), "the shares of row 0"),
        ([{0}, {0, 7}], r"label 7 \(row 1\)"),
        ([{0.7}], "neither a class number"),
        (["a"], "label 'a' .row 0. is neither a class number"),
        ([{0: "much"}], "nor their shares"),
        (None, "labels are a NoneType"),
        ([{0}, {1: 0.5}], "mixes sets with shares"),
        ([{0}, 1.5], "neither a class number"),
    ],
)
def test_labels_that_make_no_sense_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        as_members(labels, 3)


@pytest.mark.usefixtures("as_installed")
def test_pairs_refuse_what_cannot_be_paired():
    with pytest.raises(ValueError, match="num_classes is 0"):
        as_members(torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="labels are a list"):
        pairs_within([0, 1])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="row 0 is a set of 2 classes, where shares are needed"):
        pairs_between(torch.tensor([[True, True]]), torch.tensor([[0.5, 0.5]]))
    with pytest.raises(ValueError, match="has 3 columns for 2 classes"):
        pairs_between(torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1, 3, dtype=torch.bool))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("positive", "negative", "message"),
    [
        (torch.ones(2, 2), -torch.ones(2, 2), "negative weights reach down to -1"),
        (torch.full((2, 2), float("nan")), torch.ones(2, 2), "positive weights hold nan"),
        (torch.full((2, 2), float("inf")), torch.ones(2, 2), "positive weights hold inf"),
        (torch.ones(2, 2), torch.ones(2, 3), r"shape \(2, 2\) and negative ones \(2, 3\)"),
        (torch.ones(2), torch.ones(2), r"positive weights have shape \(2,\)"),
        (torch.ones(2, 2).long(), torch.ones(2, 2), "dtype torch.int64: give booleans or floating-point"),
        ([[1.0]], torch.ones(1, 1), "positive weights are a list"),
    ],
)
def test_weights_that_make_no_sense_are_named(positive, negative, message):
    with pytest.raises(ValueError, match=message):
        Pairs(positive, negative)
