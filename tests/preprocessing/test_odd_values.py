"""Columns of measurements, odd cells among dates and amounts, and codes for missing values."""

import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, TabFlow, TabFlowImputer
from combutab.model_selection import compare_activations
from combutab.preprocessing import TableEncoder, find_identifiers, odd_columns

RNG = np.random.default_rng(0)
SIZES = RNG.gamma(3, 700, 300)
DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 300, 300), "D")
MEASURED = {
    "km": [f"{x:.1f} km" for x in SIZES],
    "euros": [f"€{x / 10:.1f}M" for x in SIZES],
    "balance": [f"({x:.2f}) €" if x > 2100 else f"{x:.2f} €" for x in SIZES],
    "dollars": [f"$({x:.2f})" if x > 2100 else f"${x:.2f}" for x in SIZES],
    "height": [f"({x:.1f}) m" if x > 2100 else f"{x:.1f} m" for x in SIZES],
    "duration": [f"{int(x) // 60}h {int(x) % 60}m" for x in SIZES],
    "clock": [f"{int(x) % 24}:{int(x) % 60:02d}:{int(x * 9) % 60:02d}" for x in SIZES],
    "day": DAYS.strftime("%d-%b-%Y"),
    "lakhs": [f"{1 + i // 99},{10 + i % 90},{100 + i}" for i in range(300)],
    "feet": [f"{4 + i % 3} ft {i % 12} in {i}" if i > 299 else f"{i} ft" for i in range(300)],
}
HINTS = {"lakhs": ["unit"], "height": ["unit"], "balance": ["sign"], "dollars": ["sign"]}


@pytest.mark.parametrize("name", MEASURED)
def test_measurements_are_no_identifiers(name):
    assert find_identifiers(pd.Series(MEASURED[name], name=name)) is None
    kinds = [odd.kind for odd in odd_columns(pd.DataFrame({name: MEASURED[name]}))]
    assert kinds == HINTS.get(name, [])


@pytest.mark.parametrize("form", ["{:05d}A", "AB-{}", "{}-DE", "user{}", "{}x{}"])
def test_keys_with_digits_stay_identifiers(form):
    names = pd.Series([form.format(i, i % 7) for i in range(100, 300)])
    assert find_identifiers(names) is not None


def with_cell(values, cell):
    values = list(values)
    values[57] = cell
    return values


ISO = DAYS.strftime("%Y-%m-%d")
CELLS = {
    "Total": with_cell(ISO, "Total"),
    "0000-00-00": with_cell(ISO, "0000-00-00"),
    "2023-02-30": with_cell(ISO, "2023-02-30"),
    "0024-05-03": with_cell(ISO, "0024-05-03"),
    "-": with_cell([f"${x:,.2f}" for x in SIZES], "-"),
    "on request": with_cell([f"{x:.2f} €".replace(".", ",") for x in SIZES], "on request"),
}


@pytest.mark.parametrize("cell", CELLS)
def test_one_odd_cell_is_named(cell):
    (odd,) = odd_columns(pd.DataFrame({"x": CELLS[cell]}))
    assert odd.kind == ("missing mark" if cell == "-" else "few texts")
    assert "all but 1 of 300 values" in str(odd)
    assert f"{cell!r} (data row 58)" in odd.example


@pytest.mark.parametrize("code", [-200, -999, -1000, -88, -1, 9999.9, 1e20])
def test_a_value_far_beyond_others_may_be_missing(code):
    rng = np.random.default_rng(1)
    levels = np.where(rng.random(2000) < 0.18, code, rng.gamma(3, 0.8, 2000).round(1))
    (odd,) = odd_columns(pd.DataFrame({"co": levels}))
    assert (odd.kind, odd.example.split(",")[0]) == ("missing code", f"{code:.15g}")


def test_skewed_numbers_have_no_code_for_missing():
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "zeros": np.where(rng.random(2000) < 0.6, 0, rng.lognormal(8, 1, 2000).round()),
            "capped": np.minimum(rng.lognormal(3, 1, 2000).round(1), 60),
            "heavy": rng.standard_cauchy(2000).round(1),
            "symmetric": rng.integers(-5, 6, 2000),
            "few": rng.choice([0, 1, 100], 2000),
        }
    )
    assert odd_columns(table) == []


def test_a_date_far_beyond_others_may_be_missing():
    table = pd.DataFrame({"end": with_cell(ISO, "9999-12-31"), "day": ISO})
    assert [(odd.column, odd.kind) for odd in odd_columns(table)] == [("end", "missing code")]


def test_text_in_a_previously_empty_column():
    table = pd.DataFrame({"a": range(20), "empty": [np.nan] * 20})
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match="'empty'"):
        encoder.transform(table.assign(empty="x"))
    encoder.transform(table.assign(empty="2.5"))


def test_an_imputer_warns_of_an_empty_column():
    table = pd.DataFrame({"a": np.arange(60) % 7.5, "empty": [np.nan] * 60})
    generator = TabFlow(epochs=1, hidden_layer_sizes=(8,), n_bins=4, random_state=0)
    with pytest.warns(UserWarning, match="'empty'"):
        TabFlowImputer(generator).fit(table)


def test_lazy_frames_are_refused_and_wide_integers_read():
    pl = pytest.importorskip("polars")
    X, y = pl.DataFrame({"a": np.arange(60.0)}), np.arange(60) % 2
    calls = [
        MLPClassifier().fit,
        MLPRegressor().partial_fit,
        StackedGridSearchCV(MLPClassifier(), {"alpha": [0.1]}).fit,
        compare_activations,
    ]
    for call in calls:
        with pytest.raises(TypeError, match="LazyFrame"):
            call(X.lazy(), y)
    wide = X.select(pl.col("a").cast(pl.Int128))
    assert (TableEncoder().fit_transform(wide) == TableEncoder().fit_transform(X)).all()


def test_dates_and_times_as_whole_numbers_are_named():
    minutes = np.arange(0, 1440, 7)
    table = pd.DataFrame(
        {
            "day": DAYS.strftime("%Y%m%d").astype(int)[:200],
            "month": pd.period_range("2000-01", periods=200, freq="M").strftime("%Y%m").astype(int),
            "dep_time": np.resize(minutes // 60 * 100 + minutes % 60, 200),
            "price": 1000 + np.arange(200) % 60,
            "code": 20_000_000 + 37 * np.arange(200),
        }
    )
    kinds = {odd.column: odd.kind for odd in odd_columns(table) if odd.kind != "identifier"}
    assert kinds == {"day": "dates", "month": "dates", "dep_time": "clock numbers"}
