import re
from typing import Any

import numpy as np
import pytest
import torch

from idml import Embedding
from idml.evaluation.embedded import Embedded


def some_images(number: int = 6, *, dtype: torch.dtype = torch.float32) -> Embedded:
    generator = torch.Generator().manual_seed(0)
    return Embedded(
        embedding=Embedding(
            torch.randn(number, 4, generator=generator).to(dtype), torch.rand(number, 3, generator=generator).to(dtype)
        ),
        labels=torch.arange(number) % 2,
        class_names=["gull", "wren"],
        images=[f"birds/{place} ö.jpg" for place in range(number)],
        image_root="/photos",
        changed_levels={"blur": {0.25: torch.rand(number), 1.0: torch.rand(number)}},
    )


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_is_saved_is_loaded(ending, dtype, tmp_path):
    images = some_images(dtype=dtype)
    gallery = Embedded(embedding=Embedding(torch.randn(3, 4)), labels=torch.tensor([1, 1, 0]), images=["a", "b", "c"])
    before = Embedded(**{**vars(images), "gallery": gallery})
    path = tmp_path / f"embeddings.{ending}"
    before.save(path)
    for source in (path, tmp_path):  # a run's folder holds it under this name
        after = Embedded.load(source)
        assert torch.equal(after.embedding.semantic.double(), before.embedding.semantic.double())
        assert after.embedding.uncertainty is not None
        assert before.embedding.uncertainty is not None
        assert torch.equal(after.embedding.uncertainty.double(), before.embedding.uncertainty.double())
        assert torch.equal(after.labels, before.labels)
        for text in ("class_names", "images", "image_root"):
            assert getattr(after, text) == getattr(before, text)
        assert torch.equal(after.changed_levels["blur"][0.25], before.changed_levels["blur"][0.25])
        assert after.gallery is not None
        assert after.gallery.labels.tolist() == [1, 1, 0]
        assert after.gallery.images == ["a", "b", "c"]
        assert after.gallery.embedding.uncertainty is None


def test_arrays_under_common_names_and_text_labels_are_understood(tmp_path):
    np.savez(tmp_path / "rows.npz", features=np.ones((3, 2)), y=np.array(["wren", "gull", "wren"]))
    found = Embedded.load(tmp_path / "rows.npz")
    assert found.labels.tolist() == [1, 0, 1]
    assert found.class_names == ["gull", "wren"]


def test_class_numbers_keep_their_names_when_some_classes_are_missing(tmp_path):
    arrays = {"semantic": np.ones((2, 2)), "labels": np.array([2, 0]), "class_names": np.array(["a", "b", "c"])}
    np.savez(tmp_path / "rows.npz", **arrays)
    found = Embedded.load(tmp_path / "rows.npz")
    assert found.class_names is not None
    assert [found.class_names[label] for label in found.labels.tolist()] == ["c", "a"]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_classes_that_are_called_by_numbers_keep_theirs(ending, tmp_path):
    names = [str(number) for number in range(1, 13)]
    before = Embedded(embedding=Embedding(torch.ones(12, 2)), labels=torch.arange(12), class_names=names)
    before.save(tmp_path / f"rows.{ending}")
    after = Embedded.load(tmp_path / f"rows.{ending}")
    assert after.labels.tolist() == list(range(12))
    assert after.class_names == names


def test_names_of_classes_that_look_like_numbers_are_looked_up(tmp_path):
    np.savez(
        tmp_path / "rows.npz", semantic=np.ones((3, 2)), labels=np.array(["2", "1", "2"]), class_names=["3", "2", "1"]
    )
    assert Embedded.load(tmp_path / "rows.npz").labels.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, "there is no 'semantic' in it, but labels"),
        ({"semantic": np.ones((2, 2))}, "there is no 'labels' in it, but semantic"),
        ({"semantic": np.ones((2, 2)), "labels": np.zeros(3, int)}, "there are 2 embeddings and 3 labels"),
        ({"semantic": np.ones((2, 2)), "labels": np.zeros(2)}, "labels have shape (2,) and dtype float64"),
        ({"semantic": np.ones((2, 2), int), "labels": np.zeros(2, int)}, "semantic has dtype int64"),
        (
            {"semantic": np.ones((2, 2)), "labels": np.array([0, 5]), "class_names": np.array(["a", "b"])},
            "label '5' is none of the 2 class names",
        ),
    ],
)
def test_files_that_lack_something_say_what(arrays, message, tmp_path):
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(ValueError, match=re.escape(f"rows.npz: {message}")):
        Embedded.load(tmp_path / "rows.npz")


@pytest.mark.usefixtures("as_installed")
def test_changed_levels_with_odd_names_or_shapes_are_named(tmp_path):
    good = {"semantic": np.ones((2, 2)), "labels": np.arange(2)}
    for name, values, message in (
        ("changed/blur/x", np.ones(2), "'changed/blur/x' names no change"),
        ("changed/blur", np.ones(2), "'changed/blur' names no change"),
        ("changed/blur/0.5", np.ones((2, 1)), "changed/blur/0.5 has shape (2, 1)"),
    ):
        arrays: dict[str, Any] = good | {name: values}
        np.savez(tmp_path / "rows.npz", **arrays)
        with pytest.raises(ValueError, match=re.escape(message)):
            Embedded.load(tmp_path / "rows.npz")


def test_other_metadata_is_left_alone(tmp_path):
    from safetensors.torch import save_file

    rows = {"semantic": torch.ones(2, 2), "labels": torch.arange(2)}
    save_file(rows, tmp_path / "rows.safetensors", metadata={"note": "[v1] trained"})
    assert len(Embedded.load(tmp_path / "rows.safetensors").labels) == 2


def test_files_that_cannot_be_read_say_so(tmp_path):
    with pytest.raises(ValueError, match="there is no file .*nowhere.npz"):
        Embedded.load(tmp_path / "nowhere.npz")
    with pytest.raises(ValueError, match="holds no embeddings.safetensors or embeddings.npz"):
        Embedded.load(tmp_path)
    for name in ("rows.npz", "rows.safetensors"):
        (tmp_path / name).write_bytes(b"broken off")
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            Embedded.load(tmp_path / name)
    (tmp_path / "rows.csv").write_text("1,2")
    with pytest.raises(ValueError, match="ends in '.csv'"):
        Embedded.load(tmp_path / "rows.csv")
    np.savez(tmp_path / "objects.npz", semantic=np.array([[1], [1, 2]], dtype=object))
    with pytest.raises(ValueError, match="objects.npz cannot be read"):
        Embedded.load(tmp_path / "objects.npz")
