"""`idml evaluate`: scores, their intervals, and a report, from saved embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from jaxtyping import Int
from rich.table import Table
from torch import Tensor

from idml.atomic import writing
from idml.cli.devices import chosen_device, moved
from idml.cli.progress import Stages
from idml.cli.tables import detection_table, scores_table, spreads_table
from idml.distances import Introspective
from idml.evaluation.calibration import Calibration
from idml.evaluation.embedded import Embedded
from idml.evaluation.judging import evaluate as scores_of
from idml.evaluation.ood import OodScores, ood_scores
from idml.evaluation.queries import write_queries
from idml.evaluation.report import write_report
from idml.evaluation.scores import Scores, without_nan
from idml.evaluation.seeds import compared
from idml.models.saved import DESCRIPTION, load_folder
from idml.models.saved import IN_A_RUN as MODEL

GIB = 1 << 30
MOST_GIB = 1 << 20
EVALUATION = "evaluation"  # in the folder of a run, whose own scores stay; beside a file, after its name


class Distance(StrEnum):
    """The distances of `idml.evaluate`, as choices."""

    euclidean = "euclidean"
    cosine = "cosine"
    introspective = "introspective"


class Seed(NamedTuple):
    """What is kept of one of several sources; their embeddings would fill the memory."""

    path: Path
    labels: Int[Tensor, " n"]
    scores: Scores


def evaluate(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Embeddings (.npz, .safetensors) or a trained run's folder; several are seeds of one method."
        ),
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="The same seeds of another method, in the same order, one --against for each: differences are tested "
            "in pairs."
        ),
    ] = None,
    ks: Annotated[str, typer.Option(help="K of Recall@K, with commas between, as large as you like.")] = "1,2,4,8",
    distance: Annotated[Distance, typer.Option(help="By which images are near.")] = Distance.euclidean,
    tau: Annotated[float | None, typer.Option(help="τ of the introspective distance; 5 if not given.")] = None,
    gamma: Annotated[float | None, typer.Option(help="γ of the introspective distance; 0 if not given.")] = None,
    clustering: Annotated[bool, typer.Option(help="NMI, AMI and F1 of k-means clusters.")] = True,
    failures: Annotated[
        bool, typer.Option(help="What tells queries that fail, such as the confidence; costs a search.")
    ] = True,
    by_class: Annotated[
        bool, typer.Option(help="With --outside: Mahalanobis distances to each training class (SSD+), not to all.")
    ] = False,
    train: Annotated[Path | None, typer.Option(help="Embeddings of the training images, for --outside.")] = None,
    outside: Annotated[
        Path | None, typer.Option(help="Embeddings of images from elsewhere, to be told from the source's.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for scores.json, queries.csv and report.html; if not given, "
            f"NAME-{EVALUATION} beside NAME.npz; of a run, {EVALUATION} in its folder."
        ),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder that relative image paths start from, or a prepared cache; if not given, as saved."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    memory: Annotated[float, typer.Option(help="GiB to use beyond the embeddings.")] = 1.0,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples behind the intervals; 0: no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and of k-means.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Score embeddings: retrieval, clustering, uncertainty, failures, with 95 % intervals, and draw a report.

    One source prints a table and writes `scores.json`, `queries.csv` and `report.html`. Several sources are seeds of
    one method: their mean and standard deviation are printed, and with `--against` the paired differences.
    The confidence is that of a run's model, if it has one, or else fitted on other classes of the source.
    """
    _check_together(sources, against or [], train, outside, images)
    options: dict[str, Any] = {
        "ks": _numbers(ks),
        "distance": _distance(distance, tau, gamma),
        "clustering": clustering,
        "failures": failures,
        "resamples": resamples,
        "seed": seed,
        "memory": _bytes(memory),
    }
    with Stages(is_quiet=as_json) as stages:
        judge = Judge(chosen_device(device), stages, options)
        if len(sources) > 1:
            told = _of_seeds(judge, sources, against or [], output)
        else:
            of_other_images = None if train is None or outside is None else (train, outside)
            one = _of_one(judge, sources[0], of_other_images, by_class=by_class)
            told = _written(one, output or _place_of(sources[0]), stages, report=report, images=images)
        for table in told.tables:  # last, for all is safe by now, even if nobody reads on
            stages.show(table)
        for remark in told.remarks:
            stages.say(remark)
    if as_json:
        typer.echo(json.dumps(told.answer, allow_nan=False, indent=2))


class Told(NamedTuple):
    """What a program reads, and what people do."""

    answer: dict[str, Any]
    tables: list[Table]
    remarks: list[str]


class One(NamedTuple):
    """What is known of a single source; detection: of how it is told from images from elsewhere."""

    source: Path
    embedded: Embedded
    scores: Scores
    detection: OodScores | None


class Judge(NamedTuple):
    """Scores embeddings in files, all with the same options."""

    place: torch.device
    stages: Stages
    options: dict[str, Any]

    def scored(self, path: Path) -> tuple[Embedded, Scores]:
        embedded = self.read(path)
        gallery = embedded.gallery
        within = {} if gallery is None else {"gallery": gallery.embedding, "gallery_labels": gallery.labels}
        self.stages.begin(str(path))
        with told_of(path):
            _check_classes(embedded)
            levels = embedded.changed_levels
            scores = scores_of(
                embedded.embedding,
                embedded.labels,
                **within,
                **self.options,
                calibration=_calibration(path),
                changed_levels=levels,
                progress=self.stages.progress,
            )
        return embedded, scores

    def read(self, path: Path, *, needs_labels: bool = True) -> Embedded:
        return moved(Embedded.load(path, needs_labels=needs_labels), self.place)


def _of_seeds(judge: Judge, sources: list[Path], against: list[Path], output: Path | None) -> Told:
    """Several seeds of one method, held against as many of another, if there are any."""

    def seed_of(path: Path, *, paired: Seed | None = None) -> Seed:
        embedded, scores = judge.scored(path)
        seed = Seed(path, embedded.labels.cpu(), scores)
        if paired is not None:
            _check_pair(paired, seed)
        return seed

    ours = [seed_of(path) for path in sources]
    theirs = [seed_of(path, paired=seed) for path, seed in zip(against, ours, strict=False)]
    comparison = compared(*([seed.scores for seed in side] for side in (ours, theirs)))
    answer = {one.row.key: one.to_dict() for one in comparison}
    remarks = [] if output is None else [_save(output / "comparison.json", answer)]
    return Told(answer, [spreads_table(comparison)], remarks)


def _of_one(judge: Judge, source: Path, of_other_images: tuple[Path, Path] | None, *, by_class: bool) -> One:
    """of_other_images: those that were trained on, and those from elsewhere."""
    embedded, scores = judge.scored(source)
    if of_other_images is None:
        return One(source, embedded, scores, None)
    train, outside = (judge.read(path, needs_labels=False) for path in of_other_images)
    detection = ood_scores(
        train.embedding,
        embedded.embedding,
        outside.embedding,
        train_labels=train.labels if by_class else None,
        memory=judge.options["memory"],
    )
    return One(source, embedded, scores, detection)


def _written(one: One, folder: Path, stages: Stages, *, report: bool, images: Path | None) -> Told:
    """Write scores, and a report where it is wanted; what there is to say of them."""
    answer, tables = one.scores.to_dict(), [scores_table(one.scores, title=str(one.source))]
    if one.detection is not None:
        answer["outside"] = without_nan(one.detection.to_dict())
        tables.append(detection_table(one.detection))
    remarks = [_save(folder / "scores.json", answer)]
    if one.scores.queries is not None:
        table = folder / "queries.csv"
        write_queries(table, one.scores.queries, one.embedded)
        sure = "" if one.scores.failures is None else ": what each query found, and how sure one may be of it"
        remarks.append(f"wrote {table}{sure}")
    if report:
        stages.begin("report")
        place, root = folder / "report.html", images or _image_root(one.source, one.embedded)
        title = f"Evaluation of {one.source.name}"
        remarks += write_report(place, one.scores, one.embedded, title=title, image_root=root, outside=one.detection)
        remarks.append(f"wrote {place}: open it in a browser")
    return Told(answer, tables, remarks)


def _check_classes(embedded: Embedded) -> None:
    """Raise for a single class, by its name."""
    numbers = embedded.labels.unique()
    if embedded.class_names is not None and embedded.gallery is None and len(numbers) == 1:
        name = embedded.class_names[int(numbers)]
        raise ValueError(f"all {len(embedded.labels)} images are of one class, {name!r}: give at least two classes.")


def _check_together(
    sources: list[Path], against: list[Path], train: Path | None, outside: Path | None, images: Path | None
) -> None:
    if (train is None) != (outside is None):
        raise ValueError("--train and --outside go together: give both, or neither.")
    if against and len(against) != len(sources):
        raise ValueError(
            f"there are {len(sources)} sources and {len(against)} --against: give as many of each, and repeat the "
            "option, --against c.npz --against d.npz."
        )
    for side in (sources, against):
        for number, path in enumerate(side):
            if path.resolve() in [other.resolve() for other in side[:number]]:
                raise ValueError(f"{path} is given twice: give each seed once.")
    if against and len(sources) < 2:
        raise ValueError("one seed of each method cannot tell a difference from noise: give at least two of each.")
    if outside is not None and len(sources) > 1:
        raise ValueError(f"--outside judges one source, and there are {len(sources)}: give them one by one.")
    if images is not None and not images.is_dir():
        raise ValueError(f"--images: there is no folder {images}.")


def _check_pair(one: Seed, other: Seed) -> None:
    """Raise if two sets of embeddings are not of the same images, as far as labels tell."""
    if not torch.equal(one.labels, other.labels):
        raise ValueError(
            f"{one.path} and {other.path} are not of the same images ({len(one.labels)} and {len(other.labels)} "
            "labels): differences are of pairs, so give both methods' embeddings of one set in one order."
        )


def _place_of(source: Path) -> Path:
    """The folder for what is found: in that of a run, beside a file, and never one of photographs called like it."""
    return source / EVALUATION if source.is_dir() else source.with_name(f"{source.stem}-{EVALUATION}")


def _numbers(ks: str) -> tuple[int, ...]:
    try:
        return tuple(int(k) for k in ks.split(","))
    except ValueError:
        raise ValueError(f"--ks is {ks!r}: give numbers with commas between, as in 1,10,100,1000.") from None


def _bytes(gibibytes: float) -> int:
    if not 0 < gibibytes < MOST_GIB:
        raise ValueError(f"--memory is {gibibytes:g} GiB: give a number above 0, such as 1.")
    return max(1, int(gibibytes * GIB))


def _distance(chosen: Distance, tau: float | None, gamma: float | None) -> str | Introspective:
    if chosen is Distance.introspective:
        return Introspective(tau=5.0 if tau is None else tau, gamma=0.0 if gamma is None else gamma)
    for name, value in (("tau", tau), ("gamma", gamma)):
        if value is not None:
            raise ValueError(f"--{name} is for --distance introspective: add it, or leave --{name} out.")
    return str(chosen)


def _calibration(source: Path) -> Calibration | None:
    """That of a run's model, which it learned on validation classes; None for files."""
    if not (source / MODEL / DESCRIPTION).exists():
        return None
    values = load_folder(source)[1]["calibration"]
    return None if values is None else Calibration.from_dict(values)


def _image_root(source: Path, embedded: Embedded) -> Path:
    """What is saved with the embeddings, as long as it is there, or else where they are."""
    if embedded.image_root is not None and Path(embedded.image_root).is_dir():
        return Path(embedded.image_root)
    return source if source.is_dir() else source.parent


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Say of which file a mistake is."""
    try:
        yield
    except ValueError as mistake:
        raise ValueError(f"{path}: {mistake}") from None


def _save(path: Path, answer: dict[str, Any]) -> str:
    with writing(path) as file:
        file.write_text(json.dumps(answer, allow_nan=False, indent=2) + "\n")
    return f"wrote {path}"
