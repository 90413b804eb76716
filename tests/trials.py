"""Runs of a sweep that train nothing: what they find is a formula of their config."""

import math
from collections.abc import Callable
from typing import Any

from idml.sweeping.trial import check_trial
from idml.training.config import Config


def score_of(config: Config, epoch: int) -> float:
    """Rises with the epochs towards a limit that depends on tau, and a little on the seed."""
    limit = 0.9 / (1 + 0.1 * abs(config.objective.tau - 3)) + 0.01 * math.sin(1 + 7 * config.run.seed)
    return limit * epoch / (epoch + 1)


class FakeTrial:
    """In the place of `run_trial`. before: called with each config, and may raise; calls: the configs of all runs."""

    def __init__(self, before: Callable[[Config], None] = lambda _config: None, score=score_of):
        self.before, self.score = before, score
        self.calls: list[Config] = []
        self.workshops: set[int] = set()

    def __call__(
        self, config: Config, cache, *, device, workshop, should_stop=lambda _record: False, is_final=False, watch=None
    ) -> dict[str, Any]:
        del device
        check_trial(config, cache, is_final=is_final)
        self.calls.append(config)
        self.workshops.add(id(workshop))
        self.before(config)
        epochs, stopped = [], None
        if watch is not None:
            watch.begin(epochs=config.run.epochs, batches=1, done=0)
        for epoch in range(1, config.run.epochs + 1):
            record = {"epoch": epoch, "loss": 1 / epoch, "seconds": 0.1}
            if not is_final:
                record["validation_map_at_r"] = self.score(config, epoch)
            epochs.append(record)
            if watch is not None:
                watch.step(images=1)
                watch.epoch(record)
            if should_stop(record):
                stopped = epoch
                break
        last = self.score(config, len(epochs))
        scores = {"map_at_r": last, "recall@1": (1 + last) / 2}
        scores |= {"r_auroc": 0.7, "aurc": 1 - last} if config.objective.introspective else {}
        scores |= {"nmi": last / 2} if is_final else {}
        split = "test" if is_final else "validation"
        return {"split": split, "scores": scores, "epochs": epochs, "stopped": stopped, "seconds": 1.5}
