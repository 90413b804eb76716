"""`idml recipes`: which there are, and every setting of one of them, as --set takes it."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from idml.losses import LOSSES
from idml.recipes import RECIPES, recipe
from idml.training.config import PARTS, Config
from idml.training.reading import OPTIONS, option_defaults, wanted, written

INDENT = 4


class Setting(NamedTuple):
    """As it is in a recipe, what else it may be, and what it is for."""

    name: str
    value: str
    wanted: str
    note: str


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="RECIPE", help="Tell every setting of this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole configs as JSON.")] = False,
) -> None:
    """List the recipes that `idml train` knows, or tell every setting of one: what it is, and what it may be."""
    if as_json:
        every = {each: make().to_dict() for each, make in RECIPES.items()} if name is None else recipe(name).to_dict()
        typer.echo(json.dumps(every, indent=2))
    else:
        Console(highlight=False).print(_list() if name is None else _whole(name))


def settings_of(config: Config, part: str) -> Iterator[Setting]:
    """Options of the loss, and of its miner, one by one."""
    notes = notes_on(PARTS[part])
    for name, kind in typing.get_type_hints(PARTS[part]).items():
        value = config.leaf(name)
        if name in OPTIONS:
            _, kinds_of = OPTIONS[name]
            kinds = kinds_of(config.objective.loss)
            for key, default in option_defaults(name, config.objective.loss, dim=config.model.dim).items():
                yield Setting(f"{name}.{key}", written(value.get(key, default)), wanted(kinds[key]), "")
        else:
            yield Setting(name, written(value), ", ".join(LOSSES) if name == "loss" else wanted(kind), notes[name])


def notes_on(part: type) -> dict[str, str]:
    """What the docstring says of each setting."""
    _, text = _documented(part)
    names = "|".join(typing.get_type_hints(part))
    _, *found = re.split(rf"^({names}): ", text, flags=re.MULTILINE)
    return {name: " ".join(note.split()) for name, note in zip(found[::2], found[1::2], strict=True)}


def _list() -> Table:
    table = Table("recipe", "what it does", caption="idml recipes RECIPE tells all settings", caption_justify="left")
    for name, make in RECIPES.items():
        table.add_row(name, _documented(make)[0])
    return table


def _whole(name: str) -> Group:
    config, (summary, text) = recipe(name), _documented(RECIPES[name])
    paragraphs = [" ".join(paragraph.split()) for paragraph in (summary, *text.split("\n\n"))]
    shown: list[RenderableType] = [Text(name, style="bold"), *(_indented(each) for each in paragraphs if each)]
    for part, kind in PARTS.items():
        shown.append(Text(f"\n{part}: {_documented(kind)[0]}\n", style="bold underline"))
        settings = list(settings_of(config, part))
        idle = config.idle(setting.name for setting in settings)
        shown += [_entry(setting, is_idle=setting.name in idle) for setting in settings]
    return Group(*shown)


def _entry(setting: Setting, *, is_idle: bool) -> Group:
    line = Text.assemble((setting.name, "bold"), "=", setting.value, (f"   {setting.wanted}", "dim"))
    note = setting.note + (" (No effect beside the other settings.)" if is_idle else "")
    return Group(line, _indented(note.strip())) if note else Group(line)


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, INDENT))


def _documented(what: Any) -> tuple[str, str]:
    """The first line of a docstring, and the rest."""
    summary, _, rest = (inspect.getdoc(what) or "").partition("\n")
    return summary, rest.strip()
