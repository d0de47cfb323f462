"""Data sets of OpenML by name or id, from its server, its client's cache or a local copy."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import pandas as pd

from ._feynman import DATA_HOME_VARIABLE
from ._openml_local import local_file, read_local
from ._openml_registry import REGISTRY, Entry
from ._openml_table import check_registered, content_checksum, split


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table to learn from, as `load_openml` gives it.

    Attributes
    ----------
    X : DataFrame of shape (n_samples, n_features)
        Nominal columns are categories of text, numeric ones int64 if all values are whole numbers
        and float64 otherwise, with missing values left missing.
    y : Series of length n_samples
        A category of text for classification, float64 for regression.
    task : str
        ``"classification"`` or ``"regression"``.
    categorical : tuple of str
        Names of the nominal columns of ``X``.
    name : str
    openml_id : int or None
        None if only a local file with this name is known.
    source : str
        ``"OpenML"`` (fetched now or earlier) or ``"local file"``.
    """

    X: pd.DataFrame = field(repr=False)
    y: pd.Series = field(repr=False)
    task: str
    categorical: tuple[str, ...]
    name: str
    openml_id: int | None
    source: str


def load_openml(
    name_or_id: str | int,
    *,
    version: int | None = None,
    data_home: str | PathLike[str] | None = None,
    offline: bool = False,
) -> Dataset:
    """Load a data set of OpenML."""
    name, openml_id = (None, None)
    if isinstance(name_or_id, str) and not name_or_id.isdigit():
        name = name_or_id
    else:
        openml_id = operator.index(int(name_or_id))
    entry = _registered(name, openml_id, version)
    if entry is not None:
        name, openml_id = entry.name, entry.openml_id
    path = None
    if name is not None and (entry is not None or version is None):
        path = local_file(name, data_home)
    if path is not None:
        return _from_file(path, str(name), entry)
    raise OSError(
        f"fetching {name_or_id!r} from OpenML is not there yet; pass data_home=FOLDER (or set "
        f"{DATA_HOME_VARIABLE}) where FOLDER holds {name}.csv or {name}.csv.gz"
    )


def _registered(name: str | None, openml_id: int | None, version: int | None) -> Entry | None:
    for entry in REGISTRY.values():
        known = name == entry.name or openml_id == entry.openml_id
        if known and version in (None, entry.version):
            return entry
    return None


def _from_file(path: Path, name: str, entry: Entry | None) -> Dataset:
    table, nominal = read_local(path)
    if entry is not None:
        way_out = "replace it, or rename it for a data set of your own"
        return _registered_dataset(table, entry, str(path), way_out, "local file")
    X, y, task = split(table, str(table.columns[-1]), nominal)
    categorical = tuple(column for column in X if column in nominal)
    return Dataset(X, y, task, categorical, name, None, "local file")


def _registered_dataset(
    table: pd.DataFrame, entry: Entry, where: str, way_out: str, source: str
) -> Dataset:
    table = check_registered(table, entry, where, way_out)
    nominal = {*entry.nominal} | ({entry.target} if entry.task == "classification" else set())
    X, y, task = split(table, entry.target, nominal)
    found = content_checksum(X, y)
    if found != entry.checksum:
        warnings.warn(
            f"{where} has other content than the copy of {entry.name} that the studies used: "
            f"checksum {found[:12]}, not {entry.checksum[:12]}; values or the order of rows "
            "differ, so results may too",
            UserWarning,
            stacklevel=4,
        )
    return Dataset(X, y, task, entry.nominal, entry.name, entry.openml_id, source)
