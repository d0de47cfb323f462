"""Bounds, rounding steps and quantile bins of numbers."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from combutab import CTGAN, TVAE, TabFlow
from combutab.core.state import pack
from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.modes import _numbers, given_numbers, merge_bins
from combutab.preprocessing.modes._numbers import (
    NARROW,
    RoundingSteps,
    Sample,
    _round_between,
    find_bounds,
    find_rounding_steps,
    fit_bins,
)

# ---- How finely numbers are written --------------------------------------------------------------


RNG = np.random.default_rng(0)
N = 600
HALVES = np.round(RNG.gamma(3.0, 20.0, N)) + 0.5 * (RNG.random(N) < 0.05)


def thirds():
    """Of one decimal, but for a few that are thirds."""
    x = np.round(RNG.normal(10.0, 1.0, N), 1)
    return np.where(RNG.random(N) < 0.04, np.round(3 * x) / 3, x)


@pytest.mark.parametrize(
    ("x", "decimals", "steps"),
    [
        (HALVES, 1, (5, 10)),
        (100.0 * np.round(RNG.gamma(3.0, 20.0, N)), 0, (100,)),
        (np.r_[1000.0 * RNG.integers(1, 99, 300), RNG.integers(1, 99_000, 300)], 0, (1, 1000)),
        (np.round(RNG.normal(3.2, 0.15, N), 2), 2, None),
        (RNG.integers(0, 1000, N).astype(float), 0, None),
        (RNG.normal(size=N), None, None),
        (np.full(10, 5.0), 0, None),
        (2.0**60 + 4096.0 * np.arange(N), 0, None),
        (np.zeros(N), None, None),
    ],
)
def test_which_grids_are_seen(x, decimals, steps):
    rounding_steps = find_rounding_steps(x, decimals)
    if steps is None:
        assert rounding_steps is None
    else:
        assert set(steps) <= set(rounding_steps.steps)
        assert rounding_steps.steps[0] == steps[0]
        assert rounding_steps.steps[-1] == steps[-1]
        assert list(rounding_steps.shares) == sorted(rounding_steps.shares, reverse=True)


def test_no_finer_grid_than_enough_numbers_need():
    x = np.r_[np.arange(1.0, 100.0), 0.5, 2.5, 6.5]
    assert find_rounding_steps(x, 1, 3).steps == (5, 10)
    few = find_rounding_steps(x, 1, 5)
    assert (few.steps, few.shares) == ((10,), (1.0,))
    made = few.put(np.array([3.3]), np.array([0.999]), np.zeros(1), np.full(1, 9.0))
    assert made.tolist() == [3.0]


@pytest.mark.parametrize(("greatest", "bound"), [(86_399, 86_399), (86_410, 86_500)])
def test_times_of_day_stay_below_24_hours(greatest, bound):
    seconds = np.r_[np.linspace(70_000, 86_300, 400).round(), greatest]
    X = pd.DataFrame({"time": pd.to_timedelta(seconds, unit="s")})
    (column,) = ModeEncoder(min_frequency=5).fit(X).columns_
    assert column.bounds[1] == pd.Timedelta(bound, "s")


def test_zeros_do_not_make_one_number_a_rounding_step():
    x = np.r_[np.zeros(900), np.arange(1.0, 100_000.0, 2002.0), 50_000.0]
    assert find_rounding_steps(x, 0).steps[-1] == 50_000
    steps = find_rounding_steps(x, 0, 5).steps
    assert ((x % steps[-1] == 0) & (x != 0)).sum() >= 5


def test_shares_and_bounds_are_kept():
    rounding_steps = RoundingSteps(1, (1, 10, 50), (1.0, 0.7, 0.2))
    n = 20_000
    x, low = RNG.random(n) * 90, np.repeat([0.0, 2.26], n // 2)
    x, high = np.where(low > 0, 2.3, x), np.where(low > 0, 2.35, 100.0)
    put = rounding_steps.put(x, RNG.random(n), low, high)
    assert (put >= low).all()
    assert (put <= high).all()
    assert np.allclose(put[n // 2 :], 2.3), "the finer grid where the coarser has no place"
    put = np.round(10 * put[: n // 2]).astype(int)
    assert np.mean(put % 10 == 0) == pytest.approx(0.7 + 0.3 / 10, abs=0.02)
    assert np.mean(put % 50 == 0) == pytest.approx(0.2 + 0.5 / 5 + 0.3 / 50, abs=0.02)


@pytest.mark.parametrize("strategy", ["quantile", "mixture"])
def test_encoded_rows_come_back_as_they_were(strategy):
    X = pd.DataFrame({"halves": HALVES, "thirds": thirds(), "pennies": HALVES + 0.99})
    encoder = ModeEncoder(random_state=0).fit(X)
    if strategy == "quantile":
        encoder = ModeEncoder(strategy=strategy, n_modes=16, random_state=0).fit(X)
    assert encoder.columns_[1].format.decimals is None
    table = encoder.encode(X)
    back = encoder.decode(table.values, table.codes)
    np.testing.assert_allclose(back, X, rtol=1e-6)
    ones = np.isclose(10 * X["thirds"], np.round(10 * X["thirds"]), atol=1e-12)
    assert ones.mean() > 0.9
    assert back["thirds"][ones].tolist() == X["thirds"][ones].tolist(), "to the last digit"


MADE = {
    "TabFlow": lambda: TabFlow(hidden_layer_sizes=(16,), n_bins=8, epochs=3, random_state=0),
    "TVAE": lambda: TVAE(epochs=2, random_state=0),
    "CTGAN": lambda: CTGAN(epochs=1, batch_size=100, random_state=0),
}


@pytest.mark.parametrize("kind", MADE)
def test_made_numbers_are_written_as_real_ones(kind, tmp_path):
    X = pd.DataFrame(
        {
            "halves": HALVES,
            "thirds": thirds(),
            "thousands": (1000 * np.round(RNG.gamma(3.0, 20.0, N))).astype("int64"),
            "any": RNG.normal(size=N),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        }
    )
    model = MADE[kind]().fit(X)
    rows = model.sample(1000, random_state=1)
    assert (rows["halves"] % 1 == 0).mean() == pytest.approx((HALVES % 1 == 0).mean(), abs=0.05)
    assert (rows["halves"] % 0.5 == 0).all()
    assert (rows["thirds"].round(1) == rows["thirds"]).mean() == pytest.approx(0.96, abs=0.04)
    assert (rows["thousands"] % 1000 == 0).all()
    assert (rows["any"].round(3) != rows["any"]).mean() > 0.9
    assert (rows["day"].dt.normalize() == rows["day"]).all()
    pd.testing.assert_frame_equal(rows, model.sample(1000, random_state=1))
    # what few rows have, or none, can be asked for
    asked = model.sample(5, conditions={"halves": 30.5}, random_state=0)
    assert (asked["halves"] == 30.5).all()
    between = model.sample(5, conditions={"halves": (30.6, 30.9)}, random_state=0)
    assert between["halves"].between(30.6, 30.9).all()
    ends = {"thousands": (10_400, 60_700), "halves": (30.25, None)}
    within = model.sample(200, conditions=ends, random_state=0)
    assert within["thousands"].between(11_000, 60_000).all()
    assert (within["thousands"] % 1000 == 0).all()
    assert (within["halves"] % 0.5 == 0).all()
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    pd.testing.assert_frame_equal(rows, again.sample(1000, random_state=1))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (10, 5)},
        {"steps": (5.0, 10.0)},
        {"steps": (0, 10)},
        {"shares": (1.0,)},
        {"shares": (1.0, 2.0)},
        {"decimals": 400},
    ],
)
def test_state_that_is_no_grid_is_refused(change):
    encoder = ModeEncoder().fit(pd.DataFrame({"x": HALVES}))
    arrays, meta = encoder.to_state()
    meta = json.loads(json.dumps(meta))
    again = ModeEncoder.from_state(arrays, meta)
    assert again.columns_[0].rounding_steps == encoder.columns_[0].rounding_steps
    assert again.columns_[0].rounding_steps is not None
    packed = meta["columns"][0]["@NumberColumn"]["rounding_steps"]["@RoundingSteps"]
    packed |= pack(change)
    with pytest.raises(ValueError, match=r"RoundingSteps|rounding steps of the encoder's columns"):
        ModeEncoder.from_state(arrays, meta)


# ---- Bounds: shared by enough rows, or rounded outward -------------------------------------------


@settings(max_examples=300, deadline=None)
@example([0, 0, 0, 2, -8])  # an outlier that lies on a round number
@example([0.0, 0.0, *[9.99999999999998e149] * 2, 9.999999999999989e149])  # no round one is between
@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=60),
        st.lists(st.floats(-1e150, 1e150, allow_subnormal=False), min_size=5, max_size=60),
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


DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.permutation(600)[:99], unit="D")
COLUMNS = {
    "int8": pd.Series(RNG.permutation(256)[:99] - 128, dtype="int8"),
    "uint8": pd.Series(RNG.permutation(256)[:99], dtype="uint8"),
    "Int16": pd.Series([*RNG.integers(-32768, 32768, 99), None], dtype="Int16"),
    "int64": pd.Series(RNG.integers(-(2**63), 2**63 - 1, 99)),
    "uint64": pd.Series(RNG.integers(0, 2**64 - 1, 99, dtype=np.uint64)),
    "float16": pd.Series(RNG.uniform(-65000, 65000, 99).astype(np.float16)),
    "float32": pd.Series(RNG.uniform(-1, 1, 99).astype(np.float32) * np.float32(3.3e38)),
    "float64": pd.Series(RNG.uniform(-1, 1, 99) * 1e150),
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


# ---- Quantile bins -------------------------------------------------------------------------------


def fit(x, n_bins=8, min_count=1):
    x = np.asarray(x, dtype=float)
    return fit_bins(Sample(x, float(np.ptp(x)), 0), n_bins, min_count)


def edges(bins):
    wide = bins.sds > 1e-200
    return np.append((bins.means - 4 * bins.sds)[wide], (bins.means + 4 * bins.sds)[wide][-1])


def test_few_values_are_an_atom_each():
    bins = fit([0, 0, 1, 5, 5, 5])
    assert bins.means.tolist() == [0, 1, 5]
    assert_allclose(bins.weights, [2 / 6, 1 / 6, 3 / 6])
    x = np.array([5.0, 0.0, 1.0])
    codes = bins.draw(x, np.empty(0))
    assert codes.tolist() == [2, 0, 1]
    assert bins.scale(x, codes).tolist() == [0, 0, 0]
    assert_array_equal(bins.unscale(np.array([1.0, -1.0, 0.3]), codes), x)


def test_intervals_hold_equal_counts_except_tails():
    x = np.random.default_rng(0).lognormal(size=4000)
    bins = fit(x, n_bins=16)
    codes = bins.draw(x, np.empty(0))
    assert_allclose(np.bincount(codes) / 4000, bins.weights)
    inner = bins.weights[5:-5]
    assert_allclose(inner, 1 / 16, atol=0.002)
    # the outermost are halved, to 20 rows at least
    assert 20 <= bins.weights[0] * 4000 < 40
    assert 20 <= bins.weights[-1] * 4000 < 40
    assert bins.weights[-2] == pytest.approx(bins.weights[-1], abs=2 / 4000)
    assert (np.diff(edges(bins)) > 0).all()


def test_frequent_value_is_an_atom():
    rng = np.random.default_rng(1)
    x = np.r_[np.zeros(920), rng.normal(50, 9, 80).clip(1)]
    bins = fit(x, n_bins=32, min_count=5)
    assert bins.means[0] == 0
    assert bins.weights[0] == pytest.approx(0.92)
    assert bins.weights[1:].min() * 1000 >= 20  # of the others, each interval
    codes = bins.draw(x, np.empty(0))
    assert (codes[:920] == 0).all()
    assert (codes[920:] > 0).all()
    assert_allclose(bins.unscale(bins.scale(x, codes), codes), x, atol=1e-9)


def test_bins_have_minimum_counts_and_separate_values():
    x = np.random.default_rng(2).normal(size=300).round(3)
    bins = fit(x - x.min(), n_bins=64, min_count=30)
    assert (np.bincount(bins.draw(x - x.min(), np.empty(0))) >= 30).all()
    assert not set(edges(bins)[1:-1]) & set(x - x.min())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(4, 5, 4.5), (0.3, 2.9, 2.0), (100, 200, 128), (0, 1, 0.5), (-3, -1, -2), (-1, 2, 0)],
)
def test_cuts_are_round(low, high, expected):
    assert _round_between(low, high) == expected


def test_values_of_fewer_rows_are_in_no_bin():
    x = np.r_[np.zeros(995), 48151623.0, 1234.5, 77.25]
    bins = fit(x, n_bins=32, min_count=5)
    assert bins.means.tolist() == [0]
    codes = bins.draw(x, np.empty(0))
    assert not codes.any()
    assert not bins.scale(x, codes).any()
    shared = fit(np.r_[np.zeros(900), np.full(8, 2e-9)], n_bins=2, min_count=5)
    assert shared.means.tolist() == [0, 2e-9]  # no interval is of one value


@pytest.mark.parametrize("seed", range(5))
def test_ties_leave_no_interval_of_few_rows(seed):
    rng = np.random.default_rng(seed)
    x = np.repeat(np.cumsum(rng.uniform(1, 2, 400)), rng.choice([1, 2, 18], 400))
    bins = fit(x, n_bins=64, min_count=15)
    assert np.bincount(bins.draw(x, np.empty(0)), minlength=len(bins.means)).min() >= 15


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e150), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_every_value_has_a_bin_and_comes_back(values, n_bins, min_count):
    x = np.array(values)
    bins = fit(x, n_bins, min_count)
    codes = bins.draw(x, np.empty(0))
    assert ((codes >= 0) & (codes < len(bins.means))).all()
    counts = np.bincount(codes, minlength=len(bins.means))
    assert counts.min() >= min(min_count, len(x))
    back = bins.unscale(bins.scale(x, codes), codes)
    same = np.isclose(back, x, rtol=1e-9, atol=1e-9 * max(1e-280, np.ptp(x), x.max()))
    assert (~same).sum() < min_count  # those that no bin is of, beside atoms
    assert np.isfinite(np.r_[bins.weights, bins.means, bins.sds]).all()
    assert (np.r_[bins.weights, bins.sds] > 0).all()  # or no file would load


TABLE = pd.DataFrame(
    {
        "amount": np.random.default_rng(0).normal(size=500).round(2),
        "zeros": np.where(np.arange(500) % 10, 0.0, np.arange(500) / 7),
        "count": np.arange(500) % 7,
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(500) % 97, unit="D"),
    }
)
TABLE.loc[::9, "amount"] = np.nan


def recurring(n=4000):
    """Numbers of which some recur: 300 of 2.5, 40 of 7.25, 5 of 9.125, 4 of 9.5."""
    rng = np.random.default_rng(0)
    rest = rng.uniform(0, 10, n - 349)
    return rng.permutation(np.r_[np.full(300, 2.5), [7.25] * 40, [9.125] * 5, [9.5] * 4, rest])


def test_numbers_that_recur_are_points_of_their_interval():
    x = recurring()
    bins = fit(x, n_bins=8, min_count=5)
    assert bins.points.tolist() == [2.5, 7.25, 9.125]
    codes = bins.draw(x, np.empty(0))
    held = np.bincount(codes, minlength=len(bins.weights))
    assert_allclose(bins.shares, np.array([300, 40, 5]) / held[bins.draw(bins.points, codes)])
    # places that are spread evenly give each its share
    n = 100_000
    places = np.random.default_rng(1).uniform(-1, 1, n)
    made = bins.unscale(places, np.random.default_rng(2).choice(codes, n))
    for value, count in ((2.5, 300), (7.25, 40), (9.125, 5)):
        assert (made == value).mean() == pytest.approx(count / 4000, rel=0.2)
    assert len(np.unique(made)) > 0.9 * n  # all others differ


def test_points_decode_from_anywhere_on_their_step():
    x = recurring()
    bins = fit(x, n_bins=8, min_count=5)
    codes = bins.draw(x, np.empty(0))
    point = np.isin(x, bins.points)
    for steps in (0.01, 0.5, np.random.default_rng(0).uniform(0.01, 0.99, len(x))):
        places = bins.scale(x, codes, steps).astype(np.float32)
        again = bins.unscale(places, codes)
        assert_array_equal(again[point], x[point])
        assert_allclose(again, x, atol=1e-5)
        order = np.lexsort((places, codes))  # places ascend as the numbers do
        assert (np.diff(again[order]) >= 0).all()
    assert np.ptp(places[x == 2.5]) > 0.9 * 2 * bins.shares[0]


def test_an_interval_of_recurring_numbers_alone():
    x = np.repeat(np.arange(100.0), 6)
    bins = fit(x, n_bins=8, min_count=5)
    assert bins.points.tolist() == np.arange(100).tolist()
    codes = np.repeat(np.arange(len(bins.weights)), 1001)
    made = bins.unscale(np.tile(np.linspace(-1, 1, 1001), len(bins.weights)), codes)
    assert set(made) == set(x)
    codes = bins.draw(x, np.empty(0))
    assert_array_equal(bins.unscale(bins.scale(x, codes).astype(np.float32), codes), x)


@pytest.mark.parametrize("least", [1, 5, 20])
def test_no_number_of_few_rows_is_kept(least):
    rng = np.random.default_rng(0)
    x = np.round(rng.gamma(2.0, 200.0, 9000))
    bins = fit(x, n_bins=16, min_count=least)
    values, counts = np.unique(x, return_counts=True)
    assert set(bins.points) <= set(values[counts >= max(5, least)])
    assert len(bins.points)


@pytest.mark.parametrize("change", [{"points": [7.25, 2.5, 9.125]}, {"shares": [0.5, 0.1]}])
def test_state_of_points_that_are_none_is_refused(change):
    encoder = ModeEncoder(strategy="quantile", n_modes=8, min_frequency=5)
    encoder.fit(pd.DataFrame({"x": recurring()}))
    arrays, meta = encoder.to_state()
    ModeEncoder.from_state(dict(arrays), meta)
    for name, values in change.items():
        (key,) = [each for each in arrays if each.endswith(name)]
        arrays[key] = np.array(values)
    with pytest.raises(ValueError, match="points"):
        ModeEncoder.from_state(arrays, meta)


def test_whole_numbers_are_rounded_evenly():
    """At a bin's ends as elsewhere: a cut between two whole numbers is halfway."""
    x = np.repeat(np.arange(200), 20)
    encoder = ModeEncoder(strategy="quantile", n_modes=10, random_state=0).fit(x[:, None])
    (column,) = encoder.columns_
    places = np.random.default_rng(0).uniform(-1, 1, 40_000).astype(np.float32)
    codes = np.random.default_rng(1).choice(column.size, 40_000, p=column.mixture.weights)
    made = encoder.decode(places[:, None], codes[:, None])[:, 0]
    counts = np.bincount(made.astype(int), minlength=200)
    assert counts.min() > 120  # of 200 expected
    assert counts.max() < 290


@pytest.mark.parametrize(
    ("dtype", "edges", "decimals"),
    [
        ("int64", (0, 18, 30, 65, 120), None),
        ("int64", (-3, 1000), None),
        ("Int16", (0, 5, 6, 40), None),
        ("int64", (0, 7), None),
        ("float64", (0.0, 18.0, 30.0, 120.0), 0),
        ("float64", (0.0, 120.0), 0),
        ("float64", (0.2, 0.4), 0),
        ("float64", (0.0, 1.0), 18),
        ("float64", (0.5, 6.5), 0),
        ("float64", (-0.5, 17.5, 29.5, 120.5), 0),
        ("float64", (-2.5, 40.0), 1),
        ("float64", (0.5, 3.7), None),
        ("datetime64[ns]", (pd.Timestamp("2020-01-01"), pd.Timestamp("2024-01-01")), None),
    ],
)
def test_sampled_numbers_encode_to_their_bin(dtype, edges, decimals):
    column = given_numbers(pd.Series([], dtype=dtype).dtype, "x", edges, 64, decimals)
    n = len(column.mixture.weights)
    codes = np.repeat(np.arange(n), 101)
    places = np.tile(np.linspace(-0.99, 0.99, 101), n)
    made = column.decode(codes, places)
    again = column.encode(made, "x", np.random.default_rng(0))[1]
    interval = column.mixture.sds[again] > NARROW  # others are read as their own bins
    assert (again == codes)[interval].all()
    if len(edges) > 2:
        counts = made.astype(float).groupby(codes).nunique().tolist()
        assert counts == [*np.diff(edges)[:-1], np.diff(edges)[-1] + (edges[-1] % 1 == 0)]


def test_noisy_bins_end_at_the_bounds():
    # numbers from 18 to 89 in bins of 1, with less in each of them than the noise hides
    column = given_numbers(np.dtype("int64"), "column 'age'", (0, 120), 256)
    exact = np.where((np.arange(121) >= 18) & (np.arange(121) < 90), 50.0, 0.0)
    assert len(column.mixture.weights) == len(exact)
    for seed in range(30):
        counts = exact + np.random.default_rng(seed).normal(0.0, 25.0, len(exact))
        groups = merge_bins(column, counts, 32, noise=100.0)
        starts = np.flatnonzero(np.diff(groups)) + 1
        assert 10 <= starts[0] <= 23
        assert 83 <= starts[-1] <= 98
        assert len(starts) >= 25


def test_values_of_bins_are_within_their_intervals():
    one = np.ones(1)
    bins = _numbers.Bins(
        one, 2 * one, one / 2, points=np.array([1.0, 1.5]), shares=np.array([0.7, 0.6])
    )
    values = bins.scale(np.array([0.5, 1.0, 1.5, 3.9]), np.zeros(4, dtype=int))
    assert np.abs(values).max() <= 1
