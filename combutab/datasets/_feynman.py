"""The AI Feynman equations: 100 from the Feynman lectures and 20 harder ones."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import tempfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from combutab.core.text import did_you_mean
from combutab.core.textfile import Reading, TableError
from combutab.datasets._formulas import check_formula, evaluate_formula
from combutab.datasets.tables import TableFile

if TYPE_CHECKING:
    from combutab.core.rng import RandomState

DATA_HOME_VARIABLE = "COMBUTAB_DATA"


@dataclass(frozen=True)
class _Source:
    filename: str
    url: str
    checksum: str  # of the parsed equations, see _checksum


_SITE = "https://space.mit.edu/home/tegmark/aifeynman"
_SOURCES = {
    "feynman": _Source(
        "FeynmanEquations.csv",
        f"{_SITE}/FeynmanEquations.csv",
        "255a179ddfa99557dc646df006c99ff0d6783e82f09c889dbf524e2534c231d0",
    ),
    "bonus": _Source(
        "BonusEquations.csv",
        f"{_SITE}/BonusEquations.csv",
        "f67cc1bab9dd481f48faf89932949322fb751b21b93818e94d9bb0e25df898e8",
    ),
}
# The table lost a zero that the AI Feynman paper has: read as numbers, I.15.10 became I.15.1.
_ALIASES = {"I.15.10": "I.15.1", "I.48.20": "I.48.2"}


class _Variable(NamedTuple):
    name: str
    low: float
    high: float


@dataclass(frozen=True)
class _Equation:
    name: str
    title: str
    output: str
    formula: str
    variables: tuple[_Variable, ...]


def load_feynman(
    name: str,
    n_samples: int = 1000,
    *,
    noise: float = 0.0,
    data_home: str | PathLike[str] | None = None,
    random_state: RandomState = None,
) -> tuple[pd.DataFrame, pd.Series]:
    """Draw a data set from one of the AI Feynman equations.

    Each variable is uniform on its range in the table, and the target is the formula in float64.

    Parameters
    ----------
    name : str
        Name in `list_feynman`, such as ``"I.6.2"`` or ``"test_3"``. The paper's names
        ``"I.15.10"`` and ``"I.48.20"`` are accepted for the table's ``"I.15.1"`` and ``"I.48.2"``.
    n_samples : int, default=1000
        Number of rows, at least 1.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise on the target, as a fraction of the root mean
        square of the exact target. ``X`` depends on ``random_state``, but not on the noise.
    data_home : path, optional
        Folder with ``FeynmanEquations.csv`` and ``BonusEquations.csv``, or with a subfolder
        ``feynman`` that has them. Default: the environment variable ``COMBUTAB_DATA``, else the
        user's cache. Existing files are not verified. A missing file is downloaded once
        into the subfolder ``feynman`` (extra ``formulas``) and its content is verified.
    random_state : None, int, RandomState or Generator, default=None
        Seed or generator of the variables and the noise.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_variables), float64
    y : Series of length n_samples, named after the equation's output

    Raises
    ------
    ValueError
        If the equation is unknown, its formula is outside the whitelist of `parse_formula` or has
        no finite value at a drawn point, ``n_samples`` or ``noise`` is out of range, or a table is
        not valid or, if downloaded, has other content.
    OSError
        If the table is missing and cannot be downloaded or saved.
    ImportError
        If pooch is not installed and a table must be downloaded, or the user's cache is needed.

    References
    ----------
    S.-M. Udrescu and M. Tegmark, "AI Feynman: a physics-inspired method for symbolic
    regression", Science Advances 6, 2020.

    Examples
    --------
    With your own table; without ``data_home`` the 120 equations are downloaded once.

    >>> import tempfile
    >>> table = "Filename,Output,Formula,v1_name,v1_low,v1_high\\nmine,y,2*sin(t),t,0,3\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "FeynmanEquations.csv").write_text(table)
    ...     X, y = load_feynman("mine", 5, data_home=folder, random_state=0)
    >>> X.shape, y.name, bool(np.allclose(y, 2 * np.sin(X["t"])))
    ((5, 1), 'y', True)
    """
    from combutab.core.rng import as_generator  # imports torch

    if not 0.0 <= noise < math.inf:
        raise ValueError(f"noise must be a fraction of at least 0, got {noise}")
    n_samples = operator.index(n_samples)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    equation = _find_equation(name, data_home)
    generator = as_generator(random_state)
    names, low, high = zip(*equation.variables, strict=True)
    X = pd.DataFrame(generator.uniform(low, high, size=(n_samples, len(names))), columns=names)
    tree = check_formula(equation.formula, names)
    y = np.empty(n_samples)
    y[:] = evaluate_formula(tree, {column: X[column].to_numpy() for column in names})
    bad = int((~np.isfinite(y)).sum())
    if bad:
        raise ValueError(
            f"{equation.name} ({equation.formula}) has no finite value at {bad} of {n_samples} "
            "points drawn from its ranges"
        )
    if noise:
        y += generator.normal(0.0, noise * math.sqrt(float(np.mean(y**2))), size=n_samples)
    return X, pd.Series(y, name=equation.output)


def list_feynman(data_home: str | PathLike[str] | None = None) -> pd.DataFrame:
    """List the AI Feynman equations.

    Parameters
    ----------
    data_home : path, optional
        As in `load_feynman`.

    Returns
    -------
    DataFrame, one row per equation
        ``name``, ``table`` (feynman or bonus), ``title`` (empty in the first table), ``output``,
        ``formula``, ``n_variables`` (counted, because the tables' own column is wrong in ten rows)
        and ``variables`` with their ranges, as text.

    Raises
    ------
    ValueError, OSError, ImportError
        As in `load_feynman`, if a table cannot be read or downloaded.

    Examples
    --------
    >>> import tempfile
    >>> table = "Filename,Output,Formula,v1_name,v1_low,v1_high\\nmine,y,2*sin(t),t,0,3\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for filename in ("FeynmanEquations.csv", "BonusEquations.csv"):
    ...         _ = (Path(folder) / filename).write_text(table)
    ...     list_feynman(folder)[["name", "table", "formula", "variables"]]
       name    table   formula variables
    0  mine  feynman  2*sin(t)  t [0, 3]
    1  mine    bonus  2*sin(t)  t [0, 3]
    """
    rows = [
        {
            "name": equation.name,
            "table": table,
            "title": equation.title,
            "output": equation.output,
            "formula": equation.formula,
            "n_variables": len(equation.variables),
            "variables": ", ".join(f"{v.name} [{v.low:g}, {v.high:g}]" for v in equation.variables),
        }
        for table in _SOURCES
        for equation in _load_equations(table, data_home)
    ]
    return pd.DataFrame(rows)


def _find_equation(name: str, data_home: str | PathLike[str] | None) -> _Equation:
    table = "bonus" if str(name).lower().startswith("test") else "feynman"
    equations = {equation.name: equation for equation in _load_equations(table, data_home)}
    match = equations.get(_ALIASES.get(name, name)) or equations.get(name)
    if match is None:
        hint = f"{did_you_mean(name, equations)} list_feynman() names them all"
        raise ValueError(f"no AI Feynman equation {name!r}; {hint.lstrip()}")
    return match


def find_data_home(data_home: str | PathLike[str] | None) -> Path | None:
    """The folder of the user's copies of data sets: as given, or of the environment variable."""
    home = data_home if data_home is not None else os.environ.get(DATA_HOME_VARIABLE) or None
    return None if home is None else Path(home)


def _load_equations(table: str, data_home: str | PathLike[str] | None) -> list[_Equation]:
    source = _SOURCES[table]
    folder = find_data_home(data_home) or Path(_pooch().os_cache("combutab"))
    for path in (folder / source.filename, folder / "feynman" / source.filename):
        if path.is_file():
            return _read_equations(path)
    return _download(source, folder / "feynman")


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "downloading the AI Feynman tables needs pooch: pip install pooch; "
            f"or pass data_home=FOLDER (or set {DATA_HOME_VARIABLE}) with your copies"
        ) from error
    return pooch


def _download(source: _Source, folder: Path) -> list[_Equation]:
    """Download a table, verify its content, and only then give it its name in the folder."""
    columns = (
        f"with a copy of your own pass data_home=FOLDER (or set {DATA_HOME_VARIABLE}) "
        f"where FOLDER contains {source.filename}"
    )
    # Not streamed: pooch leaves the connection of a failed stream open, and this is 10 kB.
    downloader = _pooch().HTTPDownloader(timeout=30, stream=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot keep a download in {folder}: {error.strerror}; {columns}") from error
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
        part = Path(scratch) / source.filename
        try:
            downloader(source.url, str(part), None)
            equations = _read_equations(part)
        except OSError as error:  # requests' errors are OSErrors
            raise OSError(f"cannot download {source.url}: {error}; {columns}") from error
        except ValueError as error:
            reason = str(error).replace(str(part), source.filename)
            raise ValueError(f"{source.url} is not the table: {reason}; {columns}") from error
        checksum = _checksum(equations)
        if checksum != source.checksum:
            raise ValueError(
                f"{source.url} has content of checksum {checksum}, expected {source.checksum}: "
                f"it was garbled or has changed; {columns}"
            )
        part.replace(folder / source.filename)
    return equations


def _read_equations(path: Path) -> list[_Equation]:
    table = TableFile(path, Reading(",", encoding="utf-8")).table()
    for column in ("Filename", "Output", "Formula", "v1_name", "v1_low", "v1_high"):
        if column not in table.columns:
            raise TableError(f"{path} has no column {column!r}: not a table of equations")
    n_slots = sum(column.startswith("v") and column.endswith("_name") for column in table.columns)
    table = table.dropna(subset=["Filename"])  # the original has empty rows at its end
    return [_equation(row, n_slots) for row in table.to_dict("records")]


def _equation(row: dict[Any, Any], n_slots: int) -> _Equation:
    name = str(row["Filename"]).strip()
    variables = []
    for i in range(1, n_slots + 1):
        cells: list[Any] = [row.get(f"v{i}_{part}") for part in ("name", "low", "high")]
        if pd.isna(cells[0]):  # "# variables" is wrong in places; the names are what counts
            continue
        try:
            variable = _Variable(str(cells[0]).strip(), float(cells[1]), float(cells[2]))
        except (TypeError, ValueError):
            variable = _Variable(str(cells[0]), math.nan, math.nan)
        if not -math.inf < variable.low <= variable.high < math.inf:
            raise TableError(f"{name}: {cells[0]!r} has no range, got {cells[1]} to {cells[2]}")
        variables.append(variable)
    if not variables or pd.isna(row["Formula"]):
        raise TableError(f"{name} has no formula or no variables")
    title = row.get("Name")
    return _Equation(
        name=name,
        title="" if title is None or pd.isna(title) else str(title),
        output=str(row["Output"]).strip(),
        # Some copies write the unary minus as ~, so that no cell begins with a sign.
        formula="".join(str(row["Formula"]).split()).replace("~", "-"),
        variables=tuple(variables),
    )


def _checksum(equations: list[_Equation]) -> str:
    """SHA-256 of the equations, independent of line ends, byte order mark and empty cells."""
    content = [[e.name, e.output, e.formula, e.variables] for e in equations]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
