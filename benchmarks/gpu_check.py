"""By hand on a GPU: nothing in a training step waits for the device, and results are those of the CPU.

    PYTHONPATH=src python benchmarks/gpu_check.py

Runs every loss with every distance and label kind, forward and backward, and the mixings and
corruptions, with CUDA's synchronisation check set to fail; then compares with the CPU in float64.
"""

import itertools

import torch

from idml import Embedding, Objective
from idml.data.corruptions import blur, low_resolution, occlusion
from idml.data.mixing import cutmix, mixup, remix
from idml.distances import Cosine, Euclidean, Introspective
from idml.losses import LOSSES
from idml.models.heads import Heads

IMAGES, CLASSES, DIM = 120, 30, 64
DISTANCES = {
    "default": None,
    "euclidean": Euclidean(),
    "cosine": Cosine(),
    "introspective": Introspective(smoothing=1.0),
    "sum of norms": Introspective(pair_uncertainty="sum_of_norms", gamma=1.0),
    "dissimilar": Introspective(base="cosine", ambiguous="dissimilar"),
    "strict": Introspective(strict=True),
}


def labels_of(kind: str, generator: torch.Generator) -> torch.Tensor:
    numbers = torch.arange(IMAGES) % CLASSES
    other = numbers[torch.randperm(IMAGES, generator=generator)]
    if kind == "numbers":
        return numbers
    hot, other_hot = (torch.nn.functional.one_hot(values, CLASSES).double() for values in (numbers, other))
    return (hot + other_hot) > 0 if kind == "sets" else 0.7 * hot + 0.3 * other_hot


def step(loss: str, distance, labels: torch.Tensor, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Loss and gradients; on the GPU, any wait inside is an error."""
    torch.manual_seed(0)
    objective = Objective(loss, distance, num_classes=CLASSES, dim=DIM, uncertainty_dim=DIM).to(device, dtype)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(2, IMAGES, DIM, generator=generator, dtype=torch.float64)
    rows[0, 1], rows[1, 2] = rows[0, 0], -rows[1, 3]  # a duplicate, and opposite uncertainties
    s, u = (side.to(device, dtype).requires_grad_() for side in (rows[0], 0.05 * rows[1]))
    labels = labels.to(device, dtype) if labels.is_floating_point() else labels.to(device)
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
    try:
        value = objective(Embedding(s, u), labels)
        inputs = [s, u, *objective.parameters()]
        grads = torch.autograd.grad(value, inputs, allow_unused=True) if value.requires_grad else []
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [value.detach(), *(grad for grad in grads if grad is not None)]


def check_images() -> None:
    images = torch.rand(8, 3, 32, 32, device="cuda")
    labels, counts = torch.arange(8, device="cuda") % 4, torch.tensor([1, 5, 9, 2], device="cuda")
    heads = Heads(32 * 32 * 3, 16, 16).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    torch.cuda.set_sync_debug_mode("error")
    for mixed, mixing in (
        mixup(images),
        cutmix(images, per_image=True, generator=generator),
        remix(images, labels, counts),
    ):
        mixing.label_sets(labels, 4)
        mixing.label_shares(labels, 4)
        heads(mixed.flatten(1)).level.sum().backward()
    for corrupt in (low_resolution, blur, occlusion):
        corrupt(images, rate=0.5, generator=generator)
    torch.cuda.set_sync_debug_mode("default")


def main() -> None:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    worst, runs = 0.0, 0
    for loss, (name, distance), kind in itertools.product(LOSSES, DISTANCES.items(), ("numbers", "sets", "shares")):
        labels = labels_of(kind, torch.Generator().manual_seed(2))
        here = step(loss, distance, labels, "cuda", torch.float32)
        runs += 1
        if loss == "margin":  # draws other negatives on another device
            continue
        truth = step(loss, distance, labels, "cpu", torch.float64)
        for ours, theirs in zip(here, truth, strict=True):
            error = float((ours.cpu().double() - theirs).norm() / theirs.norm().clamp(min=1e-6))
            worst = max(worst, error)
            if error > 1e-3:
                print(f"{loss}, {name}, {kind}: relative error {error:.2g}")
    check_images()
    print(f"{runs} runs waited for nothing; largest relative error against the CPU in float64: {worst:.2g}")


if __name__ == "__main__":
    main()
