import json
from pathlib import Path

import pytest
from caches import draw_cache

from idml.recipes import recipe
from idml.training.checkpoint import LAST
from idml.training.config import Config
from idml.training.loop import train
from idml.training.runs import CONFIG, RunFolder

DATA = {"source": "photos", "checksum": "abc"}


def begun(folder: RunFolder) -> Config:
    return Config.from_dict(json.loads((folder.path / CONFIG).read_text())["config"])


def interrupted(place: Path) -> tuple[RunFolder, Config]:
    """A run that has a checkpoint to go on from."""
    folder, config = RunFolder(place), recipe("digits")
    folder.begin(config, DATA)
    folder.checkpoint(LAST).parent.mkdir()
    folder.checkpoint(LAST).touch()
    return folder, config


def test_a_folder_without_a_checkpoint_takes_other_settings(tmp_path):
    folder, config = RunFolder(tmp_path), recipe("digits")
    assert not folder.begin(config, DATA)
    changed = config.with_changes(["tau=3"])
    assert not folder.begin(changed, DATA)
    assert begun(folder) == changed


def test_another_config_or_other_images_do_not_continue_a_run(tmp_path):
    folder, config = interrupted(tmp_path)
    assert folder.begin(config, DATA)
    with pytest.raises(ValueError, match="is a run with other settings \\(tau 5.0 instead of 3.0\\)"):
        folder.begin(config.with_changes(["tau=3"]), DATA)
    with pytest.raises(ValueError, match="is a run with other settings \\(data checksum\\)"):
        folder.begin(config, DATA | {"checksum": "xyz"})
    assert begun(folder) == config


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path):
    folder, config = interrupted(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    del saved["config"]["model"]["frozen_layers"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert folder.begin(config, DATA)
    with pytest.raises(ValueError, match="frozen_layers \\[\\] instead of \\['conv1'\\]"):
        folder.begin(config.with_changes(["frozen_layers=conv1"]), DATA)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": 1}', '{"config": 3, "data": {}}', '{"config": {}, "data": 3}'])
def test_the_config_of_another_program_is_left_alone_and_named(tmp_path, text):
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(ValueError, match="config.json is not of a run of idml: give another --output"):
        RunFolder(tmp_path).begin(recipe("digits"), DATA)
    assert (tmp_path / CONFIG).read_text() == text


def test_a_mistake_in_the_settings_leaves_no_folder(tmp_path):
    cache = draw_cache(tmp_path / "data", classes=4)
    for change, message in (
        ("batch=500", "20 images do not fill a batch of 500: lower it \\(--set batch=20\\)"),
        ("per_class=5", "needs 20 classes"),
        ("tau=0", "tau is 0.0: give a number above 0"),
        ("backbone=resnet5", "unknown backbone"),
    ):
        with pytest.raises(ValueError, match=message):
            train(recipe("digits").with_changes([change]), cache, tmp_path / "run")
    assert not (tmp_path / "run").exists()
