import json
import re

import pytest

from idml.recipes import RECIPES, recipe
from idml.training.config import Config


def test_settings_are_changed_by_their_own_names():
    config = Config().with_changes(
        ["tau=3", "loss=triplet", "loss_options.margin=0.2", "crop_scale=0.2,1", "clip=none", "compile=yes", "dim=64"]
    )
    assert config.objective.tau == 3.0
    assert config.objective.loss_options == {"margin": 0.2}
    assert config.data.crop_scale == (0.2, 1.0)
    assert config.optimiser.clip is None
    assert config.run.compile is True
    assert config.model.dim == 64
    assert config.data.batch == Config().data.batch


def test_the_plain_form_differs_in_the_method_alone():
    config = recipe("cub-proxy-anchor")
    plain = config.plain()
    assert not plain.objective.introspective
    assert plain.mixing.mixing == "none"
    assert (plain.data, plain.model, plain.optimiser, plain.run) == (
        config.data,
        config.model,
        config.optimiser,
        config.run,
    )


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_complete_and_survive_json(name):
    config = recipe(name)
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert RECIPES[name].__doc__


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("taus=3", "unknown setting 'taus': did you mean 'tau'?"),
        ("tau", "'tau' sets nothing: write NAME=VALUE"),
        ("tau=x", "tau is 'x': give a value of type float."),
        ("crop=centre", "unknown crop 'centre'"),
        ("compile=perhaps", "compile is 'perhaps': give true or false"),
        ("loss=triplets", "unknown loss 'triplets': did you mean 'triplet'?"),
        ("epochs=0", "epochs is 0"),
        ("lr=-1", "lr is -1.0"),
        ("accumulate=0", "accumulate is 0"),
        ("validation_share=2", "validation_share is 2.0"),
        ("validation_split=test", "choosing a model on the 'test' split would make its final score too good"),
        ("select=best", "Test classes are never selected on"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Config().with_changes([change])


def test_saved_configs_with_unknown_keys_are_refused():
    with pytest.raises(ValueError, match="unknown part of a config 'modle': did you mean 'model'"):
        Config.from_dict({"modle": {}})
    with pytest.raises(ValueError, match="unknown setting of model 'dims': did you mean 'dim'"):
        Config.from_dict({"model": {"dims": 3}})
    with pytest.raises(ValueError, match="unknown recipe 'cub-proxyanchor': did you mean 'cub-proxy-anchor'"):
        recipe("cub-proxyanchor")
