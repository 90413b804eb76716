import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from idml import Embedding
from idml.distances import Introspective
from idml.evaluation.calibration import Calibration
from idml.models.embedder import Embedder
from idml.models.heads import LITERAL

SIZE = 64


def embedder(backbone: str = "test_resnet", *, uncertainty_dim: int | None = 4, **options: Any) -> Embedder:
    torch.manual_seed(0)
    return Embedder(backbone, 8, uncertainty_dim, image_size=SIZE, **options)


def images(number: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(256, (number, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)


def assert_same(found: Embedding, expected: Embedding, *, tolerance: float = 1e-5) -> None:
    for name in ("semantic", "uncertainty"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=tolerance, atol=tolerance)


def test_both_embeddings_come_from_one_pooled_feature():
    model = embedder().eval()
    assert_same(model(images()), model.heads(model.features(images())))


def test_bytes_and_shares_are_embedded_alike():
    model = embedder().eval()
    assert_same(model(images()), model(images() / 255))


def test_a_plain_model_has_no_uncertainty():
    model = embedder(uncertainty_dim=None)
    assert model(images()).uncertainty is None
    assert list(model.parameter_groups()) == ["backbone", "semantic"]


@pytest.mark.parametrize("pooling", ["average_max", "gem"])
def test_every_parameter_is_in_one_group(pooling):
    model = embedder(pooling=pooling)
    groups = model.parameter_groups()
    assert list(groups) == ["backbone", "semantic", "uncertainty"]
    assert {id(parameter) for parameter in model.parameters()} == {id(one) for part in groups.values() for one in part}
    assert sum(map(len, groups.values())) == len(list(model.parameters()))


@pytest.mark.parametrize("pooling", ["average_max", "class_token"])
def test_a_vision_transformer_trains(pooling):
    model = embedder("test_vit", pooling=pooling)
    embedding = model(images())
    (embedding.semantic.square().sum() + embedding.level.sum()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_under_autocast_the_backbone_is_in_bfloat16_and_the_heads_in_float32():
    model = embedder().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.backbone(model.normalise(images())).dtype is torch.bfloat16
        embedding = model(images())
    assert embedding.semantic.dtype is torch.float32
    assert embedding.uncertainty is not None
    assert embedding.uncertainty.dtype is torch.float32
    assert_same(embedding, model(images()), tolerance=0.1)


def test_other_precisions_of_the_whole_model_work():
    for dtype in (torch.float64, torch.bfloat16):
        assert embedder().to(dtype).eval()(images()).semantic.dtype is dtype


def test_the_memory_layout_changes_nothing():
    model = embedder().eval()
    expected = model(images())
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    assert_same(model(images().contiguous(memory_format=torch.channels_last)), expected)


COMPILED = """
import torch
from idml.models.embedder import Embedder

model = Embedder("test_resnet", dim=8, uncertainty_dim=4)
images = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8)
model(images)  # scales the uncertainty head
compiled = torch.compile(model, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(images).level, model(images).level)
"""


def test_it_compiles_into_one_graph():
    """In a process of its own, for shape checks cannot be compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_it_runs_inside_distributed_data_parallel(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = embedder()
        embedding = torch.nn.parallel.DistributedDataParallel(model)(images())
        (embedding.semantic.square().sum() + embedding.level.sum()).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
    finally:
        torch.distributed.destroy_process_group()


def test_frozen_layers_stay_frozen_when_the_whole_model_is_asked_to_learn():
    model = embedder("test_resnet", frozen_layers=["conv1"]).requires_grad_(False).requires_grad_()
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith("backbone.network.conv1.") for name in learning)
    assert {"backbone.network.layer4.0.conv1.weight", "heads.semantic.weight"} < learning


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        (
            "test_resnet",
            {
                "pooling": "gem",
                "form": LITERAL,
                "frozen_batch_norm": False,
                "frozen_layers": ["conv1"],
                "semantic_normalise": True,
            },
        ),
        ("test_vit", {"pooling": "class_token", "uncertainty_dim": None}),
    ],
)
def test_what_was_saved_is_loaded(tmp_path, backbone, options):
    model = embedder(backbone, **options)
    model.save(
        tmp_path / "model",
        calibration=Calibration(bias=1.0, weights_alpha=(-2.0,), weight_beta=0.5),
        distance=Introspective("cosine", tau=3.0, smoothing=1.0),
        class_names=["wren", "tern"],
    )
    loaded = Embedder.load(tmp_path / "model")
    assert not loaded.training
    assert torch.equal(loaded(images()).semantic, model.eval()(images()).semantic)
    for name in ("preprocessing", "calibration", "distance", "class_names"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.backbone.frozen_batch_norm == model.backbone.frozen_batch_norm
    loaded.save(tmp_path / "again")  # and nothing was lost on the way
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_a_loaded_model_keeps_the_scale_of_its_level(tmp_path):
    model = embedder().eval()
    model.save(tmp_path)
    expected = model(images()).level
    torch.testing.assert_close(Embedder.load(tmp_path).train()(images()).level, expected)


def test_preprocessing_is_what_was_saved_whatever_timm_says_today(tmp_path):
    embedder().save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    description["preprocessing"]["mean"] = [0.1, 0.2, 0.3]
    (tmp_path / "model.json").write_text(json.dumps(description))
    assert Embedder.load(tmp_path).normalise.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 9}, r"of other shape: heads\.semantic\.bias \(8,\) instead of \(9,\)"),
        ({"backbone": "test_resnets"}, "unknown backbone 'test_resnets': did you mean 'test_resnet'"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"calibration": {"bias": 1.0}}, "a calibration without 'weights_alpha'"),
        ({"preprocessing": {}}, "a preprocessing without 'mean'"),
    ],
)
def test_a_description_that_does_not_fit_is_told(tmp_path, changes, message):
    embedder().save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(description | changes))
    with pytest.raises(ValueError, match=message) as caught:
        Embedder.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def photograph(path, *, height: int, width: int, seed: int = 0):
    pixels = np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path, pixels


def test_files_are_embedded_by_their_central_square(tmp_path):
    model = embedder()
    resize = model.preprocessing.resize
    paths, crops = [], []
    for seed, width in enumerate((resize, resize + 30, resize + 31)):
        path, pixels = photograph(tmp_path / f"{seed}.png", height=resize, width=width, seed=seed)
        top, left = round((resize - SIZE) / 2), round((width - SIZE) / 2)
        paths.append(path)
        crops.append(torch.tensor(pixels[top : top + SIZE, left : left + SIZE]).permute(2, 0, 1))
    told = []
    found = model.embed_files(paths, batch=2, progress=lambda _stage, share: told.append(share))
    assert told == [0.5, 1.0]
    assert model.training
    assert_same(found, model.eval()(torch.stack(crops)))


@pytest.mark.usefixtures("as_installed")
def test_files_that_are_no_images_are_named(tmp_path):
    (tmp_path / "note.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"note.jpg cannot be read: it is no image"):
        embedder().embed_files([tmp_path / "note.jpg"])
    with pytest.raises(ValueError, match="there are no files to embed"):
        embedder().embed_files([])
