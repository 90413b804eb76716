"""`idml train`: from prepared images, or a plain folder of them, to a trained and evaluated model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from idml.cli.devices import chosen_device
from idml.cli.live import Live
from idml.cli.progress import Stages
from idml.recipes import RECIPES, recipe
from idml.training import distributed
from idml.training.effects import no_effect

DEFAULT = "photos"


def train(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `idml recipes`.")] = DEFAULT,
    data: Annotated[
        Path | None,
        typer.Option(help="A cache that `idml prepare` made, or what it can be made of: a folder per class, …"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of the recipe: tau=3. May be repeated. `idml recipes RECIPE` tells all."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="The run's folder. The same command again continues it.")] = None,
    test_share: Annotated[
        float, typer.Option(help="Share of the classes kept for testing, where --data is images without splits.")
    ] = 0.0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, where --data is images.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    wandb: Annotated[bool, typer.Option(help="Log to Weights & Biases too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON instead of a table.")] = False,
) -> None:
    """Train a model, evaluate it once on classes it never saw, and keep everything in the run's folder.

    A run may be interrupted at any moment: the same command goes on from its last checkpoint.
    """
    from idml.training.loop import train as run

    if data is None and name not in RECIPES and Path(name).exists():
        raise ValueError(f"{name} is there, but no recipe: did you mean --data {name}?")
    if data is None:
        raise ValueError("--data is missing: give a folder with one folder of images a class, or a prepared cache.")
    config = recipe(name).with_changes(changes or [])
    if seed is not None:
        config = config.with_changes({"seed": seed})
    idle = config.idle(change.partition("=")[0].strip() for change in changes or [])
    folder = output or Path("runs") / f"{name}-{data.resolve().name}-seed{config.run.seed}"
    with distributed.process_group(chosen_device(device)) as place:
        with distributed.first_rank_first():  # it prepares the images, and the others find them
            is_quiet = as_json or not distributed.is_first()
            cache = _cache(data, test_share, size=config.data.prepared_size, skip_bad=skip_bad, is_quiet=is_quiet)
        watch = Live(is_quiet=as_json)
        if idle:
            watch.say(f"warning: {no_effect(idle)}")
        try:
            scores = run(config, cache, folder, device=place, watch=watch, wandb=wandb)
        except KeyboardInterrupt:
            if distributed.is_first():
                typer.echo(_how_to_go_on(folder), err=True)
            raise
        if not distributed.is_first():
            return
    if as_json:
        typer.echo(json.dumps(scores, allow_nan=False, indent=2))
    else:
        _tell(scores, folder)


def _cache(data: Path, test_share: float, *, size: int, skip_bad: bool, is_quiet: bool) -> Path:
    """The cache itself, or one made of these images beside the runs, named after what it is made of.

    More images, or others in a folder of the same name, make another cache: no run loses the one it began with.
    """
    from idml.data.cache import is_cache
    from idml.data.prepare import carry_out, planned
    from idml.data.sources.records import PHOTOGRAPH

    if is_cache(data):
        if test_share:
            raise ValueError(f"{data} is prepared already, with its splits: give --test-share to `idml prepare`.")
        return data
    if not data.exists():
        raise ValueError(f"there is no {data}: give a folder with one folder of images a class, or a prepared cache.")
    plan = planned(data, test_share=test_share)
    if plan.size >= PHOTOGRAPH or plan.size > size:  # images as small as CIFAR's are not enlarged
        plan = replace(plan, size=size)
    name = data.resolve().name
    folder = Path("runs") / "caches" / f"{name}-{plan.size}-{plan.fingerprint[:8]}"
    held = sorted(place.name for place in folder.parent.glob("*") if place.name.startswith(f"{name}-"))
    with Stages(is_quiet=is_quiet) as stages:
        stages.begin(f"preparing {data}")
        carry_out(plan, folder, skip_bad=skip_bad, progress=stages.progress)
        if held and folder.name not in held:
            stages.say(f"{folder} is new, beside {', '.join(held)}: remove what no run needs")
    return folder


def _how_to_go_on(folder: Path) -> str:
    from idml.training.checkpoint import LAST
    from idml.training.runs import RunFolder

    is_saved = RunFolder(folder).checkpoint(LAST).exists()
    return f"the same command goes on from the checkpoint in {folder}." if is_saved else "the same command starts anew."


def _tell(scores: dict[str, Any], folder: Path) -> None:
    console = Console(highlight=False)
    if scores:
        conditions = f"{scores['query_count']:,} images of {scores['class_count']:,} classes"
        table = Table("score", "test classes, scored once", caption=conditions, caption_justify="left")
        for name, value in (*((f"Recall@{k}", v) for k, v in scores["recall"].items()), ("MAP@R", scores["map_at_r"])):
            table.add_row(name, f"{100 * value:.2f} %")
        console.print(table)
    kept = "model/, embeddings, scores.json, report.html, curves.png" if scores else "model/, curves.png"
    console.print(f"{folder}: {kept}", soft_wrap=True)
