import pytest
import torch

from idml import Embedding, Objective
from idml.distances import Cosine, Euclidean, Introspective
from idml.labels import as_members
from idml.losses import LOSSES
from idml.losses.contrastive import contrastive_loss
from idml.pairs import Pairs, pairs_within
from idml.scales import SCALES, TEACHERS, Compared, Term
from idml.scales import relative as relative_terms

LABELS = torch.arange(12) % 4


def some_embedding(level: float = 1.0, *, seed: int = 0) -> Embedding:
    generator = torch.Generator().manual_seed(seed)
    s, u = (torch.randn(12, size, generator=generator, dtype=torch.float64) for size in (8, 5))
    return Embedding(s.requires_grad_(), (level * u).requires_grad_())


def objective(loss: str, scale: str, *, taught_by: str = "all", **options) -> Objective:
    torch.manual_seed(0)
    distance = Introspective(tau=1.0, **options)
    how = {"distance_scale": scale, "taught_by": taught_by, "miner_options": drawn(loss)}
    return Objective(loss, distance, num_classes=4, dim=8, **how).double()


def drawn(loss: str) -> dict:
    return {"generator": torch.Generator().manual_seed(0)} if loss == "margin" else {}


def gradients(value: torch.Tensor, embedding: Embedding) -> list[torch.Tensor]:
    assert embedding.uncertainty is not None
    sides = [embedding.semantic, embedding.uncertainty]
    return list(torch.autograd.grad(value, sides, allow_unused=True, retain_graph=True))


def compared(embedding: Embedding, distance: Introspective) -> Compared:
    return Compared(distance, embedding, embedding)


def relative(found: Compared) -> torch.Tensor:
    (distance,) = relative_terms([Term(found, pairs_within(LABELS))])
    return distance


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
def test_relative_distances_have_the_mean_of_plain_ones(base):
    found = compared(some_embedding(), Introspective(base, tau=2.0))
    scaled = relative(found)
    plain = Cosine() if base == "cosine" else Euclidean()
    torch.testing.assert_close(found.plain, plain(found.rows, found.columns).detach())
    assert scaled.sum().item() == pytest.approx(float(found.plain.sum()))
    torch.testing.assert_close(scaled, found.distance * found.plain.sum() / found.distance.sum().detach())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", SCALES)
def test_without_uncertainty_every_loss_is_the_plain_one(loss, scale):
    certain = Embedding.certain(some_embedding().semantic)
    plain = Objective(loss, num_classes=4, dim=8, miner_options=drawn(loss)).double()
    ours = objective(loss, scale)
    ours.load_state_dict(plain.state_dict())
    torch.testing.assert_close(ours(certain, LABELS), plain(certain, LABELS))


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
@pytest.mark.parametrize("options", [{}, {"strict": True}, {"pair_uncertainty": "sum_of_norms"}], ids=str)
def test_distances_are_the_same_whatever_else_is_computed_of_their_parts(base, options):
    distance, embedding = Introspective(base, tau=1.0, gamma=0.3, **options), some_embedding()
    found = compared(embedding, distance)
    plain = (Cosine() if base == "cosine" else Euclidean())(embedding, embedding)
    for _ in range(2):
        torch.testing.assert_close(found.distance, distance(embedding, embedding))
        torch.testing.assert_close(found.of_uncertainty, found.distance)
        torch.testing.assert_close(found.plain, plain.detach())
        found = compared(embedding, distance)
        assert found.plain is not None  # the other way round


@pytest.mark.parametrize(("loss", "base"), [("contrastive", "cosine"), ("proxy_anchor", "euclidean")])
@pytest.mark.parametrize("scale", SCALES)
def test_a_base_of_the_distances_own_is_what_it_is_scaled_by(loss, base, scale):
    certain = Embedding.certain(some_embedding().semantic)
    torch.manual_seed(0)
    plain = Objective(loss, Introspective(base), num_classes=4, dim=8).double()
    ours = Objective(loss, Introspective(base), num_classes=4, dim=8, distance_scale=scale).double()
    ours.load_state_dict(plain.state_dict())
    torch.testing.assert_close(ours(certain, LABELS), plain(certain, LABELS))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", SCALES)
def test_gradients_are_finite_also_where_uncertainty_has_swallowed_all(loss, scale):
    for level in (1e-3, 1.0, 1e3):
        embedding = some_embedding(level)
        value = objective(loss, scale)(embedding, LABELS)
        assert torch.isfinite(value)
        for gradient in gradients(value, embedding):
            assert gradient is None or torch.isfinite(gradient).all()


@pytest.mark.parametrize("labels", [torch.zeros(12, dtype=torch.long), torch.arange(12)], ids=["one class", "no pair"])
@pytest.mark.parametrize("scale", SCALES)
def test_a_batch_without_negatives_or_positives_has_a_loss(labels, scale):
    embedding = some_embedding()
    value = Objective("contrastive", Introspective(), distance_scale=scale)(embedding, labels)
    assert torch.isfinite(value)


def test_uncertainty_that_all_pairs_share_is_worth_nothing_where_all_are_equally_far():
    s = torch.eye(6, dtype=torch.float64)  # every pair is at distance √2
    u = torch.full((6, 3), 0.4, dtype=torch.float64, requires_grad=True)
    found = compared(Embedding(s, u), Introspective("euclidean", tau=1.0))
    is_pair = ~torch.eye(6, dtype=torch.bool)
    (of_shrunken,) = torch.autograd.grad(found.distance[is_pair].sum(), u, retain_graph=True)
    (distance,) = relative_terms([Term(found, pairs_within(torch.arange(6) % 2))])
    (of_relative,) = torch.autograd.grad(distance[is_pair].sum(), u)
    torch.testing.assert_close(of_relative, torch.zeros_like(u), rtol=0, atol=1e-12)
    assert of_shrunken.abs().min() > 0.1


def test_gradients_of_uncertainty_are_those_of_the_loss_and_agree_with_finite_differences():
    embedding = some_embedding()
    s, u = embedding.semantic.detach(), embedding.uncertainty
    assert u is not None

    def value(uncertainty: torch.Tensor) -> torch.Tensor:
        found = compared(Embedding(s, uncertainty), Introspective("euclidean", tau=2.0))
        return (relative(found) * torch.arange(144, dtype=torch.float64).reshape(12, 12).sin()).sum()

    assert torch.autograd.gradcheck(value, u)


def test_the_semantic_gradient_is_that_of_the_softened_distance_times_a_constant():
    embedding = some_embedding()
    found = compared(embedding, Introspective("cosine", tau=2.0))
    (ours,) = torch.autograd.grad(relative(found)[0, 4], embedding.semantic, retain_graph=True)
    (softened,) = torch.autograd.grad(found.distance[0, 4], embedding.semantic)
    torch.testing.assert_close(ours, softened * (found.plain.sum() / found.of_uncertainty.sum()).detach())


def test_labels_may_be_sets_or_shares():
    members = as_members(LABELS, 4)
    embedding = some_embedding()
    numbers, sets, shares = (
        objective("multi_similarity", "relative")(embedding, labels) for labels in (LABELS, members, members.double())
    )
    torch.testing.assert_close(numbers, sets)
    torch.testing.assert_close(numbers, shares)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_with_mixed_images_is_the_sum_of_two(loss):
    original, mixed, other = some_embedding(), some_embedding(2.0, seed=1), LABELS.roll(1)
    ours = objective(loss, "shrunken")
    value = ours.with_mixed(original, LABELS, mixed, other, 0.3, weight=0.5)
    ours.miner_options = drawn(loss)
    expected = ours(original, LABELS) + 0.5 * ours(mixed, LABELS, other, 0.3)
    torch.testing.assert_close(value, expected)


def test_the_mean_is_that_of_originals_and_mixed_images_together():
    distance, pairs = Introspective("euclidean", tau=2.0), pairs_within(LABELS)
    others = pairs_within(LABELS.roll(1))
    original, mixed = compared(some_embedding(), distance), compared(some_embedding(3.0, seed=1), distance)
    terms = [Term(original, pairs), Term(mixed, pairs, 0.3), Term(mixed, others, 0.7)]
    scaled = relative_terms(terms)
    ours = sum(term.weight * one.sum().item() for term, one in zip(terms, scaled, strict=True))
    assert ours == pytest.approx(sum(term.weight * term.compared.plain.sum().item() for term in terms))
    clean_share, mixed_share = (
        (one / term.compared.plain.clamp(min=1e-9)).mean().item() for one, term in zip(scaled[:2], terms, strict=False)
    )
    assert mixed_share < clean_share  # the more ambiguous images are nearer than plain ones, the others farther


def centred(found: Compared, labels: torch.Tensor = LABELS) -> torch.Tensor:
    (distance,) = SCALES["centred"]([Term(found, pairs_within(labels))])
    return distance


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
def test_centred_distances_follow_their_formula(base):
    embedding = some_embedding()
    found = compared(embedding, Introspective(base, tau=2.0, gamma=0.3, smoothing=0.1))
    s, u = torch.nn.functional.normalize(embedding.semantic.detach()), embedding.uncertainty
    assert u is not None
    beta = torch.zeros(12, 12, dtype=torch.float64)
    for a in range(12):
        for b in range(12):
            beta[a, b] = ((u[a] + u[b]).square().sum() + 0.01).sqrt() - 0.1
    is_pair = ~torch.eye(12, dtype=torch.bool)
    mean, alpha = beta[is_pair].mean(), torch.cdist(s, s)
    plain = alpha.square() / 2 if base == "cosine" else alpha
    of_gamma = torch.exp(-0.3 / (2.0 * alpha))
    expected = plain * of_gamma * torch.exp(-(beta - mean) / (2.0 * alpha + mean))
    torch.testing.assert_close(centred(found)[is_pair], expected[is_pair])
    assert (centred(found) <= torch.e * found.plain + 1e-12).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gamma", [0.0, 0.2])
def test_uncertainty_that_all_images_share_leaves_centred_losses_to_gamma_and_learns_nothing(loss, gamma):
    s = some_embedding().semantic
    u = torch.full((12, 4), 0.6, dtype=torch.float64, requires_grad=True)
    ours = objective(loss, "centred", pair_uncertainty="sum_of_norms", gamma=gamma)
    value = ours(Embedding(s, u), LABELS)
    if gamma:
        certain, images = objective(loss, "shrunken", gamma=gamma), Embedding.certain(s)
    else:
        certain, images = Objective(loss, num_classes=4, dim=8, miner_options=drawn(loss)).double(), Embedding(s)
    certain.load_state_dict(ours.state_dict())
    torch.testing.assert_close(value, certain(images, LABELS))
    (gradient,) = torch.autograd.grad(value, u)
    torch.testing.assert_close(gradient.sum(dim=0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("base", ["euclidean", "cosine"])
@pytest.mark.parametrize("gamma", [0.0, 0.4])
def test_gradients_of_centred_distances_are_those_of_the_formula_with_a_constant_below_the_line(base, gamma):
    embedding, distance = some_embedding(), Introspective(base, tau=2.0, smoothing=0.1, gamma=gamma)
    s, u = embedding.semantic, embedding.uncertainty
    assert u is not None
    is_pair = ~torch.eye(12, dtype=torch.bool)
    shown = torch.arange(144, dtype=torch.float64).reshape(12, 12).sin() * is_pair
    constant = distance.parts(embedding, embedding).doubt[is_pair].mean().item() - gamma

    def by_formula(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        beta = ((u[:, None] + u).square().sum(dim=2) + 0.01).sqrt() - 0.1
        squares = (2 - 2 * torch.nn.functional.normalize(s) @ torch.nn.functional.normalize(s).T).clamp(min=1e-12)
        plain = squares / 2 if base == "cosine" else squares.sqrt()
        weight = torch.exp((beta[is_pair].mean() - beta) / (2.0 * squares.sqrt() + constant))
        weight = weight * torch.exp(-gamma / (2.0 * squares.sqrt()))
        return (plain * weight * shown).sum()

    ours = gradients((centred(compared(embedding, distance)) * shown).sum(), embedding)
    for one, other in zip(ours, torch.autograd.grad(by_formula(s, u), [s, u]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    assert torch.autograd.gradcheck(by_formula, (s, u))


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_gained_by_adding_to_all_uncertainties(loss):
    """Levels differ, and are the numbers u themselves: what is added to all has the sum of their gradients."""
    levels = torch.linspace(0.2, 1.5, 12, dtype=torch.float64)[:, None].requires_grad_()
    sums = {}
    for scale in ("relative", "centred"):
        value = objective(loss, scale, pair_uncertainty="sum_of_norms")(
            Embedding(some_embedding().semantic, levels), LABELS
        )
        (gradient,) = torch.autograd.grad(value, levels)
        sums[scale] = float(gradient.sum().abs())
        assert gradient.abs().max() > 1e-4
    assert sums["centred"] < 1e-9
    assert sums["relative"] > 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_centred_losses_are_finite_where_uncertainty_is_all_but_nothing(loss):
    embedding = Embedding(
        some_embedding().semantic.detach().float().requires_grad_(), torch.full((12, 5), 1e-22).requires_grad_()
    )
    value = objective(loss, "centred", smoothing=0.1).float()(embedding, LABELS)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(value, embedding) if gradient is not None)


def test_the_mean_uncertainty_weighs_terms_as_the_loss_does():
    distance, pairs = Introspective("euclidean", tau=2.0), pairs_within(LABELS)
    others = pairs_within(LABELS.roll(1))
    original, mixed = compared(some_embedding(), distance), compared(some_embedding(3.0, seed=1), distance)
    terms = [Term(original, pairs), Term(mixed, pairs, 0.1), Term(mixed, others, torch.tensor(0.4))]
    is_pair = ~torch.eye(12, dtype=torch.bool)
    clean, of_mixed = (found.doubt[is_pair].mean() for found in (original, mixed))
    mean = (clean + 0.5 * of_mixed) / 1.5
    for found, term in zip(SCALES["centred"](terms), terms, strict=True):
        torch.testing.assert_close(found, term.compared.centred(mean))


@pytest.mark.parametrize("variant", [{"strict": True}, {"ambiguous": "dissimilar"}], ids=str)
def test_variants_that_do_not_soften_have_no_centre(variant):
    distance, embedding = Introspective("cosine", **variant), some_embedding()
    with pytest.raises(ValueError, match="distance_scale='centred' is defined for the 'similar', not strict, distance"):
        Objective("multi_similarity", distance, distance_scale="centred")
    with pytest.raises(ValueError, match="about_mean is defined for the 'similar', not strict, distance"):
        compared(embedding, distance).centred(torch.tensor(1.0))


def test_an_unknown_scale_is_named():
    with pytest.raises(ValueError, match="unknown distance_scale 'relativ': did you mean 'relative'"):
        Objective("contrastive", Introspective(), distance_scale="relativ")


def test_a_plain_distance_has_no_scale_to_bring_back():
    embedding = some_embedding()
    values = [Objective("contrastive", distance_scale=scale)(embedding, LABELS) for scale in ("shrunken", "relative")]
    assert values[0] == values[1]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("loss", LOSSES)
def test_who_teaches_uncertainty_changes_neither_the_loss_nor_what_semantics_learn(loss, scale):
    embedding, values = some_embedding(), {}
    for teacher in TEACHERS:
        value = objective(loss, scale, taught_by=teacher)(embedding, LABELS)
        values[teacher] = (value, gradients(value, embedding)[0])
    for one, other in zip(values["all"], values["positives"], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scale", SCALES)
def test_taught_by_positives_uncertainty_learns_what_a_loss_without_negatives_teaches(scale):
    embedding, distance = some_embedding(0.3), Introspective("euclidean", tau=2.0, smoothing=0.1)
    term = Term(compared(embedding, distance), pairs_within(LABELS))
    ours = Objective("contrastive", distance, distance_scale=scale, taught_by="positives", negative_margin=1.0)
    (scaled,) = SCALES[scale]([term])
    of_positives = contrastive_loss(scaled, Pairs(term.pairs.positive, torch.zeros_like(term.pairs.negative)))
    taught, expected = (gradients(value, embedding)[1] for value in (ours(embedding, LABELS), of_positives))
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(taught, expected)
    of_all = gradients(
        Objective("contrastive", distance, distance_scale=scale, negative_margin=1.0)(embedding, LABELS), embedding
    )[1]
    assert not torch.allclose(taught, of_all)


def test_an_image_without_positives_is_taught_nothing_by_them():
    embedding, labels = some_embedding(), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6])
    value = objective("contrastive", "shrunken", taught_by="positives")(embedding, labels)
    taught = gradients(value, embedding)[1].norm(dim=1)
    assert (taught[:10] > 0).all()
    assert (taught[10:] == 0).all()


def test_positives_that_are_far_apart_teach_more_uncertainty_than_near_ones():
    """Two classes, one of which is spread wider: its images become more uncertain, the others less."""
    angles = torch.tensor([0.0, 0.2, 0.4, 2.0, 3.0, 4.0], dtype=torch.float64)
    u = torch.ones(6, 1, dtype=torch.float64, requires_grad=True)
    embedding = Embedding(torch.stack([angles.cos(), angles.sin()], dim=1), u)
    ours = objective("contrastive", "centred", taught_by="positives", pair_uncertainty="sum_of_norms")
    ours(embedding, torch.tensor([0, 0, 0, 1, 1, 1])).backward()
    assert u.grad is not None
    assert (u.grad[:3] > 0).all()
    assert (u.grad[3:] < 0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_positives_teach_nothing_to_all_images_in_common_where_distances_are_centred(loss):
    levels = torch.linspace(0.2, 1.5, 12, dtype=torch.float64)[:, None].requires_grad_()
    ours = objective(loss, "centred", taught_by="positives", pair_uncertainty="sum_of_norms")
    (gradient,) = torch.autograd.grad(ours(Embedding(some_embedding().semantic, levels), LABELS), levels)
    assert gradient.abs().max() > 1e-5
    assert gradient.sum().abs() < 1e-9


def test_an_unknown_teacher_is_named():
    with pytest.raises(ValueError, match="unknown taught_by 'positive': did you mean 'positives'"):
        Objective("contrastive", Introspective(), taught_by="positive")


@pytest.mark.parametrize("scale", SCALES)
def test_a_pair_that_is_both_teaches_if_it_is_more_positive_than_negative(scale):
    own = torch.eye(4, dtype=torch.float64)[LABELS]
    pairs, embedding = pairs_within(0.8 * own + 0.2 * own.roll(1, dims=1)), some_embedding(0.3)
    assert embedding.uncertainty is not None
    term = Term(compared(embedding, Introspective("euclidean", tau=2.0)), pairs)
    by_all, by_positives = (teach([term], SCALES[scale])[0] for teach in TEACHERS.values())
    torch.testing.assert_close(by_positives, by_all)
    kinds = {"more positive": (0, 4), "both, more negative": (0, 1), "negative": (0, 2)}
    assert [round(float(pairs.positive[place]), 2) for place in kinds.values()] == [0.68, 0.16, 0.0]
    for kind, place in kinds.items():
        taught, full = (
            gradients(by[place] + 0 * embedding.uncertainty.sum(), embedding)[1] for by in (by_positives, by_all)
        )
        torch.testing.assert_close(taught, full if kind == "more positive" else torch.zeros_like(full))


def test_proxies_that_are_uncertain_are_taught_by_positives_too():
    torch.manual_seed(0)
    ours = Objective(
        "softmax", Introspective(tau=1.0), 4, 8, 5, learn_proxy_uncertainty=True, taught_by="positives"
    ).double()
    assert ours.proxies is not None
    assert ours.proxies.uncertainty is not None
    with torch.no_grad():
        for parameter in ours.proxies.parameters():
            parameter.uniform_(0.1, 1)
    only_two = LABELS % 2  # classes 2 and 3 have no images
    (gradient,) = torch.autograd.grad(ours(some_embedding(), only_two), [ours.proxies.uncertainty])
    taught = gradient.norm(dim=1)
    assert (taught[:2] > 0).all()
    assert (taught[2:] == 0).all()


@pytest.mark.parametrize("loss", ["multi_similarity", "proxy_anchor"])
def test_positives_teach_in_the_same_way_where_images_are_mixed(loss):
    """Shares of 1 mix nothing: the loss is that of both batches, and so is what it teaches."""
    original, other = some_embedding(), some_embedding(2.0, seed=1)
    ours = objective(loss, "shrunken", taught_by="positives")
    together = ours.with_mixed(original, LABELS, other, LABELS.roll(1), 1.0)
    apart = ours(original, LABELS) + ours(other, LABELS)
    torch.testing.assert_close(together, apart)
    for embedding in (original, other):
        for one, two in zip(gradients(together, embedding), gradients(apart, embedding), strict=True):
            torch.testing.assert_close(one, two)
    by_all = objective(loss, "shrunken").with_mixed(original, LABELS, other, LABELS.roll(1), 1.0)
    assert not torch.allclose(gradients(by_all, other)[1], gradients(together, other)[1])


def test_a_plain_distance_teaches_nobody():
    assert Objective("contrastive", taught_by="positives").taught_by == "all"
