"""A run as its user sees it: progress bars on a terminal or in a notebook, and Ctrl-C."""

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
_RECENT = 3600.0  # seconds, by whose speed the time that is left is judged


# ---- Progress bars, and the time that is left ---------------------------------------------------


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(5.2), clock(3725)
    ('0:05', '1:02:05')
    """
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"


def left_column() -> ProgressColumn:
    """The time that is left, until a task's field ``end`` at most; before it is known, the elapsed.

    Rich judges it by the speed after the first update, so that a slow start does not count.
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
    """Columns that there are for a bar on standard error."""
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
    """Rich's progress bar on standard error, or in the notebook's cell; elsewhere it shows nothing.

    A ``transient`` one is removed at the end.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    display: Any = _notebook_display() if console.is_jupyter else None
    if not display:
        silent = console.is_jupyter or not console.is_terminal
        return Progress(
            *columns,
            console=console,
            disable=silent,
            transient=transient,
            speed_estimate_period=_RECENT,
        )

    class NotebookBar(Progress):
        """A line of text that the notebook replaces; of IPython alone, without widgets."""

        def __init__(self) -> None:
            self._to = io.StringIO()
            # without colours, whose codes a page or a diff of the notebook would show
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
                empty = {"text/plain": "", "text/html": ""}  # which takes no line
                line = empty if transient else self._line()
                self._handle.update(line, raw=True)
                self._handle = None

    return NotebookBar()


# ---- Ctrl-C put off while several things change together, or not lost within a library -----------


def _handler() -> Any:
    """The handler of Ctrl-C; None outside of the main thread, which alone Python interrupts."""
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
    caught: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(*caught[0])


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error that a library made of Ctrl-C in here.

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
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        pressed.append(number)
        handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
