"""ModeEncoder gives every dtype back: values, missing ones, resolution; also after a save."""

import datetime as dt
import decimal
import json
import uuid

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from combutab.preprocessing import ModeEncoder

N = 120
RNG = np.random.default_rng(0)
GONE = RNG.random(N) < 0.15
INTS = pd.Series(RNG.integers(-50, 50, N))
FLOATS = pd.Series(RNG.normal(size=N))
DECIMALS = FLOATS.round(2)
WORDS = pd.Series(RNG.choice(["b", "a", "ünï"], N), dtype=object)
DAYS = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D"))
SECONDS = pd.Series(DAYS.iloc[0] + pd.to_timedelta(RNG.integers(0, 10**7, N), unit="s"))
ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
MIXED = [1, "1", (1, "a"), b"x", dt.date(2020, 1, 1), decimal.Decimal("1.5"), frozenset([1, 2])]
MIXED += [
    None,
    0.1,
    dt.time(1, 2),
    dt.timedelta(1),
    uuid.UUID(int=7),
    pd.Timestamp("2020", tz=ZONE),
]
MIXED += [pd.Timedelta("1ns"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]


def _gaps(column: pd.Series) -> pd.Series:
    return column.mask(GONE)


# name -> column that comes back exactly: all but numbers finer than float32 tells
EXACT = {
    "int": INTS,
    "int8": INTS.astype("int8"),
    "uint64": (INTS + 50).astype("uint64") + np.uint64(2**63),
    "int beside an offset": INTS + 2**62,
    "Int64": _gaps(INTS.astype("Int64")),
    "UInt8": _gaps((INTS + 60).astype("UInt8")),
    "decimals": DECIMALS,
    "decimals of float32": DECIMALS.astype("float32"),
    "float16": FLOATS.astype("float16"),
    "decimals with gaps": _gaps(DECIMALS),
    "floats beside an offset": 1e9 + DECIMALS / 1000,
    "Float64": _gaps(DECIMALS.astype("Float64")),
    "Float32": _gaps(DECIMALS.astype("Float32")),
    "smallest": pd.Series(RNG.integers(0, 5, N) * 5e-324),
    "bool": INTS > 0,
    "boolean": _gaps((INTS > 0).astype("boolean")),
    "str": pd.Series(WORDS.tolist()),
    "str with gaps": _gaps(pd.Series(WORDS.tolist())),
    "object": WORDS,
    "object with None": WORDS.where(~GONE, None),
    "object with NaN": WORDS.where(~GONE, np.nan),
    "object with NA": WORDS.where(~GONE, pd.NA),
    "object of integers": INTS.astype(object),
    "string": _gaps(WORDS.astype("string")),
    "category": _gaps(WORDS.astype("category")),
    "ordered, unused": pd.Series(pd.Categorical(WORDS, ["d", "ünï", "b", "a"], ordered=True)),
    "category of int": (INTS % 3).astype("category"),
    "category of intervals": pd.Series(pd.cut(FLOATS, 4)),
    "category of days": pd.Series(pd.Categorical(DAYS.dt.tz_localize("Europe/Paris"))),
    "mixed": pd.Series([MIXED[i % len(MIXED)] for i in range(N)], dtype=object),
    "days": DAYS,
    "days of ns": _gaps(DAYS.astype("datetime64[ns]")),
    "seconds of s": _gaps(SECONDS.astype("datetime64[s]")),
    "seconds of us": SECONDS.astype("datetime64[us]"),
    "days of a zone": _gaps(DAYS.dt.tz_localize("Europe/Paris")),
    "seconds of a zone": SECONDS.dt.tz_localize("UTC").dt.tz_convert("America/New_York"),
    "fixed zone": DAYS.dt.tz_localize(ZONE),
    "timedelta": _gaps(pd.Series(pd.to_timedelta(INTS, unit="h"))),
    "period": _gaps(DAYS.dt.to_period("M")),
    "sparse": pd.Series(np.where(GONE, DECIMALS, 0)).astype(pd.SparseDtype(float, 0.0)),
    "sparse int": pd.Series(np.where(GONE, INTS, 0)).astype(pd.SparseDtype(int, 0)),
    "constant": pd.Series(np.full(N, 0.1)),
    "constant text": pd.Series(["x"] * N),
    "constant day": pd.Series([pd.Timestamp("2020-01-01", tz="Europe/Paris")] * N),
    "constant with gaps": pd.Series(np.where(GONE, np.nan, 0.1)),
    "all NaN": pd.Series(np.full(N, np.nan)),
    "all None": pd.Series([None] * N, dtype=object),
    "all NA": pd.Series([pd.NA] * N, dtype="Int64"),
    "all NaT": pd.Series([pd.NaT] * N, dtype="datetime64[s]"),
    "all gaps of a category": pd.Series(pd.Categorical([None] * N, ["a", "b"])),
}
_ARROW = {
    "int": (INTS, "int8"),
    "uint": ((INTS + 50).astype("uint64") + np.uint64(2**63), "uint64"),
    "double": (DECIMALS, "float64"),
    "float": (DECIMALS.astype("float32"), "float32"),
    "bool": (INTS > 0, "bool_"),
    "string": (WORDS, "string"),
    "binary": (WORDS.str.encode("utf-8"), "binary"),
    "date32": (DAYS.dt.date, "date32"),
    "date64": (DAYS.dt.date, "date64"),
    "time32": (SECONDS.dt.time, ("time32", "s")),
    "time64": (SECONDS.dt.time, ("time64", "us")),
    "timestamp": (SECONDS, ("timestamp", "us")),
    "zone": (DAYS.dt.tz_localize("Europe/Paris"), ("timestamp", "ms", "Europe/Paris")),
    "duration": (pd.Series(pd.to_timedelta(INTS, unit="h")), ("duration", "s")),
    "decimal": (DECIMALS.map(lambda x: decimal.Decimal(str(x))), ("decimal128", 8, 2)),
    "dictionary": (WORDS, "dictionary"),
}


def _arrow(name: str) -> pd.Series:
    pa = pytest.importorskip("pyarrow")
    column, kind = _ARROW[name]
    if kind == "dictionary":
        dtype = pa.dictionary(pa.int32(), pa.string())
    else:
        dtype = getattr(pa, kind)() if isinstance(kind, str) else getattr(pa, kind[0])(*kind[1:])
    values = [None if gone else value for value, gone in zip(column.tolist(), GONE, strict=True)]
    return pd.Series(values, dtype=pd.ArrowDtype(dtype))


def _saved(encoder: ModeEncoder) -> ModeEncoder:
    arrays, meta = encoder.to_state()
    assert all(array.dtype.kind in "if" for array in arrays.values())
    return ModeEncoder.from_state(arrays, json.loads(json.dumps(meta, allow_nan=False)))


def _check_exact(X: pd.DataFrame, **parameters) -> None:
    encoder = ModeEncoder(random_state=0, **parameters).fit(X)
    encoded = encoder.encode(X)
    assert (np.abs(encoded.values) < 1).all()
    again = encoder.decode(encoded.values, encoded.codes)
    assert_frame_equal(again, X, rtol=0, atol=0)
    for column in X:
        for one, other in zip(X[column], again[column], strict=True):
            assert type(one) is type(other)
    saved = _saved(encoder)
    assert saved.layout_ == encoder.layout_
    assert saved.categories_.keys() == encoder.categories_.keys()
    other = saved.encode(X)
    np.testing.assert_array_equal(other.values, encoded.values)
    np.testing.assert_array_equal(other.codes, encoded.codes)
    assert_frame_equal(saved.decode(other.values, other.codes), X, rtol=0, atol=0)
    assert json.dumps(saved.to_state()[1]) == json.dumps(encoder.to_state()[1])


@pytest.mark.parametrize("name", EXACT)
def test_comes_back_exactly(name):
    _check_exact(pd.DataFrame({name: EXACT[name]}))


@pytest.mark.parametrize("name", _ARROW)
def test_arrow_comes_back_exactly(name):
    _check_exact(pd.DataFrame({name: _arrow(name)}))


@pytest.mark.parametrize(
    "name", ["int8", "UInt8", "decimals", "float16", "Float32", "seconds of s"]
)
def test_listed_numbers_are_discrete(name):
    X = pd.DataFrame({name: EXACT[name]})
    _check_exact(X, discrete_columns=[name])
    encoder = ModeEncoder(discrete_columns=[name]).fit(X)
    assert encoder.layout_.n_values == 0
    assert encoder.layout_.sizes == (X[name].nunique(dropna=False),)


def test_a_whole_table_and_its_names():
    X = pd.DataFrame(dict(enumerate(EXACT.values())))
    _check_exact(X)
    X = X.iloc[:, ::10]  # names know nothing of dtypes
    n = X.shape[1]
    X.columns = pd.Index([*range(n - 2), ("a", 0), ("a", 1)], tupleize_cols=False)
    _check_exact(X)
    X.columns = pd.MultiIndex.from_tuples([("x", i) for i in range(n)], names=["u", None])
    _check_exact(X)
    X.columns = pd.DatetimeIndex(DAYS.drop_duplicates()[:n], name="day")
    _check_exact(X)


def test_decimals_are_those_of_all_rows():
    X = pd.DataFrame({"x": np.r_[np.tile([1.0, 2.0], 1000), 1.25]})
    assert ModeEncoder().fit(X).columns_[0].format.decimals == 2


@pytest.mark.parametrize("listed", [[], ["x"]])
def test_nan_is_missing_as_null_is(listed):
    pa = pytest.importorskip("pyarrow")
    values = pa.array([1.0, float("nan"), None, 2.0, 1.0])
    X = pd.DataFrame({"x": pd.Series(pd.arrays.ArrowExtensionArray(values))})
    encoder = ModeEncoder(discrete_columns=listed, random_state=0).fit(X)
    encoded = encoder.encode(X)
    last = encoder.layout_.sizes[0] - 1
    assert (encoded.codes[:, 0] == last).tolist() == [False, True, True, False, False]
    again = encoder.decode(encoded.values, encoded.codes)["x"]
    assert again.dtype == X["x"].dtype
    assert again.to_numpy(dtype=float, na_value=np.nan)[[0, 3, 4]].tolist() == [1.0, 2.0, 1.0]
    if listed:
        assert encoder.categories_ == {"x": [1.0, 2.0, None]}


def test_days_stay_days_through_changes_of_the_clock():
    local = pd.Series(pd.date_range("2024-03-25", "2024-11-05", freq="D", tz="America/New_York"))
    X = pd.DataFrame({"day": local})
    encoder = ModeEncoder(random_state=0).fit(X)
    values = np.linspace(-1, 1, 5001)[:, None]
    for code in range(encoder.layout_.sizes[0]):
        made = encoder.decode(values, np.full((5001, 1), code))["day"]
        assert (made == made.dt.normalize()).all()
        assert made.between(local.min(), local.max()).all()
    hours = pd.Series(pd.date_range("2024-11-02", "2024-11-05", freq="h", tz="America/New_York"))
    _check_exact(pd.DataFrame({"hour": hours}))  # one of them is shown twice by the clocks


# ---- any table ---------------------------------------------------------------------------------

_MOMENTS = st.datetimes(min_value=dt.datetime(1700, 1, 1), max_value=dt.datetime(2200, 1, 1))
_SPANS = st.timedeltas(min_value=dt.timedelta(days=-9999), max_value=dt.timedelta(days=9999))
_HASHABLE = st.one_of(st.text(), st.integers(), st.binary(), st.dates(), st.tuples(st.integers()))
# dtype -> (its values, whether they may be missing, whether they are continuous)
_KINDS = {
    "int64": (st.integers(-(2**63), 2**63 - 1), False, True),
    "int8": (st.integers(-128, 127), False, True),
    "UInt64": (st.integers(0, 2**64 - 1), True, True),
    "float64": (st.floats(-1e150, 1e150), True, True),
    "float32": (st.floats(allow_nan=False, allow_infinity=False, width=32), True, True),
    "Float64": (st.integers(-9999, 9999).map(lambda i: i / 100), True, True),
    "datetime64[us]": (_MOMENTS, True, True),
    "datetime64[ns, Europe/Paris]": (_MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)), True, True),
    "timedelta64[us]": (_SPANS, True, True),
    "bool": (st.booleans(), False, False),
    "boolean": (st.booleans(), True, False),
    "string": (st.text(), True, False),
    "object": (_HASHABLE, True, False),
    "category": (st.text(max_size=2), True, False),
}


@st.composite
def tables(draw) -> pd.DataFrame:
    n_rows = draw(st.integers(1, 12))
    columns = {}
    for j, kind in enumerate(draw(st.lists(st.sampled_from(list(_KINDS)), min_size=1, max_size=4))):
        values, missing, _ = _KINDS[kind]
        cells = st.one_of(values, st.none()) if missing else values
        column = draw(st.lists(cells, min_size=n_rows, max_size=n_rows))
        columns[f"{kind} {j}"] = pd.Series(column, dtype=kind)
    return pd.DataFrame(columns)


def _as_numbers(column: pd.Series) -> list[int | float]:
    """Numbers that subtract exactly: ticks or floats."""
    if column.dtype.kind in "Mm":
        unit = pd.Timedelta(1, "ns") if "ns" in str(column.dtype) else pd.Timedelta(1, "us")
        zero = pd.Timedelta(0) if column.dtype.kind == "m" else pd.Timestamp(0)
        if getattr(column.dtype, "tz", None):
            zero = zero.tz_localize("UTC")
        return [(each - zero) // unit for each in column]
    return [int(x) if isinstance(x, int | np.integer) else float(x) for x in column]


@settings(max_examples=80, deadline=None)
@given(X=tables(), n_modes=st.integers(1, 4))
def test_any_table_comes_back(X, n_modes):
    encoder = ModeEncoder(n_modes=n_modes, random_state=0).fit(X)
    encoded = encoder.encode(X)
    again = encoder.decode(encoded.values, encoded.codes)
    assert list(again.columns) == list(X.columns)
    assert list(again.dtypes) == list(X.dtypes)
    assert_frame_equal(again.isna(), X.isna())
    saved = _saved(encoder)
    assert_frame_equal(saved.decode(encoded.values, encoded.codes), again)
    numeric = {
        span.column: span.value_index for span in encoder.layout_.spans if span.kind == "mode"
    }
    for j, name in enumerate(X.columns):
        if j not in numeric:
            assert_frame_equal(again[[name]], X[[name]], rtol=0, atol=0)
            continue
        present = X[name].notna().to_numpy()
        unclipped = present & (np.abs(encoded.values[:, numeric[j]]) < 1)
        column = encoder.columns_[j]
        before, after = (_as_numbers(table[name][unclipped]) for table in (X, again))
        sd = float(column.mixture.sds.max())
        if X[name].dtype.kind == "f":
            sd = float(np.ldexp(sd, column.format.exponent - 4)) * 16
        largest = max(map(abs, [*before, 0]))
        tolerance = sd * 2.0**-21 + largest * (2.0**-22 if "32" in name else 2.0**-50)
        for one, other in zip(before, after, strict=True):
            assert abs(one / 4 - other / 4) <= tolerance / 4
            if X[name].dtype.kind != "f" and tolerance < 0.5:
                assert one == other
