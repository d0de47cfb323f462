"""The progress of a training, for a person at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from combutab.training import Callback, EpochReport

_TEXT, _BAR = 62, 40  # columns of a terminal: for the words; for the bar, at most


class EpochBar(Callback):
    """A bar on standard error: epochs, time left and losses, on one line of 80 columns.

    Nothing is shown in a pipe.
    """

    def __init__(self, description: str) -> None:
        self.description = description

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(max(4, min(_BAR, console.width - _TEXT))),
            MofNCompleteColumn(),
            TextColumn("{task.fields[losses]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(self.description, total=max_epochs, losses="")
        self._bar.start()

    def on_epoch_end(self, report: EpochReport) -> None:
        losses = report.losses or {"loss": report.train_loss}
        if len(losses) == 1:
            losses = {"loss": next(iter(losses.values()))}
        shown = ", ".join(f"{name} {values.mean():.3g}" for name, values in losses.items())
        self._bar.update(self._task, completed=report.epoch, losses=f"{shown}; left")

    def on_train_end(self) -> None:
        self._bar.stop()
