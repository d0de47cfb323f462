"""Progress bars on a terminal and in a notebook, and nowhere else; and how long they still take."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


_NOTEBOOK_WIDTH = 100  # columns
_NOTEBOOK_PAUSE = 0.2  # seconds between what a notebook is sent
_RECENT = 0.5  # of what is done, by which the rest is judged


class TimeLeft:
    """An estimate of the time that is left, by the later half of what is done.

    So neither a slow start nor what was done before counts for long.

    >>> left = TimeLeft(10)
    >>> left.update(10, seconds=0.0), left.update(12, seconds=4.0)
    (None, None)
    >>> left.seconds(total=20)
    16.0
    """

    def __init__(self, done: float = 0.0) -> None:
        self._steps = [(0.0, done)]

    def update(self, done: float, seconds: float) -> None:
        """Note how much is done by now, and the seconds since the start."""
        if done > self._steps[-1][1]:
            self._steps.append((seconds, done))

    def seconds(self, total: float) -> float | None:
        """The seconds that are left; None where nothing is done yet."""
        end, done = self._steps[-1]
        first = int((len(self._steps) - 1) * (1 - _RECENT))
        start, before = self._steps[first]
        return (total - done) * (end - start) / (done - before) if done > before else None


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(5.2), clock(3725)
    ('0:05', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def left_column() -> ProgressColumn:
    """The time until a task's field ``end``; where that is None, the time that has passed."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class LeftColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.fields["end"] is None:
                return Text(f"{clock(task.elapsed or 0.0)} so far")
            return Text(f"{clock(max(0.0, task.fields['end'] - time.monotonic()))} left")

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
        return Progress(*columns, console=console, disable=silent, transient=transient)

    class NotebookBar(Progress):
        """A line of text that the notebook replaces; of IPython alone, without widgets."""

        def __init__(self) -> None:
            self._to = io.StringIO()
            console = Console(file=self._to, width=_NOTEBOOK_WIDTH, force_jupyter=False)
            super().__init__(*columns, console=console, auto_refresh=False)
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
                line = {"text/plain": ""} if transient else self._line()
                self._handle.update(line, raw=True)
                self._handle = None

    return NotebookBar()
