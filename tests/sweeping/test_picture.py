import pytest
from PIL import Image

from idml.sweeping.lab import stored
from idml.sweeping.picture import check_picture, draw
from idml.sweeping.space import Arm, arms_of_recipes, make_arms, read_over
from idml.sweeping.summary import Result, summarise


def search(*overs: str, recipes: tuple[str, ...] = ("digits",)) -> list[Arm]:
    return make_arms(arms_of_recipes(recipes, [], validation={}), [read_over(text) for text in overs])


def results(arms: list[Arm], *, score: str = "map_at_r") -> list[Result]:
    lines = [
        {"arm": arm.name, "seed": seed, "split": "validation", "data": "abc", "config": stored(arm.config)}
        | {"scores": {score: 0.4 + 0.01 * seed + 0.02 * number}, "stopped": None, "error": None, "seconds": 1.0}
        for number, arm in enumerate(arms)
        for seed in range(2)
    ]
    return summarise(lines)


@pytest.mark.parametrize(
    ("overs", "recipes"),
    [
        (["tau=1,3,5"], ("digits",)),
        (["lr=1e-5,1e-3"], ("digits",)),
        (["mixing=none,mixup"], ("digits",)),
        (["clip=none,inf,1"], ("digits",)),
        (["tau=1,3", "crop_scale=0.2,1;0.4,1"], ("digits",)),
        (["tau=1,3"], ("digits", "digits-plain")),
    ],
)
def test_a_grid_of_one_or_two_settings_is_drawn(overs, recipes, tmp_path):
    arms = search(*overs, recipes=recipes)
    path = tmp_path / "new" / "sweep.png"
    check_picture(path, arms, [read_over(text) for text in overs])
    draw(path, arms, results(arms), by="map_at_r")
    with Image.open(path) as image:
        assert min(image.size) > 300


def test_arms_without_the_score_are_left_out(tmp_path):
    arms = search("tau=1,3,5")
    for score in ("map_at_r", "aurc"):
        draw(tmp_path / "sweep.svg", arms, results(arms[:2], score=score), by="map_at_r")
        assert (tmp_path / "sweep.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("path", "overs", "recipes", "message"),
    [
        ("sweep.jpeg", ["tau=1,2"], ("digits",), "ends in '.jpeg': give a name that ends in .png"),
        ("sweep.png", [], ("digits",), "draws a grid over one or two settings"),
        ("sweep.png", ["tau=1,2", "gamma=0,1", "dim=8,16"], ("digits",), "draws a grid over one or two settings"),
        ("sweep.png", ["tau=1,2", "gamma=0,1"], ("digits", "photos"), "one setting where there are several"),
    ],
)
def test_what_cannot_be_drawn_is_told_beforehand(path, overs, recipes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        check_picture(tmp_path / path, search(*overs, recipes=recipes), [read_over(text) for text in overs])
    with pytest.raises(ValueError, match="draws a grid"):
        check_picture(tmp_path / "sweep.png", search("tau=1"), [read_over("lr=1e-5..1e-3")])
