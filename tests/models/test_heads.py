import pickle
from dataclasses import replace

import pytest
import torch
from torch import multiprocessing, nn

from idml import Embedding
from idml.models.heads import LITERAL, STABILISED, Heads, UncertaintyForm, UncertaintyHead


def features(scale: float = 100.0) -> torch.Tensor:
    return scale * torch.rand(64, 32, generator=torch.Generator().manual_seed(0))


def form(**changes) -> UncertaintyForm:
    return UncertaintyForm(**({"normalise": False, "gradient_scale": 1.0, "starting_level": None} | changes))


def test_the_literal_form_is_two_linear_layers():
    heads = Heads(32, dim=6, uncertainty_dim=5, form=LITERAL)
    feature = features()
    embedding = heads(feature)
    torch.testing.assert_close(embedding.semantic, heads.semantic(feature))
    assert heads.uncertainty is not None
    torch.testing.assert_close(
        embedding.uncertainty, nn.functional.linear(feature, *heads.uncertainty.linear.parameters())
    )


def test_a_normalised_semantic_embedding_does_not_know_the_scale_and_shift_of_features():
    feature = torch.randn(5, 16)
    for is_normalised in (True, False):
        heads = Heads(16, dim=8, uncertainty_dim=None, semantic_normalise=is_normalised)
        found, changed = heads(feature).semantic, heads(7 * feature + 3).semantic
        assert torch.allclose(found, changed, atol=1e-4) is is_normalised


def test_a_plain_model_has_no_uncertainty():
    assert Heads(32, dim=6, uncertainty_dim=None)(features()).uncertainty is None


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_the_first_training_batch_has_the_starting_level(normalise, scale):
    head = UncertaintyHead(32, 8, form=form(normalise=normalise, starting_level=0.3))
    for _ in range(2):  # and is not scaled a second time
        level = head(features(scale)).norm(dim=1).mean()
        assert level.item() == pytest.approx(0.3, rel=1e-4)
    weight = head.linear.weight.clone()
    head(features(5 * scale))
    assert torch.equal(head.linear.weight, weight)


@pytest.mark.parametrize("is_training", [True, False])
def test_all_images_can_start_with_one_uncertainty(is_training):
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3, starts_equal=True)).train(is_training)
    found = head(features())
    assert torch.equal(found, found[:1].expand_as(found))
    assert found[0].norm().item() == pytest.approx(0.3)
    others = UncertaintyHead(32, 8, form=form(starting_level=0.3))
    spread = others(features()).norm(dim=1)
    assert spread.std() > 0.01


def test_what_tells_images_apart_that_started_equal_is_learned():
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3, starts_equal=True))
    seen = features(1.0)
    target, optimiser = 0.2 + 0.2 * seen[:, 0], torch.optim.Adam(head.parameters(), lr=0.001)
    for _ in range(100):
        optimiser.zero_grad()
        (head(seen).norm(dim=1) - target).square().mean().backward()
        optimiser.step()
    assert torch.corrcoef(torch.stack([head(seen).norm(dim=1), target]))[0, 1] > 0.95


def test_a_layer_that_starts_equal_keeps_weights_that_are_loaded():
    other = UncertaintyHead(32, 8, form=form(starting_level=0.3)).eval()
    head = UncertaintyHead(32, 8, form=form(starting_level=0.5, starts_equal=True))
    head.load_state_dict(other.state_dict())
    torch.testing.assert_close(head(features()), other(features()))


def test_evaluation_and_loaded_weights_keep_their_scale():
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3)).eval()
    before = head.linear.weight.clone()
    head(features())
    assert torch.equal(head.linear.weight, before)
    other = UncertaintyHead(32, 8, form=form(starting_level=0.3)).train()
    other.load_state_dict(head.state_dict())
    other(features())
    assert torch.equal(other.linear.weight, before)


def test_the_starting_level_holds_under_autocast():
    torch.manual_seed(0)
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            assert head(features()).float().norm(dim=1).mean().item() == pytest.approx(0.3, rel=0.02)


@pytest.mark.parametrize("first", [torch.empty(0, 32), torch.full((2, 32), float("nan"))])
def test_a_useless_first_batch_leaves_the_layer_as_it_is(first):
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3))
    before = head.linear.weight.clone()
    head(first)
    assert torch.equal(head.linear.weight, before)


def test_loading_a_backbone_alone_does_not_stop_the_start():
    model = nn.Sequential(nn.Linear(32, 32), Heads(32, 8, 8, form=form(starting_level=0.3)))
    backbone = {key: value for key, value in model.state_dict().items() if key.startswith("0.")}
    model.load_state_dict(backbone, strict=False)
    assert model(features()).level.mean().item() == pytest.approx(0.3, rel=1e-4)


def test_heads_can_be_pickled():
    heads = Heads(32, 8, 4)
    heads(features())
    torch.testing.assert_close(pickle.loads(pickle.dumps(heads))(features()).level, heads(features()).level)


def start_on_rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    head = UncertaintyHead(32, 8, form=form(starting_level=0.3))
    head(features(scale=1.0 + 9 * rank))
    torch.save(head.linear.weight, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_all_ranks_start_with_the_same_weights(tmp_path):
    multiprocessing.spawn(start_on_rank, (str(tmp_path),), nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
    assert torch.equal(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)))


def test_a_normalised_input_makes_the_level_independent_of_the_feature_scale():
    head = UncertaintyHead(32, 8, form=form(normalise=True))
    torch.testing.assert_close(head(features(1.0)), head(features(100.0)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0])
def test_the_gradient_into_the_backbone_is_scaled_and_the_layers_own_is_not(scale):
    gradients = {}
    for gradient_scale in (1.0, scale):
        torch.manual_seed(0)
        head = UncertaintyHead(32, 8, form=form(gradient_scale=gradient_scale))
        feature = features().requires_grad_()
        head(feature).square().sum().backward()
        gradients[gradient_scale] = (feature.grad, head.linear.weight.grad)
    full, scaled = gradients[1.0], gradients[scale]
    torch.testing.assert_close(scaled[1], full[1])
    if scale == 0:
        assert scaled[0] is None
    else:
        torch.testing.assert_close(scaled[0], full[0] * scale)


def test_common_uncertainty_has_the_mean_length_and_the_directions_of_learned_uncertainty():
    feature = torch.randn(7, 16)
    learned = UncertaintyHead(16, 5, form=STABILISED).eval()
    common = UncertaintyHead(16, 5, form=replace(STABILISED, kind="common")).eval()
    common.load_state_dict(learned.state_dict(), strict=False)
    found, expected = common(feature), learned(feature)
    lengths = torch.linalg.vector_norm(expected, dim=1)
    torch.testing.assert_close(torch.linalg.vector_norm(found, dim=1), lengths.mean().expand(7))
    torch.testing.assert_close(found * lengths[:, None], expected * lengths.mean())


def test_common_uncertainty_is_that_of_the_last_training_batch_when_evaluated():
    head = UncertaintyHead(16, 5, form=replace(STABILISED, kind="common"))
    head(torch.randn(4, 16))
    level = torch.linalg.vector_norm(head(torch.randn(6, 16)), dim=1)[0]
    head.eval()
    loaded = UncertaintyHead(16, 5, form=head.form).eval()
    loaded.load_state_dict(head.state_dict())
    for each in (head, loaded):
        for images in (1, 3):
            found = torch.linalg.vector_norm(each(torch.randn(images, 16)), dim=1)
            torch.testing.assert_close(found, level.expand(images))


def test_a_common_level_that_was_not_saved_is_that_of_the_images_at_hand():
    head = UncertaintyHead(16, 5, form=replace(STABILISED, kind="common")).eval()
    head.load_state_dict({name: value for name, value in head.state_dict().items() if name != "common_level"})
    images = torch.randn(6, 16)
    expected = torch.linalg.vector_norm(head.linear(head.normalise(images)), dim=1).mean()
    torch.testing.assert_close(torch.linalg.vector_norm(head(images), dim=1), expected.expand(6))


def test_second_derivatives_pass_a_scaled_gradient():
    torch.manual_seed(0)
    heads = Heads(4, dim=3, uncertainty_dim=2, form=form(normalise=True, gradient_scale=0.3)).double()
    feature = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(heads(feature).level.sum(), feature, create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), feature)[0].any()


def test_the_stabilised_form_is_the_default():
    heads = Heads(32)
    assert heads.uncertainty is not None
    assert heads.uncertainty.form is STABILISED
    assert isinstance(heads(features()), Embedding)


@pytest.mark.usefixtures("as_installed")
def test_mistakes_are_named():
    with pytest.raises(ValueError, match="gradient_scale is -1: give 0 or more"):
        form(gradient_scale=-1)
    with pytest.raises(ValueError, match="starting_level is -1"):
        form(starting_level=-1.0)
    with pytest.raises(ValueError, match="starts_equal needs a starting_level"):
        form(starts_equal=True)
    with pytest.raises(ValueError, match="unknown kind of uncertainty 'comon': did you mean 'common'?"):
        form(kind="comon")
    with pytest.raises(ValueError, match="dim is 0"):
        Heads(32, dim=0)
    with pytest.raises(ValueError, match=r"shape \(2, 7\): give \(images, 32\)"):
        Heads(32)(torch.ones(2, 7))
    with pytest.raises(ValueError, match=r"shape \(2, 32, 7, 7\)"):
        Heads(32)(torch.ones(2, 32, 7, 7))
