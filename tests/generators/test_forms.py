"""Generators learn dates, times, decimals and numbers with units, and make them as they were."""

import datetime
import decimal
import itertools

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE, TabFlow, TabFlowImputer, load
from combutab.generators.constraints import Inequality
from combutab.generators.expressions import Expression
from combutab.preprocessing.modes import given_categories, given_numbers
from tests.generators.small import make

RNG = np.random.default_rng(0)
N = 300
DAYS = RNG.integers(0, 4000, N)
SIZES = RNG.gamma(3, 700, N)
MOMENTS = pd.Timestamp("2015-01-01") + pd.to_timedelta(DAYS, "D")
COLUMNS = {
    "date": [datetime.date(2015, 1, 1) + datetime.timedelta(int(day)) for day in DAYS],
    "datetime": pd.Series(MOMENTS.to_pydatetime(), dtype=object),
    "period": pd.period_range("2000-01", periods=N, freq="M"),
    "decimal": [decimal.Decimal(f"{size:.2f}") for size in SIZES],
    "iso": MOMENTS.strftime("%Y-%m-%d"),
    "month name": MOMENTS.strftime("%d-%b-%Y"),
    "clock": [f"{int(size) % 24}:{int(size) % 60:02d}" for size in SIZES],
    "duration": [f"{int(size) // 60}h {int(size) % 60}m" for size in SIZES],
    "unit": [f"{size:.1f} km" for size in SIZES],
    "day number": MOMENTS.strftime("%Y%m%d").astype(int),
    "month number": MOMENTS.strftime("%Y%m").astype(int),
}
PATTERNS = {
    "iso": r"20[12]\d-\d\d-\d\d",
    "month name": r"\d\d-[A-Z][a-z]{2}-20[12]\d",
    "clock": r"\d{1,2}:\d\d",
    "duration": r"\d+h \d+m",
    "unit": r"\d+\.\d km",
}


def table(name):
    column = pd.Series(COLUMNS[name])
    missing = np.arange(N) % 9 == 0
    return pd.DataFrame({"v": column.mask(missing), "x": SIZES})


@pytest.mark.parametrize(
    ("name", "cls"), [*zip(COLUMNS, itertools.cycle([TabFlow, CTGAN, TVAE]), strict=False)]
)
def test_sampled_values_have_the_form_of_the_table(name, cls, tmp_path):
    X = table(name)
    fitted = make(cls).fit(X)
    rows = fitted.sample(50, random_state=0)
    assert rows.dtypes.to_dict() == X.dtypes.to_dict()
    made, known = rows["v"].dropna(), X["v"].dropna()
    assert {type(value) for value in made} == {type(value) for value in known}
    if name in PATTERNS:
        assert made.str.fullmatch(PATTERNS[name]).all()
    assert not set(made) <= set(known) or name in ("period", "clock")
    fitted.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").sample(50, random_state=0), rows)


@pytest.mark.parametrize("name", COLUMNS)
def test_imputed_cells_have_the_form_of_the_table(name):
    X = table(name)
    fitted = make(TVAE).fit(X)
    for filled in (
        fitted.impute(X, random_state=0),
        TabFlowImputer(make(TabFlow), random_state=0).fit_transform(X),
    ):
        known = X["v"].notna()
        assert filled["v"].notna().all()
        pd.testing.assert_series_equal(filled["v"][known], X["v"][known])
        assert {type(value) for value in filled["v"]} == {type(value) for value in X["v"][known]}


def test_conditions_are_in_the_form_of_the_table(tmp_path):
    fitted = make(TVAE).fit(table("month name"))
    rows = fitted.sample(20, conditions={"v": ("01-Jan-2018", "31-Dec-2019")}, random_state=0)
    assert set(rows["v"].str[-4:]) <= {"2018", "2019"}
    seeds = pd.DataFrame({"v": ["05-Mar-2018", "22-Jun-2019"]})
    assert fitted.sample_from(seeds, random_state=0)["v"].tolist() == seeds["v"].tolist()
    with pytest.raises(ValueError, match="'2018-01-01'"):
        fitted.sample(2, conditions={"v": "2018-01-01"})
    pytest.importorskip("pyarrow")
    fitted.sample(20, random_state=0, out=tmp_path / "rows.parquet")
    written = pd.read_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(written, fitted.sample(20, random_state=0), check_dtype=False)


def test_listed_and_repeated_dates_stay_categories():
    X = table("iso").assign(quarter=np.array(["2024-03-31", "2024-06-30"])[np.arange(N) % 2])
    with pytest.warns(UserWarning, match="'v'"):
        fitted = make(TVAE, min_frequency=1).fit(X, discrete_columns=["v", "quarter"])
    assert set(fitted.sample(50, random_state=0)["v"].dropna()) <= set(X["v"].dropna())
    free = make(TVAE).fit(X)
    assert set(free.sample(50, random_state=0)["quarter"]) <= set(X["quarter"])


@pytest.mark.parametrize(("name", "form"), [("day number", "%Y%m%d"), ("month number", "%Y%m")])
def test_sampled_whole_numbers_are_dates(name, form):
    X = pd.DataFrame({"v": COLUMNS[name], "x": SIZES})
    generator = make(TabFlow).fit(X)
    rows = generator.sample(200, random_state=0)
    assert rows["v"].dtype == X["v"].dtype
    pd.to_datetime(rows["v"].astype(str), format=form)  # raises for days that do not exist
    first = int(X["v"].median())
    later = generator.sample(20, conditions={"v": (first, None)}, random_state=0)
    assert (later["v"] >= first).all()
    filled = generator.impute(X.assign(v=X["v"].where(X.index > 30)), random_state=0)
    assert (filled["v"][31:] == X["v"][31:]).all()
    pd.to_datetime(filled["v"].astype(int).astype(str), format=form)


def test_sampled_clock_numbers_are_times_of_day():
    minutes = (7 * np.arange(N)) % 1440
    X = pd.DataFrame({"dep_time": minutes // 60 * 100 + minutes % 60, "x": SIZES})
    generator = make(TabFlow).fit(X)
    rows = generator.sample(200, random_state=0)
    assert rows["dep_time"].dtype == X["dep_time"].dtype
    assert rows["dep_time"].between(0, 2359).all()
    assert (rows["dep_time"] % 100 < 60).all()
    assert not rows["dep_time"].isin(X["dep_time"]).all()
    later = generator.sample(20, conditions={"dep_time": (930, 1745)}, random_state=0)
    assert later["dep_time"].between(930, 1745).all()
    with pytest.raises(ValueError, match="1775"):
        generator.sample(2, conditions={"dep_time": 1775})


@pytest.mark.parametrize("word", ["now", "today"])
@pytest.mark.parametrize("name", ["dtype", "date", "iso"])
def test_now_and_today_are_not_dates_in_conditions(name, word):
    column = MOMENTS if name == "dtype" else COLUMNS[name]
    model = make(TVAE).fit(pd.DataFrame({"v": column, "x": SIZES}))
    for condition in (word, ("2016-01-01", word)):
        with pytest.raises(ValueError, match=f"'{word}' (is not a|cannot be|.*could not be read)"):
            model.sample(2, conditions={"v": condition})


@pytest.mark.parametrize("word", ["now", "today"])
def test_now_and_today_are_not_dates_in_constraints_and_bounds(word):
    columns = {"v": pd.Series(MOMENTS)}
    with pytest.raises(ValueError, match=f"no column '{word}'"):
        Inequality("v", "<", word).check(pd.DataFrame(columns))
    with pytest.raises(ValueError, match="are not dates"):
        Expression(f"v < '{word}'").truth(columns, N)
    assert not Expression(f"v == '{word}'").truth({"v": pd.Series([f"{word}s"])}, 1).any()
    with pytest.raises(ValueError, match=r"column 'v': .* are not dates"):
        given_numbers(columns["v"].dtype, "column 'v'", ("2024-01-01", word), 4)
    with pytest.raises(ValueError, match=r"column 'v': .* are not dates"):
        given_categories(columns["v"].dtype, "column 'v'", ["2024-01-01", word], False)


def test_sampled_times_of_day_are_times(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"v": [datetime.time(int(day) % 5) for day in DAYS], "x": SIZES})
    table.to_parquet(tmp_path / "table.parquet")
    for model in (make(TVAE).fit(table), make(TVAE).fit_parquet(tmp_path / "table.parquet")):
        assert set(model.sample(50)["v"]) <= set(table["v"])
