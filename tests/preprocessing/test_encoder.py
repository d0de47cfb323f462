"""What TableEncoder does to a table, and its state as arrays and JSON."""

import datetime as dt
import decimal
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from combutab.preprocessing import Span, TableEncoder

# in a column of codes those of one row share one
pytestmark = pytest.mark.filterwarnings("ignore:nothing is learned from")


def every(**parameters):  # these tables have a few rows, and every category counts
    return TableEncoder(**parameters, min_frequency=1)


@pytest.fixture
def mixed() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [30.0, np.nan, 50.0, 40.0],
            "city": ["Rome", "Oslo", None, "Rome"],
            "member": [True, False, True, True],
            "visits": [1, 2, 3, 6],
            "street": ["a", "b", "a", "b"],
        }
    )


def test_encoding_matches_a_table_by_hand(mixed):
    encoder = every(max_onehot=2)
    mixed["code"] = ["u", "v", "w", "v"]
    encoded = encoder.fit_encode(mixed)
    assert encoder.kinds_ == ("number", "category", "bool", "number", "category", "category")
    assert encoder.spans_ == (
        Span(0, "numeric", slice(0, 1)),
        Span(2, "numeric", slice(1, 2)),
        Span(3, "numeric", slice(2, 3)),
        Span(0, "indicator", slice(3, 4)),
        Span(1, "onehot", slice(4, 7)),
        Span(4, "onehot", slice(7, 9)),
        Span(5, "code", slice(0, 1)),
    )
    a, b = np.sqrt(1.5), np.sqrt(3.5)  # ages have variance 200 / 3, visits 14 / 4
    expected = [
        [-a, 1, -2 / b, 0, 0, 1, 0, 1, 0],
        [0, 0, -1 / b, 1, 1, 0, 0, 0, 1],
        [a, 1, 0, 0, 0, 0, 1, 1, 0],
        [0, 1, 3 / b, 0, 0, 1, 0, 0, 1],
    ]
    assert encoded.dense.dtype == np.float32
    assert encoded.codes.dtype == np.int64
    assert_allclose(encoded.dense, expected, atol=1e-6)
    assert encoded.codes.tolist() == [[0], [1], [0], [1]]  # u and w were seen once
    assert encoder.cardinalities_ == (2,)
    assert encoder.n_dense_ == 9
    assert encoder.categories_ == {1: ["Oslo", "Rome", None], 4: ["a", "b"], 5: ["v"]}
    assert encoder.get_feature_names_out().tolist() == [
        "age",
        "member",
        "visits",
        "age_missing",
        "city_Oslo",
        "city_Rome",
        "city_nan",
        "street_a",
        "street_b",
        "code",
    ]


def test_unseen_and_missing_categories():
    X = pd.DataFrame({"c": ["x", "y", "x", "y", None]})
    later = pd.DataFrame({"c": ["z", None, "y"]})
    onehot = every().fit(X)
    assert_allclose(onehot.encode(later).dense, [[0.4, 0.4, 0.2], [0, 0, 1], [0, 1, 0]])
    coded = every(max_onehot=1).fit(X)
    assert coded.encode(later).codes.tolist() == [[0], [3], [2]]
    assert coded.cardinalities_ == (4,)
    complete = X.dropna()  # a missing value that is first seen later counts as unseen
    expected = [[0.5, 0.5], [0.5, 0.5], [0, 1]]
    assert_allclose(every().fit(complete).encode(later).dense, expected)
    coded = every(max_onehot=1).fit(complete)
    assert coded.encode(later).codes.tolist() == [[0], [0], [2]]
    assert coded.cardinalities_ == (3,)


@pytest.mark.parametrize("min_frequency", [1, 5])
def test_column_of_unique_values_has_one_code(min_frequency):
    X = pd.DataFrame({"id": [f"row {i}" for i in range(100)]})
    encoder = TableEncoder(max_onehot=0, min_frequency=min_frequency)
    with pytest.warns(UserWarning, match="'id'"):
        encoded = encoder.fit_encode(X)
    assert encoded.codes.tolist() == [[0]] * 100
    assert encoder.cardinalities_ == (1,)


def test_more_categories_than_max_onehot_become_codes():
    X = pd.DataFrame({"c": list("aabbcc")})
    assert every(max_onehot=3).fit(X).cardinalities_ == ()
    assert every(max_onehot=2).fit(X).cardinalities_ == (4,)
    assert every(max_onehot=2).fit(X).n_dense_ == 0


def ordered_sizes(values, order=("small", "medium", "large")):
    return pd.DataFrame({"size": pd.Categorical(values, order, ordered=True)})


def test_ordered_categories_become_codes_in_their_order():
    X = ordered_sizes(["large", "small", None, "medium", "large", "small", "medium"])
    encoder = TableEncoder(min_frequency=1).fit(X)
    assert (encoder.ordered_, encoder.cardinalities_) == ((3,), (5,))
    assert encoder.encode(X).codes.ravel().tolist() == [3, 1, 4, 2, 3, 1, 2]
    texts = X.astype({"size": object})
    assert encoder.encode(texts).codes.ravel().tolist() == [3, 1, 4, 2, 3, 1, 2]
    assert encoder.describe_columns() == {"size": "ordered category: embedding of 5 codes"}
    arrays, state = encoder.to_state()
    assert TableEncoder.from_state(arrays, json.loads(json.dumps(state))).ordered_ == (3,)


def test_rare_ordered_categories_count_as_unseen():
    X = ordered_sizes(["large"] * 5 + ["medium"] + ["small"] * 5)
    encoder = TableEncoder(min_frequency=5).fit(X)
    assert encoder.ordered_ == (2,)
    assert encoder.encode(X).codes.ravel().tolist() == [2] * 5 + [0] + [1] * 5


def test_parts_have_one_order_of_categories():
    first, empty = ordered_sizes(["large", "small"] * 3), ordered_sizes([None], [])
    later = ordered_sizes(["small", "medium", "large"] * 3)
    encoder = TableEncoder().fit_batches((part, None) for part in (empty, first, later))
    whole = TableEncoder().fit(pd.concat([empty.astype(first.dtypes), first, later]))
    assert encoder.categories_ == whole.categories_ == {0: ["small", "large", None]}
    for wrong in (
        ordered_sizes(["large"], ["large", "medium", "small"]),
        ordered_sizes(["huge"], ["small", "medium", "large", "huge"]),
        pd.DataFrame({"size": ["huge"]}, dtype="category"),
    ):
        with pytest.raises(ValueError, match=r"column 'size'.*order.*'small', 'medium', 'large'"):
            TableEncoder().fit_batches((part, None) for part in (first, wrong))


def test_types_of_categories_are_told_apart():
    X = pd.DataFrame({"c": pd.Series([1, "1", 2.0, True, b"1", "2"], dtype=object)})
    encoder = every().fit(X)
    assert encoder.categories_ == {0: [1, 2, "1", "2", b"1"]}  # True is 1, as in Python
    later = pd.DataFrame({"c": pd.Series([1.0, "1", 2, "2.0"], dtype=object)})
    mean = np.array([0.33, 0.17, 0.17, 0.17, 0.17]) / 1.01  # of 2, 1, 1, 1 and 1 of 6 rows
    assert_allclose(encoder.encode(later).dense, [*np.eye(5)[[0, 2, 1]], mean])
    names = encoder.get_feature_names_out().tolist()
    assert names == ["c_1", "c_2", "c_1_2", "c_2_2", "c_b'1'"]


def objects(*values):
    return pd.Series(values, dtype=object)


DAY = pd.Timestamp("2024-01-01")
HOUR = pd.Timedelta("1h")
HALF = np.float16(0.1)


@pytest.mark.parametrize(
    ("fitted", "later", "found"),
    [
        # numbers for text, as pandas reads a column without its one "A7"
        (["1", "2", "A7"], [1, 2, 3], ["1", "2", None]),
        (["1", "2", "A7"], [1.0, np.nan, 3.0], ["1", None, None]),
        (["1.0", "2.50", "A7"], [1, 2.5], ["1.0", "2.50"]),
        ([" 1", "2 "], pd.Series([1, 2], dtype="Int64"), [" 1", "2 "]),
        (["01", "+2", "1_0"], [1, 2, 10], [None, "+2", None]),
        ([2**60 + 1, 2**60 + 2], [str(2**60 + 1), f"{2**60 + 2}.0"], [2**60 + 1, 2**60 + 2]),
        ([2**60 + 1, 3], objects(decimal.Decimal(2**60 + 1), 2.0**60), [2**60 + 1, None]),
        (objects(decimal.Decimal(2**60 + 1)), [2**60 + 1, 2**60], [2**60 + 1, None]),
        # which of two is not known; what is equal comes first
        (objects("1", "1.0", "A7"), [1, 1.0], [None, None]),
        (objects("1", 1), objects(1.0, "1", "1.0", b"1"), [1, "1", None, None]),
        (["1", "x"], objects("1.0", "1"), [None, "1"]),
        (["1", "x"], objects(np.int8(1), np.str_("1")), ["1", "1"]),
        (objects(np.int8(1), np.int64(2)), objects("1", 2), [1, 2]),
        # booleans
        (["true", "False"], [True, False], ["true", "False"]),
        ([True, False], objects("TRUE", "0", "no"), [True, False, None]),
        (["1", "0"], [True, False], ["1", "0"]),
        (["1", "true"], [True, False], [None, None]),
        ([0, 1], objects("true", "FALSE"), [1, 0]),
        # dates and durations
        (["2024-01-01", "x"], [DAY, DAY + pd.Timedelta("1h")], ["2024-01-01", None]),
        (["2024-01-01", "x"], objects(DAY.date()), ["2024-01-01"]),
        ([DAY], objects("2024-01-01", "2024-01-01T00:00", "2024-13-01"), [DAY, DAY, None]),
        ([DAY], [DAY.tz_localize("UTC"), DAY.tz_localize("Asia/Seoul")], [DAY, None]),
        (["1 days 00:00:00", "x"], [pd.Timedelta("1D")], ["1 days 00:00:00"]),
        ([HOUR], objects("01:00:00", "P0DT1H0M0S", "Party"), [HOUR, HOUR, None]),
        # bytes, floats of less precision, what is numpy's
        (["a", "1"], np.array([b"a", b"1", b"\xff"], dtype=object), ["a", "1", None]),
        (objects(b"a", b"1"), objects("a", 1, np.str_("a")), [b"a", b"1", b"a"]),
        ([0.1, 0.25], np.array([0.1, 0.25], np.float32), [0.1, 0.25]),
        (np.array([HALF]), objects(0.1, "0.1", 0.0999), [float(HALF), float(HALF), None]),
    ],
)
def test_equal_categories_of_other_types_match(fitted, later, found):
    X = pd.DataFrame({"c": pd.Series(fitted)})
    X = pd.concat([X, X])
    later = pd.DataFrame({"c": pd.Series(later)})
    for max_onehot in (32, 0):
        encoder = every(categorical_features=["c"], max_onehot=max_onehot).fit(X)
        keys = encoder.categories_[0]
        if max_onehot == 0 and len(keys) == 1:
            continue  # all values have the one code
        codes = encoder.read(later)[1][:, 0] - (max_onehot == 0)
        assert [keys[code] if code >= 0 else None for code in codes] == found


def test_mostly_unknown_categories_warn():
    n = 40
    X = pd.DataFrame(
        {"c": ["01", "02"] * n, "id": [f"name {i}" for i in range(2 * n - 8)] + ["x"] * 8}
    )
    encoder = TableEncoder().fit(X)
    said = (
        r"0 of 80 values of column 'c' are known to the model \(1, 2; known: '01', '02'\): the "
        r"others are treated as unseen"
    )
    new = pd.DataFrame({"c": [1, 2] * n, "id": [f"other {i}" for i in range(2 * n)]})
    for transform in (encoder.encode, encoder.read):
        with pytest.warns(UserWarning, match=said) as caught:
            transform(new)
        assert len(caught) == 1  # most names were rare in fit, too
    with pytest.warns(UserWarning, match="0 of 15 values of column 'c'"):
        encoder.encode(new[:15])
    encoder.encode(new[:9])  # of a few rows each may be new
    encoder.encode(new.assign(c=["01", *["03"] * 9] * 8))  # a tenth is known
    encoder.encode(new.assign(c=None))
    with pytest.warns(UserWarning, match="4 of 80 values"):
        encoder.encode(new.assign(c=["01", *["03"] * 19] * 4))


@pytest.mark.parametrize(
    ("fitted", "later", "said"),
    [
        (["a", "b"], [DAY], r"'2024-01-01 00:00:00'.*'a'"),
        ([1, 2], [DAY], r"'c'.*2024.*01.*01"),
        ([DAY], [1, 2], r"'c'.*1.*'2024-01-01 00:00:00'"),
        (["a", "1"], pd.to_timedelta([1], unit="h"), "such as '0 days 01:00:00'"),
        ([DAY], pd.to_timedelta([1], unit="h"), "such as '0 days 01:00:00'"),
    ],
)
def test_types_that_can_mean_no_category_are_refused(fitted, later, said):
    X = pd.DataFrame({"c": pd.Series(fitted)})
    encoder = every(categorical_features=["c"]).fit(X)
    with pytest.raises(ValueError, match=said):
        encoder.encode(pd.DataFrame({"c": later}))
    encoder.encode(pd.DataFrame({"c": objects(*later, "new")}))  # text may mean anything
    encoder.encode(pd.DataFrame({"c": pd.Series([pd.NaT])}))


def test_unused_categories_get_no_column():
    X = pd.DataFrame({"c": pd.Categorical(["b", "a"], categories=["z", "b", "a"])})
    encoder = every().fit(X)
    assert encoder.categories_ == {0: ["a", "b"]}
    other = pd.DataFrame({"c": pd.Categorical(["z", "b", "a"], categories=["q", "a", "z", "b"])})
    assert encoder.encode(other).dense.tolist() == [[0.5, 0.5], [0, 1], [1, 0]]


def test_missing_number_first_seen_later_is_the_mean():
    X = pd.DataFrame({"a": [1.0, 3.0]})
    encoder = every().fit(X)
    assert encoder.encode(pd.DataFrame({"a": [np.nan]})).dense.tolist() == [[0]]
    raw = every(numeric="none").fit(X)
    assert raw.encode(pd.DataFrame({"a": [np.nan]})).dense.tolist() == [[2]]


def test_truth_values_stay_zero_and_one():
    X = pd.DataFrame({"a": pd.Series([True, None, False, True], dtype="boolean")})
    encoder = every().fit(X)
    assert_allclose(encoder.encode(X).dense, [[1, 0], [2 / 3, 1], [0, 0], [1, 0]])
    later = pd.DataFrame({"a": ["True", "false", "TRUE"]})
    assert encoder.encode(later).dense[:, 0].tolist() == [1, 0, 1]


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.none(), st.integers(-3, 3), st.floats(-2, 2), st.sampled_from("abc")),
        min_size=2,
        max_size=30,
    ),
    seed=st.integers(0, 2**32 - 1),
    max_onehot=st.integers(0, 5),
)
def test_order_of_the_rows_does_not_matter(values, seed, max_onehot):
    column = pd.Series(values, dtype=object)
    X = pd.DataFrame({"c": column, "n": np.arange(len(values)) ** 2.0})
    order = np.random.default_rng(seed).permutation(len(values))
    encoder, shuffled = every(max_onehot=max_onehot), every(max_onehot=max_onehot)
    straight = encoder.fit_encode(X)
    again = shuffled.fit_encode(X.iloc[order])
    assert encoder.spans_ == shuffled.spans_
    assert_allclose(again.dense, straight.dense[order], atol=1e-5)
    assert_array_equal(again.codes, straight.codes[order])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("from_dtype", [False, True, False]),
        (None, None),
        ([1], [False, True, False]),
        ([0, -2], [True, True, False]),
        (["a", "b"], [True, True, False]),
        (np.array(["b", "c"]), [False, True, True]),
        (pd.Series(["b"]), [False, True, False]),
        ([False, True, True], [False, True, True]),
        (np.array([True, True, False]), [True, True, False]),
    ],
)
def test_categorical_features(chosen, expected):
    X = pd.DataFrame({"a": [1, 2], "b": ["3", "4"], "c": [5.0, 6.0]})
    kinds = every(categorical_features=chosen).fit(X).kinds_
    assert [kind == "category" for kind in kinds] == (expected or [False] * 3)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([5], "has the position 5, but X has 3 columns"),
        ([True], "mask of length 1, but X has 3 columns"),
        (["q"], r"categorical_features.*'q'"),
        ([1.5], "must be a mask, positions or column names"),
        ([[0, 1]], "must be a mask, positions or column names"),
        ("auto", "from_dtype"),
    ],
)
def test_wrong_categorical_features_are_named(chosen, message):
    X = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [5.0, 6.0]})
    with pytest.raises(ValueError, match=message):
        every(categorical_features=chosen).fit(X)


def test_names_need_a_frame():
    with pytest.raises(ValueError, match="DataFrame"):
        every(categorical_features=["a"]).fit(np.ones((2, 2)))


def test_names_are_distinct():
    X = pd.DataFrame({"a": [1.0, np.nan], "a_missing": [1.0, 2.0], "c": ["1", "2"]})
    X["d"] = pd.Series([1, "1"], dtype=object)
    names = every().fit(X).get_feature_names_out().tolist()
    assert len(set(names)) == len(names) == 7


def test_fitted_encoder_holds_no_rows():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    for method in ("standard", "robust", "quantile", "none"):
        encoder = every(numeric=method).fit(X)
        held = sum(array.nbytes for array in encoder.to_state()[0].values())
        assert held < 1100 * 3 * 8
        for value in vars(encoder).values():
            assert not (isinstance(value, np.ndarray) and len(value) == len(X))


# ---- A fitted encoder as arrays and JSON: exact, without pickle ----------------------------------


# in a column of codes those of one row share one


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
            "number": [0.1, np.nan, 1e150, -5.0],
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


def test_state_is_a_copy(table):
    encoder = every().fit(table)
    before = encoder.encode(table).dense
    arrays, _ = encoder.to_state()
    for array in arrays.values():
        array[...] = 1
    assert_array_equal(encoder.encode(table).dense, before)


def test_foreign_states_are_refused(table):
    arrays, meta = every().fit(table).to_state()
    del arrays["scaler.centre"]
    with pytest.raises(ValueError, match=r"'scaler.centre'"):
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


LATER_EMPTY = {  # a column without values, as readers of files and databases have it
    "float": pd.Series([np.nan]),
    "object": pd.Series([None], dtype=object),
    "category": pd.Series([None], dtype="category"),
    "nullable": pd.Series([pd.NA], dtype="Int64"),
    "date": pd.Series([pd.NaT]),
}


@pytest.mark.filterwarnings("ignore:text is read as")
@pytest.mark.parametrize("dtype", LATER_EMPTY)
def test_columns_without_values_may_have_any_dtype(dtype):
    numbers = np.arange(40)
    dates = pd.Series(pd.date_range("2024-01-01", periods=40, freq="25h"))
    X = pd.DataFrame(
        {
            "number": numbers.astype(float),
            "boolean": numbers % 2 == 0,
            "category": numbers % 3,
            "date": dates,
            "duration": pd.to_timedelta(numbers, "h"),
            "date text": dates.dt.strftime("%d-%b-%Y"),
            "clock text": dates.dt.strftime("%H:%M"),
            "unit text": [f"{number}.5 km" for number in numbers],
        }
    )
    encoder = TableEncoder().fit(X.astype({"category": "category"}))
    for name in X:
        later = X[:1].assign(**{name: LATER_EMPTY[dtype]})
        expected = encoder.transform(X[:1].assign(**{name: X[name].iloc[:1].shift()}))
        assert np.array_equal(encoder.transform(later), expected), name


@pytest.mark.parametrize("value", [5, "5", 1.5, True, pd.Timestamp("2024-01-01"), b"1h"])
def test_durations_need_a_unit(value):
    encoder = TableEncoder().fit(pd.DataFrame({"wait": pd.to_timedelta(np.arange(9), "h")}))
    with pytest.raises(ValueError, match="column 'wait' holds timedeltas"):
        encoder.transform(pd.DataFrame({"wait": pd.Series([value, None], dtype=object)}))


def test_times_of_day_are_durations_since_midnight():
    encoder = TableEncoder().fit(pd.DataFrame({"wait": pd.to_timedelta(np.arange(9), "h")}))
    later = [
        encoder.transform(pd.DataFrame({"wait": [value]}))
        for value in (dt.time(3), "3h", "03:00:00", dt.timedelta(hours=3), np.timedelta64(3, "h"))
    ]
    assert len({array.item() for array in later}) == 1


N_CONSTANT = 40
CONSTANT = {  # a column of fit, and values that it has later
    "boolean": (np.zeros(N_CONSTANT, bool), [True]),
    "all missing": (np.full(N_CONSTANT, np.nan), [5.0]),
    "all missing text": (pd.Series([None] * N_CONSTANT, dtype=object), ["a", 2.0]),
    "number": (np.full(N_CONSTANT, 0.1), [7.0, np.nan]),
    "category": (["a"] * N_CONSTANT, ["b", None]),
    "rare categories": ([f"id {i}" for i in range(N_CONSTANT)], ["id 1", "b", None]),
    "duration": (pd.to_timedelta([1] * N_CONSTANT, "h"), [pd.Timedelta("2h")]),
    "date": (pd.to_datetime(["2024-01-01 00:00"] * N_CONSTANT), [pd.Timestamp("2025-07-07 07:07")]),
}


@pytest.mark.parametrize(
    ("numeric", "max_onehot"), [("standard", 0), ("quantile", 32), ("robust", 32), ("none", 32)]
)
@pytest.mark.parametrize("name", CONSTANT)
def test_values_new_to_a_constant_column_change_nothing(name, max_onehot, numeric):
    fitted, later = CONSTANT[name]
    X = pd.DataFrame({"x": np.arange(N_CONSTANT) % 3, "c": fitted})
    encoder = TableEncoder(
        numeric=numeric, max_onehot=max_onehot, date_features=["number", "hour", "month"]
    ).fit(X)
    assert not encoder.transform(X)[:, 1:].std(axis=0).any()
    mean = encoder.transform(X).mean(axis=0, where=(X["x"] == 1).to_numpy()[:, None])
    for value in later:
        new = pd.DataFrame({"x": [1], "c": pd.Series([value], dtype=X["c"].dtype)})
        assert_allclose(encoder.transform(new)[0], mean, atol=1e-6)


def test_constant_booleans_encode_only_missingness():
    X = pd.DataFrame({"c": pd.array([True, None] * 20, "boolean")})
    encoder = TableEncoder().fit(X)
    assert encoder.transform(X)[:2].tolist() == [[0, 0], [0, 1]]
    assert encoder.transform(pd.DataFrame({"c": [False]})).tolist() == [[0, 0]]


def test_date_parts_that_did_not_vary_are_zero():
    noons = pd.DataFrame({"sold": pd.date_range("2021-01-01 06:00", periods=80, freq="12h")})
    encoder = TableEncoder(date_features=["hour", "month"]).fit(noons)  # 6 and 18 o'clock
    assert encoder.calendars_[0].varied.tolist() == [True, False, True, True]
    later = encoder.transform(pd.DataFrame({"sold": pd.to_datetime(["2021-01-01 00:00"])}))
    assert_allclose(later, [[0, 0, 0, 0, 1]], atol=1e-6)
