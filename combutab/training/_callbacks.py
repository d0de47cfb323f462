"""What training tells the outside, once an epoch, and how the outside stops it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from combutab.training._records import Rows, StackedNetwork

_TEXT, _BAR = 62, 40  # columns of a terminal: for the words; for the bar, at most


@dataclass(frozen=True)
class EpochReport:
    """One epoch of the members that are still training.

    ``members`` are positions in the stack as it was given; the arrays have one entry each.
    ``validation_score`` is None without a validation set. ``losses`` has the losses by name where
    there are several (a generator's and its critic's).
    """

    epoch: int  # from 1
    max_epochs: int
    members: tuple[int, ...]
    train_loss: np.ndarray
    validation_score: np.ndarray | None
    learning_rate: np.ndarray
    seconds: float  # since training began
    losses: Mapping[str, np.ndarray] = field(default_factory=dict)


class Callback:
    """Base class: override what is needed. State it keeps must survive ``copy.deepcopy``."""

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Called before the first epoch of a stack."""

    def on_epoch_network(self, report: EpochReport, network: StackedNetwork, data: Rows) -> None:
        """Called before ``on_epoch_end``, for estimators: the network as the epoch left it.

        To be looked at, and not kept: the next epoch changes it. Its first axis is that of
        ``report.members``. ``data`` are the rows of the table, encoded.
        """

    def on_epoch_end(self, report: EpochReport) -> bool | None:
        """Called after each epoch; a true return value stops the training."""

    def on_train_end(self) -> None:
        """Called once training is over, also after an error or an interrupt."""


class TimeLimit(Callback):
    """Stop after the epoch in which ``seconds`` have passed since training began.

    >>> TimeLimit(60.0).seconds
    60.0
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_epoch_end(self, report: EpochReport) -> bool:
        return report.seconds >= self.seconds


class VerboseLines(Callback):
    """Print one line an epoch, in scikit-learn's words (``verbose=True``)."""

    def on_epoch_end(self, report: EpochReport) -> None:
        print(f"Iteration {report.epoch}, loss = {report.train_loss.mean():.8f}")
        if report.validation_score is not None:
            print(f"Validation score: {report.validation_score.mean():f}")


class ProgressBar(Callback):
    """A progress bar on standard error: epochs, losses, validation score, time left.

    Shown on a terminal only, so that logs and pipes stay clean; on one line of 80 columns.

    Parameters
    ----------
    description : str
        Stands in front of the bar.
    transient : bool, default=False
        Remove the bar at the end.
    """

    def __init__(self, description: str = "training", *, transient: bool = False) -> None:
        self.description, self.transient = description, transient

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(max(4, min(_BAR, console.width - _TEXT))),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=self.transient,
        )
        name = self.description if n_members == 1 else f"{self.description} x {n_members}"
        self._task = self._bar.add_task(name, total=max_epochs, scores="")
        self._bar.start()

    def on_epoch_end(self, report: EpochReport) -> None:
        losses = report.losses
        if len(losses) < 2:
            losses = {"loss": report.train_loss}
        scores = ", ".join(f"{name} {values.mean():.3g}" for name, values in losses.items())
        if report.validation_score is not None:
            scores += f", score {report.validation_score.mean():.3g}"
        self._bar.update(self._task, completed=report.epoch, scores=f"{scores}; left")

    def on_train_end(self) -> None:
        self._bar.stop()
        del self._bar, self._task  # a bar holds locks, which no pickle or deepcopy takes
