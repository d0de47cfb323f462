"""Read and write the files of the commands: tables in their formats, and models."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.cli._console import UserError, hint, refusals, with_options
from combutab.cli._options import (
    STANDARD_OUTPUT,
    cannot_write,
    ending,
    find_columns,
    find_dropped,
    find_targets,
    is_text_file,
)
from combutab.core.files import (
    read_model,
    whole_file,
    write_model,
)
from combutab.core.text import MAX_NAMES, list_names, no_column
from combutab.core.textfile import SEPARATORS, Reading
from combutab.datasets.formats import FileFormat, as_parquet, as_written, read_with_format
from combutab.preprocessing import (
    OddColumn,
    TargetError,
    infer_task,
    odd_columns,
    read_numbers,
)
from combutab.preprocessing.amounts import Amounts


def leave_out(
    table: pd.DataFrame,
    texts: Sequence[str] | None,
    target: str | None = None,
    drop_missing: bool = False,
) -> pd.DataFrame:
    """Drop the columns that --drop names and, with ``drop_missing``, rows without a target.

    Raises UserError if no column would remain, if --drop names the target, if the target is missing
    in all rows, or if it is missing in some rows and ``drop_missing`` is false.
    """
    table = table.drop(columns=find_dropped(texts, table.columns, target))
    missing = pd.Series(False, table.index)
    for name in () if target is None else find_targets(target, table.columns):
        missing |= table[name].isna()
    n_missing = int(missing.sum())
    if not n_missing:
        return table
    if n_missing == len(table):
        raise UserError(f"the target {target!r} is missing in all {n_missing:,} rows")
    if not drop_missing:
        raise UserError(
            f"the target {target!r} has {n_missing:,} missing value(s), the first in data row "
            f"{int(missing.argmax()) + 1:,}; use --drop-missing-target to leave these rows out"
        )
    hint(
        f"{n_missing:,} of {len(table):,} rows are left out, because the target {target!r} is "
        "missing"
    )
    return table[~missing].reset_index(drop=True)


# ---- The format in which a table's file is read, and hints on its odd columns --------------------

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
    """Read the training table of a generator, its format, and the columns that --discrete names."""
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
    """Print how columns with unusual values are treated, in one line for each kind of problem.

    With ``identifiers``, columns that look like identifiers are listed too. The hints never advise
    to drop the target, which is one column or a list of columns.
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
            reason = f"{odd.why} ({odd.example})"
            hint(f"the target {str(odd.column)!r} is treated as {odd.taken}, {reason}; {remedy}")
    for (kind, treatment, mark), group in groups.items():
        names, example = [str(odd.column) for odd in group], group[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        reason = f"{group[0].why} ({example})" if example else group[0].why
        verb = "is" if len(names) == 1 else "are"
        remedy = _odd_remedy(kind, names, reading, mark)
        hint(f"{list_names(names)} {verb} treated as {treatment}, {reason}; {remedy}")


def _odd_remedy(kind: str, names: list[str], reading: Reading, mark: str) -> str:
    remedy = _REMEDIES.get(kind)
    if kind == "decimal comma":
        can_set_decimal = reading.decimal != ","
        return "use --decimal , to read them as numbers" if can_set_decimal else _drop_words(names)
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


def _mark_of(odd_column: OddColumn, column: pd.Series) -> str:
    """Find the value of the option that would read a column correctly, or return ""."""
    if odd_column.kind == "thousands":
        values = Amounts.split(column.dropna().drop_duplicates().str.strip())
        decimals = {",": ".", ".": ","}
        pairs = {m: values and values.choose(decimals.get(m, ""), m) for m in ",. '"}
        marks = [m for m, pair in pairs.items() if pair and pair[1]]
        return "space" if marks[:1] == [" "] else "".join(marks[:1])
    if odd_column.kind not in ("missing mark", "few texts"):
        return ""
    marks = [first or second for first, second in _QUOTED.findall(odd_column.example)]
    texts = column.dropna().astype(str).str.strip()
    if odd_column.kind == "few texts" and (len(marks) != 1 or (texts == marks[0]).sum() < 2):
        return ""  # typing errors, not marks for missing values
    return " ".join(f"--missing {shlex.quote(mark)}" for mark in marks)


def _drop_words(names: list[str]) -> str:
    if len(names) > MAX_NAMES or any("," in name for name in names[1:]):
        return "leave them out with --drop"
    pronoun = "it" if len(names) == 1 else "them"
    return f"leave {pronoun} out with --drop {shlex.quote(','.join(names))}"


# ---- The task of a target, and errors in the words of the command line ---------------------------

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

    ``data`` is the file of the target. ``classify`` is the option that the error message recommends
    if the values are classes, by default --task classification. The UserError names the cells that
    do not fit the task, and the fix.
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


# ---- The format of a table: dates, booleans, numbers ---------------------------------------------

# Text that certainly is a formula
_CALL = re.compile(r"[=@＝＠\t\r]|[-+－＋].*[(|!]")


def column_of_split(X: pd.DataFrame, split: str) -> tuple[str, Any]:
    """Return how ``--split`` splits rows, "time" or "group", and the name of the column.

    Raises UserError if there is no such column, or it does not order or group the rows.
    """
    method, _, column = split.partition(":")
    if column not in X:
        raise UserError(f"--split {split}: {no_column(column, X.columns)}")
    n_missing = int(X[column].isna().sum())
    if n_missing:
        raise UserError(
            f"--split {split}: {column!r} has {n_missing} missing value(s); remove those rows, or "
            "fill them in"
        )
    types, dtype = pd.api.types, X[column].dtype
    is_ordered = types.is_datetime64_any_dtype(dtype) or types.is_numeric_dtype(dtype)
    if method == "time" and not is_ordered:
        raise UserError(
            f"--split {split}: {column!r} holds {str(X[column].iloc[0])!r:.40}; time:COLUMN "
            "needs a column of numbers, or of dates in one format"
        )
    if method == "group" and X.shape[1] == 1:
        raise UserError(f"--split {split} leaves no feature column; add columns to the table")
    if method == "group" and X[column].nunique() < 2:
        raise UserError(
            f"--split {split}: all rows have the same value of {column!r}; choose a column with "
            "several values"
        )
    return method, column


# ---- reading -----------------------------------------------------------------------------------


def read_file(
    path: Path, reading: Reading, like: FileFormat | None = None
) -> tuple[pd.DataFrame, FileFormat]:
    """Read a table and the format of its values, and print notes on them."""
    table, forms, notes = read_with_format(path, reading, like)
    for note in notes:
        hint(f"{path.name}: {with_options(note)}")
    return table, forms


# ---- writing -----------------------------------------------------------------------------------


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a complete file or none.

    If the system refuses to write, UserError is raised and no partial file remains.
    """
    try:
        with whole_file(path) as temporary_path:
            write(temporary_path)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_table(table: pd.DataFrame, forms: FileFormat, path: Path) -> None:
    """Write a table to a complete file or none; the same table gives the same bytes."""
    suffix = ending(path)
    gzip_options: Any = {"method": "gzip", "mtime": 0}

    def write(file: Any) -> None:
        if suffix == ".parquet":
            # the RangeIndex is kept: without an index, column names would become text
            as_parquet(table, forms).to_parquet(file)
            return
        as_written(table, forms).to_csv(
            file,
            sep=(suffix.startswith(".csv") and forms.sep) or SEPARATORS[suffix],
            decimal=forms.decimal,
            index=False,
            compression=gzip_options if suffix.endswith(".gz") else None,
        )

    if path == STANDARD_OUTPUT:
        _print_rows(write)
    else:
        write_whole(path, write)


def _print_rows(write: Callable[[Any], None]) -> None:
    """Write rows to standard output, whose reader, such as `head`, may end before the last row."""
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def hint_at_formulas(table: pd.DataFrame, forms: FileFormat, out: Path) -> None:
    """Name the columns whose names or text a spreadsheet would run as formulas."""
    if forms.guarded or ending(out) == ".parquet":
        return
    formulas = []
    for name, column in table.items():
        texts = column.dropna() if not types.is_numeric_dtype(column.dtype) else ()
        if any(isinstance(text, str) and _CALL.match(text) for text in (name, *texts)):
            formulas.append(str(name))
    if formulas:
        hint(
            f"a spreadsheet that opens {out} would run text of {list_names(formulas)} as formulas; "
            "use --guard-formulas to write a ' before it"
        )


# ---- Model files, which also store the format of their table -------------------------------------

Targets = str | list[str] | None
_FORMS, _TARGET = "forms", "target"  # keys in the header of a model file


@contextmanager
def known_model(
    path: Path, names: Collection[str], lack: str, maker: str
) -> Iterator[dict[str, Any]]:
    """Read the header of a model file of one of the classes ``names``; errors become UserErrors.

    ``lack`` says what models of other classes cannot do, ``maker`` is the command that writes files
    of these classes.
    """
    try:
        header, _ = read_model(path, arrays=False)
        if header["class"] not in names:
            raise UserError(f"the model in {path} {lack}; give a file that `{maker}` wrote")
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error


def save_with_format(model: Any, path: Path, forms: FileFormat, target: Targets = None) -> None:
    """Write a model file that also stores the table's format, and the targets of an estimator."""
    from combutab._model_files import file_content

    header, arrays = file_content(model)
    target_entry = {} if target is None else {_TARGET: target}
    write_model(path, {**header, _FORMS: asdict(forms), **target_entry}, arrays)


def read_format(path: Path) -> FileFormat | None:
    """Read the format of a model's table from the model file, or return None."""
    with refusals(OSError, ValueError):
        header, _ = read_model(path, arrays=False)
        return FileFormat.from_json(header[_FORMS]) if _FORMS in header else None


def load_with_format(
    path: Path, device: str, names: Collection[str], lack: str, maker: str
) -> tuple[Any, FileFormat, Targets]:
    """Read a model file, with the format of its table and the targets if it stores them."""
    from combutab._model_files import load

    with known_model(path, names, lack, maker) as header:
        model = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        targets: list[Any] = target if isinstance(target, list) else [target]
        if not (target is None or all(isinstance(name, str) for name in targets)):
            raise TypeError(f"the target is {target!r:.50}")
    return model, forms, target


def check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    from combutab.core.device import resolve_device

    with refusals():
        resolve_device(device)
