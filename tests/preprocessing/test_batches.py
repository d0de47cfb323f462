"""An encoder fitted to parts of a table is the one fitted to the whole."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from combutab.preprocessing import ParquetTable, RunningMoments, TableEncoder

N = 3000


def mixed(n: int = N) -> pd.DataFrame:
    """Columns of all types that a Parquet file can have, some with missing values."""
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01")
    cities = np.array(["Rome", "Oslo", "Lima"], dtype=object)
    codes = np.array([f"c{i}" for i in range(200)], dtype=object)
    missing = rng.random(n) < 0.1
    return pd.DataFrame(
        {
            "single": rng.normal(size=n).astype(np.float32),
            "double": rng.normal(3.0, 2.0, size=n),
            "large": 1e9 + rng.normal(size=n),
            "integer": rng.integers(0, 9, n),
            "truth": rng.random(n) < 0.5,
            "truth_missing": pd.array(np.where(missing, None, rng.random(n) < 0.5), "boolean"),
            "integer_missing": pd.array(np.where(missing, None, rng.integers(0, 5, n)), "Int64"),
            "missing": np.where(missing, np.nan, rng.normal(size=n)),
            "seldom": np.where(np.arange(n) < 10, 2.0 + np.arange(n), np.nan),
            "constant": 1.5,
            "nothing": None,
            "city": cities[rng.integers(0, 3, n)],
            "code": np.where(missing, None, codes[rng.integers(0, 200, n)]),
            "category": pd.Categorical(cities[rng.integers(0, 2, n)], categories=cities),
            "when": day + pd.to_timedelta(rng.integers(0, 1000, n), "D"),
            "zone": day.tz_localize("UTC") + pd.to_timedelta(rng.integers(0, 1000, n), "h"),
            "length": pd.to_timedelta(rng.integers(0, 1000, n), "s"),
            "date": [datetime.date(2020, 1, 1 + int(k)) for k in rng.integers(0, 31, n)],
            "time": [datetime.time(int(k)) for k in rng.integers(0, 24, n)],
            "decimal": [Decimal(int(k)) / 4 for k in rng.integers(0, 99, n)],
            "bytes": np.array([b"a", b"b"], dtype=object)[rng.integers(0, 2, n)],
        }
    )


def assert_same(encoder: TableEncoder, other: TableEncoder) -> None:
    assert encoder.kinds_ == other.kinds_
    assert encoder.category_maps_ == other.category_maps_
    assert encoder.spans_ == other.spans_
    assert list(encoder.feature_names_in_) == list(other.feature_names_in_)
    ours, theirs = encoder.numeric_scaler_, other.numeric_scaler_
    for name in ("centre", "scale", "fill", "knots"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-8
        )  # of 1e9 +- 1, the worst
    for name in ("constant", "missing", "unscaled"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "mixed.parquet"
    mixed().to_parquet(path, row_group_size=700)
    return path


@pytest.mark.parametrize("numeric", ["standard", "robust", "quantile", "none"])
def test_fitting_in_parts_equals_fitting_whole(file, numeric):
    pytest.importorskip("pyarrow")
    whole = TableEncoder(numeric=numeric).fit(pd.read_parquet(file))
    table = ParquetTable(file)
    parts = [frame for _, frame in table.batches(table.columns, 300)]
    header = table.header(table.columns)
    fitted = TableEncoder(numeric=numeric).fit_batches(((p, None) for p in parts), header=header)
    assert_same(fitted, whole)
    encoded = whole.encode(pd.read_parquet(file))
    mine = [fitted.encode(part) for part in parts]
    dense = np.concatenate([part.dense for part in mine])
    np.testing.assert_allclose(dense, encoded.dense, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(np.concatenate([part.codes for part in mine]), encoded.codes)


@pytest.mark.filterwarnings("ignore:nothing is learned from")
@pytest.mark.parametrize(
    "categorical", [None, ["integer", "missing", "when"]], ids=["none", "named"]
)
def test_the_user_says_what_is_a_category(tmp_path, categorical):
    pytest.importorskip("pyarrow")
    frame = mixed(500)[["integer", "missing", "when", "double"]].assign(text="1.5")
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=100)
    whole = TableEncoder(categorical_features=categorical, min_frequency=1).fit(frame)
    table = ParquetTable(tmp_path / "t.parquet")
    fitted = TableEncoder(categorical_features=categorical, min_frequency=1).fit_batches(
        ((part, None) for _, part in table.batches(table.columns, 64)),
        header=table.header(table.columns),
    )
    assert_same(fitted, whole)


@pytest.mark.parametrize("numeric", ["standard", "robust", "quantile"])
def test_weights_count(numeric):
    frame = mixed()[["double", "missing", "city"]]
    weight = np.random.default_rng(1).integers(1, 4, N).astype(float)
    whole = TableEncoder(numeric=numeric)
    whole.fit_encode(frame, weight)
    parts = ((frame[i : i + 171], weight[i : i + 171]) for i in range(0, N, 171))
    assert_same(TableEncoder(numeric=numeric).fit_batches(parts), whole)


def test_moments_of_extreme_columns_that_grow():
    rows = np.array([[0.0, 1e-170, 1.0], [0.0, 3e-170, np.nan], [1e140, 2e-170, 3.0]])
    rows = np.concatenate([rows, [[4e140, -1e-170, 1e150]]])
    running = RunningMoments(3)
    for row in rows:
        running.add(row[None].copy())
    stats = running.result()
    exact = rows.astype(np.longdouble)  # of a range in which nothing over- or underflows
    np.testing.assert_allclose(stats.mean, np.nanmean(exact, axis=0).astype(float), rtol=1e-12)
    np.testing.assert_allclose(stats.std, np.nanstd(exact, axis=0).astype(float), rtol=1e-12)
    assert stats.missing.tolist() == [False, False, True]


def test_quantiles_of_a_sample_are_near():
    values = np.random.default_rng(0).exponential(size=40_000)
    parts = [pd.DataFrame({"x": part}) for part in np.split(values, 10)]

    def fit(seed):
        encoder = TableEncoder(numeric="robust")
        encoder.fit_batches(((p, None) for p in parts), n_sample=5000, seed=seed)
        return encoder.numeric_scaler_.centre[0], encoder.numeric_scaler_.scale[0]

    median, spread = fit(0)
    assert abs(median - np.log(2)) < 0.06  # 4 standard errors of 5000 rows
    assert abs(spread - np.log(3)) < 0.11
    assert fit(0) == fit(0)
    assert fit(0) != fit(1)


def test_a_sample_without_a_value_of_a_column():
    values = np.full(5000, np.nan)
    values[:2] = 1.0, 5.0
    frame = pd.DataFrame({"x": values, "y": np.arange(5000.0)})
    encoder = TableEncoder(numeric="robust")
    encoder.fit_batches(((frame[i : i + 500], None) for i in range(0, 5000, 500)), n_sample=20)
    assert encoder.numeric_scaler_.centre[0] == 3.0
    assert np.isfinite(encoder.encode(frame).dense).all()


def test_too_many_categories_are_refused_by_name():
    parts = [pd.DataFrame({"id": [f"{i}-{j}" for j in range(60)], "x": 1.0}) for i in range(3)]
    with pytest.raises(ValueError, match=r"'id'.*120.*100"):
        TableEncoder().fit_batches(((p, None) for p in parts), max_distinct=100)


def test_no_part_at_all():
    with pytest.raises(ValueError, match="batches are empty"):
        TableEncoder().fit_batches([])


def test_parts_must_have_the_same_columns():
    parts = [pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"b": [1.0, 2.0]})]
    with pytest.raises(ValueError, match="feature names"):
        TableEncoder().fit_batches((p, None) for p in parts)
