"""Complete configs under a name: one function a recipe, its docstring the command, the cost and the result."""

from collections.abc import Callable

from idml.errors import unknown_name
from idml.recipes import cub, photos
from idml.training.config import Config

Recipe = Callable[[], Config]


def baseline_of(make: Recipe) -> Recipe:
    """The same loss on its plain distance, not mixed, with settings of its own where they are better for it."""
    own = cub.OF_PLAIN.get(make.__name__, {})

    def plain() -> Config:
        return make().plain().with_changes(own)

    of_its_own = ", with settings of its own" if own else ""
    plain.__doc__ = f"The baseline of {name_of(make)}: plain, and not mixed{of_its_own}."
    return plain


def name_of(make: Recipe) -> str:
    """The name of a recipe for CUB."""
    return f"cub-{make.__name__.replace('_', '-')}"


RECIPES: dict[str, Recipe] = {
    "photos": photos.photos,
    "photos-plain": photos.photos_plain,
    "digits": photos.digits,
    "digits-plain": photos.digits_plain,
    **{name_of(make): make for make in cub.EVERY_LOSS},
    **{f"{name_of(make)}-plain": baseline_of(make) for make in cub.EVERY_LOSS},
}


def recipe(name: str) -> Config:
    """The config of that name."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]()
