"""Tables on the command line: files, their forms, names of columns, targets, places for results."""

from __future__ import annotations

import codecs
import itertools
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.cli._console import UserError, note
from combutab.core.files import check_writable, whole_file
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


def check_file(path: Path, **others: Path) -> None:
    """Find out whether a file can be written, and that it is none of the others.

    Raises UserError, which names the one of the others that it is by its keyword.
    """
    folder = path.parent
    _check_place(path, others)
    if not folder.is_dir():
        why = "is not a directory" if folder.exists() else "does not exist; create it first"
        raise UserError(f"cannot write {path}: {folder} {why}")
    check_folder(folder)


def check_file_with_folder(path: Path, **others: Path) -> None:
    """Find out the same as `check_file` of a file whose folder may have to be made."""
    _check_place(path, others)
    check_folder(path.parent)


def _check_place(path: Path, others: Mapping[str, Path]) -> None:
    try:
        if path.is_dir():
            raise UserError(f"cannot write {path}: it is a directory")
        if path.exists() and not os.access(path, os.W_OK):
            raise UserError(f"cannot write {path}: it is read-only")
        for name, other in others.items():
            if path.resolve() == other.resolve():
                raise UserError(f"cannot write {path}: that is {name} as well; choose another file")
    except OSError as error:  # of a name that no file can have
        raise cannot_write(path, error) from error


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

    @classmethod
    def of(cls, sep: str | None, decimal: str, encoding: str) -> Reading:
        """Take the options of the command line, where a tab is hard to write."""
        tabs: dict[str | None, str] = {"tab": "\t", "\\t": "\t"}
        return cls(tabs.get(sep, sep), decimal, encoding)

    def table(self, path: Path) -> pd.DataFrame:
        """Read the table of a file as pandas does, or raise a TableError."""
        try:
            return read_table(path, sep=self.sep, decimal=self.decimal, encoding=self.encoding)
        except ImportError as error:  # the message says how to install what is missing
            raise TableError(str(error)) from error

    def cells(self, path: Path, columns: list[int]) -> pd.DataFrame:
        """Read some columns of a text file as they are written."""
        return read_cells(path, columns, sep=self.sep, encoding=self.encoding)


def tell_of_odd_columns(
    table: pd.DataFrame, reading: Reading, *, identifiers: bool = True, target: Any = None
) -> None:
    """Say of columns that may not be what they seem what they are taken for, a line a kind.

    ``identifiers`` says whether to tell of those too. No column can be left out that is the target.
    """
    by_kind: dict[tuple[str, str], list[OddColumn]] = {}
    for odd in odd_columns(table):
        if odd.column == target:
            if odd.kind in _OF_TARGETS:
                shown = f"{odd.why} ({odd.example})"
                remedy = (
                    "remove these rows if it does" if "missing" in odd.kind else _REMEDIES[odd.kind]
                )
                note(f"the target {str(target)!r} is taken for {odd.taken}, {shown}; {remedy}")
        elif identifiers or odd.kind != "identifier":
            by_kind.setdefault((odd.kind, odd.taken), []).append(odd)
    for (kind, taken), found in by_kind.items():
        names = [str(odd.column) for odd in found]
        remedy = _remedy(kind, names, reading)
        example = found[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        shown = f"{found[0].why} ({example})" if example else found[0].why
        note(f"{_named(names)} taken for {taken}, {shown}; {remedy}")


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def _remedy(kind: str, names: list[str], reading: Reading) -> str:
    if kind == "decimal comma":
        read = reading.decimal == "."
        return "--decimal , reads them" if read else "write them without signs between thousands"
    if kind == "text numbers" and reading.decimal == ",":
        return f"--decimal . reads them, or {_drop(names)}"
    if kind in ("header", "missing code"):
        return _REMEDIES[kind]
    return f"{_REMEDIES[kind]}, or {_drop(names)}" if kind in _REMEDIES else _drop(names)


def _drop(names: list[str]) -> str:
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
_USUAL = Reading()
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

    def to_json(self) -> dict[str, Any]:
        """Convert to what ``from_json`` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> FileFormat:
        """The forms that a model's file has, of a stranger perhaps.

        Raises ValueError if they are none that ``read_file`` finds.
        """
        dates, truth = value["dates"], value["truth"]
        if not set(dates.values()) <= set(_DATES) or not all(
            len(words) == 2 and all(isinstance(word, str) for word in words)
            for words in truth.values()
        ):
            raise ValueError("it has unknown forms of dates or truth values")
        sep, decimal = value.get("sep"), value.get("decimal", ".")
        if decimal not in (".", ",") or not (sep is None or (isinstance(sep, str) and sep)):
            raise ValueError("it has unknown forms of numbers")
        encoding = value.get("encoding", "utf-8")
        try:
            codecs.lookup(encoding)
        except (LookupError, TypeError):
            raise ValueError("it has an unknown encoding") from None
        return cls(dates, truth, sep, decimal, value.get("guarded") is True, encoding)


# ---- reading -----------------------------------------------------------------------------------


def read_file(path: Path, reading: Reading = _USUAL) -> tuple[pd.DataFrame, FileFormat]:
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
    text = reading.cells(path, plain)
    columns = {j: table.iloc[:, j] for j in range(table.shape[1])}
    for j, (name, cells) in zip(plain, text.items(), strict=True):
        columns[j] = _in_form(columns[j], cells, str(name), forms)
    recognised = pd.DataFrame(columns)
    recognised.columns = table.columns
    return recognised, forms


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
    found = [form for form in _DATES if _fits(head, form)]
    found = [form for form in found if _fits(present, form)]
    return found if len(found) == 1 else []


def _fits(values: pd.Series, form: str) -> bool:
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
    columns = {}
    for j, name in enumerate(table.columns):
        column = table.iloc[:, j]
        kind = types.infer_dtype(column, skipna=True) if column.dtype == object else ""
        if kind == "date":
            forms.dates[str(name)] = "%Y-%m-%d"
            column = pd.to_datetime(column)
        elif kind == "decimal":
            column = column.astype(float)
        elif column.dtype.kind == "f" and pa.types.is_integer(schema.get(str(name), pa.null())):
            column = column.astype("Int64")  # pandas reads whole numbers with gaps as floats
        columns[j] = column
    typed = pd.DataFrame(columns)
    typed.columns = table.columns
    return typed, forms


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


def write_file(table: pd.DataFrame, forms: FileFormat, path: Path, kind: str) -> None:
    """Write a table of the fitted columns; the same table gives the same bytes."""
    if kind == ".parquet":
        # its index is a count; without it, names would become text
        as_parquet(table, forms).to_parquet(path)
        return
    rewritten = _rewrite(table, forms.dates, _to_text)
    rewritten = _rewrite(rewritten, forms.truth, _to_words)
    if forms.guarded:
        rewritten = rewritten.apply(_guarded).rename(columns=_guard)
    gzip: Any = {"method": "gzip", "mtime": 0}
    rewritten.to_csv(
        path,
        sep=(kind.startswith(".csv") and forms.sep) or _SEPARATORS[kind],
        decimal=forms.decimal,
        index=False,
        compression=gzip if kind.endswith(".gz") else None,
    )


def as_parquet(table: pd.DataFrame, forms: FileFormat) -> pd.DataFrame:
    """Rows as a Parquet file has them."""
    return _rewrite(table, forms.dates, _to_dates)


def find_formulas(table: pd.DataFrame) -> list[str]:
    """Columns whose names or text a spreadsheet would take for formulas, and not for numbers."""
    found = []
    for name, column in table.items():
        texts = column.dropna() if not types.is_numeric_dtype(column.dtype) else ()
        if any(isinstance(text, str) and _CALL.match(text) for text in (name, *texts)):
            found.append(str(name))
    return found


def _guarded(column: pd.Series) -> pd.Series:
    if types.is_numeric_dtype(column.dtype) or types.is_datetime64_any_dtype(column.dtype):
        return column
    return column.astype(object).map(_guard, na_action="ignore")


def _guard(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _rewrite(
    table: pd.DataFrame, by_name: dict[str, Any], change: Callable[[pd.Series, Any], pd.Series]
) -> pd.DataFrame:
    columns = {
        j: change(table.iloc[:, j], by_name[str(name)])
        if str(name) in by_name
        else table.iloc[:, j]
        for j, name in enumerate(table.columns)
    }
    rewritten = pd.DataFrame(columns)
    rewritten.columns = table.columns
    return rewritten


def _to_text(column: pd.Series, form: str) -> pd.Series:
    return column.dt.strftime(form) if types.is_datetime64_any_dtype(column.dtype) else column


def _to_dates(column: pd.Series, form: str) -> pd.Series:
    is_day = form in _DAYS and types.is_datetime64_any_dtype(column.dtype)
    return column.dt.date if is_day else column


def _to_words(column: pd.Series, words: list[str]) -> pd.Series:
    return column.map({False: words[0], True: words[1]})
