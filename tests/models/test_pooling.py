import pytest
import torch
from torch import Tensor

from idml.models.pooling import GeneralisedMean, Pooling


def maps(*, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(4, 5, 3, 3, generator=torch.Generator().manual_seed(0)).to(dtype)


def as_tokens(features: Tensor, *, prefix_tokens: int) -> Tensor:
    prefix = torch.full((len(features), prefix_tokens, features.shape[1]), 100.0)
    return torch.cat([prefix, features.flatten(2).transpose(1, 2)], dim=1)


NAIVE = {
    "average": lambda places: sum(places) / len(places),
    "max": max,
    "average_max": lambda places: sum(places) / len(places) + max(places),
    "gem": lambda places: (sum(place**3 for place in places) / len(places)) ** (1 / 3),
}


@pytest.mark.parametrize("name", NAIVE)
def test_pooling_agrees_with_a_loop(name):
    expected = [[NAIVE[name](channel.flatten().tolist()) for channel in image] for image in maps()]
    torch.testing.assert_close(Pooling(name)(maps()), torch.tensor(expected))


@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("prefix_tokens", [0, 2])
def test_tokens_are_pooled_like_maps_without_those_of_no_place(name, prefix_tokens):
    tokens = as_tokens(maps(), prefix_tokens=prefix_tokens)
    torch.testing.assert_close(Pooling(name, prefix_tokens=prefix_tokens)(tokens), Pooling(name)(maps()))


def test_the_class_token_is_the_first():
    tokens = as_tokens(maps(), prefix_tokens=1)
    assert torch.equal(Pooling("class_token", prefix_tokens=1)(tokens), tokens[:, 0])


@pytest.mark.parametrize("name", NAIVE)
def test_half_precision_comes_out_as_float32(name):
    pooled = Pooling(name)(maps(dtype=torch.bfloat16))
    assert pooled.dtype is torch.float32
    torch.testing.assert_close(pooled, Pooling(name)(maps(dtype=torch.bfloat16).float()))


def test_the_generalised_mean_goes_from_average_to_maximum():
    pooling = GeneralisedMean()
    features = 1000 * maps()
    for power, expected in ((1.0, features.mean(dim=(2, 3))), (500.0, features.amax(dim=(2, 3)))):
        pooling.power.data.fill_(power)
        torch.testing.assert_close(pooling(features, (2, 3)), expected, rtol=1e-2, atol=0)


def test_the_generalised_mean_has_the_gradients_of_its_formula():
    pooling = GeneralisedMean().double()
    features = maps(dtype=torch.float64).requires_grad_()
    literal = features.pow(pooling.power).mean(dim=(2, 3)).pow(1 / pooling.power)
    expected = torch.autograd.grad(literal.sum(), [features, pooling.power])
    found = torch.autograd.grad(pooling(features, (2, 3)).sum(), [features, pooling.power])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_the_generalised_mean_of_nothing_positive_is_finite(value):
    features = torch.full((1, 2, 3, 3), value, requires_grad=True)
    pooling = GeneralisedMean()
    pooled = pooling(features, (2, 3))
    pooled.sum().backward()
    assert pooled.abs().max() < 1e-5
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert pooling.power.grad is not None
    assert pooling.power.grad.isfinite()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="unknown pooling 'avg': did you mean 'average'"):
        Pooling("avg")
    with pytest.raises(ValueError, match="no class token: use 'average_max'"):
        Pooling("class_token")
