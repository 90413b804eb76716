"""`idml prepare`: a dataset becomes a cache, which training and evaluation read at full speed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from idml.cli.progress import Stages
from idml.data.cache import META, Cache, named
from idml.data.prepare import prepare as prepare_cache
from idml.data.sources import SOURCES, find_source

GIB = 1 << 30


def prepare(
    source: Annotated[Path, typer.Argument(help="Folder of a dataset, a .csv of path,label[,split], or a .tar.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the cache; if not given, here, named after the source and the size."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help=f"What the source is, if it is not recognised: {', '.join(SOURCES)}.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Pixels of the short side; if not given 256, for CIFAR 32.", show_default=False)
    ] = None,
    square: Annotated[bool, typer.Option("--square", help="Resize both sides to the size.")] = False,
    test_share: Annotated[
        float, typer.Option(help="Share of the classes for the test split, where the source has no splits.")
    ] = 0.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that decode; if not given, one a core.", show_default=False)
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and list them.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another cache in the same place.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Decode a dataset once: resized images, labels and splits in one folder, read at full speed.

    Knows CUB-200-2011, Cars196, Stanford Online Products, In-shop and CIFAR as they are unpacked, with
    their standard splits; a folder of images for each class; a CSV; and tar shards of class/name files.
    Interrupted and run again, it goes on where it was. A finished cache is not made twice.
    """
    folder = output or _named_after(source, kind, size)
    with Stages(is_quiet=as_json) as stages:
        stages.begin(str(source))
        cache = prepare_cache(
            source,
            folder,
            kind=kind,
            size=size,
            square=square,
            test_share=test_share,
            workers=workers,
            skip_bad=skip_bad,
            overwrite=overwrite,
            progress=stages.progress,
        )
        stages.show(_table(cache))
        if cache.meta.skipped:
            stages.say(f"left out {named([name for name, _ in cache.meta.skipped])}: see {folder / META}")
        stages.say(f"ready in {folder}: {_rule(cache)}, {cache.meta.pixel_bytes / GIB:.2f} GiB")
    if as_json:
        typer.echo(json.dumps(_answer(cache), indent=2))


def _named_after(source: Path, kind: str | None, size: int | None) -> Path:
    size = size or SOURCES[find_source(source, kind=kind)].size
    return Path(f"{source.resolve().stem}-{size}")


def _answer(cache: Cache) -> dict[str, object]:
    splits = {split: len(cache.rows(split)) for split in cache.splits}
    return {"folder": str(cache.folder), "classes": len(cache.class_names), "splits": splits} | asdict(cache.meta)


def _table(cache: Cache) -> Table:
    labels = cache.labels
    table = Table(title=cache.meta.source)
    for heading in ("split", "images", "classes"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for split in cache.splits:
        rows = cache.rows(split)
        table.add_row(split, f"{len(rows):,}", f"{len(labels[rows].unique()):,}")
    if len(cache.splits) > 1:
        table.add_row("all", f"{len(cache):,}", f"{len(labels.unique()):,}", style="bold")
    return table


def _rule(cache: Cache) -> str:
    size = cache.meta.size
    return f"{size} × {size} pixels" if cache.meta.square else f"short side {size} pixels"
