import os

import pytest
import torch
import torch.distributed as dist

from idml.data import memory
from idml.data.memory import free_memory

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A Linux machine with 100 MiB available, and no limits."""
    root = tmp_path / "groups"
    monkeypatch.setattr(memory, "ABOUT_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "ABOUT_GROUPS", tmp_path / "cgroup")
    limits = {"": (root, "memory.max", "memory.current"), "memory": (root / "memory", "limit", "usage")}
    monkeypatch.setattr(memory, "LIMITS", limits)
    (tmp_path / "meminfo").write_text(
        f"MemTotal:  {900 * 1024} kB\nMemAvailable:  {100 * 1024} kB\nHugePages_Total: 0\n"
    )
    (tmp_path / "cgroup").write_text("4:memory:/job/step\n3:cpu,cpuacct:/\n0::/job/step\n")
    return tmp_path


def limit(folder, names, *, allowed, used, given_back=0, kind="inactive_file"):
    folder.mkdir(parents=True)
    (folder / names[0]).write_text(f"{allowed}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{kind} {given_back}\n")


@pytest.mark.usefixtures("machine")
def test_what_is_available_counts_and_not_what_is_built_in():
    assert free_memory(CPU) == 100 * MIB


def test_the_limits_of_a_job_and_of_all_around_it_hold(machine):
    names = ("memory.max", "memory.current")
    limit(machine / "groups" / "job", names, allowed=40 * MIB, used=30 * MIB, given_back=5 * MIB)
    limit(machine / "groups" / "job" / "step", names, allowed="max", used=30 * MIB)
    assert free_memory(CPU) == 15 * MIB


def test_the_older_kind_of_limits_holds_too(machine):
    limit(
        machine / "groups" / "memory" / "job" / "step",
        ("limit", "usage"),
        allowed=60 * MIB,
        used=50 * MIB,
        given_back=10 * MIB,
        kind="total_inactive_file",
    )
    assert free_memory(CPU) == 20 * MIB


@pytest.mark.usefixtures("machine")
def test_ranks_share_it(monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    assert free_memory(CPU) == 25 * MIB


def test_other_systems_tell_what_is_built_in_or_nothing(machine, monkeypatch):
    (machine / "meminfo").unlink()
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.get)
    assert free_memory(CPU) == 4_096_000
    monkeypatch.delattr(os, "sysconf")
    assert free_memory(CPU) == memory.UNKNOWN
