"""The command ``combutab``: its subcommands, and the exit codes of its errors."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from combutab._version import __version__
from combutab.cli._compare import compare
from combutab.cli._console import (
    EXIT_CODES,
    INTERRUPTED,
    USAGE_ERROR,
    UserError,
    interruptible,
    print_error,
    print_traceback,
    with_options,
)
from combutab.cli._demo import demo
from combutab.cli._evaluate import evaluate
from combutab.cli._explain import explain
from combutab.cli._fit import fit
from combutab.cli._impute import impute
from combutab.cli._options import command_of
from combutab.cli._predict import predict
from combutab.cli._sample import sample
from combutab.cli._synth import synth
from combutab.core.textfile import TableError

_EXIT_CODES = "; ".join(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items())
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=f"Exit codes: {_EXIT_CODES}.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; `EXIT_CODES` has their meanings."""
    if argv is None:  # run as a program, not called from Python
        sys.excepthook = print_traceback
    usage_error: Any = typer.BadParameter.__base__
    try:
        code = typer.main.get_command(app).main(
            args=None if argv is None else list(argv), prog_name="combutab", standalone_mode=False
        )
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return USAGE_ERROR
        return print_error(error.format_message())
    except (UserError, TableError) as error:
        return print_error(with_options(str(error)))
    except KeyboardInterrupt:  # before the command line was read
        return INTERRUPTED
    return int(code or 0)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"combutab {__version__}")
        raise typer.Exit


@app.callback()
def _combutab(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Neural networks for tabular data: prediction, synthetic data and imputation.

    `combutab COMMAND --help` describes a command. All commands read and write table files.
    """


# A command's docstring begins with its line in the list of commands, and ends with an example
_COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Start": (demo,),
    "Predict a column": (compare, fit, predict, explain),
    "Synthetic rows and missing cells": (synth, sample, impute, evaluate),
}
for _group, _functions in _COMMANDS.items():
    for _function in _functions:
        _text, _, _example = (inspect.getdoc(_function) or "").rpartition("\n\nExample: ")
        app.command(
            help=re.sub(r"(?<!\n)\n(?!\n)", " ", _text),
            short_help=_text.partition("\n")[0],
            rich_help_panel=_group,
            epilog=f"Example: {_example}",
        )(interruptible()(_function if _function is demo else command_of(_function)))
