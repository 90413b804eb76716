import json

import pytest

from idml.cli.recipes import notes_on, settings_of
from idml.recipes import RECIPES, recipe
from idml.training.config import PARTS, Config, read_setting


def test_recipes_are_listed_and_whole_as_json(idml):
    code, output, _ = idml("recipes")
    assert code == 0
    assert "cub-proxy-anchor" in output
    configs = json.loads(idml("recipes", "--json")[1])
    assert configs["cub-proxy-anchor"]["objective"]["loss"] == "proxy_anchor"
    assert json.loads(idml("recipes", "cub-proxy-anchor", "--json")[1]) == configs["cub-proxy-anchor"]


def test_every_setting_of_one_is_told_with_what_it_may_be(idml):
    code, output, _ = idml("recipes", "cub-margin")
    assert code == 0
    assert "Margin with distance-weighted sampling" in output
    assert "mixed_against=originals   mixed, originals, all" in output
    assert "miner_options.dim=64   whole number" in output
    in_one_line = " ".join(output.split())
    assert "share of each. (No effect beside the other settings.)" in in_one_line  # of smallest_share
    config = recipe("cub-margin")
    settings = [leaf for part in config.to_dict().values() for leaf in part]
    assert in_one_line.count("No effect") == len(config.idle(settings))


def test_an_unknown_recipe_is_told_with_its_likely_name(idml):
    code, output, errors = idml("recipes", "cub-proxy-anker")
    assert code == 1
    assert not output
    assert "did you mean 'cub-proxy-anchor'" in errors


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_has_a_note(part):
    named = set(Config().to_dict()[part])
    assert set(notes_on(PARTS[part])) == named
    assert all(note.endswith(".") for note in notes_on(PARTS[part]).values())


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_told_can_be_set(name):
    config = recipe(name)
    told = {setting.name: setting.value for part in PARTS for setting in settings_of(config, part)}
    again = recipe("digits").with_changes(told)
    for setting in told:
        value = config.leaf(setting)
        if value is not None or "." not in setting:  # else the loss's own
            assert again.leaf(setting) == (pytest.approx(value) if isinstance(value, float) else value), setting
        assert read_setting(setting, told[setting]) == again.leaf(setting)
