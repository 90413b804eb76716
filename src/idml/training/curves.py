"""The paper's two training curves of any run, by epoch: the level of clean and mixed images, the gradient's norm."""

from __future__ import annotations

from idml.atomic import writing
from idml.training.runs import RunFolder

PANELS: dict[str, dict[str, str]] = {  # by title: what is drawn, and what it is called there
    "loss": {"loss": "loss"},
    "mean level": {"level_clean": "clean images", "level_mixed": "mixed images"},
    "gradient norm of a semantic embedding": {"gradient_semantic_embedding": "gradient"},
    "validation classes": {
        "validation_recall@1": "Recall@1",
        "validation_map_at_r": "MAP@R",
        "validation_r_auroc": "R-AUROC",
    },
}


def draw_curves(folder: RunFolder) -> None:
    """Write curves.png from the run's log; nothing, where there is none."""
    records = folder.records()
    if not records:
        return
    from matplotlib.figure import Figure

    shown = {title: names for title, names in PANELS.items() if any(name in records[-1] for name in names)}
    figure = Figure(figsize=(4.2 * len(shown), 3.2), layout="constrained")
    for axes, (title, names) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        for name, label in names.items():
            points = [(record["epoch"], record[name]) for record in records if name in record]
            if points:
                axes.plot(*zip(*points, strict=True), marker="." if len(points) < 60 else "", label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if len(names) > 1:
            axes.legend(fontsize=8)
    with writing(folder.path / "curves.png") as unfinished:
        figure.savefig(unfinished, dpi=130)
