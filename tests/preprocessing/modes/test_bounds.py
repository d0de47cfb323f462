"""Bounds that are no single row's: outward, coarse, and within what the dtype holds."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.modes._numbers import find_bounds


@settings(max_examples=300, deadline=None)
@example([0, 0, 0, 2, -8])  # an outlier that lies on a round number
@example([0.0, 0.0, *[9.99999999999998e299] * 2, 9.999999999999989e299])  # no round one is between
@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=60),
        st.lists(st.floats(-1e300, 1e300, allow_subnormal=False), min_size=5, max_size=60),
        st.lists(st.integers(-50, 50), min_size=5, max_size=60),
    )
)
def test_bounds_are_shared_or_no_row_s(values):
    x = np.array(values)
    low, high = find_bounds(x, 5)
    assert low <= high
    inner = np.sort(x)[[(len(x) + 1) // 2 - 1, -((len(x) + 1) // 2)]]
    assert low <= max(inner)
    assert high >= min(inner)
    for bound, extreme in ((low, x.min()), (high, x.max())):
        if (x == extreme).sum() >= 5:
            assert bound == extreme
        elif bound == extreme:  # a whole number next to zero, or zero itself, is no one's secret
            assert abs(extreme) <= 1
    assert low >= 0 or x.min() < 0
    assert high <= 0 or x.max() > 0


RNG = np.random.default_rng(0)
DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.permutation(600)[:99], unit="D")
COLUMNS = {
    "int8": pd.Series(RNG.permutation(256)[:99] - 128, dtype="int8"),
    "uint8": pd.Series(RNG.permutation(256)[:99], dtype="uint8"),
    "Int16": pd.Series([*RNG.integers(-32768, 32768, 99), None], dtype="Int16"),
    "int64": pd.Series(RNG.integers(-(2**63), 2**63 - 1, 99)),
    "uint64": pd.Series(RNG.integers(0, 2**64 - 1, 99, dtype=np.uint64)),
    "float16": pd.Series(RNG.uniform(-65000, 65000, 99).astype(np.float16)),
    "float32": pd.Series(RNG.uniform(-1, 1, 99).astype(np.float32) * np.float32(3.3e38)),
    "float64": pd.Series(RNG.uniform(-1, 1, 99) * 1.7e308),
    "days": pd.Series(DAYS),
    "days of a zone": pd.Series(DAYS.tz_localize("Europe/Oslo")),
    "hours of a zone": pd.Series(
        pd.date_range("2024-01-01", periods=5000, freq="7h", tz="America/New_York")
    ),
    "durations": pd.Series(pd.to_timedelta(RNG.permutation(10**6)[:99], unit="s")),
    "objects": pd.Series(list(RNG.permutation(10**6)[:99]), dtype=object),
    "sparse": pd.Series(pd.arrays.SparseArray(RNG.permutation(10**6)[:99])),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_of_every_dtype(name):
    """They come out in the dtype, on its grid, and other than the least and the greatest value."""
    column = COLUMNS[name]
    table = pd.DataFrame({"x": column})
    encoder = ModeEncoder(min_frequency=5, discrete_columns=[], random_state=0).fit(table)
    bounds = encoder.columns_[0].bounds
    assert bounds.dtype == column.dtype
    for bound, extreme in ((bounds[0], column.min()), (bounds[1], column.max())):
        full = name in ("int8", "uint8", "Int16", "float16")  # beyond there may be nothing
        assert bound != extreme or full
        if column.dtype.kind in "mM":
            assert abs(bound - extreme) <= (column.max() - column.min()) / 5
    if "zone" in name or name == "days":
        assert (bounds.dt.minute == 0).all()
        assert "hours" in name or (bounds == bounds.dt.normalize()).all()
    coded = encoder.encode(table)
    again = encoder.decode(coded.values, coded.codes)["x"]
    assert again.dtype == column.dtype


@pytest.mark.parametrize("kind", ["time32[s]", "time64[us]", "date32[day]", "decimal128(5, 2)"])
def test_bounds_of_arrow_types(kind):
    pa = pytest.importorskip("pyarrow")
    numbers = RNG.permutation(86_000)[:99]
    types = {
        "time32[s]": pa.array(numbers, pa.int32()).cast(pa.time32("s")),
        "time64[us]": pa.array((numbers + 399) * 10**6 + 1).cast(pa.time64("us")),
        "date32[day]": pa.array(numbers % 9999, pa.int32()).cast(pa.date32()),
        "decimal128(5, 2)": pa.array(numbers / 87).cast(pa.decimal128(5, 2), safe=False),
    }
    table = pd.DataFrame({"x": pd.Series(pd.arrays.ArrowExtensionArray(types[kind]))})
    encoder = ModeEncoder(min_frequency=5, discrete_columns=[], random_state=0).fit(table)
    coded = encoder.encode(table)
    made = encoder.decode(np.ones_like(coded.values), coded.codes)["x"]
    assert made.dtype == table["x"].dtype
