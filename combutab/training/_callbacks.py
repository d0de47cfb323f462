"""Callbacks: what training tells the outside, once an epoch, and how the outside stops it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from combutab.core.progress import bar_width, left_column, make_bar
from combutab.core.tasks import CallbackTask
from combutab.core.text import in_words
from combutab.nn import TableNetwork
from combutab.training._steps import MemberResult, Rows

# ---- Callbacks: what training tells the outside, once an epoch, and how the outside stops it -----

# Columns of a terminal: for the bar, at least and at most; for clock and gaps; for losses, at first
_BAR, _CLOCK, _SCORES = (4, 40), 18, 46
_SOME_SECONDS = 3.0  # of which the whole time is judged


@dataclass(frozen=True)
class EpochReport:
    """One epoch of the members that are still training.

    ``members`` are positions in the stack as it was given; the arrays have one entry each.
    ``validation_score`` is None without a validation set. ``losses`` has the losses by name where
    there are several (a generator's and its critic's). Training ends with the epoch at whose end
    ``max_seconds`` have passed, if not before.
    """

    epoch: int  # from 1
    max_epochs: int
    members: tuple[int, ...]
    train_loss: np.ndarray
    validation_score: np.ndarray | None
    learning_rate: np.ndarray
    seconds: float  # since training began
    losses: Mapping[str, np.ndarray] = field(default_factory=dict)
    max_seconds: float = np.inf


class Callback:
    """Base class: override what is needed. State it keeps must survive ``copy.deepcopy``."""

    def on_train_results(self, results: Callable[[], list[Any]]) -> None:
        """Called before ``on_train_begin``.

        ``results()`` gives, between epochs and afterwards, what training would if it ended there.
        """

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Called before the first epoch of a stack."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before each epoch, counted from 1."""

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
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
    """A progress bar on standard error: epochs, time left, losses, validation score.

    Shown on a terminal and in a notebook's cell only, so that logs and pipes stay clean; on one
    line, where the losses have what room there is. Until two epochs have ended, the time that has
    passed is shown in the place of what is left.

    Parameters
    ----------
    description : str
        Stands in front of the bar.
    transient : bool, default=False
        Remove the bar at the end.
    estimate : bool, default=False
        Print once, above the bar, how long the training takes about: after the first epoch that
        ends three seconds or more after the begin, unless it ends within a few seconds.
    """

    def __init__(
        self, description: str = "training", *, transient: bool = False, estimate: bool = False
    ) -> None:
        self.description, self.transient, self.estimate = description, transient, estimate

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

        name = self.description if n_members == 1 else f"{self.description} x {n_members}"
        self._width = bar_width()
        words = len(name) + 2 * len(str(max_epochs)) + _CLOCK
        bar = max(_BAR[0], min(_BAR[1], self._width - words - _SCORES))
        self._room = self._width - words - bar
        self._bar = make_bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar),
            MofNCompleteColumn(),
            left_column(),
            TextColumn("{task.fields[scores]}", markup=False),
            transient=self.transient,
        )
        self._task = self._bar.add_task(name, total=max_epochs, scores="", end=np.inf)
        self._first_epoch: int | None = None
        self._said = self._bar.disable or not self.estimate
        self._bar.start()

    def on_epoch_begin(self, epoch: int) -> None:
        if self._first_epoch is None:  # a training that is taken up goes on from a later one
            self._first_epoch = epoch

    def on_epoch_end(self, report: EpochReport) -> None:
        end = time.monotonic() + report.max_seconds - report.seconds
        if not self._said and report.seconds >= _SOME_SECONDS:
            self._said = True
            self._say_estimate(report)
        losses = dict(report.losses) if len(report.losses) > 1 else {"loss": report.train_loss}
        if report.validation_score is not None:
            losses["score"] = report.validation_score
        scores = ""
        for name, values in losses.items():
            more = f"{scores}{', ' if scores else ''}{name} {values.mean():.3g}"
            scores = more if len(more) <= self._room else scores
        self._bar.update(self._task, completed=report.epoch, scores=scores, end=end)

    def _say_estimate(self, report: EpochReport) -> None:
        first = self._first_epoch or 1
        of_epoch = report.seconds / (report.epoch - first + 1)
        total = min(of_epoch * (report.max_epochs - first + 1), report.max_seconds)
        if total - report.seconds < _SOME_SECONDS:
            return
        most = "; less if early stopping ends it" if report.validation_score is not None else ""
        print(f"Training takes about {in_words(total)} on this machine{most}", file=sys.stderr)

    def on_train_end(self) -> None:
        self._bar.stop()
        del self._bar, self._task  # a bar holds locks, which no pickle or deepcopy takes


# ---- What scikit-learn's callbacks are told of training: each epoch is a part of the fit ---------

# Attributes of the estimator that these results would make
Learned = Callable[[Sequence[MemberResult]], Mapping[str, Any]]


class FitTasks(Callback):
    """Makes each epoch of one stack after the other a part of a fit's task.

    Who asks to stop after an epoch ends the stacks that come later after their first.
    """

    def __init__(self, task: CallbackTask, learned: Learned | None = None) -> None:
        self.task, self.stopped = task, False
        self._stacks: list[Callable[[], list[Any]]] = []
        self._learned = learned

    def on_train_results(self, results: Callable[[], list[Any]]) -> None:
        if self._learned is not None:
            self._stacks.append(results)

    def on_epoch_begin(self, epoch: int) -> None:
        self._part = self.task.begin("epoch", self._fitted)

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.stopped |= self.task.end(self._part, self._fitted)
        return self.stopped

    def _fitted(self) -> Mapping[str, Any] | None:
        if self._learned is None:
            return None
        return self._learned([result for results in self._stacks for result in results()])
