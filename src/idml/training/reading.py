"""Settings as people write them, `tau=3`: read by the type of their leaf, and numbers checked against their range."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal

from idml.errors import unknown_name
from idml.losses import LOSSES

NAMES_OF_TYPES = {bool: "true, false", int: "whole number", float: "number", str: "text"}
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def split_change(change: str) -> tuple[str, str]:
    """Name and value of a change.

    >>> split_change("tau=3")
    ('tau', '3')
    """
    name, sign, value = change.partition("=")
    if not sign:
        raise ValueError(f"{change!r} sets nothing: write NAME=VALUE, such as tau=3.")
    return name.strip(), value.strip()


def read(name: str, value: Any, kind: Any) -> Any:
    """A value as the type wants it; text is read as that type, and nothing is rounded.

    >>> read("clip", "none", float | None), read("crop_scale", "0.2,1", tuple[float, float])
    (None, (0.2, 1.0))
    >>> read("frozen_layers", "conv1,bn1", tuple[str, ...]), read("frozen_layers", "none", tuple[str, ...])
    (('conv1', 'bn1'), ())
    """
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if value not in options:
            raise unknown_name(name, value, [str(option) for option in options])
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        kind = next(option for option in options if option is not type(None))
        return read(name, value, kind)
    if origin is tuple:
        is_any_number = options[-1] is ...
        if is_any_number and value in ("", "none"):
            return ()
        parts = value.split(",") if isinstance(value, str) else value
        if is_any_number and isinstance(parts, list | tuple):
            options = options[:1] * len(parts)
        if not isinstance(parts, list | tuple) or len(parts) != len(options):
            raise ValueError(f"{name} is {value!r}: give {len(options)} values with commas between them.")
        return tuple(read(name, part, option) for part, option in zip(parts, options, strict=True))
    if origin is dict:
        if value == "none":
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"{name} is {value!r}: set its keys one by one, {name}.KEY=VALUE, or none of them.")
        return {key: read_option(f"{name}.{key}", key, part) for key, part in value.items()}
    if kind is bool:
        if str(value).lower() not in WORDS:
            raise ValueError(f"{name} is {value!r}: give true or false.")
        return WORDS[str(value).lower()]
    try:
        found = kind(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not (kind is str or isinstance(value, str) or found == value):
        raise ValueError(f"{name} is {value!r}: give a {NAMES_OF_TYPES[kind]}.")
    return found


def written(value: Any) -> str:
    """A value as people write it, which `read` reads.

    >>> written((0.16, 1.0)), written(None), written(True), written(())
    ('0.16,1', 'none', 'true', 'none')
    """
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return ",".join(written(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        brief = f"{value:g}"
        return brief if math.isclose(float(brief), value) or math.isnan(value) else repr(value)
    return str(value)


def wanted(kind: Any) -> str:
    """What may be written for a value of that type.

    >>> wanted(float | None), wanted(tuple[float, float]), wanted(Literal["last", "best"])
    ('number or none', 'number,number', 'last, best')
    """
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(str(option) for option in options)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if option is type(None) else wanted(option) for option in options)
    if origin is tuple:
        return f"{wanted(options[0])},… or none" if options[-1] is ... else ",".join(wanted(each) for each in options)
    return NAMES_OF_TYPES[kind]


def read_option(name: str, key: str, value: Any) -> Any:
    """An option of a loss or of its miner, as the type of its default; options of one name are of one type in all."""
    leaf = name.partition(".")[0]
    called, known = OPTIONS[leaf]
    kinds = {each: kind for loss in LOSSES for each, kind in known(loss).items()}
    if key not in kinds:
        raise unknown_name(f"option of a {called}", key, kinds)
    return read(name, value, kinds[key])


def options_of(loss: str) -> dict[str, Any]:
    """The keywords of a loss, and their types.

    >>> options_of("fast_ap")
    {'bins': <class 'int'>, 'max_distance': <class 'float'>}
    """
    return _kinds("loss_options", loss)


def miner_options_of(loss: str) -> dict[str, Any]:
    """The keywords of the miner that chooses pairs for a loss; nothing where none does.

    >>> miner_options_of("multi_similarity"), miner_options_of("proxy_anchor")
    ({'epsilon': <class 'float'>}, {})
    """
    return _kinds("miner_options", loss)


def option_defaults(leaf: str, loss: str, *, dim: int | None = None) -> dict[str, Any]:
    """The values that options of a loss, or of its miner, have where nothing else is set.

    dim: of the model's semantic embedding, which an objective tells a miner that asks for it.

    >>> option_defaults("loss_options", "softmax")
    {'scale': 20.0, 'include_positive': True}
    >>> option_defaults("miner_options", "margin", dim=128)["dim"]
    128
    """
    function = _chosen(leaf, loss)
    parameters = [] if function is None else inspect.signature(function).parameters.values()
    return {
        each.name: dim if each.name == "dim" and dim is not None else each.default
        for each in parameters
        if each.kind is each.KEYWORD_ONLY and each.default is not None  # what can be written, so no generators
    }


def _kinds(leaf: str, loss: str) -> dict[str, Any]:
    function = _chosen(leaf, loss)
    kinds = {} if function is None else typing.get_type_hints(function)
    return {name: kinds[name] for name in option_defaults(leaf, loss)}


def _chosen(leaf: str, loss: str) -> Callable[..., Any] | None:
    """The function whose options these are."""
    return LOSSES[loss].function if leaf == "loss_options" else LOSSES[loss].miner


OPTIONS = {"loss_options": ("loss", options_of), "miner_options": ("miner", miner_options_of)}


def check_options(loss: str, leaf: str, names: Iterable[str]) -> None:
    """Raise for an option that this loss, or its miner, does not have."""
    called, options = OPTIONS[leaf]
    known = options(loss)
    for name in names:
        if name not in known:
            raise unknown_name(f"option of the {loss} loss" + ("" if called == "loss" else f"'s {called}"), name, known)


def check_choices(part: Any) -> None:
    """Raise if a leaf that is a choice holds none of them."""
    for name, kind in typing.get_type_hints(type(part)).items():
        if typing.get_origin(kind) is Literal:
            read(name, getattr(part, name), kind)


def check_at_least(part: Any, least: float, *names: str) -> None:
    """Raise if one of these leaves is below that; None is no number, and may be."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not least <= value < math.inf:  # True for NaN
            raise ValueError(f"{name} is {value}: give at least {least:g}.")


def check_above_0(part: Any, *names: str) -> None:
    """Raise if one of these leaves is 0 or below it; None is no number, and may be."""
    for name in names:
        value = getattr(part, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}: give a number above 0.")
