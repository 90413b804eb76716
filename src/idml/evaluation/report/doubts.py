"""What is known of queries that fail, in figures, and of images that are unclear."""

from __future__ import annotations

import torch

from idml.evaluation.embedded import Embedded
from idml.evaluation.report.elements import Html, element, figure, note, percent, table
from idml.evaluation.report.plots import (
    changed_levels_plots,
    reliability_plot,
    right_and_wrong_plot,
    risk_coverage_plot,
)
from idml.evaluation.scores import FailureScores, Queries, UncertaintyScores
from idml.evaluation.uncertainty import share_that_rises


def failure_content(
    failures: FailureScores | None, uncertainty: UncertaintyScores | None, queries: Queries
) -> list[Html]:
    """Figures of the queries that have an image of their class to find, and of what tells which of them fail."""
    judged = queries.is_judged.cpu()
    is_wrong = ~queries.is_right.cpu()[judged]
    doubts, told, figures = {}, [], []
    if failures is not None and queries.confidence is not None:
        confidence = queries.confidence.cpu()[judged]
        doubts["confidence"] = -confidence
        told.append(f"AURC by confidence {percent(failures.aurc_of_confidence)}")
        figures.append(
            figure(
                reliability_plot(confidence, ~is_wrong),
                alt=f"Share right over confidence. Calibration error {percent(failures.calibration_error)}.",
                caption="Reliability of the confidence: below the dotted line it promises too much.",
            )
        )
    if uncertainty is not None and queries.level is not None:
        level = queries.level.cpu().double()[judged]
        wrong = int(is_wrong.sum())
        doubts["level"] = level
        told.append(f"AURC by level {percent(uncertainty.aurc)}")
        figures.append(
            figure(
                right_and_wrong_plot(level, is_wrong),
                alt=f"Levels of {len(level) - wrong} right and {wrong} wrong queries. "
                f"R-AUROC {percent(uncertainty.r_auroc)}.",
                caption="Levels of right and wrong queries: the further apart, the more the level tells.",
            )
        )
    if not doubts:
        return [
            note("What tells queries that fail was not asked for, or cannot be known, and there is no uncertainty.")
        ]
    risk = figure(
        risk_coverage_plot(doubts, is_wrong),
        alt=f"Risk over coverage. {', '.join(told)}.",
        caption="Risk over coverage: how many errors remain if the most doubtful queries are turned away.",
    )
    return [element("div", risk, *figures, class_="plots")]


def uncertainty_content(embedded: Embedded) -> list[Html]:
    """Levels of images that were made ambiguous; one line where there are none."""
    if embedded.embedding.uncertainty is None:
        return [note("These embeddings have no uncertainty: there is no level to judge.")]
    return _changes(embedded)


def _changes(embedded: Embedded) -> list[Html]:
    """Levels of the same images made ambiguous, and how many of them rise."""
    if not embedded.changed_levels:
        return [note("Levels of changed images are not known: embed blurred, cropped or mixed ones to see them here.")]
    every = [level.cpu() for levels in embedded.changed_levels.values() for level in levels.values()]
    known = torch.stack(every).isfinite().all(dim=0)  # often only some images are changed
    clean = embedded.embedding.level.cpu()[known]
    changed = {
        kind: {degree: level.cpu()[known] for degree, level in levels.items()}
        for kind, levels in embedded.changed_levels.items()
    }
    degrees = sorted({degree for levels in changed.values() for degree in levels})
    shares = {
        kind: {degree: percent(float(share_that_rises(clean, level))) for degree, level in levels.items()}
        for kind, levels in changed.items()
    }
    rows = [[kind.replace("_", " "), *(known.get(degree, "") for degree in degrees)] for kind, known in shares.items()]
    figures = [
        element("img", src=plot, alt=f"Levels of images changed by {kind}, by degree.")
        for kind, plot in changed_levels_plots(clean, changed).items()
    ]
    explanation = (
        "Levels of the same images, clean on top, then changed by rising degree: they should move to the right "
        "of the dotted line, the middle of the clean ones."
    )
    return [
        element("h3", "Images made ambiguous"),
        note(explanation),
        element("div", *figures, class_="kinds"),
        table(
            "The share of images whose level rises, by kind of change and degree: higher is better.",
            ["change", *(f"degree {degree:g}" for degree in degrees)],
            rows,
        ),
    ]
