"""One form for a data set's columns, whether they come from a CSV, an ARFF or a Parquet file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from combutab.datasets._files import TableError
from combutab.datasets.openml._registry import Entry

_EXACT = 2.0**53  # float64 holds every whole number up to here


def as_nominal(column: pd.Series) -> pd.Series:
    """Give the column as an unordered category of text, its categories those met, sorted.

    Some formats hold the value 3 of a nominal column as text, some as a number: it is "3" here.

    >>> as_nominal(pd.Series([3.0, None, 1.0])).cat.categories.tolist()
    ['1', '3']
    """
    codes, uniques = pd.factorize(column)
    texts = [_as_text(value) for value in uniques]
    categories = sorted(set(texts))
    position = {text: i for i, text in enumerate(categories)}
    recoded = np.array([*(position[text] for text in texts), -1], dtype=np.intp)[codes]
    values = pd.Categorical.from_codes(recoded, categories=pd.Index(categories, dtype=str))
    return pd.Series(values, index=column.index, name=column.name)


def _as_text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def as_numeric(column: pd.Series, *, whole: bool = True) -> pd.Series:
    """Give the column as int64 if all its values are whole numbers, else (or not whole) float64.

    Raises TableError if a value is no number.
    """
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError) as error:
        raise TableError(f"column {column.name!r} is numeric, but {error}") from error
    is_whole = whole and bool(
        np.isfinite(values).all()
        and (values == np.rint(values)).all()
        and (np.abs(values) <= _EXACT).all()
    )
    array = values.astype(np.int64) if is_whole else values
    return pd.Series(array, index=column.index, name=column.name)


def split(
    table: pd.DataFrame, target: str, nominal: Iterable[str], text: Iterable[str] = ()
) -> tuple[pd.DataFrame, pd.Series, str]:
    """Split a raw table into X, y and the task, with one dtype for each kind of column.

    A column is nominal, text (left as it is) or numeric; a numeric target is float64.
    """
    nominal, text = set(nominal), set(text)
    task = "classification" if target in nominal | text else "regression"
    if task == "classification":
        y = as_nominal(table[target])
    else:
        y = as_numeric(table[target], whole=False)
    columns = {}
    for name in table.columns.drop(target):
        if name in nominal:
            columns[name] = as_nominal(table[name])
        else:
            columns[name] = table[name] if name in text else as_numeric(table[name])
    return pd.DataFrame(columns, index=table.index), y, task


def check_registered(table: pd.DataFrame, entry: Entry, where: str, way_out: str) -> pd.DataFrame:
    """Check the rows and columns of a registered set, and give the columns in their known order.

    Columns are told apart by their letters and digits alone, since the sources write
    ``fixed.acidity`` and ``fixed_acidity``.
    """
    wanted = (*entry.columns, entry.target)
    found = {_plain(name): name for name in table.columns}
    missing = [name for name in wanted if _plain(name) not in found]
    unknown = [str(name) for name in table.columns if _plain(name) not in map(_plain, wanted)]
    flaws = [
        f"{what} {', '.join(map(repr, names))}"
        for what, names in (("lacks the columns", missing), ("has besides", unknown))
        if names
    ]
    if len(table) != entry.n_rows:
        flaws.append(f"has {len(table)} rows")
    if flaws:
        raise TableError(
            f"{where} is not {entry.name} ({entry.n_rows} rows, {len(wanted)} columns): "
            f"it {' and '.join(flaws)}; {way_out}"
        )
    names = {found[_plain(name)]: name for name in wanted}
    return table[list(names)].rename(columns=names)


def _plain(name: object) -> str:
    return re.sub(r"[\W_]+", "", str(name)).casefold()


def content_checksum(X: pd.DataFrame, y: pd.Series) -> str:
    """SHA-256 of what a table says: names, kinds and values, whatever file they came in."""
    digest = hashlib.sha256()
    for name, column in [*X.items(), (y.name, y)]:
        nominal = isinstance(column.dtype, pd.CategoricalDtype)
        digest.update(json.dumps([str(name), "nominal" if nominal else "numeric"]).encode())
        if nominal:
            texts = column.astype(object).where(column.notna(), None).tolist()
            digest.update(json.dumps(texts).encode())
        else:
            values = column.to_numpy(dtype="<f8", copy=True) + 0.0  # -0.0 becomes 0.0
            values[np.isnan(values)] = np.nan  # one of the many NaNs
            digest.update(values.tobytes())
    return digest.hexdigest()
