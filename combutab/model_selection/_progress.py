"""Progress of a comparison, and the time left, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from combutab.core.progress import bar_width, left_column, make_bar
from combutab.training import Callback, EpochReport

Progress = Callable[[float], None]


@contextmanager
def progress_bar(
    progress: Progress | bool | None, data: str, total: int, noun: str, refit: bool
) -> Iterator[Progress]:
    """Yield what to call with the number of finished fits: the user's, or a bar's.

    With ``refit`` one more is trained than the ``total`` that is shown. The bar is drawn on a
    terminal's standard error or below a notebook's cell; elsewhere, as in a pipe, nothing is.
    """
    if callable(progress) or not progress:
        yield progress or (lambda done: None)
        return
    from rich.progress import BarColumn, TextColumn
    from rich.table import Column

    width = bar_width()
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(4, width // 4))
    bar = make_bar(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(min(40, max(4, width - width // 4 - 36))),
        TextColumn(f"{{task.fields[shown]:.0f}}/{total} {noun}s"),
        left_column(),
        transient=True,
    )
    task = bar.add_task(data, total=total + refit, shown=0, end=np.inf)
    with bar:
        yield lambda done: bar.update(task, completed=done, shown=min(done, total))


class NetworkCounter(Callback):
    """Counts networks for the progress, and lets an interrupt end more than one stack."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.finished = 0.0

    def count(self, n_networks: float) -> None:
        """Set the number of networks that are trained, here and in other threads."""
        self.finished = n_networks
        self.progress(n_networks)

    def on_train_results(self, results: Callable[[], list[Any]]) -> None:
        self.results = results

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> None:
        self.progress(self.finished + self.n_members * report.epoch / report.max_epochs)

    def on_train_end(self) -> None:
        # the loop turns Ctrl-C into early results and would continue with the next stack
        failed = sys.exc_info()[0] is not None
        if not failed and any(result.reason == "interrupted" for result in self.results()):
            raise KeyboardInterrupt
        self.finished += self.n_members
        self.progress(self.finished)
