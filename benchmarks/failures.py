"""What tells queries that fail, by how many images a class the gallery has: a table, and lines of JSON.

    python benchmarks/failures.py LOG NAME=EMBEDDINGS.npz [NAME=FILE ...] [--sizes 30 10 4] [--splits 3]
    python benchmarks/failures.py LOG NAME=EMBEDDINGS.npz [NAME=FILE ...] --carried NAME=OTHER.npz [NAME=FILE ...]

Of each class so many images, drawn at random, are the gallery, and the others the queries: a gallery without the query
has one image less of its class than of others, and that alone tells a little where classes are small. EMBEDDINGS are of
classes that training did not see, as `idml train` leaves those of test classes in a run's folder. Beside what
`idml evaluate` tells: "pair", a confidence by distance and uncertainty of the nearest image alone, and "votes", how
many of the nearest images are of the class of the very nearest one, each counting by the inverse of its rank.
The second form asks how a confidence that was fitted on the first embeddings does with OTHER ones, of the same model
and other classes, each being their own gallery: by all neighbours, and by the nearest alone.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml import Embedding, evaluate
from idml.evaluation.calibration import Calibration, cross_fitted_confidence
from idml.evaluation.comparing import Comparison
from idml.evaluation.embedded import Embedded
from idml.evaluation.neighbours import nearest
from idml.evaluation.scores import FailureScores, Queries
from idml.evaluation.uncertainty import r_auroc, r_auroc_within
from idml.paper import markdown

VOTERS = 64
OF_FAILURES = [name for name in FailureScores.__dataclass_fields__ if name.startswith("r_auroc_of_")]
ERRORS = ("error, neighbours", "nearest alone", "error, nearest alone")
COLUMNS = ("recall@1", "level", "length", "distance", "pair", "neighbours", "confidence", "gap", "votes", *ERRORS)


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


def carried(embedded: Embedded, other: Embedded) -> dict[str, float]:
    """R-AUROC and calibration error on the other embeddings, by what the confidence knows of."""
    fitted, queries = judged(embedded)
    assert queries.distances is not None
    nothing = torch.zeros(len(queries.distances), dtype=torch.float64)
    nearest_alone = Calibration.fit(queries.distances[:, :1], nothing, queries.is_right)
    found = {}
    for name, calibration in {"neighbours": fitted.calibration, "nearest alone": nearest_alone}.items():
        told, _ = judged(other, calibration=calibration)
        found |= {name: told.r_auroc_of_confidence, f"error, {name}": told.calibration_error}
    return found


def judged(embedded: Embedded, *, calibration: Calibration | None = None) -> tuple[FailureScores, Queries]:
    """Each image searched in all others."""
    scores = evaluate(embedded.embedding, embedded.labels, calibration=calibration, clustering=False, resamples=0)
    assert scores.failures is not None
    assert scores.queries is not None
    return scores.failures, scores.queries


def table(lines: Sequence[dict]) -> str:
    columns = [name for name in COLUMNS if any(name in line["scores"] for line in lines)]
    rows = [
        [line["name"], str(line["size"]), *(_written(line["scores"].get(column)) for column in columns)]
        for line in lines
    ]
    return markdown.table(["model", "gallery, a class", *columns], rows)


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _means(some: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of what all have."""
    known = sorted(set.intersection(*map(set, some)))
    return {name: round(fmean(one[name] for one in some), 5) for name in known}


def _files(given: Sequence[str]) -> dict[str, Embedded]:
    files = {}
    for name, _, path in (text.partition("=") for text in given):
        if not path:
            raise SystemExit(f"{name!r} names no file: write NAME=EMBEDDINGS.npz.")
        files[name] = Embedded.load(path)
    return files


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("files", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--carried", nargs="+", metavar="NAME=FILE", default=[])
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 10, 4])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args(arguments)
    files, others = _files(options.files), _files(options.carried)
    if others:
        of = {name: [carried(embedded, others[name])] for name, embedded in files.items() if name in others}
        found = {(name, "as it is"): scores for name, scores in of.items()}
    else:
        found = {
            (name, size): [of_split(embedded, size, seed) for seed in range(options.splits)]
            for name, embedded in files.items()
            for size in options.sizes
        }
    lines = [{"name": name, "size": size, "scores": _means(some)} for (name, size), some in found.items()]
    with options.log.open("a") as log:
        log.writelines(json.dumps(line) + "\n" for line in lines)
    print(table(lines))


if __name__ == "__main__":
    main()
