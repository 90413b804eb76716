"""Random draws of settings on frozen features, of plain losses and of the method: as much search for both, by one rule.

    python benchmarks/frozen_search.py plain|method CACHE WEIGHTS FEATURES LOG [LOSS ...] [--draws 60] [--seed 0]

CACHE, WEIGHTS and FEATURES are those of `benchmarks/frozen_heads.py`, whose runs these are. Of a plain recipe options
of its loss are drawn, rates, and what holds weights still; of one of the method how uncertainty is learned, and what
is mixed. The rule, of R@1 + MAP@R after the last epoch:

1. All draws are run with seed 0; the FINALISTS best of a loss, and its recipe, with FRESH seeds as well.
2. The finalist that is best by its fresh seeds is nominated, if it is more than MARGIN above the recipe. Of the method
   only finalists count whose level knows errors, with an R-AUROC of KNOWING or more by these seeds.
3. What is nominated is asked where the whole network learns (`benchmarks/fold_decisions.py`).

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
from idml.sweeping.lab import Lab, Line
from idml.sweeping.space import Arm, arms_of_recipes, make_arms, read_over
from idml.sweeping.sweep import Plan, sweep
from idml.training.config import Config

FIRST, FRESH, FINALISTS, MARGIN, KNOWING = 0, (1, 2), 8, 0.3, 0.58
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
OF_UNCERTAINTY = (
    "uncertainty_noise=0.0..0.9",
    "uncertainty_level=0.2..3.0",
    "uncertainty_gradient=0.0..1.0",
    "tau=0.3..3.0",
)
RATES_OF_UNCERTAINTY = (1e-9, 1e-6)
WITH_BATCH = ("mixing=mixup", "mixed_from=batch", "mixed_against=mixed")
MIXED = {  # what is mixed, and what varies with it
    "nothing": (("mixing=none",), ()),
    "images, to teach uncertainty alone": ((*WITH_BATCH, "mixed_teaches=uncertainty"), ("mixed_weight=0.1..1.0",)),
    "images of the batch": ((*WITH_BATCH, "mixed_teaches=all"), ("mixed_weight=0.1..1.0",)),
    "other images, hardly": (
        ("mixing=mixup", "mixed_from=others", "mixed_against=all", "mixed_teaches=all"),
        ("concentration=0.05..0.5",),
    ),
    "features": (
        ("mixing=features", "mixed_from=batch", "mixed_against=originals", "mixed_teaches=all"),
        ("mixed_weight=0.1..1.0", "concentration=0.1..2.0"),
    ),
}
EPOCHS = {"proxy_anchor": 8, "softmax": 8}  # of frozen features
USUAL_EPOCHS = 6
RATES = (0.3, 3.0)  # times those of the recipe

Search = tuple[Arm, list[Arm]]  # the recipe, and the draws


def plain(loss: str, weights: str, *, draws: int, seed: int) -> Search:
    base = _recipe(loss, weights, "-plain")
    return base, _drawn(base, _settings(base.config), draws, seed)


def method(loss: str, weights: str, *, draws: int, seed: int) -> Search:
    """Shared out among what may be mixed."""
    base = _recipe(loss, weights)
    rates = "..".join(f"{rate / base.config.optimiser.lr:.4g}" for rate in RATES_OF_UNCERTAINTY)
    found = []
    for mixing, varied in MIXED.values():
        settings = (*OF_UNCERTAINTY, f"uncertainty_factor={rates}", *varied)
        some = _drawn(_recipe(loss, weights, changes=mixing), settings, draws // len(MIXED), seed)
        found += [Arm(name=" ".join([*mixing, draw.name]), config=draw.config) for draw in some]
    return base, found


KINDS = {"plain": plain, "method": method}


def _recipe(loss: str, weights: str, suffix: str = "", *, changes: Sequence[str] = ()) -> Arm:
    """With as many epochs as frozen features take."""
    common = ["backbone=resnet50_v1", f"weights={weights}", f"epochs={EPOCHS.get(loss, USUAL_EPOCHS)}"]
    name = f"cub-{loss.replace('_', '-')}{suffix}"
    (arm,) = arms_of_recipes([name], [*common, *changes], validation={"validation_half": "second"})
    return arm


def _settings(config: Config) -> tuple[str, ...]:
    """What varies of a plain loss: its options, rates of new layers and proxies, and what holds weights still."""
    loss, optimiser = config.objective.loss, config.optimiser
    has_proxies = config.data.per_class is None
    factors = {"head_factor": optimiser.head_factor} | ({"proxy_factor": optimiser.proxy_factor} if has_proxies else {})
    rates = [f"{name}={RATES[0] * value:.4g}..{RATES[1] * value:.4g}" for name, value in factors.items()]
    return (*OPTIONS[loss], *rates, *OF_ALL, *(() if has_proxies else OF_PAIRS))


def _drawn(base: Arm, settings: Sequence[str], draws: int, seed: int) -> list[Arm]:
    return make_arms([base], [read_over(text) for text in settings], trials=draws, seed=seed)


@torch.no_grad()
def looked_at(model: Adapted, features: Features, *, level: bool) -> dict[str, float]:
    """R@1 and MAP@R of the validation classes, and how well the level knows errors: all that the rule looks at."""
    model.eval()
    found = model(features.centre)
    judged = found if level else Embedding(found.semantic)
    scores = evaluate(judged, features.centre_labels, clustering=False, failures=False, resamples=0)
    known = {} if scores.uncertainty is None else {"r_auroc": scores.uncertainty.r_auroc}
    return {"recall@1": scores.recall[1], "map_at_r": scores.map_at_r, **known}


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
    of_arm = {arm.name: [line for line in lines if line["arm"] == arm.name] for arm in [base, *finalists]}
    means = {name: fmean(total(line) for line in some) for name, some in of_arm.items()}
    for arm in finalists:
        print(f"  {arm.name}: {means[arm.name] - means[base.name]:+.2f}{_known(of_arm[arm.name])}", flush=True)
    knowing = [arm for arm in finalists if _knows(of_arm[arm.name])]
    best = max(knowing, key=lambda arm: means[arm.name], default=base)
    above = means[best.name] - means[base.name]
    return (best, above) if above > MARGIN else None


def _r_auroc(lines: Sequence[Line]) -> float | None:
    """The mean; of plain losses none."""
    found = [line["scores"]["r_auroc"] for line in lines if "r_auroc" in line["scores"]]
    return fmean(found) if found else None


def _knows(lines: Sequence[Line]) -> bool:
    """Whether the level knows errors, where there is one."""
    found = _r_auroc(lines)
    return found is None or found >= KNOWING


def _known(lines: Sequence[Line]) -> str:
    found = _r_auroc(lines)
    return "" if found is None else f", R-AUROC {found:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("features", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("losses", nargs="*", metavar="LOSS", default=list(OPTIONS))
    parser.add_argument("--draws", type=int, default=60, help="of each loss")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("medium")  # products in bfloat16, where a CPU has them
    for loss in options.losses:
        if loss not in OPTIONS:
            raise SystemExit(f"there is no loss {loss!r}: name some of {', '.join(OPTIONS)}.")
    features = read(options.features)
    judge = partial(looked_at, level=options.kind == "method")
    run = partial(trial, features=features, judge=judge, validate_every=max(USUAL_EPOCHS, *EPOCHS.values()))
    how = {"cache": Cache.open(options.cache), "lab": Lab(options.log), "device": torch.device("cpu"), "trial": run}
    for loss in options.losses:
        base, draws = KINDS[options.kind](loss, options.weights, draws=options.draws, seed=options.seed)
        print(f"{loss}: {len(draws)} draws", flush=True)
        match nominated(base, draws, **how):
            case (arm, above):
                print(f"nominated, {above:+.2f}: {loss} {options.kind}, drawn: {base.name} {arm.name}", flush=True)
            case None:
                print("none is nominated", flush=True)


if __name__ == "__main__":
    main()
