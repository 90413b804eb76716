"""Plain losses beside those of pytorch-metric-learning, on the frozen features of `frozen_heads.py`.

    python benchmarks/peer_baselines.py FEATURES LOG [--seeds 3]

Three arms a loss: ours as its CUB recipe has it, the peer's loss and miner with the same options, and the peer's with
its own defaults, where those are others. All else is equal: features, adapter, head, batches, rates, epochs, the judge,
and but for its defaults how proxies start. With the same options contrastive, multi-similarity, ProxyAnchor and FastAP
are one function in both; the peer's triplets are all semi-hard ones and not the nearest, its softmax leaves the images'
lengths in, its ProxyNCA has positives in the denominator, and its sampling for the margin loss is for the dimensions
there are. A run that the log has is not done again. Ends with a table in Markdown, of all that the log has.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_metric_learning
import torch
from frozen_heads import Features, read, trial
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import LpDistance
from torch import Tensor, nn

from idml import Embedding
from idml.evaluation.intervals import Spread, over_seeds
from idml.paper.tables import TITLES
from idml.recipes import recipe
from idml.sweeping.lab import Lab, Line, arm_identity, stored
from idml.training.building import build_objective
from idml.training.config import Config
from idml.training.reading import option_defaults
from idml.training.runs import versions

EPOCHS = {"proxy_anchor": 8, "softmax": 8, "margin": 4}  # features do not change here, so that few are enough
USUAL_EPOCHS = 6
FROZEN = "resnet50-v1-imagenet"  # the weights behind the features
OURS, EQUAL, DEFAULT = "ours", "peer, equal options", "peer, its defaults"
PEER = f"pytorch-metric-learning {pytorch_metric_learning.__version__}"
LIBRARIES = {OURS: "idml", EQUAL: f"{PEER}, equal options", DEFAULT: f"{PEER}, its defaults"}


class PeerObjective(nn.Module):
    """A loss and a miner of the peer, called as an `idml.Objective` is."""

    distance = None

    def __init__(self, loss: nn.Module, miner: Callable[..., Any] | None = None):
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(self, embedding: Embedding, labels: Tensor) -> Tensor:
        mined = None if self.miner is None else self.miner(embedding.semantic, labels)
        return self.loss(embedding.semantic, labels, mined)


def equal(config: Config, classes: int) -> PeerObjective:
    """The peer's loss and miner with the options of the config's, and its proxies where ours start."""
    ours = build_objective(config, classes)  # first, so that its proxies are those that a seed gives our own arm
    found = with_options(config, classes)
    if ours.proxies is not None:
        (proxies,) = found.parameters()
        start = ours.proxies().semantic.detach().clone()
        proxies.data = start if proxies.shape == start.shape else start.T.contiguous()
    return found


def with_options(config: Config, classes: int) -> PeerObjective:
    """The peer's loss and miner, with the options of the config's."""
    dim, aims = config.model.dim, config.objective
    options = option_defaults("loss_options", aims.loss) | aims.loss_options
    mining = option_defaults("miner_options", aims.loss) | aims.miner_options
    match aims.loss:
        case "contrastive":
            return PeerObjective(
                losses.ContrastiveLoss(pos_margin=options["positive_margin"], neg_margin=options["negative_margin"])
            )
        case "margin":
            low, high = options["positive_margin"], options["negative_margin"]
            loss = losses.MarginLoss(beta=(low + high) / 2, margin=(high - low) / 2)
            return PeerObjective(loss, miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4))
        case "triplet":
            margin = options["margin"]
            return PeerObjective(losses.TripletMarginLoss(margin=margin), miners.TripletMarginMiner(margin, "semihard"))
        case "multi_similarity":
            return PeerObjective(
                losses.MultiSimilarityLoss(alpha=options["alpha"], beta=options["beta"], base=options["base"]),
                miners.MultiSimilarityMiner(epsilon=mining["epsilon"]),
            )
        case "softmax":
            return PeerObjective(losses.NormalizedSoftmaxLoss(classes, dim, temperature=1 / options["scale"]))
        case "proxy_nca":
            return PeerObjective(
                losses.ProxyNCALoss(classes, dim, softmax_scale=options["scale"], distance=LpDistance(power=1))
            )
        case "proxy_anchor":
            return PeerObjective(losses.ProxyAnchorLoss(classes, dim, margin=options["margin"], alpha=options["alpha"]))
        case "fast_ap":
            return PeerObjective(losses.FastAPLoss(num_bins=options["bins"]))
    raise ValueError(f"the peer has no {aims.loss}.")


def by_default(config: Config, classes: int) -> PeerObjective | None:
    """The peer's loss and miner as they come; None where that is what `equal` gives."""
    match config.objective.loss:
        case "margin":
            return PeerObjective(losses.MarginLoss(), miners.DistanceWeightedMiner())
        case "triplet":
            return PeerObjective(losses.TripletMarginLoss(), miners.TripletMarginMiner(type_of_triplets="semihard"))
        case "multi_similarity":
            return PeerObjective(losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner())
        case "proxy_nca":
            return PeerObjective(losses.ProxyNCALoss(classes, config.model.dim))
        case "fast_ap":
            return PeerObjective(losses.FastAPLoss())
    return None


def objectives(config: Config, classes: int) -> dict[str, Callable[[Config, int], Any]]:
    """By arm, what makes its objective."""
    own_default = {} if by_default(config, classes) is None else {DEFAULT: by_default}
    return {OURS: build_objective, EQUAL: equal, **own_default}


def compare(features: Features, lab: Lab, *, seeds: int) -> None:
    lab.prepare()
    done, about = {(line["arm"], arm_identity(line), line["seed"]) for line in lab.lines()}, versions()
    for loss in TITLES:
        config = recipe(f"cub-{loss.replace('_', '-')}-plain").with_changes(
            {
                "epochs": EPOCHS.get(loss, USUAL_EPOCHS),
                "validation_half": "second",
                "backbone": "resnet50_v1",
                "weights": FROZEN,
            }
        )
        for row, objective_for in objectives(config, int(features.labels.max()) + 1).items():
            for seed in range(seeds):
                own = config.with_changes({"seed": seed})
                line = described(f"{loss} {row}", own, made_by=LIBRARIES[row])
                if (line["arm"], arm_identity(line), seed) in done:
                    continue
                found = trial(own, None, features=features, objective_for=objective_for, should_stop=lambda _: False)
                lab.append({**line, **found, "error": None, "versions": about | {"device": "CPU"}})
                print(f"{line['arm']:40} {seed}  R@1 {100 * found['scores']['recall@1']:.1f}", flush=True)


def described(arm: str, config: Config, *, made_by: str) -> Line:
    """The beginning of a line of the log; whose loss it is tells arms of one config apart."""
    settings = stored(config)
    settings["objective"] |= {"library": made_by}
    place = {"split": "validation", "dataset": "cub, frozen features", "data": ""}
    return {"arm": arm, "seed": config.run.seed, **place, "config": settings}


def table(lines: Sequence[Line]) -> str:
    """R@1 / MAP@R of each loss: mean ± standard deviation over seeds."""
    arms = (OURS, EQUAL, DEFAULT)
    texts = [f"| {' | '.join(['loss', *arms])} |", f"| {' | '.join(['---', *['---:'] * len(arms)])} |"]
    for loss, title in TITLES.items():
        found = [[line["scores"] for line in lines if line["arm"] == f"{loss} {arm}"] for arm in arms]
        cells = [" / ".join(_spread(runs, key) for key in ("recall@1", "map_at_r")) if runs else "–" for runs in found]
        texts.append(f"| {' | '.join([title, *cells])} |")
    return "\n".join(texts)


def _spread(runs: Sequence[dict[str, float]], key: str) -> str:
    found: Spread = over_seeds([100 * scores[key] for scores in runs])
    return " ± ".join(f"{value:.1f}" for value in (found.mean, found.standard_deviation) if value is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, help="what frozen_heads.py has kept")
    parser.add_argument("log", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not options.features.exists():
        parser.error(f"there is no {options.features}: let frozen_heads.py compute it first.")
    torch.set_num_threads(options.threads)
    lab = Lab(options.log)
    compare(read(options.features), lab, seeds=options.seeds)
    print(table(lab.lines()))


if __name__ == "__main__":
    main()
