import pytest

from idml.atomic import writing


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
