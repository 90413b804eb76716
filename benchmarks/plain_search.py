"""As much search for plain losses as the method has had: random draws of their settings, on frozen features.

    python benchmarks/plain_search.py CACHE WEIGHTS FEATURES LOG [LOSS ...]

CACHE, WEIGHTS and FEATURES are those of `benchmarks/frozen_heads.py`, whose runs these are. Of each loss as many
configurations are drawn as its plain form lacked, when this was written, to have been tried in as many as its forms
with uncertainty (DRAWS). The rule, written before the first run, of R@1 + MAP@R after the last epoch:

1. All draws are run with seed 0; the FINALISTS best of each loss, and its recipe, with FRESH seeds as well.
2. The finalist that is best by its fresh seeds is nominated, if it is more than MARGIN above the recipe by theirs.
3. What is nominated is asked where the whole network learns, beside `benchmarks/arms/cub-next.arms` and by its rule.

Two processes with other losses each may share the log. What it has is not run again.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import torch
from frozen_heads import Adapted, Features, read, trial

from idml import Embedding, evaluate
from idml.data.cache import Cache
from idml.recipes import recipe
from idml.sweeping.lab import Lab, Line
from idml.sweeping.space import Arm, arms_of_recipes, make_arms, read_over
from idml.sweeping.sweep import Plan, sweep

FIRST, FRESH, FINALISTS, MARGIN = 0, (1, 2), 8, 0.3
DRAWS = {
    "proxy_anchor": 141,
    "contrastive": 141,
    "multi_similarity": 86,
    "fast_ap": 57,
    "margin": 56,
    "proxy_nca": 55,
    "triplet": 52,
    "softmax": 40,
}
OF_ALL = ("weight_decay=1e-5..1e-1", "average=0.98,0.99,0.995")
OF_PAIRS = ("per_class=3,4,5,6,8",)
OPTIONS = {
    "proxy_anchor": ("loss_options.alpha=8.0..80", "loss_options.margin=0.0..0.4"),
    "contrastive": ("loss_options.positive_margin=0.0..0.4", "loss_options.negative_margin=0.5..1.3"),
    "multi_similarity": (
        "loss_options.alpha=1.0..10",
        "loss_options.beta=10.0..100",
        "loss_options.base=0.2..0.8",
        "miner_options.epsilon=0.0..0.4",
    ),
    "fast_ap": ("loss_options.bins=4..40",),
    "margin": (
        "loss_options.positive_margin=0.0..0.5",
        "loss_options.negative_margin=0.7..1.3",
        "miner_options.dim=8..128",
    ),
    "proxy_nca": ("loss_options.scale=8.0..80", "loss_options.include_positive=true,false"),
    "triplet": ("loss_options.margin=0.02..0.5", "loss_options.mining=semihard,all"),
    "softmax": ("loss_options.scale=8.0..80", "loss_options.include_positive=true,false"),
}
EPOCHS = {"proxy_anchor": 8, "softmax": 8}  # of frozen features
USUAL_EPOCHS = 6
RATES = (0.3, 3.0)  # times those of the recipe


def name_of_recipe(loss: str) -> str:
    return f"cub-{loss.replace('_', '-')}-plain"


def space(loss: str) -> tuple[str, ...]:
    """What varies: options of the loss, rates of new layers and proxies, and what holds weights still."""
    optimiser = recipe(name_of_recipe(loss)).optimiser
    factors = {"head_factor": optimiser.head_factor}
    if EPOCHS.get(loss) or loss == "proxy_nca":
        factors["proxy_factor"] = optimiser.proxy_factor
    rates = [f"{name}={RATES[0] * value:.4g}..{RATES[1] * value:.4g}" for name, value in factors.items()]
    return (*OPTIONS[loss], *rates, *OF_ALL, *(() if "proxy_factor" in factors else OF_PAIRS))


def arms_of(loss: str, weights: str) -> tuple[Arm, list[Arm]]:
    """The recipe, and as many draws."""
    changes = ["backbone=resnet50_v1", f"weights={weights}", f"epochs={EPOCHS.get(loss, USUAL_EPOCHS)}"]
    (base,) = arms_of_recipes([name_of_recipe(loss)], changes, validation={"validation_half": "second"})
    return base, make_arms([base], [read_over(text) for text in space(loss)], trials=DRAWS[loss], seed=0)


@torch.no_grad()
def retrieval(model: Adapted, features: Features) -> dict[str, float]:
    """R@1 and MAP@R of the validation classes: all that the rule looks at."""
    model.eval()
    found = Embedding(model(features.centre).semantic)
    scores = evaluate(found, features.centre_labels, clustering=False, resamples=0)
    return {"recall@1": scores.recall[1], "map_at_r": scores.map_at_r}


def total(line: Line) -> float:
    """R@1 + MAP@R in %, and of a run that failed or was stopped less than of any other."""
    if line["error"] or line["stopped"]:
        return float("-inf")
    return 100 * (line["scores"]["recall@1"] + line["scores"]["map_at_r"])


def nominated(base: Arm, draws: Sequence[Arm], *, cache: Cache, lab: Lab, **options) -> tuple[Arm, float] | None:
    """The draw that the rule takes, if any, and by how much it is above the recipe with fresh seeds."""
    first = {line["arm"]: total(line) for line in sweep(Plan(draws, [FIRST], cache), lab, **options)}
    finalists = sorted(draws, key=lambda arm: first[arm.name], reverse=True)[:FINALISTS]
    sweep(Plan([base], [FIRST], cache), lab, **options)
    lines = sweep(Plan([base, *finalists], FRESH, cache), lab, **options)
    means = {arm.name: fmean(total(line) for line in lines if line["arm"] == arm.name) for arm in [base, *finalists]}
    for arm in finalists:
        print(f"  {arm.name}: {means[arm.name] - means[base.name]:+.2f}", flush=True)
    best = max(finalists, key=lambda arm: means[arm.name])
    above = means[best.name] - means[base.name]
    return (best, above) if above > MARGIN else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("features", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("losses", nargs="*", metavar="LOSS", default=list(DRAWS))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("medium")  # products in bfloat16, where a CPU has them
    for loss in options.losses:
        if loss not in DRAWS:
            raise SystemExit(f"there is no loss {loss!r}: name some of {', '.join(DRAWS)}.")
    features = read(options.features)
    run = partial(trial, features=features, judge=retrieval, validate_every=max(USUAL_EPOCHS, *EPOCHS.values()))
    how = {"cache": Cache.open(options.cache), "lab": Lab(options.log), "device": torch.device("cpu"), "trial": run}
    for loss in options.losses:
        base, draws = arms_of(loss, options.weights)
        print(f"{loss}: {len(draws)} draws", flush=True)
        match nominated(base, draws, **how):
            case (arm, above):
                print(f"nominated, {above:+.2f}: {loss} plain, drawn: {name_of_recipe(loss)} {arm.name}", flush=True)
            case None:
                print("none is nominated", flush=True)


if __name__ == "__main__":
    main()
