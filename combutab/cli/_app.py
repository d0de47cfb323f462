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
    one_line_warnings,
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
    """Run the command and return the exit code: 0, 2 after an error, 130 after Ctrl-C."""
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
    except ValueError as error:
        if not isinstance(error, UserError | TableError):
            raise
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


_PREDICT, _SYNTHESIZE = "Predict a column", "Synthetic rows and missing cells"
_TABLE = "customers.csv --target churn"
# Groups of commands with the function, a line in the list of commands, and an example of each
_COMMANDS: dict[str, tuple[tuple[Callable[..., Any], str, str], ...]] = {
    "Start": ((demo, "Show the main commands on a simulated table.", "demo"),),
    _PREDICT: (
        (
            command_of(compare),
            "Compare activation functions on a table by cross-validation.",
            f"compare {_TABLE} --activations relu,combu",
        ),
        (
            command_of(fit),
            "Fit a model that predicts one column of a table.",
            f"fit {_TABLE} -o model.safetensors",
        ),
        (
            command_of(predict),
            "Predict the target of each row of a table.",
            "predict model.safetensors new.csv -o predictions.csv --proba",
        ),
        (
            command_of(explain),
            "Explain a fitted model: importances and attributions.",
            "explain model.safetensors new.csv -o explain.html",
        ),
    ),
    _SYNTHESIZE: (
        (
            command_of(synth),
            "Train a generator and write a synthetic table.",
            "synth customers.csv -o synthetic.csv --report report.html",
        ),
        (
            command_of(sample),
            "Sample synthetic rows from a saved generator.",
            "sample generator.safetensors -o more.csv --rows 5000",
        ),
        (
            command_of(impute),
            "Fill the missing cells of a table.",
            "impute customers.csv -o complete.csv",
        ),
        (
            command_of(evaluate),
            "Measure utility, fidelity and privacy of synthetic rows.",
            "evaluate customers.csv synthetic.csv --target churn",
        ),
    ),
}
for _group, _commands in _COMMANDS.items():
    for _command, _line, _example in _commands:
        app.command(
            help=re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(_command) or ""),
            short_help=_line,
            rich_help_panel=_group,
            epilog=f"Example: combutab {_example}",
        )(interruptible()(one_line_warnings()(_command)))
