"""What a target holds: classes, numbers, or cells that are neither."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.preprocessing._columns import ColumnKind, column_kind
from combutab.preprocessing._odd_columns import dates_in, is_mark, is_text, number_form, quoted
from combutab.preprocessing._tables import as_pandas

_MAX_CLASSES = 20
_MAX_SHARE = 0.05
_MIN_NUMERIC = 0.9  # of the rows are numbers
_MIN_MIXED = 0.5  # of them are, of many different values
_MIN_LABEL_SHARE = 0.01  # of the rows: a text among numbers that is no class
_N_SHOWN = 3  # values that an error names
_MAX = int(np.finfo(np.float64).max)

_MEASURED = re.compile(r"[-+(]{0,2}\d[\d.,]*\s?\D{0,8}")  # such as 12.5 kg, or (12)

Task = Literal["classification", "regression"]
TargetFault = Literal["cells", "decimal comma", "form", "text", "names", "dates", "empty"]

_TARGET_REMEDIES: dict[TargetFault, str] = {
    "cells": "correct these values or remove their rows",
    "decimal comma": "convert them to numbers (read_table has decimal=',')",
    "form": "convert them to plain numbers",
    "text": "convert them to numbers (pandas.to_numeric)",
    "names": "take another target",
    "dates": "convert them to numbers, for example days, first",
}
_FORM_NAMES = {
    "comma": "numbers with a decimal comma",
    "gap": "numbers with separators between thousands",
    "sign": "numbers with a sign of currency or percent",
}


class TargetError(ValueError):
    """A target whose values are neither numbers nor class labels.

    ``problem`` says what they are, in words that follow the target's name; ``fault`` is its kind.
    """

    def __init__(self, problem: str, fault: TargetFault, name: str = "y") -> None:
        self.problem, self.fault = problem, fault
        super().__init__(problem, fault, name)

    def __str__(self) -> str:
        problem, fault, name = self.args
        remedy = _TARGET_REMEDIES.get(fault)
        ways = f"; {remedy}, or give task='classification' if they are classes" if remedy else ""
        return f"{name} {problem}{ways}"


def infer_task(y: Any, *, name: str = "y") -> Task:
    """Guess from a target's values whether to classify or to regress.

    Text, truth values, pandas categories and other objects are classes, except text that is no
    class label: text that is nearly all numbers or dates ("1,5", "$1,020", or 400 numbers and one
    "n.a!"), and more than 20 texts that are on average in fewer than two rows each. Few numbers
    that were turned into text are classes. Numbers with a fraction are quantities. Whole numbers
    are classes if there are exactly two distinct ones, if all are
    0 or all are 1 (as a label of a multi-label target may be), or if they look like codes of
    classes:

    - at most 20 distinct values, and at most one for every 20 rows;
    - the smallest is -1, 0 or 1, where codes start;
    - the numbers between the smallest and the largest are mostly used (at least half of them).

    Otherwise they are quantities. The last two rules part class codes from scores and counts:
    the wine quality data has the scores 3 to 9 and counts as regression, as in most papers, and so
    do the cylinders of cars (3, 4, 5, 6, 8). No rule gets all right: ratings from 1 to 5 look like
    codes and are called classes; classes coded 10, 20, 30 look like quantities. Say which one is
    meant where it matters, or turn the target into text to have it classified.

    Missing values are ignored. Of several target columns, one regression makes all regression.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, n_outputs)
    name : str, default="y"
        What errors call the target.

    Returns
    -------
    "classification" or "regression"

    Raises
    ------
    TargetError
        A ValueError: y has no values, holds dates, or text that is no class label.

    Examples
    --------
    >>> infer_task(["yes", "no", "yes"])
    'classification'
    >>> infer_task([0, 1, 1, 0])
    'classification'
    >>> infer_task([21.5, 18.0, 30.2])
    'regression'
    """
    y = as_pandas(y, "y")
    if isinstance(y, pd.DataFrame):
        columns = [y.iloc[:, j] for j in range(y.shape[1])]
    elif isinstance(y, pd.Series | pd.Index):
        columns = [pd.Series(y)]
    else:
        array = np.asarray(y)
        if array.ndim not in (1, 2):
            raise ValueError(f"y must have one or two dimensions, got shape {array.shape}")
        columns = [pd.Series(column) for column in np.atleast_2d(array.T)]
    tasks = {_column_task(column, name) for column in columns}
    return "regression" if "regression" in tasks else "classification"


def read_numbers(y: pd.Series, *, name: str = "y", first_row: int = 0) -> pd.Series:
    """Take a target for numbers, also those that are text.

    Parameters
    ----------
    y : Series of shape (n,)
    name : str, default="y"
        What errors call the target.
    first_row : int, default=0
        The row of the table that ``y`` starts at, for errors.

    Raises
    ------
    TargetError
        Naming the cells that are no numbers.
    """
    if pd.api.types.is_numeric_dtype(y.dtype) and y.dtype.kind != "c":
        return y
    objects = y.astype(object)
    beyond = objects.map(lambda v: isinstance(v, complex) or (isinstance(v, int) and abs(v) > _MAX))
    parsed: pd.Series = pd.to_numeric(objects.mask(beyond.astype(bool)), errors="coerce")
    if (parsed.notna() | y.isna()).all():
        return parsed
    texts = objects.astype(str).str.strip()
    counts = texts[y.notna()].value_counts(sort=False)
    rows = {str(value): int(count) for value, count in counts.items()}
    raise TargetError(*_problem(texts.where(y.notna()), rows, first_row), name)


def _column_task(column: pd.Series, name: str) -> Task:
    present = column.dropna()
    if len(present) == 0:
        raise TargetError("has no values to infer a task from; give the task", "empty", name)
    kind = column_kind(present)
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise TargetError("holds dates or times", "dates", name)
    if kind != ColumnKind.NUMBER:
        if is_text(present):
            _check_labels(column, name)
        return "classification"
    return _task_of_numbers(*np.unique(present.to_numpy(dtype=np.float64), return_counts=True))


def _task_of_numbers(values: np.ndarray, counts: np.ndarray) -> Task:
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return "regression"
    if len(values) == 2 or values.tolist() in ([0], [1]):
        return "classification"
    few = len(values) <= min(_MAX_CLASSES, _MAX_SHARE * counts.sum())
    code_like = values[0] in (-1, 0, 1) and values[-1] - values[0] < 2 * len(values)
    return "classification" if few and code_like else "regression"


# ---- text --------------------------------------------------------------------------------------


def _check_labels(column: pd.Series, name: str) -> None:
    """Raise a TargetError if text is no class label."""
    texts = column.astype(str).str.strip().where(column.notna())
    rows = {str(value): int(count) for value, count in texts.value_counts(sort=False).items()}
    n = sum(rows.values())
    numbers = {value: count for value, count in rows.items() if number_form(value)}
    share = sum(numbers.values()) / n
    if share >= _MIN_NUMERIC or (share >= _MIN_MIXED and len(numbers) > _MAX_CLASSES):
        if not _are_codes(rows, numbers, n):
            raise TargetError(*_problem(texts, rows), name)
    elif dates_in(rows, n):
        example = next(iter(rows))
        raise TargetError(f"holds dates as text, such as {quoted(example)}", "dates", name)
    elif len(rows) > _MAX_CLASSES:
        measured = {value: count for value, count in rows.items() if _MEASURED.fullmatch(value)}
        if sum(measured.values()) >= _MIN_NUMERIC * n:
            example = quoted(next(iter(measured)))
            problem = f"has numbers with a unit or other text, such as {example}"
            raise TargetError(problem, "form", name)
        if len(rows) > n / 2:
            raise TargetError(*_different_texts(rows, n), name)


def _are_codes(rows: Mapping[str, int], numbers: Mapping[str, int], n: int) -> bool:
    """Tell whether texts that are nearly all numbers may be class labels: few, and repeated."""
    if len(rows) > max(2, min(_MAX_CLASSES, n / 2)):
        return False
    forms = {number_form(value) for value in numbers}
    rest = {value: count for value, count in rows.items() if value not in numbers}
    if "comma" in forms or len(forms) > 1:
        return False
    if not rest:
        return True
    if forms != {"plain"} or any(
        is_mark(v) or c < max(2, _MIN_LABEL_SHARE * n) for v, c in rest.items()
    ):
        return False
    values = np.array([float(value) for value in numbers])
    order = values.argsort()
    return _task_of_numbers(values[order], np.array([*numbers.values()])[order]) != "regression"


def _different_texts(rows: Mapping[str, int], n: int) -> tuple[str, TargetFault]:
    some = ", ".join(quoted(value) for value in list(rows)[:_N_SHOWN])
    return f"has {len(rows):,} different texts in {n:,} rows ({some}, ...)", "names"


def _problem(
    texts: pd.Series, rows: Mapping[str, int], first_row: int = 0
) -> tuple[str, TargetFault]:
    """Say what keeps texts from being numbers: a form that most of them have, or some cells."""
    n = sum(rows.values())
    counts = dict.fromkeys(("plain", "comma", "gap", "sign", ""), 0)
    forms = {value: number_form(value) for value in rows}
    for value, form in forms.items():
        counts[form] += rows[value]
    with_points = any("." in value and form in ("plain", "gap") for value, form in forms.items())
    if counts["comma"] and not with_points:  # 2 and 1,020 have a form that 1,5 tells of
        forms = {v: "comma" if form in ("plain", "gap") else form for v, form in forms.items()}
        counts |= {"comma": sum(counts[form] for form in ("plain", "comma", "gap"))}
        counts |= {"plain": 0, "gap": 0}
    most = max(counts, key=counts.__getitem__)
    if not most:
        return (
            _different_texts(rows, n)
            if len(rows) > _MAX_CLASSES
            else (
                f"has text that is not numbers: {_named_cells(texts, list(rows), first_row)}",
                "cells",
            )
        )
    others = [value for value, form in forms.items() if form != most]
    also = f", and {_named_cells(texts, others, first_row)}" if others else ""
    if most != "plain":
        example = next(v for v, form in forms.items() if form == most and number_form(v) == most)
        alike = [value for value, form in forms.items() if form == "comma"]
        readable = all(re.fullmatch(r"[+-]?\d*(,\d+)?", value) for value in alike)
        fault: TargetFault = "decimal comma" if most == "comma" and readable else "form"
        what = f"{counts[most]:,} {_FORM_NAMES[most]}"
        return f"has {what}, such as {quoted(example)}{also}", fault
    if others:
        return f"has {counts['plain']:,} numbers{also}", "cells"
    zeros = [value for value in rows if value.lstrip("+-").startswith("0") and len(value) > 1]
    return f"has numbers as text, such as {quoted((zeros or list(rows))[0])}", "text"


def _named_cells(texts: pd.Series, values: list[str], first_row: int) -> str:
    """Name values, each with the number of its rows and the first of them."""
    said = []
    for value in values[:_N_SHOWN]:
        same = (texts == value).to_numpy(bool, na_value=False)
        first, count = first_row + int(same.argmax()) + 1, int(same.sum())
        where = f"data row {first:,}" if count == 1 else f"{count:,} rows, first data row {first:,}"
        said.append(f"{quoted(value) if value else 'a blank'} ({where})")
    more = len(values) - _N_SHOWN
    return ", ".join(said) + (f" and {more:,} more value{'s' * (more > 1)}" if more > 0 else "")
