"""Options that several commands share, and the checks of their values.

The options of a command are the fields of a dataclass and of its bases, and the docstrings of these
classes describe them. This module imports no heavy library, so that help is printed at once.
"""

from __future__ import annotations

import fnmatch
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from combutab.cli._console import UserError, echo_on_terminal
from combutab.core.metrics import METRICS, metric_names
from combutab.core.requirements import DATABASE_SCORES, SCORES
from combutab.core.text import no_column, parse_seconds
from combutab.core.textfile import SEPARATORS, Reading, usual_separator

GENERATORS = ["ctgan", "tabflow", "tvae"]  # of combutab.generators, which takes seconds to import
# A line of a docstring such as "seed : NUMBER, default 0"; the metavar and the default are optional
_ENTRY = re.compile(r"(\w+)(?: : (.+?))?(?:, default (.+))?")
_LAST_GROUPS = ("Computation", "Reading the file")
# Words that stand for lists in the descriptions
_LISTS = {
    "READABLE": ".csv, .tsv (both also with .gz), .parquet or .xlsx",
    "SCORES": ", ".join(SCORES),
    "DATABASE": ", ".join(DATABASE_SCORES),
    "METRICS": "; ".join(", ".join(metric_names(task)) for task in METRICS),
}


class SharedOptions:
    """Descriptions of options that several commands have; see `read_descriptions`.

    Options
    -------
    out : FILE
        Table file to write: .csv, .tsv (both also with .gz) or .parquet; - prints the rows.
    guard_formulas
        In a .csv or .tsv file, write a ' before text that a spreadsheet would run as a formula.

    Columns
    -------
    discrete : COLUMNS
        Numeric columns to treat as categories, separated by commas; '*' for all. Text and boolean
        columns are always categories.
    drop : COLUMNS
        Columns to leave out, separated by commas; 'street_*' matches several.
    drop_missing_target
        Leave out the rows in which the target is missing.
    identifiers : COLUMNS, default detected
        Columns that identify rows, such as a customer number, separated by commas.
    task : NAME
        Prediction task: classification, regression, or auto to infer it from the target.

    Computation
    -----------
    seed : NUMBER
        Random seed: the same command with the same seed gives the same results.
    device : NAME
        Device that computes: cpu, cuda, cuda:N for GPU number N, or auto for a GPU if there is one.
    """


def command_of(run: Callable[[Any], None]) -> Callable[..., None]:
    """Turn a function of one dataclass into a command; the dataclass's fields become its options.

    The fields of the class itself come before those of its bases, and the groups that most commands
    have come last.
    """
    cls: Any = get_type_hints(run)["options"]
    annotations = get_type_hints(cls, include_extras=True)
    shared = {field.name for base in cls.__bases__ if is_dataclass(base) for field in fields(base)}
    descriptions = read_descriptions(SharedOptions, *reversed(cls.__mro__[:-1]))
    for name, description in descriptions.items():
        if name in annotations:
            annotations[name] = _describe_option(name, annotations[name], description)
    parameters = [
        parameter.replace(annotation=annotations[name])
        for name, parameter in signature(cls).parameters.items()
    ]

    @wraps(run)
    def command(**values: Any) -> None:
        run(cls(**values))

    groups = {name: settings["rich_help_panel"] for name, settings in descriptions.items()}
    arguments = [p for p in parameters if _is_argument(annotations[p.name])]
    options = [p for p in parameters if p not in arguments]
    options.sort(key=lambda p: (groups[p.name] in _LAST_GROUPS, p.name in shared))
    parameters = [*arguments, *options]
    command.__dict__["__signature__"] = Signature(parameters)
    command.__annotations__ = annotations
    return command


def _is_argument(annotation: Any) -> bool:
    """Tell arguments, whose order counts, from options."""
    return any(type(value).__name__ == "ArgumentInfo" for value in get_args(annotation))


def read_descriptions(*classes: type) -> dict[str, dict[str, Any]]:
    """Read the settings of options in docstrings; those of later classes replace earlier ones.

    A docstring has sections, which are the groups of the help, with an entry for each option.

    >>> read_descriptions(SharedOptions)["drop_missing_target"]["help"]
    'Leave out the rows in which the target is missing.'
    """
    descriptions: dict[str, dict[str, Any]] = {}
    for cls in classes:
        lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
        settings: dict[str, Any] = {}
        for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
            if line and set(next_line) == {"-"}:
                settings = {"rich_help_panel": None if line == "Options" else line}
            elif line.startswith("    "):
                words = re.sub("|".join(_LISTS), lambda word: _LISTS[word[0]], line.strip())
                settings["help"] = f"{settings['help']} {words}".lstrip()
            elif settings and (entry := _ENTRY.fullmatch(line)):
                name, metavar, default = entry.groups()
                settings = descriptions[name] = {**settings, "help": ""}
                settings |= {"metavar": metavar or " ", "show_default": default or True}
    return descriptions


def _describe_option(name: str, annotation: Any, settings: Mapping[str, Any]) -> Any:
    """Add a description to the annotation of an option or argument."""
    options = [value for value in get_args(annotation) if hasattr(value, "param_decls")]
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    option: Any = copy(options[0]) if options else typer.Option()
    if kind is bool:  # a flag without its opposite, such as --no-refit, and without a value
        option.param_decls = (f"--{name.replace('_', '-')}",)
    option.__dict__.update(settings)
    return Annotated[kind, option]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of a command, which also times it."""

    started: float = field(default_factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> str:
        """The time since the command started."""
        return f"{time.perf_counter() - self.started:.1f} s"

    def echo_done(self, text: str) -> None:
        """Print a result on a terminal, with the time since the command started."""
        echo_on_terminal(f"{text} ({self.seconds})")

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the options among these fields that do not have their default, with the values."""
        defaults = {option.name: option.default for option in fields(self)}
        values = {name: getattr(self, name) for name in names}
        return {
            f"--{name.replace('_', '-')}": value
            for name, value in values.items()
            if value != defaults[name]
        }


# ---- Values of options ---------------------------------------------------------------------------


def generator_names() -> list[str]:
    """List the values of ``--model``: all registered generators except PrivateSynthesizer."""
    package = sys.modules.get("combutab.generators")
    names = GENERATORS if package is None else package.find_generators()
    return sorted(name.lower() for name in names if name != "PrivateSynthesizer")  # see --epsilon


def one_of(*names: str) -> Callable[[str | None], str | None]:
    """Return a function that finds the value of an option in a list, in upper or lower case."""

    def find(name: str | None) -> str | None:
        if name is not None and name.lower() not in names:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
        return name and name.lower()

    return find


def choice(*names: str) -> Any:
    """Declare an option that takes one of these names."""
    return typer.Option(callback=one_of(*names))


def _check_split(text: str) -> str:
    if text == "random" or re.fullmatch(r"(time|group):.+", text, re.DOTALL):
        return text
    raise typer.BadParameter(
        f"{text!r} is not a way to split rows; give random, time:COLUMN or group:COLUMN."
    )


def _generator_name(name: str | None) -> str | None:
    return one_of(*generator_names())(name)


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


def _parse_thousands(text: str | None) -> str | None:
    return one_of(".", ",", "'", " ")(_parse_mark(text))


def _read_frequency(number: float | None) -> float | None:
    """Read a number of rows as an integer, or a share of the rows."""
    if number is None or 0 < number < 1:
        return number
    if number >= 1 and float(number).is_integer():
        return int(number)
    raise typer.BadParameter(
        f"{number:g} is not possible; give a whole number of rows, at least 1, or a share of the "
        "rows between 0 and 1."
    )


# ---- Options -------------------------------------------------------------------------------------

STANDARD_OUTPUT = Path("-")
Columns = list[str] | None
Table = Annotated[Path, typer.Argument()]
MoreTables = Annotated[list[Path] | None, typer.Argument()]
Out = Annotated[Path, typer.Option("--out", "-o")]
OptionalOut = Annotated[Path | None, typer.Option("--out", "-o")]
Count = Annotated[int, typer.Option(min=1)]
OptionalCount = Annotated[int | None, typer.Option(min=1)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1)]
Task = Annotated[str, choice("auto", "classification", "regression")]
Split = Annotated[str, typer.Option(callback=_check_split)]
Time = Annotated[str | None, typer.Option(callback=_parse_time)]
Frequency = Annotated[float, typer.Option(callback=_read_frequency)]
OptionalFrequency = Annotated[float | None, typer.Option(callback=_read_frequency)]
Decimal = Annotated[str | None, choice(".", ",")]
Mark = Annotated[str | None, typer.Option(callback=_parse_mark)]
Thousands = Annotated[str | None, typer.Option(callback=_parse_thousands)]
Generator = Annotated[str | None, typer.Option(callback=_generator_name)]


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Options):
    """Options for reading the file of a table.

    Reading the file
    ----------------
    sep : CHARACTER, default detected
        Separator between the cells of a text file, such as ";", "|" or "tab".
    decimal : MARK, default detected
        Decimal mark of a text file: "," for numbers such as 0,125, "." for 0.125.
    thousands : MARK, default detected
        Thousands separator of a text file, such as ",", "." or "space".
    encoding : NAME, default detected
        Character encoding of a text file, such as latin-1 or cp1252.
    header_row : NUMBER, default the first line with a value
        Line of the header in a text or Excel file, from 1.
    sheet : NAME, default the first sheet
        Name or number of the sheet of an Excel file.
    missing : TEXT
        Text that stands for missing values besides empty cells, NA, nan, null and None, such as
        'Not Available'. Can be repeated.
    not_missing : TEXT
        NA, nan, null, None or N/A, where it is a value of text columns. Can be repeated.
    """

    sep: Mark = None
    decimal: Decimal = None
    thousands: Thousands = None
    encoding: str | None = None
    header_row: OptionalCount = None
    sheet: str | None = None
    missing: list[str] | None = None
    not_missing: list[str] | None = None

    @property
    def reading(self) -> Reading:
        """Collect these options; raises UserError if they contradict each other."""
        decimal = self.decimal
        if self.thousands in (".", ","):
            if decimal == self.thousands:
                raise UserError(f"--decimal and --thousands cannot both be {decimal}")
            decimal = "," if self.thousands == "." else "."
        values: Any = {option.name: getattr(self, option.name, None) for option in fields(Reading)}
        marks = {name: tuple(values[name] or ()) for name in ("missing", "not_missing")}
        return Reading(**values | marks | {"decimal": decimal})


@dataclass(frozen=True, kw_only=True)
class RowOptions(Options):
    """Options for sampling rows from a generator.

    Rows
    ----
    condition : CONDITION
        Condition that all written rows must meet: "city=Rome", "city=Rome|Oslo", "age=30",
        "age=30..50" or "age=30..". Can be repeated for different columns.
    shares : SHARES
        Shares of the written rows that have given values: "churn=yes:0.3|no:0.7", "city=Rome:40%"
        or "age=..29:0.4|30..:0.6". If they add up to less than 1, the rest have other values. Can
        be repeated for different columns.
    """

    condition: list[str] | None = None
    shares: list[str] | None = None
    guard_formulas: bool = False
    seed: Seed = 0
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions(ReadOptions):
    """Options for training a generator on a table, and for the files to write.

    Options
    -------
    data : DATA
        Table with a header line: READABLE.
    save : FILE
        File in which to save the trained generator, such as generator.safetensors, as soon as
        training ends. `combutab sample` makes more rows from it.

    Training
    --------
    model : NAME, default tabflow
        Generator to train: tabflow (autoregressive, with flow matching for numbers), ctgan (a GAN)
        or tvae (a variational autoencoder).
    epochs : NUMBER, default tabflow: enough for 20,000 training steps; ctgan, tvae: 300
        Maximum number of epochs (passes over the training rows).
    max_time : TIME, default no limit
        Time limit of the training, in seconds or as 90s, 2min or 1h. Training stops at the end of
        the epoch in which it is reached.

    Columns
    -------
    identifiers : COLUMNS, default detected
        Columns that identify rows, such as a customer number, separated by commas. They get new
        values. 'none' for no column.
    fake : COLUMN=PROVIDER
        Column of text that gets realistic values by Faker, such as name=name, mail=email or
        street=street_address:de_DE. The option may be repeated.
    min_frequency : NUMBER, default 5
        Smallest number of rows (5) or fraction of the rows (0.01) that must have a value for it to
        be written or saved. 1 keeps all values, and the exact minimum and maximum of each numeric
        column.
    constraints : FILE
        JSON or YAML file of constraints that all written rows must meet, such as
        [{"Inequality": ["start", "<", "end"]}]. All rows of DATA must meet them too.
    """

    data: Table
    out: Out
    model: Generator = None
    epochs: OptionalCount = None
    max_time: Time = None
    discrete: Columns = None
    identifiers: Columns = None
    fake: list[str] | None = None
    min_frequency: OptionalFrequency = None
    drop: Columns = None
    constraints: Path | None = None
    save: Path | None = None
    guard_formulas: bool = False
    seed: Seed = 0
    device: str = "auto"


# ---- Checks that results can be written, before they are computed --------------------------------


def check_outputs(
    outputs: Mapping[str, Path | None],
    inputs: Mapping[str, Path | None],
    *,
    table: Path | None = None,
    model: Path | None = None,
    make_folders: bool = False,
) -> None:
    """Check that files can be written, and that no file is another output or an input.

    ``table`` and ``model`` are outputs of these kinds: a table needs a known ending, and a model
    replaces only another one. Raises UserError with the name of the option.
    """
    from combutab.core.files import reason_to_keep

    if table is not None:
        _check_ending(table)
    paths = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        with writing(path):  # an error if the name is not possible for a file
            reason = _reason_against(path, paths, make_folders)
        if reason:
            raise UserError(f"cannot write {path}: {reason}")
        check_folder(path.parent)
        paths[name] = path
    if model is not None and (fault := reason_to_keep(model)):
        raise UserError(f"{model} exists and is {fault}; choose another file, or remove it")


def _reason_against(path: Path, paths: Mapping[str, Path], make_folders: bool) -> str:
    """Say why a file cannot be written; empty if it can."""
    if path.is_dir():
        return "it is a directory"
    if path.exists() and not os.access(path, os.W_OK):
        return "it is read-only"
    for name, other_path in paths.items():
        if path.resolve() == other_path.resolve():
            return f"it is the same file as {name}; choose another file"
    if make_folders or path.parent.exists():
        return ""
    return f"the folder {path.parent} does not exist; create it first"


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder, which may not exist yet."""
    from combutab.core.files import check_writable

    with writing(folder):
        paths = folder.absolute(), *folder.absolute().parents
        existing = next(path for path in paths if path.exists() or path.is_symlink())
        if not existing.is_dir():
            reason = "not a directory" if existing.exists() else "a broken link"
            raise UserError(f"cannot write to {folder}: {existing} is {reason}")
        check_writable(existing)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an error of the system to UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror or error}") from error


def _check_ending(path: Path) -> None:
    """Check that a table can be written to a file of this name, and that Parquet is installed."""
    if ending(path) == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError("writing Parquet needs pyarrow: pip install pyarrow") from error


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


def column_named(option: str, name: str, columns: Iterable[Any]) -> Any:
    """Find the column of exactly this name, or raise a UserError."""
    by_text = {str(column): column for column in columns}
    if name not in by_text:
        raise UserError(f"{option}: {no_column(name, by_text)}")
    return by_text[name]


def find_target(text: str, columns: Iterable[Any]) -> Any:
    """Find the one column that --target names, or raise a UserError."""
    targets = find_targets(text, columns)
    if len(targets) > 1:
        raise UserError(
            f"--target names {len(targets)} columns, {', '.join(map(repr, targets))}; name one "
            "(only `combutab fit` predicts several numeric columns)"
        )
    return targets[0]


def find_targets(text: str, columns: Iterable[Any]) -> list[Any]:
    """Find the column to predict, or several columns separated by commas.

    >>> find_targets("a,b", ["a", "b", "c"]), find_targets("a,b", ["a,b", "c"])
    (['a', 'b'], ['a,b'])
    """
    columns = list(columns)
    known_names = set(map(str, columns))
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if text in known_names or known_names.isdisjoint(names):
        names = [text]
    return [column_named("--target", name, columns) for name in names]


# ---- Files that options name ---------------------------------------------------------------------


def is_text_file(path: Path) -> bool:
    """Tell from the file name whether a file is a text file, to which --decimal and --sep apply."""
    return usual_separator(path) is not None


def ending(path: Path) -> str:
    """Find the ending of a file name, which determines the format to write.

    Raises UserError if the ending is unknown. Standard output has the format of .csv files.
    """
    if path == STANDARD_OUTPUT:
        return ".csv"
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
