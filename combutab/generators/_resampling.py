"""Classes brought to equal numbers of rows by synthetic ones, in imbalanced-learn's way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets

from combutab.preprocessing import (
    ModeEncoder,
    Table,
    append_cells,
    as_pandas,
    is_polars,
    plain_labels,
    polars_cells,
)


class Resampling:
    """A generator that makes rows of the rarer classes."""

    min_frequency: float
    fit: Callable[..., Any]
    sample: Callable[..., Any]
    _existing_rows: Sequence[pd.DataFrame] = ()  # of the result, while it resamples

    def fit_resample(
        self, X: Any, y: Any, *, sampling_strategy: Any = "auto", discrete_columns: Any = "auto"
    ) -> tuple[Any, Any]:
        """Fit the generator on a table and its classes, and oversample the rarer classes.

        ``y`` is fitted as an additional last column, which ``sample`` then returns, too.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        y : Series or array of shape (n_rows,)
            Class labels.
        sampling_strategy : "auto" or dict, default="auto"
            Number of rows per class in the result: "auto" is that of the most frequent class for
            all classes. A dict has the numbers of rows of the classes to oversample.
        discrete_columns : "auto" or list, default="auto"
            Discrete columns of X, as in ``fit``.

        Returns
        -------
        X_resampled, y_resampled
            The rows of X and y, then the synthetic rows of each class, with the same types (also
            pandas or polars) and column names. DataFrames have a new index.

        Raises
        ------
        ValueError
            If y does not hold classes, if a class has more rows than in ``sampling_strategy``, or
            if a class to oversample has fewer rows than ``min_frequency``.
        ShortfallError
            As in ``sample``.

        References
        ----------
        Lemaitre, Nogueira and Aridas (2017), "Imbalanced-learn: a Python toolbox to tackle the
        curse of imbalanced datasets in machine learning".

        Examples
        --------
        >>> from combutab import TVAE
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> y = np.repeat(["often", "rare"], [80, 20])
        >>> X_new, y_new = TVAE(epochs=1, random_state=0).fit_resample(X, y)
        >>> X_new.shape, np.unique(y_new, return_counts=True)[1].tolist()
        ((160, 2), [80, 80])
        """
        data = Table(X)
        is_frame = data.names is not None
        # in a frame, numbers that are objects would be discrete
        table = data.data.reset_index(drop=True) if is_frame else data.frame().infer_objects()
        labels = _as_labels(y, data.n_rows)
        name = _free_name(table, labels) if is_frame else table.shape[1]
        codes, classes = pd.factorize(labels.astype(object), sort=True)
        lacking = _lacking(classes, np.bincount(codes), sampling_strategy)
        categories = pd.Index(classes, dtype=object).infer_objects()
        target = pd.Series(pd.Categorical.from_codes(codes, categories), name=name)
        self._refuse_rare(target, [classes[code] for code in lacking])
        if not isinstance(discrete_columns, str):
            n = table.shape[1]
            listed = [column if is_frame else column % n for column in discrete_columns]
            discrete_columns = [*listed, name]
        self.fit(pd.concat([table, target], axis=1), discrete_columns=discrete_columns)
        parts = self._existing_rows = [pd.concat([table, target], axis=1)]
        try:
            for code, n in lacking.items():
                parts.append(self.sample(n, conditions={name: classes[code]}))
        finally:
            del self._existing_rows
        new_parts = [part.drop(columns=name) for part in parts[1:]]
        new = pd.concat(new_parts, ignore_index=True) if new_parts else table[:0]
        first = [int((codes == code).argmax()) for code in lacking]
        again = np.repeat(np.array(first, dtype=np.intp), list(lacking.values()))
        longer = _lengthen_polars(X, new) if is_polars(X) else _lengthen_table(data, table, new)
        return longer, _lengthen_labels(y, labels, again)

    def _refuse_rare(self, target: pd.Series, classes: list[Any]) -> None:
        """Refuse classes that the generator would not learn, before it is fitted."""
        encoder = ModeEncoder(min_frequency=self.min_frequency).fit(target.to_frame())
        for label in classes:
            if label not in encoder.categories_[target.name]:
                raise ValueError(
                    f"class {label!r} has {(target == label).sum()} rows, too few to be learned "
                    f"with min_frequency={self.min_frequency}; lower it, or leave the class out "
                    "of sampling_strategy={class: rows, ...}"
                )


def _as_labels(y: Any, n_rows: int) -> pd.Series:
    labels = as_pandas(y, "y")
    if not isinstance(labels, pd.Series):
        labels = np.asarray(labels)
        if labels.ndim != 1:
            raise ValueError(
                f"y must have the shape (n_rows,), got {labels.shape}; pass one column of classes"
            )
        labels = pd.Series(labels)
    if len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows and y {len(labels)}; the numbers must be equal")
    if labels.isna().any():
        raise ValueError(f"y is missing in {labels.isna().sum()} rows; leave these out")
    check_classification_targets(plain_labels(labels.to_numpy()))
    return labels.reset_index(drop=True)


def _free_name(table: pd.DataFrame, labels: pd.Series) -> Any:
    """The name of the classes, or another one that no column has."""
    name = "target" if labels.name is None else labels.name
    while name in table.columns:
        name = f"{name}_"
    return name


def _lacking(classes: Any, counts: np.ndarray, sampling_strategy: Any) -> dict[int, int]:
    """How many rows to add to which classes, by their codes."""
    had = dict(zip(classes, counts.tolist(), strict=True))
    if isinstance(sampling_strategy, str) and sampling_strategy == "auto":
        sampling_strategy = dict.fromkeys(had, max(had.values()))
    elif not isinstance(sampling_strategy, Mapping):
        raise ValueError(
            "sampling_strategy must be 'auto' or a dict such as {class: rows}, got "
            f"{sampling_strategy!r}"
        )
    for label, n in sampling_strategy.items():
        if label not in had:
            raise ValueError(
                f"sampling_strategy has the class {label!r}, which is not in y; y has "
                f"{', '.join(map(repr, classes[:10]))}"
            )
        if not isinstance(n, Integral) or n < had[label]:
            raise ValueError(
                f"sampling_strategy has {n!r} rows for class {label!r}, which has {had[label]} "
                f"rows already; rows are only added, so give at least {had[label]}"
            )
    code = {label: i for i, label in enumerate(classes)}
    return {code[c]: int(n - had[c]) for c, n in sampling_strategy.items() if n > had[c]}


def _lengthen_table(X: Table, table: pd.DataFrame, new: pd.DataFrame) -> Any:
    """The rows that were given and new ones, in the type of the former."""
    if X.names is not None:
        columns = [append_cells(table.iloc[:, j], new.iloc[:, j]) for j in range(table.shape[1])]
        return pd.DataFrame(dict(enumerate(columns))).set_axis(table.columns, axis=1)
    array = X.data
    if array.dtype.kind == "U":  # longer ones may be made
        return np.concatenate([array, new.to_numpy(dtype=str)])
    return np.concatenate([array, new.to_numpy(dtype=object).astype(array.dtype)])


def _lengthen_polars(X: Any, new: pd.DataFrame) -> Any:
    import polars as pl

    cells = [polars_cells(new.iloc[:, j], column.dtype) for j, column in enumerate(X)]
    return pl.concat([X, pl.DataFrame(cells)], how="vertical_relaxed")


def _lengthen_labels(y: Any, labels: pd.Series, again: np.ndarray) -> Any:
    """The classes, and once more those of some rows, in their type."""
    every = np.concatenate([np.arange(len(labels)), again])
    if is_polars(y, "y"):
        return y.gather(every)
    if hasattr(as_pandas(y, "y"), "iloc"):
        return labels.take(every).reset_index(drop=True)
    return np.asarray(y)[every]
