"""Processes that start at once: forked, with all that the tests have imported.

A new Python spends some four seconds of a core on imports. Where a test is neither of these nor of
the interpreter's own end, its process is a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


class Forked:
    """A process that does some work in a folder; what the work returns is its exit code.

    What it prints goes to files without a name, or to the given descriptors: output and error.
    """

    def __init__(
        self,
        work: Callable[[], int | None],
        folder: str | os.PathLike[str],
        shown: Sequence[int] | None = None,
    ) -> None:
        self._files = [] if shown else [tempfile.TemporaryFile("w+b") for _ in range(2)]  # noqa: SIM115
        shown = shown or [file.fileno() for file in self._files]
        with warnings.catch_warnings():  # of threads, of which these processes need none
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = multiprocessing.get_context("fork").Process(
                target=_work, args=(work, Path(folder).resolve(), shown), daemon=True
            )
            self._process.start()

    @property
    def returncode(self) -> int | None:
        """None while it runs; the signal's number below zero where one has ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """As `returncode`, under the name that subprocess has for it."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self._process.exitcode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def communicate(self, timeout: float = 500) -> tuple[str, ...]:
        """Wait for its end; what it has printed to its standard output and error."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"it still runs after {timeout} seconds")
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        return tuple(texts)


def _work(work: Callable[[], int | None], folder: Path, shown: Sequence[int]) -> None:
    os.chdir(folder)
    for number, descriptor in enumerate(shown, 1):
        os.dup2(descriptor, number)
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    press_again_where_lost(lambda: time.sleep(0.1))
    torch.set_num_threads(1)
    _python_s_own_warnings()
    sys.exit(work())


def press_again_where_lost(wait: Callable[[], object]) -> Callable[..., object]:
    """Send this process a SIGINT again, unless ``wait`` says True, where Python swallowed one.

    It swallows what is raised in the callbacks of weak references and of the garbage collector.

    Returns
    -------
    the hook that was there before
    """
    hook = sys.unraisablehook

    def press() -> None:
        if not wait():
            os.kill(os.getpid(), signal.SIGINT)

    def swallowed(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            threading.Thread(target=press, daemon=True).start()
        else:
            hook(unraisable)

    sys.unraisablehook = swallowed
    return hook


def _python_s_own_warnings() -> None:
    """As in a new process, rather than errors or caught, as the tests have them."""
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)

    def show(message, category, filename, lineno, file=None, line=None):
        print(warnings.formatwarning(message, category, filename, lineno, line), file=sys.stderr)

    warnings.showwarning = show


def on_terminal(
    work: Callable[[], int | None], folder: str | os.PathLike[str], **variables: str
) -> tuple[int | None, str]:
    """The exit code of a process on a pseudo-terminal of its own, and all that was shown there."""
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")
    ours, theirs = pty.openpty()

    def with_variables() -> int | None:
        os.environ.update(variables)
        return work()

    process = Forked(with_variables, folder, [theirs, theirs])
    os.close(theirs)
    shown = []
    try:
        while chunk := os.read(ours, 4096):
            shown.append(chunk)
    except OSError:  # Linux's way of saying that the other end was closed
        pass
    process.communicate()
    os.close(ours)
    return process.returncode, b"".join(shown).decode()
