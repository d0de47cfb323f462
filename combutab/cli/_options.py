"""Options that several commands share, and the checks of their values.

The options of a command are the fields of a dataclass and of its bases. This module imports no
heavy library, so that help and errors are printed at once.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from combutab.cli._console import UserError
from combutab.core.metrics import METRICS, metric_names
from combutab.core.text import no_column, parse_seconds
from combutab.core.textfile import SEPARATORS, Reading, read_header, suggest_header

READABLE = ".csv, .tsv (both also with .gz), .parquet or .xlsx"
TABLE = f"Table with a header line: {READABLE}"
GENERATORS = ["ctgan", "tabflow", "tvae"]  # of combutab.generators, which takes seconds to import
Options = TypeVar("Options")


def command_of(run: Callable[[Options], None]) -> Callable[..., None]:
    """Turn a function of one dataclass into a command; the dataclass's fields become its options.

    The fields of the class itself come before those of its bases.
    """
    cls: Any = get_type_hints(run)["options"]
    annotations = get_type_hints(cls, include_extras=True)
    shared = {field.name for base in cls.__bases__ if is_dataclass(base) for field in fields(base)}
    parameters = [
        parameter.replace(annotation=annotations[name])
        for name, parameter in signature(cls).parameters.items()
    ]

    @wraps(run)
    def command(**values: Any) -> None:
        run(cls(**values))

    parameters.sort(key=lambda parameter: parameter.name in shared)
    command.__dict__["__signature__"] = Signature(parameters)
    command.__annotations__ = annotations
    return command


def given_options(options: Any, *names: str) -> list[str]:
    """List the options among these fields that have a value."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]


# ---- Values of options ---------------------------------------------------------------------------


def generator_names() -> list[str]:
    """List the values of ``--model``: all registered generators except PrivateSynthesizer."""
    package = sys.modules.get("combutab.generators")
    names = GENERATORS if package is None else package.find_generators()
    return sorted(name.lower() for name in names if name != "PrivateSynthesizer")  # see --epsilon


def one_of(names: Sequence[str], name: str) -> str:
    """Find the value of an option in a list of lower-case names, in upper or lower case."""
    if name.lower() not in names:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
    return name.lower()


def choice_option(names: Sequence[str], help: str, **settings: Any) -> Any:
    """Declare an option that takes one of these names."""
    return typer.Option(
        metavar=f"<{'|'.join(names)}>",
        callback=lambda name: name and one_of(names, name),
        help=help,
        **settings,
    )


def columns_option(help: str, **settings: Any) -> Any:
    """Declare an option that takes column names, separated by commas, and can be repeated."""
    return typer.Option(metavar="COLUMNS", help=help, **settings)


def metric_option(help: str, *, scorers: bool = False, **settings: Any) -> Any:
    """Declare --metric: a metric or, with ``scorers``, also a scorer of scikit-learn."""
    names = "; ".join(", ".join(metric_names(task)) for task in METRICS)
    scorer = "; or another scorer of scikit-learn" if scorers else ""
    return typer.Option(help=f"{help}: {names}{scorer}.", **settings)


def epochs_option(default: str) -> Any:
    """Declare --epochs, the maximum number of epochs; ``default`` is the default in words."""
    return typer.Option(
        help="Maximum number of epochs (passes over the training rows).",
        min=1,
        show_default=default,
    )


def split_option(help: str) -> Any:
    """Declare --split: how rows are split, at random or by a column."""
    return typer.Option(
        metavar="<random|time:COLUMN|group:COLUMN>", callback=_check_split, help=help
    )


def _check_split(text: str) -> str:
    if text == "random" or re.fullmatch(r"(time|group):.+", text, re.DOTALL):
        return text
    raise typer.BadParameter(
        f"{text!r} is not a way to split rows; give random, time:COLUMN or group:COLUMN."
    )


def _generator_name(name: str | None) -> str | None:
    return name and one_of(generator_names(), name)


def _parse_time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; give a number of seconds, or a time such as 90s, 2min or 1h."
        ) from None


def _parse_mark(text: str | None) -> str | None:
    """Read a separator; tabs and spaces can be written as words."""
    return {"tab": "\t", "\\t": "\t", "space": " "}.get(text or "", text)


def _parse_decimal(text: str | None) -> str | None:
    return text and one_of(DECIMALS, text)


def _parse_thousands(text: str | None) -> str | None:
    mark = _parse_mark(text)
    return mark and one_of(THOUSANDS, mark)


def read_frequency(min_frequency: float | None) -> float:
    """Read --min-frequency: a number of rows as an integer, or a fraction; by default 5.

    >>> read_frequency(5.0), read_frequency(0.01), read_frequency(None)
    (5, 0.01, 5)
    """
    if min_frequency is None:
        return 5
    number: float = int(min_frequency) if min_frequency.is_integer() else min_frequency
    if 0 < number < 1 or (isinstance(number, int) and number >= 1):
        return number
    raise UserError(
        f"--min-frequency {min_frequency:g} is not possible; give a whole number of rows, at "
        "least 1, or a share of the rows between 0 and 1"
    )


def _check_frequency(min_frequency: float | None) -> float | None:
    read_frequency(min_frequency)
    return min_frequency


# ---- Options -------------------------------------------------------------------------------------

GENERATOR_EPOCHS = "tabflow: enough for 20,000 training steps; ctgan, tvae: 300"
DECIMALS, THOUSANDS = (".", ","), (".", ",", "'", " ")
Table = Annotated[Path, typer.Argument(metavar="DATA", help=f"{TABLE}.")]
Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", help="Table file to write: .csv, .tsv (both also with .gz) or .parquet."
    ),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard-formulas",
        help="In a .csv or .tsv file, write a ' before text that a spreadsheet would run as a "
        "formula.",
    ),
]
Drop = Annotated[
    list[str] | None,
    columns_option("Columns to leave out, separated by commas; 'street_*' matches several."),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing-target", help="Leave out the rows in which the target is missing."
    ),
]
Discrete = Annotated[
    list[str] | None,
    columns_option(
        "Numeric columns to treat as categories, separated by commas; '*' for all. Text and "
        "boolean columns are always categories."
    ),
]
Task = Annotated[
    str,
    choice_option(
        ("auto", "classification", "regression"),
        "Prediction task: classification, regression, or auto to infer it from the target.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Device that computes: cpu, cuda, cuda:N for GPU number N, or auto for a GPU if there "
        "is one."
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Random seed: the same command with the same seed gives the same results.",
        min=0,
        max=2**32 - 1,
    ),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=_parse_time,
        help="Time limit of the training, in seconds or as 90s, 2min or 1h. Training stops at the "
        "end of the epoch in which it is reached.",
        show_default="no limit",
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="Model file, written by `combutab fit` or by the Python library."
    ),
]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading the file of a table."""

    sep: Annotated[
        str | None,
        typer.Option(
            help='Separator between the cells of a text file, such as ";", "|" or "tab".',
            callback=_parse_mark,
            show_default="detected",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            help='Decimal mark of a text file: "," for numbers such as 0,125, "." for 0.125.',
            callback=_parse_decimal,
            show_default="detected",
        ),
    ] = None
    thousands: Annotated[
        str | None,
        typer.Option(
            help='Thousands separator of a text file, such as ",", "." or "space".',
            callback=_parse_thousands,
            show_default="detected",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Character encoding of a text file, such as latin-1 or cp1252.",
            show_default="detected",
        ),
    ] = None
    header_row: Annotated[
        int | None,
        typer.Option(
            help="Line of the header in a text or Excel file, from 1.",
            min=1,
            show_default="the first line with a value",
        ),
    ] = None
    sheet: Annotated[
        str | None,
        typer.Option(
            help="Name or number of the sheet of an Excel file.", show_default="the first sheet"
        ),
    ] = None
    missing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Text that stands for missing values besides empty cells, NA, nan, null and None, "
            "such as 'Not Available'. Can be repeated.",
        ),
    ] = None
    not_missing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="NA, nan, null, None or N/A, where it is a value of text columns. Can be "
            "repeated.",
        ),
    ] = None

    @property
    def reading(self) -> Reading:
        """Collect these options; raises UserError if they contradict each other."""
        decimal = self.decimal
        if self.thousands in DECIMALS:
            if decimal == self.thousands:
                raise UserError(f"--decimal and --thousands cannot both be {decimal}")
            decimal = "," if self.thousands == "." else "."
        return Reading(
            self.sep,
            decimal,
            self.encoding,
            self.thousands,
            self.header_row,
            self.sheet,
            tuple(self.missing or ()),
            tuple(self.not_missing or ()),
        )


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options for sampling rows from a generator."""

    condition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='Condition that all written rows must meet: "city=Rome", "city=Rome|Oslo", '
            '"age=30", "age=30..50" or "age=30..". Can be repeated for different columns.',
        ),
    ] = None
    shares: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHARES",
            help='Shares of the written rows that have given values: "churn=yes:0.3|no:0.7", '
            '"city=Rome:40%" or "age=..29:0.4|30..:0.6". If they add up to less than 1, the rest '
            "have other values. Can be repeated for different columns.",
        ),
    ] = None
    guard_formulas: Guard = False
    seed: Seed = 0
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions(ReadOptions):
    """Options for training a generator on a table, and for the files to write."""

    data: Table
    out: Out
    model: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(generator_names())}>",
            callback=_generator_name,
            help="Generator to train: TabFlow (autoregressive, with flow matching for numbers), "
            "CTGAN (a GAN) or TVAE (a variational autoencoder).",
            show_default="tabflow",
        ),
    ] = None
    epochs: Annotated[
        int | None,
        epochs_option(GENERATOR_EPOCHS),
    ] = None
    max_time: MaxTime = None
    discrete: Discrete = None
    identifiers: Annotated[
        list[str] | None,
        columns_option(
            "Columns that identify rows, such as a customer number, separated by commas. They get "
            "new values. 'none' for no column.",
            show_default="detected",
        ),
    ] = None
    min_frequency: Annotated[
        float | None,
        typer.Option(
            help="Smallest number of rows (5) or fraction of the rows (0.01) that must have a "
            "value for it to be written or saved. 1 keeps all values, and the exact minimum and "
            "maximum of each numeric column.",
            callback=_check_frequency,
            show_default="5",
        ),
    ] = None
    drop: Drop = None
    constraints: Annotated[
        Path | None,
        typer.Option(
            help="JSON or YAML file of constraints that all written rows must meet, such as "
            '[{"Inequality": ["start", "<", "end"]}]. All rows of DATA must meet them too.'
        ),
    ] = None
    save: Annotated[
        Path | None,
        typer.Option(
            help="File in which to save the trained generator, such as generator.safetensors, as "
            "soon as training ends. `combutab sample` makes more rows from it."
        ),
    ] = None
    guard_formulas: Guard = False
    seed: Seed = 0
    device: Device = "auto"

    @property
    def named_identifiers(self) -> list[str] | None:
        """The columns that --identifiers names, or None for "none" and without the option."""
        return None if self.identifiers == ["none"] else self.identifiers


# ---- Checks that results can be written, before they are computed --------------------------------


def check_outputs(
    outputs: Mapping[str, Path | None],
    inputs: Mapping[str, Path | None],
    *,
    make_folders: bool = False,
) -> None:
    """Check that files can be written, and that no file is another output or an input.

    Raises UserError with the name of the option.
    """
    paths = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        try:
            reason = _reason_against(path, paths, make_folders)
        except OSError as error:  # the name is not possible for a file
            raise cannot_write(path, error) from error
        if reason:
            raise UserError(f"cannot write {path}: {reason}")
        check_folder(path.parent)
        paths[name] = path


def _reason_against(path: Path, paths: Mapping[str, Path], make_folders: bool) -> str:
    """Say why a file cannot be written; empty if it can."""
    folder = path.parent
    if path.is_dir():
        return "it is a directory"
    if path.exists() and not os.access(path, os.W_OK):
        return "it is read-only"
    for name, other_path in paths.items():
        if path.resolve() == other_path.resolve():
            return f"it is the same file as {name}; choose another file"
    if make_folders or folder.is_dir():
        return ""
    if folder.exists():
        return f"{folder} is not a directory"
    return f"the folder {folder} does not exist; create it first"


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder, which may not exist yet."""
    from combutab.core.files import check_writable

    existing = folder.absolute()
    try:
        while not existing.exists():
            if existing.is_symlink():
                raise UserError(f"cannot write to {folder}: {existing} is a broken link")
            existing = existing.parent
        if not existing.is_dir():
            raise UserError(f"cannot write to {folder}: {existing} is not a directory")
        check_writable(existing)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError) -> UserError:
    """Build the error to raise where the system refused to write."""
    return UserError(f"cannot write to {path}: {error.strerror or error}")


# ---- Columns that options name -------------------------------------------------------------------


def find_columns(option: str, texts: Sequence[str] | None, columns: Iterable[Any]) -> list[Any]:
    """Find the columns in the values of an option; a value may list several, separated by commas.

    A name may be a pattern as for files: ``*`` matches all columns, ``street_*`` some.

    Raises UserError if there is no column of a name.

    >>> find_columns("--drop", ["a,b", "c,d"], ["a", "b", "c,d"])
    ['a', 'b', 'c,d']
    >>> find_columns("--drop", ["x*"], ["x1", "x2", "y"])
    ['x1', 'x2']
    """
    by_text = {str(column): column for column in columns}
    selected: dict[str, Any] = {}
    for text in texts or ():
        for name in [text] if text in by_text else text.split(","):
            name = name if name in by_text else name.strip()
            names = [name] if name in by_text else fnmatch.filter(by_text, name)
            if not names:
                raise UserError(f"{option}: {no_column(name, by_text)}")
            selected |= {match: by_text[match] for match in names}
    return list(selected.values())


def find_target(text: str, columns: Iterable[Any]) -> Any:
    """Find the column of this name, or raise a UserError."""
    by_text = {str(column): column for column in columns}
    if text not in by_text:
        raise UserError(f"--target: {no_column(text, by_text)}")
    return by_text[text]


def find_targets(text: str, columns: Iterable[Any], *, several: bool = True) -> list[Any]:
    """Find the column to predict, or several columns separated by commas.

    >>> find_targets("a,b", ["a", "b", "c"]), find_targets("a,b", ["a,b", "c"])
    (['a', 'b'], ['a,b'])
    """
    columns = list(columns)
    column_names = set(map(str, columns))
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if text in column_names or column_names.isdisjoint(names):
        names = [text]
    if len(names) > 1 and not several:
        raise UserError(
            f"--target names {len(names)} columns, {', '.join(map(repr, names))}; name one "
            "(only `combutab fit` predicts several numeric columns)"
        )
    return [find_target(name, columns) for name in names]


def find_dropped(
    texts: Sequence[str] | None, columns: Iterable[Any], target: str | None = None
) -> list[Any]:
    """Find the columns that --drop names; a target, or all columns, cannot be left out."""
    columns = list(columns)
    dropped = find_columns("--drop", texts, columns)
    for name in () if target is None else find_targets(target, columns):
        if name in dropped:
            raise UserError(
                f"--drop leaves out {str(name)!r}, which is the column to predict; remove it from "
                "--drop"
            )
    if len(dropped) == len(columns):
        raise UserError("--drop leaves out all columns; keep at least one")
    return dropped


CONDITION_FORMS = {
    "--condition": "COLUMN=VALUE, COLUMN=ONE|OTHER or COLUMN=LOW..HIGH",
    "--shares": "COLUMN=VALUE:SHARE|VALUE:SHARE, such as city=Rome:0.3|Oslo:0.7 or "
    "age=..29:40%|30..:60%",
}


def split_condition(option: str, text: str, columns: Iterable[Any]) -> tuple[str, str]:
    """Split a text at ``=`` into a column's name, which may contain ``=``, and its condition."""
    parts = text.split("=")
    if len(parts) == 1:
        raise UserError(f"{option} {text!r} is not in the form {CONDITION_FORMS[option]}")
    names = [str(column) for column in columns]
    for i in range(len(parts) - 1, 0, -1):
        for name in ("=".join(parts[:i]), "=".join(parts[:i]).strip()):
            if name in names:
                return name, "=".join(parts[i:])
    name = parts[0].strip()
    raise UserError(f"{option} {text!r}: {no_column(name, names)}")


def _check_requests(requests: Mapping[str, Sequence[str] | None], columns: Iterable[Any]) -> None:
    """Check that the columns that --condition and --shares name exist."""
    columns = list(columns)
    for option, texts in requests.items():
        for text in texts or ():
            split_condition(option, text, columns)


def check_table(
    path: Path,
    reading: Reading,
    *,
    target: str | None = None,
    several: bool = False,
    drop: Sequence[str] | None = None,
    requests: Mapping[str, Sequence[str] | None] | None = None,
    **columns: Sequence[str] | None,
) -> None:
    """Check that the file of a table can be read and has the columns that options name.

    ``requests`` holds the values of --condition and --shares, ``columns`` those of other options
    that take column names. With ``several``, --target may name more than one column. Only the
    header of a text file is read. Raises TableError or UserError.
    """
    names = read_header(path, reading)
    if names is None:
        return
    try:
        if target is not None:
            find_targets(target, names, several=several)
        dropped = find_dropped(drop, names, target)
        names = [name for name in names if name not in dropped]
        for option, texts in columns.items():
            find_columns(f"--{option}", texts, names)
        _check_requests(requests or {}, names)
    except UserError as error:
        suggestion = suggest_header(path, reading, target)
        if suggestion is None:
            raise
        raise UserError(f"{error}; {suggestion}") from error


# ---- Files that options name ---------------------------------------------------------------------


def is_text_file(path: Path) -> bool:
    """Tell from the file name whether a file is a text file, to which --decimal and --sep apply."""
    return path.name.lower().endswith(tuple(SEPARATORS))


def ending(path: Path) -> str:
    """Find the ending of a file name, which determines the format to write.

    Raises UserError if the ending is unknown.
    """
    endings = (*SEPARATORS, ".parquet")
    for suffix in endings:
        if path.name.lower().endswith(suffix):
            return suffix
    raise UserError(f"cannot write {path}: use one of the file endings {', '.join(endings)}")


def path_beside(path: Path, word: str) -> Path:
    """Add a word to the file name of a path.

    >>> path_beside(Path("rows.csv.gz"), "1").name, path_beside(Path("model"), "last").name
    ('rows-1.csv.gz', 'model-last')
    """
    try:
        ending_length = len(ending(path))
    except UserError:
        ending_length = len(path.suffix)
    stem = path.name[: len(path.name) - ending_length]
    return path.with_name(f"{stem}-{word}{path.name[len(stem) :]}")


def check_ending(path: Path) -> None:
    """Check that a table can be written to a file of this name.

    Raises UserError if the ending is unknown, or if the library for Parquet is not installed.
    """
    if ending(path) == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError("writing Parquet needs pyarrow: pip install pyarrow") from error


def with_known_header(reading: Reading, data: Path, model: Path | None) -> Reading:
    """Use the header row of the model's table, unless --header-row is given."""
    from combutab.core.files import read_model

    if model is None or reading.header_row is not None or not is_text_file(data):
        return reading
    try:
        header, _ = read_model(model, arrays=False)
        row = header["forms"]["header_row"]
    except (OSError, ValueError, KeyError, TypeError):  # loading reports a damaged file
        return reading
    return replace(reading, header_row=row) if type(row) is int and row > 1 else reading


def check_model(path: Path, requests: Mapping[str, Sequence[str] | None] | None = None) -> None:
    """Check that a file holds a model, before the libraries that load it are imported.

    Raises UserError if it does not, or if the model's table has no column that --condition or
    --shares names.
    """
    from combutab.core.files import read_model

    try:
        header, _ = read_model(path, arrays=False)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    try:
        names, *_ = header["encoder"]["schema"]["@TableSchema"]["names"]["@index"]
    except (KeyError, TypeError):  # another model or a damaged file: loading raises the error
        return
    _check_requests(requests or {}, names)


def check_replaceable(option: str, path: Path | None) -> None:
    """Raise UserError if saving a model would replace a table or a checkpoint."""
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    from combutab.core.files import read_model

    try:
        header, _ = read_model(path, arrays=False)
        fault = "is a checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        fault = "is not a model file"
    if fault:
        raise UserError(f"{option}: {path} exists and {fault}; choose another file, or remove it")
