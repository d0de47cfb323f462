"""Data sets of OpenML by name or id, from its server, its client's cache or a local copy."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import pandas as pd

from combutab.datasets._files import TableError
from combutab.datasets.openml._client import RawDataset, fetch
from combutab.datasets.openml._local import local_file, own_copy, read_local
from combutab.datasets.openml._registry import REGISTRY, Entry
from combutab.datasets.openml._table import check_registered, content_checksum, split


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table to learn from, as `load_openml` gives it.

    Attributes
    ----------
    X : DataFrame of shape (n_samples, n_features)
        Nominal columns are categories of text; numeric ones are int64 if all their values are
        whole numbers and float64 otherwise; missing values stay missing.
    y : Series of length n_samples
        Categories of text for classification, float64 for regression.
    task : str
        ``"classification"`` or ``"regression"``.
    categorical : tuple of str
        Names of the nominal columns of ``X``.
    name : str
    openml_id : int or None
        None for a local file of a name that is not in `list_openml`.
    source : str
        ``"OpenML"``, fetched now or earlier, or ``"local file"``.
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
    """Load a data set of OpenML, from a local copy, from the cache or from the server.

    The sets of `list_openml` are checked, wherever they come from: other columns or another
    number of rows are an error. Other values, or the same rows in another order, are a warning
    only, since the checksums could not be compared with OpenML itself: they are of the copies
    that the studies of this project used. Column names are compared by their letters and digits.

    Parameters
    ----------
    name_or_id : str or int
        A name or id of `list_openml`, or any other of OpenML, such as ``"credit-g"`` or 31.
    version : int, optional
        Of a name that has several; by default the one in `list_openml`, else the oldest that is
        active. Local files, which have no version, are not looked at when one is given, except
        for the versions in `list_openml`.
    data_home : path, optional
        Folder with ``<name>.csv`` or ``<name>.csv.gz``, or with a folder ``openml`` that has them.
        Default: the environment variable ``COMBUTAB_DATA``. An empty cell is a missing value,
        as is ``NA`` or ``nan`` among numbers.
        The file of a set that is not in `list_openml` (``<id>.csv`` if asked for by id) has its
        target in the last column; columns that hold anything but numbers are nominal, and a
        nominal target makes a classification task.
    offline : bool, default=False
        Whether to look at local files and at the cache only. There a name without a version
        stands for the oldest that the cache has.

    Returns
    -------
    Dataset
        The same, to the value and dtype, from a local file of a set in `list_openml` as from
        OpenML.

    Raises
    ------
    ImportError
        There is no local file, and the package openml (extra ``openml``) is not installed.
    OSError
        The set is not in the cache, and cannot be fetched or kept.
    ValueError
        OpenML has no such set, it has no default target or is sparse, or a copy is not the set.

    Warns
    -----
    UserWarning
        A set of `list_openml` has other content than the copies that the studies used.

    Notes
    -----
    The package openml fetches and keeps data sets by its own settings: ``openml.config`` has its
    cache (``get_cache_directory()``), its tries (``set_retry_policy``) and its progress bar
    (``show_progress``). Its cache is not for processes that fetch the same set at the same time:
    load a set once before many of them do.

    Examples
    --------
    A table of one's own; ``load_openml("diabetes")`` fetches that set once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "mine.csv").write_text("size,colour,price\\n1,red,2.5\\n,blue,3\\n")
    ...     data = load_openml("mine", data_home=folder)
    >>> data.task, data.categorical, data.source
    ('regression', ('colour',), 'local file')
    >>> data.X["size"].tolist(), data.y.tolist()
    ([1.0, nan], [2.5, 3.0])
    """
    name, openml_id = _name_and_id(name_or_id)
    entry = next(
        (
            entry
            for entry in REGISTRY.values()
            if (name == entry.name or openml_id == entry.openml_id)
            and version in (None, entry.version)
        ),
        None,
    )
    if entry is not None:
        name, openml_id = entry.name, entry.openml_id
    label = str(openml_id) if name is None else name
    path = local_file(label, data_home) if entry is not None or version is None else None
    if path is not None:
        dataset = _from_file(path, label, entry)
    else:
        dataset = _from_openml(fetch(name, openml_id, version, offline=offline), entry, version)
    if entry is not None and content_checksum(dataset.X, dataset.y) != entry.checksum:
        warnings.warn(
            f"{entry.name} from {path or 'OpenML'} has other values, or its rows in another order, "
            "than the copy that this project's studies used: results on it may differ from theirs",
            UserWarning,
            stacklevel=2,
        )
    return dataset


def _name_and_id(name_or_id: str | int) -> tuple[str | None, int | None]:
    if isinstance(name_or_id, str) and name_or_id and not name_or_id.isdecimal():
        return name_or_id, None
    try:
        openml_id = operator.index(int(name_or_id) if isinstance(name_or_id, str) else name_or_id)
    except (TypeError, ValueError):
        openml_id = 0
    if openml_id < 1 or isinstance(name_or_id, bool):
        raise ValueError(
            f"name_or_id must be the name or id of a data set, got {name_or_id!r}; "
            "list_openml() has some"
        )
    return None, openml_id


def _from_file(path: Path, name: str, entry: Entry | None) -> Dataset:
    table, nominal = read_local(path)
    if entry is not None:
        way_out = "replace it, or remove it to fetch the set from OpenML"
        return _registered(table, entry, str(path), way_out, "local file")
    if len(table.columns) < 2:
        raise TableError(f"{path} has one column; the last is the target, so two are needed")
    X, y, task = split(table, str(table.columns[-1]), nominal)
    return Dataset(X, y, task, _categorical(X), name, None, "local file")


def _from_openml(raw: RawDataset, entry: Entry | None, version: int | None) -> Dataset:
    where = f"{raw.name} (OpenML {raw.openml_id}, version {raw.version})"
    if version not in (None, raw.version):
        raise ValueError(f"{where} is not version {version}: leave out version= or ask by name")
    if entry is not None:
        return _registered(raw.table, entry, where, own_copy(entry.name), "OpenML")
    if any(isinstance(dtype, pd.SparseDtype) for dtype in raw.table.dtypes):
        raise ValueError(
            f"{where} is sparse, and tables are dense here; "
            f"sklearn.datasets.fetch_openml(data_id={raw.openml_id}) reads it"
        )
    if raw.target is None or raw.target not in raw.table.columns:
        columns = ", ".join(map(repr, raw.table.columns[:8]))
        raise ValueError(
            f"{where} names no column as its target, but {raw.target!r}; the columns begin with "
            f"{columns}: put the one to predict last in a CSV file, and {own_copy('NAME')}"
        )
    X, y, task = split(raw.table, raw.target, raw.nominal, raw.text)
    return Dataset(X, y, task, _categorical(X), raw.name, raw.openml_id, "OpenML")


def _registered(
    table: pd.DataFrame, entry: Entry, where: str, way_out: str, source: str
) -> Dataset:
    table = check_registered(table, entry, where, way_out)
    nominal = [*entry.nominal, *([entry.target] if entry.task == "classification" else [])]
    X, y, task = split(table, entry.target, nominal)
    return Dataset(X, y, task, _categorical(X), entry.name, entry.openml_id, source)


def _categorical(X: pd.DataFrame) -> tuple[str, ...]:
    return tuple(X.columns[[isinstance(dtype, pd.CategoricalDtype) for dtype in X.dtypes]])
