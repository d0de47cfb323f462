"""Tables from Excel files, by pandas and openpyxl."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

ENDINGS = (".xlsx", ".xlsm")


def read_excel(path: Path) -> tuple[list[str], pd.DataFrame]:
    """Read the header as it is in the file, and the table, of a workbook's first sheet.

    It warns where there are other sheets, and raises ImportError without openpyxl, OSError or
    ValueError if it is no workbook.
    """
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise ImportError(f"reading {path} needs openpyxl: pip install openpyxl") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl's, of styles and charts
            with pd.ExcelFile(path, engine="openpyxl") as book:
                first, *others = map(str, book.sheet_names)
                head: Any = book.parse(first, header=None, nrows=1, dtype=object)
                table: Any = book.parse(first)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(str(error)) from error
    if others:
        more = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        warnings.warn(
            f"{path} has {len(others) + 1} sheets, and the first, {first!r}, is read; to read "
            f"another ({more}), save it as a file of its own",
            UserWarning,
            stacklevel=4,
        )
    table.columns = [str(name) for name in table.columns]
    names = ["" if pd.isna(name) else str(name) for name in head.to_numpy().ravel()]
    return names, table
