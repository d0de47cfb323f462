"""Ctrl-C put off while several things change together, or not lost within a library."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _handler() -> Any:
    """What Ctrl-C calls; None in threads beside the main one, which Python does not interrupt."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and callable(handler) else None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C act after what is done in here, and not amid it.

    It is for moments: bookkeeping of which the half would be wrong.

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
