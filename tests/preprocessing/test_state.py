"""A fitted encoder as arrays and JSON: exact, without pickle."""

import datetime as dt
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone

from combutab.preprocessing import TableEncoder

# in a column of codes those of one row share one
pytestmark = pytest.mark.filterwarnings("ignore:nothing is learned from")


def every(**parameters):  # these tables have a few rows, and every category counts
    return TableEncoder(**parameters, min_frequency=1)


def _again(encoder: TableEncoder) -> TableEncoder:
    arrays, meta = encoder.to_state()
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    return TableEncoder.from_state(arrays, json.loads(json.dumps(meta, allow_nan=False)))


def _assert_same(one: TableEncoder, other: TableEncoder, X: object) -> None:
    for attribute in ("kinds_", "spans_", "n_dense_", "cardinalities_", "categories_"):
        assert getattr(one, attribute) == getattr(other, attribute)
    assert [[type(key) for key in m.keys] for m in one.category_maps_] == [
        [type(key) for key in m.keys] for m in other.category_maps_
    ]
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    assert_array_equal(one.encode(X).dense, other.encode(X).dense)
    assert_array_equal(one.encode(X).codes, other.encode(X).codes)


@pytest.fixture
def table() -> pd.DataFrame:
    moment = dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
    days = pd.to_datetime([moment, None, dt.datetime(2021, 6, 7), dt.datetime(2020, 1, 1)])
    return pd.DataFrame(
        {
            "number": [0.1, np.nan, 1e300, -5.0],
            "flag": [True, False, True, True],
            "text": ["ünï", "", None, "ünï"],
            "day": days,
            "day_category": pd.Categorical(days.tz_localize("Europe/Paris")),
            "int_category": pd.Categorical([2**62 + 1, 3, None, 3]),
            "float_category": pd.Categorical([0.1, np.nan, 1 / 3, 0.1]),
            "bool_category": pd.Categorical([True, False, None, True]),
            "mixed": pd.Series([1, "1", b"1", dt.timedelta(microseconds=1)], dtype=object),
            "delta": pd.to_timedelta([1, 2, None, 4]),
        }
    )


@pytest.mark.parametrize("numeric", ["standard", "quantile", "robust", "none"])
@pytest.mark.parametrize("max_onehot", [0, 2, 32])
def test_round_trip(table, numeric, max_onehot):
    encoder = every(numeric=numeric, max_onehot=max_onehot).fit(table)
    again = _again(encoder)
    assert again.get_params() == encoder.get_params()
    _assert_same(encoder, again, table)
    later = table.assign(text=["new", "", None, "ünï"], number=[1.0, 2.0, np.nan, 4.0])
    _assert_same(encoder, again, later)


def test_restored_encoder_pickles_clones_and_checks_names(table):
    again = _again(every(max_onehot=2).fit(table))
    _assert_same(again, pickle.loads(pickle.dumps(again)), table)
    _assert_same(again, _again(again), table)
    _assert_same(again, clone(again).fit(table), table)
    with pytest.raises(ValueError, match="same order"):
        again.encode(table[table.columns[::-1]])


@pytest.mark.parametrize(
    "chosen",
    [None, [1], np.array([1]), np.array([False, True]), ["b"], np.array(["b"]), pd.Series(["b"])],
)
def test_parameters_are_kept(chosen):
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]})
    encoder = every(categorical_features=chosen, max_onehot=np.int64(7)).fit(X)
    again = _again(encoder)
    _assert_same(encoder, again, X)
    _assert_same(encoder, clone(again).fit(X), X)
    assert again.max_onehot == 7


def test_without_names():
    X = np.random.default_rng(0).normal(size=(20, 3))
    again = _again(every(numeric="quantile").fit(X))
    assert not hasattr(again, "feature_names_in_")
    assert again.n_features_in_ == 3
    with pytest.raises(ValueError, match="X has 2 features"):
        again.encode(X[:, :2])


def test_state_is_a_copy(table):
    encoder = every().fit(table)
    before = encoder.encode(table).dense
    arrays, _ = encoder.to_state()
    for array in arrays.values():
        array[...] = 1
    assert_array_equal(encoder.encode(table).dense, before)


def test_foreign_states_are_refused(table):
    arrays, meta = every().fit(table).to_state()
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        TableEncoder.from_state(arrays, {**meta, "format": 99})
    del arrays["centre"]
    with pytest.raises(ValueError, match=r"lacks the arrays \['centre'\]"):
        TableEncoder.from_state(arrays, meta)


_KEYS = st.one_of(
    st.none(),
    st.text(),
    st.binary(max_size=4),
    st.integers(),
    st.floats(allow_infinity=False),
    st.booleans(),
    st.datetimes(min_value=dt.datetime(1700, 1, 1), max_value=dt.datetime(2200, 1, 1)),
    st.datetimes(
        min_value=dt.datetime(1700, 1, 1),
        max_value=dt.datetime(2200, 1, 1),
        timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30))]),
    ),
    st.timedeltas(min_value=dt.timedelta(days=-30_000), max_value=dt.timedelta(days=30_000)),
)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(_KEYS, min_size=1, max_size=20), max_onehot=st.integers(0, 30))
def test_any_categories_round_trip(values, max_onehot):
    column = pd.Series(values * 2, dtype=object)
    X = pd.DataFrame({"c": column})
    encoder = every(categorical_features=["c"], max_onehot=max_onehot).fit(X)
    _assert_same(encoder, _again(encoder), X)
    codes = encoder.transform(X)
    distinct = {value for value in values if not pd.isna(value)}
    assert len(np.unique(codes, axis=0)) == len(distinct) + any(map(pd.isna, values))
