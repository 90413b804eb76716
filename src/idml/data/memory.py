"""How much memory there is for images: on a GPU, or in the machine, which may grant a job less than it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

UNKNOWN = 4 << 30  # bytes, where the system tells nothing, as Windows does
KIB = 1 << 10
ABOUT_MEMORY, ABOUT_GROUPS = Path("/proc/meminfo"), Path("/proc/self/cgroup")
LIMITS = {  # of Linux's control groups, by the name of both versions: where they are, what is allowed and what is used
    "": (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    "memory": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
DETAILS = "memory.stat"
GIVEN_BACK = ("inactive_file", "total_inactive_file")  # files that are kept in memory until it has a better use


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a GPU; on a CPU, this process's share of what the ranks may still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _available() // (dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1)


def _available() -> int:
    """What Linux would still give to this job; elsewhere the memory of the machine; or a guess."""
    told = _numbers(ABOUT_MEMORY)
    if "MemAvailable" in told:
        return min([KIB * told["MemAvailable"], *_left_in_groups()])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _left_in_groups() -> Iterator[int]:
    """What each limit leaves that holds for this process; none outside of containers and batch jobs."""
    for line in _read(ABOUT_GROUPS).splitlines():
        _number, name, own = line.split(":", 2)
        if name not in LIMITS:
            continue
        root, allowed, used = LIMITS[name]
        place = root / own.strip("/")
        for folder in (place, *place.parents):
            numbers = [_read(folder / file).strip() for file in (allowed, used)]
            if folder.is_relative_to(root) and all(map(str.isdigit, numbers)):  # "max" is no limit
                limit, taken = map(int, numbers)
                details = _numbers(folder / DETAILS)
                yield max(0, limit - taken + max(details.get(kind, 0) for kind in GIVEN_BACK))


def _numbers(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.replace(":", " ").split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
