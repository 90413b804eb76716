"""Tables for RESULTS.md, from lines of lab logs: each loss with and without its parts, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from idml.paper.markdown import gain, table
from idml.paper.numbers import TABLES, printed
from idml.paper.rows import (
    COMPARED,
    RIVALS,
    ROWS,
    TITLES,
    at_equal_settings,
    by_loss,
    final_lines,
    held_against,
    results_of,
)
from idml.sweeping.lab import Line
from idml.sweeping.summary import NOTHING, Result, named_score, parted, summarise
from idml.training.config import Config

GLANCED = ("plain", "mixup", "introspective", "both")  # in the tables that have a line a loss
INGREDIENTS: dict[str, tuple[str, str]] = {  # the row that has it, and the one that lacks it, at equal settings
    "Mixup": ("mixup", "plain"),
    "uncertainty": ("introspective", "plain"),
    "both": ("both", "plain"),
    "uncertainty beside Mixup": ("both", "mixup"),
    "Mixup beside uncertainty": ("both", "introspective"),
    "control: random uncertainty": ("random", "plain"),
    "control: one level for all": ("common", "plain"),
    "twice the passes": ("passes", "plain"),
}
PAPER_NAMES = {"cub": "cub200", "car": "cars196", "sop": "products", "product": "products"}  # by how a cache is called
RETRIEVAL: dict[str, str] = {
    "recall@1": "R@1",
    "recall@2": "R@2",
    "recall@4": "R@4",
    "recall@8": "R@8",
    "nmi": "NMI",
    "r_precision": "RP",
    "map_at_r": "MAP@R",
}
AT_IMAGE_SIZE: dict[str, str] = {key: f"{key}_at_image_size" for key in COMPARED}  # on crops as large as in training
UNCERTAINTY: dict[str, str] = {"r_auroc": "R-AUROC", "aurc": "AURC ↓", "mixed_auroc": "mixed AUROC"}
DOUBTS: dict[str, tuple[str, ...]] = {
    "level clean / mixed": ("level_clean", "level_mixed"),
    "weight positive / negative / mixed": ("weight_positive", "weight_negative", "weight_mixed"),
    "deviation of weights": ("weight_deviation",),
}
COMMON = ("image_size", "test_size", "lr", "schedule", "epochs", "average")  # arms that share these share a table
CAPTION = (
    "mean ± standard deviation over seeds, in %; differences in points, with half their 95 % interval, by paired "
    "t-tests on common seeds. Weights, by which distances are multiplied for their uncertainty (e^(−β̃/τ), or what a "
    "centred distance has in its place), are means over pairs in the last epoch, and so is their standard deviation "
    "over the pairs of a batch; seconds are the median of "
    "whole runs. The paper's numbers are as printed; its released code picks the epoch on the test classes."
)


def final_tables(lines: Sequence[Line]) -> str:
    """Markdown of the runs that were judged on test classes; the empty text where there is none.

    Raises if two settings share the name of an arm, for then nobody could tell which of them a row shows.
    """
    texts = []
    for part in parted(final_lines(lines)):
        named, others = by_loss(part)
        blocks = [_block(loss, rows) for loss, rows in named.items()]
        if blocks:
            glance = [*_glance(named), _ingredients(named)]
            texts += [f"## {part[0].get('dataset', '')}", _conditions(part), *glance, *blocks]
        if others:
            texts.append(f"Not shown, for their names are no LOSS ROW: {', '.join(others)}.")
    return _joined(texts)


def validation_tables(lines: Sequence[Line]) -> str:
    """Markdown of a search, judged on validation classes: a table for each set of common settings, best arm first."""
    lines = [line for line in lines if line["split"] == "validation"]
    texts = []
    for part in parted(lines):
        texts.append(f"## {part[0].get('dataset', '')}, validation classes")
        groups: dict[tuple[str, ...], list[Line]] = {}
        for line in part:
            groups.setdefault(_common(line["config"]), []).append(line)
        texts += [text for common, group in groups.items() for text in (f"### {', '.join(common)}", _arms(group))]
    return _joined(texts)


def paper_dataset(name: str) -> str | None:
    """The paper's dataset that a cache of this name holds; None where it is another.

    >>> paper_dataset("cub-cache"), paper_dataset("my photos")
    ('cub200', None)
    """
    known = {**{dataset: dataset for dataset in TABLES}, **PAPER_NAMES}
    return next((dataset for part, dataset in known.items() if part in name.lower()), None)


def _block(loss: str, rows: Mapping[str, Sequence[Line]]) -> str:
    """All that is known of one loss: its scores, and below them what its uncertainty does."""
    results = results_of(loss, rows, against="plain")
    is_compared = "plain" in rows
    headings = ["row", "seeds", *RETRIEVAL.values()]
    headings += [f"{RETRIEVAL[key]} − plain" for key in COMPARED]
    size = _other_size({loss: rows})
    of_training = {} if size is None else AT_IMAGE_SIZE
    headings += [f"{RETRIEVAL[key]} at {size} px" for key in of_training]
    cells = []
    for row, result in results.items():
        scores = _scores(result, RETRIEVAL)
        scores += [_difference(result, key) if is_compared else NOTHING for key in COMPARED]
        cells.append([ROWS[row], result.runs, *scores, *_scores(result, of_training.values())])
        of_the_paper = _of_the_paper(loss, row, result)
        if of_the_paper is not None:
            filled = [f"*{ROWS[row]}, in the paper*", NOTHING, *of_the_paper]
            cells.append(filled + [NOTHING] * (len(headings) - len(filled)))
    texts = [f"### {TITLES.get(loss, loss)}", table(headings, cells)]
    uncertain = [row for row, result in results.items() if "level_clean" in result.values]
    if uncertain:
        headings = ["row", *UNCERTAINTY.values(), *DOUBTS, "epochs", "seconds a run"]
        cells = [
            [ROWS[row], *_scores(results[row], UNCERTAINTY), *_doubts(results[row]), *_cost(rows[row])]
            for row in uncertain
        ]
        texts.append(table(headings, cells))
    costs = {ROWS[row]: _cost(rows[row]) for row in results if row not in uncertain}
    if costs:
        words = "; ".join(f"{row}: {epochs} epochs, {seconds} s a run" for row, (epochs, seconds) in costs.items())
        texts.append(f"Without uncertainty: {words}.")
    return "\n\n".join(texts)


def _other_size(named: Mapping[str, Mapping[str, Sequence[Line]]]) -> int | None:
    """Of the crops in training, where final runs were scored on such as well; None where none was."""
    lines = [line for rows in named.values() for some in rows.values() for line in some]
    scored = [line for line in lines if set(AT_IMAGE_SIZE.values()) & set(line["scores"])]
    return scored[0]["config"]["data"]["image_size"] if scored else None


def _glance(named: Mapping[str, Mapping[str, Sequence[Line]]]) -> list[str]:
    """A table a score, a line a loss: its rows, and what both parts gain over each row that has no uncertainty."""
    headings = ["loss", *(ROWS[row] for row in GLANCED), *(f"both − {name}" for name in RIVALS.values())]
    headings.append("common seeds")
    size = _other_size(named)
    headings += [] if size is None else [f"both − plain at {size} px"]
    headings.append("paper")
    cells: dict[str, list[list[str]]] = {key: [] for key in COMPARED}
    for loss, rows in named.items():
        found = results_of(loss, rows, against="plain")
        held = [held_against(rival, loss, rows) for rival in RIVALS]
        for key in COMPARED:
            means = [_scores(found[row], [key])[0] if row in found else NOTHING for row in GLANCED]
            gains = [NOTHING if both is None else _difference(both, key) for both in held]
            pairs = [NOTHING if both is None else _common_seeds(both, key) for both in held]
            rest = [" / ".join(pairs)]
            if size is not None:
                rest.append(NOTHING if held[0] is None else _difference(held[0], AT_IMAGE_SIZE[key]))
            rest.append(_gain_of_the_paper(loss, rows, key))
            cells[key].append([TITLES.get(loss, loss), *means, *gains, *rest])
    return [text for key in COMPARED for text in (f"### Every loss: {RETRIEVAL[key]}", table(headings, cells[key]))]


def _ingredients(named: Mapping[str, Mapping[str, Sequence[Line]]]) -> str:
    """Which part gives what: a line a loss, and in each cell what R@1 and MAP@R gain, bold where outside the noise."""
    cells = [
        [
            TITLES.get(loss, loss),
            *(
                _gains(held_against(at_equal_settings(rival, rows), loss, rows, row=row))
                for row, rival in INGREDIENTS.values()
            ),
        ]
        for loss, rows in named.items()
    ]
    title = " / ".join(RETRIEVAL[key] for key in COMPARED)
    return f"### Which ingredient gives what: {title}, in points\n\n" + table(["loss", *INGREDIENTS], cells)


def _gains(result: Result | None) -> str:
    differences = {} if result is None else result.differences
    if not set(COMPARED) <= set(differences):
        return NOTHING
    return " / ".join(gain(differences[key], scale=named_score(key).scale, decimals=1) for key in COMPARED)


def _common_seeds(result: Result, key: str) -> str:
    difference = result.differences.get(key)
    return NOTHING if difference is None else str(difference.number)


def _gain_of_the_paper(loss: str, rows: Mapping[str, Sequence[Line]], key: str) -> str:
    """From its plain loss to both parts, as "69.0 → 70.7"."""
    dataset = paper_dataset(next(iter(rows.values()))[0].get("dataset", ""))
    found = [] if dataset is None else [printed(dataset, loss, row) for row in ("plain", "both")]
    return " → ".join(f"{one[key].value:.1f}" for one in found if one is not None) or NOTHING


def _arms(lines: Sequence[Line]) -> str:
    scores = {key: RETRIEVAL[key] for key in COMPARED} | UNCERTAINTY
    del scores["aurc"]
    headings = ["arm", "seeds", *(f"{heading} %" for heading in scores.values()), *DOUBTS]
    results = summarise(lines)
    return table(headings, [[each.arm, each.runs, *_scores(each, scores), *_doubts(each)] for each in results])


def _scores(result: Result, keys: Iterable[str]) -> list[str]:
    spreads = result.spreads
    return [named_score(key).written(spreads[key]) if key in spreads else NOTHING for key in keys]


def _difference(result: Result, key: str) -> str:
    """From the baseline; a dash for that itself, and where there are too few common seeds."""
    difference = result.differences.get(key)
    return NOTHING if difference is None else difference.brief(scale=named_score(key).scale)


def _of_the_paper(loss: str, row: str, result: Result) -> list[str] | None:
    """Its scores in the same columns; None where it has no such row."""
    dataset = paper_dataset(result.dataset)
    found = None if dataset is None else printed(dataset, loss, row)
    return None if found is None else [str(found.get(key, NOTHING)) for key in RETRIEVAL]


def _doubts(result: Result) -> list[str]:
    """Mean levels, mean weights of pairs, and how far these deviate."""
    spreads = result.spreads
    means = [[f"{spreads[key].mean:.3g}" if key in spreads else NOTHING for key in keys] for keys in DOUBTS.values()]
    return [NOTHING if set(some) == {NOTHING} else " / ".join(some) for some in means]


def _cost(lines: Sequence[Line]) -> tuple[str, str]:
    """Epochs and median seconds of the runs that finished; a dash for the seconds where none did."""
    seconds = [line["seconds"] for line in lines if not line["error"] and not line["stopped"]]
    return str(lines[0]["config"]["run"]["epochs"]), f"{median(seconds):.1f}" if seconds else NOTHING


def _conditions(lines: Sequence[Line]) -> str:
    about = (line.get("versions") or {} for line in lines)
    places = dict.fromkeys(f"{one['device']}, torch {one['torch']}" for one in about if {"device", "torch"} <= set(one))
    data = [line["config"]["data"] for line in lines]
    sizes = sorted({part.get("test_size") or part["image_size"] for part in data})
    scored = f" Scored on crops of {' or '.join(map(str, sizes))} px."
    return f"Test classes: {CAPTION}{scored}" + (f" Runs on {'; '.join(places)}." if places else "")


def _common(config: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The settings that arms of one table share; one that is newer than the line has its default."""
    leaves = {leaf: value for part in config.values() for leaf, value in part.items()}
    return tuple(f"{name} {leaves.get(name, Config().leaf(name))}" for name in COMMON)


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts) + "\n" if texts else ""
