"""Tar shards of class/name files; CUB-200-2011 is recognised among them and gets its split by class number."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from idml.data.sources import cub, folders
from idml.data.sources.records import Record, Source, check_counts, is_image
from idml.data.splits import TRAIN

NANOSECONDS = 10**9  # of a second, in which tars count


def recognises(source: Path) -> bool:
    return any(source.is_file() or any(_of_shard(shard)) for shard in _shards(source))


def records(source: Path) -> list[Record]:
    """All images of all shards, sorted by name; everything is for training."""
    found: dict[str, Record] = {}
    for shard in _shards(source):
        for record in _of_shard(shard):
            if record.name in found:
                raise ValueError(f"{record.name} is in {shard} and in {found[record.name].path}: keep one of them.")
            found[record.name] = record
    if not found:
        raise ValueError(f"{source} holds no images named class/name: put them into the tar that way.")
    return [found[name] for name in sorted(found)]


def recognises_birds(source: Path) -> bool:
    """Whether the shards hold CUB's first and last class."""
    shards = _shards(source)
    classes = {record.class_name for shard in shards for record in _of_shard(shard)} if shards else set()
    return {cub.FIRST_CLASS, cub.LAST_CLASS} <= classes


def bird_records(source: Path, *, expected: Mapping[str, int] = cub.EXPECTED) -> list[Record]:
    from dataclasses import replace

    listed = [replace(record, split=cub.split_of(int(record.class_name[:3]))) for record in records(source)]
    check_counts(cub.TITLE, listed, expected, hint=f"{cub.short_classes(listed)} Are all shards there?")
    return listed


def _shards(source: Path) -> list[Path]:
    """The tar itself, or those in a folder; a tar beside folders of images is a copy of them, or something else."""
    if not source.is_dir():
        return [source] if source.suffix == ".tar" else []
    found = sorted(source.glob("*.tar"))
    return found if found and not folders.recognises(source) else []


def _of_shard(shard: Path) -> Iterator[Record]:
    try:
        with tarfile.open(shard, "r:") as archive:  # not compressed, so that images can be read in place
            yield from (_record(member, shard) for member in archive if member.isfile() and _is_image(member.name))
    except tarfile.TarError as error:
        raise ValueError(f"{shard} cannot be read as an uncompressed tar ({error}): was it copied in full?") from None


def _is_image(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) >= 2 and is_image(path)


def _record(member: tarfile.TarInfo, shard: Path) -> Record:
    name = member.name.removeprefix("./")
    return Record(
        name=name,
        class_name=str(PurePosixPath(name).parent),
        split=TRAIN,
        length=member.size,
        changed=int(member.mtime * NANOSECONDS),
        path=str(shard),
        start=member.offset_data,
    )


BIRDS = Source(
    title=cub.TITLE,
    looked_for=f"*.tar with {cub.FIRST_CLASS}/… to {cub.LAST_CLASS}/…",
    recognises=recognises_birds,
    records=bird_records,
)
SOURCE = Source(
    title="tar shards",
    looked_for="*.tar with class/name files, and no folders of images beside them",
    recognises=recognises,
    records=records,
)
