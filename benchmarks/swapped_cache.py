"""A cache with the classes to train on and those to score swapped: do gains hold on the other half of a dataset?

    python benchmarks/swapped_cache.py cub-cache cub-swapped
    idml sweep --final --arms benchmarks/arms/cub-swapped.arms --data cub-swapped --log results/cub-swapped.jsonl
      --set backbone=resnet50_v1 --set weights=FILE

What was interrupted can be done again.
"""

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from idml.data.cache import PIXELS, Cache, is_cache
from idml.data.splits import TEST, TRAIN

SWAPPED = {TRAIN: TEST, TEST: TRAIN}


def swap(cache: Cache, folder: Path) -> None:
    """Write the cache again with its two splits swapped; the index, and so its checksum, is another one."""
    if set(cache.splits) != set(SWAPPED):
        raise ValueError(f"{cache.folder} has the splits {', '.join(cache.splits)}: it takes train and test to swap.")
    if is_cache(folder):
        raise ValueError(f"there is a cache in {folder} already: name another folder, or remove it.")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(cache.folder / PIXELS, folder / PIXELS)
    index = replace(cache.index, split_names=[SWAPPED[name] for name in cache.splits])
    replace(cache.meta, source=f"{cache.meta.source}, swapped", index_checksum=index.write(folder)).write(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    try:
        swap(Cache.open(options.cache), options.folder)
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


if __name__ == "__main__":
    main()
