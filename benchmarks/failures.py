"""What tells queries that fail, by how many images a class the gallery has: a table, and lines of JSON.

    python benchmarks/failures.py LOG NAME=EMBEDDINGS.npz [NAME=FILE ...] [--sizes 30 10 4] [--splits 3]

Of each class so many images, drawn at random, are the gallery, and the others the queries: a gallery without the query
has one image less of its class than of others, and that alone tells a little where classes are small. EMBEDDINGS are of
classes that training did not see, as `idml train` leaves those of test classes in a run's folder. Beside what
`idml evaluate` tells: "pair", a confidence by distance and uncertainty of the nearest image alone, and "votes", how
many of the nearest images are of the class of the very nearest one, each counting by the inverse of its rank.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml import Embedding, evaluate
from idml.evaluation.calibration import cross_fitted_confidence
from idml.evaluation.comparing import Comparison
from idml.evaluation.embedded import Embedded
from idml.evaluation.neighbours import nearest
from idml.evaluation.scores import FailureScores
from idml.evaluation.uncertainty import r_auroc, r_auroc_within

VOTERS = 64
OF_FAILURES = [name for name in FailureScores.__dataclass_fields__ if name.startswith("r_auroc_of_")]
COLUMNS = ("recall@1", "level", "length", "distance", "pair", "neighbours", "confidence", "gap", "votes")


def of_split(embedded: Embedded, size: int, seed: int) -> dict[str, float]:
    """With so many images of each class, drawn by the seed, as the gallery; classes that have no more are left out."""
    labels, generator = embedded.labels, torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    in_gallery, queries = [], []
    for rows in (order[labels[order] == number] for number in labels.unique()):
        if len(rows) > size:
            in_gallery.append(rows[:size])
            queries.append(rows[size:])
    if len(queries) < 2:
        raise SystemExit(f"{len(queries)} classes have more than {size} images: give smaller --sizes.")
    return known(embedded.embedding, labels, torch.cat(queries), torch.cat(in_gallery))


def known(
    embedding: Embedding, labels: Int[Tensor, " n"], own: Int[Tensor, " q"], others: Int[Tensor, " m"]
) -> dict[str, float]:
    """R-AUROCs by what tells failures, as far as they have a meaning, and R@1. own, others: queries and gallery."""
    queries, gallery = embedding[own], embedding[others]
    within = {"gallery": gallery, "gallery_labels": labels[others]}
    scores = evaluate(queries, labels[own], **within, ks=(1,), clustering=False, resamples=0)
    assert scores.failures is not None
    found = {name.removeprefix("r_auroc_of_"): getattr(scores.failures, name) for name in OF_FAILURES}
    found |= {"recall@1": scores.recall[1], "calibration_error": scores.failures.calibration_error}
    told = scores.queries
    assert told is not None
    assert told.nearest is not None
    assert told.distances is not None
    is_wrong = ~told.is_right
    found["votes"] = float(r_auroc(-votes(queries, gallery, labels[others]), is_wrong))
    if scores.uncertainty is not None:
        assert queries.uncertainty is not None
        assert gallery.uncertainty is not None
        found["level"] = scores.uncertainty.r_auroc
        beta = (queries.uncertainty.double() + gallery.uncertainty[told.nearest].double()).norm(dim=1)
        confidence, fold = cross_fitted_confidence(told.distances[:, :1], beta, told.is_right, labels[own])
        found["pair"] = float(r_auroc_within(-confidence, is_wrong, fold))
    return {name: value for name, value in found.items() if math.isfinite(value)}


def votes(queries: Embedding, gallery: Embedding, gallery_labels: Int[Tensor, " m"]) -> Float[Tensor, " q"]:
    """Of the nearest images those of the class of the very nearest, each by the inverse of its rank."""
    number = min(VOTERS, len(gallery))
    classes = gallery_labels[nearest(Comparison.of(queries, gallery), number)[0]]
    agrees = (classes == classes[:, :1]).double()
    return agrees[:, 1:] @ (1 / torch.arange(2, number + 1, dtype=torch.float64))


def table(lines: Sequence[dict]) -> str:
    head = ["model", "gallery, a class", *COLUMNS]
    rows = [
        [line["name"], str(line["size"]), *(_written(line["scores"].get(column)) for column in COLUMNS)]
        for line in lines
    ]
    cells = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("files", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 10, 4])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args(arguments)
    lines = []
    for name, _, path in (text.partition("=") for text in options.files):
        if not path:
            raise SystemExit(f"{name!r} names no file: write NAME=EMBEDDINGS.npz.")
        embedded = Embedded.load(path)
        for size in options.sizes:
            some = [of_split(embedded, size, seed) for seed in range(options.splits)]
            means = {key: round(fmean(one[key] for one in some), 5) for key in set.intersection(*map(set, some))}
            lines.append({"name": name, "size": size, "splits": options.splits, "scores": dict(sorted(means.items()))})
            with options.log.open("a") as log:
                log.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
