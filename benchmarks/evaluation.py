"""Time and memory of evaluation against its peers, at the size of the test set of Stanford Online Products.

    python benchmarks/evaluation.py [--rounds 1] [--threads 2] [--images 60502] [--json FILE]

Retrieval: Recall@{1, 10, 100, 1000}, R-Precision, MAP@R and, ours only, mAP, against the
AccuracyCalculator of pytorch-metric-learning with faiss and k = 1000, which gives precision@1,
R-Precision and MAP@R. Each contender runs in a process of its own, whose peak memory beyond the
embeddings is read at its end; they take turns. "product" is the bare matrix product of all pairs in
float32, by parts, with nothing done to it. What tells queries that fail, which the peer has not, is timed apart.
Clustering: see `benchmarks/clustering.py`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import clustering
import torch
from torch import Tensor
from torch.nn.functional import normalize

DIM, PER_CLASS, NOISE = 512, 5.35, 2.0
KS = (1, 10, 100, 1000)
TARGET_TIME, TARGET_MEMORY = 0.3, 0.3


def draw(images: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    classes = round(images / PER_CLASS)
    labels = torch.randint(classes, (images,), generator=generator)
    centres = torch.randn(classes, DIM, generator=generator)
    return normalize(centres[labels] + NOISE * torch.randn(images, DIM, generator=generator)), labels


def ours(rows: Tensor, labels: Tensor, *, failures: bool = False) -> dict[str, float]:
    from idml import evaluate

    scores = evaluate(rows, labels, ks=KS, clustering=False, failures=failures, resamples=0)
    return {"precision@1": scores.precision_at_1, "r_precision": scores.r_precision, "map_at_r": scores.map_at_r}


def peer(rows: Tensor, labels: Tensor) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = {
        "precision@1": "precision_at_1",
        "r_precision": "r_precision",
        "map_at_r": "mean_average_precision_at_r",
    }
    calculator = AccuracyCalculator(include=tuple(names.values()), k=max(KS), device=torch.device("cpu"))
    found = calculator.get_accuracy(rows, labels)
    return {name: float(found[theirs]) for name, theirs in names.items()}


def product(rows: Tensor, _labels: Tensor) -> dict[str, float]:
    space = torch.empty(2048, 2048)
    for part in rows.split(2048):
        for other in rows.split(2048):
            torch.mm(part, other.T, out=space[: len(part), : len(other)])
    return {}


CONTENDERS = {
    "ours": ours,
    "ours, with failures": partial(ours, failures=True),
    "pytorch-metric-learning": peer,
    "product": product,
}


def resident(what: str) -> int:
    """This process's memory now (VmRSS) or at its peak (VmHWM), in KiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what))


def run_alone(name: str, images: int, threads: int) -> None:
    """In a process of its own: print seconds, peak memory in MB beyond the embeddings, and scores."""
    torch.set_num_threads(threads)
    if name == "pytorch-metric-learning":
        import faiss

        faiss.omp_set_num_threads(threads)
    rows, labels = draw(images)
    CONTENDERS[name](*draw(1000))  # imports and warm-up
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of drawing
    before = resident("VmRSS")
    start = time.perf_counter()
    scores = CONTENDERS[name](rows, labels)
    seconds = time.perf_counter() - start
    peak = (resident("VmHWM") - before) / 1024
    print(json.dumps({"seconds": round(seconds, 2), "peak_mb": round(peak), **scores}))


def measure(name: str, images: int, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--alone", name, "--images", str(images), "--threads", str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=60_502)
    parser.add_argument("--json", type=Path, help="add the results there as a JSON line")
    parser.add_argument("--alone", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run_alone(options.alone, options.images, options.threads)
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(options.rounds):
        for name, runs in found.items():
            runs.append(measure(name, options.images, options.threads))
    print(
        f"torch {torch.__version__}, {options.threads} threads, {options.images:,} × {DIM}, medians of {options.rounds}"
    )
    for name, runs in found.items():
        scores = {key: round(value, 5) for key, value in runs[0].items() if key not in ("seconds", "peak_mb")}
        seconds, peak = (statistics.median(run[key] for run in runs) for key in ("seconds", "peak_mb"))
        print(f"{name:26}{seconds:8.1f} s {peak:7.0f} MB  {scores or ''}")
    pairs = list(zip(found["ours"], found["pytorch-metric-learning"], strict=True))
    ratios = {key: statistics.median(a[key] / b[key] for a, b in pairs) for key in ("seconds", "peak_mb")}
    print(f"ours over pytorch-metric-learning: time {ratios['seconds']:.2f} (target {TARGET_TIME})", end=", ")
    print(f"peak memory {ratios['peak_mb']:.2f} (target {TARGET_MEMORY})")
    kmeans = clustering.measure("large", 20, options.rounds)
    print(f"k-means + NMI over faiss: {kmeans['ratio']:.2f} (target {clustering.TARGET})")
    if options.json:
        line = {"retrieval": found, "ratios": ratios, "k_means": kmeans, "torch": torch.__version__}
        with options.json.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
