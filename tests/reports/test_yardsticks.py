"""Yardsticks, and associations against scipy, numpy and a regression on indicator variables."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association
from sklearn.linear_model import LinearRegression

from combutab.evaluation import align_tables
from combutab.reports._yardsticks import associations, measure_yardsticks


@pytest.fixture
def aligned():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pd.DataFrame(
        {
            "x": x,
            "y": -2.0 * x + rng.normal(size=400),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(x * 1e6, unit="s"),
            "group": np.digitize(x, [-1.0, 0.0, 0.7]).astype(str),
            "other": rng.choice(list("abc"), 400),
        }
    )
    table.loc[::7, "y"] = np.nan
    table.loc[::5, "group"] = None
    return align_tables({"real": table}, reference="real")


def test_numbers_have_pearsons_correlation(aligned):
    table = aligned["real"]
    found = associations(table, ["x", "y"], aligned.kinds)
    both = table["y"].notna()
    assert found[0, 1] == pytest.approx(np.corrcoef(table["x"][both], table["y"][both])[0, 1])
    assert found[0, 1] < -0.8


def test_dates_are_as_their_numbers(aligned):
    found = associations(aligned["real"], ["x", "when"], aligned.kinds)
    assert found[0, 1] == pytest.approx(1.0, abs=1e-6)


def test_categories_have_cramers_v(aligned):
    table = aligned["real"]
    found = associations(table, ["group", "other"], aligned.kinds)
    counts = pd.crosstab(table["group"].astype(object), table["other"].astype(object))
    assert found[0, 1] == pytest.approx(association(counts.to_numpy(), method="cramer"))
    assert found[1, 0] == found[0, 1]


def test_a_number_and_categories_have_the_correlation_ratio(aligned):
    table = aligned["real"]
    found = associations(table, ["group", "x"], aligned.kinds)
    known = table["group"].notna()
    indicators = pd.get_dummies(table["group"][known].astype(object))
    x = table["x"][known]
    r2 = LinearRegression().fit(indicators, x).score(indicators, x)
    assert found[0, 1] == pytest.approx(np.sqrt(r2))


def test_a_column_that_does_not_vary_has_none():
    table = pd.DataFrame({"one": [1.0] * 5, "x": np.arange(5.0), "empty": [np.nan] * 5})
    kinds = dict.fromkeys(table, "number")
    found = associations(table, list(table), kinds)
    assert np.isnan(found[[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]).all()
    assert found[1, 1] == 1.0


def test_many_categories_take_no_matrix_of_them():
    n = 50_000
    codes = pd.Categorical(np.arange(n))
    table = pd.DataFrame({"a": codes, "b": codes[::-1]})
    found = associations(table, ["a", "b"], {"a": "category", "b": "category"})
    assert found[0, 1] == pytest.approx(1.0)  # each tells the other


def test_yardsticks_are_real_rows_and_shuffled_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    table = pd.DataFrame({"x": x, "y": x, "z": rng.normal(size=2000)})
    options = {"n_rows": 2000, "kinds": dict.fromkeys("xyz", "number"), "random_state": 0}
    found = measure_yardsticks(table, **options)
    # a correlation of 1 that is lost: a score of 1/2
    assert list(found.ties) == [("x", "y")]
    shuffled, real = found.ties["x", "y"]
    assert shuffled == pytest.approx(0.5, abs=0.02)
    assert real == pytest.approx(0.0, abs=0.01)
    assert found.ties_off[0] < 0.1
    # the mean of the statistic of Kolmogorov's distribution is 0.8687 sqrt(1/n + 1/m)
    assert found.chance["z"] == pytest.approx(0.8687 * math.sqrt(2 / 2000), rel=0.25)
    found = measure_yardsticks(table[["x", "z"]], **options)
    assert found.ties == {}
    assert found.strongest == pytest.approx(abs(np.corrcoef(x, table["z"])[0, 1]))
    alone = measure_yardsticks(table[["x"]], **options)
    assert (alone.ties, alone.strongest) == ({}, 0.0)
    few = measure_yardsticks(table[:3], **options)
    assert (few.chance, few.ties) == ({}, {})
