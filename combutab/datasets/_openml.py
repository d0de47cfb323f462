"""Data sets of OpenML by name or id: from its server, a cache or a local copy."""

from __future__ import annotations

import hashlib
import json
import operator
import re
import warnings
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from combutab.core.textfile import SEPARATORS, Reading, TableError, extension_of
from combutab.datasets._feynman import DATA_HOME_VARIABLE, find_data_home
from combutab.datasets.tables import TableFile

# ---- The eight OpenML data sets of the CombU paper's Table 4 -------------------------------------
# They are in openml_sets.json. OpenML itself could not be asked when this was written. Not
# verified: the versions (taken to be the first), the exact column names and their order, the
# order of the rows, and which columns are nominal beyond their number, which is the paper's. The
# ids agree with public code that loads these sets by them. The checksums are of copies from the
# sources that OpenML's are said to come from (UCI, StatLib, Weka, the book "Hands-On Machine
# Learning"). There are several sets of the name california_housing; this one has ocean_proximity.
# The paper counts Boston's two nominal columns among its 13 numeric ones as well.


@dataclass(frozen=True)
class KnownSet:
    """Hold the facts that a copy of a registered data set is checked against."""

    name: str
    openml_id: int
    version: int
    task: str
    target: str
    columns: tuple[str, ...]  # the features, in the order that X has them
    nominal: tuple[str, ...]
    n_rows: int
    checksum: str  # of the content, see content_checksum


def _registry() -> dict[str, KnownSet]:
    text = resources.files(__package__).joinpath("openml_sets.json").read_text("utf-8")
    entries = {}
    for name, record in json.loads(text).items():
        for listed in ("columns", "nominal"):
            record[listed] = tuple(record[listed])
        entries[name] = KnownSet(name=name, **record)
    return entries


REGISTRY = _registry()


def list_openml() -> pd.DataFrame:
    """List the OpenML data sets that `load_openml` checks: Table 4 of the CombU paper.

    `load_openml` loads any other set of OpenML too. The list could not be compared with OpenML
    itself: names and numbers are the paper's, ids are those of public code, versions and checksums
    are not verified. If a checksum differs, `load_openml` warns and continues.

    Returns
    -------
    DataFrame, one row per data set
        ``name``, ``openml_id``, ``version``, ``task``, ``target``, ``n_rows``, ``n_numeric``,
        ``n_nominal``, ``nominal`` (column names, as text) and ``checksum`` (of the content).

    Examples
    --------
    >>> list_openml()[["name", "openml_id", "task", "n_rows", "n_numeric", "n_nominal"]]
                     name  openml_id            task  n_rows  n_numeric  n_nominal
    0  california_housing      43939      regression   20640          8          1
    1            diabetes         37  classification     768          8          0
    2              boston        531      regression     506         11          2
    3            breast-w         15  classification     699          9          0
    4        wine_quality        287      regression    6497         11          0
    5                wdbc       1510  classification     569         30          0
    6    PhishingWebsites       4534  classification   11055          0         30
    7             autoMpg        196      regression     398          4          3
    """
    rows = []
    for entry in REGISTRY.values():
        row = asdict(entry) | {"nominal": ", ".join(entry.nominal)}
        n_nominal = len(entry.nominal)
        rows.append(row | {"n_numeric": len(entry.columns) - n_nominal, "n_nominal": n_nominal})
    columns = ["name", "openml_id", "version", "task", "target", "n_rows", "n_numeric"]
    return pd.DataFrame(rows)[[*columns, "n_nominal", "nominal", "checksum"]]


# ---- Copies of OpenML data sets in a folder of the user's: ``<name>.csv`` or ``<name>.csv.gz``


def local_file(name: str, data_home: str | PathLike[str] | None) -> Path | None:
    """The file of that name in the folder, or in its folder ``openml``, if there is one."""
    home = find_data_home(data_home)
    if home is None or Path(name).name != name:  # a name with a slash is no file's
        return None
    for folder in (home, home / "openml"):
        for extension in (".csv", ".csv.gz"):
            path = folder / f"{name}{extension}"
            if path.is_file():
                return path
    return None


def own_copy(name: str) -> str:
    """Say which file of one's own can be loaded instead: the end of every error."""
    return (
        f"pass data_home=FOLDER (or set {DATA_HOME_VARIABLE}) where FOLDER contains {name}.csv "
        f"or {name}.csv.gz"
    )


def read_local(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a file's cells as text or exact numbers, and the names of the columns with text.

    Pandas rounds some decimals differently from Python and takes "03" for 3, so numbers are
    parsed by Python here and texts are not changed; ``read_table`` decides the kind of each
    column, and refuses a damaged file.
    """
    file = TableFile(path, Reading(SEPARATORS.get(extension_of(path)), encoding="utf-8"))
    parsed, raw = file.table(), file.cells(only_empty=True)
    nominal = []
    for name, column in parsed.items():
        is_number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
        if is_number:
            raw[name] = raw[name].where(column.notna(), np.nan).astype(float)
        else:
            nominal.append(str(name))
    return raw, nominal


# ---- Data sets from OpenML, by scikit-learn and with its cache -----------------------------------


def fetch(name: str | None, openml_id: int | None, version: int | None) -> Bunch:
    """Fetch a data set by its id, or else by its name and version, if scikit-learn has not kept it.

    Raises OSError if it cannot be fetched or kept; ValueError if OpenML has no such set, or it
    cannot be read as a table.
    """
    from sklearn.datasets import fetch_openml  # 0.1 s

    label = str(openml_id) if name is None else name
    which: dict[str, Any] = {"data_id": openml_id}
    if openml_id is None:
        which = {"name": quote(label, safe=""), "version": version or "active"}
    try:
        # the parser that keeps nominal values as they are written and rounds no number
        return fetch_openml(**which, target_column=None, as_frame=True, parser="liac-arff")
    except OSError as error:  # urllib's are such
        raise OSError(
            f"cannot fetch {label} from OpenML into scikit-learn's cache: {error}; connect to the "
            "network and try again, set SCIKIT_LEARN_DATA to a folder that can be written to, or "
            f"{own_copy(label)}"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"cannot load {label} from OpenML: {str(error).rstrip('.')}; list_openml() and "
            f"https://www.openml.org list data sets; or {own_copy(label)}"
        ) from error


# ---- One form for a data set's columns, whether they come from a CSV, an ARFF or a Parquet file

_EXACT = 2.0**53  # float64 holds every whole number up to here


def as_nominal(column: pd.Series) -> pd.Series:
    """Give the column as an unordered category of text, its categories those met, sorted.

    Some formats hold the value 3 of a nominal column as text, some as a number: it is "3" here.

    >>> as_nominal(pd.Series([3.0, None, 1.0])).cat.categories.tolist()
    ['1', '3']
    """
    texts = column.astype(object).map(_as_text, na_action="ignore")
    categories = pd.Index(sorted(texts.dropna().unique()), dtype=str)
    return texts.astype(pd.CategoricalDtype(categories))


def _as_text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def as_numeric(column: pd.Series, *, as_integers: bool = True) -> pd.Series:
    """The column as float64, or with ``as_integers`` as int64 if all its values are integers.

    Raises TableError if a value is not a number.
    """
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError) as error:
        raise TableError(f"column {column.name!r} is numeric, but {error}") from error
    is_whole = as_integers and bool(
        np.isfinite(values).all()
        and (values == np.rint(values)).all()
        and (np.abs(values) <= _EXACT).all()
    )
    array = values.astype(np.int64) if is_whole else values
    return pd.Series(array, index=column.index, name=column.name)


def split(
    table: pd.DataFrame, target: str, nominal: Collection[str], text: Collection[str] = ()
) -> tuple[pd.DataFrame, pd.Series, str]:
    """Split a raw table into X, y and the task, with one dtype for each kind of column.

    A column is nominal, text (left as it is) or numeric; a numeric target is float64.
    """
    task = "classification" if target in (*nominal, *text) else "regression"
    if task == "classification":
        y = as_nominal(table[target])
    else:
        y = as_numeric(table[target], as_integers=False)
    columns = {}
    for name in table.columns.drop(target):
        if name in nominal:
            columns[name] = as_nominal(table[name])
        else:
            columns[name] = table[name] if name in text else as_numeric(table[name])
    return pd.DataFrame(columns, index=table.index), y, task


def check_registered(
    table: pd.DataFrame, entry: KnownSet, where: str, way_out: str
) -> pd.DataFrame:
    """Check the rows and columns of a registered set, and give the columns in their known order.

    Names are compared by their letters and digits, because the sources write ``fixed.acidity`` and
    ``fixed_acidity``.
    """
    expected = {_letters_and_digits(name): name for name in (*entry.columns, entry.target)}
    actual = {_letters_and_digits(name): name for name in table.columns}
    lacking = [repr(name) for key, name in expected.items() if key not in actual]
    besides = [repr(str(name)) for key, name in actual.items() if key not in expected]
    flaws = [f"lacks the columns {', '.join(lacking)}"] * bool(lacking)
    flaws += [f"also has {', '.join(besides)}"] * bool(besides)
    if len(table) != entry.n_rows:
        flaws.append(f"has {len(table)} rows")
    if flaws:
        raise TableError(
            f"{where} is not {entry.name} ({entry.n_rows} rows, {len(expected)} columns): "
            f"it {' and '.join(flaws)}; {way_out}"
        )
    return table[[actual[key] for key in expected]].set_axis(list(expected.values()), axis=1)


def _letters_and_digits(name: object) -> str:
    return re.sub(r"[\W_]+", "", str(name)).casefold()


def content_checksum(X: pd.DataFrame, y: pd.Series) -> str:
    """SHA-256 of the names, kinds and values of a table, independent of its file format."""
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


# ---- Data sets of OpenML by name or id, from its server, a cache or a local copy ------


@dataclass(frozen=True, eq=False)
class Dataset:
    """Result of `load_openml`: a table, its target and the task.

    Attributes
    ----------
    X : DataFrame of shape (n_samples, n_features)
        Nominal columns have the dtype category, with text categories. Numeric columns are int64 if
        all their values are integers, else float64. Columns that OpenML declares as text are left
        as they are. Missing values stay missing.
    y : Series of length n_samples
        The dtype category with text categories for classification, float64 for regression.
    task : str
        ``"classification"`` or ``"regression"``.
    categorical : tuple of str
        Names of the nominal columns of ``X``.
    name : str
        Name of the data set.
    openml_id : int or None
        None for a local file of a set that is not in `list_openml`.
    source : str
        ``"OpenML"`` (the server or the cache) or ``"local file"``.
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
) -> Dataset:
    """Load a data set of OpenML, from a local copy, from the cache or from the server.

    The sets of `list_openml` are checked, also local files. Other columns or another number
    of rows raise an error. Other values, or the same rows in another order, only raise a warning,
    because the checksums could not be compared with OpenML itself: they are those of the copies
    that the studies of this project used. Column names are compared by their letters and digits,
    ignoring case.

    Parameters
    ----------
    name_or_id : str or int
        Name or id of a data set of OpenML, in `list_openml` or not, such as ``"credit-g"`` or 31.
    version : int, optional
        Version of a name that has several. By default the version in `list_openml`, else the oldest
        active version. Local files have no version: they are ignored if a version is given, unless
        it is the one in `list_openml`.
    data_home : path, optional
        Folder with local copies, ``<name>.csv`` or ``<name>.csv.gz``, or with a subfolder
        ``openml`` that has them. Default: the environment variable ``COMBUTAB_DATA``; if it is not
        set, no local copies are used. An empty cell is a missing value, and so is ``NA`` or ``nan``
        in a column of numbers.
        For a set that is not in `list_openml`, the file (``<id>.csv`` for an id) must have its
        target in the last column. Columns with anything but numbers are nominal, and a nominal
        target makes a classification task.

    Returns
    -------
    Dataset
        For a set in `list_openml`, a local file gives the same values and dtypes as OpenML.

    Raises
    ------
    OSError
        If the set is not in the cache, and cannot be downloaded or saved.
    ValueError
        If ``name_or_id`` is not a name or id, OpenML has no such set, the set has no default target
        or is sparse, its version is not ``version``, or a local or downloaded copy cannot be read
        or is another set.

    Warns
    -----
    UserWarning
        If the content of a set in `list_openml` is not that of the copy that the studies used.

    Notes
    -----
    `sklearn.datasets.fetch_openml` downloads a set into scikit-learn's cache (the environment
    variable ``SCIKIT_LEARN_DATA``, else ``~/scikit_learn_data``). Loading it again by the same name
    or id needs no network.

    Examples
    --------
    With your own table; ``load_openml("diabetes")`` downloads that set once.

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
        dataset = _from_openml(fetch(name, openml_id, version), entry, version)
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
            "list_openml() lists some"
        )
    return None, openml_id


def _from_file(path: Path, name: str, entry: KnownSet | None) -> Dataset:
    table, nominal = read_local(path)
    if entry is not None:
        way_out = "replace it, or remove it to fetch the set from OpenML"
        return _registered(table, entry, str(path), way_out, "local file")
    if len(table.columns) < 2:
        raise TableError(f"{path} has one column; add features before the target, the last column")
    X, y, task = split(table, str(table.columns[-1]), nominal)
    return Dataset(X, y, task, _categorical(X), name, None, "local file")


def _from_openml(bunch: Bunch, entry: KnownSet | None, version: int | None) -> Dataset:
    table, about = bunch.frame, bunch.details
    where = f"{about['name']} (OpenML {about['id']}, version {about['version']})"
    if version is not None and str(version) != str(about["version"]):
        raise ValueError(f"{where} is not version {version}: leave out version=, or pass the name")
    if entry is not None:
        return _registered(table, entry, where, own_copy(entry.name), "OpenML")
    target = about.get("default_target_attribute")
    if target not in table.columns:
        columns = ", ".join(map(repr, table.columns[:8]))
        raise ValueError(
            f"the target of {where} is {target!r}, which is not one of its columns ({columns}, "
            f"...); write a CSV file whose last column is the target, and {own_copy('NAME')}"
        )
    nominal = table.columns[table.dtypes == "category"]
    text = table.columns[[dtype.kind == "O" for dtype in table.dtypes]].difference(nominal)
    X, y, task = split(table, target, nominal, text)
    openml_id = int(about["id"])
    return Dataset(X, y, task, _categorical(X), about["name"], openml_id, "OpenML")


def _registered(
    table: pd.DataFrame, entry: KnownSet, where: str, way_out: str, source: str
) -> Dataset:
    table = check_registered(table, entry, where, way_out)
    nominal = [*entry.nominal, *([entry.target] if entry.task == "classification" else [])]
    X, y, task = split(table, entry.target, nominal)
    return Dataset(X, y, task, _categorical(X), entry.name, entry.openml_id, source)


def _categorical(X: pd.DataFrame) -> tuple[str, ...]:
    return tuple(X.select_dtypes("category").columns)
