"""Callbacks, which training calls in each epoch, and which can stop it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from combutab.core.progress import bar_width, left_column, make_bar
from combutab.core.tasks import CallbackTask
from combutab.core.text import in_words, parse_seconds
from combutab.nn import TableNetwork
from combutab.training._steps import MemberResult, Rows

# ---- Callbacks: what training tells the outside, once an epoch, and how the outside stops it -----

# Columns of a terminal: for the bar, at least and at most; for clock and gaps; for losses, at first
_BAR, _CLOCK, _SCORES = (4, 40), 18, 46
_SOME_SECONDS = 3.0  # seconds from which the total time is estimated


@dataclass(frozen=True)
class EpochReport:
    """Results of one epoch, for the members that are still in training.

    ``members`` are positions in the original stack; the arrays have one value per member.
    ``validation_score`` is None without validation rows. ``losses`` has the losses by name
    (such as those of a generator and its critic, and on validation rows), the main one first; NaN
    for a network that has ended. Training ends at the latest
    with the epoch at whose end ``max_seconds`` have passed.
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
    """Base class of callbacks: override any method. Attributes must support ``copy.deepcopy``."""

    def on_train_results(self, results: Callable[[], list[Any]]) -> None:
        """Called before ``on_train_begin``.

        ``results()``, between epochs or after training, returns the results as if training ended
        at that point.
        """

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Called before the first epoch of a stack."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before each epoch, counted from 1."""

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
        """Called with the network after each epoch, before ``on_epoch_end``; for estimators only.

        Do not change or keep the network: the next epoch changes it. The first axis of its tensors
        is that of ``report.members``. ``data`` has the encoded rows of the table; with a
        `RowStream`, only the validation rows.
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
    """Print the loss and any validation score of each epoch, as scikit-learn's ``verbose=True``.

    They are means over the members; the score is printed on a separate line.
    """

    def on_epoch_end(self, report: EpochReport) -> None:
        print(f"Iteration {report.epoch}, loss = {report.train_loss.mean():.8f}")
        if report.validation_score is not None:
            print(f"Validation score: {report.validation_score.mean():f}")


class ProgressBar(Callback):
    """A progress bar on standard error: epochs, time left, losses, validation score.

    It is shown only on a terminal or below a notebook's cell, so that logs and pipes stay clean.
    It takes one line; losses that do not fit are left out. Until two epochs have ended, it shows
    the elapsed time instead of the time left.

    Parameters
    ----------
    description : str, default="training"
        Text in front of the bar.
    transient : bool, default=False
        Remove the bar at the end.
    estimate : bool, default=False
        Print an estimate of the total training time once, above the bar, after the first epoch
        that ends at least three seconds after the start. Nothing is printed if less than three
        seconds are left.
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
        if self._first_epoch is None:  # a resumed training begins with a later epoch
            self._first_epoch = epoch

    def on_epoch_end(self, report: EpochReport) -> None:
        end = time.monotonic() + report.max_seconds - report.seconds
        if not self._said and report.seconds >= _SOME_SECONDS:
            self._said = True
            self._say_estimate(report)
        losses = {n: v for n, v in report.losses.items() if not n.startswith("validation")}
        losses = losses if len(losses) > 1 else {"loss": report.train_loss}
        if report.validation_score is not None:
            losses["score"] = report.validation_score
        scores = ""
        for name, values in losses.items():
            if np.isnan(values).all():  # the training has ended
                continue
            more = f"{scores}{', ' if scores else ''}{name} {values.mean():.3g}"
            scores = more if len(more) <= self._room else scores
        self._bar.update(self._task, completed=report.epoch, scores=scores, end=end)

    def _say_estimate(self, report: EpochReport) -> None:
        first = self._first_epoch or 1
        of_epoch = report.seconds / (report.epoch - first + 1)
        total = min(of_epoch * (report.max_epochs - first + 1), report.max_seconds)
        if total - report.seconds < _SOME_SECONDS:
            return
        hint = "; less if early stopping ends it" if report.validation_score is not None else ""
        print(f"Training takes about {in_words(total)} on this machine{hint}", file=sys.stderr)

    def on_train_end(self) -> None:
        self._bar.stop()
        del self._bar, self._task  # a bar holds locks, which no pickle or deepcopy takes


class NetworksBar:
    """A progress bar of the networks of a pack, for ``set_callbacks`` of scikit-learn 1.9.

    It is shown only on a terminal or below a notebook's cell, and removed at the end.

    Parameters
    ----------
    description : str
        Text in front of the bar.
    n_networks : int
        Number of networks that the pack trains.
    max_time : float, str or None, default=None
        Time limit of the training, as in the pack.
    """

    def __init__(
        self, description: str, n_networks: int, max_time: float | str | None = None
    ) -> None:
        self.description, self.n_networks, self.max_time = description, n_networks, max_time

    def setup(self, estimator: Any, context: Any) -> None:
        """Show the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

        text = TextColumn("{task.description}", markup=False)
        columns = text, BarColumn(), MofNCompleteColumn(), TextColumn("networks"), left_column()
        self._bar = make_bar(*columns, transient=True)
        end = time.monotonic() + parse_seconds(self.max_time)
        self._task = self._bar.add_task(self.description, total=self.n_networks, end=end)
        self._bar.start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing: the bar counts networks when their training ends."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Count a network."""
        if context.task_name == "member":
            self._bar.advance(self._task)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Remove the bar."""
        self._bar.stop()
        del self._bar, self._task


# ---- Tasks of scikit-learn's callbacks: each epoch is a part of the fit --------------------------

# Attributes of the estimator that these results would make
Learned = Callable[[Sequence[MemberResult]], Mapping[str, Any]]


class FitTasks(Callback):
    """Report each epoch to scikit-learn's callbacks, as a subtask of the fit.

    Stacks are trained one after the other. If a callback asks to stop after an epoch, the current
    stack ends there, and each later stack ends after its first epoch.
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
