"""`idml doctor`: what is installed, what there is to work on, and what is missing for which extra."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table

import idml

GIB = 1 << 30
PURPOSES = {  # by extra
    "lite": "pretrained EfficientNet-Lite0 without a network",
    "onnx": "idml export",
    "parquet": "embeddings as .parquet, from idml embed",
    "pml": "the introspective distance inside pytorch-metric-learning",
    "search": "idml index, search, review, serve",
    "wandb": "training curves on Weights & Biases",
    "all": "all of these",
    "dev": "tests, linters, type checks",
}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Tell what is installed, which devices there are, and what is missing for which extra."""
    found = examined()
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False, indent=2))
    else:
        Console(highlight=False).print(_shown(found))


def examined() -> dict[str, Any]:
    """Everything the command tells, as plain values; sizes in GiB."""
    required = _required()
    return {
        "idml": idml.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {package: _version(package) for package in required.pop("", [])},
        "devices": _devices(),
        "disk": {"folder": str(Path.cwd()), "free": shutil.disk_usage(Path.cwd()).free / GIB},
        "extras": {extra: _extra(extra, packages) for extra, packages in sorted(required.items())},
    }


def _required() -> dict[str, list[str]]:
    """The packages that idml names for each extra, and under "" those it always needs."""
    required: dict[str, list[str]] = {"": []}
    for line in metadata.requires("idml") or []:
        package = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)", line)
        if package != "idml":  # an extra that contains another one
            required.setdefault(extra[1] if extra else "", []).append(package)
    return required


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extra(name: str, packages: list[str]) -> dict[str, Any]:
    return {
        "purpose": PURPOSES.get(name, ""),
        "packages": {package: _version(package) for package in packages},
        "missing": [package for package in packages if _version(package) is None],
        "install": f"pip install 'idml[{name}]'",
    }


def _devices() -> list[dict[str, Any]]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    devices = [{"device": "cpu", "name": f"{cores} cores, {torch.get_num_threads()} threads", "memory": _memory()}]
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        # Emulated bfloat16 is slower than float32: it does not count.
        in_bfloat16 = "with" if about.major >= 8 or torch.version.hip else "without"
        name = f"{about.name}, {in_bfloat16} bfloat16"
        devices.append({"device": f"cuda:{number}", "name": name, "memory": about.total_memory / GIB})
    if torch.backends.mps.is_available():
        devices.append({"device": "mps", "name": platform.processor(), "memory": _memory()})
    return devices


def _memory() -> float | None:
    """Of the machine; None where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    except (AttributeError, ValueError, OSError):
        return None


def _shown(found: dict[str, Any]) -> Group:
    packages = _table("package", "version")
    for package, version in found["packages"].items():
        packages.add_row(package, version or f"[red]missing:[/] pip install {package}")
    devices = _table("device", "", "memory")
    for device in found["devices"]:
        memory = "" if device["memory"] is None else f"{device['memory']:.0f} GiB"
        devices.add_row(device["device"], device["name"], memory)
    extras = _table("extra", "for", "")
    for extra, about in found["extras"].items():
        install = about["install"].replace("[", "\\[")
        extras.add_row(extra, about["purpose"], install if about["missing"] else "[green]installed[/]")
    return Group(
        f"idml {found['idml']}, Python {found['python']}, {found['platform']}",
        packages,
        devices,
        f"{found['disk']['free']:.0f} GiB free in {found['disk']['folder']}",
        extras,
    )


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), title="", title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
