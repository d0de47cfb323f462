"""Read and write the files of the commands: tables in their formats, and models."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.cli._console import UserError, hint, refusals, with_options
from combutab.cli._options import (
    STANDARD_OUTPUT,
    GeneratorOptions,
    ending,
    find_columns,
    find_targets,
    is_text_file,
    writing,
)
from combutab.core.files import read_model, whole_file, write_model
from combutab.core.text import MAX_NAMES, list_names, no_column
from combutab.core.textfile import Reading
from combutab.datasets.formats import (
    HEADER_KEY,
    FileFormat,
    formula_columns,
    read_with_format,
    write_with_format,
)
from combutab.preprocessing import OddColumn, TargetError, infer_task, odd_columns, read_numbers


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
    dropped = find_columns("--drop", texts, table.columns)
    targets = [] if target is None else find_targets(target, table.columns)
    for name in targets:
        if name in dropped:
            raise UserError(
                f"--drop leaves out {str(name)!r}, which is the column to predict; remove it from "
                "--drop"
            )
    if len(dropped) == table.shape[1]:
        raise UserError("--drop leaves out all columns; keep at least one")
    table = table.drop(columns=dropped)
    missing = table[targets].isna().any(axis=1)
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
    options: GeneratorOptions, like: FileFormat | None = None
) -> tuple[pd.DataFrame, FileFormat, list[Any]]:
    """Read the training table of a generator, its format, and the columns that --discrete names."""
    table, forms = read_file(options.data, options.reading, like)
    table = leave_out(table, options.drop)
    forms.guarded = options.guard_formulas
    return table, forms, find_columns("--discrete", options.discrete, table.columns)


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
        names, reason = [str(odd.column) for odd in group], group[0].why
        if example := group[0].example:
            reason += f" ({example})" if len(names) == 1 else f" ({names[0]!r}: {example})"
        verb = "is" if len(names) == 1 else "are"
        remedy = _odd_remedy(kind, names, reading, mark)
        hint(f"{list_names(names)} {verb} treated as {treatment}, {reason}; {remedy}")


def _odd_remedy(kind: str, names: list[str], reading: Reading, mark: str) -> str:
    with_mark = {
        "thousands": f"use --thousands {shlex.quote(mark)} to read them as numbers",
        "missing mark": f"if so, use {mark}",
        "few texts": f"use {mark} if it stands for missing values",
    }
    remedy = with_mark[kind] if mark else _decimal_remedy(kind, reading) or _REMEDIES.get(kind)
    drop = "leave them out with --drop"
    if len(names) <= MAX_NAMES and not any("," in name for name in names[1:]):
        drop = f"leave {'it' if len(names) == 1 else 'them'} out with --drop "
        drop += shlex.quote(",".join(names))
    if kind == "header" or not remedy:
        return remedy or drop
    return f"{remedy}, or {drop}"


def _decimal_remedy(kind: str, reading: Reading) -> str:
    """Say which other decimal mark may read text as numbers."""
    mark = {"decimal comma": ",", "text": ".", "text numbers": "."}.get(kind, "")
    is_other = mark and (mark == ",") == (reading.decimal != ",")
    return f"use --decimal {mark} to read them as numbers" if is_other else ""


def _mark_of(odd_column: OddColumn, column: pd.Series) -> str:
    """Find the value of the option that would read a column correctly, or return ""."""
    marks = odd_column.marks(column)
    if odd_column.kind == "thousands":
        return "space" if marks[:1] == [" "] else "".join(marks[:1])
    return " ".join(f"--missing {shlex.quote(mark)}" for mark in marks)


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
        remedy = _decimal_remedy(error.fault, reading) if is_text_file(data) else ""
        if error.fault == "text" and not classify:
            remedy = "use --task regression to treat them as numbers"
        remedy = remedy or _TARGET_REMEDIES[error.fault]
        ways = f"{remedy}, or use {classify or '--task classification'} if they are classes"
        raise UserError(f"the target {str(y.name)!r} {error.problem}; {ways}") from error
    return task


# ---- The format of a table: dates, booleans, numbers ---------------------------------------------


def column_of_split(X: pd.DataFrame, split: str) -> tuple[str, Any]:
    """Return how ``--split`` splits rows, "time" or "group", and the name of the column.

    Raises UserError if there is no such column, or it does not order or group the rows.
    """
    method, _, column = split.partition(":")
    if column not in X:
        raise UserError(f"--split {split}: {no_column(column, X.columns)}")
    cells, problem = X[column], ""
    is_ordered = types.is_datetime64_any_dtype(cells.dtype) or types.is_numeric_dtype(cells.dtype)
    if n_missing := int(cells.isna().sum()):
        problem = f"{column!r} has {n_missing} missing value(s); remove those rows, or fill them in"
    elif method == "time" and not is_ordered:
        problem = f"{column!r} holds {str(cells.iloc[0])!r:.40}; time:COLUMN needs a column of "
        problem += "numbers, or of dates in one format"
    elif cells.nunique() < 2:
        problem = f"all rows have the same value of {column!r}; choose another column"
    elif method == "group" and X.shape[1] == 1:
        problem = "no feature column is left; add columns to the table"
    if problem:
        raise UserError(f"--split {split}: {problem}")
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


def write_table(table: pd.DataFrame, forms: FileFormat, path: Path) -> None:
    """Write a table to a complete file or none, or to standard output."""
    suffix = ending(path)
    if path != STANDARD_OUTPUT:
        with writing(path), whole_file(path) as temporary_path:
            write_with_format(table, forms, temporary_path, suffix)
        return
    try:
        write_with_format(table, forms, sys.stdout, suffix)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has ended before the last row
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def hint_at_formulas(table: pd.DataFrame, forms: FileFormat, out: Path) -> None:
    """Name the columns whose names or text a spreadsheet would run as formulas."""
    if forms.guarded or ending(out) == ".parquet":
        return
    if formulas := formula_columns(table):
        hint(
            f"a spreadsheet that opens {out} would run text of {list_names(formulas)} as formulas; "
            "use --guard-formulas to write a ' before it"
        )


# ---- Model files, which also store the format of their table -------------------------------------

Targets = str | list[str] | None
TARGET = "target"  # key in the header of a model file


def save_with_format(model: Any, path: Path, forms: FileFormat, target: Targets = None) -> None:
    """Write a model file that also stores the table's format, and the targets of an estimator."""
    from combutab._model_files import file_content

    header, arrays = file_content(model)
    header |= {HEADER_KEY: asdict(forms)} | ({} if target is None else {TARGET: target})
    write_model(path, header, arrays)


def read_format(path: Path) -> FileFormat | None:
    """Read the format of a model's table from the model file, or return None."""
    with refusals(OSError, ValueError):
        header, _ = read_model(path, arrays=False)
        return FileFormat.from_header(header)


def load_with_format(
    path: Path, device: str, names: Collection[str], lack: str, maker: str
) -> tuple[Any, FileFormat, dict[str, Any]]:
    """Load a model of one of the classes ``names``, with the format of its table and the header.

    Raises UserError, in which ``lack`` says what models of other classes cannot do, and ``maker``
    is the command that writes files of these classes.
    """
    from combutab._model_files import load

    try:
        header, _ = read_model(path, arrays=False)
        if header["class"] not in names:
            raise UserError(f"the model in {path} {lack}; give a file that `{maker}` wrote")
        model = load(path, device=device)
        forms = FileFormat.from_header(header) or FileFormat()
        target = header.get(TARGET)
        targets: list[Any] = target if isinstance(target, list) else [target]
        if not (target is None or all(isinstance(name, str) for name in targets)):
            raise TypeError(f"the target is {target!r:.50}")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    return model, forms, header


def find_device(device: str) -> Any:
    """Find the device of torch that ``--device`` names, or raise UserError."""
    from combutab.core.device import resolve_device

    with refusals():
        return resolve_device(device)
