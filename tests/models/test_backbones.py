import re

import pytest
import torch
from torch import nn

from idml.models.backbones import Backbone


def statistics(backbone: Backbone) -> list[torch.Tensor]:
    return [buffer.clone() for _, buffer in backbone.named_buffers()]


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "test_byobnet", "mobilenetv3_small_050"])
def test_convolutional_networks_give_maps_of_their_width(name):
    backbone = Backbone(name).eval()
    features = backbone(torch.rand(2, 3, 64, 64))
    assert features.shape[:2] == (2, backbone.width)
    assert features.ndim == 4


def test_maps_with_channels_last_are_turned():
    backbone = Backbone("test_resnet").eval()
    images = torch.rand(2, 3, 64, 64)
    expected = backbone(images)
    network = backbone.network
    backbone.network = nn.Sequential(network, _ChannelsLast())
    torch.testing.assert_close(backbone(images), expected)


class _ChannelsLast(nn.Module):
    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps.movedim(1, -1)


def test_a_small_vision_transformer_gives_tokens():
    backbone = Backbone("vit_tiny_patch16_224", image_size=32).eval()
    assert backbone(torch.rand(2, 3, 32, 32)).shape == (2, 1 + 4, backbone.width)
    assert backbone.prefix_tokens == 1
    assert (backbone.preprocessing.size, backbone.preprocessing.resize) == (32, 37)
    with pytest.raises(ValueError, match="images are 48 × 32 and backbone 'vit_tiny_patch16_224' works at 32 alone"):
        backbone(torch.rand(2, 3, 48, 32))


@pytest.mark.parametrize("is_frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_through_training(is_frozen):
    backbone = Backbone("test_resnet", frozen_batch_norm=is_frozen)
    before = statistics(backbone)
    optimiser = torch.optim.SGD(backbone.parameters(), lr=0.1)
    for _ in range(2):
        backbone.eval().train()
        backbone(torch.rand(4, 3, 64, 64)).square().mean().backward()
        optimiser.step()
    is_kept = all(torch.equal(old, new) for old, new in zip(before, statistics(backbone), strict=True))
    assert is_kept is is_frozen
    assert all(parameter.grad is not None for parameter in backbone.parameters())  # scale and shift are learned


def test_frozen_layers_learn_nothing_and_keep_their_statistics():
    backbone = Backbone("test_resnet", frozen_batch_norm=False, frozen_layers=["conv1", "bn1", "layer1.0"])
    for _ in range(2):  # as training does between warming up and training all
        backbone.requires_grad_(False).requires_grad_(True)
        backbone.eval().train()
    before = backbone.network.bn1.running_mean.clone(), backbone.network.layer2[0].bn1.running_mean.clone()
    backbone(torch.rand(4, 3, 64, 64)).square().mean().backward()
    for name, parameter in backbone.network.named_parameters():
        is_frozen = name.startswith(("conv1.", "bn1.", "layer1.0."))
        assert (parameter.grad is None) == is_frozen, name
    assert torch.equal(backbone.network.bn1.running_mean, before[0])
    assert not torch.equal(backbone.network.layer2[0].bn1.running_mean, before[1])


@pytest.mark.parametrize(("name", "hint"), [("layr1", " did you mean 'layer1'?"), ("", ""), ("stem_of_it_all", "")])
def test_unknown_layers_to_freeze_are_refused(name, hint):
    with pytest.raises(ValueError, match=re.escape(f"unknown layer {name!r} in frozen_layers:{hint} Known: conv1, ")):
        Backbone("test_resnet", frozen_layers=[name])


def test_one_name_is_no_list_of_layers():
    with pytest.raises(ValueError, match=re.escape("frozen_layers is 'conv1': give a list of names, ['conv1'].")):
        Backbone("test_resnet", frozen_layers="conv1")


def test_preprocessing_is_the_networks_own():
    assert Backbone("resnet10t").preprocessing.mean == (0.485, 0.456, 0.406)
    preprocessing = Backbone("efficientnet_lite0").preprocessing
    assert (preprocessing.mean, preprocessing.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert (preprocessing.size, preprocessing.resize) == (224, 256)


def test_networks_that_pool_themselves_are_refused():
    with pytest.raises(ValueError, match="'deit_tiny_distilled_patch16_224' gives one feature an image"):
        Backbone("deit_tiny_distilled_patch16_224", image_size=32).eval()(torch.rand(1, 3, 32, 32))
