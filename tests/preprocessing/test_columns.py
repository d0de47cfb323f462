"""The kind of a column, and frames of other libraries as pandas holds them."""

import datetime
import datetime as dt
import decimal
import fractions

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from combutab.preprocessing import (
    ModeEncoder,
    TableEncoder,
    as_pandas,
    column_kind,
    dtype_kind,
    infer_task,
)

DAY = datetime.date(2024, 5, 17)
NOW = pd.Timestamp("2024-05-17 12:00")


def objects(*values):
    return pd.Series(values, dtype=object)


CASES = {
    "int64": (pd.Series([1, 2]), "number"),
    "float32": (pd.Series([1, 2], dtype="f4"), "number"),
    "Int64": (pd.Series([1, None], dtype="Int64"), "number"),
    "sparse": (pd.Series([0.0, 1.0], dtype=pd.SparseDtype(float)), "number"),
    "numbers without a value": (pd.Series([np.nan, np.nan]), "number"),
    "bool": (pd.Series([True, False]), "bool"),
    "boolean": (pd.Series([True, None], dtype="boolean"), "bool"),
    "sparse bool": (pd.Series([True, False], dtype=pd.SparseDtype(bool)), "bool"),
    "datetime": (pd.Series([NOW, None]), "datetime"),
    "datetime of a zone": (pd.Series([NOW.tz_localize("Asia/Seoul")]), "datetime"),
    "period": (pd.Series(pd.period_range("2024-01", periods=2, freq="M")), "datetime"),
    "timedelta": (pd.Series([pd.Timedelta("1h")]), "timedelta"),
    "category": (pd.Series(["a"], dtype="category"), "category"),
    "category of numbers": (pd.Series([1, 2], dtype="category"), "category"),
    "interval": (pd.Series(pd.interval_range(0, 2)), "category"),
    "string": (pd.Series(["a", None], dtype="string"), "text"),
    "complex": (pd.Series([1j, 2]), "complex"),
}
OBJECTS = {  # that no dtype tells
    "integers": (objects(1, 2, None), "number"),
    "floats": (objects(1, 2.5), "number"),
    "decimals": (objects(decimal.Decimal("1.5"), None), "number"),
    "several numbers": (objects(decimal.Decimal("1.5"), fractions.Fraction(1, 3), 2), "number"),
    "truths": (objects(True, None, False), "bool"),
    "days": (objects(DAY, None), "datetime"),
    "days and moments": (objects(DAY, NOW), "datetime"),
    "durations": (objects(datetime.timedelta(1)), "timedelta"),
    "texts": (objects("a", None), "text"),
    "text and numbers": (objects("a", 1), "category"),
    "lists": (objects([1], [2]), "category"),
    "clocks": (objects(datetime.time(1)), "category"),
    "complex": (objects(1j, "a"), "complex"),
    "nothing": (objects(None, np.nan), "empty"),
}


@pytest.mark.parametrize("name", CASES)
def test_by_dtype(name):
    column, kind = CASES[name]
    assert column_kind(column) == kind
    assert dtype_kind(column.dtype) == ("category" if name == "string" else kind)


@pytest.mark.parametrize("name", OBJECTS)
def test_by_value(name):
    column, kind = OBJECTS[name]
    assert column_kind(column) == kind
    assert dtype_kind(column.dtype) == "category"


def test_arrow_dtypes():
    pa = pytest.importorskip("pyarrow")
    for value, kind, expected in (
        (1, pa.int8(), "number"),
        (decimal.Decimal(1), pa.decimal128(5, 2), "number"),
        (True, pa.bool_(), "bool"),
        (DAY, pa.date32(), "datetime"),
        (NOW, pa.timestamp("ms", "UTC"), "datetime"),
        (pd.Timedelta("1h"), pa.duration("s"), "timedelta"),
        ("a", pa.string(), "text"),
        (b"a", pa.binary(), "category"),
        ([1], pa.list_(pa.int8()), "category"),
    ):
        array = pa.chunked_array([pa.array([value, None], kind)])
        column = pd.Series(pd.arrays.ArrowExtensionArray(array))
        assert column_kind(column) == expected, kind


def test_of_categories():
    for values, kind in (([1, 2], "number"), ([True, False], "bool"), (["a"], "text")):
        column = pd.Series(values, dtype="category")
        assert column_kind(column) == "category"
        assert column_kind(column, of_categories=True) == kind


def test_objects_of_periods_are_dates_to_an_encoder():
    months = pd.period_range("2024-01", periods=3, freq="M")
    typed, untyped = (
        TableEncoder().fit_transform(pd.DataFrame({"m": pd.Series(months, dtype=dtype)}))
        for dtype in (months.dtype, object)
    )
    np.testing.assert_array_equal(typed, untyped)


# ---- Frames of other libraries -------------------------------------------------------------------


NOON = dt.datetime(2020, 1, 1, 12)


def test_the_dtypes_of_a_polars_frame():
    pl = pytest.importorskip("polars")
    columns = {
        "whole": ([1, 2], "int64"),
        "gaps": ([1, None], "Int64"),
        "float": (pl.Series([1.5, None], dtype=pl.Float32), "float32"),
        "truths": ([True, False], "bool"),
        "some truths": ([True, None], "boolean"),
        "decimal": ([decimal.Decimal("1.5"), None], "float64"),
        "text": (["a", None], "object"),
        "category": (pl.Series(["a", None], dtype=pl.Categorical), "object"),
        "day": ([NOON.date(), None], "datetime64[us]"),
        "moment": ([NOON, None], "datetime64[us]"),
        "zoned": (
            pl.Series([NOON]).dt.replace_time_zone("Asia/Seoul"),
            "datetime64[us, Asia/Seoul]",
        ),
        "clock": ([NOON.time(), None], "timedelta64[ns]"),
        "span": ([dt.timedelta(1), None], "timedelta64[us]"),
        "nothing": ([None, None], "object"),
        "lists": ([[1], [2, 3]], "object"),
    }
    for name, (values, dtype) in columns.items():
        got = as_pandas(pl.DataFrame({name: values}))[name]
        assert str(got.dtype) == dtype, name
    assert as_pandas(pl.Series([[1], [2, 3]])).tolist() == [[1], [2, 3]]


def test_what_is_no_frame_is_given_back():
    for X in (np.zeros((2, 2)), pd.DataFrame({"a": [1]}), [[1, 2]], None, "text"):
        assert as_pandas(X) is X


def test_lazy_frames_are_refused_by_name():
    pl = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"reference.*collect"):
        as_pandas(pl.DataFrame({"a": [1]}).lazy(), "reference")


def test_mode_encoder_takes_an_arrow_table():
    pa = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "c": ["a", "b", "a"]})
    frames = (frame, pa.Table.from_pandas(frame))
    expected, got = (ModeEncoder(random_state=0, min_frequency=1).fit(X) for X in frames)
    rows = expected.encode(frame)
    assert_frame_equal(got.decode(rows.values, rows.codes), frame)


def test_an_arrow_target():
    pa = pytest.importorskip("pyarrow")
    assert infer_task(pa.table({"y": ["a", "b"]})) == "classification"
    assert infer_task(pa.chunked_array([[0.5, None, 2.0]])) == "regression"
