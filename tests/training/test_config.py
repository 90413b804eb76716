import itertools
import json
import re
from dataclasses import replace

import pytest

from idml.losses import LOSSES
from idml.recipes import RECIPES, recipe
from idml.training.building import build_objective
from idml.training.config import Config
from idml.training.parts import ModelConfig, OptimiserConfig
from idml.training.reading import miner_options_of, options_of


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


@pytest.mark.parametrize(
    ("loss", "key", "text", "value"),
    [
        ("fast_ap", "bins", "20", 20),
        ("triplet", "mining", "all", "all"),
        ("softmax", "include_positive", "false", False),
        ("contrastive", "negative_margin", "1", 1.0),
    ],
)
def test_options_are_read_as_the_type_of_the_losss_default(loss, key, text, value):
    """Whether the loss is changed before them or after them."""
    changes = [f"loss={loss}", f"loss_options.{key}={text}"]
    for order in (changes, changes[::-1]):
        config = Config().with_changes(order)
        assert config.objective.loss_options == {key: value}
        assert type(config.objective.loss_options[key]) is type(value)
        assert build_objective(config, 4).loss_options == {key: value}


@pytest.mark.parametrize("options", [options_of, miner_options_of])
def test_options_of_one_name_are_of_one_type_in_all_losses(options):
    kinds: dict[str, type] = {}
    for loss in LOSSES:
        for name, kind in options(loss).items():
            assert kinds.setdefault(name, kind) is kind, name


def test_options_of_a_losss_miner_reach_it():
    config = Config().with_changes(["miner_options.dim=64", "loss=margin"])
    assert config.objective.miner_options == {"dim": 64}
    assert build_objective(config, 4).miner_options == {"dim": 64}
    assert config.plain().objective.miner_options == {"dim": 64}


def test_a_loss_and_its_options_are_changed_together():
    config = Config().with_changes(["loss_options.alpha=16"])
    for changes in (["loss=triplet"], ["loss=triplet", "loss_options.margin=0.3"]):
        with pytest.raises(ValueError, match=r"loss_options.alpha is set for proxy_anchor, not for triplet: give"):
            config.with_changes(changes)
    assert config.with_changes(["loss=triplet", "loss_options=none"]).objective.loss_options == {}
    changed = config.with_changes(["loss=triplet", "loss_options=none", "loss_options.margin=0.3"])
    assert changed.objective.loss_options == {"margin": 0.3}
    changed = config.with_changes({"loss": "triplet", "loss_options": {"margin": 0.2}})
    assert changed.objective.loss_options == {"margin": 0.2}
    again = ["loss=multi_similarity", "loss_options=none", "loss_options.alpha=16"]
    assert config.with_changes(again).objective.loss_options == {"alpha": 16}


def test_options_of_one_loss_do_not_go_on_to_another_that_has_them_too():
    with pytest.raises(ValueError, match="loss_options.alpha is set for proxy_anchor, not for multi_similarity"):
        Config().with_changes(["loss_options.alpha=16"]).with_changes(["loss=multi_similarity"])


def test_the_last_word_on_a_setting_counts_in_the_order_of_last_words():
    words = ["loss_options.margin=0.2", "loss_options=none", "loss_options.margin=0.3"]
    assert Config().with_changes(["loss=triplet", *words]).objective.loss_options == {"margin": 0.3}
    assert Config().with_changes(["loss=triplet", *words, "loss_options=none"]).objective.loss_options == {}


def test_numbers_are_finite():
    for change in ("level_prior=inf", "mixed_weight=inf", "uncertainty_level=inf", "lr=inf"):
        with pytest.raises(ValueError, match=f"{change.partition('=')[0]} is inf: give"):
            Config().with_changes([change])


def test_choices_of_options_are_those_of_the_loss():
    with pytest.raises(ValueError, match="unknown loss_options.mining 'hard'.*Known: all, semihard"):
        Config().with_changes(["loss=triplet", "loss_options.mining=hard"])
    with pytest.raises(ValueError, match="flip is 2: give true or false"):
        Config().with_changes({"flip": 2})


def test_numbers_are_not_rounded_to_fit():
    with pytest.raises(ValueError, match=re.escape("batch is 20.5: give a whole number.")):
        Config().with_changes({"batch": 20.5})


def test_settings_are_read_by_their_own_names():
    config = Config().with_changes(["tau=3", "loss_options.margin=0.2"])
    assert config.leaf("tau") == 3.0
    assert config.leaf("loss_options.margin") == 0.2
    assert config.leaf("loss_options.alpha") is None
    for name, message in (("taus", "unknown setting 'taus'"), ("tau.x", "tau has no keys")):
        with pytest.raises(ValueError, match=message):
            config.leaf(name)


def test_the_plain_form_differs_in_the_method_alone():
    config = recipe("cub-proxy-anchor")
    plain = config.plain()
    assert not plain.objective.introspective
    assert plain.mixing.mixing == "none"
    assert (plain.data, plain.run) == (config.data, config.run)
    usual = ModelConfig()
    of_uncertainty = ("uncertainty_gradient", "uncertainty_level", "uncertainty_starts_equal")
    assert plain.model == replace(config.model, **{name: getattr(usual, name) for name in of_uncertainty})
    without_its_layer = replace(config.optimiser, uncertainty_factor=OptimiserConfig().uncertainty_factor)
    assert plain.optimiser == without_its_layer


def test_the_plain_form_keeps_what_has_no_effect_for_other_reasons():
    apart = ["loss=contrastive", "proxy_factor=500", "validate_every=5", "crop=resize_and_crop", "crop_scale=0.5,1"]
    config = Config().with_changes(apart)
    plain = config.plain()
    assert (plain.data, plain.run) == (config.data, config.run)
    assert plain.optimiser.proxy_factor == 500


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_complete_and_survive_json(name):
    config = recipe(name)
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert RECIPES[name].__doc__


def test_features_of_images_that_are_not_in_the_batch_cannot_be_mixed():
    with pytest.raises(ValueError, match="mixed_from=others has images of its own, and mixing=features none"):
        Config().with_changes(["mixing=features", "mixed_from=others"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("mixed_labels=sets", "mixed_labels is sets, .*: set mixed_labels=loss_shares, or mixed_teaches=all"),
        ("mixed_labels=classes", "mixed_labels is classes, .*: set mixed_labels=loss_shares, or mixed_teaches=all"),
        ("mixed_against=all", "mixed_against is all, .*: set it to mixed or originals, or mixed_teaches=all"),
        ("uncertainty=random", "uncertainty is random, .*: set mixing=none, or mixed_teaches=all"),
        ("frozen_batch_norm=false", "frozen_batch_norm is false, .*: set frozen_batch_norm=true, mixing=features, or"),
    ],
)
def test_what_mixed_images_cannot_teach_alone_is_told_where_they_would(change, message):
    teaching = ["mixing=mixup", "mixed_teaches=uncertainty", change]
    with pytest.raises(ValueError, match=message):
        Config().with_changes(teaching)
    for idle in ("introspective=false", "mixing=none"):
        Config().with_changes([*teaching, idle])


def test_mixed_features_can_teach_alone_beside_batch_norm_that_is_not_frozen():
    Config().with_changes(["mixing=features", "mixed_teaches=uncertainty", "frozen_batch_norm=false"])


def test_whom_mixed_images_teach_is_no_matter_where_there_is_no_uncertainty():
    config = Config().with_changes(["mixing=mixup", "mixed_teaches=uncertainty"])
    assert config.idle(["mixed_teaches"]) == []
    assert config.with_changes(["introspective=false"]).idle(["mixed_teaches"]) == ["mixed_teaches"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("taus=3", "unknown setting 'taus': did you mean 'tau'?"),
        ("tau", "'tau' sets nothing: write NAME=VALUE"),
        ("tau=x", "tau is 'x': give a number."),
        ("crop=centre", "unknown crop 'centre'"),
        ("compile=perhaps", "compile is 'perhaps': give true or false"),
        ("loss=triplets", "unknown loss 'triplets': did you mean 'triplet'?"),
        ("epochs=0", "epochs is 0"),
        ("lr=-1", "lr is -1.0"),
        ("accumulate=0", "accumulate is 0"),
        ("cached_chunk=-1", "cached_chunk is -1: give at least 1."),
        ("validate_every=0", "validate_every is 0: give at least 1."),
        ("image_size=0", "image_size is 0"),
        ("test_size=0", "test_size is 0"),
        ("per_class=0", "per_class is 0"),
        ("dim=0", "dim is 0"),
        ("clip=-1", "clip is -1.0: give a number above 0."),
        ("concentration=0.001", "concentration is 0.001: give at least 0.01."),
        ("checkpoint_minutes=nan", "checkpoint_minutes is nan: give at least 0."),
        ("uncertainty_gradient=-1", "uncertainty_gradient is -1.0"),
        ("crop_scale=0.2", "crop_scale is '0.2': give 2 values with commas between them."),
        ("crop_scale=0.9,0.2", "crop_scale is 0.9,0.2: give two shares of the image's area"),
        ("crop_scale=20,100", "crop_scale is 20,100"),
        ("tau.x=3", "tau.x is no setting, for tau has no keys: write tau=VALUE."),
        ("loss_options=3", "loss_options is '3': set its keys one by one, loss_options.KEY=VALUE, or none of them."),
        ("loss_options.margins=1", "unknown option of a loss 'margins': did you mean 'margin'?"),
        ("loss_options.miner_options=3", "unknown option of a loss 'miner_options'"),
        ("loss_options.bins=20", "unknown option of the proxy_anchor loss 'bins'"),
        ("miner_options.epsilons=1", "unknown option of a miner 'epsilons': did you mean 'epsilon'?"),
        ("miner_options.generator=1", "unknown option of a miner 'generator'"),
        ("miner_options.epsilon=1", "unknown option of the proxy_anchor loss's miner 'epsilon'"),
        ("loss_options.margin=x", "loss_options.margin is 'x': give a number."),
        ("validation_share=2", "validation_share is 2.0"),
        ("validation_folds=1", "validation_folds is 1: give at least 2."),
        ("validation_split=test", "choosing a model on the 'test' split would make its final score too good"),
        ("select=best", "Test classes are never selected on"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Config().with_changes([change])


def test_noise_is_a_share_of_what_is_learned():
    with pytest.raises(ValueError, match="uncertainty_noise is 1.5: give a number from 0 to 1"):
        Config().with_changes(["uncertainty_noise=1.5"])
    with pytest.raises(ValueError, match="uncertainty_noise is 0.5, and uncertainty=common is a control without it"):
        Config().with_changes(["uncertainty_noise=0.5", "uncertainty=common"])


def test_proxies_that_are_not_there_cannot_be_uncertain():
    with pytest.raises(ValueError, match="learn_proxy_uncertainty is true, and margin has no proxies: set it to false"):
        Config().with_changes(["loss=margin", "learn_proxy_uncertainty=true"])
    assert Config().with_changes(["loss=margin", "learn_proxy_uncertainty=true", "introspective=false"])


def test_images_that_start_equal_have_a_level_to_start_with():
    with pytest.raises(ValueError, match="uncertainty_starts_equal needs an uncertainty_level"):
        Config().with_changes(["uncertainty_starts_equal=true", "uncertainty_level=none"])


def test_classes_are_held_out_in_one_way():
    ways = ["validation_half=first", "validation_share=0.2", "validation_folds=5"]
    for one, other in itertools.combinations(ways, 2):
        with pytest.raises(ValueError, match="both hold out classes: hold them out in one way"):
            Config().with_changes([one, other])


def test_saved_configs_with_unknown_keys_are_refused():
    with pytest.raises(ValueError, match="unknown part of a config 'modle': did you mean 'model'"):
        Config.from_dict({"modle": {}})
    with pytest.raises(ValueError, match="unknown setting of model 'dims': did you mean 'dim'"):
        Config.from_dict({"model": {"dims": 3}})
    with pytest.raises(ValueError, match="unknown recipe 'cub-proxyanchor': did you mean 'cub-proxy-anchor'"):
        recipe("cub-proxyanchor")
