"""Complete configs under a name: one function a recipe, its docstring the command, the cost and the result."""

from collections.abc import Callable

from idml.errors import unknown_name
from idml.recipes import cub, photos
from idml.training.config import Config

RECIPES: dict[str, Callable[[], Config]] = {
    "photos": photos.photos,
    "photos-plain": photos.photos_plain,
    "digits": photos.digits,
    "digits-plain": photos.digits_plain,
    "cub-proxy-anchor": cub.proxy_anchor,
    "cub-proxy-anchor-plain": cub.proxy_anchor_plain,
    "cub-multi-similarity": cub.multi_similarity,
    "cub-multi-similarity-plain": cub.multi_similarity_plain,
    "cub-contrastive": cub.contrastive,
    "cub-contrastive-plain": cub.contrastive_plain,
}


def recipe(name: str) -> Config:
    """The config of that name."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]()
