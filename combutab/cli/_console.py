"""Output beside results: printing, warnings, errors, and the end by Ctrl-C."""

from __future__ import annotations

import re
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer

USAGE_ERROR, INTERRUPTED = 2, 130


class UserError(ValueError):
    """An error of the user's; the message is one line for a user to read."""


def printable(text: str) -> str:
    r"""Text that does nothing but stand there, whatever files, columns and values are called.

    What moves a terminal's cursor, changes its colours or turns the reading order around is written
    as Python writes it, as are letters that are none.

    >>> printable("a\x1b[31m\u202eb\n\udcff"), printable("Prénom\u00a0中")
    ('a\\x1b[31m\\u202eb\\n\\udcff', 'Prénom 中')
    """
    return "".join(map(_printable, text))


def _printable(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if unicodedata.category(letter) == "Zs" else repr(letter)[1:-1]


def say(text: str, *, error: bool = False, indent: int = 0, wrap: bool = False) -> None:
    """Print a line, wrapped at words on a terminal, or in any case; `error`: to standard error.

    There a line that is not the first one is indented: no name can look like a message of ours.
    """
    stream = sys.stderr if error else sys.stdout
    line = printable(text)
    encoding = stream.encoding or "utf-8"
    line = line.encode(encoding, "backslashreplace").decode(encoding)
    lines = _wrapped(line, stream, indent + 2 * error) if wrap or stream.isatty() else [line]
    print(f"\n{'  ' * error}".join(" " * indent + each for each in lines), file=stream)


def say_on_terminal(text: str) -> None:
    """Print a line for a person at a terminal; pipes and logs stay clean."""
    if sys.stderr.isatty():
        say(text, error=True)


def _wrapped(line: str, stream: TextIO, indent: int) -> list[str]:
    """Lines of whole words; one that is longer than a line, such as a path, is left whole."""
    from rich.cells import cell_len
    from rich.console import Console

    width = Console(file=stream).width - indent
    first, *words = re.split(" (?!%)", line)  # a number and its sign stay together
    lines = [first]
    for word in words:
        if cell_len(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def complain(message: str) -> int:
    """Print an error as one line; returns the exit code."""
    say(f"combutab: error: {' '.join(message.split())}", error=True)
    return USAGE_ERROR


def warn(message: str) -> None:
    """Print a warning as one line."""
    say(f"combutab: warning: {' '.join(message.split())}", error=True)


def note(message: str) -> None:
    """Print as one line what a user may want to know, and need not."""
    say(f"combutab: {' '.join(message.split())}", error=True)


def show_traceback(kind: Any, error: BaseException, trace: Any) -> None:
    """Show the traceback of an error that is ours, as ``sys.excepthook`` does."""
    for part in traceback.format_exception(kind, error, trace):
        print("\n".join(map(printable, part.splitlines())), file=sys.stderr)


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of all that is called in here as one line each, and each once."""
    shown: set[str] = set()

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if str(message) not in shown:  # networks of all folds may say the same
            warn(_in_options(message))
        shown.add(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _in_options(message: Warning | str) -> str:
    from combutab.preprocessing import UnlearnedWarning  # only now: it takes seconds to import

    if not isinstance(message, UnlearnedWarning):
        options = {"'identifiers'": "--identifiers", "min_frequency": "--min-frequency"}
        return re.sub("|".join(options), lambda name: options[name[0]], str(message))
    ways = "join them into groups" if "min_frequency" in message.remedy else message.remedy
    it = "it" if len(message.columns) == 1 else "them"
    return f"{message.problem}; {ways + ', or ' if ways else ''}--drop leaves {it} out"


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
        say(f"combutab: interrupted{interrupt}", error=True)
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
