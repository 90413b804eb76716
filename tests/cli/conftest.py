import sys

import pytest

from idml.cli.app import main


@pytest.fixture
def idml(capsys, monkeypatch, tmp_path):
    """Run the command in a folder of its own; its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["idml", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = capsys.readouterr()
        return int(end.value.code or 0), output, errors

    return run
