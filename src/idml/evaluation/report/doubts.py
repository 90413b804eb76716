"""What the uncertainty is worth, in figures: whether it tells which queries go wrong, and which images are unclear."""

from __future__ import annotations

import torch
from torch import Tensor

from idml.evaluation.embedded import Embedded
from idml.evaluation.report.elements import Html, element, figure, note, percent, table
from idml.evaluation.report.plots import (
    changed_levels_plots,
    reliability_plot,
    right_and_wrong_plot,
    risk_coverage_plot,
)
from idml.evaluation.scores import Queries, UncertaintyScores
from idml.evaluation.uncertainty import share_that_rises


def uncertainty_content(found: UncertaintyScores | None, queries: Queries, embedded: Embedded) -> list[Html]:
    """All there is to show of the level and the confidence; one line where there is no uncertainty."""
    if found is None or queries.level is None:
        return [note("These embeddings have no uncertainty: there is no level, and no confidence, to judge.")]
    return [*_errors(found, queries, queries.level), *_changes(embedded)]


def _errors(found: UncertaintyScores, queries: Queries, level: Tensor) -> list[Html]:
    """Figures of the queries that have an image of their class to find."""
    judged = queries.is_judged.cpu()
    level, is_wrong = level.cpu().double()[judged], ~queries.is_right.cpu()[judged]
    wrong = int(is_wrong.sum())
    figures = [
        figure(
            risk_coverage_plot(level, is_wrong, aurc=found.aurc, excess_aurc=found.excess_aurc),
            alt=f"Risk over coverage. AURC {percent(found.aurc)}, {percent(found.excess_aurc)} above the best order.",
            caption="Risk over coverage: how many errors remain if the least certain queries are turned away.",
        ),
        figure(
            right_and_wrong_plot(level, is_wrong),
            alt=f"Levels of {len(level) - wrong} right and {wrong} wrong queries. R-AUROC {percent(found.r_auroc)}.",
            caption="Levels of right and wrong queries: the further apart, the more the level tells.",
        ),
    ]
    if queries.confidence is not None:
        confidence = queries.confidence.cpu()[judged]
        figures.append(
            figure(
                reliability_plot(confidence, ~is_wrong),
                alt=f"Share right over confidence. Calibration error {percent(found.calibration_error)}.",
                caption="Reliability of the confidence: below the dotted line it promises too much.",
            )
        )
    return [element("div", *figures, class_="plots")]


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
