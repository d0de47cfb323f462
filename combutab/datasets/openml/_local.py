"""Copies of OpenML data sets in a folder of the user's: ``<name>.csv`` or ``<name>.csv.gz``."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from combutab.datasets._files import read_cells, read_table
from combutab.datasets.formulas import DATA_HOME_VARIABLE


def local_file(name: str, data_home: str | PathLike[str] | None) -> Path | None:
    """The file of that name in the folder, or in its folder ``openml``, if there is one."""
    home = data_home if data_home is not None else os.environ.get(DATA_HOME_VARIABLE) or None
    if home is None or Path(name).name != name:  # a name with a slash is no file's
        return None
    for folder in (Path(home), Path(home) / "openml"):
        for extension in (".csv", ".csv.gz"):
            path = folder / f"{name}{extension}"
            if path.is_file():
                return path
    return None


def own_copy(name: str) -> str:
    """The way out that every error names: what to pass, and what to have there."""
    return (
        f"pass data_home=FOLDER (or set {DATA_HOME_VARIABLE}) where FOLDER holds {name}.csv "
        f"or {name}.csv.gz"
    )


def read_local(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a file's cells as text or exact numbers, and the names of the columns with text.

    Pandas rounds some decimals differently from Python and takes "03" for 3, so numbers are
    parsed by Python here and texts are left alone; ``read_table`` says what a column holds and
    refuses a broken file.
    """
    parsed = read_table(path)
    raw = read_cells(path, only_empty=True)
    nominal = []
    for name, column in parsed.items():
        is_number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
        if is_number:
            raw[name] = raw[name].where(column.notna(), np.nan).astype(float)
        else:
            nominal.append(str(name))
    return raw, nominal
