"""Files on the command line: tables and their forms, columns that are named, models, results."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.cli._console import UserError, hint, refusals, with_options
from combutab.cli._options import (
    cannot_write,
    ending,
    find_columns,
    find_dropped,
    find_targets,
    is_text_file,
)
from combutab.core.dates import (
    DATE_FORMATS,
    DAY_FORMATS,
    find_date_format,
    offsets_differ,
    read_dates,
    write_dates,
)
from combutab.core.files import (
    Field,
    check_fields,
    choice,
    nullable,
    optional,
    read_model,
    whole_file,
    write_model,
)
from combutab.core.progress import interrupts_first
from combutab.core.text import no_column
from combutab.core.textfile import EXCEL, SEPARATORS, Reading, TableError
from combutab.datasets.tables import TableFile
from combutab.preprocessing import (
    ColumnKind,
    OddColumn,
    TargetError,
    column_kind,
    infer_task,
    odd_columns,
    read_numbers,
)
from combutab.preprocessing.amounts import Amounts, amounts_in, as_numbers, choose_marks
from combutab.preprocessing.amounts import Form as AmountForm


def leave_out(
    table: pd.DataFrame,
    texts: Sequence[str] | None,
    target: str | None = None,
    drop_missing: bool = False,
) -> pd.DataFrame:
    """Leave out the columns that --drop names, and if wanted the rows in which a target is missing.

    Raises UserError if no column would be left, or the target's is named; or rows without it are
    not to be dropped, or all are.
    """
    table = table.drop(columns=find_dropped(texts, table.columns, target))
    missing = pd.Series(False, table.index)
    for name in () if target is None else find_targets(target, table.columns):
        missing |= table[name].isna()
    n = int(missing.sum())
    if not n:
        return table
    if n == len(table):
        raise UserError(f"the target {target!r} is missing in all {n:,} rows")
    if not drop_missing:
        raise UserError(
            f"the target {target!r} has {n:,} missing value(s), the first in data row "
            f"{int(missing.argmax()) + 1:,}; use --drop-missing-target to leave these rows out"
        )
    hint(f"{n:,} of {len(table):,} rows are left out, because the target {target!r} is missing")
    return table[~missing].reset_index(drop=True)


# ---- The format in which a table's file is read, and hints on its odd columns --------------------

ZERO_FIRST = r"^\s*[+-]?0\d"  # of a number, which loses the zero
_SHOWN = 5  # columns that a line names
_QUOTED = re.compile(r"(?<!\w)(?:'([^']+)'|\"([^\"]+)\")")
_OF_TARGETS = ("missing code", "missing mark", "truth values")
_REMEDIES = {
    "header": "add a line with the names of the columns",
    "missing code": "if so, leave these cells empty",
    "missing mark": "if so, leave these cells empty",
    "few texts": "correct these cells",
    "text numbers": "write them as numbers",
    "dates": "write all of them as 2024-12-31",
    "unclear dates": "write them as 2024-12-31",
    "mixed dates": "write all of them as 2024-12-31",
    "clock numbers": "write them as 10:30",
    "unit": "write them as numbers",
    "truth values": "write them as two words",
}


def read_to_learn(
    path: Path,
    reading: Reading,
    drop: Sequence[str] | None,
    discrete: Sequence[str] | None,
    like: FileFormat | None = None,
) -> tuple[pd.DataFrame, FileFormat, list[Any]]:
    """The table that a generator is to learn, its forms, and its columns that --discrete names."""
    table, forms = read_file(path, reading, like)
    table = leave_out(table, drop)
    return table, forms, find_columns("--discrete", discrete, table.columns)


def hint_before_learning(
    table: pd.DataFrame, reading: Reading, forms: FileFormat, out: Path
) -> None:
    """Give hints on a table that a generator will learn, and on the file that will be written."""
    hint_at_odd_columns(table, reading, identifiers=False)
    hint_at_formulas(table, forms, out)


def hint_at_odd_columns(
    table: pd.DataFrame, reading: Reading, *, identifiers: bool = True, target: Any = None
) -> None:
    """Say of columns that may not be what they seem what they are taken for, a line a kind.

    ``identifiers`` says whether to tell of those too. No column can be left out that is the target,
    or one of a list of them.
    """
    targets = target if isinstance(target, list) else [target]
    groups: dict[tuple[str, str, str], list[OddColumn]] = {}
    for odd in odd_columns(table):
        if odd.column not in targets and (identifiers or odd.kind != "identifier"):
            mark = _mark_of(odd, table[odd.column])
            groups.setdefault((odd.kind, odd.taken, mark), []).append(odd)
        elif odd.column in targets and odd.kind in _OF_TARGETS:
            missing = "missing" in odd.kind
            remedy = "if so, remove these rows" if missing else _REMEDIES[odd.kind]
            shown = f"{odd.why} ({odd.example})"
            hint(f"the target {str(odd.column)!r} is treated as {odd.taken}, {shown}; {remedy}")
    for (kind, taken, mark), odds in groups.items():
        names, example = [str(odd.column) for odd in odds], odds[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        shown = f"{odds[0].why} ({example})" if example else odds[0].why
        are = "is" if len(names) == 1 else "are"
        remedy = _odd_remedy(kind, names, reading, mark)
        hint(f"{list_names(names)} {are} treated as {taken}, {shown}; {remedy}")


def _odd_remedy(kind: str, names: list[str], reading: Reading, mark: str) -> str:
    remedy = _REMEDIES.get(kind)
    if kind == "decimal comma":
        read = reading.decimal != ","
        return "use --decimal , to read them as numbers" if read else _drop_words(names)
    if kind == "thousands" and mark:
        remedy = f"use --thousands {shlex.quote(mark)} to read them as numbers"
    if kind == "missing mark" and mark:
        remedy = f"if so, use {mark}"
    if kind == "few texts" and mark:
        remedy = f"use {mark} if it stands for missing values"
    if kind == "text numbers" and reading.decimal == ",":
        remedy = "use --decimal . to read them as numbers"
    if remedy and kind == "header":
        return remedy
    return f"{remedy}, or {_drop_words(names)}" if remedy else _drop_words(names)


def _mark_of(odd: OddColumn, column: pd.Series) -> str:
    """The mark that an option would read a column by; empty if there is none."""
    if odd.kind == "thousands":
        values = Amounts.split(_present_texts(column))
        decimals = {",": ".", ".": ","}
        pairs = {m: values and values.choose(decimals.get(m, ""), m) for m in ",. '"}
        marks = [m for m, pair in pairs.items() if pair and pair[1]]
        return "space" if marks[:1] == [" "] else "".join(marks[:1])
    if odd.kind not in ("missing mark", "few texts"):
        return ""
    marks = [first or second for first, second in _QUOTED.findall(odd.example)]
    texts = column.dropna().astype(str).str.strip()
    if odd.kind == "few texts" and (len(marks) != 1 or (texts == marks[0]).sum() < 2):
        return ""  # errors rather than marks
    return " ".join(f"--missing {shlex.quote(mark)}" for mark in marks)


def _drop_words(names: list[str]) -> str:
    if len(names) > _SHOWN or any("," in name for name in names[1:]):
        return "leave them out with --drop"
    these = "it" if len(names) == 1 else "them"
    return f"leave {these} out with --drop {shlex.quote(','.join(names))}"


# ---- The task that a target asks for; what is wrong with it, in the words of the command line ----

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
    try:
        if task == "auto":
            return infer_task(y)
        if task == "regression":
            read_numbers(y)
    except TargetError as error:
        remedy = _target_remedy(error, data, reading)
        if error.fault == "text" and not classify:
            remedy = "use --task regression to treat them as numbers"
        ways = f"{remedy}, or use {classify or '--task classification'} if they are classes"
        raise UserError(f"the target {str(y.name)!r} {error.problem}; {ways}") from error
    return task


def _target_remedy(error: TargetError, data: Path, reading: Reading) -> str:
    if error.fault == "decimal comma" and is_text_file(data) and reading.decimal != ",":
        return "use --decimal , to read them as numbers"
    if error.fault == "text" and is_text_file(data) and reading.decimal == ",":
        return "use --decimal . to read them as numbers"
    return _TARGET_REMEDIES[error.fault]


# ---- Tables from files, and to files in the same form: dates, truth values, whole numbers --------

# What may be a formula (a number is none), and what is one for certain
_FORMULA = re.compile(r"[=@＝＠\t\r\n]|[-+－＋](?![\d.,\s]*$)")
_CALL = re.compile(r"[=@＝＠\t\r]|[-+－＋].*[(|!]")


@dataclass
class FileFormat:
    """The format of the values of a file, by the names of its columns as text.

    ``dates`` has the form of each column of dates that a text file writes otherwise than pandas,
    or a Parquet file without a time of day; ``truth`` the words for false and true; ``amounts`` how
    numbers are written that have a unit, or other marks than the file's. ``sep`` and ``decimal``
    are those of a text file, as far as they are not the usual ones; ``encoding`` is
    that of the file that was read, and no other is written than UTF-8. ``guarded`` text files have
    a ``'`` before what a spreadsheet would take for a formula. ``header_row``, ``sheet``,
    ``missing``, ``not_missing`` and ``value_marks`` are those of the `Reading`.
    """

    dates: dict[str, str] = field(default_factory=dict)
    truth: dict[str, list[str]] = field(default_factory=dict)
    sep: str | None = None
    decimal: str = "."
    guarded: bool = False
    encoding: str = "utf-8"
    amounts: dict[str, AmountForm] = field(default_factory=dict)
    header_row: int | None = None
    sheet: str | None = None
    missing: list[str] = field(default_factory=list)
    not_missing: list[str] = field(default_factory=list)
    value_marks: dict[str, list[str]] = field(default_factory=dict)

    def reading_of(self, path: Path) -> Reading:
        """How a file is read as the table of this format was."""
        is_text = is_text_file(path)
        return Reading(
            sep=self.sep or (SEPARATORS[ending(path)] if is_text else None),
            decimal=self.decimal,
            encoding=self.encoding,
            header_row=None if path.name.lower().endswith(".parquet") else self.header_row,
            sheet=self.sheet if path.name.lower().endswith(EXCEL) else None,
            missing=tuple(self.missing),
            not_missing=tuple(self.not_missing),
            value_marks=self.value_marks,
        )

    @classmethod
    def from_json(cls, value: Any) -> FileFormat:
        """The forms that a model's file has, of a stranger perhaps.

        Raises ValueError if they are none that ``read_file`` finds.
        """
        check_fields(value, _FORMAT, "the format of the table")
        amounts = value.get("amounts", {}).items()
        return cls(**{**value, "amounts": {n: AmountForm.from_json(form) for n, form in amounts}})


def column_of_split(X: pd.DataFrame, split: str) -> tuple[str, Any]:
    """Return how ``--split`` splits rows, "time" or "group", and the name of the column.

    Raises UserError if there is no such column, or it does not order or group the rows.
    """
    how, _, column = split.partition(":")
    if column not in X:
        raise UserError(f"--split {split}: {no_column(column, X.columns)}")
    n_missing = int(X[column].isna().sum())
    if n_missing:
        raise UserError(
            f"--split {split}: {column!r} has {n_missing} missing value(s); remove those rows, or "
            "fill them in"
        )
    types, dtype = pd.api.types, X[column].dtype
    ordered = types.is_datetime64_any_dtype(dtype) or types.is_numeric_dtype(dtype)
    if how == "time" and not ordered:
        raise UserError(
            f"--split {split}: {column!r} holds {str(X[column].iloc[0])!r:.40}; time:COLUMN "
            "needs a column of numbers, or of dates in one format"
        )
    if how == "group" and X.shape[1] == 1:
        raise UserError(f"--split {split} leaves no feature column; add columns to the table")
    if how == "group" and X[column].nunique() < 2:
        raise UserError(
            f"--split {split}: all rows have the same value of {column!r}; choose a column with "
            "several values"
        )
    return how, column


def _is_encoding(name: Any) -> bool:
    try:
        return bool(codecs.lookup(name))
    except (LookupError, TypeError):
        return False


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


_FORMAT = {
    "dates": Field(
        "known forms of dates", lambda v: type(v) is dict and set(v.values()) <= set(DATE_FORMATS)
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
    "amounts": optional(Field("forms by column", lambda v: type(v) is dict)),
    "header_row": optional(nullable(Field("a line", lambda v: type(v) is int and v > 0))),
    "sheet": optional(nullable(Field("a name", lambda v: type(v) is str))),
    "missing": optional(Field("a list of texts", _are_texts)),
    "not_missing": optional(Field("a list of texts", _are_texts)),
    "value_marks": optional(
        Field("texts by column", lambda v: type(v) is dict and all(map(_are_texts, v.values())))
    ),
}


# ---- reading -----------------------------------------------------------------------------------


def read_file(
    path: Path, reading: Reading, like: FileFormat | None = None
) -> tuple[pd.DataFrame, FileFormat]:
    """Read a table as ``combutab.datasets.read_table`` does, and the forms of its values.

    In a text file, a column is of

    - dates, if all its values are dates in one form (year first, or day or month first where the
      values tell which), with or without a time;
    - whole numbers, also where some are missing;
    - numbers, if all its values are amounts in one form, such as ``1.507,67 €``;
    - text, if its numbers begin with zeros that would be lost (``00501``).

    What the options do not say, and the values do not tell, is as in ``like``, the format of a
    table that was read before. One line says how the file was read, if that is not as UTF-8 with
    the usual separator and a point.

    Raises TableError as ``read_table`` does, and without the library that reads Parquet or Excel.
    """
    file = _open_table(path, reading, like)
    try:
        with interrupts_first():  # pandas makes a broken file of Ctrl-C
            table = file.table()
    except ImportError as error:  # the message says how to install what is missing
        raise TableError(str(error)) from error
    for note in file.notes:
        hint(f"{path.name}: {with_options(note)}")
    if path.name.lower().endswith(".parquet"):
        table, forms = _typed(table, path)
    else:
        forms = FileFormat(header_row=file.reading.header_row, sheet=file.reading.sheet)
    forms.missing, forms.not_missing = list(file.reading.missing), list(file.reading.not_missing)
    forms.value_marks = file.value_marks
    if file.is_text:
        table, in_utc = _converted(table, file, forms, like)
        said = _said(reading, forms, SEPARATORS[ending(path)], in_utc)
    elif path.name.lower().endswith(EXCEL):  # whose cells have types
        table = _with_amounts_of_cells(table.apply(_whole), forms, file.reading, like)
        said = _said(reading, forms, "")
    else:
        said = ""
    if said:
        hint(f"{path.name}: read {said}")
    return table, forms


def _open_table(path: Path, reading: Reading, like: FileFormat | None) -> TableFile:
    """Open a file with what the options say, and else as the table of a format was read."""
    if reading.decimal is None and reading.thousands in (".", ","):
        reading = replace(reading, decimal={".": ",", ",": "."}[reading.thousands])
    if like is None:
        return TableFile(path, reading)
    known = like.reading_of(path)
    reading = replace(
        reading,
        header_row=reading.header_row or known.header_row,
        sheet=reading.sheet or known.sheet,
        missing=tuple(dict.fromkeys((*reading.missing, *known.missing))),
        not_missing=tuple(dict.fromkeys((*reading.not_missing, *known.not_missing))),
        value_marks=known.value_marks,
    )
    return TableFile(path, reading, known)


def _converted(
    table: pd.DataFrame, file: TableFile, forms: FileFormat, like: FileFormat | None
) -> tuple[pd.DataFrame, list[str]]:
    """A text file's columns as their cells say, and the dates among them that are in UTC.

    Notes in ``forms`` how the cells are written.
    """
    usual, reading = SEPARATORS[ending(file.path)], file.reading
    forms.sep = None if reading.sep == usual else reading.sep
    forms.decimal = reading.decimal or "."
    forms.encoding = reading.encoding or "utf-8"
    plain = [j for j in range(table.shape[1]) if _loses_form(table.iloc[:, j])]
    cells = file.cells(plain) if plain else pd.DataFrame(index=table.index)

    def in_form(name: str, column: pd.Series) -> pd.Series:
        return _in_form(column, cells[name], name, forms) if name in cells else column

    table = _change_columns(table, in_form)
    zoned = [name for name, form in forms.dates.items() if "%z" in form]
    in_utc = [name for name in zoned if offsets_differ(cells[name])]
    return _with_amounts(table, cells, forms, file, like), in_utc


def _present_texts(cells: pd.Series) -> pd.Series:
    return cells.dropna().drop_duplicates().str.strip()


# ---- Numbers: decimal marks, marks between thousands, and units ----------------------------------

_FEW_NUMBERS = 100  # different ones of a column in which 1.1 and 1.10 may be two versions


def _with_amounts(
    table: pd.DataFrame,
    cells: pd.DataFrame,
    forms: FileFormat,
    file: TableFile,
    like: FileFormat | None,
) -> pd.DataFrame:
    """The table with numbers where texts are amounts; notes their form, and the decimal mark."""
    sep, decimal, thousands = (
        getattr(file.reading, name) or "" for name in ("sep", "decimal", "thousands")
    )
    amounts: dict[str, Amounts] = {}
    for name in map(str, cells):
        if column_kind(table[name]) == ColumnKind.TEXT:
            values = Amounts.split(_present_texts(cells[name]))
            amounts |= {} if values is None else {name: values}
    # commas mostly part the cells where points are decimal points
    all_floats = not decimal and bool(amounts or sep != "," or like is not None)
    floats = [j for j, name in enumerate(table) if _is_float(table[name], all_floats)]
    cells = cells.join(file.cells(floats).drop(columns=cells.columns, errors="ignore"))
    has_point = False
    for name in map(str, table.columns[floats]):
        texts = _present_texts(cells[name])
        _hint_at_merged(name, texts)
        values = Amounts.split(texts) if not decimal else None
        is_known = like is not None and name in like.amounts
        if values is not None and (is_known or len(values.marks) > 1):
            amounts[name] = values
        else:
            has_point |= bool(texts.str.contains(".", regex=False).any())
    known = _known_marks(amounts, like)
    clear = {
        values.decimal
        for name, values in amounts.items()
        if name not in known and not values.is_list(sep)
    }
    clear = (clear | ({"."} if has_point and not decimal else set())) - {""}
    if not decimal and len(clear) == 1:
        decimal = clear.pop()
    elif not decimal and like is not None:
        decimal = like.decimal
    elif not decimal and not clear and sep == ",":
        decimal = "."
    forms.decimal = decimal or "."
    _hint_at_points(table, amounts, known, decimal, sep)
    for name, values in amounts.items():
        if name in known:
            marks: tuple[str, str] | None = known[name]
        elif values.is_list(sep) and decimal != ",":
            continue
        else:
            marks = None if file.reading.decimal else values.choose("", thousands)
            marks = marks or values.choose(decimal, thousands)
        if marks is None or (types.is_float_dtype(table[name].dtype) and marks == (".", "")):
            continue
        table[name] = as_numbers(cells[name], values.numbers(*marks))
        _note_form(forms, name, values.form(*marks))
    return table


def _is_float(column: pd.Series, any_float: bool) -> bool:
    """Tell whether the cells of a column may be other numbers than pandas has read."""
    if not types.is_float_dtype(column.dtype) or column.isna().all():
        return False
    return any_float or column.nunique() <= _FEW_NUMBERS or bool((column.dropna() % 1 == 0).all())


def _known_marks(
    amounts: dict[str, Amounts], like: FileFormat | None
) -> dict[str, tuple[str, str]]:
    """The marks of columns that are written as they were in a table that was read before."""
    known = {}
    for name, values in amounts.items():
        form = None if like is None else like.amounts.get(name)
        if form is not None and form.read(values.parts) is not None:
            known[name] = form.decimal, form.thousands
    return known


def _hint_at_points(
    table: pd.DataFrame, amounts: dict[str, Amounts], known: Collection[str], decimal: str, sep: str
) -> None:
    """Name the columns of numbers such as 1.234, if nothing tells what the point is."""
    unclear = [
        name for name in amounts if name not in known and types.is_float_dtype(table[name].dtype)
    ]
    if unclear and not decimal and sep != ",":
        example = next(iter(amounts[unclear[0]].parts))
        hint(
            f"{list_names(unclear)}: points are read as decimal points, as in {example}; "
            "use --thousands . to read them as thousands separators"
        )


def _hint_at_merged(name: str, texts: pd.Series) -> None:
    """Say that texts of a column are the same number, or a code that is read as a number."""
    codes = texts[texts.str.fullmatch(r"\d+[eE]\d+")]
    if len(codes):
        hint(
            f"{name!r} is read as numbers, {codes.iloc[0]} as {float(codes.iloc[0]):.15g}; if "
            "these are codes, write them so that they are no numbers, such as with a letter in "
            "front"
        )
    with_zero = texts[texts.str.fullmatch(r"[+-]?\d*\.\d*[1-9]0+")]
    merged = with_zero[with_zero.str.rstrip("0").isin(texts)]
    if len(merged):
        short = merged.iloc[0].rstrip("0")
        hint(
            f"{name!r} is read as numbers, {short} and {merged.iloc[0]} as the same one; if these "
            "are versions or codes, write them with a letter in front"
        )


def _with_amounts_of_cells(
    table: pd.DataFrame, forms: FileFormat, reading: Reading, like: FileFormat | None
) -> pd.DataFrame:
    """The table of a workbook with numbers where text is amounts; notes their form."""
    found = {name: values for name in table if (values := amounts_in(table[name])) is not None}
    chosen = choose_marks(found, reading.decimal or "", reading.thousands or "")
    for name, values in found.items():
        known = None if like is None else like.amounts.get(str(name))
        if known is not None and known.read(values.parts) is not None:
            chosen[name] = (known.decimal, known.thousands), values
    for name, (marks, values) in chosen.items():
        table[name] = as_numbers(table[name], values.numbers(*marks))
        _note_form(forms, str(name), values.form(*marks))
    return table


def _note_form(forms: FileFormat, name: str, form: AmountForm) -> None:
    """Note how a column's numbers are written, if not as the file's others are."""
    if form.unit or form.thousands or form.decimal not in ("", forms.decimal) or not form.plain:
        forms.amounts[name] = form


def _said(reading: Reading, forms: FileFormat, usual: str, in_utc: Sequence[str] = ()) -> str:
    """Say what was detected of a text file's format, as far as it is not the plain one."""
    marks = dict.fromkeys(
        "' '" if form.thousands.isspace() else repr(form.thousands)
        for form in forms.amounts.values()
        if form.thousands
    )
    sep = forms.sep or usual
    parts = {
        f"separator {sep!r}": reading.sep is None and forms.sep,
        f"decimal {forms.decimal!r}": reading.decimal is None and forms.decimal != ".",
        f"thousands {' and '.join(marks)}": reading.thousands is None and marks,
        f"encoding {forms.encoding}": reading.encoding is None and forms.encoding != "utf-8",
    }
    said = [part for part, there in parts.items() if there]
    units: dict[str, list[str]] = {}
    for name, form in forms.amounts.items():
        units.setdefault(form.unit, []).append(name)
    columns = [f"{list_names(names)} as numbers in {unit}" for unit, names in units.items() if unit]
    if in_utc:
        columns.append(f"{list_names(in_utc)} in UTC, because the time zone offsets differ")
    read = f"with {', '.join(said)}" if said else ""
    return "; ".join(each for each in (read, ", ".join(columns)) if each)


def _change_columns(
    table: pd.DataFrame, change: Callable[[str, pd.Series], pd.Series]
) -> pd.DataFrame:
    """The table with ``change`` of each column, given its name as text."""
    columns = {j: change(str(name), table.iloc[:, j]) for j, name in enumerate(table.columns)}
    changed = pd.DataFrame(columns)
    changed.columns = table.columns  # which need not be texts
    return changed


def _loses_form(column: pd.Series) -> bool:
    """Tell whether pandas may have read a column so that its text is lost."""
    whole = types.is_float_dtype(column.dtype) and column.isna().any()
    return bool(not types.is_float_dtype(column.dtype) or whole)


def _in_form(column: pd.Series, cells: pd.Series, name: str, forms: FileFormat) -> pd.Series:
    """Read a column as its cells say, in the table's dtype or a better one; notes its form."""
    present = _present_texts(cells)
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
    form = find_date_format(present) if types.is_string_dtype(present.dtype) else None
    if form is None:
        return column
    forms.dates[name] = form
    return read_dates(cells, form)


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


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file in whole or not at all.

    Raises UserError where the system refuses, with no file left behind.
    """
    try:
        with whole_file(path) as place:
            write(place)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_table(table: pd.DataFrame, forms: FileFormat, path: Path) -> None:
    """Write a table of the fitted columns in whole; the same table gives the same bytes."""
    kind = ending(path)
    gzip: Any = {"method": "gzip", "mtime": 0}

    def as_text(name: str, column: pd.Series) -> pd.Series:
        dated = types.is_datetime64_any_dtype(column.dtype)
        if name in forms.amounts and types.is_numeric_dtype(column.dtype):
            return column.astype(object).map(forms.amounts[name].write, na_action="ignore")
        if name in forms.dates and dated:
            column = write_dates(column, forms.dates[name])
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
            sep=(kind.startswith(".csv") and forms.sep) or SEPARATORS[kind],
            decimal=forms.decimal,
            index=False,
            compression=gzip if kind.endswith(".gz") else None,
        )

    write_whole(path, write)


def as_parquet(table: pd.DataFrame, forms: FileFormat) -> pd.DataFrame:
    """Rows as a Parquet file has them: days without a time of day."""

    def as_day(name: str, column: pd.Series) -> pd.Series:
        is_day = forms.dates.get(name) in DAY_FORMATS and types.is_datetime64_any_dtype(
            column.dtype
        )
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
            f"a spreadsheet that opens {out} would run text of {list_names(found)} as formulas; "
            "use --guard-formulas to write a ' before it"
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

Targets = str | list[str] | None
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
            raise UserError(
                f"{path} holds a {header['class']}, which {lack}; give a file that `{maker}` wrote"
            )
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error


def save_with_format(model: Any, path: Path, forms: FileFormat, target: Targets = None) -> None:
    """Write a model's file that knows the format of its table too, and an estimator's targets."""
    model.save(path)
    header, arrays = read_model(path)
    named = {} if target is None else {_TARGET: target}
    write_model(path, {**header, _FORMS: asdict(forms), **named}, arrays)


def read_format(path: Path) -> FileFormat | None:
    """The format of a model's table, from the model's file if it knows it."""
    with refusals(OSError, ValueError):
        header, _ = read_model(path, arrays=False)
        return FileFormat.from_json(header[_FORMS]) if _FORMS in header else None


def load_with_format(
    path: Path, device: str, names: Collection[str], lack: str, maker: str
) -> tuple[Any, FileFormat, Targets]:
    """Read a model's file, and the format of its table and the targets if it knows them."""
    from combutab._model_files import load

    with known_model(path, names, lack, maker) as header:
        model = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        every: list[Any] = target if isinstance(target, list) else [target]
        if not (target is None or all(isinstance(name, str) for name in every)):
            raise TypeError(f"the target is {target!r:.50}")
    return model, forms, target


def check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    from combutab.core.device import resolve_device

    with refusals():
        resolve_device(device)
