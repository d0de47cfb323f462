"""Edges of bins of numeric columns, for piecewise-linear embeddings."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from combutab.preprocessing import TableEncoder

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
METHODS = ["standard", "quantile", "robust", "none"]


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


def test_edges_come_of_files_in_parts_and_of_weights_as_of_rows():
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
    assert plain["edges"].shape[0] == 0
    del meta_of_plain["parameters"]["n_bins"]
    assert edges_of(TableEncoder.from_state(plain, meta_of_plain)).shape == (0, 5)
    for wrong in (arrays["edges"][::-1], arrays["edges"][:, :2], arrays["edges"] * np.nan):
        with pytest.raises(ValueError, match=r"do not fit its 5|do not increase"):
            TableEncoder.from_state({**arrays, "edges": wrong}, meta)


def test_wrong_numbers_of_bins_are_named():
    for wrong in (0, 2.5, "many"):
        with pytest.raises(ValueError, match="The 'n_bins' parameter of TableEncoder must be"):
            TableEncoder(n_bins=wrong).fit(TABLE)
