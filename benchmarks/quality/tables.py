"""The tables that predictions are measured on: where they are, and what of them is a category."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from combutab.datasets import list_openml, load_openml, read_table, split_target

FEW = 20  # distinct whole numbers of a target, up to which they are classes
FOLDERS = ("", "openml", "tuning", "synthesis")

TARGETS = {"beijing": "pm2.5"}  # of others it is the last column
UNUSED = {"beijing": ["No"], "diabetes130": ["encounter_id", "patient_nbr"]}  # numbers of rows
# categories that are written as whole numbers: all columns of some tables
CODED = {
    "default": ["SEX", "EDUCATION", "MARRIAGE"],
    "diabetes130": ["admission_type_id", "discharge_disposition_id", "admission_source_id"],
    "shoppers": ["OperatingSystems", "Browser", "Region", "TrafficType"],
}
ALL_CODED = {"car", "nursery", "splice"}


def known_names() -> list[str]:
    """The eight tables of the CombU paper."""
    return list(list_openml()["name"])


def files(folder: str) -> dict[str, Path]:
    """The CSV files of a folder, or of its subfolders that such tables are in, by name."""
    found = [p for each in FOLDERS for p in sorted((Path(folder) / each).glob("*.csv*"))]
    return {p.name.partition(".csv")[0]: p for p in found}


def load(name: str, data_home: str | None) -> tuple[pd.DataFrame, pd.Series, bool]:
    """Features, target, and whether it is a class; rows without a target are left out."""
    if name in known_names():
        data = load_openml(name, data_home=data_home)
        return data.X, data.y, data.task == "classification"
    assert data_home is not None
    table = read_table(files(data_home)[name]).drop(columns=UNUSED.get(name, []))
    target = TARGETS.get(name, table.columns[-1])
    X, y = split_target(table.dropna(subset=[target]).reset_index(drop=True), target)
    numbers = pd.api.types.is_numeric_dtype(y)
    classify = not numbers or (y.nunique() <= FEW and bool((y == y.round()).all()))
    if name == "SWD":  # grades, which are in order
        classify = False
    if name == "diabetes130":
        y = y != "NO"
        X = X.where(X != "?")
    coded = list(X) if name in ALL_CODED else CODED.get(name, [])
    X = X.assign(**{column: X[column].astype("string") for column in coded})
    texts = list(X.select_dtypes(["object", "string"]))
    return X.astype(dict.fromkeys(texts, "category")), y, classify
