import json
import os

import pytest
import torch

from idml.models.saved import load_folder, save_folder


def save(folder, value: float = 1.0):
    save_folder(folder, {"weight": torch.full((2, 3), value)}, {"dim": 3})
    return folder


def test_weights_and_description_come_back(tmp_path):
    weights, description = load_folder(save(tmp_path / "model"))
    assert torch.equal(weights["weight"], torch.ones(2, 3))
    assert description == {"dim": 3}


def test_the_folder_of_a_run_is_that_of_its_model(tmp_path):
    save(tmp_path / "model")
    assert load_folder(tmp_path)[1] == {"dim": 3}


def test_equal_models_are_equal_files(tmp_path):
    one, other = save(tmp_path / "one"), save(tmp_path / "other")
    for name in ("model.json", "model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_full_disk_leaves_the_old_model_as_it_was(tmp_path, monkeypatch):
    save(tmp_path)

    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, value=2.0)
    assert torch.equal(load_folder(tmp_path)[0]["weight"], torch.ones(2, 3))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


def test_files_of_two_models_are_told_apart(tmp_path):
    save(tmp_path / "one")
    save(tmp_path / "other", value=2.0)
    (tmp_path / "other" / "model.json").rename(tmp_path / "one" / "model.json")
    with pytest.raises(ValueError, match="is not the file that model.json describes: was saving interrupted"):
        load_folder(tmp_path / "one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has format version 2, and this idml reads 1: install a newer idml"),
        ({"format": "another"}, "describes no idml embedder"),
    ],
)
def test_other_formats_are_told(tmp_path, changes, message):
    save(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(description | changes))
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, name):
    (save(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f"there is no {name} in .* give the folder of a model, or of a run"):
        load_folder(tmp_path)
    with pytest.raises(ValueError, match="there is no folder .*nowhere: give that of a model"):
        load_folder(tmp_path / "nowhere")


def test_a_broken_description_is_told(tmp_path):
    (save(tmp_path) / "model.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        load_folder(tmp_path)
