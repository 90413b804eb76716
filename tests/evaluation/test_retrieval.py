from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

from idml import Embedding
from idml.distances import Introspective
from idml.evaluation.comparing import Comparison
from idml.evaluation.neighbours import nearest, surroundings
from idml.evaluation.ranks import Ranks, ranks_of_positives
from idml.evaluation.retrieval import average_precision, average_precision_at_r, r_precision, recall_at


@st.composite
def searches(draw) -> tuple[Embedding, torch.Tensor, Embedding | None, torch.Tensor | None]:
    """Few distinct directions, so that duplicates and ties abound; unbalanced classes, singletons, missing ones."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    distinct = torch.randn(draw(st.integers(1, 5)), 3, generator=generator)
    sets = []
    for number in (draw(st.integers(2, 9)), draw(st.integers(1, 9))):
        rows = distinct[torch.randint(len(distinct), (number,), generator=generator)]
        u = torch.randn(number, 2, generator=generator)
        labels = torch.randint(draw(st.integers(1, 4)), (number,), generator=generator)
        sets += [Embedding(rows, u), labels]
    queries, labels, gallery, gallery_labels = sets
    return (queries, labels, gallery, gallery_labels) if draw(st.booleans()) else (queries, labels, None, None)


def ordered(comparison: Comparison, query: int) -> list[int]:
    """Gallery indices by exact distance, then index; the query itself left out."""
    others = [j for j in range(len(comparison.gallery)) if not (comparison.same and j == query)]
    index = torch.tensor(others, dtype=torch.long)
    exact = comparison.exact(torch.full_like(index, query), index)
    return [j for _, j in sorted(zip(exact.tolist(), others, strict=True))]


@pytest.fixture(params=["counted", "sorted"])
def _way(request, monkeypatch):
    monkeypatch.setattr("idml.evaluation.ranks.COUNTED", 1000 if request.param == "counted" else 0)


@pytest.mark.parametrize("introspective", [None, Introspective()])
@pytest.mark.parametrize("memory", [1, 500, 1 << 30])
@given(search=searches())
def test_the_rival_is_the_first_in_the_exact_order_that_is_not_of_the_nearest_ones_class(introspective, memory, search):
    queries, labels, gallery, gallery_labels = search
    comparison = Comparison.of(queries, gallery, introspective=introspective)
    others = labels if gallery_labels is None else gallery_labels
    ranks = (1, 2, 3, 4, 5, 8)
    found, rivals = surroundings(comparison, others, ranks, memory=memory)
    for query in range(len(queries)):
        order = ordered(comparison, query)
        assert found[query].tolist() == [order[min(rank, len(order)) - 1] for rank in ranks]
        assert rivals[query] == next((j for j in order if others[j] != others[order[0]]), -1)


@pytest.mark.parametrize("number", [5, 80, 300, 600])
@pytest.mark.parametrize("spread", [1e-8, 1e-7, 1e-6, 1e-3])
def test_ranks_among_images_too_near_to_each_other_for_float32_are_exact(number, spread):
    generator = torch.Generator().manual_seed(number)
    places = torch.randn(4, 16, generator=generator)[torch.arange(number) % 4]
    scale = torch.randint(1, 4, (number, 1), generator=generator)  # which changes no direction
    rows = scale * (places + spread * torch.randn(number, 16, generator=generator))
    comparison = Comparison.of(Embedding(rows))
    ranks = (1, 2, 4, 8, 16, 32, 64)
    labels = torch.arange(number) // 4 % 3
    found, rivals = surroundings(comparison, labels, ranks)
    for query in range(0, number, 11):
        order = ordered(comparison, query)
        assert found[query].tolist() == [order[min(rank, len(order)) - 1] for rank in ranks]
        assert rivals[query] == next((j for j in order if labels[j] != labels[order[0]]), -1)


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_rival_beyond_all_that_are_near_is_found(classes):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % classes
    places = torch.randn(3, 16, generator=generator)
    rows = places[labels] + 0.1 * torch.randn(300, 16, generator=generator)
    rows[::50] = rows[1::50]  # duplicates of another class, unless there is none
    comparison = Comparison.of(Embedding(rows))
    found, rivals = surroundings(comparison, labels, (1, 8))
    for query in range(0, 300, 7):
        order = ordered(comparison, query)
        assert found[query].tolist() == [order[0], order[7]]
        assert rivals[query] == next((j for j in order if labels[j] != labels[order[0]]), -1)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("introspective", [None, Introspective(), Introspective(base="cosine", gamma=0.5)])
@pytest.mark.parametrize("memory", [1, 500, 1 << 30])
@given(search=searches())
def test_ranks_are_the_places_in_the_exact_order_whatever_the_chunks(introspective, memory, search):
    queries, labels, gallery, gallery_labels = search
    comparison = Comparison.of(queries, gallery, introspective=introspective)
    found = ranks_of_positives(comparison, labels, gallery_labels, memory=memory)
    others = labels if gallery_labels is None else gallery_labels
    for query in range(len(queries)):
        order = ordered(comparison, query)
        expected = [place for place, j in enumerate(order, start=1) if others[j] == labels[query]]
        assert found.number[query] == len(expected)
        assert found.ranks[query, : len(expected)].tolist() == expected
        assert not found.ranks[query, len(expected) :].any()


@pytest.mark.parametrize("introspective", [None, Introspective()])
@pytest.mark.parametrize("memory", [1, 1 << 30])
@given(search=searches(), data=st.data())
def test_neighbours_come_in_the_exact_order_whatever_the_chunks(introspective, memory, search, data):
    queries, _, gallery, _ = search
    comparison = Comparison.of(queries, gallery, introspective=introspective)
    k = data.draw(st.integers(1, len(comparison.gallery) - comparison.same))
    found, distance = nearest(comparison, k, memory=memory)
    for query in range(len(queries)):
        assert found[query].tolist() == ordered(comparison, query)[:k]
        assert all(a <= b for a, b in pairwise(distance[query].tolist()))


def naive_scores(order_of: list[list[bool]]) -> tuple[float, float, float]:
    """R-Precision, MAP@R and mAP from lists of right and wrong neighbours, over queries that have right ones."""
    scores = []
    for right in order_of:
        number = sum(right)
        if number:
            precision = [sum(right[: i + 1]) / (i + 1) for i in range(len(right))]
            at_r = sum(p for p, is_right in zip(precision[:number], right, strict=False) if is_right) / number
            whole = sum(p for p, is_right in zip(precision, right, strict=True) if is_right) / number
            scores.append((sum(right[:number]) / number, at_r, whole))
    columns = list(zip(*scores, strict=True))
    return tuple(sum(column) / len(column) for column in columns)  # pyright: ignore[reportReturnType]


@given(search=searches())
def test_scores_equal_their_definitions_in_a_loop(search):
    queries, labels, gallery, gallery_labels = search
    comparison = Comparison.of(queries, gallery)
    found = ranks_of_positives(comparison, labels, gallery_labels)
    others = labels if gallery_labels is None else gallery_labels
    right = [[bool(others[j] == labels[q]) for j in ordered(comparison, q)] for q in range(len(queries))]
    for k, recall in recall_at(found, (1, 2, 50)).items():
        assert recall == pytest.approx(sum(any(row[:k]) for row in right) / len(right))
    if any(any(row) for row in right):
        ours = (r_precision(found).mean(), average_precision_at_r(found).mean(), average_precision(found).mean())
        assert [score.item() for score in ours] == pytest.approx(naive_scores(right))


@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_pytorch_metric_learning(seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(120, 8, generator=generator)
    labels = torch.randint(10, (120,), generator=generator)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision")
    calculator = AccuracyCalculator(include=names, k=119, knn_func=CustomKNN(LpDistance()))
    peer = calculator.get_accuracy(rows, labels)
    found = ranks_of_positives(Comparison.of(Embedding(rows)), labels)
    ours = (
        recall_at(found, (1,))[1],
        r_precision(found).mean().item(),
        average_precision_at_r(found).mean().item(),
        average_precision(found).mean().item(),
    )
    assert ours == pytest.approx([float(peer[name]) for name in names], abs=1e-6)


def test_duplicates_of_the_query_are_its_neighbours():
    """Dropping the first neighbour instead of the query would drop the duplicate in front of it."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found, distance = nearest(Comparison.of(Embedding(rows)), 2)
    assert found.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert distance[0].tolist() == [0.0, 1.0]


def test_equal_images_come_in_the_order_of_the_gallery_at_any_place():
    """In a matrix product the same row at two places may differ in the last digit."""
    generator = torch.Generator().manual_seed(0)
    gallery = torch.randn(7, 100, generator=generator).repeat(61, 1)
    found, _ = nearest(Comparison.of(Embedding(torch.randn(5, 100, generator=generator)), Embedding(gallery)), 61)
    assert (found.diff(dim=1) == 7).all()


@pytest.mark.parametrize("introspective", [None, Introspective(), Introspective(pair_uncertainty="sum_of_norms")])
@given(width=st.integers(1, 70), seed=st.integers(0, 1000))
def test_exact_distances_do_not_depend_on_what_is_compared_beside_them(introspective, width, seed):
    """A plain sum over fewer rows may come out otherwise in the last digit, and so break ties."""
    generator = torch.Generator().manual_seed(seed)
    embedding = Embedding(torch.randn(9, width, generator=generator), torch.randn(9, width, generator=generator))
    comparison = Comparison.of(embedding, introspective=introspective)
    i, j = torch.arange(9).repeat_interleave(9), torch.arange(9).repeat(9)
    together = comparison.exact(i, j)
    alone = torch.cat([comparison.exact(i[k : k + 1], j[k : k + 1]) for k in range(81)])
    assert torch.equal(together, alone)


def test_near_ties_do_not_flip_by_cancellation():
    """Images that differ by 1e-5 around a common direction: a plain float32 product orders half of them wrongly."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 64, generator=generator, dtype=torch.float64)
    rows = (common + 1e-5 * torch.randn(200, 64, generator=generator, dtype=torch.float64)).float()
    found, _ = nearest(Comparison.of(Embedding(rows)), 20)
    unit = torch.nn.functional.normalize(rows.double())
    truth = (
        torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf).argsort(dim=1)
    )
    product = torch.nn.functional.normalize(rows) @ torch.nn.functional.normalize(rows).T
    naive = product.fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)
    assert torch.equal(found, truth[:, :20])
    assert (naive[:, :20] != truth[:, :20]).double().mean() > 0.3


def test_a_narrow_gallery_far_from_its_queries_is_put_in_order_by_few_exact_comparisons(monkeypatch):
    """It is equally far, up to what a float32 distance is wrong by; so what distances have in common is left out."""
    generator = torch.Generator().manual_seed(0)
    number = 300
    queries, common = torch.randn(number + 1, 64, generator=generator, dtype=torch.float64).split([number, 1])
    gallery = common + 1e-5 * torch.randn(number, 64, generator=generator, dtype=torch.float64)
    compared: list[int] = []
    exact = Comparison.exact
    monkeypatch.setattr(Comparison, "exact", lambda self, i, j: compared.append(len(i)) or exact(self, i, j))
    own = torch.arange(number)
    found = ranks_of_positives(Comparison.of(Embedding(queries), Embedding(gallery)), own, own).first
    a, b = (torch.nn.functional.normalize(rows) for rows in (queries, gallery))
    distance = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(found, 1 + (distance < distance.diagonal()[:, None]).sum(dim=1))
    assert sum(compared) < 2 * number  # of number² pairs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_compared_as_they_are(dtype):
    rows = torch.randn(40, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    found, _ = nearest(Comparison.of(Embedding(rows)), 5)
    unit = torch.nn.functional.normalize(rows.double())
    truth = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    assert torch.equal(found, truth.argsort(dim=1, stable=True)[:, :5])


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    rows = torch.ones(3, 2)
    with pytest.raises(ValueError, match="k is 3, and a query has 2 images to choose from"):
        nearest(Comparison.of(Embedding(rows)), 3)
    with pytest.raises(ValueError, match="K is 0"):
        recall_at(Ranks(torch.ones(1, 1).long(), torch.ones(1).long()), (0,))
    with pytest.raises(ValueError, match="embedding row 1 is zero"):
        Comparison.of(Embedding(torch.tensor([[1.0, 0.0], [0.0, 0.0]])))
    with pytest.raises(ValueError, match="gallery row 0 holds NaN"):
        Comparison.of(Embedding(rows), Embedding(torch.full((1, 2), float("nan"))))
    with pytest.raises(ValueError, match="no query has another image of its class"):
        r_precision(ranks_of_positives(Comparison.of(Embedding(rows)), torch.arange(3)))
