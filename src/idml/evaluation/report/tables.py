"""Scores as tables: of retrieval, clustering, uncertainty and failures, and of images from elsewhere."""

from __future__ import annotations

import math

from idml.evaluation.intervals import Interval
from idml.evaluation.judging import RISES
from idml.evaluation.ood import OodScores
from idml.evaluation.report.elements import NOTHING, Html, element, number, percent, table
from idml.evaluation.scores import Row, Scores

HEADLINES = ("recall@1", "map_at_r", "nmi", "r_auroc", "r_auroc_of_confidence")
RECALL = "recall@"
MEANINGS = {
    "precision@1": "the nearest image is of the query's class, lone queries left out",
    "r_precision": "of the R nearest, the share that is of the class, which has R images to find",
    "map_at_r": "mean average precision over the R nearest",
    "map": "mean average precision over the whole gallery",
    "nmi": "how much k-means clusters know of the classes",
    "ami": "the same, less what chance knows",
    "f1": "pairs of images in one cluster against pairs in one class",
    "r_auroc": "a wrong query has a higher level than a right one",
    "r_auroc_of_length": "a wrong query has a shorter semantic embedding: what any model knows of an image alone",
    "r_auroc_of_distance": "a wrong query is farther (α) from its nearest image",
    "r_auroc_of_neighbours": "a wrong query has a lower confidence by distances to neighbours, fitted on other classes",
    "r_auroc_of_confidence": "a wrong query has a lower confidence, by these and uncertainty, if any, fitted or given",
    "r_auroc_of_gap": "a wrong query has another class nearer behind its nearest image: needs labels in the gallery",
    "aurc": "errors among accepted queries, over all shares accepted by rising level",
    "aurc_of_confidence": "errors among accepted queries, over all shares accepted by falling confidence",
    "excess_aurc": "what AURC has more than the best order",
    "spearman": "rank correlation of the level with what a query achieves",
    "calibration_error": "how far the confidence is off the share that is right",
    "mean_level": "the mean length of the uncertainty embeddings",
    "jaccard": "common neighbours by semantics and by uncertainty",
    "mrr": "semantics find their own uncertainty",
    "cosine": "semantics and uncertainty point the same way",
}
WHY_NOT = {
    "r_auroc": "needs right and wrong queries",
    "r_auroc_of_length": "needs right and wrong queries, of several lengths",
    "r_auroc_of_distance": "needs right and wrong queries",
    "r_auroc_of_neighbours": "needs right and wrong queries, of several classes",
    "r_auroc_of_confidence": "needs right and wrong queries, of several classes",
    "r_auroc_of_gap": "needs right and wrong queries",
    "spearman": "needs levels, and precisions, that differ",
    "aurc_of_confidence": "needs queries of several classes",
    "calibration_error": "needs queries of several classes",
}
LOWER = element("abbr", "↓", title="lower is better", class_="lower")


def score_content(scores: Scores) -> list[Html]:
    """All scores, with their intervals and what they say; rises of the level have a table of their own."""
    rows = [
        [_name(row), _value(row), _interval(row), _bar(row), _meaning(row)]
        for row in scores.rows()
        if not row.key.startswith(RISES)
    ]
    head = ["score", "value", "95 % interval", "0 to 100 %", "what it says"]
    return [table("Intervals: 95 % by bootstrap over queries. ↓: lower is better.", head, rows, class_="scores")]


def headline_cards(scores: Scores) -> Html:
    """The few scores that people ask for first, where they are known."""
    by_key = {row.key: row for row in scores.rows()}
    shown = [by_key[key] for key in HEADLINES if key in by_key and math.isfinite(by_key[key].value)]
    cards = [
        element(
            "div", _name(row), element("strong", _value(row)), element("small", _interval(row) if _known(row) else "")
        )
        for row in shown
    ]
    return element("div", *cards, class_="cards")


def outside_content(found: OodScores) -> list[Html]:
    """How well images from elsewhere are noticed, and how high their level is."""
    judges = {
        "uncertainty level": found.level,
        "distance to the nearest training image": found.nearest,
        "Mahalanobis distance": found.mahalanobis,
    }
    rows = [
        [name, percent(by.auroc), percent(by.average_precision), percent(by.false_positive_rate)]
        for name, by in judges.items()
        if by is not None
    ]
    head = ["told by", "AUROC", "AUPR", element("span", "FPR95 ", LOWER)]
    content = [table("How well images from elsewhere are told from new ones of the same kind.", head, rows)]
    levels = {
        "training": found.mean_level_train,
        "inside": found.mean_level_inside,
        "outside": found.mean_level_outside,
    }
    known = [[name, number(level)] for name, level in levels.items() if level is not None]
    if known:
        content.append(table("The mean level of each set.", ["images", "mean level"], known))
    return content


def _name(row: Row) -> Html:
    return element("span", row.name, " ", LOWER) if row.lower_is_better else element("span", row.name)


def _value(row: Row) -> str:
    return percent(row.value) if row.is_share else number(row.value)


def _known(row: Row) -> Interval | None:
    """The interval, if there is one that means something."""
    interval = row.interval
    return interval if interval is not None and math.isfinite(interval.high - interval.low) else None


def _interval(row: Row) -> str:
    """Without the unit, which stands beside it."""
    if (interval := _known(row)) is None:
        return NOTHING
    if row.is_share:
        return f"{100 * interval.low:.2f} to {100 * interval.high:.2f}"
    return f"{number(interval.low)} to {number(interval.high)}"


def _bar(row: Row) -> Html:
    """Where the score and its interval lie between 0 and 1."""
    if not (row.is_share and 0 <= row.value <= 1):
        return Html("")
    interval = _known(row) or Interval(row.value, row.value)
    places = {"--low": max(0.0, interval.low), "--value": row.value, "--high": min(1.0, interval.high)}
    style = ";".join(f"{name}:{100 * place:.2f}%" for name, place in places.items())
    return element("span", class_="bar", style=style, aria_hidden="true")


def _meaning(row: Row) -> str:
    if not math.isfinite(row.value):
        return f"{NOTHING}: {WHY_NOT.get(row.key, 'has no meaning for these queries')}"
    if row.key.startswith(RECALL):
        return f"an image of the query's class is among the nearest {row.key.removeprefix(RECALL)}"
    return MEANINGS.get(row.key, "")
