"""Files on the command line: tables and their forms, columns that are named, models, results."""

from __future__ import annotations

import codecs
import fnmatch
import itertools
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab._model_files import load, read_model, write_model
from combutab.cli._console import UserError, hint, refusals
from combutab.core.device import resolve_device
from combutab.core.files import Field, check_fields, check_writable, choice, nullable, whole_file
from combutab.core.progress import interrupts_first
from combutab.core.text import no_column
from combutab.datasets import TableError, read_cells, read_table
from combutab.preprocessing import (
    ColumnKind,
    OddColumn,
    TargetError,
    column_kind,
    infer_task,
    odd_columns,
    read_numbers,
)

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
                f"that is {''.join(same[:1])} as well; choose another file": bool(same),
                f"{folder} is not a directory": missing and folder.exists(),
                f"{folder} does not exist; create it first": missing,
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


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file in whole or not at all.

    Raises UserError where the system refuses, with no file left behind.
    """
    try:
        with whole_file(path) as place:
            write(place)
    except OSError as error:
        raise cannot_write(path, error) from error


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


def leave_out(
    table: pd.DataFrame, texts: Sequence[str] | None, target: str | None = None
) -> pd.DataFrame:
    """Leave out the columns that --drop names, of which one is to be left, and the target."""
    dropped = find_columns("--drop", texts, table.columns)
    if target is not None and target in map(str, dropped):
        raise UserError(f"--drop leaves out {target!r}, the column to predict")
    if len(dropped) == table.shape[1]:
        raise UserError("--drop leaves no column")
    return table.drop(columns=dropped)


# ---- The format in which a table's file is read, and hints on its odd columns --------------------

ZERO_FIRST = r"^\s*[+-]?0\d"  # of a number, which loses the zero
_SHOWN = 5  # columns that a line names
_OF_TARGETS = ("missing code", "missing mark", "truth values")
_REMEDIES = {
    "header": "add a line with the names of the columns",
    "missing code": "leave these cells empty if it does",
    "missing mark": "leave these cells empty if it does",
    "thousands": "write them without",
    "sign": "write them without",
    "few texts": "mend these cells",
    "text numbers": "write them as numbers",
    "dates": "write all of them as 2024-12-31",
    "unclear dates": "write them as 2024-12-31",
    "mixed dates": "write all of them as 2024-12-31",
    "truth values": "write two words only",
}


@dataclass(frozen=True)
class Reading:
    """The format of a text file that holds a table."""

    sep: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def table(self, path: Path) -> pd.DataFrame:
        """Read the table of a file as pandas does, or raise a TableError."""
        try:
            with interrupts_first():  # pandas makes a broken file of Ctrl-C
                return read_table(path, sep=self.sep, decimal=self.decimal, encoding=self.encoding)
        except ImportError as error:  # the message says how to install what is missing
            raise TableError(str(error)) from error

    def cells(self, path: Path, columns: list[int]) -> pd.DataFrame:
        """Read some columns of a text file as they are written."""
        return read_cells(path, columns, sep=self.sep, encoding=self.encoding)


def read_to_learn(
    path: Path, reading: Reading, drop: Sequence[str] | None, discrete: Sequence[str] | None
) -> tuple[pd.DataFrame, FileFormat, list[Any]]:
    """The table that a generator is to learn, its forms, and its columns that --discrete names."""
    table, forms = read_file(path, reading)
    table = leave_out(table, drop)
    return table, forms, find_columns("--discrete", discrete, table.columns)


def hint_before_learning(
    table: pd.DataFrame, reading: Reading, forms: FileFormat, out: Path, guard: bool
) -> None:
    """Say what of a table that a generator is to learn may be amiss, and note how to write it."""
    hint_at_odd_columns(table, reading, identifiers=False)
    forms.guarded = guard
    hint_at_formulas(table, forms, out)


def hint_at_odd_columns(
    table: pd.DataFrame, reading: Reading, *, identifiers: bool = True, target: Any = None
) -> None:
    """Say of columns that may not be what they seem what they are taken for, a line a kind.

    ``identifiers`` says whether to tell of those too. No column can be left out that is the target.
    """
    by_kind: dict[tuple[str, str], list[OddColumn]] = {}
    for odd in odd_columns(table):
        if odd.column != target and (identifiers or odd.kind != "identifier"):
            by_kind.setdefault((odd.kind, odd.taken), []).append(odd)
        elif odd.column == target and odd.kind in _OF_TARGETS:
            missing = "missing" in odd.kind
            remedy = "remove these rows if it does" if missing else _REMEDIES[odd.kind]
            shown = f"{odd.why} ({odd.example})"
            hint(f"the target {str(target)!r} is taken for {odd.taken}, {shown}; {remedy}")
    for (kind, taken), found in by_kind.items():
        names, example = [str(odd.column) for odd in found], found[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        shown = f"{found[0].why} ({example})" if example else found[0].why
        are, remedy = "is" if len(names) == 1 else "are", _odd_remedy(kind, names, reading)
        hint(f"{list_names(names)} {are} taken for {taken}, {shown}; {remedy}")


def _odd_remedy(kind: str, names: list[str], reading: Reading) -> str:
    remedy = _REMEDIES.get(kind)
    if kind == "decimal comma":
        read = reading.decimal == "."
        return "--decimal , reads them" if read else "write them without signs between thousands"
    if kind == "text numbers" and reading.decimal == ",":
        remedy = "--decimal . reads them"
    if remedy and kind in ("header", "missing code"):
        return remedy
    return f"{remedy}, or {_drop_words(names)}" if remedy else _drop_words(names)


def _drop_words(names: list[str]) -> str:
    if len(names) > _SHOWN or any("," in name for name in names[1:]):
        return "--drop leaves them out"
    these = "it" if len(names) == 1 else "them"
    return f"--drop {shlex.quote(','.join(names))} leaves {these} out"


# ---- The task that a target asks for; what is wrong with it, in the words of the command line ----

_TASKS = ("auto", "classification", "regression")
_TARGET_REMEDIES = {
    "cells": "correct these cells or remove their rows",
    "decimal comma": "write them with a decimal point",
    "form": "write them as plain numbers",
    "text": "write them as numbers",
    "names": "choose another target",
    "dates": "convert them to numbers, such as days",
}


def task_of(y: pd.Series, task: str, data: Path, reading: Reading, classify: str = "") -> str:
    """Check the task, or infer it from the target.

    ``data`` is the file of the target. ``classify`` is the option that makes its values classes
    where text is no numbers for a regression; by default --task, which takes it for numbers too. A
    UserError says which cells are in the way, and what to do.
    """
    if task not in _TASKS:
        raise UserError(f"--task {task} is not one of {', '.join(_TASKS)}")
    try:
        if task == "auto":
            return infer_task(y)
        if task == "regression":
            read_numbers(y)
    except TargetError as error:
        remedy = _target_remedy(error, data, reading)
        if error.fault == "text" and not classify:
            remedy = "--task regression takes them as numbers"
        ways = f"{remedy}, or give {classify or '--task classification'} if they are classes"
        raise UserError(f"the target {str(y.name)!r} {error.problem}; {ways}") from error
    return task


def _target_remedy(error: TargetError, data: Path, reading: Reading) -> str:
    if error.fault == "decimal comma" and is_text_file(data) and reading.decimal == ".":
        return "--decimal , reads them"
    if error.fault == "text" and is_text_file(data) and reading.decimal == ",":
        return "--decimal . reads them"
    return _TARGET_REMEDIES[error.fault]


# ---- Tables from files, and to files in the same form: dates, truth values, whole numbers --------

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%SZ", "%H:%M:%S.%fZ")
_DATES = (*_DAYS, *map("".join, itertools.product(_DAYS, " T", _CLOCKS)))
_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d"  # what they all begin with
_HEAD = 100  # values that most of them are ruled out by
# What may be a formula (a number is none), and what is one for certain
_FORMULA = re.compile(r"[=@＝＠\t\r\n]|[-+－＋](?![\d.,\s]*$)")
_CALL = re.compile(r"[=@＝＠\t\r]|[-+－＋].*[(|!]")


@dataclass
class FileFormat:
    """The format of the values of a file, by the names of its columns as text.

    ``dates`` has the form of each column of dates that a text file writes otherwise than pandas,
    or a Parquet file without a time of day; ``truth`` the words for false and true. ``sep`` and
    ``decimal`` are those of a text file, as far as they are not the usual ones; ``encoding`` is
    that of the file that was read, and no other is written than UTF-8. ``guarded`` text files have
    a ``'`` before what a spreadsheet would take for a formula.
    """

    dates: dict[str, str] = field(default_factory=dict)
    truth: dict[str, list[str]] = field(default_factory=dict)
    sep: str | None = None
    decimal: str = "."
    guarded: bool = False
    encoding: str = "utf-8"

    @classmethod
    def from_json(cls, value: Any) -> FileFormat:
        """The forms that a model's file has, of a stranger perhaps.

        Raises ValueError if they are none that ``read_file`` finds.
        """
        check_fields(value, _FORMAT, "the format of the table")
        return cls(**value)


def _is_encoding(name: Any) -> bool:
    try:
        return bool(codecs.lookup(name))
    except (LookupError, TypeError):
        return False


_FORMAT = {
    "dates": Field(
        "known forms of dates", lambda v: type(v) is dict and set(v.values()) <= set(_DATES)
    ),
    "truth": Field(
        "two words each for false and true",
        lambda v: (
            type(v) is dict
            and all(
                type(words) is list and list(map(type, words)) == [str, str] for words in v.values()
            )
        ),
    ),
    "sep": nullable(Field("a separator", lambda v: type(v) is str and v != "")),
    "decimal": choice(".", ","),
    "guarded": choice(True, False),
    "encoding": Field("a known encoding", _is_encoding),
}


# ---- reading -----------------------------------------------------------------------------------


def read_file(path: Path, reading: Reading) -> tuple[pd.DataFrame, FileFormat]:
    """Read a table as ``combutab.datasets.read_table`` does, and the forms of its values.

    In a text file, a column is of

    - dates, if all its values are dates in one form (year first, or day or month first where the
      values tell which), with or without a time;
    - whole numbers, also where some are missing;
    - text, if its numbers begin with zeros that would be lost (``00501``).

    Raises TableError as ``read_table`` does, and without the library that reads Parquet or Excel.
    """
    table = reading.table(path)
    kind = path.name.lower()
    if kind.endswith(".parquet"):
        return _typed(table, path)
    if not is_text_file(path):  # of Excel, whose cells have types
        return table.apply(_whole), FileFormat()
    forms = FileFormat(sep=reading.sep, decimal=reading.decimal, encoding=reading.encoding)
    plain = [j for j in range(table.shape[1]) if _loses_form(table.iloc[:, j])]
    if not plain:
        return table, forms
    cells = reading.cells(path, plain)

    def in_form(name: str, column: pd.Series) -> pd.Series:
        return _in_form(column, cells[name], name, forms) if name in cells else column

    return _change_columns(table, in_form), forms


def _change_columns(
    table: pd.DataFrame, change: Callable[[str, pd.Series], pd.Series]
) -> pd.DataFrame:
    """The table with ``change`` of each column, given its name as text."""
    columns = {j: change(str(name), table.iloc[:, j]) for j, name in enumerate(table.columns)}
    changed = pd.DataFrame(columns)
    changed.columns = table.columns  # which need not be texts
    return changed


def is_text_file(path: Path) -> bool:
    """Tell from its name whether a table's file is of text, which --decimal and --sep are for."""
    return path.name.lower().endswith(tuple(_SEPARATORS))


def _loses_form(column: pd.Series) -> bool:
    """Tell whether pandas may have read a column so that its text is lost."""
    whole = types.is_float_dtype(column.dtype) and column.isna().any()
    return bool(not types.is_float_dtype(column.dtype) or whole)


def _in_form(column: pd.Series, cells: pd.Series, name: str, forms: FileFormat) -> pd.Series:
    """Read a column as its cells say, in the table's dtype or a better one; notes its form."""
    present = cells.dropna().drop_duplicates().str.strip()
    if present.empty:
        return column
    if column_kind(column) == ColumnKind.BOOL:
        truth = {cell.casefold(): cell for cell in present}
        forms.truth[name] = [truth.get("false", "False"), truth.get("true", "True")]
        return column
    if types.is_numeric_dtype(column.dtype):
        if present.str.contains(ZERO_FIRST, regex=True).any():
            return cells
        if types.is_float_dtype(column.dtype) and present.str.fullmatch(r"[+-]?\d+").all():
            try:
                return cells.astype("Int64")
            except (TypeError, ValueError, OverflowError):  # beyond 64 bits
                return column
        return column
    for form in _forms_of_dates(present):
        forms.dates[name] = form
        return pd.to_datetime(cells.str.strip(), format=form)
    return column


def _forms_of_dates(present: pd.Series) -> list[str]:
    """The form of dates that all values have, if there is one and no other would do as well."""
    if not types.is_string_dtype(present.dtype) or not re.match(_DATE, present.iloc[0]):
        return []
    head = present.head(_HEAD)
    found = [form for form in _DATES if _has_form(head, form)]
    found = [form for form in found if _has_form(present, form)]
    return found if len(found) == 1 else []


def _has_form(values: pd.Series, form: str) -> bool:
    try:
        pd.to_datetime(values, format=form)
    except ValueError:
        return False
    return True


def _whole(column: pd.Series) -> pd.Series:
    """Whole numbers with gaps, which pandas reads as floats, as whole numbers."""
    if column.dtype.kind == "f" and column.isna().any() and (column.dropna() % 1 == 0).all():
        return column.astype("Int64")
    return column


def _typed(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, FileFormat]:
    """A Parquet file's columns in the dtypes that a generator takes for what they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = {field.name: field.type for field in pq.read_schema(path)}
    forms = FileFormat()

    def typed(name: str, column: pd.Series) -> pd.Series:
        kind = types.infer_dtype(column, skipna=True) if column.dtype == object else ""
        if kind == "date":
            forms.dates[name] = "%Y-%m-%d"
            return pd.to_datetime(column)
        if kind == "decimal":
            return column.astype(float)
        if column.dtype.kind == "f" and pa.types.is_integer(schema.get(name, pa.null())):
            return column.astype("Int64")  # pandas reads whole numbers with gaps as floats
        return column

    return _change_columns(table, typed), forms


# ---- writing -----------------------------------------------------------------------------------


def ending(path: Path) -> str:
    """The ending that says how a table's file is written.

    Raises UserError if it is none of those that are known.
    """
    known = (*_SEPARATORS, ".parquet")
    for each in known:
        if path.name.lower().endswith(each):
            return each
    raise UserError(f"cannot tell what to write to {path}; known endings are {', '.join(known)}")


def check_ending(path: Path) -> None:
    """Find out whether a table can be written to a file of this name.

    Raises UserError if its ending is unknown, or the library for it is not installed.
    """
    if ending(path) == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError("writing Parquet needs pyarrow: pip install 'combutab[parquet]'") from (
                error
            )


def write_table(table: pd.DataFrame, forms: FileFormat, path: Path) -> None:
    """Write a table of the fitted columns in whole; the same table gives the same bytes."""
    kind = ending(path)
    gzip: Any = {"method": "gzip", "mtime": 0}

    def as_text(name: str, column: pd.Series) -> pd.Series:
        dated = types.is_datetime64_any_dtype(column.dtype)
        if name in forms.dates and dated:
            column = column.dt.strftime(forms.dates[name])
        elif name in forms.truth:
            column = column.map(dict(zip((False, True), forms.truth[name], strict=True)))
        if not forms.guarded or dated or types.is_numeric_dtype(column.dtype):
            return column
        return column.astype(object).map(_guard, na_action="ignore")

    def write(place: Path) -> None:
        if kind == ".parquet":
            # its index is a count; without it, names would become text
            as_parquet(table, forms).to_parquet(place)
            return
        rewritten = _change_columns(table, as_text)
        if forms.guarded:
            rewritten = rewritten.rename(columns=_guard)
        rewritten.to_csv(
            place,
            sep=(kind.startswith(".csv") and forms.sep) or _SEPARATORS[kind],
            decimal=forms.decimal,
            index=False,
            compression=gzip if kind.endswith(".gz") else None,
        )

    write_whole(path, write)


def as_parquet(table: pd.DataFrame, forms: FileFormat) -> pd.DataFrame:
    """Rows as a Parquet file has them: days without a time of day."""

    def as_day(name: str, column: pd.Series) -> pd.Series:
        is_day = forms.dates.get(name) in _DAYS and types.is_datetime64_any_dtype(column.dtype)
        return column.dt.date if is_day else column

    return _change_columns(table, as_day)


def hint_at_formulas(table: pd.DataFrame, forms: FileFormat, out: Path) -> None:
    """Name the columns whose names or text a spreadsheet would take for formulas."""
    if forms.guarded or ending(out) == ".parquet":
        return
    found = []
    for name, column in table.items():
        texts = column.dropna() if not types.is_numeric_dtype(column.dtype) else ()
        if any(isinstance(text, str) and _CALL.match(text) for text in (name, *texts)):
            found.append(str(name))
    if found:
        hint(
            f"a spreadsheet that opens {out} would take text of {list_names(found)} for formulas; "
            "--guard-formulas puts a ' before it"
        )


def _guard(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def list_names(names: Sequence[str]) -> str:
    """Quote the first of some names of columns.

    >>> list_names(["a", "b"]), list_names(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(repr, names[:_SHOWN]))}{more}"


# ---- Files of models, which know the format of their table too -----------------------------------

_FORMS, _TARGET = "forms", "target"  # of the header of a model's file


@contextmanager
def known_model(
    path: Path, names: Collection[str], lack: str, maker: str
) -> Iterator[dict[str, Any]]:
    """Give the header of a file of one of these classes; what goes wrong with it is a UserError.

    ``lack`` is what others do not do, ``maker`` the command that writes such files.
    """
    try:
        header, _ = read_model(path, arrays=False)
        if header["class"] not in names:
            *others, last = sorted(names, key=str.lower)
            raise UserError(
                f"{path} holds a {header['class']}, which {lack}; give a file of a "
                f"{', '.join(others)} or {last}, such as `{maker}` writes"
            )
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error


def save_with_format(model: Any, path: Path, forms: FileFormat, target: str | None = None) -> None:
    """Write a model's file that knows the format of its table too, and an estimator's target."""
    model.save(path)
    header, arrays = read_model(path)
    named = {} if target is None else {_TARGET: target}
    write_model(path, {**header, _FORMS: asdict(forms), **named}, arrays)


def load_with_format(
    path: Path, device: str, names: Collection[str], lack: str, maker: str
) -> tuple[Any, FileFormat, str | None]:
    """Read a model's file, and the format of its table and the target if it knows them."""
    with known_model(path, names, lack, maker) as header:
        model = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        if not (target is None or isinstance(target, str)):
            raise TypeError(f"the target is {target!r:.50}")
    return model, forms, target


def check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    with refusals():
        resolve_device(device)


def check_replaceable(option: str, path: Path | None) -> None:
    """Let a model take the place of a model alone, not of a table or of a training's checkpoint."""
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    try:
        header, _ = read_model(path, arrays=False)
        what = "is the checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        what = "is no file of a model"
    if what:
        raise UserError(f"{option}: {path} is there, and {what}; choose another file, or remove it")
