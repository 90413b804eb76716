import errno
import os

import pytest
import torch


@pytest.fixture
def failing(monkeypatch):
    """`idml recipes`, which fails in the way that is asked for."""

    def with_error(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr("idml.cli.recipes.RECIPES", {"some": fail})

    return with_error


def allocation_error() -> RuntimeError:
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**60, dtype=torch.uint8)
    return error.value


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (allocation_error(), ", for 1152921504606846976 bytes more"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0 has …"),
            ", for 20.50 MiB more",
        ),
        (MemoryError(), ""),
    ],
)
def test_too_little_memory_is_told_in_a_line_with_a_remedy(idml, failing, error, more):
    failing(error)
    code, _, errors = idml("recipes", "--json")
    assert code == 1
    assert f"error: there is not enough memory{more}: in training, lower batch, or set cached_chunk" in errors
    assert len(errors.splitlines()) == 1


def test_a_full_disk_is_told_with_the_file(idml, failing):
    failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/last.pt"))
    code, _, errors = idml("recipes", "--json")
    assert code == 1
    assert errors == (
        "error: No space left on device (runs/last.pt). "
        "The disk is full: free some space, or write elsewhere with --output.\n"
    )


def test_a_mistake_of_the_program_keeps_its_traceback(idml, failing):
    failing(RuntimeError("shapes (3, 4) and (5, 6) do not fit"))
    with pytest.raises(RuntimeError, match="do not fit"):
        idml("recipes", "--json")


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_of_processes_that_make_the_same_mistake_one_tells_it(idml, monkeypatch, rank, lines):
    monkeypatch.setenv("LOCAL_RANK", rank)
    code, _, errors = idml("train")
    assert code == 1
    assert len(errors.splitlines()) == lines
