"""Files appear whole or not at all: written beside their place, then moved there in one step."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

FULL = 1 << 20  # bytes: with less left, a disk counts as full


@contextmanager
def writing(path: Path | str) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when all went well, and vanishes when not.

    Libraries tell of a full disk in many ways: here it is an OSError with ENOSPC, always, which names the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(Path(folder) / "note.txt") as file:
    ...         _ = file.write_text("all of it")
    ...     (Path(folder) / "note.txt").read_text()
    'all of it'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.unfinished{path.suffix}")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except Exception as error:
        if not _is_of_a_full_disk(error, path.parent):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
    finally:
        unfinished.unlink(missing_ok=True)


def check_place(path: Path | str) -> None:
    """Raise the OSError now that writing there would raise after hours of work; leaves nothing but the folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=path.parent):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _is_of_a_full_disk(error: Exception, folder: Path) -> bool:
    """By its number, by its words, or, where it has neither (torch's), by what is left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOSPC
    return os.strerror(errno.ENOSPC) in str(error) or shutil.disk_usage(folder).free < FULL
