"""The tables of RESULTS.md, in Markdown, from lab logs.

    python benchmarks/cub_table.py LOG [LOG ...]               final runs, judged on the test classes
    python benchmarks/cub_table.py LOG [LOG ...] --validation  a search, judged on validation classes
    python benchmarks/cub_table.py LOG [LOG ...] --plot FILE   final runs: what both parts gain, as a picture
    python benchmarks/cub_table.py LOG [LOG ...] --failures    final runs: what tells queries that fail
    python benchmarks/cub_table.py LOG [LOG ...] --effort      a search: how many configurations each loss was tried in
    python benchmarks/cub_table.py --recipes                   what sets the recipes apart

Final runs are arms named LOSS ROW, as "proxy_anchor both": see `idml.paper.rows`. Logs may be incomplete.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from idml.paper.effort import effort
from idml.paper.failures import failure_table
from idml.paper.forms import forms
from idml.paper.gains import draw_gains
from idml.paper.tables import final_tables, validation_tables
from idml.sweeping.lab import Lab, Line


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="*", metavar="LOG")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--validation", action="store_true", help="the runs of a search instead of final ones")
    kinds.add_argument("--plot", type=Path, metavar="FILE.png", help="draw what both parts gain, instead of tables")
    kinds.add_argument("--failures", action="store_true", help="what tells queries that fail, instead of all tables")
    kinds.add_argument("--effort", action="store_true", help="how many configurations of each loss a search has tried")
    kinds.add_argument("--recipes", action="store_true", help="what sets the recipes apart: no log is read")
    options = parser.parse_args(arguments)
    if options.recipes:
        print(forms())
        return
    if not options.logs:
        parser.error("give one or more logs that `idml sweep --log` wrote.")
    for log in options.logs:
        if not log.exists():
            raise SystemExit(f"there is no log {log}: give files that `idml sweep --log` wrote.")
    try:
        lines = [line for log in options.logs for line in Lab(log).lines()]
        if options.plot:
            draw_gains(lines, options.plot)
            print(f"wrote {options.plot}")
        elif options.effort:
            print(effort(lines))
        elif options.failures:
            print(_failures(lines))
        else:
            print(_tables(lines, is_search=options.validation), end="")
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


def _failures(lines: Sequence[Line]) -> str:
    text = failure_table(lines)
    if not text:
        raise ValueError(f"none of {len(lines)} runs was judged by what tells failures: give logs of newer final runs.")
    return text


def _tables(lines: Sequence[Line], *, is_search: bool) -> str:
    text = validation_tables(lines) if is_search else final_tables(lines)
    if not text:
        kind, remedy = ("validation", "leave --validation out") if is_search else ("test", "add --validation")
        raise ValueError(f"none of {len(lines)} runs was judged on {kind} classes: {remedy}, or give other logs.")
    return text


if __name__ == "__main__":
    main()
