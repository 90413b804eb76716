"""Curves for those who want to watch them elsewhere: TensorBoard if it is installed, Weights & Biases if asked for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from idml.training import distributed
from idml.training.runs import RunFolder


class Logs:
    """Writes each epoch's numbers; the first rank only."""

    def __init__(self, folder: RunFolder, *, wandb: bool = False):
        self._folder = folder
        self._wandb = wandb
        self._board: Any = None
        self._run: Any = None
        if wandb and find_spec("wandb") is None:
            raise ValueError("wandb is not installed: pip install 'idml[wandb]', or leave --wandb out.")

    def add(self, record: dict[str, Any]) -> None:
        numbers = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "epoch"}
        if not distributed.is_first():
            return
        if find_spec("tensorboard") is not None:
            if self._board is None:
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(self._folder.path / "tensorboard")
            for name, value in numbers.items():
                self._board.add_scalar(name, value, record["epoch"])
            self._board.flush()
        if self._wandb:
            if self._run is None:
                import wandb  # pyright: ignore[reportMissingImports]

                self._run = wandb.init(project="idml", name=self._folder.path.name, dir=str(self._folder.path))
            self._run.log(numbers, step=record["epoch"])
