import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from idml.data.mixing import Mixing, cutmix, draw_mixing, manifold_mixup, mixup, remix
from idml.labels import as_members


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 6, size: int = 8) -> Tensor:
    return torch.rand(n, 3, size, size, generator=generator(1), dtype=torch.float64)


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_mixup_equals_the_formula_in_a_loop(per_image, seed):
    batch = images()
    mixed, mixing = mixup(batch, per_image=per_image, generator=generator(seed))
    for i, own in enumerate(batch):
        share = float(mixing.share[i])
        torch.testing.assert_close(mixed[i], share * own + (1 - share) * batch[mixing.partner[i]], rtol=0, atol=1e-6)
    assert sorted(mixing.partner.tolist()) == list(range(len(batch)))
    assert (len(set(mixing.share.tolist())) > 1) == per_image


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_cutmix_pastes_a_rectangle_and_tells_its_true_share(per_image, seed):
    batch = torch.arange(1.0, 7.0)[:, None, None, None].expand(6, 3, 16, 12).contiguous()
    mixed, mixing = cutmix(batch, per_image=per_image, generator=generator(seed))
    for i in range(6):
        is_own = mixed[i, 0] == batch[i, 0, 0, 0]
        is_pasted = ~is_own
        if mixing.partner[i] != i:
            assert (mixed[i, 0][is_pasted] == batch[mixing.partner[i], 0, 0, 0]).all()
            assert is_own.double().mean() == pytest.approx(float(mixing.share[i]))
            rows, columns = is_pasted.any(dim=1), is_pasted.any(dim=0)
            assert torch.equal(is_pasted, rows[:, None] & columns[None, :])
    assert (len(set(mixing.share.tolist())) > 1) == per_image


@given(seed=st.integers(0, 1000), concentration=st.sampled_from([0.2, 1.0, 5.0]))
def test_labels_of_mixed_images_follow_the_definitions(seed, concentration):
    labels = torch.randint(4, (7,), generator=generator(seed))
    mixing = draw_mixing(7, concentration=concentration, per_image=True, generator=generator(seed))
    sets, shares = mixing.label_sets(labels, 4), mixing.label_shares(labels, 4)
    assert sets.dtype is torch.bool
    as_members(shares, 4)  # sums to at most 1
    for i in range(7):
        own, other, share = int(labels[i]), int(labels[mixing.partner[i]]), float(mixing.share[i])
        expected = torch.zeros(4)
        expected[own] += share
        expected[other] += 1 - share
        torch.testing.assert_close(shares[i], expected)
        assert set(sets[i].nonzero().flatten().tolist()) == {c for c in range(4) if expected[c] > 0}


def test_label_sets_can_leave_small_shares_out():
    mixing = Mixing(torch.tensor([1, 0]), torch.tensor([0.9, 0.6]), torch.tensor([0.9, 0.6]))
    sets = mixing.label_sets(torch.tensor([0, 1]), 2, smallest_share=0.25)
    assert sets.tolist() == [[True, False], [True, True]]


def test_sets_of_sets_are_united():
    mixing = Mixing(torch.tensor([1, 0]), torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]))
    assert mixing.label_sets(as_members([{0, 1}, {2}], 4), 4).tolist() == [[True, True, True, False]] * 2


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))
def test_images_of_a_class_find_partners_beside_each_other(groups, together, seed):
    generator = torch.Generator().manual_seed(seed)
    partner = draw_mixing(groups * together, together=together, generator=generator).partner
    assert sorted(partner.tolist()) == list(range(groups * together))
    for own, other in zip(range(0, groups * together, together), partner[::together].tolist(), strict=True):
        assert partner[own : own + together].tolist() == list(range(other, other + together))


def test_groups_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(ValueError, match="7 images do not divide into groups of 4"):
        draw_mixing(7, together=4)


def test_remix_gives_the_label_to_the_rare_class():
    counts = torch.tensor([300, 10])
    labels = torch.tensor([0, 1] * 20)
    batch = torch.rand(40, 1, 2, 2)
    mixed, mixing = remix(batch, labels, counts, per_image=True, generator=generator())
    same, plain = mixup(batch, per_image=True, generator=generator())
    assert torch.equal(mixed, same)
    for i in range(40):
        own, other, share = int(counts[labels[i]]), int(counts[labels[mixing.partner[i]]]), float(plain.share[i])
        expected = 0.0 if own >= 3 * other and share < 0.5 else 1.0 if 3 * own <= other and 1 - share < 0.5 else share
        assert float(mixing.label_share[i]) == pytest.approx(expected)


def test_shares_follow_the_beta_distribution():
    shares = draw_mixing(20_000, concentration=2.0, per_image=True, generator=generator()).share
    assert shares.mean().item() == pytest.approx(0.5, abs=0.01)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * 2 + 1)), abs=0.002)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_the_generator_decides(mix):
    batch = images()
    first, again, other = (mix(batch, generator=generator(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_uint8_images_stay_uint8(mix):
    batch = (images() * 255).to(torch.uint8)
    mixed, _ = mix(batch, generator=generator())
    in_float, _ = mix(batch.float(), generator=generator())
    assert mixed.dtype is torch.uint8
    assert (mixed.float() - in_float).abs().max() <= 0.5


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).double()


def test_manifold_mixup_mixes_the_output_of_the_named_layer_and_then_lets_go():
    model, batch = network(), images()
    mixing = draw_mixing(6, generator=generator())
    with manifold_mixup(model, "1", mixing):
        mixed = model(batch)
    torch.testing.assert_close(mixed, model[2:](mixing.mix(model[:2](batch))))
    torch.testing.assert_close(model(batch), model[2:](model[:2](batch)))


def test_manifold_mixup_beside_originals_leaves_the_originals_alone():
    model, batch = network(), images()
    mixing = draw_mixing(6, generator=generator())
    with manifold_mixup(model, "1", mixing.beside_originals()):
        both = model(torch.cat([batch, batch]))
    torch.testing.assert_close(both[:6], model(batch))
    torch.testing.assert_close(both[6:], model[2:](mixing.mix(model[:2](batch))))


def test_labels_beside_originals_are_the_originals_and_then_the_mixed():
    labels = torch.tensor([0, 1, 2])
    mixing = draw_mixing(3, generator=generator())
    both = mixing.beside_originals().label_shares(torch.cat([labels, labels]), 3)
    torch.testing.assert_close(both[:3], torch.eye(3))
    torch.testing.assert_close(both[3:], mixing.label_shares(labels, 3))


def test_one_share_a_batch_goes_into_the_third_reading():
    labels = torch.tensor([3, 4, 5])
    mixing = draw_mixing(3, generator=generator())
    assert mixing.batch_share == mixing.share[0]
    assert torch.equal(mixing.other_labels(labels), labels[mixing.partner])
    with pytest.raises(ValueError, match="per_image=False"):
        _ = draw_mixing(3, per_image=True).batch_share


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"images are \(3, 8, 8\): give a batch of shape"):
        mixup(torch.ones(3, 8, 8))
    with pytest.raises(ValueError, match="dtype torch.int64"):
        cutmix(torch.ones(1, 3, 8, 8).long())
    with pytest.raises(ValueError, match="concentration is 0"):
        mixup(images(), concentration=0)
    with pytest.raises(ValueError, match="a mixing of 0 images"):
        draw_mixing(0)
    with pytest.raises(ValueError, match="kappa is 0.5"):
        remix(images(), torch.zeros(6).long(), torch.tensor([3]), kappa=0.5)
    with pytest.raises(ValueError, match="label 4"):
        remix(images(), torch.full((6,), 4), torch.tensor([3, 3]))
    with pytest.raises(ValueError, match="there are 5 rows and a mixing of 6"):
        draw_mixing(6).mix(torch.ones(5, 2))
    with pytest.raises(ValueError, match="dtype torch.uint8: convert"):
        draw_mixing(6).mix(torch.ones(6, 2, dtype=torch.uint8))
    for label in (draw_mixing(6).label_sets, draw_mixing(6).label_shares):
        with pytest.raises(ValueError, match="there are 4 rows and a mixing of 6"):
            label(torch.zeros(4, dtype=torch.long), 3)
    with pytest.raises(ValueError, match="there are 7 rows and a mixing of 6"):
        draw_mixing(6).other_labels(torch.zeros(7, dtype=torch.long))
    with pytest.raises(ValueError, match="row 0 is a set of 2 classes, where shares are needed"):
        draw_mixing(2).label_shares(torch.ones(2, 2, dtype=torch.bool), 2)
    with pytest.raises(ValueError, match="concentration is inf"):
        draw_mixing(2, concentration=float("inf"))
    with pytest.raises(ValueError, match="class_counts is no tensor"):
        remix(images(), torch.zeros(6).long(), [3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="labels are a list"):
        remix(images(), [0] * 6, torch.tensor([3]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="unknown layer '7'"), manifold_mixup(network(), "7", draw_mixing(6)):
        pass
    with pytest.raises(ValueError, match="layer '1' ran 0 times"), manifold_mixup(network(), "1", draw_mixing(6)):
        pass


def test_labels_of_partners_who_are_not_in_the_batch_serve_sets_and_shares():
    class Given(Mixing):
        def other_labels(self, labels):  # noqa: ARG002
            return torch.tensor([2, 2])

    share = torch.full((2,), 0.75)
    mixing = Given(torch.tensor([5, 9]), share, share)
    labels = torch.tensor([0, 1])
    assert mixing.label_sets(labels, 3).tolist() == [[True, False, True], [False, True, True]]
    assert mixing.label_shares(labels, 3).tolist() == [[0.75, 0, 0.25], [0, 0.75, 0.25]]
