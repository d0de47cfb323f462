"""Scales of numeric columns and edges of their bins, against independent float64 computations."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, rankdata

from combutab.preprocessing import ModeEncoder, RunningMoments, TableEncoder

METHODS = ["standard", "quantile", "robust", "none"]


@pytest.fixture
def table() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(2000, 5)) * [1, 10, 1e-6, 1e6, 1] + [0, 0, 0, 0, 1e6]
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 0] = rng.integers(0, 4, 2000)
    return X


@pytest.mark.parametrize("piece", [64, 2**17])
def test_standard(table, piece, monkeypatch):
    monkeypatch.setattr(
        "combutab.preprocessing._tables._PIECE", piece
    )  # many pieces give what one gives
    encoded = TableEncoder().fit(table).encode(table).dense
    z = (table - np.nanmean(table, axis=0)) / np.nanstd(table, axis=0)
    assert_allclose(encoded[:, :5], np.nan_to_num(z, nan=0.0), rtol=1e-5, atol=1e-6)
    assert_array_equal(encoded[:, 5:], np.isnan(table[:, 1:]))


def test_mean_far_from_zero_keeps_its_precision():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=10_000)
    X = (1e9 + noise)[:, None]
    assert_allclose(X.mean(), 1e9, rtol=1e-9)
    encoded = TableEncoder().fit_encode(X).dense[:, 0]
    assert_allclose(encoded, (noise - noise.mean()) / noise.std(), atol=1e-6)


def test_robust(table):
    encoded = TableEncoder(numeric="robust", min_frequency=1).fit(table).encode(table).dense[:, :5]
    lower, median, upper = np.nanquantile(
        table, [0.25, 0.5, 0.75], axis=0, method="averaged_inverted_cdf"
    )
    z = (table - median) / (upper - lower)
    expected = np.nan_to_num(z / np.sqrt(1 + (z / 3) ** 2), nan=0.0)
    assert_allclose(encoded, expected, rtol=1e-5, atol=1e-6)


def test_robust_without_interquartile_range():
    X = np.array([[0.0]] * 9 + [[10.0]])
    encoded = TableEncoder(numeric="robust", min_frequency=1).fit(X).encode(X).dense[:, 0]
    assert_allclose(encoded[-1], 2 / np.sqrt(1 + (2 / 3) ** 2))  # 10 over half the range
    assert_array_equal(encoded[:-1], 0)


def test_quantile(table):
    encoded = TableEncoder(numeric="quantile").fit(table).encode(table).dense[:, :5]
    for j in range(5):
        values = table[:, j]
        present = values[~np.isnan(values)]
        ranks = (rankdata(present) - 0.5) / len(present)  # ties share the middle of their ranks
        assert_allclose(norm.cdf(encoded[~np.isnan(values), j]), ranks, atol=2e-3)
        assert_array_equal(encoded[np.isnan(values), j], 0)


def test_quantile_of_few_rows():
    X = np.array([[1.0], [2.0], [2.0], [100.0]])
    encoded = (
        TableEncoder(numeric="quantile", min_frequency=1)
        .fit(X)
        .encode([[1], [2], [100], [-9], [999]])
        .dense
    )
    expected = norm.ppf([1 / 8, 1 / 2, 7 / 8, 1 / 8, 7 / 8])
    assert_allclose(encoded[:, 0], expected, rtol=1e-2, atol=1e-2)


def test_quantile_of_copies_in_single_precision():
    X = np.tile([[0.1, 12345678.0, -0.3], [0.4, 12345679.0, -0.3], [0.7, 5.0, 7.0]], (20, 1))
    encoder = TableEncoder(numeric="quantile").fit(X)
    scores = encoder.encode(X).dense
    assert len(np.unique(scores[:, 1])) == 3
    assert_array_equal(encoder.encode(X.astype(np.float32)).dense, scores)
    of_copies = TableEncoder(numeric="quantile").fit(X.astype(np.float32))
    assert_array_equal(of_copies.encode(X).dense, scores)
    # two values that are one in single precision, beside a third: each keeps its own score
    near = np.tile([[1e8], [1e8 + 1], [1e8 + 3], [2e8]], (20, 1))
    encoder = TableEncoder(numeric="quantile").fit(near)
    assert len(np.unique(encoder.encode(near).dense)) == 4


def test_none(table):
    encoded = TableEncoder(numeric="none").fit(table).encode(table).dense[:, :5]
    expected = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    assert_allclose(encoded, expected, rtol=1e-6)


@pytest.mark.parametrize("method", ["standard", "quantile", "robust"])
@pytest.mark.parametrize(
    "constant",
    [
        np.full(6, 7.0),
        np.array([0.1 + 0.2, 0.3, 0.3, 0.3, 0.1 + 0.2, 0.3]),
        np.array([0.1 + 0.2, 0.3] * 3) * 1e149,
        np.array([1.1, 1.1, np.nextafter(np.float32(1.1), 2), 1.1, 1.1, 1.1], dtype=np.float32),
        np.array([7.0, np.nan, 7.0, 7.0, 7.0, np.nan]),
        np.zeros(6),
    ],
)
def test_constant_columns_are_zero_also_later(method, constant):
    X = constant[:, None]
    encoder = TableEncoder(numeric=method).fit(X)
    assert_array_equal(encoder.encode(X).dense[:, 0], 0)
    assert_array_equal(encoder.encode([[1e5], [-3.0], [np.nan]]).dense[:, 0], 0)


def test_nearly_constant_column_is_not_constant():
    X = 1e6 + np.array([[0.0], [1.0], [1.0], [0.0]])
    assert_allclose(TableEncoder().fit(X).encode(X).dense[:, 0], [-1, 1, 1, -1])


@pytest.mark.parametrize("size", [1e150, 1e100, 1e-200, 1e-310])
def test_values_that_float32_cannot_hold(size):
    X = np.array([[size], [-size], [0.0], [np.nan]])
    z = np.sqrt(1.5)
    assert_allclose(
        TableEncoder(min_frequency=1).fit(X).encode(X).dense[:, 0], [z, -z, 0, 0], rtol=1e-5
    )


@pytest.mark.parametrize("value", [1.1e150, -1.7e308])
def test_numbers_without_a_square_are_refused(value):
    X = pd.DataFrame({"a": [1.0, 2.0, np.nan], "big": [1.0, np.nan, value]})
    says = rf"column 'big' has absolute values up to {abs(value):.3g}. .*divide it by".replace(
        "+", r"\+"
    )
    for encoder in (TableEncoder(), ModeEncoder()):
        with pytest.raises(ValueError, match=says):
            encoder.fit(X)
    with pytest.raises(ValueError, match=says):
        TableEncoder().fit_batches([(X[:2], None), (X[2:], None)])
    with pytest.raises(ValueError, match=says):
        TableEncoder().fit(X.fillna(3.0).clip(0, 3)).encode(X)


@pytest.mark.parametrize("method", ["standard", "robust"])
def test_smallest_float_differs_from_zero(method):
    X = np.array([[5e-324], [0], [0], [0], [0]])
    encoded = TableEncoder(numeric=method).fit(X).encode(X).dense[:, 0]
    assert encoded[0] > 0.5
    assert_array_equal(encoded[1:], 0)


_FLOATS = arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.just(3)),
    elements=st.one_of(
        st.one_of(st.floats(-1e150, 1e150), st.just(np.nan)),
        st.sampled_from([1e150, -1e150, 5e-324, 1e-162, 0.0]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    fitted=_FLOATS,
    later=_FLOATS,
    method=st.sampled_from(METHODS),
    min_frequency=st.sampled_from([1, 2, 5]),
)
def test_any_finite_input_gives_finite_float32(fitted, later, method, min_frequency):
    encoder = TableEncoder(numeric=method, min_frequency=min_frequency).fit(fitted)
    for table in (fitted, later):
        dense = encoder.encode(table).dense
        assert dense.dtype == np.float32
        assert np.isfinite(dense).all()
    if (
        method == "standard" and min_frequency == 1
    ):  # no value of n lies further than sqrt(n - 1) from their mean
        bound = np.sqrt(max(len(fitted) - 1, 1)) * (1 + 1e-5)
        assert np.abs(encoder.encode(fitted).dense[:, :3]).max() <= bound


def test_datetimes_before_1970_and_far_ahead():
    days = np.array(["1677-09-22", "1970-01-01", "2262-04-10"], dtype="datetime64[us]")
    X = pd.DataFrame({"d": days})
    seconds = days.astype(np.int64) / 1e6
    expected = (seconds - seconds.mean()) / seconds.std()
    assert_allclose(TableEncoder(min_frequency=1).fit(X).encode(X).dense[:, 0], expected, rtol=1e-6)
    raw = TableEncoder(min_frequency=1, numeric="none").fit(X).encode(X).dense[:, 0]
    assert_allclose(raw, seconds, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_weights_count_like_repetitions(method) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[5, 1] = np.nan
    X[:, 2] = rng.integers(0, 3, 40)
    weight = rng.integers(1, 5, size=40)
    got = TableEncoder(numeric=method, min_frequency=1).fit_encode(X, weight.astype(float)).dense
    want = TableEncoder(numeric=method, min_frequency=1).fit_encode(X.repeat(weight, axis=0)).dense
    assert_allclose(got.repeat(weight, axis=0), want, rtol=1e-6, atol=1e-7)
    plain = TableEncoder(numeric=method, min_frequency=1).fit_encode(X).dense
    assert np.abs(plain[:, :2] - got[:, :2]).max() > (0 if method == "none" else 1e-3)


# ---- Edges of bins, for piecewise-linear embeddings ----------------------------------------------


RNG = np.random.default_rng(0)
N = 400
TABLE = pd.DataFrame(
    {
        "wide": RNG.lognormal(size=N),
        "few": RNG.integers(0, 3, N).astype(float),
        "yes": RNG.random(N) < 0.5,
        "one": 7.0,
        "none": np.nan,
        "text": [f"t{i % 3}" for i in range(N)],
    }
)
TABLE.loc[::7, "wide"] = np.nan


def edges_of(encoder):
    return encoder.numeric_scaler_.edges


@pytest.mark.parametrize("method", METHODS)
def test_edges_are_quantiles_as_encoded(method):
    encoder = TableEncoder(numeric=method, min_frequency=1, n_bins=8).fit(TABLE)
    edges = edges_of(encoder)
    assert edges.shape == (9, 5)
    raw = np.nanquantile(TABLE["wide"], np.linspace(0, 1, 9), method="averaged_inverted_cdf")
    rows = pd.DataFrame({**TABLE.iloc[:9], "wide": raw}).set_axis(TABLE.columns, axis=1)
    assert_allclose(edges[:, 0], encoder.encode(rows).dense[:, 0], rtol=1e-5, atol=1e-6)
    few = np.unique(encoder.encode(TABLE).dense[:, 1])
    assert_allclose(edges[:, 1], [*few, *[few[-1]] * 6], rtol=1e-6)
    assert_array_equal(edges[:, 2], [0, *[1] * 8])
    assert (np.diff(edges[:, 3:], axis=0) == 0).all()
    counts = np.histogram(encoder.encode(TABLE.dropna(subset="wide")).dense[:, 0], edges[:, 0])[0]
    assert counts.min() >= 40  # of 342 rows, an eighth in each


@pytest.mark.parametrize("method", METHODS)
def test_no_edge_is_a_rows_own_value(method):
    encoder = TableEncoder(numeric=method, n_bins=48).fit(TABLE)
    raw_edges = edges_of(TableEncoder(numeric="none", n_bins=48).fit(TABLE))[:, 0]
    assert not np.isin(raw_edges, TABLE["wide"].to_numpy(np.float32)).any()
    edges = edges_of(encoder)
    assert (np.diff(edges, axis=0) >= 0).all()
    assert np.isfinite(edges).all()


def test_edges_of_parts_and_weights_agree():
    encoder = TableEncoder(min_frequency=1, n_bins=5)
    whole = edges_of(encoder.fit(TABLE))
    parts = [(TABLE[:90], None), (TABLE[90:], None)]
    assert_allclose(edges_of(TableEncoder(min_frequency=1, n_bins=5).fit_batches(parts)), whole)
    weight = RNG.integers(1, 4, N)
    encoder.fit_encode(TABLE, weight.astype(float))
    copies = TABLE.loc[TABLE.index.repeat(weight)]
    again = TableEncoder(min_frequency=1, n_bins=5).fit(copies)
    assert_allclose(edges_of(encoder), edges_of(again), rtol=1e-6)


def test_a_state_has_them_if_there_are_any():
    encoder = TableEncoder(n_bins=5).fit(TABLE)
    arrays, meta = encoder.to_state()
    again = TableEncoder.from_state(arrays, json.loads(json.dumps(meta)))
    assert_array_equal(edges_of(again), edges_of(encoder))
    assert again.n_bins == 5
    plain, meta_of_plain = TableEncoder().fit(TABLE).to_state()
    assert plain["scaler.edges"].shape[0] == 0
    del meta_of_plain["parameters"]["n_bins"]
    assert edges_of(TableEncoder.from_state(plain, meta_of_plain)).shape == (0, 5)
    for wrong in (
        arrays["scaler.edges"][::-1],
        arrays["scaler.edges"][:, :2],
        arrays["scaler.edges"] * np.nan,
    ):
        with pytest.raises(ValueError, match=r"do not fit its 5|do not increase"):
            TableEncoder.from_state({**arrays, "scaler.edges": wrong}, meta)


@pytest.mark.parametrize("seed", range(5))
def test_empty_batches_do_not_change_moments(seed):
    """Their weights add up to a little less than the weights of their missing values, or more."""
    rng, running = np.random.default_rng(seed), RunningMoments(1)
    for column in (np.r_[345678.9, np.full(499, np.nan)], *np.full((3, 500), np.nan)):
        running.add(column[:, None].copy(), 1 + rng.random(500))
    moments = running.result()
    assert_allclose(moments.mean, 345678.9)
    assert moments.std[0] < 1e-6
