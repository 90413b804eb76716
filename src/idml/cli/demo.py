"""`idml demo`: the whole way in two minutes, on data that comes with scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from idml.cli.live import Live
from idml.cli.tables import runs_table
from idml.data.cache import Cache
from idml.data.prepare import prepare
from idml.data.splits import TEST, TRAIN
from idml.evaluation.embedded import Embedded
from idml.evaluation.judging import evaluate
from idml.recipes import recipe

TRAINING_DIGITS = 5  # 0 to 4; the others are never seen
PIXELS = 32
SHOWN = ("recall@1", "r_precision", "map_at_r", "nmi", "r_auroc", "r_auroc_of_confidence", "mean_level")
SHOWN += ("rises/blur/0.5", "rises/mix/1", "rises/low_resolution/0.5", "rises/crop/0.5", "rises/occlusion/0.5")
RUNS = {"plain": "digits-plain", "introspective": "digits"}


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the digits and both runs.")] = Path("runs") / "demo",
    seed: Annotated[int, typer.Option(help="Of both runs.")] = 0,
) -> None:
    """Train a plain and an introspective model on the digits 0 to 4, and retrieve among 5 to 9.

    Prints both rows with their intervals, and how ambiguous blurred and mixed digits look to the second.
    """
    from idml.training.loop import train

    console = Console(highlight=False)
    cache = digits(output)
    console.print(f"{len(cache.rows(TRAIN)):,} digits 0-4 to train on, {len(cache.rows(TEST)):,} digits 5-9 to find")
    scores = {}
    for name, chosen in RUNS.items():
        console.print(f"training: {name}")
        config = recipe(chosen).with_changes({"seed": seed})
        train(config, cache, output / name, watch=Live())
        embedded = Embedded.load(output / name)
        found = evaluate(embedded.embedding, embedded.labels, changed_levels=embedded.changed_levels)
        scores[name] = replace(found, queries=None)
    console.print(runs_table(scores, keys=SHOWN))
    report = (output / "introspective" / "report.html").resolve()
    console.print(f"the most and least certain digits, and blurred and mixed ones: {report}", soft_wrap=True)


def digits(folder: Path) -> Cache:
    """scikit-learn's digits as images in folders, prepared."""
    if not (folder / "digits").exists():
        _draw_digits(folder / "digits")
    return prepare(folder / "digits", folder / "cache", size=PIXELS)


def _draw_digits(folder: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)  # values from 0 to 16
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    for number, (row, label) in enumerate(zip(pixels, labels, strict=True)):
        split = TRAIN if label < TRAINING_DIGITS else TEST
        place = unfinished / split / str(label)
        place.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((row.reshape(8, 8) * (255 / 16)).astype("uint8"))
        image.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(place / f"{number:04}.png")
    unfinished.rename(folder)
