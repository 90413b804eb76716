import numpy as np
import pytest
import torch

from idml import Embedding


def test_the_level_is_the_length_of_the_uncertainty():
    embedding = Embedding(torch.ones(2, 3), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert embedding.level.tolist() == [5.0, 0.0]


def test_the_level_of_zero_has_a_finite_gradient():
    uncertainty = torch.zeros(2, 3, requires_grad=True)
    Embedding(torch.ones(2, 3), uncertainty).level.sum().backward()
    assert uncertainty.grad is not None
    assert not uncertainty.grad.any()


def test_certain_images_have_level_zero():
    assert Embedding.certain(torch.ones(3, 2)).level.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rows", [slice(1, 3), [2, 0], torch.tensor([True, False, True]), torch.tensor([1, 1])])
def test_indexing_takes_the_same_rows_of_both(rows):
    semantic, uncertainty = torch.arange(6.0).view(3, 2), torch.arange(9.0).view(3, 3)
    some = Embedding(semantic, uncertainty)[rows]
    assert torch.equal(some.semantic, semantic[rows])
    assert some.uncertainty is not None
    assert torch.equal(some.uncertainty, uncertainty[rows])


def test_a_single_index_gives_one_row_and_iteration_ends():
    embedding = Embedding(torch.arange(6.0).view(3, 2))
    assert embedding[-1].semantic.tolist() == [[4.0, 5.0]]
    assert [len(one) for one in embedding] == [1, 1, 1]
    for index in (np.int64(1), torch.tensor(1)):
        assert embedding[index].semantic.tolist() == [[2.0, 3.0]]  # pyright: ignore[reportArgumentType]
    with pytest.raises(IndexError, match="row 3 is outside this embedding of 3 images"):
        embedding[3]


def test_cat_stacks_in_order():
    parts = [Embedding(torch.full((n, 2), float(n)), torch.full((n, 1), float(n))) for n in (1, 2)]
    whole = Embedding.cat(parts)
    assert len(whole) == 3
    assert whole.level.tolist() == [1.0, 2.0, 2.0]
    assert Embedding.cat([Embedding(torch.ones(1, 2))] * 2).uncertainty is None


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(3),), r"semantic has shape \(3,\): give \(images, dimensions\)"),
        ((torch.ones(3, 0),), "at least one dimension"),
        ((torch.ones(3, 2).long(),), "semantic has dtype torch.int64"),
        (([[1.0]],), "semantic is a list: give a torch tensor"),
        ((torch.ones(3, 2), torch.ones(3)), r"uncertainty has shape \(3,\)"),
        ((torch.ones(3, 2), torch.ones(4, 2)), "semantic has 3 rows and uncertainty 4"),
        ((torch.ones(3, 2), torch.ones(3, 2, device="meta")), "semantic is on cpu and uncertainty on meta"),
    ],
)
def test_rows_that_do_not_make_an_embedding_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Embedding(*arguments)


def test_cat_gives_certain_images_an_uncertainty_of_zero():
    doubtful = Embedding(torch.ones(1, 2), torch.ones(1, 4))
    assert Embedding.cat([Embedding.certain(torch.ones(2, 2)), doubtful]).level.tolist() == [0.0, 0.0, 2.0]


def test_the_level_of_half_precision_does_not_overflow():
    embedding = Embedding(torch.ones(1, 2), torch.full((1, 512), 1e4, dtype=torch.float16))
    assert torch.isfinite(embedding.level).all()


def test_mistakes_in_use_are_named():
    with pytest.raises(ValueError, match="dimensions: stack equal ones"):
        Embedding.cat([Embedding(torch.ones(1, 2)), Embedding(torch.ones(1, 3))])
    with pytest.raises(ValueError, match="dimensions: stack equal ones"):
        Embedding.cat([Embedding(torch.ones(1, 2), torch.ones(1, width)) for width in (2, 3)])
    with pytest.raises(ValueError, match="no uncertainty, so no level"):
        _ = Embedding(torch.ones(1, 1)).level
    with pytest.raises(ValueError, match="empty list"):
        Embedding.cat([])
    with pytest.raises(ValueError, match="1 of 2 embeddings have uncertainty"):
        Embedding.cat([Embedding(torch.ones(1, 1)), Embedding.certain(torch.ones(1, 1))])
