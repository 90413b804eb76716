"""The caches that `idml train` makes of plain images."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from caches import draw_photos

from idml.cli.train import _cache
from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.data.sources import SOURCES
from idml.models.files import read_crop
from idml.models.preprocessing import Preprocessing
from idml.recipes import recipe
from idml.training.embedding import centre_crops


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_more_photos_or_others_of_the_same_name_make_another_cache(tmp_path, capsys):
    def prepared(photos: Path) -> Path:
        return _cache(photos, 0.0, size=32, skip_bad=False, is_quiet=False)

    photos = draw_photos(tmp_path / "photos", classes=2, per_class=2)
    first = prepared(photos)
    assert prepared(photos) == first
    draw_photos(tmp_path / "photos" / "more", classes=1, per_class=1)
    second = prepared(photos)
    assert (len(Cache.open(first)), len(Cache.open(second))) == (4, 5)
    assert f"is new, beside {first.name}: remove what no run needs" in " ".join(capsys.readouterr().out.split())
    other = prepared(draw_photos(tmp_path / "other" / "photos", classes=2, per_class=2, seed=1))
    assert len({first, second, other}) == 3


def test_crops_that_are_scored_are_those_of_the_files(tmp_path):
    config = recipe("digits")
    photos = draw_photos(tmp_path / "photos", classes=2, per_class=2, size=90)
    cache = Cache.open(_cache(photos, 0.0, size=config.data.prepared_size, skip_bad=False, is_quiet=True))
    crops = centre_crops(Pixels.of(cache, cache.rows("train")), torch.arange(4), config)
    grey = (0.5, 0.5, 0.5)
    preprocessing = Preprocessing.for_size(config.data.scored_size, mean=grey, std=grey)
    for crop, name in zip(crops, cache.names, strict=True):
        assert torch.equal(crop, read_crop(photos / name, preprocessing))


def test_images_that_are_small_by_nature_are_not_enlarged(tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "folder", replace(SOURCES["folder"], size=32))
    photos = draw_photos(tmp_path / "photos", classes=2, per_class=2)
    for needed, expected in ((256, 32), (24, 24)):
        folder = _cache(photos, 0.0, size=needed, skip_bad=False, is_quiet=True)
        assert Cache.open(folder).meta.size == expected
