"""Progress bars on a terminal or in a notebook, and handling of Ctrl-C."""

from __future__ import annotations

import io
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


_NOTEBOOK_WIDTH = 100  # columns
_NOTEBOOK_PAUSE = 0.2  # seconds between updates of a notebook
_RECENT = 3600.0  # seconds whose speed is used to estimate the remaining time


# ---- Progress bars with the remaining time ------------------------------------------------------


def clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> clock(5.2), clock(3725)
    ('0:05', '1:02:05')
    """
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"


def left_column() -> ProgressColumn:
    """Build a column with the remaining time, at most until ``end``, a field of the task.

    The column shows the elapsed time until there is an estimate. Rich estimates the speed after the
    first update, so that a slow start does not count.
    """
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class LeftColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.time_remaining is None:
                return Text(f"{clock(task.elapsed or 0.0)} so far")
            seconds_left = min(task.time_remaining, task.fields["end"] - time.monotonic())
            return Text(f"{clock(max(0.0, seconds_left))} left")

    return LeftColumn()


def bar_width() -> int:
    """Return the width of a progress bar on standard error, in characters."""
    from rich.console import Console

    console = Console(stderr=True)
    return _NOTEBOOK_WIDTH if console.is_jupyter else console.width


def _notebook_display() -> Any:
    try:
        from IPython.display import display
    except ImportError:
        return None
    return display


def make_bar(*columns: Any, transient: bool = False) -> Progress:
    """Build Rich's progress bar for a terminal or a notebook; it is silent anywhere else.

    A ``transient`` bar is removed at the end.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    display: Any = _notebook_display() if console.is_jupyter else None
    if not display:
        is_silent = console.is_jupyter or not console.is_terminal
        return Progress(
            *columns,
            console=console,
            disable=is_silent,
            transient=transient,
            speed_estimate_period=_RECENT,
        )

    class NotebookBar(Progress):
        """A line of text that the notebook updates; it needs IPython, but no widgets."""

        def __init__(self) -> None:
            self._to = io.StringIO()
            # without colours, whose codes would appear in a diff or a page of the notebook
            console = Console(
                file=self._to, width=_NOTEBOOK_WIDTH, force_jupyter=False, color_system=None
            )
            super().__init__(
                *columns, console=console, auto_refresh=False, speed_estimate_period=_RECENT
            )
            self._handle: Any = None
            self._shown = 0.0

        def _line(self) -> dict[str, str]:
            self._to.seek(0)
            self._to.truncate()
            self.console.print(self.get_renderable())
            return {"text/plain": self._to.getvalue().rstrip()}

        def start(self) -> None:
            self._handle = display(self._line(), raw=True, display_id=True)

        def refresh(self) -> None:
            if self._handle is not None:
                self._handle.update(self._line(), raw=True)

        def update(self, *args: Any, **kwargs: Any) -> None:
            super().update(*args, **kwargs)
            if time.monotonic() - self._shown >= _NOTEBOOK_PAUSE:
                self._shown = time.monotonic()
                self.refresh()

        def stop(self) -> None:
            if self._handle is not None:
                empty = {"text/plain": "", "text/html": ""}  # takes no space
                line = empty if transient else self._line()
                self._handle.update(line, raw=True)
                self._handle = None

    return NotebookBar()


# ---- Delaying Ctrl-C, and raising KeyboardInterrupt if a library hides it ------------------------


def _handler() -> Any:
    """Return the handler of Ctrl-C; None in other threads than the main one."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and callable(handler) else None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of this context.

    It is for short bookkeeping that must be complete.

    Examples
    --------
    >>> done = []
    >>> try:
    ...     with uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all of it")
    ... except KeyboardInterrupt:
    ...     done.append("interrupted")
    >>> done
    ['all of it', 'interrupted']
    """
    handler = _handler()
    if handler is None:
        yield
        return
    signals: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            handler(*signals[0])


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise KeyboardInterrupt if a library converts it to another error in this context.

    Examples
    --------
    >>> try:
    ...     with interrupts_first():
    ...         try:
    ...             signal.raise_signal(signal.SIGINT)
    ...         except KeyboardInterrupt:
    ...             raise ValueError("a broken file")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    interrupted
    """
    handler = _handler()
    if handler is None:
        yield
        return
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if signals:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
