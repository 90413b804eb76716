"""From a dataset on disk to a cache: every image decoded once, by several processes, resumable, whole or not there.

The work is done in a hidden folder beside the wanted one and moved there at the end. Killed at any
moment and run again, it goes on where it was, and the cache is the same to the byte.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from idml.data.cache import BETWEEN_NAMES, FORMAT, Cache, Index, Meta, is_cache
from idml.data.decoder import Decoded, Stored, decode_stored
from idml.data.decoding import Decoder
from idml.data.journal import JOURNAL, Journal
from idml.data.sources import SOURCES, Record, find_source
from idml.data.splits import SPLITS, TEST, TRAIN, held_out_classes
from idml.progress import Progress, no_progress

CHUNK = 16  # images that a process decodes at a time
FEW = 32  # images, up to which no other process is worth starting
AHEAD = 3  # chunks for each process under way, so that none waits for the writing
SHOWN = 20  # problems that an error lists


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be made of what. place: where the source is."""

    kind: str
    place: Path
    size: int
    square: bool
    records: Sequence[Record]

    @cached_property
    def identities(self) -> list[int]:
        """A number for each record, which another name, class, split, length or time of change changes.

        The place is no part of it: a folder that is moved stays the same.
        """
        return [_identity(record) for record in self.records]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(np.array(self.identities, dtype="<u4").tobytes()).hexdigest()

    @property
    def rule(self) -> str:
        return f"{self.size} × {self.size} pixels" if self.square else f"a short side of {self.size} pixels"


def prepare(
    source: Path | str,
    folder: Path | str,
    *,
    kind: str | None = None,
    size: int | None = None,
    square: bool = False,
    test_share: float = 0.0,
    workers: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Cache:
    """Make a cache of a dataset in this folder, or open the one that is there already.

    kind: a key of SOURCES; if not given, the source is recognised. size: of the short side, or of both
    if square; if not given 256, for CIFAR 32. test_share: of the classes, where the source has no splits
    of its own; 0 leaves all for training. workers: processes; if not given, one a core. skip_bad: leave
    images out that cannot be read, rather than stop with a list of them. overwrite: replace another cache.
    """
    plan = planned(source, kind=kind, size=size, square=square, test_share=test_share)
    return carry_out(plan, folder, workers=workers, skip_bad=skip_bad, overwrite=overwrite, progress=progress)


def carry_out(
    plan: Plan,
    folder: Path | str,
    *,
    workers: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Cache:
    """As `prepare`, of what is planned already."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: give at least 1, or leave it out for one a core.")
    folder = Path(folder)
    if _is_there(folder, plan, skip_bad=skip_bad, overwrite=overwrite):
        return Cache.open(folder)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    options = f"format {FORMAT}, {plan.kind}, {plan.rule}"
    with Journal(unfinished, options, plan.identities, keep_problems=skip_bad, progress=progress) as journal:
        _decode(plan, journal, workers or _cores(), progress)
        problems = [
            (record.name, line.problem)
            for record, line in zip(plan.records, journal.lines, strict=True)
            if line.problem is not None
        ]
        if problems and not skip_bad:
            raise _unreadable(problems, len(plan.records))
        if len(problems) == len(plan.records):
            raise ValueError(f"none of the {len(problems)} images can be read, the first because {problems[0][1]}.")
        _finish(plan, journal, problems)
    _move(unfinished, folder)
    return Cache.open(folder)


def planned(
    source: Path | str,
    *,
    kind: str | None = None,
    size: int | None = None,
    square: bool = False,
    test_share: float = 0.0,
) -> Plan:
    """What `prepare` would make of a dataset under these options; no image is read yet."""
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share is {test_share}: give a share of the classes, from 0 to below 1.")
    source = Path(source)
    kind = find_source(source, kind=kind)
    size = SOURCES[kind].size if size is None else size
    if size < 1:
        raise ValueError(f"size is {size}: give the pixels of the short side, 256 for instance.")
    records = SOURCES[kind].records(source)
    if test_share > 0:
        records = _with_test_classes(records, test_share)
    return Plan(kind=kind, place=source.resolve(), size=size, square=square, records=records)


def _identity(record: Record) -> int:
    told = (record.name, record.class_name, record.split, str(record.length), str(record.changed))
    try:
        return zlib.crc32(BETWEEN_NAMES.join(told).encode())
    except UnicodeEncodeError:
        raise ValueError(
            f"the name {os.fsencode(record.name)!r} is not in UTF-8: rename that file or folder."
        ) from None


def _with_test_classes(records: Sequence[Record], share: float) -> list[Record]:
    """A share of the classes becomes the test split, always the same ones."""
    import torch

    splits = {record.split for record in records}
    if splits != {TRAIN}:
        raise ValueError(f"the source has the splits {', '.join(sorted(splits))} of its own: leave out the test share.")
    numbers = {name: number for number, name in enumerate(sorted({record.class_name for record in records}))}
    labels = torch.tensor([numbers[record.class_name] for record in records])
    held_out = set(held_out_classes(torch.arange(len(records)), labels, share=share)[1].tolist())
    return [replace(record, split=TEST if row in held_out else TRAIN) for row, record in enumerate(records)]


def _is_there(folder: Path, plan: Plan, *, skip_bad: bool, overwrite: bool) -> bool:
    """Whether the wanted cache exists already; raise if something else does, unless it is a cache to overwrite."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if not is_cache(folder):
        raise ValueError(f"{folder} exists and is no cache: choose another folder with --output.")
    if overwrite:
        return False
    meta = Meta.read(folder)
    if (meta.kind, meta.fingerprint, meta.size, meta.square) != (plan.kind, plan.fingerprint, plan.size, plan.square):
        held = replace(plan, size=meta.size, square=meta.square).rule
        raise ValueError(
            f"{folder} holds another cache ({meta.source}, {meta.images:,} images, {held}), or images have changed "
            "since: choose another folder with --output, or replace it with --overwrite."
        )
    if meta.skipped and not skip_bad:
        raise _unreadable(meta.skipped, meta.images + len(meta.skipped))
    return True


def _decode(plan: Plan, journal: Journal, workers: int, progress: Progress) -> None:
    left, number = plan.records[len(journal.lines) :], len(plan.records)
    try:
        for images in _decoded(left, size=plan.size, square=plan.square, workers=min(workers, len(left))):
            journal.append(images)
            progress("decoding", len(journal.lines) / number)
    except OSError as failure:
        if failure.errno != errno.ENOSPC:
            raise
        raise ValueError(
            f"the disk of {journal.folder.parent} is full after {len(journal.lines):,} of {number:,} images: free some "
            "space and run the same command again. It goes on from there."
        ) from None


def _decoded(records: Sequence[Record], *, size: int, square: bool, workers: int) -> Iterator[list[Decoded]]:
    """The images in order, by chunks. Each thread feeds a process of its own."""
    chunks = [[record.stored for record in records[first : first + CHUNK]] for first in range(0, len(records), CHUNK)]
    if len(records) <= FEW:
        for chunk in chunks:
            yield [decode_stored(stored, size=size, square=square) for stored in chunk]
        return
    decoders = [Decoder(size=size, square=square) for _ in range(workers)]
    idle: SimpleQueue[Decoder] = SimpleQueue()
    for decoder in decoders:
        idle.put(decoder)

    def work(chunk: Sequence[Stored]) -> list[Decoded]:
        decoder = idle.get()
        try:
            return decoder(chunk)
        finally:
            idle.put(decoder)

    under_way: deque[Future[list[Decoded]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for chunk in chunks:
            under_way.append(pool.submit(work, chunk))
            if len(under_way) > AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for decoder in decoders:
            decoder.kill()
        pool.shutdown(cancel_futures=True)
        for decoder in decoders:
            decoder.close()


def _finish(plan: Plan, journal: Journal, skipped: list[tuple[str, str]]) -> None:
    """The index of all readable images, then the meta file: from here on it is a cache."""
    pairs = [(record, line) for record, line in zip(plan.records, journal.lines, strict=True) if line.problem is None]
    class_names = list(dict.fromkeys(record.class_name for record in plan.records))
    split_names = sorted({record.split for record, _ in pairs}, key=SPLITS.index)
    numbers = {name: number for number, name in enumerate(class_names)}
    lengths = np.array([line.length for _, line in pairs], dtype=np.int64)
    index = Index(
        offsets=lengths.cumsum() - lengths,
        heights=np.array([line.height for _, line in pairs], dtype=np.int32),
        widths=np.array([line.width for _, line in pairs], dtype=np.int32),
        labels=np.array([numbers[record.class_name] for record, _ in pairs], dtype=np.int64),
        split_numbers=np.array([split_names.index(record.split) for record, _ in pairs], dtype=np.int32),
        checksums=np.array([line.checksum for _, line in pairs], dtype=np.int64),
        names=[record.name for record, _ in pairs],
        class_names=class_names,
        split_names=split_names,
    )
    Meta(
        kind=plan.kind,
        source=SOURCES[plan.kind].title,
        place=str(plan.place),
        fingerprint=plan.fingerprint,
        size=plan.size,
        square=plan.square,
        images=len(pairs),
        pixel_bytes=journal.length,
        index_checksum=index.write(journal.folder),
        skipped=skipped,
    ).write(journal.folder)


def _move(unfinished: Path, folder: Path) -> None:
    """Put the finished folder in its place; an older cache there goes once the new one has come."""
    for file in unfinished.iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    older = folder.with_name(f".{folder.name}.older")
    shutil.rmtree(older, ignore_errors=True)
    if folder.exists():
        folder.rename(older)
    unfinished.rename(folder)
    (folder / JOURNAL).unlink()
    shutil.rmtree(older, ignore_errors=True)


def _unreadable(problems: Sequence[tuple[str, str]], number: int) -> ValueError:
    listed = "".join(f"\n  {name}: {problem}" for name, problem in problems[:SHOWN])
    more = f"\n  … and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
    return ValueError(
        f"{len(problems):,} of {number:,} images cannot be read: mend or remove them, or leave them out with "
        f"--skip-bad.{listed}{more}"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
