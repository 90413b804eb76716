"""What a plain model could add to how far neighbours are, in the place of uncertainty: lines of JSON, and a table.

    python benchmarks/failure_twins.py LOG CACHE NAME=RUN [NAME=RUN ...]
    python benchmarks/failure_twins.py LOG CACHE NAME=RECIPE [NAME=RECIPE ...] --frozen WEIGHTS FEATURES [--seeds 2]

A RUN is a folder of `idml train`, and CACHE what it was trained on, whose test classes are embedded; with --frozen
heads are trained by recipes on the features of `benchmarks/frozen_heads.py`, and classes 51 to 100 are embedded. Each
image is searched in all others, and confidences are fitted on queries of other classes. "neighbours" is the R-AUROC of
their distances; beside it stands how much higher it is where the confidence has more to look at, of the query and its
nearest image: "lengths" of the semantic embeddings, how far their pooled "features" are, "feature lengths", "all of
these", and "untrained", β of layers that have learned nothing (mean of DRAWS; "luckiest": the best of them); of a model
with uncertainty β, both levels, or directions alone, and both levels beside features. Of the query alone there are the
R-AUROCs of its level, its "length", and the length of its pooled "feature".
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import torch
from failures import judged
from frozen_heads import Adapted, Features, read, trial
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from idml import Embedding
from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.data.splits import TEST
from idml.evaluation.calibration import cross_fitted_confidence
from idml.evaluation.embedded import Embedded
from idml.evaluation.uncertainty import r_auroc, r_auroc_within
from idml.models.embedder import Embedder
from idml.models.heads import Heads
from idml.paper import markdown
from idml.recipes import recipe
from idml.training.config import Config
from idml.training.embedding import BATCH, centre_crops

DRAWS = 12
OF_QUERIES = ("recall@1", "level", "length", "feature", "neighbours")
OF_UNCERTAINTY = ("+ β", "+ levels", "+ directions", "+ levels and features")
OF_ANY = ("+ lengths", "+ features", "+ feature lengths", "+ all of these", "+ untrained", "+ luckiest")
COLUMNS = (*OF_QUERIES, *OF_UNCERTAINTY, *OF_ANY)


def twins(
    embedding: Embedding, labels: Int[Tensor, " n"], features: Float[Tensor, "n f"], *, draws: int = DRAWS
) -> dict[str, float]:
    """features: of the backbone, pooled."""
    scores, queries = judged(Embedded(embedding=embedding, labels=labels))
    assert queries.distances is not None
    assert queries.nearest is not None
    distances, nearest, is_right = queries.distances, queries.nearest, queries.is_right

    def knows(*more: Float[Tensor, " n"]) -> float:
        seen = torch.cat([distances, *(column[:, None] for column in more)], dim=1)
        confidence, fold = cross_fitted_confidence(seen, torch.zeros_like(seen[:, 0]), is_right, labels)
        return float(r_auroc_within(-confidence, ~is_right, fold))

    def of_both(column: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        return column, column[nearest]

    def beta(uncertainty: Float[Tensor, "n u"]) -> Float[Tensor, " n"]:
        return (uncertainty + uncertainty[nearest]).norm(dim=1)

    pooled, semantic = features.double(), embedding.semantic.double()
    directions = functional.normalize(pooled)
    far = (directions - directions[nearest]).norm(dim=1)
    lengths, feature_lengths = of_both(semantic.norm(dim=1)), of_both(pooled.norm(dim=1))
    alone = knows()
    untrained = [knows(beta(_untrained(features, seed))) - alone for seed in range(draws)]
    found = {
        "recall@1": float(is_right.double().mean()),
        "length": scores.r_auroc_of_length,
        "feature": float(r_auroc(-feature_lengths[0], ~is_right)),
        "neighbours": alone,
        "+ lengths": knows(*lengths) - alone,
        "+ features": knows(far) - alone,
        "+ feature lengths": knows(*feature_lengths) - alone,
        "+ all of these": knows(far, *lengths, *feature_lengths) - alone,
        "+ untrained": fmean(untrained),
        "+ luckiest": max(untrained),
    }
    if embedding.uncertainty is not None:
        uncertainty = embedding.uncertainty.double()
        levels = of_both(uncertainty.norm(dim=1))
        found |= {
            "level": float(r_auroc(levels[0], ~is_right)),
            "+ β": knows(beta(uncertainty)) - alone,
            "+ levels": knows(*levels) - alone,
            "+ directions": knows(beta(functional.normalize(uncertainty))) - alone,
            "+ levels and features": knows(*levels, far) - alone,
        }
    return {name: round(value, 5) for name, value in found.items()}


@torch.no_grad()
def _untrained(features: Float[Tensor, "n f"], seed: int) -> Float[Tensor, "n u"]:
    """Uncertainty by a stabilised layer as it was drawn, whose start is spread."""
    torch.manual_seed(seed)
    drawn = Heads(features.shape[1], dim=1, uncertainty_dim=512).eval()(features.float())
    assert drawn.uncertainty is not None
    return drawn.uncertainty.double()


@torch.inference_mode()
def of_run(folder: Path, cache: Cache) -> tuple[Embedding, Tensor, Tensor]:
    """Of the test classes: embeddings, labels and pooled features, these in the precision of training."""
    config = Config.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"])
    model = Embedder.load(folder / "model").eval()
    rows = cache.rows(TEST)
    pixels = Pixels.of(cache, rows, "cpu", budget=0)
    features = []
    for some in torch.arange(len(rows)).split(BATCH):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.run.precision == "bfloat16"):
            features.append(model.features(centre_crops(pixels, some, config)).float())
    pooled = torch.cat(features)
    return _without_idle(model.embed_features(pooled), config), cache.labels[rows], pooled


def of_recipe(name: str, seed: int, features: Features) -> tuple[Embedding, Tensor, Tensor]:
    """Of classes 51 to 100, by heads that have learned from classes 1 to 50."""
    config, kept = recipe(name).with_changes({"seed": seed}), []

    @torch.no_grad()
    def keep(model: Adapted, features: Features) -> dict[str, float]:
        found = model.eval()(features.centre)
        kept.append((_without_idle(found, config), features.centre_labels, features.centre))
        return {}

    epochs = config.run.epochs
    trial(config, None, features=features, should_stop=lambda _: False, judge=keep, validate_every=epochs)
    return kept[-1]


def _without_idle(embedding: Embedding, config: Config) -> Embedding:
    """A plain loss has taught its uncertainty nothing."""
    return embedding if config.objective.introspective else Embedding(embedding.semantic)


def table(lines: Sequence[dict]) -> str:
    """Means over the seeds of each name, in the order in which they came."""
    by_name: dict[str, list[dict[str, float]]] = {}
    for line in lines:
        by_name.setdefault(line["name"], []).append(line["scores"])
    columns = [column for column in COLUMNS if any(column in line["scores"] for line in lines)]
    rows = [
        [name, *(_mean([one[column] for one in some if column in one]) for column in columns)]
        for name, some in by_name.items()
    ]
    return markdown.table(["model", *columns], rows)


def _mean(values: Sequence[float]) -> str:
    return f"{round(fmean(values), 3) + 0:.3f}".replace("-", "−") if values else "–"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--frozen", nargs=2, metavar=("WEIGHTS", "FEATURES"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        print(table(_measured(options)))
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


def _measured(options: argparse.Namespace) -> list[dict]:
    """The lines of all models, each in the log as soon as it is known."""
    cache = Cache.open(options.cache)
    if options.frozen is None:
        sources = [(name, partial(of_run, Path(run), cache)) for name, run in _named(options.models)]
    else:
        weights, path = options.frozen
        if not Path(path).exists():
            raise ValueError(f"there are no features in {path}: benchmarks/frozen_heads.py makes them of {weights}.")
        features = read(Path(path))
        named = [(name, recipe, seed) for name, recipe in _named(options.models) for seed in range(options.seeds)]
        sources = [(name, partial(of_recipe, recipe, seed, features)) for name, recipe, seed in named]
    lines = []
    for name, source in sources:
        lines.append({"name": name, "is_frozen": options.frozen is not None, "scores": twins(*source())})
        with options.log.open("a") as log:
            log.write(json.dumps(lines[-1], ensure_ascii=False) + "\n")
    return lines


def _named(given: Sequence[str]) -> list[tuple[str, str]]:
    for text in given:
        if not text.partition("=")[2]:
            raise ValueError(f"{text!r} names no model: write NAME=RUN, or NAME=RECIPE with --frozen.")
    return [(name, what) for name, _, what in (text.partition("=") for text in given)]


if __name__ == "__main__":
    main()
