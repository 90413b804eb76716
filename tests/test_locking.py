import errno

from idml.locking import lock


def test_a_file_is_held_by_one_at_a_time(tmp_path):
    with (tmp_path / "log").open("w") as one:
        assert lock(one.fileno(), wait=False)
        with (tmp_path / "log").open("w") as other:
            assert not lock(other.fileno(), wait=False)
    with (tmp_path / "log").open("w") as later:
        assert lock(later.fileno(), wait=True)


def test_a_file_system_without_locks_holds_nobody_up(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with (tmp_path / "log").open("w") as file:
        assert lock(file.fileno(), wait=True)
        assert lock(file.fileno(), wait=False)
