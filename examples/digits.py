"""Train on the digits 0 to 4, retrieve among 5 to 9, and ask the model which images it finds ambiguous.

    python examples/digits.py

scikit-learn's digits, 8 × 8 pixels, come with the package. A small network is trained with the
ProxyAnchor loss twice, on the plain cosine distance and on the introspective distance with Mixup;
nothing was tuned on the digits 5 to 9.
"""

import statistics
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from idml import Objective, evaluate
from idml.data.corruptions import blur
from idml.data.mixing import mixup
from idml.distances import Introspective
from idml.models.heads import Heads

SEEDS, STEPS, BATCH, DIM, FEATURES = 5, 300, 100, 16, 64


def load() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)  # values from 0 to 16
    return torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)


def network(introspective: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, FEATURES, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        Heads(FEATURES, DIM, DIM if introspective else None),
    )


def train(images: Tensor, labels: Tensor, *, introspective: bool, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = network(introspective)
    objective = Objective("proxy_anchor", Introspective(smoothing=1.0) if introspective else None, 5, DIM, DIM)
    groups = [{"params": model.parameters(), "lr": 3e-3}, {"params": objective.parameters(), "lr": 3e-2}]
    optimiser = torch.optim.AdamW(groups)
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        loss = objective(model(images[chosen]), labels[chosen])
        if introspective:  # mixed images count for both their classes, each by its share
            mixed, mixing = mixup(images[chosen], generator=generator)
            loss = loss + objective(
                model(mixed), labels[chosen], mixing.other_labels(labels[chosen]), mixing.batch_share
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    images, labels = load()
    is_training = labels < 5
    train_images, train_labels = images[is_training], labels[is_training]
    test_images, test_labels = images[~is_training], labels[~is_training]
    print(f"digits 0-4: {len(train_images)} images to train on; digits 5-9: {len(test_images)} to retrieve among")
    print(f"{STEPS} steps, ProxyAnchor, mean ± standard deviation over {SEEDS} seeds\n")
    print(f"{'distance':16}{'Recall@1 %':>14}{'MAP@R %':>14}{'seconds a run':>16}")
    model: nn.Module = nn.Identity()
    for introspective in (False, True):
        start, scores = time.perf_counter(), []
        for seed in range(SEEDS):
            model = train(train_images, train_labels, introspective=introspective, seed=seed)
            found = evaluate(model(test_images), test_labels, clustering=False, failures=False, resamples=0)
            scores.append((found.recall[1], found.map_at_r))
        columns = [
            f"{100 * statistics.mean(column):.1f} ± {100 * statistics.stdev(column):.1f}"
            for column in zip(*scores, strict=True)
        ]
        name = "introspective" if introspective else "plain"
        print(f"{name:16}{columns[0]:>14}{columns[1]:>14}{(time.perf_counter() - start) / SEEDS:16.1f}")

    mixed, _ = mixup(test_images, concentration=20.0, generator=torch.Generator().manual_seed(0))
    groups = {"clean": test_images, "blurred": blur(test_images, degree=1.0), "mixed, half and half": mixed}
    print("\nhow ambiguous the introspective model finds images of digits it has never seen (mean level):")
    with torch.no_grad():
        for name, group in groups.items():
            level = model(group).level.mean().item()
            print(f"  {name:22}{level:6.3f}  {'█' * round(40 * level)}")


if __name__ == "__main__":
    main()
