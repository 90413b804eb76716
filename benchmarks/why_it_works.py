"""Figures by epoch from a lab log: the level of arms, and the share of their pairs that are saturated; or their scores.

    python benchmarks/why_it_works.py LOG --arms literal,stabilised [--output docs]
    python benchmarks/why_it_works.py LOG --arms "i-5:τ 5,i-.5-u10:τ 0.5"     a name and its label
    python benchmarks/why_it_works.py LOG --arms "a, 20 epochs:a;b, 20 epochs:b" --scores     names with commas

All seeds of an arm are drawn. Labels say the MAP@R that its runs ended with.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from idml.paper.figures import draw_figures, draw_scores
from idml.sweeping.lab import Lab


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--arms", required=True, metavar="NAME[:LABEL],...")
    parser.add_argument("--scores", action="store_true", help="MAP@R of validation classes, of any arms")
    parser.add_argument("--output", type=Path, default=Path("docs"), help="a folder")
    options = parser.parse_args(arguments)
    if not options.log.exists():
        raise SystemExit(f"there is no log {options.log}: give a file that `idml sweep --log` wrote.")
    texts = options.arms.split(";" if ";" in options.arms else ",")
    parts = [text.partition(":") for text in texts if text.strip()]
    arms = {name.strip(): label.strip() or name.strip() for name, _, label in parts}
    try:
        paths = (draw_scores if options.scores else draw_figures)(Lab(options.log).lines(), arms, options.output)
    except ValueError as mistake:
        raise SystemExit(str(mistake)) from None
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
