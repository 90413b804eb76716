import json

import pytest
from pictures import class_folders

from idml.data.cache import Cache


def test_a_folder_becomes_a_cache_with_a_summary(idml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    class_folders(tmp_path / "photos")
    code, output, _ = idml("prepare", "photos", "--size", "16", "--test-share", "0.5")
    assert code == 0
    assert "a folder per class" in output
    assert "ready in photos-16: short side 16 pixels" in output
    assert "left out" not in output
    assert Cache.open(tmp_path / "photos-16").splits == ["train", "test"]


def test_json_is_all_that_is_printed_for_programs(idml, tmp_path):
    images = class_folders(tmp_path / "photos")
    (images / "class0" / "0.png").write_bytes(b"")
    code, output, _ = idml("prepare", images, "--output", tmp_path / "cache", "--size", "16", "--skip-bad", "--json")
    assert code == 0
    answer = json.loads(output)
    assert answer["splits"] == {"train": 11}
    assert answer["classes"] == 4
    assert answer["skipped"][0][0] == "class0/0.png"


def test_images_left_out_are_named(idml, tmp_path):
    images = class_folders(tmp_path / "photos")
    (images / "class0" / "0.png").write_bytes(b"")
    words = ("prepare", images, "--output", tmp_path / "cache", "--size", "16")
    code, _, errors = idml(*words)
    assert code == 1
    assert "class0/0.png: it is no image" in errors
    code, output, _ = idml(*words, "--skip-bad")
    assert code == 0
    assert "left out 1 image (class0/0.png)" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no nowhere"),
        (["{photos}", "--kind", "cub"], "unknown kind of dataset 'cub'"),
        (["{photos}", "--kind", "cub200"], "is not CUB-200-2011: looked for images.txt"),
        (["{photos}", "--size", "-3"], "size is -3"),
        (["{photos}", "--output", "{photos}"], "exists and is no cache"),
        (["{photos}", "--output", "{photos}/class0/0.png"], "exists and is no cache"),
        (["{empty}"], "empty is empty: give a folder with one folder of images a class."),
        (["{three}", "--test-share", "0.5"], "3 classes cannot be parted in two"),
    ],
)
def test_mistakes_are_told_in_a_line_or_two(idml, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    places = {"photos": class_folders(tmp_path / "photos"), "empty": tmp_path / "empty"}
    places["three"] = class_folders(tmp_path / "three", classes=3)
    code, _, errors = idml("prepare", *(word.format(**places) for word in words))
    assert code == 1
    assert message in errors
    assert len(errors.strip().splitlines()) <= 2
