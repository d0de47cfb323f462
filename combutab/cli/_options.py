"""The options that several commands have, each declared once, and the checks of their values.

Nothing here imports a heavy library, so that help and errors are printed at once.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from combutab.cli._console import UserError
from combutab.core.metrics import METRICS, choose_metric, metric_names, named_metric, plain_name
from combutab.core.text import did_you_mean, known_instead, no_column, parse_seconds
from combutab.core.textfile import (
    SEPARATORS,
    Reading,
    TableError,
    check_separator,
    read_header,
    suggest_header,
)

READABLE = ".csv, .tsv (both also with .gz), .parquet or .xlsx"
TABLE = f"Table with a header line: {READABLE}"
GENERATORS = ["ctgan", "tabflow", "tvae"]  # of combutab.generators, which takes seconds to import
ACTIVATIONS = [  # of combutab.activations, as well
    *("relu", "leaky_relu", "prelu", "elu", "selu", "celu", "pelu", "silu", "swish", "gelu"),
    *("mish", "tanh", "sigmoid", "logistic", "hardsilu", "softplus", "nlrelu", "identity", "dyt"),
    *("derf", "snake", "rational", "blend", "combu", "combu-random", "complex-combu", "pln"),
    *("pln-4", "pln-8", "pls", "pls-2", "la-silu", "la-hardsilu"),
]
_SEP = 'Separator between the cells of a text file, such as ";", "|" or "tab".'
_DECIMAL = 'Decimal mark of a text file: "," for numbers such as 0,125, "." for 0.125.'
_THOUSANDS = 'Thousands separator of a text file, such as ",", "." or "space".'
_ENCODING = "Character encoding of a text file, such as latin-1 or cp1252."
_HEADER_ROW = "Line of the header in a text or Excel file, from 1."
_SHEET = "Name or number of the sheet of an Excel file."
_MISSING = (
    "Text that stands for missing values besides empty cells, NA, nan, null and None, such as "
    "'Not Available'. Can be repeated."
)
_NOT_MISSING = "NA, nan, null, None or N/A, where it is a value of text columns. Can be repeated."


def generator_names() -> list[str]:
    """List the values of ``--model``: all generators that are registered, or will be on import."""
    package = sys.modules.get("combutab.generators")
    names = GENERATORS if package is None else package.find_generators()
    return sorted(name.lower() for name in names if name != "PrivateSynthesizer")  # by --epsilon


def one_of(names: list[str], name: str) -> str:
    """Return the one of the names that an option names in any case."""
    if name.lower() not in names:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
    return name.lower()


def each_of(names: list[str], text: str) -> str:
    """Return names that an option names, separated by commas."""
    return ",".join(one_of(names, name.strip()) for name in text.split(","))


def check_split(text: str) -> str:
    """Return what --split names: random, or how and by which column rows are split."""
    if text == "random" or re.fullmatch(r"(time|group):.+", text, re.DOTALL):
        return text
    raise typer.BadParameter(
        f"{text!r} is not a way to split rows; give random, time:COLUMN or group:COLUMN."
    )


def check_activations(text: str | None) -> str | None:
    """Find out whether activations that an option names, separated by commas, are known."""
    package = sys.modules.get("combutab.activations")
    known = ACTIVATIONS if package is None else list(package.ACTIVATIONS)
    for name in () if text is None else text.split(","):
        plain = re.sub("^(blend-)+", "", name.strip())
        if plain not in known and not re.fullmatch(r"(pln|pls)-\d+", plain):
            hint = did_you_mean(plain, known, n=1)
            raise typer.BadParameter(
                f"unknown activation {name.strip()!r}{f' ({hint})' if hint else ''}; known: "
                f"{', '.join(known)}, pln-N, pls-N, blend-NAME"
            )
    return text


def read_metric(name: str | None, task: str = "auto") -> str | None:
    """Return the metric that --metric names; raises UserError if there is none for the task."""
    try:
        return name and choose_metric(name, task).name
    except ValueError as error:
        raise UserError(f"--metric: {error}") from error


def _as_scorer(name: str | None) -> str | None:
    """Find out whether a metric is known, to scikit-learn at least."""
    if name is None or named_metric(name) is not None:
        return name
    from sklearn.metrics import get_scorer_names

    scorers = get_scorer_names()
    if plain_name(name) not in scorers:
        hint = known_instead(plain_name(name), [*metric_names(), *scorers], n=12)
        raise UserError(f"--metric: {name!r} is not a known metric; {hint}")
    return name


def _generator_name(name: str | None) -> str | None:
    return None if name is None else one_of(generator_names(), name)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; give a number of seconds, or a time such as 90s, 2min or 1h."
        ) from None


def _as_separator(text: str | None) -> str | None:
    """Take the option as the separator itself; a tab is hard to write on a command line."""
    separator = "\t" if text in ("tab", "\\t") else text
    try:
        return None if separator is None else check_separator(separator)
    except TableError as error:
        raise typer.BadParameter(f"{error}.") from None


def _as_decimal(text: str | None) -> str | None:
    if text in (None, ".", ","):
        return text
    raise typer.BadParameter(f'{text!r} is not a decimal mark; give "." or ",".')


def _as_thousands(text: str | None) -> str | None:
    if text in (None, ".", ",", "'", "space", " "):
        return " " if text == "space" else text
    raise typer.BadParameter(
        f'{text!r} is not a thousands separator; give ".", ",", "\'" or "space".'
    )


def _as_encoding(text: str | None) -> str | None:
    try:
        return text if text is None or codecs.lookup(text) else None
    except LookupError:
        raise typer.BadParameter(
            f"{text!r} is not a known encoding; give a name such as utf-8, latin-1 or cp1252."
        ) from None


def _as_device(text: str) -> str:
    if re.fullmatch(r"auto|cpu(:0)?|cuda(:\d+)?", text):
        return text
    raise typer.BadParameter(f"{text!r} is not a device; give auto, cpu, cuda or cuda:N.")


def columns_option(help: str, **settings: Any) -> Any:
    """An option that names columns, separated by commas, each time that it is given."""
    return typer.Option(metavar="COLUMNS", help=help, **settings)


def metric_option(help: str, *, scorers: bool = False, **settings: Any) -> Any:
    """--metric: a metric by its name, or also one of scikit-learn's scorers."""
    names = "; ".join(", ".join(metric_names(task)) for task in METRICS)
    also = "; or another scorer of scikit-learn" if scorers else ""
    callback = _as_scorer if scorers else lambda name: read_metric(name)
    return typer.Option(help=f"{help}: {names}{also}.", callback=callback, **settings)


def epochs_option(default: str) -> Any:
    """--epochs: the most that a training takes, and how many it takes by default."""
    return typer.Option(
        help="Maximum number of epochs (passes over the training rows).",
        min=1,
        show_default=default,
    )


GENERATOR_EPOCHS = "tabflow: enough for 20,000 training steps; ctgan, tvae: 300"


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
Sep = Annotated[
    str | None, typer.Option(help=_SEP, callback=_as_separator, show_default="detected")
]
Decimal = Annotated[
    str | None, typer.Option(help=_DECIMAL, callback=_as_decimal, show_default="detected")
]
Thousands = Annotated[
    str | None,
    typer.Option(help=_THOUSANDS, callback=_as_thousands, show_default="detected"),
]
Encoding = Annotated[
    str | None, typer.Option(help=_ENCODING, callback=_as_encoding, show_default="detected")
]
HeaderRow = Annotated[
    int | None, typer.Option(help=_HEADER_ROW, min=1, show_default="the first line with a value")
]
Sheet = Annotated[str | None, typer.Option(help=_SHEET, show_default="the first sheet")]
Missing = Annotated[list[str] | None, typer.Option(metavar="TEXT", help=_MISSING)]
NotMissing = Annotated[list[str] | None, typer.Option(metavar="TEXT", help=_NOT_MISSING)]
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
TASKS = ["auto", "classification", "regression"]
Task = Annotated[
    str,
    typer.Option(
        help="Prediction task: classification, regression, or auto to infer it from the target.",
        callback=lambda task: one_of(TASKS, task),
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Device that computes: cpu, cuda, cuda:N for GPU number N, or auto for a GPU if there "
        "is one.",
        callback=_as_device,
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
        callback=_seconds,
        help="Time limit of the training, in seconds or as 90s, 2min or 1h. Training stops at the "
        "end of the epoch in which it is reached.",
        show_default="no limit",
    ),
]
Generator = Annotated[
    str | None,
    typer.Option(
        metavar=f"<{'|'.join(generator_names())}>",
        callback=_generator_name,
        help="Generator to train: TabFlow (autoregressive, with flow matching for numbers), CTGAN "
        "(a GAN) or TVAE (a variational autoencoder).",
        show_default="tabflow",
    ),
]


def read_frequency(min_frequency: float | None) -> float:
    """A number of rows as an integer, or a share of them; 5 where none is given.

    >>> read_frequency(5.0), read_frequency(0.01), read_frequency(None)
    (5, 0.01, 5)
    """
    if min_frequency is None:
        return 5
    least: float = int(min_frequency) if min_frequency.is_integer() else min_frequency
    if 0 < least < 1 or (isinstance(least, int) and least >= 1):
        return least
    raise UserError(
        f"--min-frequency {min_frequency:g} is not possible; give a whole number of rows, at "
        "least 1, or a share of the rows between 0 and 1"
    )


def _as_frequency(min_frequency: float | None) -> float | None:
    read_frequency(min_frequency)
    return min_frequency


MinFrequency = Annotated[
    float | None,
    typer.Option(
        help="Smallest number of rows (5) or fraction of the rows (0.01) that must have a value "
        "for it to be written or saved. 1 keeps all values, and the exact minimum and maximum of "
        "each numeric column.",
        callback=_as_frequency,
        show_default="5",
    ),
]
Identifiers = Annotated[
    list[str] | None,
    columns_option(
        "Columns that identify rows, such as a customer number, separated by commas. They get new "
        "values. 'none' for no column.",
        show_default="detected",
    ),
]
Constraints = Annotated[
    Path | None,
    typer.Option(
        help="JSON or YAML file of constraints that all written rows must meet, such as "
        '[{"Inequality": ["start", "<", "end"]}]. All rows of DATA must meet them too.'
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        metavar="CONDITION",
        help='Condition that all written rows must meet: "city=Rome", "city=Rome|Oslo", "age=30", '
        '"age=30..50" or "age=30..". Can be repeated for different columns.',
    ),
]
Shares = Annotated[
    list[str] | None,
    typer.Option(
        "--shares",
        metavar="SHARES",
        help='Shares of the written rows that have given values: "churn=yes:0.3|no:0.7", '
        '"city=Rome:40%" or "age=..29:0.4|30..:0.6". If they add up to less than 1, the rest have '
        "other values. Can be repeated for different columns.",
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        help="File in which to save the trained generator, such as generator.safetensors, as soon "
        "as training ends. `combutab sample` makes more rows from it."
    ),
]


# ---- Checks that results can be written, before they are computed --------------------------------


def check_outputs(
    outputs: Mapping[str, Path | None],
    inputs: Mapping[str, Path | None],
    *,
    make_folders: bool = False,
) -> None:
    """Find out whether files can be written, and that none is another one or an input.

    Those that are None are not asked for. Raises UserError with the name of the option.
    """
    others = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        folder = path.parent
        missing = not make_folders and not folder.is_dir()
        try:
            same = [each for each, place in others.items() if path.resolve() == place.resolve()]
            faults = {
                "it is a directory": path.is_dir(),
                "it is read-only": path.exists() and not os.access(path, os.W_OK),
                f"it is the same file as {''.join(same[:1])}; choose another file": bool(same),
                f"{folder} is not a directory": missing and folder.exists(),
                f"the folder {folder} does not exist; create it first": missing,
            }
        except OSError as error:  # of a name that no file can have
            raise cannot_write(path, error) from error
        for fault, found in faults.items():
            if found:
                raise UserError(f"cannot write {path}: {fault}")
        check_folder(folder)
        others[name] = path


def check_folder(folder: Path) -> None:
    """Find out whether files can be written to a folder that may have to be made."""
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


def cannot_write(place: Path, error: OSError) -> UserError:
    """Build the error to raise where the system refused to write."""
    return UserError(f"cannot write to {place}: {error.strerror or error}")


# ---- Columns that options name -------------------------------------------------------------------


def find_columns(option: str, texts: Sequence[str] | None, columns: Iterable[Any]) -> list[Any]:
    """Find the columns that an option names: one, or several separated by commas, each time.

    A name may be a pattern, as of files: ``*`` for all, ``street_*`` for some.

    Raises UserError if a name is none of a column.

    >>> find_columns("--drop", ["a,b", "c,d"], ["a", "b", "c,d"])
    ['a', 'b', 'c,d']
    >>> find_columns("--drop", ["x*"], ["x1", "x2", "y"])
    ['x1', 'x2']
    """
    by_text = {str(column): column for column in columns}
    found = []
    for text in texts or ():
        for name in [text] if text in by_text else text.split(","):
            name = name if name in by_text else name.strip()
            matching = [name] if name in by_text else fnmatch.filter(by_text, name)
            if not matching:
                raise UserError(f"{option}: {no_column(name, by_text)}")
            found += [by_text[each] for each in matching]
    return list(dict.fromkeys(found))


def find_target(text: str, columns: Iterable[Any]) -> Any:
    """Find the column of this name, or raise a UserError."""
    by_text = {str(column): column for column in columns}
    if text not in by_text:
        raise UserError(f"--target: {no_column(text, by_text)}")
    return by_text[text]


def find_targets(text: str, columns: Iterable[Any], *, several: bool = True) -> list[Any]:
    """Find the columns to predict: the one of this name, or several separated by commas.

    >>> find_targets("a,b", ["a", "b", "c"]), find_targets("a,b", ["a,b", "c"])
    (['a', 'b'], ['a,b'])
    """
    columns = list(columns)
    known = set(map(str, columns))
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if text in known or known.isdisjoint(names):
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
    """Find the columns that --drop names, of which one is to be left, and the target."""
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
    """The name of a column and what is asked of it; of names with ``=`` in them, the longest."""
    parts = text.split("=")
    if len(parts) == 1:
        raise UserError(f"{option} {text!r} is not in the form {CONDITION_FORMS[option]}")
    known = [str(column) for column in columns]
    for i in range(len(parts) - 1, 0, -1):
        for name in ("=".join(parts[:i]), "=".join(parts[:i]).strip()):
            if name in known:
                return name, "=".join(parts[i:])
    name = parts[0].strip()
    raise UserError(f"{option} {text!r}: {no_column(name, known)}")


def check_asked(asked: Mapping[str, Sequence[str] | None], columns: Iterable[Any]) -> None:
    """Find out whether there are the columns that --condition and --shares name."""
    columns = list(columns)
    for option, texts in asked.items():
        for text in texts or ():
            split_condition(option, text, columns)


def read_options(
    sep: str | None,
    decimal: str | None,
    thousands: str | None,
    encoding: str | None,
    header_row: int | None,
    sheet: str | None,
    missing: Sequence[str] | None,
    not_missing: Sequence[str] | None,
) -> Reading:
    """How the options say that a table is read; raises UserError if they contradict each other."""
    if thousands in (".", ","):
        if decimal == thousands:
            raise UserError(f"--decimal and --thousands cannot both be {decimal}")
        decimal = {".": ",", ",": "."}[thousands]
    return Reading(
        sep,
        decimal,
        encoding,
        thousands,
        header_row,
        sheet,
        tuple(missing or ()),
        tuple(not_missing or ()),
    )


def check_table(
    path: Path,
    reading: Reading,
    *,
    target: str | None = None,
    several: bool = False,
    drop: Sequence[str] | None = None,
    asked: Mapping[str, Sequence[str] | None] | None = None,
    **columns: Sequence[str] | None,
) -> None:
    """Find out whether a table's file can be read and has the columns that options name.

    What is named in ``columns`` are those options, beside --target, which may name ``several``,
    --drop and, in ``asked``, --condition and --shares. Only a text file's header is read; raises
    TableError and UserError.
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
        check_asked(asked or {}, names)
    except UserError as error:
        suggestion = suggest_header(path, reading, target)
        if suggestion is None:
            raise
        raise UserError(f"{error}; {suggestion}") from error


# ---- Files that options name ---------------------------------------------------------------------


def is_text_file(path: Path) -> bool:
    """Tell from its name whether a table's file is of text, which --decimal and --sep are for."""
    return path.name.lower().endswith(tuple(SEPARATORS))


def ending(path: Path) -> str:
    """The ending that says how a table's file is written.

    Raises UserError if it is none of those that are known.
    """
    known = (*SEPARATORS, ".parquet")
    for each in known:
        if path.name.lower().endswith(each):
            return each
    raise UserError(f"cannot write {path}: use one of the file endings {', '.join(known)}")


def beside(path: Path, what: str) -> Path:
    """The path of a file like another one.

    >>> beside(Path("rows.csv.gz"), "1").name, beside(Path("model"), "interrupted").name
    ('rows-1.csv.gz', 'model-interrupted')
    """
    try:
        end = len(ending(path))
    except UserError:
        end = len(path.suffix)
    stem = path.name[: len(path.name) - end]
    return path.with_name(f"{stem}-{what}{path.name[len(stem) :]}")


def check_ending(path: Path) -> None:
    """Find out whether a table can be written to a file of this name.

    Raises UserError if its ending is unknown, or the library for it is not installed.
    """
    if ending(path) == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError("writing Parquet needs pyarrow: pip install pyarrow") from (error)


def with_known_header(reading: Reading, data: Path, model: Path | None) -> Reading:
    """Take the line of the header from the model's table, if no option names it."""
    from combutab.core.files import read_model

    if model is None or reading.header_row is not None or not is_text_file(data):
        return reading
    try:
        header, _ = read_model(model, arrays=False)
        row = header["forms"]["header_row"]
    except (OSError, ValueError, KeyError, TypeError):  # damage is reported where it is loaded
        return reading
    return replace(reading, header_row=row) if type(row) is int and row > 1 else reading


def check_model(path: Path, asked: Mapping[str, Sequence[str] | None] | None = None) -> None:
    """Find out whether a file is that of a model, before what loads it is imported.

    Raises UserError if it is none, or --condition or --shares names a column that it has not.
    """
    from combutab.core.files import read_model

    try:
        header, _ = read_model(path, arrays=False)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    try:
        names, *_ = header["encoder"]["schema"]["@TableSchema"]["names"]["@index"]
    except (KeyError, TypeError):  # of another model, or damaged: said where it is loaded
        return
    check_asked(asked or {}, names)


def check_replaceable(option: str, path: Path | None) -> None:
    """Let a model take the place of a model alone, not of a table or of a training's checkpoint."""
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    from combutab.core.files import read_model

    try:
        header, _ = read_model(path, arrays=False)
        what = "is a checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        what = "is not a model file"
    if what:
        raise UserError(f"{option}: {path} exists and {what}; choose another file, or remove it")
