"""The features and targets of new rows, read as when a model was fitted.

A model file holds the names and kinds of its feature columns and, if `combutab fit` wrote it, the
format of its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.dates import read_dates, write_dates
from combutab.core.files import read_model
from combutab.core.state import unpack
from combutab.core.text import join_names, no_column
from combutab.core.textfile import Reading, TableError
from combutab.datasets.formats import FileFormat, read_with_format
from combutab.datasets.tables import TableFile
from combutab.preprocessing import ColumnKind, column_kind, read_numbers

_MAX_MISSING = 20  # number of missing columns that an error names


@dataclass(frozen=True)
class FeatureColumns:
    """The feature columns of a classifier or regressor, and the dates of its table.

    Parameters
    ----------
    names : list of str, or None if the model was fitted on columns without names
    kinds : list of str
        For each column "number", "category", "text", "datetime" or another `ColumnKind`.
    with_text : set of int
        Positions of the columns of free text, and of categories that are text.
    dates : dict
        Formats of the columns of dates in the file of the model's table.
    """

    names: list[str] | None
    kinds: list[str]
    with_text: set[int]
    dates: dict[str, str]

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> FeatureColumns:
        """Read the columns from the header of a model file.

        Raises ValueError if the model has no features, as a generator.
        """
        encoder, forms = header.get("encoder", {}), FileFormat.from_header(header)
        if "feature_names" not in encoder:
            raise ValueError(f"a {header['class']} has no feature columns; give a model of `fit`")
        with_text = {i for i, kind in enumerate(encoder["kinds"]) if kind == ColumnKind.TEXT}
        with_text |= {
            categories.column
            for categories in unpack(encoder["categories"])
            if any(isinstance(key, str) for key in categories.keys)
        }
        dates = {} if forms is None else forms.dates
        return cls(encoder["feature_names"], encoder["kinds"], with_text, dates)

    def select(self, table: pd.DataFrame, file: TableFile) -> pd.DataFrame:
        """Select the columns in the order of the model, and read them as when it was fitted.

        Raises TableError if columns are missing or hold values of another kind.
        """
        names = self.names or list(map(str, range(len(self.kinds))))
        if self.names is None:
            if table.shape[1] != len(names):
                raise TableError(
                    f"{file.path} has {table.shape[1]} columns, but the model was fitted on "
                    f"{len(names)} columns without names; give as many"
                )
            table = table.set_axis(names, axis=1)
        positions = {str(name): i for i, name in enumerate(table.columns)}
        missing = [name for name in names if name not in positions]
        if len(missing) == 1:
            problem = no_column(missing[0], positions)
            raise TableError(f"{file.path}: {problem}; the model was fitted on this column")
        if missing:
            listing = join_names(map(repr, missing), _MAX_MISSING)
            raise TableError(
                f"{file.path} lacks {len(missing)} of the {len(names)} columns that the model was "
                f"fitted on: {listing}"
            )
        columns = {
            name: self._read_column(i, name, table.iloc[:, positions[name]], file, positions[name])
            for i, name in enumerate(names)
        }
        X = pd.DataFrame(columns)
        return X if self.names else X.set_axis(range(len(names)), axis=1)

    def _read_column(
        self, i: int, name: str, column: pd.Series, file: TableFile, position: int
    ) -> pd.Series:
        kind, is_text = self.kinds[i], column_kind(column) == ColumnKind.TEXT
        should_be_text = i in self.with_text and column.notna().any()
        if kind == ColumnKind.DATETIME and name in self.dates and (file.is_text or is_text):
            cells = file.cells([position]).iloc[:, 0] if file.is_text else column
            return self._read_dates(name, column, cells, file.path)
        if file.is_text and should_be_text and not is_text:
            return file.cells([position]).iloc[:, 0]
        if should_be_text and not is_text and (texts := file.workbook_texts(position)) is not None:
            return texts
        problem = ""
        if should_be_text and pd.api.types.is_numeric_dtype(column.dtype):
            problem = "numbers, but held text when the model was fitted; write it as text"
        elif kind == ColumnKind.NUMBER and is_text:
            texts = column.dropna().astype(str)
            invalid = texts[pd.to_numeric(texts, errors="coerce").isna()]
            if len(invalid):
                problem = f"text such as {invalid.iloc[0]!r:.40}, but held numbers when the model "
                problem += "was fitted; correct these cells"
        if problem:
            raise TableError(f"{file.path}: column {name!r} holds {problem}")
        return column

    def _read_dates(self, name: str, column: pd.Series, cells: pd.Series, path: Path) -> pd.Series:
        """Read dates in the format of the model's table, or keep those read in another format."""
        try:
            return read_dates(cells, self.dates[name])
        except ValueError as error:
            if _are_datetimes(column):
                return column
            example = write_dates(pd.Series([pd.Timestamp("2024-12-31")]), self.dates[name])[0]
            raise TableError(
                f"{path}: column {name!r} holds values that are not dates in the format that the "
                f"model was fitted on, such as {example}"
            ) from error


def _are_datetimes(column: pd.Series) -> bool:
    """Tell whether a column has a dtype of dates, or its text is dates in ISO 8601."""
    if column_kind(column) != ColumnKind.TEXT:
        return pd.api.types.is_datetime64_any_dtype(column.dtype)
    moments = pd.to_datetime(column.dropna(), format="ISO8601", errors="coerce", utc=True)
    return bool(moments.notna().all())


def read_targets(
    table: pd.DataFrame, target: Any, file: TableFile, classes: np.ndarray | None = None
) -> np.ndarray:
    """Read the targets that are not missing, as numbers or as classes of a model.

    Raises TableError if no row has a target, or one is not a number or not one of the ``classes``.
    """
    column, where = table[target], f"{file.path}: the target {str(target)!r}"
    has_target = column.notna()
    if not has_target.any():
        raise TableError(f"{where} is empty in all rows")
    if classes is None:
        try:
            return read_numbers(column[has_target]).to_numpy()
        except ValueError as error:
            raise TableError(f"{where}: {error}") from error
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels) and column.dtype != object:
        if file.is_text:  # numbers in this file, but text in the model's table
            column = file.cells([list(table.columns).index(target)]).iloc[:, 0]
        column = column.astype(str)
    values = column[has_target].to_numpy(dtype=object)
    for value in pd.unique(values):
        if value not in labels:
            names = f"{', '.join(map(repr, labels[:8]))}{', ...' if len(labels) > 8 else ''}"
            raise TableError(
                f"{where} has the value {value!r}, which is not a class of the model; its classes "
                f"are {names}"
            )
    return values if classes.dtype == object else values.astype(classes.dtype)


def read_features(path: Path, reading: Reading, model: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read the columns that a saved model was fitted on from a file, and notes for the user.

    The file is read in the format of the model's table, where neither ``reading`` nor its values
    determine the format. Raises TableError if the file or the model file cannot be used.
    """
    try:
        header, _ = read_model(model, arrays=False)
        features, like = FeatureColumns.from_header(header), FileFormat.from_header(header)
    except (OSError, ValueError) as error:
        raise TableError(f"like={str(model)!r}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"like={str(model)!r} is damaged: {error!r}") from error
    table, forms, notes = read_with_format(path, reading, like)
    notes = [note for note in notes if not note.startswith("read ")]  # a format that is known
    return features.select(table, TableFile(path, forms.reading_of(path))), notes
