import json

import pytest
import typer
from typer.testing import CliRunner

from idml.cli.export import export
from idml.models.embedder import Embedder

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(export)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_a_runs_model_becomes_a_file_with_its_differences_told(run, tmp_path):
    Embedder("test_resnet", 8, 4, image_size=32).save(tmp_path / "model")
    found = run(tmp_path)
    assert found.exit_code == 0
    assert "level: differs from PyTorch by" in found.output
    assert "model.onnx" in found.output
    assert (tmp_path / "model.onnx").exists()


def test_json_is_all_that_is_printed_for_programs(run, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "idml.interop.onnx.export_onnx",
        lambda _model, path, **options: asked.update(options, path=path) or {"level": 0.0},
    )
    Embedder("test_resnet", 8, 4, image_size=32).save(tmp_path)
    found = run(tmp_path, "--json", "--output", tmp_path / "small.onnx", "--size", 64)
    assert json.loads(found.output) == {
        "file": str(tmp_path / "small.onnx"),
        "differences": {"level": 0.0},
        "tolerance": 1e-4,
    }
    assert asked == {"path": tmp_path / "small.onnx", "size": 64, "opset": None}


def test_a_folder_without_a_model_is_told(run, tmp_path):
    found = run(tmp_path)
    assert isinstance(found.exception, ValueError)
    assert "there is no model.json in" in str(found.exception)
