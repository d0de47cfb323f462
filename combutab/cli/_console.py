"""Printing, hints, warnings and errors on the command line, and the end by Ctrl-C."""

from __future__ import annotations

import re
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO

import typer

from combutab.core.text import counted

USAGE_ERROR, UNMET, INTERRUPTED = 2, 3, 130
EXIT_CODES = {
    0: "success",
    1: "an error in CombuTab, with a traceback",
    USAGE_ERROR: "wrong options, or a file that cannot be used or written",
    UNMET: "a requirement (evaluate --require) is not met",
    INTERRUPTED: "interrupted by Ctrl-C",
}
_OF_COMPARE = "seeds|folds|epochs|hidden|test|recipe|baselines|sep|decimal"
# Patterns of advice and parameters in messages of the library (not column names, which are quoted),
# and their replacements on the command line
_IN_OPTIONS = {
    r"\bgive keys=\[\(child, column, parent\)\]": "give --key CHILD.COLUMN=PARENT.COLUMN",
    r"\bkeys='auto'": "--key auto",
    r"\bgive keys\b": "name them with --key",
    r"^lookup(?=: )": "--lookup",
    r"^order_by(?=: )": "--order-by",
    r"\bpass its encoding, such as encoding='shift_jis', 'gbk' or 'cp1251'": (
        "give its encoding, such as --encoding shift_jis, gbk or cp1251"
    ),
    r"\bthousands='(.)'": r"--thousands \1",
    r"\b(encoding|sep|sheet)=('.+?'|\".+?\")": r"--\1 \2",
    r"\bheader_row=(\d+)": r"--header-row \1",
    r"\bnot_missing=\[(.+?)\]": r"--not-missing \1",
    r"\bmissing=\[(.+?)\]": r"--missing \1",
    r"Try a learning_rate_init other than .*": "Try more --epochs or another --activation.",
    r"Stochastic Optimizer: Maximum iterations \((\d+)\) reached and .* yet\.": (
        r"The training reached \1 epochs before it converged. Try more --epochs."
    ),
    r"Lower learning_rate_init=\S+, or set max_grad_norm\.": "Try another --activation.",
    r"\blist it in identifiers\b": "name it in --identifiers",
    r", or any callable width -> nn\.Module": "",
    r" See early_stopping_scoring\.": "",
    r"\bconvert (the column|it) to what it was in fit": r"write \1 as in the model's table",
    r"\bthat fit kept\b": "of the model",
    r"\bfit (kept|has seen)\b": "the model's table had",
    r"convert them to numbers and use a regressor": "--task regression",
    r"\bconvert to (numbers|dates)\b": r"write them as \1 in the file",
    r"(?<!['\w-])(min|batch|n|max)_(frequency|size|draws|time)\b(?!')": r"--\1-\2",
    r"'identifiers'|\bidentifiers(?= lists|; remove)": "--identifiers",
    r"(?<!['\w-])discrete_columns\b(?!')": "--discrete",
    r"(?<!['\w-])device(?= must be|=)": "--device",
    rf"(?:^|(?<=each width of ))({_OF_COMPARE})(?= must)": r"--\1",
    r"(?:^|(?<=: ))scoring(?=: )": "--metric",
    r"(?<!['\w-])(epsilon|delta)=(?=\d)": r"--\1 ",
    r"(?<!['\w-])max_rows_per_person\b(?!')": "--rows-per-person",
    r"\buse task (?=regression)": "use --task ",
}


class UserError(ValueError):
    """An error that the user can fix; its message is one line."""


# ---- Printing ----------------------------------------------------------------------------------


def printable(text: str) -> str:
    r"""Escape control characters, so that names of files, columns and values print as plain text.

    Characters that move the cursor, change colours or reverse the reading order, and invalid
    characters, are written as Python escapes.

    >>> printable("a\x1b[31m\u202eb\n\udcff"), printable("Prénom\u00a0中")
    ('a\\x1b[31m\\u202eb\\n\\udcff', 'Prénom 中')
    """
    return "".join(
        letter
        if letter.isprintable()
        else " "
        if unicodedata.category(letter) == "Zs"
        else repr(letter)[1:-1]
        for letter in text
    )


def echo(text: str, *, error: bool = False, indent: int = 0, wrap: bool = False) -> None:
    """Print a line, wrapped at words on a terminal or if ``wrap``; ``error``: to standard error.

    On standard error, all lines after the first are indented, so that no name of a file or column
    can look like a message of the command.
    """
    stream = sys.stderr if error else sys.stdout
    output = printable(text)
    encoding = stream.encoding or "utf-8"
    output = output.encode(encoding, "backslashreplace").decode(encoding)
    lines = _wrapped(output, stream, indent + 2 * error) if wrap or stream.isatty() else [output]
    print(f"\n{'  ' * error}".join(" " * indent + text_line for text_line in lines), file=stream)


def echo_on_terminal(text: str) -> None:
    """Print a line to standard error if it is a terminal, not a pipe or a log file."""
    if sys.stderr.isatty():
        echo(text, error=True)


def _wrapped(line: str, stream: TextIO, indent: int) -> list[str]:
    """Wrap a line at spaces; a word that is longer than a line, such as a path, is not split."""
    from rich.cells import cell_len
    from rich.console import Console

    width = Console(file=stream).width - indent
    first_word, *words = re.split(" (?!%)", line)  # a number and its sign stay together
    lines = [first_word]
    for word in words:
        if cell_len(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def spinner(text: str) -> AbstractContextManager[Any]:
    """Return a context in which a terminal shows a spinner with a text."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text, spinner="line") if console.is_terminal else nullcontext()


# ---- Hints, warnings and errors ----------------------------------------------------------------


def hint(message: str) -> None:
    """Print information on standard error as one line."""
    echo(f"combutab: {' '.join(message.split())}", error=True)


def hint_at_time_limit(model: Any, started: float, what: str) -> None:
    """Print that a training, which began at ``started``, has reached --max-time."""
    if model.max_time is not None and time.perf_counter() - started >= model.max_time:
        n_epochs = counted(int(model.history_["epoch"].max()), "epoch")
        hint(f"training reached --max-time after {n_epochs}; with more time, {what} may be better")


def warn(message: str) -> None:
    """Print a warning as one line."""
    hint(f"warning: {message}")


def print_error(message: str) -> int:
    """Print an error as one line, and return the exit code."""
    hint(f"error: {message}")
    return USAGE_ERROR


def print_traceback(kind: Any, error: BaseException, trace: Any) -> None:
    """Print the traceback of an internal error, as a replacement of ``sys.excepthook``."""
    for part in traceback.format_exception(kind, error, trace):
        print("\n".join(map(printable, part.splitlines())), file=sys.stderr)


@contextmanager
def refusals(
    kind: type[Exception] = ValueError, *kinds: type[Exception], prefix: str = ""
) -> Iterator[None]:
    """Convert the library's errors of these kinds to UserError; `main` writes them with options."""
    try:
        yield
    except (kind, *kinds) as error:
        raise UserError(f"{prefix}{error}") from error


def with_options(message: str) -> str:
    """Replace the names of parameters in a message of the library by options.

    >>> with_options("n_samples=5 is less than min_frequency=9, in column 'min_frequency'")
    "n_samples=5 is less than --min-frequency=9, in column 'min_frequency'"
    """
    for parameter, option in _IN_OPTIONS.items():
        message = re.sub(parameter, option, message, flags=re.DOTALL)
    return message


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print each warning that is raised in here as one line, and each message once."""
    printed_messages: set[str] = set()

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        # networks of all folds may raise the same warning; commands print hints at odd columns
        if str(message) not in printed_messages and type(message).__name__ != "OddColumnWarning":
            warn(_warning_words(message))
        printed_messages.add(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _warning_words(message: Warning | str) -> str:
    from combutab.preprocessing import UnlearnedWarning  # takes seconds to import

    if not isinstance(message, UnlearnedWarning):
        return with_options(str(message))
    remedy = "join them into groups" if "min_frequency" in message.remedy else message.remedy
    pronoun = "it" if len(message.columns) == 1 else "them"
    return with_options(
        f"{message.problem}; {remedy + ', or ' if remedy else ''}--drop leaves {pronoun} out"
    )


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """Collect the messages of the warnings in here, which are printed as well."""
    messages: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            messages.append(_warning_words(message))
            show(message, *args, **kwargs)

        warnings.showwarning = note
        yield messages


@contextmanager
def own_warnings() -> Iterator[None]:
    """Print warnings regardless of warning filters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning)
        yield


# ---- Ctrl-C ------------------------------------------------------------------------------------


@contextmanager
def interruptible() -> Iterator[None]:
    """Print warnings as lines, and end the command with exit code 130 if Ctrl-C is pressed in here.

    The message of the KeyboardInterrupt, such as a list of saved files, ends the printed line.
    """
    try:
        with _one_line_warnings():
            yield
    except KeyboardInterrupt as interrupt:
        echo(f"combutab: interrupted{interrupt}", error=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def no_early_ends() -> Iterator[None]:
    """Let Ctrl-C end the command; otherwise only the training would end, with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Training interrupted", UserWarning)
        try:
            yield
        except UserWarning as warning:
            if "interrupted" in str(warning):
                raise KeyboardInterrupt from None
            raise
