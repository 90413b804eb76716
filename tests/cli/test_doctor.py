import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from idml.cli.doctor import PURPOSES, doctor

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    app = typer.Typer()
    app.command()(doctor)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_it_tells_versions_devices_disk_and_extras(run):
    found = run()
    assert found.exit_code == 0
    for part in (f"torch {metadata.version('torch')}", "cpu", "GiB free in", "pml"):
        assert part in " ".join(found.output.split())


def test_programs_read_the_same_as_json(run):
    answer = json.loads(run("--json").output)
    assert answer["packages"]["torch"] == metadata.version("torch")
    assert answer["devices"][0]["device"] == "cpu"
    assert len(answer["devices"]) >= 1 + torch.cuda.device_count()
    assert answer["extras"]["pml"]["packages"].keys() == {"pytorch-metric-learning"}


def test_what_is_missing_comes_with_the_command_that_installs_it(run, monkeypatch):
    requires = ["torch>=2", "no-such-package>1; extra == 'onnx'", "idml[onnx]; extra == 'dev'", 'rich; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda _name: requires)
    answer = json.loads(run("--json").output)
    assert list(answer["packages"]) == ["torch"]
    assert answer["extras"]["onnx"]["missing"] == ["no-such-package"]
    assert answer["extras"]["dev"]["missing"] == []
    assert "pip install 'idml[onnx]'" in run().output


def test_every_extra_has_a_purpose():
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras.keys() <= PURPOSES.keys()


def test_the_extra_all_holds_every_other_one_but_dev():
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras["all"] == [f"idml[{','.join(sorted(extras.keys() - {'all', 'dev'}))}]"]
