"""Which tables ModeEncoder takes, which columns are discrete, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from combutab.preprocessing import ModeEncoder, TableEncoder

N = 60
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "income": RNG.lognormal(3, 1, N).round(1),
        "city": RNG.choice(["Oslo", "Rome", "Bern"], N),
        "member": RNG.random(N) < 0.3,
    }
)


def _round_trip(X, **parameters):
    encoder = ModeEncoder(random_state=0, **parameters).fit(X)
    encoded = encoder.encode(X)
    again = encoder.decode(encoded.values, encoded.codes)
    arrays, meta = encoder.to_state()
    saved = ModeEncoder.from_state(arrays, json.loads(json.dumps(meta)))
    other = saved.decode(encoded.values, encoded.codes)
    assert type(other) is type(again)
    if isinstance(again, np.ndarray):
        assert other.dtype == again.dtype
        assert_frame_equal(pd.DataFrame(other), pd.DataFrame(again))
    return encoder, again


def _kinds(encoder):
    return {span.column: span.kind for span in encoder.layout_.spans}


# ---- arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", "i8", "u1", ">f8", ">i4", "M8[s]", "M8[D]", "m8[h]"]
)
def test_arrays_of_numbers(dtype):
    X = RNG.integers(0, 50, (N, 3)).astype("i8").astype(dtype)
    encoder, again = _round_trip(X)
    assert _kinds(encoder) == dict.fromkeys(range(3), "mode")
    assert again.dtype == X.dtype
    assert_array_equal(again, X)
    encoder, again = _round_trip(X, discrete_columns=[0, -1])
    assert _kinds(encoder) == {0: "category", 1: "mode", 2: "category"}
    assert_array_equal(again, X)
    span, code = encoder.condition_code(0, X[7, 0])
    assert encoder.layout_.spans[span].column == 0
    assert encoder.categories_[0][code] == X[7, 0]
    assert encoder.encode(X).codes[7, span] == code


@pytest.mark.parametrize("dtype", ["U4", "S4", "?"])
def test_arrays_of_categories(dtype):
    X = RNG.integers(0, 2, (N, 2)).astype(dtype)
    encoder, again = _round_trip(X)
    assert _kinds(encoder) == {0: "category", 1: "category"}
    assert again.dtype == X.dtype
    assert_array_equal(again, X)


def test_arrays_of_objects():
    X = FRAME.to_numpy(dtype=object)
    X[0, 0] = X[0, 1] = X[0, 2] = None
    encoder, again = _round_trip(X)
    assert _kinds(encoder) == {0: "mode", 1: "mode", 2: "category", 3: "category"}
    assert again.dtype == object
    assert np.isnan(again[0, 0])  # missing numbers are NaN
    assert np.isnan(again[0, 1])
    assert again[0, 2] is None
    assert again[1:].tolist() == X[1:].tolist()
    assert [type(value) for value in again[1]] == [type(value) for value in X[1]]


def test_arrays_with_nan_and_lists():
    X = np.where(RNG.random((N, 2)) < 0.2, np.nan, RNG.normal(size=(N, 2)).round(2))
    _, again = _round_trip(X)
    assert_array_equal(again, X)
    _, again = _round_trip(X.tolist())
    assert_array_equal(again, X)
    _, again = _round_trip([[1, "a"], [2, "b"], [4, "b"]])
    assert again.tolist() == [[1, "a"], [2, "b"], [4, "b"]]


# ---- frames ------------------------------------------------------------------------------------


def test_auto_goes_by_dtype():
    encoder, again = _round_trip(FRAME)
    assert _kinds(encoder) == {0: "mode", 1: "mode", 2: "category", 3: "category"}
    assert_frame_equal(again, FRAME)
    assert encoder.feature_names_in_.tolist() == list(FRAME.columns)
    assert encoder.n_features_in_ == 4


def test_integer_names():
    X = FRAME.set_axis([3, 2, 1, 0], axis=1)
    encoder, again = _round_trip(X, discrete_columns=[3, 1, 0])
    assert _kinds(encoder) == {0: "category", 1: "mode", 2: "category", 3: "category"}
    assert_frame_equal(again, X)
    assert not hasattr(encoder, "feature_names_in_")
    assert encoder.condition_code(1, "Rome")[1] == 2


@pytest.mark.parametrize(
    "listed", [np.array(["age", "city"]), pd.Index(["age", "city"]), ("age", "city")]
)
def test_listed_columns(listed):
    encoder, again = _round_trip(FRAME, discrete_columns=listed)
    kinds = _kinds(encoder)
    assert kinds == {0: "category", 1: "mode", 2: "category", 3: "category"}  # truth values too
    assert_frame_equal(again, FRAME)


def test_objects_that_are_not_listed_may_be_numbers():
    X = FRAME.assign(age=FRAME["age"].astype(object), income=FRAME["income"].astype(object))
    encoder, again = _round_trip(X, discrete_columns=["city"])
    assert _kinds(encoder) == {0: "mode", 1: "mode", 2: "category", 3: "category"}
    assert_frame_equal(again, X)
    huge = pd.DataFrame({"x": pd.Series([2**70, 2**71, 2**72], dtype=object)})
    _, again = _round_trip(huge, discrete_columns=[])
    assert again["x"].tolist() == pytest.approx(huge["x"].tolist(), rel=1e-6)


def test_order_and_index_of_a_later_table():
    encoder = ModeEncoder(random_state=0).fit(FRAME)
    shuffled = FRAME[FRAME.columns[::-1]].set_axis(range(100, 100 + N))
    assert_array_equal(encoder.encode(shuffled).codes, encoder.encode(FRAME).codes)
    narrow = FRAME.astype({"age": "int8", "city": "category", "member": object})
    assert_array_equal(encoder.encode(narrow).codes, encoder.encode(FRAME).codes)
    encoded = encoder.encode(FRAME.assign(age=1000, income=-1e9))
    at_bounds = encoder.encode(FRAME.assign(age=FRAME["age"].max(), income=FRAME["income"].min()))
    assert_array_equal(encoded.values, at_bounds.values)
    assert (encoder.decode(encoded.values, encoded.codes)["age"] == FRAME["age"].max()).all()


def test_fit_learns_anew():
    encoder = ModeEncoder(random_state=0).fit(FRAME)
    encoder.fit(FRAME[["age"]].to_numpy())
    assert encoder.n_features_in_ == 1
    assert not hasattr(encoder, "feature_names_in_")
    assert encoder.categories_ == {}


def test_nothing_to_decode():
    encoder = ModeEncoder(random_state=0).fit(FRAME)
    empty = encoder.decode(np.empty((0, 2)), np.empty((0, 4), int))
    assert_frame_equal(empty, FRAME.iloc[:0])


# ---- categories --------------------------------------------------------------------------------

_VALUES = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.booleans(), st.none(), st.dates())


@settings(max_examples=60, deadline=None)
@given(values=st.lists(_VALUES, min_size=2, max_size=15), seed=st.integers(0, 9))
def test_codes_do_not_depend_on_row_order(values, seed):
    X = pd.DataFrame({"c": pd.Series(values, dtype=object)})
    one = ModeEncoder().fit(X)
    other = ModeEncoder().fit(X.sample(frac=1, random_state=seed))
    assert one.categories_ == other.categories_  # as Python compares: 1 is True
    assert len(one.categories_["c"]) == len(set(values))
    if len(set(values)) > 1:
        codes = one.encode(X).codes[:, 0]
        assert [one.categories_["c"][code] for code in codes] == values
        counts = one.category_counts_[0]
        assert counts.tolist() == [values.count(value) for value in one.categories_["c"]]


# ---- what is refused ---------------------------------------------------------------------------


def _object_column(*values):
    return pd.DataFrame({"o": pd.Series(values, dtype=object)})


@pytest.mark.parametrize(
    ("X", "parameters", "words"),
    [
        (FRAME, {"discrete_columns": ["City"]}, r"'City'.*'city'"),
        (FRAME, {"discrete_columns": ["zzz"]}, r"'zzz'.*'age'"),
        (FRAME, {"discrete_columns": ["age"]}, r"\['city'\]"),
        (FRAME, {"discrete_columns": "city"}, "'discrete_columns' parameter"),
        (np.eye(3), {"discrete_columns": [3]}, "has the position 3, but X has 3"),
        (np.eye(3), {"discrete_columns": ["a"]}, "are positions, got 'a'"),
        (np.eye(3), {"discrete_columns": [True]}, "are positions, got True"),
        (FRAME.assign(age=np.inf), {}, "'age'"),
        (np.array([[2**70], [2**70 + 1]], dtype=object), {}, r"0.*118059"),
        (pd.DataFrame({"a": [1.0, -np.inf]}), {"discrete_columns": ["a"]}, "'a' has inf"),
        (np.array([[1.0, 2.0], [np.inf, 3.0]]), {}, "column 0 has infinite"),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), {}, r"duplicate .*\['age'\]; rename"),
        (FRAME.iloc[:0], {}, r"0.*shape=\(0, 4\)"),
        (FRAME[[]], {}, r"Found array with 0 feature\(s\)"),
        (FRAME["age"], {}, "single column"),
        (np.arange(3.0), {}, r"array of shape \(3,\)"),
        (np.eye(2) * 1j, {}, "Complex data"),
        (pd.DataFrame({"a": [1j, 2]}), {}, "Complex data"),
        (np.zeros(2, [("a", "f8")]), {}, "structured array"),
        (scipy.sparse.eye(3).tocsr(), {}, "toarray"),
        ("table", {}, "got a str"),
        (_object_column([1], [2]), {}, r"'o'.*\[1\]"),
        (FRAME, {"n_modes": 0}, "'n_modes' parameter"),
        (FRAME, {"min_weight": 1.0}, "'min_weight' parameter"),
        (FRAME, {"max_rows": 0}, "'max_rows' parameter"),
        (FRAME, {"random_state": "x"}, "'random_state' parameter"),
    ],
)
def test_what_fit_refuses(X, parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ModeEncoder(**parameters).fit(X)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (FRAME.assign(city="Paris"), r"'city'.*'Paris'"),
        (FRAME.assign(city=None), "'city'"),
        (FRAME.assign(income=np.nan), "'income'"),
        (FRAME.assign(age=0.5), "'age'"),
        (FRAME.assign(age="old"), "'age'"),
        (FRAME.assign(income=np.inf), "'income'"),
        (FRAME.drop(columns="age"), r"missing are \['age'\]"),
        (FRAME.assign(extra=1), r"unknown are \['extra'\]"),
        (FRAME.to_numpy(), "DataFrame"),
    ],
)
def test_what_encode_refuses(X, words):
    with pytest.raises(ValueError, match=words):
        ModeEncoder(random_state=0).fit(FRAME).encode(X)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("City", "Rome", r"'City'.*'city'"),
        (["city"], "Rome", r"no column \['city'\]"),
        ("city", "rome", r"'rome'.*'Bern'.*'Oslo'.*'Rome'"),
        ("city", ["Rome"], r"no value \['Rome'\]"),
        ("city", None, "no missing value in fit"),
        ("age", 30, "'age'"),
        ("one", 1, r"'one'.*1"),
        ("one", 2, r"'one'.*2"),
        ("id", "x", r"'0'.*'1'.*'10'.*'11'.*'12'.*55"),
    ],
)
def test_what_condition_code_refuses(column, value, words):
    X = FRAME.assign(one=1, id=[str(i) for i in range(N)])
    with pytest.raises(ValueError, match=words):
        ModeEncoder(random_state=0).fit(X).condition_code(column, value)


def test_what_decode_refuses():
    encoder = ModeEncoder(random_state=0).fit(FRAME)
    good = encoder.encode(FRAME)
    values, codes = good.values, good.codes.copy()
    with pytest.raises(ValueError, match=r"n_rows.*2.*n_rows.*4.*60.*1"):
        encoder.decode(values[:, :1], codes)
    with pytest.raises(ValueError, match=r"59.*60"):
        encoder.decode(values[1:], codes)
    with pytest.raises(ValueError, match="must be finite"):
        encoder.decode(values * np.nan, codes)
    with pytest.raises(ValueError, match=r"integers.*float32"):
        encoder.decode(values, codes.astype("f4"))
    codes[3, 0] = encoder.layout_.sizes[0]
    with pytest.raises(ValueError, match=r"0.*'member'.*0.*1"):
        encoder.decode(values, codes)


def test_what_states_refuse():
    encoder = ModeEncoder(random_state=0).fit(FRAME)
    arrays, meta = encoder.to_state()
    with pytest.raises(ValueError, match=r"'columns\.\d\.mixture\.means'"):
        without = {name: each for name, each in arrays.items() if "means" not in name}
        ModeEncoder.from_state(without, meta)
    (some, *_) = (name for name in arrays if "means" in name)
    with pytest.raises(ValueError, match="of several lengths"):
        ModeEncoder.from_state({**arrays, some: np.append(arrays[some], 1.0)}, meta)
    with pytest.raises(TypeError, match="type object"):
        ModeEncoder().fit(_object_column(object(), object())).to_state()
    with pytest.raises(TypeError, match="type datetime64"):
        ModeEncoder().fit(_object_column(np.datetime64(1, "ns"), "a")).to_state()


def test_states_hold_no_rows_and_no_views():
    encoder = ModeEncoder(random_state=np.random.default_rng(0)).fit(FRAME)
    arrays, meta = encoder.to_state()
    assert sum(array.size for array in arrays.values()) < 3 * 2 * 10 + 10
    assert meta["parameters"]["random_state"] == {"@generator": None}
    one = ModeEncoder(random_state=0).fit(FRAME[["age", "city"]])
    arrays, meta = one.to_state()
    again = ModeEncoder.from_state(arrays, meta)
    before = one.encode(FRAME[["age", "city"]])
    counts = one.category_counts_[0].tolist()
    for array in arrays.values():
        array[...] = 1
    for each in (one, again):
        assert_array_equal(each.encode(FRAME[["age", "city"]]).values, before.values)
        assert each.category_counts_[0].tolist() == counts
    listed = ModeEncoder(discrete_columns=["city", "age"], random_state=np.int64(3)).fit(FRAME)
    again = ModeEncoder.from_state(*listed.to_state())
    assert again.get_params() == listed.get_params()


@pytest.mark.parametrize(
    "columns", [{"age"}, {"age": 1}.keys(), pd.array(["age"]), pd.Index(["age"])], ids=type
)
def test_columns_may_be_listed_in_any_collection(columns):
    table = pd.DataFrame({"age": FRAME["age"] // 30, "income": FRAME["income"]})
    encoder, _ = _round_trip(table, discrete_columns=columns)
    assert list(encoder.categories_) == ["age"]
    dense = TableEncoder(categorical_features=columns).fit(table)
    assert TableEncoder.from_state(*dense.to_state()).categorical_features == ["age"]


def test_masked_cells_are_missing():
    masked = np.ma.masked_array([[1.0, 5.0], [2.0, 6.0], [3.0, 8.0]], [[0, 1], [0, 0], [0, 0]])
    table = ModeEncoder(random_state=0).fit(masked).encode(masked)
    again = ModeEncoder(random_state=0).fit(masked).decode(table.values, table.codes)
    np.testing.assert_allclose(again, masked.filled(np.nan))
