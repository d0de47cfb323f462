"""The tables that are learned from: where they are, what is a category, and what a page shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import Arguments
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


def read_rows(data: str, data_home: str | None) -> tuple[pd.DataFrame, str, bool]:
    """Features and target, numbers and categories alone, under names that every package takes."""
    X, y, classify = load(data, data_home)
    X = X.set_axis(list(map(str, X)), axis=1)
    for name in X:
        if pd.api.types.is_datetime64_any_dtype(X[name]):
            X[name] = (X[name] - X[name].min()) / pd.Timedelta(days=1)
        elif not pd.api.types.is_numeric_dtype(X[name]) or X[name].dtype == bool:
            X[name] = X[name].astype(object).where(X[name].notna()).astype("category")
    target = str(y.name)
    table = X.assign(**{target: y.astype("str").astype("category") if classify else y})
    return table[y.notna()].reset_index(drop=True), target, classify


# ---- what the studies share: options, and lines of a page ----------------------------------------


DATA = {"nargs": "+", "metavar": "NAME", "help": "Some of the tables; all by default"}


def wanted(arguments: Arguments) -> tuple[list[str], str | None]:
    """The tables that are asked for, two for a quick form, and their folder.

    Raises
    ------
    ValueError
        There is no such table.
    """
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    there = list(files(home)) if home else known_names()
    if unknown := set(arguments.data or ()) - {*there, *known_names()}:
        raise ValueError(f"--data: no table {sorted(unknown)}; there are {sorted(there)}")
    return (arguments.data or there)[: 2 if arguments.quick else None], home


def lines(table: pd.DataFrame, text: Callable[[Any], str] = str) -> list[list[str]]:
    """A table's rows for a page: its index, and the text of each cell."""
    return [[str(name), *map(text, row)] for name, *row in table.itertuples()]


def number(value: Any, form: str = ".3g") -> str:
    """
    >>> number(0.12345), number(float("nan")), number("2 of 3"), number(1_000_000), number(1_994.6)
    ('0.123', '—', '2 of 3', '1,000,000', '1,990')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if pd.isna(value):
        return "—"
    text = format(value, form)
    return f"{float(text):,.0f}" if "e+" in text else text
