"""infer_task on the rules' edges and on real targets."""

import datetime as dt
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.preprocessing import TargetError, infer_task, read_numbers

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


NUMBERS = [f"{x:.3f}" for x in np.random.default_rng(0).normal(size=400)]


@pytest.mark.parametrize(
    ("y", "fault", "says"),
    [
        ([*NUMBERS, "n.a!"], "cells", "has 400 numbers, and 'n.a!' (data row 401)"),
        (
            [*NUMBERS, "?", None, "?", "1,5"],
            "cells",
            "has 400 numbers, and '?' (2 rows, first data row 401), '1,5' (data row 404)",
        ),
        ([*NUMBERS[:9], " "], "cells", "has 9 numbers, and a blank (data row 10)"),
        ([*map(str, np.tile(range(1, 6), 80)), "n.a!"], "cells", "'n.a!' (data row 401)"),
        ([1.5, 2, 3] * 20 + ["x"], "cells", "has 60 numbers, and 'x' (data row 61)"),
        ([x.replace(".", ",") for x in NUMBERS], "decimal comma", "400"),
        (["1,5", "2", "2,5"] * 50, "decimal comma", "150"),
        ([f"1.{i:03},50" for i in range(400)], "form", "such as '1.000,50'"),
        (
            [f"{x}%" for x in NUMBERS],
            "form",
            f"a sign of currency or percent, such as '{NUMBERS[0]}%'",
        ),
        ([f"${1000 + i:,}" for i in range(400)], "form", "such as '$1,000'"),
        ([f"{1000 + i:,}" for i in range(400)], "form", "separators between thousands"),
        ([f"{i % 90} kg" for i in range(400)], "form", "'0 kg'"),
        ([str(10**25 + i) for i in range(400)], "text", "1000"),
        ([*map(str, range(399)), "05"], "text", "'05'"),
        ([f"P{i}" for i in range(400)], "names", "has 400 different texts in 400 rows ('P0', 'P1"),
        ([f"03/{1 + i % 12:02}/2021" for i in range(60)], "dates", "holds dates as text, such as"),
    ],
)
@pytest.mark.parametrize("dtype", [object, "string"])
def test_free_text_is_refused_with_cells(y, fault, says, dtype):
    y = pd.Series(y, dtype=object).map(str, na_action="ignore").astype(dtype)
    before = y.copy()
    with pytest.raises(TargetError) as caught:
        infer_task(y)
    assert (caught.value.fault, str(caught.value).startswith("y h")) == (fault, True)
    assert says in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    pd.testing.assert_series_equal(y, before)
    assert infer_task(y.astype("category")) == "classification"


@pytest.mark.parametrize(
    "y",
    [
        [*map(str, range(1, 8))] * 10,
        ["10", "20", "30"] * 20,
        ["0.5", "1.5"] * 20,
        ["01", "02", "03"] * 20,
        ["A1", "A2", "B1"] * 20,
        ["5%", "10%", "20%"] * 20,
        ["0", "1", "2"] * 30 + ["3+"] * 10,
        ["1", "2", "unknown"] * 20,
        ["yes", "no", "?"] * 20,
        [f"city {i}" for i in range(100)] * 3,
        [f"P{i}" for i in range(20)],
        ["1.5", "2.5"],
    ],
    ids=repr,
)
def test_labels_that_are_text(y):
    assert infer_task(y) == "classification"
    assert infer_task(np.array(y)) == "classification"


def test_text_as_numbers():
    y = pd.Series(["1", None, "2" * 26], dtype=object)
    assert read_numbers(y).tolist()[::2] == pytest.approx([1.0, 2.0 / 9 * 1e26])
    with pytest.raises(TargetError, match=r"400.*'n\.a!'.*401"):
        read_numbers(pd.Series([*NUMBERS, "n.a!"]))
    with pytest.raises(TargetError, match=r"'yes'.*2.*1.*'no'"):
        read_numbers(pd.Series(["yes", "no", "yes"]))


def test_polars():
    pl = pytest.importorskip("polars")
    assert infer_task(pl.Series(["a", "b"])) == "classification"
    assert infer_task(pl.Series([0.5, None])) == "regression"
    assert infer_task(pl.DataFrame({"a": [0, 1]})) == "classification"


@pytest.mark.parametrize("y", [[], [None], [np.nan, np.nan]])
def test_nothing_to_infer_from(y):
    with pytest.raises(ValueError, match="no values"):
        infer_task(y)


def test_dates_are_refused():
    with pytest.raises(ValueError, match="dates or times"):
        infer_task(pd.to_datetime(["2020-01-01", "2020-01-02"]))
    with pytest.raises(ValueError, match="dates or times"):
        infer_task(np.array([dt.date(2020, 1, 1)], dtype=object))


def test_three_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"shape \(1, 1, 1\)"):
        infer_task(np.zeros((1, 1, 1)))


@pytest.mark.parametrize("form", ["${:.1f}M", "-  {:.0f}", "{:.2f} bn", "₹{:.1f} lakhs", "{:.1f}K"])
def test_amounts_with_words_are_no_class_labels(form):
    values = np.where(np.arange(300) % 5 < 2, "-", [form.format(a + 1) for a in range(300)])
    with pytest.raises(TargetError, match="180") as caught:
        infer_task(values)
    assert "(120 rows" in str(caught.value)
