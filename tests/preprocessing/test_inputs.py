"""Every kind of table and dtype that is accepted, and what is refused, with its words."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from combutab.preprocessing import OddColumnWarning, ParquetTable, TableEncoder

# in a column of codes those of one row share one
pytestmark = pytest.mark.filterwarnings("ignore:nothing is learned from")


def every(**parameters):  # these tables have a few rows, and every category counts
    return TableEncoder(**parameters, min_frequency=1)


_DAYS = [dt.datetime(2020, 1, 1), None, dt.datetime(2020, 1, 3)]

# name -> column of (low, missing, high), to be encoded as numbers
NUMERIC = {
    "float": pd.Series([1.0, None, 3.0]),
    "float32": pd.Series([1.0, None, 3.0], dtype="float32"),
    "Int64": pd.Series([1, None, 3], dtype="Int64"),
    "Float64": pd.Series([1.5, None, 3], dtype="Float64"),
    "object ints": pd.Series([1, None, 3], dtype=object),
    "object NA": pd.Series([1, pd.NA, 3.5], dtype=object),
    "decimals": pd.Series([decimal.Decimal("1.5"), None, decimal.Decimal(3)], dtype=object),
    "decimal and float": pd.Series([decimal.Decimal("1.5"), None, 3.5], dtype=object),
    "sparse": pd.Series([1.0, np.nan, 3.0], dtype="Sparse[float]"),
    "datetime": pd.Series(_DAYS, dtype="datetime64[ns]"),
    "datetime s": pd.Series(_DAYS, dtype="datetime64[s]"),
    "datetime tz": pd.Series(_DAYS, dtype="datetime64[ns]").dt.tz_localize("Europe/Paris"),
    "datetime objects": pd.Series(_DAYS, dtype=object),
    "dates": pd.Series([dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)], dtype=object),
    "period": pd.Series(pd.PeriodIndex(["2020-01", None, "2020-03"], freq="M")),
    "timedelta": pd.Series(pd.to_timedelta(["1 day", None, "3 days"])),
    "timedelta objects": pd.Series([dt.timedelta(1), None, dt.timedelta(3)], dtype=object),
    "times": pd.Series([dt.time(1), None, dt.time(3)], dtype=object),
}

# name -> column of (a, missing, b), to be encoded as categories
CATEGORIES = {
    "str": pd.Series(["a", None, "b"]),
    "string": pd.Series(["a", None, "b"], dtype="string"),
    "object": pd.Series(["a", np.nan, "b"], dtype=object),
    "category": pd.Series(["a", None, "b"], dtype="category"),
    "category of int": pd.Series([1, None, 2], dtype="category"),
    "category of dates": pd.Series(pd.Categorical(pd.to_datetime(_DAYS))),
    "intervals": pd.Series(pd.cut([1, np.nan, 5], 2).as_unordered()),
    "mixed": pd.Series([1, None, "1"], dtype=object),
    "bytes": pd.Series([b"a", None, b"b"], dtype=object),
}


def _arrow(kind: str) -> pd.Series:
    pa = pytest.importorskip("pyarrow")
    values, dtype = {
        "int": ([1, None, 3], pa.int64()),
        "double": ([1.0, None, 3.0], pa.float64()),
        "decimal": ([decimal.Decimal("1.5"), None, decimal.Decimal("3.5")], pa.decimal128(5, 2)),
        "timestamp": (_DAYS, pa.timestamp("us")),
        "timestamp tz": (_DAYS, pa.timestamp("us", "Europe/Paris")),
        "date": ([dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)], pa.date32()),
        "duration": ([dt.timedelta(1), None, dt.timedelta(3)], pa.duration("s")),
        "string": (["a", None, "b"], pa.string()),
        "dictionary": (["a", None, "b"], pa.dictionary(pa.int32(), pa.string())),
        "binary": ([b"a", None, b"b"], pa.binary()),
    }[kind]
    return pd.Series(values, dtype=pd.ArrowDtype(dtype))


def _check_numeric(X, later=None):
    encoder = every().fit(X)
    assert "category" not in encoder.kinds_
    for table in (X, X if later is None else later):
        assert_allclose(encoder.encode(table).dense, [[-1, 0], [0, 1], [1, 0]], atol=1e-6)


def _check_categories(X):
    encoder = every().fit(X)
    assert encoder.kinds_ == ("category",)
    assert encoder.encode(X).dense.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert every(max_onehot=0).fit(X).cardinalities_ == (2,)  # each value was seen once


@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_columns(name):
    _check_numeric(NUMERIC[name].to_frame("c"))


@pytest.mark.parametrize("name", CATEGORIES)
def test_categorical_columns(name):
    _check_categories(CATEGORIES[name].to_frame("c"))


@pytest.mark.parametrize("name", NUMERIC)
def test_any_numeric_column_can_be_declared_categorical(name):
    X = NUMERIC[name].to_frame("c")
    encoder = every(categorical_features=["c"]).fit(X)
    assert encoder.encode(X).dense.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    "kind", ["int", "double", "decimal", "timestamp", "timestamp tz", "date", "duration"]
)
def test_numeric_arrow_columns(kind):
    _check_numeric(_arrow(kind).to_frame("c"))


@pytest.mark.parametrize("kind", ["string", "dictionary", "binary"])
def test_categorical_arrow_columns(kind):
    _check_categories(_arrow(kind).to_frame("c"))


def test_polars_special_columns():
    pl = pytest.importorskip("polars")
    null = pl.DataFrame({"c": [None, None]})
    assert every().fit(null).encode(null).dense.tolist() == [[1], [1]]
    times = pl.DataFrame({"c": [dt.time(1), None, dt.time(3)]})
    _check_numeric(times)
    with pytest.raises(TypeError, match=r"call \.collect"):
        every().fit(null.lazy())


def _tables_of_times(folder):
    """Times of day in each library; the last column has the dtype category in pandas."""
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    times = [dt.time(1, 30), None, dt.time(23, 59, 59, 500_000), dt.time(1, 30)] * 5
    table = pd.DataFrame({"c": times}, dtype=object)
    table.to_parquet(folder / "times.parquet")
    ((_, from_file),) = ParquetTable(folder / "times.parquet").batches(["c"], 100)
    return {
        "pandas": table,
        "pandas arrow": table.astype(pd.ArrowDtype(pa.time64("us"))),
        "polars": pl.DataFrame({"c": times}),
        "pyarrow": pa.table({"c": times}),
        "parquet": from_file,
        "text": pd.DataFrame({"c": table["c"].map(str, na_action="ignore")}),
    }


def test_times_of_day_are_seconds_since_midnight(tmp_path):
    tables = _tables_of_times(tmp_path)
    for library in list(tables)[:-1]:
        encoder = every(numeric="none").fit(tables[library])
        assert encoder.kinds_ == ("timedelta",)
        for X in tables.values():
            assert encoder.encode(X).dense[[0, 2], 0].tolist() == [5400.0, 86399.5]
    with pytest.raises(ValueError, match="column 'c' holds timedeltas, but 'noon'"):
        encoder.encode(pd.DataFrame({"c": ["noon"]}))
    with pytest.warns(OddColumnWarning, match="c"):
        from_text = every(numeric="none").fit(pd.DataFrame({"c": ["9:05", "10:18"]}))
    assert from_text.encode(tables["pandas"]).dense[[0, 2], 0].tolist() == [5400.0, 86399.5]
    declared = tables["pandas"].astype("category")
    numbers = every(numeric="none", categorical_features=None).fit(declared)
    assert numbers.encode(declared).dense[[0, 2], 0].tolist() == [5400.0, 86399.5]


def test_times_of_day_declared_as_categories_are_the_same_from_each_library(tmp_path):
    tables = _tables_of_times(tmp_path)
    for library in tables:
        encoder = every(categorical_features=["c"], max_onehot=32).fit(tables[library])
        assert encoder.kinds_ == ("category",)
        for X in tables.values():
            assert_array_equal(encoder.encode(X).dense[:3], np.eye(3)[[0, 2, 1]])
    assert [list(every(categorical_features=["c"]).fit(X).categories_[0]) for X in tables.values()][
        :-1
    ] == [[pd.Timedelta("01:30:00"), pd.Timedelta("23:59:59.5"), None]] * 5


def test_times_of_day_in_a_time_zone_are_categories():
    X = pd.DataFrame({"c": [dt.time(1, tzinfo=dt.UTC), dt.time(2, tzinfo=dt.UTC)] * 5})
    assert every().fit(X).kinds_ == ("category",)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.longdouble, object])
def test_float_arrays_of_any_precision(dtype):
    _check_numeric(np.array([[1], [np.nan], [3]], dtype=dtype))


@pytest.mark.parametrize("fitted", [[True, False], [True, None, False]])
def test_booleans_take_no_other_numbers_than_0_and_1(fitted):
    encoder = every(numeric="none").fit(pd.DataFrame({"c": fitted}))
    for values in ([1, 0], [1.0, np.nan, 0.0], ["1", "false"], [True, None]):
        expected = [{"1": 1, "false": 0, None: np.nan}.get(value, value) for value in values]
        assert_array_equal(
            encoder.read(pd.DataFrame({"c": values}))[0][:, 0], np.array(expected, float)
        )
    for value in (2, -1, 0.5, "2"):
        with pytest.raises(ValueError, match=f"column 'c' held booleans in fit, and holds {value}"):
            encoder.encode(pd.DataFrame({"c": [1, value]}))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "bool"])
def test_integer_arrays(dtype):
    X = np.array([[0, 1], [1, 1]], dtype=dtype)
    expected = [[0, 0], [1, 0]] if dtype == "bool" else [[-1, 0], [1, 0]]
    assert every().fit(X).encode(X).dense.tolist() == expected


def test_lists_keep_the_types_of_their_columns():
    X = [[1, "a", None, True], [3, "b", 2.5, False]]
    for table in (X, tuple(map(tuple, X)), np.array(X, dtype=object)):
        encoder = every().fit(table)
        assert encoder.kinds_ == ("number", "category", "number", "bool")
        expected = [[-1, 0, 1, 1, 1, 0], [1, 0, 0, 0, 0, 1]]
        assert encoder.encode(table).dense.tolist() == expected


def test_string_arrays_are_categories_even_where_they_parse():
    X = np.array([["1", "a"], ["2", "b"]])
    assert every().fit(X).categories_ == {0: ["1", "2"], 1: ["a", "b"]}
    assert every(categorical_features=[1]).fit(X).kinds_ == ("number", "category")


def test_datetime_and_masked_arrays():
    _check_numeric(np.array([["2020-01-01"], ["NaT"], ["2020-01-03"]], dtype="datetime64[D]"))
    _check_numeric(np.ma.array([[1.0], [7.0], [3.0]], mask=[[0], [1], [0]]))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_sparse_is_scaled_without_centering(layout, kind):
    dense = np.array([[0, 2.0, 0], [0, 0, 5], [4, 0, 5]])
    X = kind(dense).asformat(layout)
    encoder = every().fit(X)
    expected = dense / np.sqrt(((dense - dense.mean(0)) ** 2).mean(0))
    assert_allclose(encoder.encode(X).dense, expected, rtol=1e-6)
    assert_allclose(encoder.encode(dense).dense, expected, rtol=1e-6)
    coded = every(categorical_features=[2]).fit(X)
    assert_allclose(coded.encode(X).dense[:, 2:], [[1, 0], [0, 1], [0, 1]])


def test_sparse_with_missing_values():
    X = scipy.sparse.csr_array(np.array([[0, 1.0], [np.nan, 0], [4.0, 0]]))
    encoded = every().fit(X).encode(X).dense
    assert_allclose(encoded[:, 0], [0, 1, 2])  # 0 and 4: mean 2, standard deviation 2
    assert_array_equal(encoded[:, 2], [0, 1, 0])


@pytest.mark.parametrize("method", ["robust", "quantile", "none"])
def test_sparse_equals_dense_where_nothing_is_centred_differently(method):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(50, 4)) * (rng.random((50, 4)) < 0.7)
    X = scipy.sparse.coo_array(dense)
    encoded = every(numeric=method).fit(X).encode(X).dense
    assert_allclose(encoded, every(numeric=method).fit(dense).encode(dense).dense, rtol=1e-6)


def test_sparse_that_does_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr("combutab.preprocessing._tables.available_memory", lambda: 1e6)
    with pytest.raises(MemoryError, match=r"1000 x 5000 needs 0.0 GB.*TruncatedSVD"):
        every().fit(scipy.sparse.csr_array((1000, 5000)))


def test_numbers_and_dates_that_arrive_as_text():
    numbers = every().fit(pd.DataFrame({"a": [1.0, 3.0]}))
    later = pd.DataFrame({"a": ["3.0", "1", "", " NA ", None]})
    assert numbers.encode(later).dense.ravel().tolist() == [1, -1, 0, 0, 0]
    dates = every().fit(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-03"])}))
    later = pd.DataFrame({"d": ["2020-01-03", "2020-01-01T00:00:00Z", None]})
    assert dates.encode(later).dense.ravel().tolist() == [1, -1, 0]
    spans = every().fit(pd.DataFrame({"t": pd.to_timedelta(["1 day", "3 days"])}))
    assert spans.encode(pd.DataFrame({"t": ["3 days", ""]})).dense.ravel().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("fitted", "later", "message"),
    [
        ([1.0, 2.0], ["1", "two"], r"'a'.*'two'"),
        ([1.0, 2.0], ["x", "y"], "column 'a' is numeric, but 'x' could not be converted"),
        ([True, False], ["yes", "no"], r"'a'.*'yes'"),
        ([1.0, 2.0], pd.to_datetime(["2020", "2021"]), "column 'a' holds numbers, got dates"),
        (pd.to_datetime(["2020", "2021"]), [1, 2], "column 'a' holds datetimes, got numbers"),
        (pd.to_datetime(["2020", "2021"]), ["2020", "soon"], "'soon'"),
        (pd.to_timedelta([1, 2]), ["x", "y"], "holds timedeltas, but 'x' could not be read"),
        ([1.0, 2.0], ["inf", "1"], "Input X contains infinity or a value too large"),
        ([1.0, 2.0], [1j, 2j], "Complex data not supported"),
    ],
)
def test_columns_that_changed_beyond_reading(fitted, later, message):
    encoder = every().fit(pd.DataFrame({"a": fitted}))
    with pytest.raises(ValueError, match=message):
        encoder.encode(pd.DataFrame({"a": later}))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([[np.inf], [1.0]], ValueError, "Input X contains infinity or a value too large for dtype"),
        (pd.DataFrame({"a": [1.0, -np.inf]}), ValueError, "Input X contains infinity"),
        (pd.DataFrame({"a": [np.inf, 2.0], "b": ["x", "y"]}), ValueError, "contains infinity"),
        (pd.DataFrame({"a": pd.Series(["x", np.inf], dtype=object)}), ValueError, "infinity"),
        (np.array([[1j]]), ValueError, "Complex data not supported"),
        (pd.DataFrame({"a": [1j]}), ValueError, "Complex data not supported"),
        (np.array([[1j, "a"]], dtype=object), ValueError, "Complex data not supported"),
        (scipy.sparse.csr_array([[1j]]), ValueError, "Complex data not supported"),
        (np.empty((0, 3)), ValueError, r"0.*shape=\(0, 3\)"),
        (np.empty((3, 0)), ValueError, r"0.*shape=\(3, 0\).*1"),
        (pd.DataFrame({"a": []}), ValueError, r"0.*shape=\(0, 1\)"),
        (pd.DataFrame(index=[0, 1]), ValueError, r"Found array with 0 feature\(s\)"),
        (pd.DataFrame([[1, 2, 3]], columns=list("aba")), ValueError, r"column names: \['a'\]"),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), TypeError, "names are only supported if all"),
        (np.array([1.0, 2.0]), ValueError, "Expected 2D array, got 1D array"),
        (pd.Series([1.0]), ValueError, "Expected a 2-dimensional container"),
        (np.zeros(3, [("a", float)]), ValueError, "DataFrame"),
        (np.ma.array([["a"]]), TypeError, "masked arrays must hold numbers"),
        (pd.DataFrame({"a": ["x", object()]}), TypeError, "'a', data row 2, holds an object: <obj"),
        (pd.DataFrame({"a": [None, (1, 2)]}), TypeError, "'a', data row 2, holds a tuple: .1, 2.;"),
        (pd.DataFrame({"a": [1, [2]]}), TypeError, "'a', data row 2, holds a list: .2.; a cell"),
        (np.array([[1, {"k": 2}]], dtype=object), TypeError, "column 1, data row 1, holds a dict"),
        ([[1], [1, 2]], ValueError, "inhomogeneous"),
    ],
)
def test_tables_that_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        every().fit(X)


def test_integer_column_names_are_no_feature_names():
    X = pd.DataFrame([[1.0, "a"], [2.0, "b"]])
    encoder = every().fit(X)
    assert not hasattr(encoder, "feature_names_in_")
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1_a", "x1_b"]


def test_columns_of_missing_values_only():
    X = pd.DataFrame({"f": [np.nan, np.nan], "o": pd.Series([None, None], dtype=object)})
    encoder = every().fit(X)
    assert encoder.encode(X).dense.tolist() == [[0, 1], [0, 1]]  # numbers have no indicator
    later = pd.DataFrame({"f": [7.0], "o": ["x"]})
    # a category that fit has not seen is the mean of its rows, all of which lacked one
    assert encoder.encode(later).dense.tolist() == [[0, 1]]


def test_one_row():
    X = pd.DataFrame({"a": [5.0], "b": ["x"], "c": [np.nan]})
    assert every().fit(X).encode(X).dense.tolist() == [[0, 0, 1]]


BASE = 2**60
NEAR = [BASE + i for i in range(20)]


@pytest.mark.parametrize(
    "column",
    [
        np.array(NEAR),
        np.array(NEAR, dtype=np.uint64),
        -np.array(NEAR),
        np.array([*NEAR, *[-1] * 30]),  # beside a code for missing ones
        pd.Series(NEAR, dtype=object),
        pd.Series([2**70 + i for i in range(20)], dtype=object),
        pd.Series([*NEAR, None], dtype="Int64"),
        pd.Series([decimal.Decimal(n) for n in NEAR]),
        pd.Series([str(n) for n in NEAR]),
        pd.Series([str(n) for n in NEAR], dtype="category"),
        pd.to_datetime(NEAR),
        pd.to_datetime(NEAR, utc=True),
        pd.Series(pd.to_datetime(NEAR)).astype(object),
        pd.to_timedelta(NEAR),
    ],
)
def test_numbers_that_float64_cannot_tell_apart_are_refused(column):
    X = pd.DataFrame({"x": 1.5, "n": column})
    said = r"column 'n' holds (numbers such as|times within .* seconds of one another)"
    encoder = every(categorical_features=None)
    with pytest.raises(ValueError, match=said):
        encoder.fit(X)
    with pytest.raises(ValueError, match=said):
        every(categorical_features=None).fit_batches((X[i : i + 5], None) for i in range(0, 20, 5))
    if isinstance(column, np.ndarray):
        with pytest.raises(ValueError, match="holds numbers such as"):
            every().fit(X[["n"]].to_numpy())


@pytest.mark.parametrize(
    "column",
    [
        np.full(20, BASE + 1),  # one value
        np.arange(20) * 2**58 + 1,
        BASE + 256 * np.arange(20),  # floats, all of them
        np.array(NEAR, dtype=np.float64),
        np.array(NEAR) - BASE,
        pd.date_range("2024-01-01", periods=20, freq="ms"),
        pd.to_datetime(np.arange(20)),
    ],
)
def test_distinguishable_large_numbers_are_accepted(column):
    X = pd.DataFrame({"n": column})
    dense = every().fit_encode(X).dense
    if X["n"].nunique() == len(X) and X["n"].dtype != np.float64:
        assert len(np.unique(dense)) == len(X)


def test_arrow_integers_that_float64_cannot_tell_apart(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pl = pytest.importorskip("polars")
    decimals = [decimal.Decimal(n) for n in NEAR]
    for type_, values in ((pa.int64(), NEAR), (pa.decimal128(22, 0), decimals)):
        table = pa.table({"n": pa.array([*values, None], type_)})
        for X in (
            table.to_pandas(types_mapper=pd.ArrowDtype),
            pl.from_arrow(table),
        ):
            with pytest.raises(ValueError, match=r"'n'.*11529215046068"):
                every().fit(X)
        pq.write_table(table, tmp_path / "t.parquet")
        ((_, frame),) = ParquetTable(tmp_path / "t.parquet").batches(["n"], 100)
        assert frame["n"].tolist() == [*NEAR, pd.NA]
        with pytest.raises(ValueError, match=r"'n'.*11529215046068"):
            every().fit_batches([(frame, None)])


def test_decimals_of_files_are_the_nearest_floats(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = [f"{i / 100:.2f}" for i in range(-50, 300)]
    values = [decimal.Decimal(text) for text in texts]
    table = pa.table({"n": pa.array([*values, None], pa.decimal128(9, 2))})
    pq.write_table(table, tmp_path / "t.parquet")
    ((_, frame),) = ParquetTable(tmp_path / "t.parquet").batches(["n"], 1000)
    assert_array_equal(frame["n"], [*map(float, texts), np.nan])
