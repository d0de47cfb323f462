"""Tell from a target whether to classify or to regress."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.preprocessing._frames import as_pandas
from combutab.preprocessing._kinds import ColumnKind, column_kind

_MAX_CLASSES = 20
_MAX_SHARE = 0.05

Task = Literal["classification", "regression"]


def infer_task(y: Any) -> Task:
    """Guess from a target's values whether to classify or to regress.

    Text, truth values, pandas categories and other objects are classes. Numbers with a fraction
    are quantities. Whole numbers are classes if there are exactly two distinct ones, if all are
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

    Returns
    -------
    "classification" or "regression"

    Raises
    ------
    ValueError
        If y has no values, or holds dates.

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
        if array.dtype.kind in "US":
            return "classification"
        if array.ndim not in (1, 2):
            raise ValueError(f"y must have one or two dimensions, got shape {array.shape}")
        columns = [pd.Series(column) for column in np.atleast_2d(array.T)]
    tasks = {_column_task(column) for column in columns}
    return "regression" if "regression" in tasks else "classification"


def _column_task(column: pd.Series) -> Task:
    column = column.dropna()
    if len(column) == 0:
        raise ValueError("y has no values to infer a task from; give the task")
    kind = column_kind(column)
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise ValueError(
            f"y holds dates or times ({column.dtype}); convert it to numbers, for example days, "
            "first"
        )
    if kind != ColumnKind.NUMBER:
        return "classification"
    values, counts = np.unique(column.to_numpy(dtype=np.float64), return_counts=True)
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return "regression"
    if len(values) == 2 or values.tolist() in ([0], [1]):
        return "classification"
    few = len(values) <= min(_MAX_CLASSES, _MAX_SHARE * counts.sum())
    code_like = values[0] in (-1, 0, 1) and values[-1] - values[0] < 2 * len(values)
    return "classification" if few and code_like else "regression"
