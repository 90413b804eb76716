import json
import sys

import numpy as np
import pytest
import torch

from idml.interop.onnx import export_onnx
from idml.models.embedder import Embedder

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


def embedder(**options) -> Embedder:
    torch.manual_seed(0)
    return Embedder(**({"backbone": "test_resnet", "dim": 8, "uncertainty_dim": 4, "image_size": 64} | options))


def images(number: int, size: int) -> np.ndarray:
    return np.random.default_rng(number).integers(256, size=(number, 3, size, size), dtype=np.uint8)


def test_both_embeddings_and_the_level_come_out_for_any_number_of_images(tmp_path):
    model = embedder()
    differences = export_onnx(model, tmp_path / "model.onnx")
    assert list(differences) == ["semantic", "uncertainty", "level"]
    assert max(differences.values()) < 1e-5
    assert model.training  # it is left as it was
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    model.eval()
    for number in (1, 2, 7):
        given = images(number, 64)
        found = dict(zip(differences, session.run(list(differences), {"images": given}), strict=True))
        expected = model(torch.from_numpy(given))
        for name, values in found.items():
            np.testing.assert_allclose(values, getattr(expected, name).detach().numpy(), rtol=1e-3, atol=1e-5)
    about = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    assert about == json.loads(json.dumps(model.preprocessing.to_dict()))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_plain_vision_transformer_is_exported_without_uncertainty(tmp_path):
    model = embedder(backbone="test_vit", uncertainty_dim=None)
    assert list(export_onnx(model, tmp_path / "model.onnx")) == ["semantic"]


def test_a_difference_is_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("idml.interop.onnx._write", lambda _outputs, path, **_: path.write_bytes(b"onnx"))
    monkeypatch.setattr("idml.interop.onnx._differences", lambda *_, **__: {"level": float("nan")})
    with pytest.raises(ValueError, match="level of the ONNX model differs from PyTorch's by nan, more than 0.0001"):
        export_onnx(embedder(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"the export needs onnxscript: pip install 'idml\[onnx\]'"):
        export_onnx(embedder(), tmp_path / "model.onnx")


def test_operators_too_old_or_too_new_are_refused(tmp_path):
    for opset in (7, 1000):
        with pytest.raises(ValueError, match=f"opset is {opset}: give a number from 18 to"):
            export_onnx(embedder(), tmp_path / "model.onnx", opset=opset)


def test_numbers_that_are_none_are_a_difference(tmp_path, monkeypatch):
    class Spoilt:
        def __init__(self, *_: object, **__: object): ...

        def run(self, names, given):
            return [np.full((len(given["images"]), 4), np.nan, dtype=np.float32) for _ in names]

    monkeypatch.setattr("idml.interop.onnx._write", lambda _outputs, path, **_: path.write_bytes(b"onnx"))
    monkeypatch.setattr(onnxruntime, "InferenceSession", Spoilt)
    with pytest.raises(ValueError, match="semantic of the ONNX model differs from PyTorch's by nan"):
        export_onnx(embedder(dim=4, uncertainty_dim=None), tmp_path / "model.onnx")


def test_another_size_comes_with_a_preprocessing_of_its_own(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "idml.interop.onnx._write", lambda _outputs, path, **options: asked.update(options) or path.touch()
    )
    monkeypatch.setattr("idml.interop.onnx._differences", lambda *_, **__: {})
    model = embedder(image_size=32)
    export_onnx(model, tmp_path / "model.onnx", size=64)
    assert (asked["preprocessing"].size, asked["preprocessing"].resize) == (64, 73)
    assert asked["preprocessing"].mean == model.preprocessing.mean
    export_onnx(model, tmp_path / "model.onnx", size=32)
    assert asked["preprocessing"] == model.preprocessing


def test_a_size_that_the_backbone_cannot_work_at_is_refused(tmp_path):
    with pytest.raises(ValueError, match="size is 32, and backbone 'test_vit' works at 64 alone: leave --size out"):
        export_onnx(embedder(backbone="test_vit"), tmp_path / "model.onnx", size=32)
