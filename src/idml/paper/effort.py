"""How much search each loss has had: in how many configurations its plain form was tried, and the method."""

from __future__ import annotations

import json
from collections.abc import Iterable

from idml.paper.forms import IN_ORDER
from idml.paper.markdown import table
from idml.paper.rows import TITLES
from idml.sweeping.lab import Line, with_effective_settings

KINDS = ("plain", "Mixup alone", "with uncertainty")
SAME = {  # settings by which two runs are no two configurations: how long, how they are scored, and computed
    "data": (
        "test_size",
        "validation_share",
        "validation_half",
        "validation_folds",
        "validation_seed",
        "validation_split",
    ),
    "run": (
        "epochs",
        "seed",
        "precision",
        "compile",
        "channels_last",
        "validate_every",
        "select",
        "checkpoint_minutes",
    ),
}


def configurations(lines: Iterable[Line]) -> dict[str, dict[str, int]]:
    """Of each loss, by kind, the different configurations that were judged on validation classes."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in lines:
        if line["split"] != "validation":
            continue
        config = with_effective_settings(line)["config"]
        what = {
            part: {name: value for name, value in leaves.items() if name not in SAME.get(part, ())}
            for part, leaves in config.items()
        }
        kinds = found.setdefault(config["objective"]["loss"], {kind: set() for kind in KINDS})
        kinds[_kind(config)].add(json.dumps(what, sort_keys=True))
    return {loss: {kind: len(some) for kind, some in kinds.items()} for loss, kinds in found.items()}


def effort(lines: Iterable[Line]) -> str:
    """The table, in Markdown; losses without a run are left out."""
    found = configurations(lines)
    rows = [[TITLES[loss], *(str(found[loss][kind]) for kind in KINDS)] for loss in IN_ORDER if loss in found]
    return table(["loss", *KINDS], rows)


def _kind(config: dict) -> str:
    if config["objective"]["introspective"]:
        return "with uncertainty"
    return "plain" if config["mixing"]["mixing"] == "none" else "Mixup alone"
