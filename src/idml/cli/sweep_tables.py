"""What came out of a sweep, as tables for people, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from idml.errors import unknown_name
from idml.sweeping.epochs import curves, epoch_table
from idml.sweeping.summary import DIFFERENCE, SHOWN, caption, named_score, parted, summarise, table

CELL_BORDER = 3  # characters around a cell


def tell(lines: Sequence[dict[str, Any]], *, by: str, against: str | None, as_json: bool) -> None:
    """The tables, one for each set of classes; or all their rows as JSON."""
    parts = parted(lines)
    tables = [summarise(part, by=by) for part in parts]
    if against is not None:
        known = [{result.arm for result in results} for results in tables]
        if not any(against in names for names in known):
            raise unknown_name("arm", against, set().union(*known))
        tables = [
            summarise(part, by=by, against=against if against in names else None)
            for part, names in zip(parts, known, strict=True)
        ]
    if as_json:
        rows = [result.to_dict() for results in tables for result in results]
        typer.echo(json.dumps(rows, allow_nan=False, indent=2))
        return
    console = Console(highlight=False)
    for results in tables:
        _show(console, results, by)
        for result in results:
            for seed, error in result.failed.items():
                console.print(f"{result.arm}, seed {seed} failed: {error}", markup=False, soft_wrap=True)


def tell_epochs(lines: Sequence[dict[str, Any]], *, by: str, as_json: bool) -> None:
    """Scores after each epoch, as many epochs as fit, a table for each set of classes; or all of them as JSON."""
    every = [found for part in parted(lines) if (found := curves(part, by=by))]
    if not every:
        raise ValueError("no run in the log was validated on the way: train with validate_every=2, for instance.")
    if as_json:
        typer.echo(json.dumps([asdict(curve) for found in every for curve in found], indent=2))
        return
    console = Console(highlight=False)
    for found in every:
        columns = len({epoch for curve in found for epoch in curve.means})
        cells = epoch_table(found, by=by)
        while columns > 1 and _width(cells) > console.width:
            columns -= 1
            cells = epoch_table(found, by=by, columns=columns)
        words = f"{named_score(by).heading} of validation classes after so many epochs, means over seeds"
        console.print(_drawn(cells, caption=words))


def _show(console: Console, results: Sequence[Any], by: str) -> None:
    """One table, with as many scores as fit."""
    keys, words = list(SHOWN), caption(results)
    while keys and _width(table(results, by=by, keys=keys)) > console.width:
        keys.pop()
    headings, *rows = table(results, by=by, keys=keys)
    if len(headings) < len(table(results, by=by)[0]):
        words += "; more scores in a wider window, or with --json"
    console.print(_drawn([headings, *rows], caption=words))


def _drawn(cells: Sequence[Sequence[str]], *, caption: str) -> Table:
    headings, *rows = cells
    shown = Table(caption=Text(caption), caption_justify="left")
    for heading in headings:
        is_number = heading != headings[0] and not heading.startswith(DIFFERENCE)
        shown.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Of a table whose first and last columns may be broken between words."""
    columns = list(zip(*rows, strict=True))
    broken = [[word for cell in columns[place] for word in cell.split()] for place in (0, -1)]
    return sum(max(map(len, cells)) + CELL_BORDER for cells in (*columns[1:-1], *broken)) + 1
