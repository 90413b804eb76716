"""The tables of RESULTS.md, in Markdown, from lab logs.

    python benchmarks/cub_table.py LOG [LOG ...]               final runs, judged on the test classes
    python benchmarks/cub_table.py LOG [LOG ...] --validation  a search, judged on validation classes

Final runs are arms named LOSS ROW, as "proxy_anchor both": see `idml.paper.tables`. Logs may be incomplete.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from idml.paper.tables import final_tables, validation_tables
from idml.sweeping.lab import Lab


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG")
    parser.add_argument("--validation", action="store_true", help="the runs of a search instead of final ones")
    options = parser.parse_args(arguments)
    for log in options.logs:
        if not log.exists():
            raise SystemExit(f"there is no log {log}: give files that `idml sweep --log` wrote.")
    try:
        lines = [line for log in options.logs for line in Lab(log).lines()]
        text = validation_tables(lines) if options.validation else final_tables(lines)
    except ValueError as mistake:
        raise SystemExit(str(mistake)) from None
    if not text:
        kind, remedy = ("validation", "leave --validation out") if options.validation else ("test", "add --validation")
        raise SystemExit(f"none of {len(lines)} runs was judged on {kind} classes: {remedy}, or give other logs.")
    print(text, end="")


if __name__ == "__main__":
    main()
