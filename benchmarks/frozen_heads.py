"""Forms of the method on frozen features: hundreds of runs where a GPU is far away.

    python benchmarks/frozen_heads.py CACHE WEIGHTS FEATURES LOG --arms FILE [--seeds 2]

The pooled features of ResNet-50 of several random crops of the images in classes 1 to 50, clean and mixed, and of
the centre crops in classes 51 to 100, are computed once, on two cores in half an hour, and kept in FEATURES. A run
trains a residual adapter and both heads on them, in half a minute, by the same steps, objective and mixing as
`idml train`, and is judged on classes 51 to 100. Arms are those of `idml sweep`; what concerns images, the backbone
and the schedule is not looked at, nor, where images of the batch are mixed, the concentration of shares. It shows
whether a form harms, and why (`alpha`, `rank`): not what it gains.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from idml import Embedding, evaluate
from idml.data.cache import Cache
from idml.data.crops import centre_boxes, random_flips, random_resized_boxes
from idml.data.mixing import Mixing, draw_mixing
from idml.data.pixels import Pixels
from idml.data.samplers import class_balanced_batches, random_batches
from idml.data.splits import TRAIN, held_out_classes
from idml.distances import Introspective
from idml.evaluation.ambiguity import told_apart
from idml.models.embedder import Embedder
from idml.models.heads import Heads
from idml.sweeping.lab import Lab
from idml.sweeping.space import arms_of_file
from idml.sweeping.sweep import Plan, sweep
from idml.training import health
from idml.training.averaging import Average
from idml.training.building import build_objective
from idml.training.config import Config
from idml.training.feeding import Batch
from idml.training.schedule import optimiser_for
from idml.training.stepping import loss_and_gradients

CROPS, SHARES = 5, (0.5, 0.75, 0.9)  # random crops of each image; shares of mixed ones
CROP_SIZE, TEST_SIZE, RESIZED = 160, 224, 256
ADAPTER, USUAL_NORM = 512, 30.0  # its width; the scale of pooled features after LayerNorm
VALIDATE_EVERY = 3
WATCHED = ("recall@1", "map_at_r", "r_auroc", "rank")  # of the scores, those that an epoch's record has
SEED_OF_OTHERS = 1000  # added to that of a run, for images that are mixed in place of the batch


@dataclass(frozen=True)
class Features:
    """Of training images (CROPS, n, f), their labels; mixed with partners by SHARES; of validation images."""

    crops: Tensor
    labels: Int[Tensor, " n"]
    mixed: Tensor
    partners: Tensor
    centre: Tensor
    centre_labels: Int[Tensor, " v"]


def extract(cache: Cache, weights: str) -> dict[str, Tensor]:
    """All features, in half precision, by the rows of the training split."""
    rows = cache.rows(TRAIN)
    generator = torch.Generator().manual_seed(0)
    pixels = Pixels.of(cache, rows, "cpu", budget=0)
    model = Embedder("resnet50_v1", weights=weights, image_size=TEST_SIZE).eval()
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    places = torch.arange(len(rows))
    training, validation = held_out_classes(places, cache.labels[rows], share="second half")

    @torch.inference_mode()
    def features(chosen: Tensor, crops) -> Tensor:
        found = torch.zeros(len(rows), model.backbone.width, dtype=torch.half)
        for some in chosen.split(64):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found[some] = model.features(crops(some)).half()
        return found

    def random_crops(some: Tensor) -> Tensor:
        heights, widths = pixels.sizes(some)
        boxes = random_resized_boxes(heights, widths, scale=(0.16, 1.0), generator=generator)
        return pixels.crops(some, boxes, CROP_SIZE, flip=random_flips(heights, generator=generator))

    def centre_crops(some: Tensor) -> Tensor:
        return pixels.crops(some, centre_boxes(*pixels.sizes(some), size=TEST_SIZE, of=RESIZED), TEST_SIZE)

    def mixed_crops(some: Tensor, *, share: float, partner: Tensor) -> Tensor:
        own, others = (random_crops(places).float() for places in (some, partner[some]))
        return (share * own + (1 - share) * others).round().to(torch.uint8)

    partners = places.repeat(len(SHARES), 1)
    for row in partners:
        row[training] = training[torch.randperm(len(training), generator=generator)]
    return {
        "labels": cache.labels[rows],
        "half": torch.isin(places, validation).long(),
        "centre": features(validation, centre_crops),
        "augs": torch.stack([features(training, random_crops) for _ in range(CROPS)]),
        "mixed": torch.stack(
            [
                features(training, partial(mixed_crops, share=share, partner=partner))
                for share, partner in zip(SHARES, partners, strict=True)
            ]
        ),
        "partners": partners,
    }


def read(path: Path) -> Features:
    kept = torch.load(path, weights_only=True)
    training, validation = ((kept["half"] == half).nonzero()[:, 0] for half in (0, 1))
    place = torch.full((len(kept["labels"]),), -1)
    place[training] = torch.arange(len(training))
    return Features(
        crops=kept["augs"][:, training],
        labels=kept["labels"][training].unique(return_inverse=True)[1],
        mixed=kept["mixed"][:, training],
        partners=place[kept["partners"][:, training]],
        centre=kept["centre"][validation].float(),
        centre_labels=kept["labels"][validation],
    )


class Adapted(nn.Module):
    """The heads on features that a residual adapter may change."""

    def __init__(self, width: int, config: Config):
        super().__init__()
        model = config.model
        form = replace(model.form, normalise=True)
        self.normalise = nn.LayerNorm(width, elementwise_affine=False)
        self.down, self.up = nn.Linear(width, ADAPTER), nn.Linear(ADAPTER, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)
        self.embed_features = Heads(
            width, model.dim, model.uncertainty_dim, semantic_normalise=model.semantic_normalise, form=form
        )

    def features(self, images: Tensor) -> Tensor:
        """images: their pooled features."""
        features = self.normalise(images)
        return USUAL_NORM * (features + self.up(torch.relu(self.down(features))))

    def forward(self, images: Tensor) -> Embedding:
        return self.embed_features(self.features(images))


def groups_of(model: Adapted, objective: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The adapter learns at the rate of the heads."""
    assert model.embed_features.uncertainty is not None
    adapter = [*model.down.parameters(), *model.up.parameters()]
    return {
        "semantic": [*adapter, *model.embed_features.semantic.parameters()],
        "uncertainty": list(model.embed_features.uncertainty.parameters()),
        "proxies": list(objective.parameters()),
    }


@dataclass(frozen=True, eq=False)
class Given(Mixing):
    """A mixing whose partners are not in the batch: their labels are known."""

    others: Tensor | None = None

    def other_labels(self, labels: Tensor) -> Tensor:  # noqa: ARG002
        assert self.others is not None
        return self.others


def batches(features: Features, config: Config, epoch: int, generator: torch.Generator):
    def places(seed: int) -> Tensor:
        data = config.data
        if data.per_class is None:
            return random_batches(len(features.labels), data.batch, seed=seed, epoch=epoch)
        return class_balanced_batches(features.labels, data.batch, per_class=data.per_class, seed=seed, epoch=epoch)

    def crops(some: Tensor) -> Tensor:
        return features.crops[torch.randint(CROPS, (len(some),), generator=generator), some].float()

    for some, others in zip(places(config.run.seed), places(config.run.seed + SEED_OF_OTHERS), strict=True):
        images, labels = crops(some), features.labels[some]
        if config.mixing.mixing == "none":
            yield Batch(images, None, labels, None)
        elif config.mixing.mixing == "features":
            mixing = draw_mixing(len(some), concentration=config.mixing.concentration, generator=generator)
            yield Batch(images, None, labels, mixing)
        elif config.mixing.mixed_from == "batch":
            yield Batch(images, *_mixed(features, some, int(torch.randint(len(SHARES), (1,), generator=generator))))
        else:
            drawn = draw_mixing(len(others), concentration=config.mixing.concentration, generator=generator).share[0]
            kind = min(range(len(SHARES) + 1), key=lambda kind: abs([*SHARES, 1.0][kind] - max(drawn, 1 - drawn)))
            mixed, own, mixing = _mixed(features, others, min(kind, len(SHARES) - 1))
            if kind == len(SHARES):  # too little of the partner to count
                whole = torch.ones(len(others))
                mixed, mixing = crops(others), replace(mixing, share=whole, label_share=whole)
            yield Batch(images, mixed, labels, mixing, own)


def _mixed(features: Features, some: Tensor, kind: int) -> tuple[Tensor, Tensor, Mixing]:
    """These images, mixed by the share of that number: features, labels, and how."""
    share = torch.full((len(some),), SHARES[kind])
    mixing = Given(some, share, share, others=features.labels[features.partners[kind, some]])
    return features.mixed[kind, some].float(), features.labels[some], mixing


def trial(
    config: Config,
    _cache: Cache | None,
    *,
    features: Features,
    should_stop,
    objective_for=build_objective,
    judge: Callable[[Adapted, Features], dict[str, float]] | None = None,
    validate_every: int = VALIDATE_EVERY,
    **_options: Any,
) -> dict[str, Any]:
    """One run, as `idml.sweeping.trial.run_trial` tells of it.

    objective_for: makes the objective of a config and a number of classes.
    judge: gives the scores of a model, `judged` unless another is given.
    """
    judge = judge or judged
    start = time.perf_counter()
    torch.manual_seed(config.run.seed)
    model = Adapted(features.crops.shape[2], config)
    objective = objective_for(config, int(features.labels.max()) + 1)
    optimiser = optimiser_for(groups_of(model, objective), config.optimiser, device=torch.device("cpu"))
    average = Average(list(model.parameters()), config.optimiser.average or 0.99)
    generator = torch.Generator().manual_seed(config.run.seed)
    aims = config.objective
    options = {"level_prior": aims.level_prior, "noise": aims.uncertainty_noise, "generator": generator}
    record: dict[str, float] = {}
    records, stopped, scores = [], None, {}
    for epoch in range(1, config.run.epochs + 1):
        model.train()
        means = health.Averages()
        for batch in batches(features, config, epoch, generator):
            step = loss_and_gradients(model, objective, batch, config.mixing, **options)
            optimiser.step()
            optimiser.zero_grad()
            average.update()
            means.add({"loss": step.loss})
            if isinstance(objective.distance, Introspective):
                compared, pairs = objective.compared(step.original), objective.pairs(batch.labels)
                how = {"mixed": step.mixed, "is_centred": objective.is_centred}
                means.add(health.doubts(step.original, compared, pairs, objective.distance, **how))
        record = {"epoch": epoch, **means.read()}
        if epoch % validate_every == 0 or epoch == config.run.epochs:
            with average.in_place():
                scores = judge(model, features)
            record |= {f"validation_{name}": scores[name] for name in WATCHED if name in scores}
        records.append({name: float(f"{value:.5g}") for name, value in record.items()})
        if epoch < config.run.epochs and should_stop(record):
            stopped = epoch
            break
    of_training = ("weight_positive", "weight_negative", "weight_mixed", "weight_deviation")
    return {
        "split": "validation",
        "scores": scores | {name: record[name] for name in of_training if name in record},
        "epochs": records,
        "stopped": stopped,
        "seconds": round(time.perf_counter() - start, 2),
    }


@torch.no_grad()
def judged(model: Adapted, features: Features) -> dict[str, float]:
    """Scores of the validation classes, mean distances and effective rank of their embeddings; of training images
    the level, and whether their uncertainty vectors agree within a class.
    """
    model.eval()
    found = model(features.centre)
    scores = evaluate(found, features.centre_labels, clustering=False, resamples=0)
    assert scores.uncertainty is not None
    directions = nn.functional.normalize(found.semantic)
    alpha = torch.cdist(directions, directions)
    is_same = features.centre_labels[:, None] == features.centre_labels
    variance = torch.linalg.svdvals(directions - directions.mean(dim=0)).square()
    share = variance / variance.sum()
    both = model(torch.cat([features.crops[0], features.mixed[0]]).float())
    trained, mixed = both[: len(features.labels)], both[len(features.labels) :].level
    assert trained.uncertainty is not None
    clean, agreement = trained.level, _cosines(trained.uncertainty)
    is_alike = features.labels[:, None] == features.labels
    return {row.key: row.value for row in scores.rows()} | {
        "alpha_positive": float(alpha[is_same].sum() / (is_same.sum() - len(alpha))),
        "alpha_negative": float(alpha[~is_same].mean()),
        "rank": float(torch.exp(-(share * share.clamp(min=1e-12).log()).sum())),
        "u_cosine_positive": float((agreement[is_alike].sum() - len(clean)) / (is_alike.sum() - len(clean))),
        "u_cosine_negative": float(agreement[~is_alike].mean()),
        "level_clean": float(clean.mean()),
        "level_mixed": float(mixed.mean()),
        "mixed_auroc": told_apart(clean, mixed),
    }


def _cosines(rows: Tensor) -> Tensor:
    directions = nn.functional.normalize(rows)
    return directions @ directions.T


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("features", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--arms", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], dest="changes")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cache = Cache.open(options.cache)
    if not options.features.exists():
        torch.save(extract(cache, options.weights), options.features)
    changes = ["backbone=resnet50_v1", f"weights={options.weights}", *options.changes]
    arms = arms_of_file(options.arms, changes, validation={"validation_half": "second"})
    run = partial(trial, features=read(options.features))
    lines = sweep(Plan(arms, range(options.seeds), cache), Lab(options.log), device=torch.device("cpu"), trial=run)
    for line in lines:
        found = line["scores"]
        told = "  ".join(
            f"{name} {found[name]:.4g}"
            for name in ("recall@1", "map_at_r", "r_auroc", "mixed_auroc", "rank", "weight_positive", "weight_negative")
            if name in found
        )
        print(f"{line['arm']:24}  {line['seed']}  {told or line['error']}")


if __name__ == "__main__":
    main()
