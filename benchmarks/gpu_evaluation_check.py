"""By hand on a GPU: evaluation gives the CPU's neighbours and scores there, and how fast.

    PYTHONPATH=src python benchmarks/gpu_evaluation_check.py

Neighbours may differ only between pairs that are closer than 1e-6: that is asserted. TF32 is
allowed on purpose, as in many training scripts: it must not reach the distances.
"""

import time
from typing import Any

import torch

from idml import Embedding, evaluate
from idml.distances import Introspective
from idml.evaluation.comparing import Comparison
from idml.evaluation.neighbours import nearest

DIM = 512


def draw(images: int, classes: int, noise: float, *, seed: int = 0) -> tuple[Embedding, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=generator)
    rows = torch.randn(classes, DIM, generator=generator)[labels] + noise * torch.randn(
        images, DIM, generator=generator
    )
    rows[1::50] = rows[0::50][: len(rows[1::50])]  # exact duplicates
    return Embedding(rows, 0.02 * torch.randn(images, DIM, generator=generator)), labels


def moved(embedding: Embedding) -> Embedding:
    assert embedding.uncertainty is not None
    return Embedding(embedding.semantic.cuda(), embedding.uncertainty.cuda())


def check_neighbours(introspective: Introspective | None, *, noise: float = 2.0, common: float = 0.0) -> None:
    """common: a shared offset, which makes all images near each other."""
    embedding, _ = draw(5924, 100, noise)
    embedding = Embedding(embedding.semantic + common, embedding.uncertainty)
    here, there = (
        nearest(Comparison.of(side, introspective=introspective), 50) for side in (embedding, moved(embedding))
    )
    found = there[0].cpu()
    differs = (here[0] != found).nonzero()
    query = differs[:, 0]
    comparison = Comparison.of(embedding, introspective=introspective)
    ours, theirs = (comparison.exact(query, index[differs[:, 0], differs[:, 1]]) for index in (here[0], found))
    gap = float((ours - theirs).abs().max()) if len(differs) else 0.0
    print(f"{introspective}: {len(differs)} of {found.numel()} neighbours differ, by {gap:.2g} at most")
    assert gap < 1e-6


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for introspective in (None, Introspective()):
        check_neighbours(introspective)
        check_neighbours(introspective, noise=0.1, common=50.0)
    embedding, labels = draw(5924, 100, 2.0)
    on_cpu, on_gpu = (evaluate(side, labels, resamples=100) for side in (embedding, moved(embedding)))
    for ours, theirs in zip(on_cpu.rows(), on_gpu.rows(), strict=True):
        print(f"{ours.name:30}{ours.value:12.8f}{theirs.value:12.8f}")
        assert abs(ours.value - theirs.value) < 1e-6, ours.name
    embedding, labels = draw(60_502, 11_316, 2.0)
    large = moved(embedding)
    for clustering in (False, True):
        options: dict[str, Any] = {
            "ks": (1, 10, 100, 1000),
            "clustering": clustering,
            "failures": False,
            "resamples": 0,
        }
        evaluate(Embedding(large.semantic), labels, **options)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        scores = evaluate(Embedding(large.semantic), labels, **options)
        seconds = time.perf_counter() - start
        peak = (torch.cuda.max_memory_allocated() - before) / 2**30
        print(
            f"60,502 × 512, clustering {clustering}: {seconds:.2f} s, {peak:.2f} GiB; {scores.recall}, NMI {scores.nmi}"
        )
    start = time.perf_counter()
    scores = evaluate(large, labels, clustering=False)
    print(f"with uncertainty, failures and 1,000 resamples: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
