"""What the CombU paper reports in Tables 3, 5, 6 and 7, and what it calls things.

``expected/*.csv`` hold the tables, one row a cell, transcribed from a text of the paper that lost
some cells: these are empty and their note says so. Nothing is corrected; a note names a value that
cannot be right, or that disagrees with another.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "expected"
LOST = "lost in the text"
AVERAGE_RANK = "avg_rank"

ACTIVATIONS = {
    "relu": "ReLU",
    "elu": "ELU",
    "selu": "SELU",
    "swish": "Swish",
    "nlrelu": "NLReLU",
    "gelu": "GELU",
    "combu": "CombU",
}


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
    "accuracy": Metric("Acc.", "percent", 100.0, 2, True),
    "f1": Metric("F1", "percent", 100.0, 2, True),
}
TASK_METRICS = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}


@dataclass(frozen=True)
class Table:
    """One of the paper's tables: the report's name and title, and the paper's short names."""

    name: str
    title: str
    data: dict[str, str]


TABLES = {
    3: Table(
        "table3_formulas",
        "Table 3 of the CombU paper: formulae",
        {"gs": "GS", "ar": "AR", "ns": "NS", "bs": "BS"},
    ),
    5: Table(
        "table5_classification",
        "Table 5 of the CombU paper: classification",
        {"breast-w": "BW", "diabetes": "DI", "wdbc": "WD", "PhishingWebsites": "PW"},
    ),
    6: Table(
        "table6_regression",
        "Table 6 of the CombU paper: regression",
        {"autoMpg": "AM", "boston": "BS", "california_housing": "CH", "wine_quality": "WQ"},
    ),
}


def load_expected(table: int) -> pd.DataFrame:
    """Read one of the paper's tables.

    Parameters
    ----------
    table : {3, 5, 6, 7}

    Returns
    -------
    DataFrame
        ``data`` ("avg_rank" for the average ranks), ``task``, ``metric``, ``activation``, ``mean``
        and ``sd`` (NaN where the text lost them), ``unit``, ``note`` ("" where there is none);
        Table 7 has ``model`` ("ctgan" or "tvae") too, and "real" among its activations.
    """
    path = FOLDER / f"table{table}.csv"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("table*.csv")))
        raise ValueError(f"the paper's table {table} is not transcribed; there are {known}")
    return pd.read_csv(path).fillna({"note": ""})
