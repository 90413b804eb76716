import errno
import os
import shutil
from types import SimpleNamespace

import pytest

from idml.atomic import check_place, writing


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "scores.json"
    target.write_text("old")

    def fail_midway() -> None:
        with writing(target) as file:
            file.write_text("half of the n")
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail_midway()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]


def test_folders_are_made_and_the_ending_is_kept(tmp_path):
    with writing(tmp_path / "new" / "rows.npz") as file:
        assert file.suffix == ".npz"  # numpy would add it otherwise
        file.write_text("new")
    assert (tmp_path / "new" / "rows.npz").read_text() == "new"


@pytest.mark.parametrize(
    ("error", "free"),
    [
        (RuntimeError("[enforce fail at inline_container.cc] unexpected pos 64 vs 0"), 1000),  # torch's
        (RuntimeError("I/O error: No space left on device (os error 28)"), 10**9),  # safetensors', which tidied up
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 10**9),
    ],
)
def test_a_full_disk_is_told_in_one_way_and_names_the_file(tmp_path, monkeypatch, error, free):
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    with pytest.raises(OSError, match="No space left on device") as told, writing(tmp_path / "last.pt"):
        raise error
    assert told.value.errno == errno.ENOSPC
    assert told.value.filename == str(tmp_path / "last.pt")


@pytest.mark.parametrize("error", [RuntimeError("midway"), PermissionError(errno.EACCES, "no")])
def test_other_failures_stay_what_they_are(tmp_path, monkeypatch, error):
    free = 10**9 if isinstance(error, RuntimeError) else 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    with pytest.raises(type(error)) as told, writing(tmp_path / "last.pt"):
        raise error
    assert told.value is error


def test_a_place_is_tried_before_anything_is_made(tmp_path):
    check_place(tmp_path / "new" / "plot.png")
    assert not any((tmp_path / "new").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        check_place(tmp_path / "file" / "plot.png")
    with pytest.raises(IsADirectoryError):
        check_place(tmp_path / "new")
