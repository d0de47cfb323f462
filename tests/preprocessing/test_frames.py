"""Frames of other libraries are read in one way, by all that read tables."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from combutab.preprocessing import ModeEncoder, as_pandas, infer_task

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
    with pytest.raises(TypeError, match=r"reference is a lazy polars frame .*call \.collect"):
        as_pandas(pl.DataFrame({"a": [1]}).lazy(), "reference")


def test_a_mode_encoder_takes_an_arrow_table_by_its_names():
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
