"""`idml evaluate`: scores, their intervals, and a report, from saved embeddings."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from idml.atomic import writing
from idml.cli.devices import chosen_device, moved
from idml.cli.progress import Stages
from idml.cli.tables import detection_table, scores_table, spreads_table
from idml.distances import Introspective
from idml.evaluation.embedded import Embedded
from idml.evaluation.judging import evaluate as judge
from idml.evaluation.ood import OodScores, ood_scores
from idml.evaluation.scores import Scores
from idml.evaluation.seeds import compared

GIB = 1 << 30


class Distance(StrEnum):
    """The distances of `idml.evaluate`, as choices."""

    euclidean = "euclidean"
    cosine = "cosine"
    introspective = "introspective"


def evaluate(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Embeddings (.npz, .safetensors) or a trained run's folder; several are seeds of one method."
        ),
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(help="The same seeds of another method, in the same order: differences are tested in pairs."),
    ] = None,
    ks: Annotated[str, typer.Option(help="K of Recall@K, with commas between, as large as you like.")] = "1,2,4,8",
    distance: Annotated[Distance, typer.Option(help="By which images are near.")] = Distance.euclidean,
    tau: Annotated[float, typer.Option(help="τ of the introspective distance.")] = 5.0,
    gamma: Annotated[float, typer.Option(help="γ of the introspective distance.")] = 0.0,
    clustering: Annotated[bool, typer.Option(help="NMI, AMI and F1 of k-means clusters.")] = True,
    train: Annotated[Path | None, typer.Option(help="Embeddings of the training images, for --outside.")] = None,
    outside: Annotated[
        Path | None, typer.Option(help="Embeddings of images from elsewhere, to be told from the source's.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for scores.json and report.html; if not given, beside the source, named after it."),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    images: Annotated[Path | None, typer.Option(help="Folder that relative image paths start from.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    memory: Annotated[float, typer.Option(help="GiB to use beyond the embeddings.")] = 1.0,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples behind the intervals; 0: no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap and of k-means.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Score embeddings: retrieval, clustering, uncertainty, with 95 % intervals, and draw a report.

    One source prints a table and writes `scores.json` and `report.html`. Several sources are seeds of
    one method: their mean and standard deviation are printed, and with `--against` the paired differences.
    """
    _check_together(sources, against or [], train, outside)
    options: dict[str, Any] = {
        "ks": _numbers(ks),
        "distance": Introspective(tau=tau, gamma=gamma) if distance is Distance.introspective else str(distance),
        "clustering": clustering,
        "resamples": resamples,
        "seed": seed,
        "memory": int(memory * GIB),
    }
    place = chosen_device(device)
    with Stages(is_quiet=as_json) as stages:

        def judged(path: Path) -> tuple[Embedded, Scores]:
            embedded = moved(Embedded.load(path), place)
            within = {} if embedded.gallery is None else _as_gallery(embedded.gallery)
            stages.begin(str(path))
            return embedded, judge(embedded.embedding, embedded.labels, **within, **options, progress=stages.progress)

        if len(sources) > 1:
            ours, theirs = ([judged(path)[1] for path in side] for side in (sources, against or []))
            comparison = compared(ours, theirs)
            stages.show(spreads_table(comparison))
            answer = {one.row.key: one.to_dict() for one in comparison}
            if output is not None:
                _save(output / "comparison.json", answer)
                stages.say(f"wrote {output / 'comparison.json'}")
        else:
            source = sources[0]
            embedded, scores = judged(source)
            detection = None
            if train is not None and outside is not None:
                detection = _detection(
                    moved(Embedded.load(train), place), embedded, moved(Embedded.load(outside), place)
                )
            stages.show(scores_table(scores, title=str(source)))
            if detection is not None:
                stages.show(detection_table(detection))
            answer = scores.to_dict() | ({} if detection is None else {"outside": detection.to_dict()})
            folder = output or _beside(source)
            _save(folder / "scores.json", answer)
            stages.say(f"wrote {folder / 'scores.json'}")
            if report:
                stages.begin("report")
                for remark in _report(folder / "report.html", scores, embedded, source, images, detection, options):
                    stages.say(remark)
                stages.say(f"wrote {folder / 'report.html'}: open it in a browser")
    if as_json:
        typer.echo(json.dumps(answer, allow_nan=False, indent=2))


def _check_together(sources: list[Path], against: list[Path], train: Path | None, outside: Path | None) -> None:
    if (train is None) != (outside is None):
        raise ValueError("--train and --outside go together: give both, or neither.")
    if against and len(against) != len(sources):
        raise ValueError(f"there are {len(sources)} sources and {len(against)} --against: give as many of each.")
    if against and len(sources) < 2:
        raise ValueError("one seed of each method cannot tell a difference from noise: give at least two of each.")
    if outside is not None and len(sources) > 1:
        raise ValueError(f"--outside judges one source, and there are {len(sources)}: give them one by one.")


def _numbers(ks: str) -> tuple[int, ...]:
    try:
        return tuple(int(k) for k in ks.split(","))
    except ValueError:
        raise ValueError(f"--ks is {ks!r}: give numbers with commas between, as in 1,10,100,1000.") from None


def _as_gallery(gallery: Embedded) -> dict[str, Any]:
    return {"gallery": gallery.embedding, "gallery_labels": gallery.labels}


def _detection(train: Embedded, inside: Embedded, outside: Embedded) -> OodScores:
    return ood_scores(train.embedding, inside.embedding, outside.embedding)


def _beside(source: Path) -> Path:
    return source if source.is_dir() else source.with_suffix("")


def _report(
    path: Path,
    scores: Scores,
    embedded: Embedded,
    source: Path,
    images: Path | None,
    detection: OodScores | None,
    options: dict[str, Any],
) -> list[str]:
    from idml.evaluation.report.page import write_report

    root = images or (source if source.is_dir() else source.parent)
    title = f"Evaluation of {source.name}"
    memory = options["memory"]
    return write_report(path, scores, embedded, title=title, image_root=root, outside=detection, memory=memory)


def _save(path: Path, answer: dict[str, Any]) -> None:
    with writing(path) as file:
        file.write_text(json.dumps(answer, allow_nan=False, indent=2) + "\n")
