from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import k_means as sklearn_k_means
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from idml import Embedding
from idml.distances import Introspective
from idml.evaluation.clustering import (
    ROUNDS,
    adjusted_mutual_information,
    cluster,
    clustering_scores,
    normalised_mutual_information,
    pairwise_f1,
)
from idml.evaluation.kmeans import _Fit, _Points, fill_empty, k_means


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def squared_distances(rows: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """In float64, from differences."""
    return (rows.double()[:, None] - centres.double()).square().sum(dim=2)


def first_nearest(distances: torch.Tensor) -> torch.Tensor:
    """The first centre that is as near as the nearest, up to rounding."""
    return (distances <= distances.amin(dim=1, keepdim=True) + 1e-12).int().argmax(dim=1)


@st.composite
def labelings(draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Many or few labels, also negative ones: single clusters, singletons, the same partition renamed."""
    number = draw(st.integers(1, 30))
    labels = st.integers(-draw(st.integers(0, 2)), draw(st.integers(0, 30)))
    first, second = (draw(st.lists(labels, min_size=number, max_size=number)) for _ in range(2))
    return torch.tensor(first), torch.tensor(draw(st.sampled_from([second, [-label for label in first]])))


@given(two=labelings())
def test_mutual_information_equals_scikit_learn(two):
    first, second = two
    expected = normalized_mutual_info_score(first.numpy(), second.numpy())
    assert normalised_mutual_information(first, second) == pytest.approx(expected, abs=1e-12)
    if normalised_mutual_information(first, second) < 1:  # there rounding alone makes scikit-learn's differ
        expected = adjusted_mutual_info_score(first.numpy(), second.numpy())
        assert adjusted_mutual_information(first, second) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sizes", [(3, 400), (50, 50), (1, 5)])
def test_mutual_information_equals_scikit_learn_on_large_labelings(sizes):
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randint(size, (3000,), generator=generator) for size in sizes)
    for ours, theirs in (
        (normalised_mutual_information, normalized_mutual_info_score),
        (adjusted_mutual_information, adjusted_mutual_info_score),
    ):
        assert ours(first, second) == pytest.approx(theirs(first.numpy(), second.numpy()), abs=1e-10)
        assert ours(first, first.max() - first) == 1.0


def naive_f1(labels: list[int], clusters: list[int]) -> float:
    pairs = list(combinations(range(len(labels)), 2))
    same_class = {pair for pair in pairs if labels[pair[0]] == labels[pair[1]]}
    same_cluster = {pair for pair in pairs if clusters[pair[0]] == clusters[pair[1]]}
    if not same_class and not same_cluster:
        return 1.0
    both = len(same_class & same_cluster)
    if both == 0:
        return 0.0
    precision, recall = both / len(same_cluster), both / len(same_class)
    return 2 * precision * recall / (precision + recall)


@given(two=labelings())
def test_pairwise_f1_equals_a_loop_over_pairs(two):
    first, second = two
    assert pairwise_f1(first, second) == pytest.approx(naive_f1(first.tolist(), second.tolist()))


def test_f1_of_singletons_is_one_against_singletons_and_zero_against_anything_else():
    assert pairwise_f1(torch.arange(4), torch.arange(4)) == 1.0
    assert pairwise_f1(torch.arange(4), torch.tensor([0, 0, 1, 2])) == 0.0


def test_no_labels_at_all_agree():
    none = torch.zeros(0, dtype=torch.long)
    assert normalised_mutual_information(none, none) == adjusted_mutual_information(none, none) == 1.0
    assert pairwise_f1(none, none) == 1.0


def naive_lloyd(rows: torch.Tensor, centres: torch.Tensor, iterations: int) -> tuple[torch.Tensor, torch.Tensor]:
    """From these centres on, in float64, everything compared with everything."""

    def assign() -> torch.Tensor:
        distances = squared_distances(rows, centres)
        nearest = first_nearest(distances)
        taken = fill_empty(nearest, distances.amin(dim=1), len(centres))
        centres[nearest[taken]] = rows[taken].double()
        return nearest

    nearest, centres = assign(), centres.clone()
    for _ in range(iterations):
        centres = torch.stack([rows[nearest == k].double().mean(dim=0) for k in range(len(centres))])
        before, nearest = nearest, assign()
        if torch.equal(before, nearest):
            break
    return nearest, centres


@pytest.fixture(params=["greedy", "plain"])
def _start(request, monkeypatch):
    monkeypatch.setattr("idml.evaluation.kmeans.GREEDY", 1000 if request.param == "greedy" else 0)


@pytest.mark.usefixtures("_start")
@pytest.mark.parametrize("memory", [200, 1 << 30])
@given(
    number=st.integers(1, 60), share=st.floats(0, 1), iterations=st.sampled_from([1, 2, 50]), seed=st.integers(0, 999)
)
def test_skipping_gives_what_a_plain_lloyd_loop_gives_whatever_the_chunks(memory, number, share, iterations, seed):
    rows, clusters = random(number, 3, seed=seed), max(1, round(share * number))
    fit = _Fit(_Points.of(rows), clusters, memory)
    fit._start(torch.Generator().manual_seed(seed))
    start = fit.centres * fit.points.scale + fit.points.mean
    expected, centres = naive_lloyd(rows, start, iterations)
    found = k_means(rows, clusters, restarts=1, iterations=iterations, seed=seed, memory=memory)
    assert torch.equal(found.assignment, expected)
    assert torch.allclose(found.centres.double(), centres, atol=1e-6)
    inertia = squared_distances(rows, centres).gather(1, expected[:, None]).sum()
    assert found.inertia == pytest.approx(float(inertia), abs=1e-9)


@pytest.mark.parametrize(("number", "clusters"), [(600, 20), (600, 200)])
def test_a_converged_result_is_a_fixed_point(number, clusters):
    rows = random(number, 16)
    found = k_means(rows, clusters, iterations=1000)
    distances = torch.cdist(rows.double(), found.centres.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(found.assignment, distances.argmin(dim=1))
    means = torch.stack([rows[found.assignment == k].mean(dim=0) for k in range(clusters)])
    assert torch.allclose(found.centres, means, atol=1e-6)


@pytest.mark.usefixtures("_start")
@given(distinct=st.integers(1, 6), number=st.integers(1, 40), data=st.data())
def test_no_cluster_is_empty_even_with_fewer_distinct_rows_than_clusters(distinct, number, data):
    rows = random(distinct, 4)[torch.randint(distinct, (number,), generator=torch.Generator().manual_seed(number))]
    clusters = data.draw(st.integers(1, number))
    found = k_means(rows, clusters, restarts=1)
    assert torch.bincount(found.assignment, minlength=clusters).min() >= 1
    if clusters >= len(rows.unique(dim=0)):
        assert found.inertia == pytest.approx(0, abs=1e-12)


def test_equally_near_rows_go_to_the_first_centre():
    rows = torch.tensor([[-1.0], [-1.0], [0.0], [1.0], [1.0]])
    fit = _Fit(_Points.of(rows), 2, 1 << 30)
    fit._place(slice(None), fit.points.exact(torch.tensor([4, 0])))
    fit._assign(torch.arange(2))
    assert fit.nearest.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("clusters", [2, 10, 40])
def test_well_separated_blobs_are_recovered(clusters):
    labels = torch.arange(clusters).repeat(15)
    rows = 20 * torch.nn.functional.normalize(random(clusters, 32))[labels] + 0.1 * random(len(labels), 32, seed=1)
    found = k_means(rows, clusters, restarts=10)
    assert normalised_mutual_information(labels, found.assignment) == 1.0


@pytest.mark.parametrize(("number", "clusters"), [(500, 5), (500, 50), (800, 200)])
def test_inertia_is_about_that_of_scikit_learn(number, clusters):
    rows = random(number, 8)
    inertia = sklearn_k_means(rows.numpy(), clusters, n_init=5, random_state=0)[2]  # pyright: ignore
    assert k_means(rows, clusters, restarts=5).inertia < 1.03 * float(inertia or 0)


def test_the_start_follows_the_distribution_of_k_means_plus_plus(monkeypatch):
    """Four rows, three centres: the chance of each set of centres, from the sequential definition."""
    rows = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    between = squared_distances(rows, rows)
    expected: dict[tuple[int, ...], float] = dict.fromkeys(combinations(range(4), 3), 0.0)
    for first in range(4):
        chance = between[first] / between[first].sum()
        for second in set(range(4)) - {first}:
            left = torch.minimum(between[first], between[second])
            for third in set(range(4)) - {first, second}:
                centres = tuple(sorted((first, second, third)))
                expected[centres] += float(chance[second] * left[third] / left.sum()) / 4
    monkeypatch.setattr("idml.evaluation.kmeans.GREEDY", 0)
    points, generator, draws = _Points.of(rows), torch.Generator().manual_seed(0), 300
    drawn = dict.fromkeys(expected, 0)
    for _ in range(draws):
        fit = _Fit(points, 3, 1 << 30)
        fit._start(generator)
        drawn[tuple(sorted(squared_distances(points.rough, fit.centres).argmin(dim=0).tolist()))] += 1
    for centres, chance in expected.items():
        assert drawn[centres] / draws == pytest.approx(chance, abs=4 * (chance * (1 - chance) / draws) ** 0.5)


def test_the_same_seed_gives_the_same_clusters_and_another_seed_others():
    rows = random(300, 4)
    first, second, other = (k_means(rows, 60, restarts=1, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.assignment, second.assignment)
    assert torch.equal(first.centres, second.centres)
    assert not torch.equal(first.assignment, other.assignment)


@pytest.mark.usefixtures("_start")
def test_memory_does_not_change_the_clusters():
    rows = random(1500, 32)
    little, much = (k_means(rows, 300, restarts=1, memory=memory) for memory in (100_000, 1 << 30))
    assert torch.equal(little.assignment, much.assignment)
    assert torch.equal(little.centres, much.centres)


def test_more_restarts_are_never_worse():
    rows = random(300, 4)
    inertia = [k_means(rows, 30, restarts=restarts).inertia for restarts in (1, 2, 8)]
    assert inertia == sorted(inertia, reverse=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_other_precisions_are_clustered_as_they_are(dtype, shift):
    rows = (random(200, 6) + shift).to(dtype)
    found, wide = (k_means(values, 20) for values in (rows, rows.double()))
    assert torch.equal(found.assignment, wide.assignment)
    assert found.centres.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_rows_does_not_matter(scale):
    rows = random(100, 5).double()
    assert torch.equal(k_means(rows * scale, 9).assignment, k_means(rows, 9).assignment)


def naive_introspective(embedding: Embedding, found: torch.Tensor, distance: Introspective) -> torch.Tensor:
    """Round by round and image by image."""
    assert embedding.uncertainty is not None
    semantic = torch.nn.functional.normalize(embedding.semantic)
    for _ in range(ROUNDS):
        means = [
            Embedding(semantic[found == k].mean(dim=0)[None], embedding.uncertainty[found == k].mean(dim=0)[None])
            for k in range(int(found.max()) + 1)
        ]
        distances = torch.tensor(
            [[distance(embedding[i], mean).item() for mean in means] for i in range(len(embedding))]
        )
        before, found = found, distances.argmin(dim=1)
        fill_empty(found, distances.amin(dim=1), len(means))
        if torch.equal(before, found):
            break
    return found


@pytest.mark.parametrize("introspective", [Introspective(tau=0.5), Introspective(base="cosine", gamma=0.5, tau=1)])
@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_introspective_clusters_equal_a_loop_over_images(introspective, memory):
    embedding = Embedding(random(24, 4), random(24, 3, seed=1))
    start = cluster(embedding, 5)
    found = cluster(embedding, 5, introspective=introspective, memory=memory)
    assert torch.equal(found, naive_introspective(embedding, start, introspective))
    assert not torch.equal(found, start)


def test_certain_images_are_clustered_introspectively_as_plainly():
    embedding = Embedding.certain(random(60, 4))
    assert torch.equal(cluster(embedding, 3, introspective=Introspective()), cluster(embedding, 3))


def test_clusters_depend_on_directions_only():
    rows = random(60, 4)
    stretched = rows * torch.arange(1, 61)[:, None]
    assert torch.equal(cluster(Embedding(rows), 7), cluster(Embedding(stretched), 7))


def test_scores_are_those_of_as_many_clusters_as_classes():
    labels = torch.arange(6).repeat(10)
    embedding = Embedding(random(6, 8)[labels] + 0.5 * random(60, 8, seed=1))
    found = cluster(embedding, 6)
    scores = clustering_scores(embedding, labels)
    assert scores.nmi == normalised_mutual_information(labels, found)
    assert scores.ami == adjusted_mutual_information(labels, found)
    assert scores.f1 == pairwise_f1(labels, found)
    assert 0.5 < scores.ami < scores.nmi < 1


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    rows = torch.ones(3, 2)
    for clusters in (0, 4):
        with pytest.raises(ValueError, match=f"clusters is {clusters}, and there are 3 rows: give 1 to 3"):
            k_means(rows, clusters)
    with pytest.raises(ValueError, match="restarts is 0"):
        k_means(rows, 1, restarts=0)
    with pytest.raises(ValueError, match="rows row 1 holds NaN"):
        k_means(torch.tensor([[1.0], [torch.nan]]), 1)
    with pytest.raises(ValueError, match="semantic row 0 holds NaN"):
        cluster(Embedding(torch.tensor([[torch.inf], [1.0]])), 1)
    with pytest.raises(ValueError, match="2 labels for 3 images"):
        clustering_scores(Embedding(rows), torch.zeros(2).long())
    with pytest.raises(ValueError, match="3 labels and 2 clusters"):
        pairwise_f1(torch.zeros(3).long(), torch.zeros(2).long())
    with pytest.raises(ValueError, match="labels has shape .* and dtype torch.float32"):
        pairwise_f1(torch.zeros(3), torch.zeros(3).long())
