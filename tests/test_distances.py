import warnings

import naive
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import embeddings, random_embedding

from idml import Embedding
from idml.distances import Cosine, Euclidean, Introspective
from idml.numerics.pairwise import half_squared_sums

VARIANTS = [
    {"base": base, "pair_uncertainty": pair_uncertainty, "gamma": gamma, "smoothing": smoothing, "tau": 2.0} | kind
    for base in ("euclidean", "cosine")
    for pair_uncertainty in ("norm_of_sum", "sum_of_norms")
    for gamma in (0.0, 0.7)
    for smoothing in (0.0, 1.0)
    for kind in ({}, {"strict": True}, {"ambiguous": "dissimilar"})
    if not (kind.get("ambiguous") and base == "euclidean")
]
DIFFERENTIABLE = [variant for variant in VARIANTS if not variant.get("strict")]


def name(variant: dict) -> str:
    return "-".join(str(value) for value in variant.values())


def leaves(embedding: Embedding) -> tuple[torch.Tensor, torch.Tensor]:
    assert embedding.uncertainty is not None
    return embedding.semantic.clone().requires_grad_(), embedding.uncertainty.clone().requires_grad_()


@pytest.mark.parametrize("variant", VARIANTS, ids=name)
@given(pair=embeddings())
def test_introspective_equals_the_formula_in_a_loop(variant, pair):
    a, b = pair
    ours = Introspective(**variant)(a, b)
    loop = naive.introspective(a.semantic, b.semantic, a.uncertainty, b.uncertainty, **variant)
    if variant.get("strict"):  # at the edge α = β + γ rounding decides
        ours, loop = ours[(ours > 0) == (loop > 0)], loop[(ours > 0) == (loop > 0)]
    torch.testing.assert_close(ours, loop, rtol=1e-7, atol=2e-7)


@given(pair=embeddings())
def test_plain_distances_equal_the_formula_in_a_loop(pair):
    a, b = pair
    zero = torch.zeros(max(len(a), len(b)), 1, dtype=torch.float64)
    for base, distance in (("euclidean", Euclidean()), ("cosine", Cosine())):
        loop = naive.introspective(a.semantic, b.semantic, zero, zero, base=base)
        torch.testing.assert_close(distance(a, b), loop, rtol=1e-7, atol=2e-7)


@pytest.mark.parametrize("variant", DIFFERENTIABLE, ids=name)
@pytest.mark.parametrize("same", [False, True], ids=["two sets", "one set"])
def test_first_and_second_derivatives_equal_finite_differences(variant, same):
    distance = Introspective(**variant)
    a, b = random_embedding(4, 3, 3, seed=1), random_embedding(3, 3, 3, seed=2)

    def compare(s_a, u_a, s_b, u_b):
        if same:
            one = Embedding(s_a, u_a)
            off_diagonal = ~torch.eye(4, dtype=torch.bool)
            return distance(one, one)[off_diagonal]
        return distance(Embedding(s_a, u_a), Embedding(s_b, u_b))

    inputs = (*leaves(a), *leaves(b))
    assert torch.autograd.gradcheck(compare, inputs)
    assert torch.autograd.gradgradcheck(compare, inputs)


@pytest.mark.parametrize("variant", DIFFERENTIABLE, ids=name)
@pytest.mark.parametrize("same", [False, True], ids=["two sets", "one set"])
def test_gradients_of_few_pairs_are_those_of_a_full_sweep(variant, same, monkeypatch):
    """In a large matrix, pairs without gradient are passed over; and values are computed in blocks."""
    distance = Introspective(**variant)
    a, b = random_embedding(40, 5, 3, seed=1), random_embedding(30, 5, 3, seed=2)
    a.semantic[1] = a.semantic[0]
    upstream = torch.rand(40, 40 if same else 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    upstream[upstream < 0.95] = 0
    results = []
    for small, few, block in ((1 << 30, 0.0, 1 << 30), (0, 1.0, 100), (0, 0.0, 100)):
        monkeypatch.setattr("idml.numerics.blocks.SMALL", small)
        monkeypatch.setattr("idml.numerics.blocks.BLOCK", block)
        for module in ("products", "softening"):
            monkeypatch.setattr(f"idml.numerics.{module}.FEW_GRADIENTS", few)
        inputs = (*leaves(a), *leaves(b))
        one = Embedding(inputs[0], inputs[1])
        value = distance(one, one if same else Embedding(inputs[2], inputs[3]))
        grads = torch.autograd.grad(value, inputs, upstream, allow_unused=True)
        results.append([value, *(grad for grad in grads if grad is not None)])
    for swept, gathered, in_blocks in zip(*results, strict=True):
        torch.testing.assert_close(swept, gathered)
        torch.testing.assert_close(swept, in_blocks)


@pytest.mark.parametrize("distance", [Euclidean(), Cosine()])
def test_plain_derivatives_equal_finite_differences(distance):
    s_a, _ = leaves(random_embedding(4, 3, 1, seed=1))
    s_b, _ = leaves(random_embedding(3, 3, 1, seed=2))

    def compare(x, y):
        return distance(Embedding(x), Embedding(y))

    assert torch.autograd.gradcheck(compare, (s_a, s_b))
    assert torch.autograd.gradgradcheck(compare, (s_a, s_b))


@pytest.mark.parametrize("variant", VARIANTS, ids=name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@given(data=st.data())
def test_values_and_gradients_are_finite_everywhere(variant, dtype, data):
    a, b = data.draw(embeddings(dtype=dtype))
    s_a, u_a = leaves(a)
    s_b, u_b = leaves(b)
    one, two = Embedding(s_a, u_a), Embedding(s_b, u_b)
    for left, right in ((one, two), (one, one)):
        value = Introspective(**variant)(left, right)
        assert value.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
        assert torch.isfinite(value).all()
        if value.requires_grad:
            for grad in torch.autograd.grad(value.sum(), (s_a, u_a, s_b, u_b), allow_unused=True):
                assert grad is None or torch.isfinite(grad).all()


@pytest.mark.parametrize("variant", DIFFERENTIABLE, ids=name)
def test_second_derivatives_are_finite_on_duplicates_and_opposite_uncertainties(variant):
    a = random_embedding(4, 3, 3, seed=3)
    assert a.uncertainty is not None
    a.semantic[1], a.uncertainty[2], a.semantic[3] = a.semantic[0], -a.uncertainty[0], 0
    s, u = leaves(a)
    one = Embedding(s, u)
    first = torch.autograd.grad(Introspective(**variant)(one, one).sum(), (s, u), create_graph=True)
    second = torch.autograd.grad(torch.stack([grad.square().sum() for grad in first]).sum(), (s, u))
    assert all(torch.isfinite(grad).all() for grad in second)


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
@given(pair=embeddings(dtype=torch.float32))
def test_without_uncertainty_it_is_the_plain_distance_to_the_last_digit(base, pair):
    a, b = (Embedding(side.semantic, torch.zeros(len(side), 2)) for side in pair)
    plain = Euclidean() if base == "euclidean" else Cosine()
    certain = Embedding.certain(b.semantic)
    for other in (a, b, certain):
        assert torch.equal(Introspective(base=base)(a, other), plain(a, other))


def test_the_distance_of_an_image_to_itself_is_zero_with_zero_gradient():
    s, u = leaves(random_embedding(5, 8, 8, seed=0, dtype=torch.float32))
    one = Embedding(s, u)
    for distance in (Euclidean(), Cosine(), Introspective(), Introspective(base="cosine")):
        diagonal = distance(one, one).diagonal()
        assert torch.equal(diagonal, torch.zeros(5))
        for grad in torch.autograd.grad(diagonal.sum(), (s, u), allow_unused=True):
            assert grad is None or grad.abs().max() < 1e-6


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_near_duplicates_keep_their_distance_in_float32(gap):
    """A bare matrix product is off by up to 1e-3 for these."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(50, 512, generator=generator, dtype=torch.float64))
    moved = rows + gap * torch.nn.functional.normalize(torch.randn(50, 512, generator=generator, dtype=torch.float64))
    a, b = rows.float(), moved.float()
    truth = (torch.nn.functional.normalize(a.double()) - torch.nn.functional.normalize(b.double())).norm(dim=1)
    ours = Euclidean()(Embedding(a), Embedding(b)).diagonal().double()
    assert ((ours - truth).abs() < 1e-6 + 1e-3 * truth).all()


def nudged_rows(dim: int, gap: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(6, dim, generator=generator, dtype=torch.float64))
    nudge = torch.nn.functional.normalize(torch.randn(6, dim, generator=generator, dtype=torch.float64))
    return rows.to(dtype), (rows + gap * nudge).to(dtype)


@pytest.mark.parametrize("same", [False, True], ids=["two sets", "one set"])
@pytest.mark.parametrize("dim", [3, 128])
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_gradients_of_near_duplicates_keep_their_digits_in_float32(dim, gap, same):
    """A product would divide its rounding by the distance: gradients of 16,384 instead of 1 were seen."""
    a, b = nudged_rows(dim, gap, torch.float32)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x, y = a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_()
        if same:
            both = Embedding(torch.cat([x, y]))
            value = Euclidean()(both, both)[:6, 6:].diagonal().sum()
        else:
            value = Euclidean()(Embedding(x), Embedding(y)).diagonal().sum()
        gradients.append(torch.cat(torch.autograd.grad(value, (x, y))))
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=0, atol=2e-3)


def test_gradients_of_nearly_opposite_uncertainties_keep_their_digits_in_float32():
    a, b = nudged_rows(64, 1e-5, torch.float32)
    semantic = random_embedding(6, 4, 1, seed=0, dtype=torch.float32).semantic
    other = random_embedding(6, 4, 1, seed=1, dtype=torch.float32).semantic
    gradients = []
    for dtype in (torch.float32, torch.float64):
        u, v = (30 * a).to(dtype).requires_grad_(), (-30 * b).to(dtype).requires_grad_()
        value = Introspective(tau=1.0)(Embedding(semantic.to(dtype), u), Embedding(other.to(dtype), v)).diagonal().sum()
        gradients.append(torch.cat(torch.autograd.grad(value, (u, v))))
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=0, atol=2e-2)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9])
def test_float64_keeps_small_distances_in_a_collapsed_batch(gap):
    generator = torch.Generator().manual_seed(0)
    rows = torch.ones(64, 8, dtype=torch.float64) + gap * torch.randn(64, 8, generator=generator, dtype=torch.float64)
    unit = torch.nn.functional.normalize(rows)
    truth = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(Euclidean()(Embedding(rows), Embedding(rows.clone())), truth, rtol=1e-4, atol=1e-15)


def test_the_gradients_of_a_collapsed_batch_are_right_too():
    generator = torch.Generator().manual_seed(0)
    rows = torch.ones(200, 16) + 1e-3 * torch.randn(200, 16, generator=generator)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x = rows.to(dtype).clone().requires_grad_()
        upstream = torch.rand(200, 200, generator=torch.Generator().manual_seed(1)).to(dtype)
        gradients.append(*torch.autograd.grad(Euclidean()(Embedding(x), Embedding(rows.to(dtype))), x, upstream))
    torch.testing.assert_close(
        gradients[0].double(), gradients[1], rtol=1e-2, atol=1e-2 * float(gradients[1].abs().max())
    )


@pytest.mark.parametrize("variant", DIFFERENTIABLE, ids=name)
@pytest.mark.parametrize("gap", [1e-10, 1e-20, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_and_second_derivatives_are_finite_at_a_tiny_distance(variant, gap, dtype):
    s = torch.tensor([[1.0, 0.0], [1.0, gap]], dtype=dtype, requires_grad=True)
    u = torch.ones(2, 1, dtype=dtype, requires_grad=True)
    one = Embedding(s, u)
    value = Introspective(**variant)(one, one).sum()
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(value, (s, u), retain_graph=True))
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(value, (s, u), create_graph=True))


@pytest.mark.parametrize("variant", DIFFERENTIABLE, ids=name)
@pytest.mark.parametrize("learned", ["s", "u", "other s", "other u"])
def test_second_derivatives_are_there_when_only_one_input_is_learned(variant, learned):
    a, b = random_embedding(3, 3, 2, seed=1), random_embedding(4, 3, 2, seed=2)
    inputs = {"s": a.semantic, "u": a.uncertainty, "other s": b.semantic, "other u": b.uncertainty}

    def compare(value):
        rows = inputs | {learned: value}
        return Introspective(**variant)(Embedding(rows["s"], rows["u"]), Embedding(rows["other s"], rows["other u"]))  # pyright: ignore[reportArgumentType]

    leaf = inputs[learned]
    assert leaf is not None
    assert torch.autograd.gradgradcheck(compare, (leaf.clone().requires_grad_(),))


def test_opposite_huge_uncertainties_cancel_in_float32():
    u = 1e4 * torch.nn.functional.normalize(torch.randn(6, 512, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(half_squared_sums(u, -u).diagonal(), torch.zeros(6))


def test_a_collapsed_batch_is_compared_exactly_too():
    """So many close pairs that recomputing each would take long: the product runs in float64."""
    rows = torch.ones(200, 16) + 1e-4 * torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(rows.double())
    truth = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
    ours = Euclidean()(Embedding(rows), Embedding(rows.clone()))
    torch.testing.assert_close(ours.double(), truth, rtol=1e-2, atol=3e-7)


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
@given(pair=embeddings(), gamma=st.floats(0, 3), tau=st.floats(0.5, 10))
def test_autograd_equals_the_papers_gradient_weight(base, pair, gamma, tau):
    """∂D_IN/∂α = e^{−x}(1 + x), checked by scaling: D(α) along a path of fixed β."""
    a, b = pair
    distance = Introspective(base=base, gamma=gamma, tau=tau)
    relative = distance.relative_uncertainty(a, b)
    weight = distance.gradient_weight(a, b)
    plain_a = a.semantic.clone().requires_grad_()
    plain = (Euclidean() if base == "euclidean" else Cosine())(Embedding(plain_a), b)
    soft = distance(Embedding(plain_a, a.uncertainty), b)
    for i in range(len(a)):
        for j in range(len(b)):
            if torch.isinf(relative[i, j]) or plain[i, j] < 1e-6:
                continue
            (slope,) = torch.autograd.grad(soft[i, j], plain_a, retain_graph=True)
            (plain_slope,) = torch.autograd.grad(plain[i, j], plain_a, retain_graph=True)
            torch.testing.assert_close(slope, plain_slope * weight[i, j], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
def test_gradient_weight_falls_from_one_to_zero_with_relative_uncertainty(base):
    levels = torch.cat([torch.zeros(1), torch.logspace(-3, 5, 60)]).double()
    a = Embedding(torch.tensor([[1.0, 0.0]]).double().expand(61, 2), levels[:, None])
    b = Embedding.certain(torch.tensor([[0.0, 1.0]]).double())
    distance = Introspective(base=base)
    weight = distance.gradient_weight(a, b)[:, 0]
    assert (distance.relative_uncertainty(a, b)[:, 0].diff() > 0).all()
    assert weight[0] == 1
    assert weight[-1] == 0
    assert (weight.diff() <= 0).all()
    assert (weight[1:40].diff() < 0).all()


def test_relative_uncertainty_of_identical_images():
    a = Embedding(torch.ones(2, 2), torch.tensor([[1.0], [0.0]]))
    relative = Introspective().relative_uncertainty(a, a)
    assert relative.tolist() == [[torch.inf, torch.inf], [torch.inf, 0.0]]
    assert Introspective().gradient_weight(a, a).tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_dissimilar_puts_identical_ambiguous_images_at_distance_one():
    a = Embedding(torch.ones(2, 2), torch.tensor([[1.0], [0.0]]))
    value = Introspective(base="cosine", ambiguous="dissimilar")(a, a)
    assert value.tolist() == [[1.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("variant", VARIANTS, ids=name)
def test_distances_of_rows_are_the_diagonal(variant):
    a, b = random_embedding(5, 3, 2, seed=1), random_embedding(5, 3, 2, seed=2)
    a.semantic[1] = 0
    b.semantic[2] = a.semantic[2]
    distance = Introspective(**variant)
    torch.testing.assert_close(distance.of_rows(a, b), distance(a, b).diagonal())
    u = a.uncertainty.clone().requires_grad_()  # pyright: ignore[reportOptionalMemberAccess]
    one = Embedding(a.semantic, u)
    rows, matrix = distance.of_rows(one, b), distance(one, b).diagonal()
    if rows.requires_grad:
        for create_graph in (False, True):
            here, there = (
                torch.autograd.grad(value.sum(), u, create_graph=create_graph, retain_graph=True)[0]
                for value in (rows, matrix)
            )
            torch.testing.assert_close(here, there)


@pytest.mark.usefixtures("as_installed")
def test_rows_are_checked_like_matrices():
    good, bad = random_embedding(2, 3, 2, seed=1), random_embedding(2, 3, 2, seed=1)
    bad.semantic[1, 0] = float("nan")
    with pytest.raises(ValueError, match="semantic row 1 holds NaN"):
        Introspective().of_rows(good, bad)
    with pytest.raises(ValueError, match="3 and 1 dimensions"):
        Introspective().of_rows(good, random_embedding(2, 1, 2, seed=1))
    with pytest.raises(ValueError, match="2 images beside 3"):
        Introspective().of_rows(good, random_embedding(3, 3, 2, seed=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_does_not_reach_the_distance(dtype):
    a, b = random_embedding(6, 32, 8, seed=1), random_embedding(7, 32, 8, seed=2)
    expected = {}
    for enabled in (False, True):
        s, u = a.semantic.float().requires_grad_(), a.uncertainty.float().requires_grad_()  # pyright: ignore[reportOptionalMemberAccess]
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            value = Introspective()(Embedding(s, u), Embedding(b.semantic.float(), b.uncertainty.float()))  # pyright: ignore[reportOptionalMemberAccess]
            value.sum().backward()
        expected[enabled] = (value, s.grad, u.grad)
    for without, within in zip(expected[False], expected[True], strict=True):
        assert torch.equal(without, within)


def test_the_backward_pass_keeps_two_matrices_of_pairs():
    n, m = 40, 30
    kept = set()
    a, b = random_embedding(n, 4, 4, seed=1), random_embedding(m, 4, 4, seed=2)
    (s, u), (t, v) = leaves(a), leaves(b)

    def remember(tensor):
        if tensor.shape == (n, m):
            kept.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        Introspective(gamma=0.0)(Embedding(s, u), Embedding(t, v))
    assert len(kept) == 2


def test_certain_proxies_cost_no_second_product(monkeypatch):
    a = random_embedding(4, 3, 5, seed=0)
    proxies = Embedding.certain(random_embedding(3, 3, 1, seed=1).semantic)
    zeros = Embedding(proxies.semantic, torch.zeros(3, 5, dtype=torch.float64))
    expected, transposed = Introspective()(a, zeros), Introspective()(zeros, a)
    monkeypatch.setattr("idml.distances.half_squared_sums", lambda *_: pytest.fail("a product of uncertainties"))
    torch.testing.assert_close(Introspective()(a, proxies), expected)
    torch.testing.assert_close(Introspective()(proxies, a), transposed)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "cosin"}, "unknown base 'cosin': did you mean 'cosine'"),
        ({"pair_uncertainty": "sum"}, "unknown pair_uncertainty 'sum'"),
        ({"ambiguous": "disimilar"}, "did you mean 'dissimilar'"),
        ({"tua": 1.0}, "unknown option of Introspective 'tua': did you mean 'tau'"),
        ({"tau": 0.0}, "tau is 0.0: give a number above 0"),
        ({"tau": float("nan")}, "tau is nan"),
        ({"tau": "5"}, "tau is '5'"),
        ({"gamma": -1.0}, "gamma is -1.0: give 0 or more"),
        ({"smoothing": -0.5}, "smoothing is -0.5"),
        ({"ambiguous": "dissimilar", "base": "euclidean"}, "use base='cosine'"),
        ({"ambiguous": "dissimilar", "base": "cosine", "strict": True}, "has no strict form"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Introspective(**options)


@pytest.mark.usefixtures("as_installed")
def test_dissimilar_on_its_own_needs_the_cosine_base():
    a = random_embedding(2, 2, 2, seed=0)
    with pytest.raises(ValueError, match="base='cosine'"):
        Introspective(ambiguous="dissimilar")(a, a)


@pytest.mark.parametrize("options", [{"base": "cosine", "ambiguous": "dissimilar"}, {"strict": True}])
def test_dissimilar_and_strict_have_no_gradient_weight(options):
    a = random_embedding(2, 2, 2, seed=0)
    with pytest.raises(ValueError, match="gradient_weight is defined for"):
        Introspective(**options).gradient_weight(a, a)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("part", ["semantic", "uncertainty"])
def test_embeddings_that_are_not_finite_are_named_by_row(bad, part):
    a, good = random_embedding(3, 2, 2, seed=0), random_embedding(3, 2, 2, seed=1)
    getattr(a, part)[1, 0] = bad
    for pair in ((a, good), (good, a), (a, a)):
        with pytest.raises(ValueError, match=f"{part} row 1 holds NaN or infinity"):
            Introspective()(*pair)


def test_a_row_whose_square_overflows_is_named():
    a = Embedding(torch.tensor([[1.0, 0.0], [1e30, 0.0]]))
    with pytest.raises(ValueError, match="row 1 is too long"):
        Euclidean()(a, a)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (Embedding(torch.ones(2, 3)), Embedding(torch.ones(2, 4)), "3 and 4 dimensions"),
        (Embedding(torch.ones(2, 3)), Embedding(torch.ones(2, 3)), "the first embedding has no uncertainty"),
        (Embedding.certain(torch.ones(2, 3)), Embedding(torch.ones(2, 3)), "the second embedding has no uncertainty"),
        (Embedding(torch.ones(2, 3), torch.ones(2, 2)), Embedding(torch.ones(2, 3), torch.ones(2, 5)), "2 and 5"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        Introspective()(a, b)


def test_an_empty_batch_gives_an_empty_matrix():
    nobody, some = random_embedding(0, 3, 3, seed=0), random_embedding(2, 3, 3, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Introspective()(nobody, some).shape == (0, 2)
        assert Cosine()(some, nobody).shape == (2, 0)
