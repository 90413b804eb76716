"""The training loop, from top to bottom: prepared images in, a trained and evaluated model out.

A run is a function of its config, its data and its seed. It can be killed at any moment and started
again, and runs under torchrun without a change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from idml.data.batches import seeded
from idml.data.cache import Cache, warning_about
from idml.distances import Introspective
from idml.embedding import Embedding
from idml.errors import NotFiniteError
from idml.evaluation.judging import evaluate
from idml.training import checkpoint, distributed, health
from idml.training.averaging import Average
from idml.training.building import (
    build_objective,
    scored_rows,
    training_and_validation_rows,
    warning_about_batches,
)
from idml.training.checkpoint import BEST, LAST, Part, Place
from idml.training.config import Config
from idml.training.embedding import embed_all, embed_images
from idml.training.feeding import Batch, Feed
from idml.training.finish import finish
from idml.training.logs import Logs
from idml.training.runs import RunFolder
from idml.training.schedule import optimiser_for, set_learning_rates
from idml.training.stepping import Step, loss_and_gradients
from idml.training.watching import Silent, Watch
from idml.training.workshop import Workshop

HEALTH_EVERY = 10  # steps of the optimiser between looks at the uncertainty and at gradients
LOOK_EVERY = 25  # steps between looks at the loss: each waits for the device
STEP, NOISE = 1, 2  # which numbers of a batch are drawn, beside those that crop and mix its images
SANE = 16  # images whose loss must be a number before a checkpoint is written
SHORT_EPOCH = 10.0  # seconds that may be lost: after shorter epochs a checkpoint is not written each time


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
    scored_rows(cache)  # raises now what would fail after training
    with distributed.process_group(torch.device(device)) as place_of_work:
        where, workshop = RunFolder(folder), Workshop()
        run = Run(config, cache, place_of_work, workshop, watch=watch, folder=where, pixels_memory=pixels_memory)
        batches = warning_about_batches(config, len(run.class_numbers))
        for remark in (warning_about(cache, config.data.prepared_size), batches):
            if remark is not None:
                watch.say(f"warning: {remark}")
        run.logs = Logs(where, wandb=wandb)
        run.go()
        if run.was_trained and (scores := where.scores()) is not None:
            watch.say("scored already")
            return scores
        return finish(config, run.model, cache, where, run.validation_rows, workshop, place_of_work, watch)


def never(_record: dict[str, Any]) -> bool:
    return False


class Run:
    """One run: what it holds, and its loop. Without a folder it leaves nothing behind but its model."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        device: torch.device,
        workshop: Workshop,
        *,
        watch: Watch,
        folder: RunFolder | None = None,
        pixels_memory: int | None = None,
    ):
        self.config, self.cache, self.folder, self.device, self.watch = config, cache, folder, device, watch
        self.logs: Logs | None = None
        self.records: list[dict[str, Any]] = []
        self.was_trained = False  # before, by the same command
        control = config.model.uncertainty
        if control != "learned" and distributed.ranks() > 1:
            raise ValueError(f"uncertainty={control} draws or averages on each rank alone: use one process.")
        rows, self.validation_rows = training_and_validation_rows(config, cache)
        self.class_numbers, labels = cache.labels[rows].unique(return_inverse=True)
        torch.manual_seed(config.run.seed)
        self.running = workshop.model(config, device)
        self.model = self.running.model
        self.objective = build_objective(config, len(self.class_numbers)).to(device)
        self.model.distance = self.introspective
        self.model.class_names = [cache.class_names[number] for number in self.class_numbers.tolist()]
        pixels = workshop.pixels(cache, rows, device, budget=pixels_memory)
        self.feed = Feed(pixels, labels, config.data, config.mixing, seed=config.run.seed)
        self.batches = len(self.feed)  # of an epoch
        if len(self.validation_rows):
            self.validation = workshop.pixels(cache, self.validation_rows, device, budget=pixels_memory)
        self.groups = self.model.parameter_groups() | {"proxies": list(self.objective.parameters())}
        self.optimiser = optimiser_for(self.groups, config.optimiser, device=device)
        share = config.optimiser.average
        self.average = None if share is None else Average(list(self.model.parameters()), share)
        self.means = health.Averages()
        self._saved = time.perf_counter()

    @property
    def introspective(self) -> Introspective | None:
        """The distance that is trained with, on the base of the loss; None if it knows no uncertainty."""
        return self.objective.distance if isinstance(self.objective.distance, Introspective) else None

    def go(self, should_stop: Callable[[dict[str, Any]], bool] = never) -> bool:
        """Train to the end, and leave in the model the weights that were asked for; whether the end was reached.

        should_stop: asked after each epoch, with its record.
        """
        place = self._start()
        epochs = self.config.run.epochs
        self.watch.begin(epochs=epochs, batches=self.batches, done=place.step)
        try:
            while place.epoch < epochs:
                place = self._epoch(place)
                if place.epoch < epochs and should_stop(self.records[-1]):
                    break
        except NotFiniteError:  # on a CPU, distances refuse what is no number
            raise self._diverged("no number any more", place) from None
        finally:
            self.watch.end()
        if self.config.run.select == "best" and place.best_epoch >= 0 and self.folder is not None:
            self._load(BEST)
            self.watch.say(f"epoch {place.best_epoch + 1} was the best on the validation classes")
        if self.average is not None:
            self.average.adopt()
        return place.epoch == epochs

    def _start(self) -> Place:
        if self.folder is None or not self.folder.begin(self.config, self._data()):
            return Place()
        place = self._load(LAST)
        going_on = f"going on from epoch {place.epoch + 1}, batch {place.batch}"
        self.was_trained = place.epoch == self.config.run.epochs
        self.watch.say("all epochs are trained already" if self.was_trained else going_on)
        return place

    def _data(self) -> dict[str, str]:
        """Which images these are: the same ones may be continued with."""
        return {"source": self.cache.meta.source, "checksum": self.cache.meta.index_checksum}

    def _epoch(self, place: Place) -> Place:
        config, epoch = self.config, place.epoch
        self.running.is_warming = epoch < config.optimiser.warm_up_epochs
        self.model.backbone.requires_grad_(not self.running.is_warming)
        self.model.train()
        start = time.perf_counter() - place.seconds
        noise = config.objective.uncertainty_noise
        for number, batch in enumerate(self.feed.batches(epoch, place.batch), start=place.batch):
            self._seed(epoch, number)  # of miners that draw
            set_learning_rates(
                self.optimiser, config.optimiser, epoch=epoch, epochs=config.run.epochs, share=number / self.batches
            )
            step = loss_and_gradients(
                self.running,
                self.objective,
                batch,
                config.mixing,
                level_prior=config.objective.level_prior,
                noise=noise,
                generator=seeded(config.run.seed, epoch, number, NOISE, device=self.device) if noise else None,
                chunk=config.optimiser.cached_chunk,
                scale=1 / config.optimiser.accumulate,
            )
            self.means.add({"loss": step.loss, "gradient_semantic_embedding": step.gradient})
            is_last = number + 1 == self.batches
            is_between = (number + 1) % config.optimiser.accumulate == 0 or is_last
            is_looked_at = number // config.optimiser.accumulate % HEALTH_EVERY == 0
            if is_between:
                self._descend(is_looked_at=is_looked_at)
            if is_looked_at:
                self.means.add(self._doubts(step, batch.labels))
            place = place._replace(batch=number + 1, step=place.step + 1)
            self.watch.step(images=len(batch.labels) * (1 if batch.mixed is None else 2))
            if is_last:
                self._check_sanity(batch, place)
            elif place.step % LOOK_EVERY == 0:
                self._check(float(step.loss), place)
                if is_between and self._since_saved() > 60 * config.run.checkpoint_minutes:
                    self._check_sanity(batch, place)
                    self._save(LAST, place._replace(seconds=time.perf_counter() - start))
        return self._end_of_epoch(place, self.means.read(), time.perf_counter() - start)

    def _descend(self, *, is_looked_at: bool) -> None:
        """One step of the optimiser."""
        optimiser = self.config.optimiser
        distributed.add_gradients(self.model.parameters())
        if is_looked_at:
            self.means.add(health.gradient_norms(self.groups))
        if optimiser.clip is not None:
            nn.utils.clip_grad_value_([each for group in self.groups.values() for each in group], optimiser.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()

    def _doubts(self, step: Step, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the uncertainty does to the pairs that the loss compares, and to the loss."""
        distance = self.introspective
        if distance is None:
            return {}
        with torch.no_grad():
            compared = self.objective.compared(step.original)
            pairs, is_centred = self.objective.pairs(labels), self.objective.is_centred
            found = health.doubts(step.original, compared, pairs, distance, mixed=step.mixed, is_centred=is_centred)
            certain = Embedding.certain(step.original.semantic)
            found["loss_with_uncertainty"] = self.objective(step.original, labels)
            found["loss_without_uncertainty"] = self.objective(certain, labels)
            return found

    def _end_of_epoch(self, place: Place, means: dict[str, float], seconds: float) -> Place:
        """Validate, tell, and save; the place at the start of the next epoch."""
        run = self.config.run
        self._check(means["loss"], place)
        distributed.copy_buffers(self.model)
        record: dict[str, Any] = {"epoch": place.epoch + 1, "seconds": round(seconds, 3), **means}
        is_last = place.epoch + 1 == run.epochs
        best = False
        if len(self.validation_rows) and ((place.epoch + 1) % run.validate_every == 0 or is_last):
            score = self._validate(record)
            best = score > place.best_score
            if best:
                place = place._replace(best_score=score, best_epoch=place.epoch)
        following = place._replace(epoch=place.epoch + 1, batch=0, seconds=0.0)
        self.records.append(record)
        if distributed.is_first() and self.folder is not None:
            self.folder.record(record)
        if self.logs is not None:
            self.logs.add(record)
        if best and run.select == "best":
            self._save(BEST, following)
        if is_last or self._since_saved() > min(SHORT_EPOCH, 60 * run.checkpoint_minutes):
            self._save(LAST, following)
        self.watch.epoch(record)
        model = self.config.model
        may_be_equal = model.uncertainty_starts_equal or model.uncertainty == "common"
        has_proxies = self.objective.proxies is not None
        for warning in health.warnings(means, may_be_equal=may_be_equal, has_proxies=has_proxies):
            self.watch.say(f"warning, epoch {place.epoch + 1}: {warning}")
        return following

    def _validate(self, record: dict[str, Any]) -> float:
        """MAP@R of the validation classes, which decides which epoch is the best."""
        with nullcontext() if self.average is None else self.average.in_place():
            found = embed_all(self.model, self.validation, self.config)
        labels = self.cache.labels[self.validation_rows]
        scores = evaluate(found, labels, ks=(1,), clustering=False, failures=False, resamples=0, shared=True)
        record |= {"validation_recall@1": scores.recall[1], "validation_map_at_r": scores.map_at_r}
        if scores.uncertainty is not None and math.isfinite(scores.uncertainty.r_auroc):
            record["validation_r_auroc"] = scores.uncertainty.r_auroc
        return distributed.agree(scores.map_at_r, self.device)

    def _seed(self, epoch: int, number: int) -> None:
        torch.manual_seed(seeded(self.config.run.seed, epoch, number, STEP).initial_seed())

    def _check(self, loss: float, place: Place) -> None:
        if not math.isfinite(loss):
            raise self._diverged(str(loss), place)

    def _diverged(self, loss: str, place: Place) -> ValueError:
        last = None if self.folder is None else self.folder.checkpoint(LAST)
        kept = f" {last} is from before." if last is not None and last.exists() else ""
        remedy = f"lower lr ({self.config.optimiser.lr:g})"
        remedy += "" if self.config.run.precision == "float32" else ", or use precision=float32"
        return ValueError(f"the loss is {loss} in epoch {place.epoch + 1}: {remedy}.{kept}")

    @torch.no_grad()
    def _check_sanity(self, batch: Batch, place: Place) -> None:
        """Raise if the last step spoiled the model: the loss dates from before it, and checkpoints are to be sane."""
        if self.folder is None:
            return
        self.model.eval()
        found = embed_images(self.model, batch.images[:SANE], self.config)
        self.model.train()
        try:
            loss = float(self.objective(found, distributed.own_share(batch.labels)[:SANE]))
        except ValueError:  # on a CPU, distances refuse what is no number
            loss = math.nan
        self._check(loss, place)

    def _since_saved(self) -> float:
        return time.perf_counter() - self._saved

    def _save(self, name: str, place: Place) -> None:
        if self.folder is not None:
            checkpoint.save(self.folder.checkpoint(name), place, self._parts())
            self._saved = time.perf_counter() if name == LAST else self._saved

    def _load(self, name: str) -> Place:
        assert self.folder is not None
        return checkpoint.load(self.folder.checkpoint(name), self._parts(), device=self.device)

    def _parts(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"model": self.model, "objective": self.objective, "optimiser": self.optimiser}
        parts["means"] = self.means
        return parts if self.average is None else parts | {"average": self.average}
