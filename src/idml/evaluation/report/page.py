"""The page: its head, and what it is made of."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from pathlib import Path

import torch

import idml
from idml.atomic import writing
from idml.evaluation.embedded import Embedded
from idml.evaluation.ood import OodScores
from idml.evaluation.report.confusions import confusion_content
from idml.evaluation.report.doubts import failure_content, uncertainty_content
from idml.evaluation.report.elements import Html, element, note, section
from idml.evaluation.report.grid import retrieval_content
from idml.evaluation.report.neighbourhood import nearest_of_all
from idml.evaluation.report.pictures import Pictures
from idml.evaluation.report.tables import headline_cards, outside_content, score_content
from idml.evaluation.scores import Queries, Scores

NEIGHBOURS = 8
MEMORY = 1 << 30  # bytes to use beyond the embeddings
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # the browser fetches nothing for this page


@torch.no_grad()
def write_report(
    path: Path | str,
    scores: Scores,
    embedded: Embedded,
    *,
    title: str,
    image_root: Path | None = None,
    outside: OodScores | None = None,
    neighbours: int = NEIGHBOURS,
    memory: int = MEMORY,
) -> list[str]:
    """Write one evaluation as a single HTML file, and return what the reader should be told of it, if anything.

    scores: of `evaluate(embedded.embedding, embedded.labels, …)`, in its gallery if it has one.
    image_root: what relative paths of images start from; without it, the working folder.
    outside: how well images from elsewhere are noticed. neighbours: pictures beside each query, or all there are.
    """
    queries = _checked_queries(scores, embedded, neighbours)
    pictures = Pictures(image_root)
    remarks = []
    closest = nearest_of_all(queries, embedded, introspective=scores.introspective, memory=memory)
    retrieved = retrieval_content(
        queries, embedded, closest, pictures, introspective=scores.introspective, neighbours=neighbours, memory=memory
    )
    remarks += pictures.remarks()
    sections = [
        section("Scores", *score_content(scores), id_="scores"),
        section("Queries that fail", *failure_content(scores.failures, scores.uncertainty, queries), id_="failures"),
        section("Uncertainty", *uncertainty_content(embedded), id_="uncertainty"),
        section("Retrieved images", *map(note, remarks), *retrieved, id_="retrieved"),
        section("Classes taken for each other", *confusion_content(queries, embedded, closest), id_="confusions"),
    ]
    if outside is not None:
        sections.append(section("Images from elsewhere", *outside_content(outside), id_="outside"))
    page = _page(title, _head(title, scores), element("main", *sections))
    with writing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return remarks


def _checked_queries(scores: Scores, embedded: Embedded, neighbours: int) -> Queries:
    """What each query did; raises if the scores are not of these images."""
    if neighbours < 1:
        raise ValueError(f"neighbours is {neighbours}: show at least 1.")
    if scores.queries is None:
        raise ValueError("these scores do not know their queries: give the scores that `evaluate` returned.")
    images = len(embedded.embedding)
    gallery = images - 1 if embedded.gallery is None else len(embedded.gallery.embedding)
    if (images, gallery) != (scores.query_count, scores.gallery_count):
        judged = f"{scores.query_count} queries in a gallery of {scores.gallery_count}"
        raise ValueError(f"these are scores of {judged}, and there are {images} and {gallery}: give those of one set.")
    return scores.queries


def _page(title: str, head: Html, main: Html) -> str:
    style = Html(files("idml.evaluation.report").joinpath("page.css").read_text(encoding="utf-8"))
    in_head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    ]
    html = element("html", element("head", *in_head), element("body", head, main), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _head(title: str, scores: Scores) -> Html:
    now = datetime.now().astimezone()
    conditions = {
        "queries": f"{scores.query_count:,}",
        "gallery": f"{scores.gallery_count:,} images",
        "classes": f"{scores.class_count:,}",
        "lone queries, left out": f"{scores.lone_queries:,}",
        "distance": scores.distance,
        "idml": idml.__version__,
        "torch": torch.__version__,
    }
    return element(
        "header",
        element("h1", title),
        element("p", "Evaluated ", element("time", f"{now:%Y-%m-%d %H:%M %Z}", datetime=now.isoformat("T", "minutes"))),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in conditions.items()),
            class_="conditions",
        ),
        headline_cards(scores),
    )
