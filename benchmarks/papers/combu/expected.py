"""What the CombU paper reports in Tables 3, 5, 6 and 7, and what it calls things.

``expected/*.csv`` hold the tables, one row a cell, transcribed from a text of the paper that lost
some cells: these are empty and their note says so. Nothing is corrected; a note names a value that
cannot be right, or that disagrees with another.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

LABELS = ("ReLU", "ELU", "SELU", "Swish", "NLReLU", "GELU", "CombU")
ACTIVATIONS = {label.lower(): label for label in LABELS}


@dataclass(frozen=True)
class Metric:
    """A score: how it is called and shown, and which end is good.

    ``scale`` takes the study's rows (fractions) to the paper's units (percent).
    """

    label: str
    unit: str
    scale: float
    decimals: int
    greater_is_better: bool


METRICS = {
    "mae": Metric("MAE", "target sd", 1.0, 3, False),
    "mse": Metric("MSE", "target sd", 1.0, 3, False),
    "accuracy": Metric("accuracy", "percent", 100.0, 2, True),
    "f1": Metric("F1", "percent", 100.0, 2, True),
}
TASK_METRICS = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}


@dataclass(frozen=True)
class Table:
    """A report's name and title, and the paper's short names for its data sets.

    ``number`` is that of the paper's table to compare with, if there is one.
    """

    name: str
    title: str
    data: dict[str, str]
    number: int | None = None


_DATA = {
    3: {"gs": "GS", "ar": "AR", "ns": "NS", "bs": "BS"},
    5: {"breast-w": "BW", "diabetes": "DI", "wdbc": "WD", "PhishingWebsites": "PW"},
    6: {"autoMpg": "AM", "boston": "BS", "california_housing": "CH", "wine_quality": "WQ"},
}
TABLES = {
    n: Table(f"table{n}_{topic}", f"Table {n} of the CombU paper: {topic}", _DATA[n], n)
    for n, topic in ((3, "formulas"), (5, "classification"), (6, "regression"))
}


def load_expected(table: int) -> pd.DataFrame:
    """Read one of the paper's tables: 3, 5, 6 or 7.

    Returns
    -------
    DataFrame
        ``data`` ("avg_rank" for the average ranks), ``task``, ``metric``, ``activation``, ``mean``
        and ``sd`` (NaN where the text lost them), ``unit``, ``note`` ("" where there is none);
        Table 7 has ``model`` ("ctgan" or "tvae") too, and "real" among its activations.
    """
    return pd.read_csv(Path(__file__).parent / f"expected/table{table}.csv").fillna({"note": ""})
