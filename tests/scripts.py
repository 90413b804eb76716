"""The scripts of `benchmarks/`, which are no package, as modules."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")


def benchmark(name: str) -> ModuleType:
    sys.path.insert(0, BENCHMARKS)
    try:
        return import_module(name)
    finally:
        sys.path.remove(BENCHMARKS)
