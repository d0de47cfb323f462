"""What a user sees beside results: one line for each error and warning, and the end by Ctrl-C."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

USAGE_ERROR, INTERRUPTED = 2, 130


class UserError(ValueError):
    """What a user asks for cannot be done; the message is one line for a user to read."""


def complain(message: str) -> int:
    """Print an error as one line; returns the exit code."""
    print(f"combutab: error: {' '.join(message.split())}", file=sys.stderr)
    return USAGE_ERROR


def warn(message: str) -> None:
    """Print a warning as one line."""
    print(f"combutab: warning: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of all that is called in here as one line each."""

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def own_warnings() -> Iterator[None]:
    """Let the library's warnings to its caller be printed, whatever filters there are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module=r"combutab\.cli\b")
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """End the command with exit code 130 where Ctrl-C was pressed in here.

    What the interrupt says, of what is kept, ends the line.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        print(f"combutab: interrupted{interrupt}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def no_early_ends() -> Iterator[None]:
    """Let Ctrl-C end the command: a training in here would end alone, and warn, and go on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Training interrupted", UserWarning)
        try:
            yield
        except UserWarning as warning:
            if "interrupted" in str(warning):
                raise KeyboardInterrupt from None
            raise
