"""Target leakage: columns that predict the target nearly perfectly by themselves."""

import numpy as np
import pandas as pd
import pytest

from combutab.inspection import leaking_columns

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=400)
LABELS = np.where(NUMBERS > 0.8, "yes", "no")
TABLE = pd.DataFrame(
    {
        "noise": RNG.normal(size=400),
        "id": [f"row {i}" for i in range(400)],
        "double": 2 * NUMBERS,
        "text": np.where(NUMBERS > 0.8, "won", "lost"),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(NUMBERS, unit="D"),
        "weak": NUMBERS + RNG.normal(size=400),
    }
)


def test_leaks_of_classes_and_numbers_are_found():
    assert set(leaking_columns(TABLE, LABELS, task="classification").index) == {
        "double",
        "text",
        "day",
    }
    leaks = leaking_columns(TABLE, NUMBERS, task="regression")
    assert set(leaks.index) == {"double", "day"}
    assert (leaks > 0.995).all()


def test_missing_and_infinite_cells_are_no_leak():
    table = pd.DataFrame({"x": [np.nan, np.inf, 1.0, None] * 25, "empty": [None] * 100})
    assert leaking_columns(table, RNG.normal(size=100), task="regression").empty


def test_extreme_values_are_scaled():
    seconds = np.datetime64("3024-01-01") + (86400 * NUMBERS).astype("timedelta64[s]")
    days = pd.Series(seconds).mask(TABLE.index % 7 == 0)
    table = pd.DataFrame({"large": 1e300 * NUMBERS, "far": days, "empty": np.full(400, np.nan)})
    assert leaking_columns(table, NUMBERS, task="regression").index.tolist() == ["large"]
    assert leaking_columns(table, 1e200 * NUMBERS, task="regression").index.tolist() == ["large"]


def test_poor_predictions_rule_out_leaks():
    assert leaking_columns(TABLE, NUMBERS, task="regression", y_pred=np.zeros(400)).empty
    assert not leaking_columns(TABLE, NUMBERS, task="regression", y_pred=NUMBERS).empty


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(NUMBERS > 0.8).astype(object),
        pd.Series(NUMBERS > 0.8).astype(int).astype(object),
        pd.Series(NUMBERS > 0.8).astype("boolean"),
        pd.Series(LABELS).astype("category"),
    ],
    ids=["booleans", "integers", "nullable", "category"],
)
def test_labels_may_be_objects(labels):
    for y_pred in (labels, np.asarray(labels.tolist())):
        leaks = leaking_columns(TABLE, labels, task="classification", y_pred=y_pred)
        assert set(leaks.index) == {"double", "text", "day"}


def test_rare_classes_cannot_be_scored():
    labels = ["rare"] * 2 + ["frequent"] * 398
    assert leaking_columns(TABLE, labels, task="classification").empty


@pytest.mark.parametrize(
    ("y", "task", "pattern"),
    [(NUMBERS, "rank", "rank"), (NUMBERS[:9], "regression", "9"), (TABLE, "regression", "y")],
)
def test_bad_arguments_are_refused(y, task, pattern):
    with pytest.raises(ValueError, match=pattern):
        leaking_columns(TABLE, y, task=task)
