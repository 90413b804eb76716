"""Forward + backward time of every loss: against pytorch-metric-learning, and introspective against plain.

    python benchmarks/losses.py [--rounds 7] [--json FILE]

All contenders of a row take turns in one process on the same inputs, and each figure is the median
over rounds of a ratio of two times taken right after each other, because machines are noisy. Inputs
are 512 dimensions, 4 images a class, and uncertainties of level 0.5, as trained models have; both
sides get embeddings and labels and return gradients for embeddings and proxies. "bare" is the
normalised similarity matrix alone, forward + backward.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from pytorch_metric_learning import losses as peer_losses
from pytorch_metric_learning import miners as peer_miners
from torch import Tensor
from torch.nn.functional import normalize

from idml import Embedding, Objective
from idml.distances import Introspective
from idml.losses import LOSSES

DIM, IMAGES_A_CLASS, LEVEL, WARM_UP = 512, 4, 0.5, 3
SIZES = [(240, 100), (1024, 10_000)]
# At most so many times the peer, bare similarity, and plain: what this project set out to reach.
PEER_TARGETS = dict.fromkeys(LOSSES, 0.5) | {"triplet": 0.2, "margin": 0.2, "softmax": 1.0, "proxy_nca": 1.0}
BARE_TARGETS = {"softmax": 1.7, "proxy_nca": 1.7}
INTROSPECTIVE_TARGET = 2.0


@dataclass(frozen=True)
class Inputs:
    semantic: Tensor
    uncertainty: Tensor
    labels: Tensor
    classes: int

    @classmethod
    def draw(cls, images: int, classes: int) -> "Inputs":
        generator = torch.Generator().manual_seed(0)
        semantic, uncertainty = (torch.randn(images, DIM, generator=generator) for _ in range(2))
        uncertainty *= LEVEL / DIM**0.5
        shown = torch.randperm(classes, generator=generator)[: images // IMAGES_A_CLASS]
        return cls(semantic, uncertainty, shown.repeat_interleave(IMAGES_A_CLASS), classes)

    def leaf(self) -> Tensor:
        return self.semantic.clone().requires_grad_()


def ours(name: str, inputs: Inputs, introspective: bool) -> Callable[[], None]:
    objective = Objective(name, Introspective() if introspective else None, inputs.classes, DIM, DIM)

    def step():
        objective.zero_grad()
        uncertainty = inputs.uncertainty.clone().requires_grad_() if introspective else None
        objective(Embedding(inputs.leaf(), uncertainty), inputs.labels).backward()

    return step


def peer(name: str, inputs: Inputs) -> Callable[[], None]:
    loss, miner = {
        "contrastive": lambda: (peer_losses.ContrastiveLoss(), None),
        "margin": lambda: (peer_losses.MarginLoss(), peer_miners.DistanceWeightedMiner()),
        "triplet": lambda: (peer_losses.TripletMarginLoss(margin=0.1), peer_miners.TripletMarginMiner(0.1, "semihard")),
        "multi_similarity": lambda: (peer_losses.MultiSimilarityLoss(), peer_miners.MultiSimilarityMiner()),
        "softmax": lambda: (peer_losses.NormalizedSoftmaxLoss(inputs.classes, DIM), None),
        "proxy_nca": lambda: (peer_losses.ProxyNCALoss(inputs.classes, DIM, softmax_scale=9), None),
        "proxy_anchor": lambda: (peer_losses.ProxyAnchorLoss(inputs.classes, DIM), None),
        "fast_ap": lambda: (peer_losses.FastAPLoss(num_bins=10), None),
    }[name]()

    def step():
        loss.zero_grad()
        embeddings = inputs.leaf()
        loss(embeddings, inputs.labels, miner(embeddings, inputs.labels) if miner else None).backward()

    return step


def bare(inputs: Inputs) -> Callable[[], None]:
    proxies = torch.randn(inputs.classes, DIM, requires_grad=True)
    upstream = torch.rand(len(inputs.semantic), inputs.classes)

    def step():
        proxies.grad = None
        (normalize(inputs.leaf()) @ normalize(proxies).T).backward(upstream)

    return step


def seconds(step: Callable[[], None], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def measure(name: str, inputs: Inputs, rounds: int) -> dict:
    contenders = {
        "plain": ours(name, inputs, False),
        "introspective": ours(name, inputs, True),
        "peer": peer(name, inputs),
    }
    if LOSSES[name].proxies:
        contenders["bare"] = bare(inputs)
    for step in contenders.values():
        seconds(step, WARM_UP)
    repeats = {key: max(1, min(20, round(0.1 / seconds(step, 1)))) for key, step in contenders.items()}
    times: dict[str, list[float]] = {key: [] for key in contenders}
    for _ in range(rounds):
        for key, step in contenders.items():
            times[key].append(seconds(step, repeats[key]))

    def ratio(over: str, under: str) -> float:
        return round(statistics.median(a / b for a, b in zip(times[over], times[under], strict=True)), 3)

    return {
        "loss": name,
        "images": len(inputs.semantic),
        "classes": inputs.classes,
        "milliseconds": {key: round(1e3 * statistics.median(value), 2) for key, value in times.items()},
        "plain / peer": ratio("plain", "peer"),
        "introspective / plain": ratio("introspective", "plain"),
        **({"plain / bare": ratio("plain", "bare")} if "bare" in contenders else {}),
    }


def verdict(row: dict) -> str:
    targets = {"plain / peer": PEER_TARGETS[row["loss"]], "introspective / plain": INTROSPECTIVE_TARGET}
    if row["loss"] in BARE_TARGETS:
        targets["plain / bare"] = BARE_TARGETS[row["loss"]]
    missed = [f"{key} over {target}" for key, target in targets.items() if row[key] > target]
    return "; ".join(missed) or "ok"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the rows there as JSON lines")
    parser.add_argument("--losses", nargs="*", default=list(LOSSES), choices=list(LOSSES))
    options = parser.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, {options.rounds} rounds"
    )
    print(f"{'loss':18}{'n':>6}{'c':>7}{'plain ms':>10}{'/peer':>8}{'/bare':>8}{'introspective/plain':>21}  target")
    rows = []
    for images, classes in SIZES:
        inputs = Inputs.draw(images, classes)
        for name in options.losses:
            row = measure(name, inputs, options.rounds)
            rows.append(row | {"torch": torch.__version__, "threads": torch.get_num_threads()})
            print(
                f"{name:18}{images:6}{classes:7}{row['milliseconds']['plain']:10.2f}{row['plain / peer']:8.2f}"
                f"{row.get('plain / bare', float('nan')):8.2f}{row['introspective / plain']:21.2f}  {verdict(row)}",
                flush=True,
            )
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
