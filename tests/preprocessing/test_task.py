"""infer_task on the rules' edges and on real targets."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.preprocessing import infer_task

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "openml"
CODES = np.tile(np.arange(3), 100)

REAL = {
    ("california_housing.csv.gz", "median_house_value"): "regression",
    ("boston.csv", "MEDV"): "regression",
    ("autoMpg.csv", "class"): "regression",
    ("wine_quality.csv.gz", "quality"): "regression",
    ("diabetes.csv", "class"): "classification",
    ("breast-w.csv", "Class"): "classification",
    ("wdbc.csv", "Class"): "classification",
    ("PhishingWebsites.csv.gz", "Result"): "classification",
}


@pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not beside the repository")
@pytest.mark.parametrize(("file", "target"), REAL)
def test_real_targets(file, target):
    assert infer_task(pd.read_csv(DATA / file)[target]) == REAL[file, target]


@pytest.mark.parametrize(
    "y",
    [
        ["a", "b", "a"],
        np.array(["a", "b"]),
        [True, False],
        pd.Series([1.5, 2.5], dtype="category"),
        pd.Series(["a", None], dtype="string"),
        pd.Series([1, "a"], dtype=object),
        [0, 1, 1],
        [-1, 1],
        [5, 7],
        [1.0, 2.0, np.nan],
        pd.Series([0, 1, None], dtype="Int64"),
        CODES,
        CODES + 1.0,
        CODES - 1,
        np.tile([1, 2, 3, 5, 6, 7], 50),  # the glass data's classes
        np.array([0, 1, 1], dtype=object),
        np.array([[0, 1], [1, 1]]),
        pd.DataFrame({"a": ["x", "y"], "b": [0, 1]}),
    ],
    ids=repr,
)
def test_classification(y):
    assert infer_task(y) == "classification"


@pytest.mark.parametrize(
    "y",
    [
        [0.5, 1.5],
        [1, 2, 3],  # three values of three rows
        np.tile(np.arange(21), 100),
        CODES + 3,
        np.tile([0, 10, 100], 100),
        np.array([0.1, 2.5, 3.0], dtype=object),
        np.c_[CODES, CODES * 0.5],
        pd.DataFrame({"a": ["x", "y"], "b": [0.5, 1.5]}),
        pd.Series([0.5, None], dtype="Float64"),
    ],
    ids=repr,
)
def test_regression(y):
    assert infer_task(y) == "regression"


def test_polars():
    pl = pytest.importorskip("polars")
    assert infer_task(pl.Series(["a", "b"])) == "classification"
    assert infer_task(pl.Series([0.5, None])) == "regression"
    assert infer_task(pl.DataFrame({"a": [0, 1]})) == "classification"


@pytest.mark.parametrize("y", [[], [None], [np.nan, np.nan]])
def test_nothing_to_infer_from(y):
    with pytest.raises(ValueError, match="no values to infer a task from"):
        infer_task(y)


def test_dates_are_refused():
    with pytest.raises(ValueError, match="dates or times"):
        infer_task(pd.to_datetime(["2020-01-01", "2020-01-02"]))
    with pytest.raises(ValueError, match="dates or times"):
        infer_task(np.array([dt.date(2020, 1, 1)], dtype=object))


def test_three_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"shape \(1, 1, 1\)"):
        infer_task(np.zeros((1, 1, 1)))
