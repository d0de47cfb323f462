"""Progress of a comparison, and the time left: a bar on a terminal, a line in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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

        Examples
        --------
        >>> TimeLeft(10).words()
        'estimating'
        """
        seconds = self.seconds()
        if seconds is None:
            return "estimating"
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return (f"{hours}:{minutes:02}" if hours else f"{minutes}") + f":{rest:02} left"


@contextmanager
def shown_progress(data: str, total: int) -> Iterator[Progress]:
    """Yield what to call with the number of networks that are trained.

    On a terminal a bar is drawn on standard error, in a notebook a line below the cell; elsewhere,
    as in a pipe, nothing.
    """
    time_left = TimeLeft(total)
    draw = _notebook_line if _in_notebook() else _terminal_bar
    with draw(data, total, time_left) as update:

        def progress(done: float) -> None:
            time_left.report(done)
            update(done)

        yield progress


@contextmanager
def _terminal_bar(data: str, total: int, time_left: TimeLeft) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Any) -> Text:
            return Text("" if task.finished else time_left.words(), style="progress.remaining")

    console = Console(stderr=True)
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(4, console.width // 4))
    bar = Progress(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(min(40, max(4, console.width - console.width // 4 - 36))),
        TextColumn("{task.completed:.0f}/{task.total:.0f} networks"),
        Left(Column(no_wrap=True)),
        console=console,
        disable=not console.is_terminal,
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
