"""Predictions as the columns of a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from combutab.preprocessing import ParquetTable, parquet_parts

PREDICT_ROWS = 1 << 16
_NAMES = {"predict": "prediction", "predict_proba": "probability"}


def write_predictions(
    estimator: Any,
    table: ParquetTable,
    features: list[str],
    method: str,
    out: str | os.PathLike[str],
    keep: str | Sequence[str],
) -> None:
    """Write what a method predicts for each row, behind columns of the table that are kept."""
    kept = _kept(table, keep)
    table.refuse_place(out)
    predict = getattr(estimator, method)
    others = [name for name in kept if name not in features]
    with parquet_parts(out) as parts:
        for _, part in table.arrow_batches([*features, *others], PREDICT_ROWS):
            predicted = predict(table.to_frame(part.select(features)))
            rows = part.select(kept)
            for name, values in _columns(estimator, method, predicted).items():
                if name in kept:
                    raise ValueError(
                        f"the table has a column {name!r}, as the predictions are to be called; "
                        "leave it out of keep"
                    )
                rows = rows.append_column(name, table.to_arrow(values))
            parts.write(rows)


def _kept(table: ParquetTable, keep: str | Sequence[str]) -> list[str]:
    if isinstance(keep, str) and keep != "all":
        raise ValueError(f"keep must be 'all' or a list of columns, such as [{keep!r}]")
    kept = table.columns if isinstance(keep, str) else list(keep)
    if len(set(kept)) < len(kept):
        raise ValueError(f"columns are named more than once: keep={kept}")
    table.check_names(kept)
    return kept


def _columns(estimator: Any, method: str, predicted: Any) -> dict[str, np.ndarray]:
    """What a method returns, (n,) or (n, k), by the names of columns."""
    stem = _NAMES.get(method, method)
    if not isinstance(predicted, np.ndarray) or predicted.ndim not in (1, 2):
        what = f"{getattr(predicted, 'shape', type(predicted).__name__)}"
        raise ValueError(
            f"{method} gives {what}, and not an array of one or two dimensions, which a file's "
            "columns can hold; call it part by part"
        )
    if predicted.ndim == 1:
        return {stem: predicted}
    ends: list[Any] = list(range(predicted.shape[1]))
    classes = list(getattr(estimator, "classes_", ()))
    if method != "predict" and len(classes) == len(ends):
        ends = classes
    return {f"{stem}_{end}": predicted[:, j] for j, end in enumerate(ends)}
