"""Progress of a comparison, and the time left: a bar on a terminal, a line in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from combutab._bars import bar_width, clock, make_bar
from combutab.training import Callback, EpochReport

Progress = Callable[[float], None]

_SETTLED = 1.0, 4  # seconds and reports after the first one: before, any time left is a guess
_PAUSE = 0.25  # seconds between two looks of a line in a notebook


class TimeLeft:
    """Seconds that are left, of the mean rate since the first report."""

    def __init__(self, total: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._total, self._clock = total, clock
        self._first: tuple[float, float] | None = None
        self._n_reports, self._done, self._at = 0, 0.0, 0.0

    def report(self, done: float) -> None:
        """Take note that so much of the total is done."""
        self._done, self._at = done, self._clock()
        self._first = self._first or (done, self._at)
        self._n_reports += 1

    def seconds(self) -> float | None:
        """None before there is anything to go by."""
        if self._first is None:
            return None
        (done, at), (wait, n_least) = self._first, _SETTLED
        if self._at - at < wait or self._n_reports <= n_least or self._done <= done:
            return None
        left = (self._at - at) / (self._done - done) * (self._total - self._done)
        return max(0.0, left - (self._clock() - self._at))

    def words(self) -> str:
        """Say the time left, such as "2:05 left"; "estimating" at first.

        >>> TimeLeft(10).words()
        'estimating'
        """
        seconds = self.seconds()
        return "estimating" if seconds is None else f"{clock(seconds)} left"


@contextmanager
def shown_progress(progress: Progress | bool | None, data: str, total: int) -> Iterator[Progress]:
    """Yield what to call with the number of networks that are trained: the user's, or a display.

    On a terminal a bar is drawn on standard error, in a notebook a line below the cell; elsewhere,
    as in a pipe, nothing.
    """
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda done: None
        return
    time_left = TimeLeft(total)
    draw = _notebook_line if _in_notebook() else _terminal_bar
    with draw(data, total, time_left) as update:

        def report(done: float) -> None:
            time_left.report(done)
            update(done)

        yield report


@contextmanager
def _terminal_bar(data: str, total: int, time_left: TimeLeft) -> Iterator[Progress]:
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Any) -> Text:
            return Text("" if task.finished else time_left.words(), style="progress.remaining")

    width = bar_width()
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(4, width // 4))
    bar = make_bar(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(min(40, max(4, width - width // 4 - 36))),
        TextColumn("{task.completed:.0f}/{task.total:.0f} networks"),
        Left(Column(no_wrap=True)),
        transient=True,
    )
    task = bar.add_task(data, total=total)
    with bar:
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def _notebook_line(data: str, total: int, time_left: TimeLeft) -> Iterator[Progress]:
    """A line of text that changes: it needs IPython alone, no widgets."""
    from IPython.display import display

    def text(done: float) -> dict[str, str]:
        return {"text/plain": f"{data}: {done:.0f}/{total} networks, {time_left.words()}"}

    shown = display(text(0.0), raw=True, display_id=True)
    drawn = 0.0

    def update(done: float) -> None:
        nonlocal drawn
        if time.perf_counter() - drawn > _PAUSE:
            drawn = time.perf_counter()
            shown.update(text(done), raw=True)

    try:
        yield update
    finally:
        shown.update({"text/plain": ""}, raw=True)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Watch(Callback):
    """Counts networks for the progress, and lets an interrupt end more than one stack."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.finished = 0.0

    def tell(self, n_networks: float) -> None:
        """Take note that so many networks are trained, here and in other threads."""
        self.finished = n_networks
        self.progress(n_networks)

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members, self.max_epochs = n_members, max_epochs
        self.epoch, self.any_finite = 0, True

    def on_epoch_end(self, report: EpochReport) -> None:
        self.epoch = report.epoch
        self.any_finite = bool(np.isfinite(report.train_loss).any())
        self.progress(self.finished + self.n_members * report.epoch / report.max_epochs)

    def on_train_end(self) -> None:
        # The loop turns Ctrl-C into early results and would go on with the next stack. Stacks
        # that neither fail nor diverge as a whole have no other early end here.
        stopped = self.epoch < self.max_epochs and self.any_finite
        if stopped and sys.exc_info()[0] is None:
            raise KeyboardInterrupt
        self.finished += self.n_members
        self.progress(self.finished)
