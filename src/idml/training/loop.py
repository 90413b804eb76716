"""The training loop, from top to bottom: prepared images in, a trained and evaluated model out.

A run is a function of its config, its data and its seed. It can be killed at any moment and started
again, and runs under torchrun without a change.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from idml.data.batches import seeded
from idml.data.cache import Cache
from idml.data.pixels import Pixels
from idml.data.splits import TRAIN, held_out_classes
from idml.distances import Introspective
from idml.evaluation.judging import evaluate
from idml.models.embedder import Embedder
from idml.models.heads import UncertaintyForm
from idml.objective import Objective
from idml.training import checkpoint, distributed, health
from idml.training.checkpoint import BEST, LAST, Place
from idml.training.config import Config
from idml.training.embedding import embed_rows
from idml.training.feeding import Feed
from idml.training.finish import finish
from idml.training.logs import Logs
from idml.training.runs import RunFolder
from idml.training.schedule import optimiser_for, set_learning_rates
from idml.training.stepping import loss_and_gradients
from idml.training.watching import Silent, Watch

HEALTH_EVERY = 10  # steps between looks at the uncertainty
LOOK_EVERY = 25  # steps between looks at the loss: each waits for the device


def train(
    config: Config,
    cache: Cache | Path | str,
    folder: Path | str,
    *,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    wandb: bool = False,
    pixels_memory: int | None = None,
) -> dict[str, Any]:
    """Train, or go on training, and evaluate once at the end; the scores of the test classes, if there are any.

    folder: where the run keeps its config, log, checkpoints, model, embeddings and scores. A run that was
    interrupted goes on from its last checkpoint and ends with the same weights as if it had not been.
    """
    watch = watch or Silent()
    cache = cache if isinstance(cache, Cache) else Cache.open(cache)
    with distributed.process_group(torch.device(device)) as place_of_work:
        return _Run(config, cache, RunFolder(folder), place_of_work, watch, wandb, pixels_memory).go()


class _Run:
    """One run: what it holds, and its loop."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        folder: RunFolder,
        device: torch.device,
        watch: Watch,
        wandb: bool,
        pixels_memory: int | None,
    ):
        self.config, self.cache, self.folder, self.device, self.watch = config, cache, folder, device, watch
        self.logs = Logs(folder, wandb=wandb)
        rows, self.validation_rows = training_and_validation_rows(config, cache)
        self.class_numbers, labels = cache.labels[rows].unique(return_inverse=True)
        torch.manual_seed(config.run.seed)
        self.model = build_model(config).to(device)
        if config.run.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.objective = build_objective(config, len(self.class_numbers)).to(device)
        self.pixels = Pixels.of(cache, rows, device, budget=pixels_memory)
        self.feed = Feed(self.pixels, labels, config.data, config.mixing, seed=config.run.seed)
        self.groups = self.model.parameter_groups() | {"proxies": list(self.objective.parameters())}
        self.optimiser = optimiser_for(self.groups, config.optimiser, device=device)
        self.compiled: nn.Module | None = None

    def go(self) -> dict[str, Any]:
        can_continue = self.folder.begin(self.config, self._data())
        place = Place()
        last = self.folder.checkpoint(LAST)
        if can_continue and last.exists():
            place = checkpoint.load(last, self.model, self.objective, self.optimiser)
            self.watch.say(f"going on from epoch {place.epoch + 1}, batch {place.batch}")
        epochs = self.config.run.epochs
        self.watch.begin(epochs=epochs, batches=len(self.feed), done=place.step)
        for epoch in range(place.epoch, epochs):
            place = self._epoch(place._replace(epoch=epoch))
        self.watch.end()
        if self.config.run.select == "best" and place.best_epoch >= 0:
            checkpoint.load(self.folder.checkpoint(BEST), self.model, self.objective)
            self.watch.say(f"epoch {place.best_epoch + 1} was the best on the validation classes")
        return finish(self.config, self.model, self.cache, self.folder, self.validation_rows, self.device, self.watch)

    def _data(self) -> dict[str, str]:
        """Which images these are: the same ones may be continued with."""
        return {"source": self.cache.meta.source, "checksum": self.cache.meta.index_checksum}

    def _epoch(self, place: Place) -> Place:
        config, epoch = self.config, place.epoch
        is_warming = epoch < config.optimiser.warm_up_epochs
        self.model.backbone.requires_grad_(not is_warming)
        self.model.train()
        averages, start, saved = health.Averages(), time.perf_counter(), time.perf_counter()
        embed = self._embed(is_warming)
        for number, batch in enumerate(self.feed.batches(epoch, place.batch), start=place.batch):
            self._seed(epoch, number)  # of miners that draw
            set_learning_rates(
                self.optimiser, config.optimiser, epoch=epoch, epochs=config.run.epochs, share=number / len(self.feed)
            )
            loss, original, mixed, gradient = loss_and_gradients(
                embed,
                self.objective,
                batch,
                mixed_labels=config.mixing.mixed_labels,
                chunk=config.optimiser.cached_chunk,
                scale=1 / config.optimiser.accumulate,
            )
            averages.add({"loss": loss, "gradient_semantic_embedding": gradient})
            is_last = number + 1 == len(self.feed)
            if (number + 1) % config.optimiser.accumulate == 0 or is_last:
                distributed.add_gradients(self.model.parameters())
                if number % HEALTH_EVERY == 0:
                    averages.add(health.gradient_norms(self.groups))
                if config.optimiser.clip is not None:
                    nn.utils.clip_grad_value_(self._parameters(), config.optimiser.clip)
                self.optimiser.step()
                self.optimiser.zero_grad(set_to_none=True)
            distance = self.objective.distance
            if number % HEALTH_EVERY == 0 and isinstance(distance, Introspective):
                is_same = batch.labels[:, None] == batch.labels
                averages.add(health.doubts(original, is_same, distance, mixed=mixed))
            place = place._replace(batch=number + 1, step=place.step + 1)
            self.watch.step(images=len(batch.labels) * (1 if batch.mixed is None else 2))
            if place.step % LOOK_EVERY == 0 and not is_last:
                self._check(float(loss), place)
                is_between = (number + 1) % config.optimiser.accumulate == 0
                if is_between and time.perf_counter() - saved > 60 * config.run.checkpoint_minutes:
                    self._save(LAST, place)
                    saved = time.perf_counter()
        return self._end_of_epoch(place, averages.read(), time.perf_counter() - start)

    def _end_of_epoch(self, place: Place, means: dict[str, float], seconds: float) -> Place:
        """Validate, tell, and save; the place at the start of the next epoch."""
        run = self.config.run
        self._check(means.get("loss", 0.0), place)
        record: dict[str, Any] = {"epoch": place.epoch + 1, "seconds": round(seconds, 3), **means}
        is_time = (place.epoch + 1) % run.validate_every == 0 or place.epoch + 1 == run.epochs
        best = False
        if len(self.validation_rows) and is_time:
            score = self._validate(record)
            best = score > place.best_score
            if best:
                place = place._replace(best_score=score, best_epoch=place.epoch)
        following = place._replace(epoch=place.epoch + 1, batch=0)
        if distributed.is_first():
            self.folder.record(record)
            self.logs.add(record)
        if best:
            self._save(BEST, following)
        self._save(LAST, following)
        self.watch.epoch(record)
        for warning in health.warnings(means):
            self.watch.say(f"warning, epoch {place.epoch + 1}: {warning}")
        return following

    def _validate(self, record: dict[str, Any]) -> float:
        """MAP@R of the validation classes, which decides which epoch is the best."""
        found = embed_rows(self.model, self.cache, self.validation_rows, self.config, device=self.device)
        labels = self.cache.labels[self.validation_rows]
        scores = evaluate(found, labels, ks=(1,), clustering=False, resamples=0, shared=True)
        record |= {"validation_recall@1": scores.recall[1], "validation_map_at_r": scores.map_at_r}
        if scores.uncertainty is not None and math.isfinite(scores.uncertainty.r_auroc):
            record["validation_r_auroc"] = scores.uncertainty.r_auroc
        return distributed.agree(scores.map_at_r, self.device)

    def _embed(self, is_warming: bool):
        """The model under autocast; compiled, once all of it is trained."""
        if self.config.run.compile and not is_warming and self.compiled is None:
            self.compiled = self._compiled()
        model = self.compiled if self.compiled is not None and not is_warming else self.model

        def embed(images: Tensor):
            if self.config.run.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            torch.compiler.cudagraph_mark_step_begin()
            with self._precision():
                return model(images)

        return embed

    def _compiled(self) -> nn.Module:
        """On a GPU as a CUDA graph, whose hundreds of kernels are launched at once: else launching them takes longer
        than running them. A graph's gradients live until the next batch, so not where several are added up.
        """
        optimiser = self.config.optimiser
        is_graph = self.device.type == "cuda" and optimiser.accumulate == 1 and optimiser.cached_chunk is None
        mode = "reduce-overhead" if is_graph else "default"
        return torch.compile(self.model, dynamic=False, mode=mode)  # pyright: ignore[reportReturnType]

    def _precision(self):
        if self.config.run.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.groups.values() for parameter in group]

    def _seed(self, epoch: int, number: int) -> None:
        torch.manual_seed(seeded(self.config.run.seed, epoch, number).initial_seed())

    def _check(self, loss: float, place: Place) -> None:
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} in epoch {place.epoch + 1}: lower lr, or use precision=float32. "
                f"{self.folder.checkpoint(LAST)} is from before."
            )

    def _save(self, name: str, place: Place) -> None:
        checkpoint.save(self.folder.checkpoint(name), place, self.model, self.objective, self.optimiser)


def training_and_validation_rows(config: Config, cache: Cache) -> tuple[Tensor, Tensor]:
    """Rows of the classes to train on, and of those held out; without validation the latter are none."""
    rows, data = cache.rows(TRAIN), config.data
    if data.validation_half != "none":
        return held_out_classes(rows, cache.labels[rows], share=f"{data.validation_half} half")  # pyright: ignore[reportArgumentType]
    if data.validation_share == 0:
        return rows, rows[:0]
    return held_out_classes(rows, cache.labels[rows], share=data.validation_share, seed=data.validation_seed)


def build_model(config: Config) -> Embedder:
    """The network that a config describes, with the weights it starts from."""
    model = config.model
    form = UncertaintyForm(
        normalise=model.uncertainty_normalise,
        gradient_scale=model.uncertainty_gradient,
        starting_level=model.uncertainty_level,
    )
    return Embedder(
        model.backbone,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim if config.objective.introspective else None,
        weights=model.weights,
        pooling=model.pooling,
        frozen_batch_norm=model.frozen_batch_norm,
        form=form,
        image_size=config.data.image_size,
    )


def build_objective(config: Config, classes: int) -> Objective:
    """What the run minimises, with a proxy for each class where the loss has proxies."""
    chosen, model = config.objective, config.model
    return Objective(
        chosen.loss,
        chosen.distance,
        num_classes=classes,
        dim=model.dim,
        uncertainty_dim=model.uncertainty_dim,
        learn_proxy_uncertainty=chosen.learn_proxy_uncertainty,
        **dict[str, Any](chosen.loss_options),
    )
