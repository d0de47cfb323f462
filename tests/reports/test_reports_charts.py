"""What charts show: shares that add up, axes in the data's terms, nothing lost."""

import re

import numpy as np
import pandas as pd
import pytest

from combutab.reports._charts import HEIGHT, WIDTH, category_bars, histogram
from combutab.reports._page import number


def heights(path):
    """Of the bars of an outline, and their right edges."""
    steps = re.findall(r"V([\d.]+)H([\d.]+)", path)
    return np.array([[HEIGHT - float(y), float(x)] for y, x in steps]).T


def test_a_histogram_has_the_shares_of_both_columns():
    real = pd.Series([0.0, 0.0, 0.0, 1.0, 2.0, 2.0])
    made = pd.Series([0.0, 1.0, 1.0, 2.0])
    chart = histogram(real, made)
    a, edges = heights(chart.real)
    b, _ = heights(chart.made)
    assert a / HEIGHT == pytest.approx([1.0, 1 / 3, 2 / 3], abs=1e-3)  # the tallest is 1/2
    assert b / HEIGHT == pytest.approx([0.5, 1.0, 0.5], abs=1e-3)
    assert edges == pytest.approx([WIDTH / 3, 2 * WIDTH / 3, WIDTH], abs=0.1)
    assert [text for _, text in chart.ticks] == ["0", "1", "2"]


def test_a_bin_holds_as_many_whole_numbers_as_another():
    ages = pd.Series(np.arange(100, dtype=float))
    shares, edges = heights(histogram(ages, ages).real)
    assert (shares == HEIGHT).all()
    assert len(set(np.diff(edges).round(1))) <= 2  # equal but for rounding


def test_outliers_are_counted_at_the_edge():
    real = pd.Series(np.linspace(0.0, 1.0, 1001))
    made = pd.Series(np.full(10, 1e9))
    b, _ = heights(histogram(real, made).made)
    assert b[-1] == HEIGHT
    assert (b[:-1] == 0.0).all()


def test_an_axis_of_dates_has_dates():
    days = pd.Series(pd.date_range("2024-01-01", periods=200)).astype("datetime64[us]")
    chart = histogram(days, days)
    assert [text for _, text in chart.ticks] == ["2024-01-01", "2024-04-09", "2024-07-17"]
    assert "real: median 2024-04-09" in chart.words


@pytest.mark.parametrize("values", [[5.0, 5.0], [0.0], [-3.0, np.nan]])
def test_a_constant_column_is_drawn(values):
    chart = histogram(pd.Series(values), pd.Series(values))
    assert heights(chart.real)[0].max() == HEIGHT
    assert len(chart.ticks) == 1


def test_no_values_no_chart():
    assert histogram(pd.Series([np.nan, np.nan]), pd.Series([1.0])) is None


def test_bars_are_of_the_most_frequent_categories_and_the_others():
    real = pd.Series(pd.Categorical([f"c{min(i, 20 - i)}" for i in range(20)]))
    made = pd.Series(pd.Categorical(["c1", "new", None, "c2"]))
    chart = category_bars(real, made)
    assert len(chart.bars) == 9
    assert chart.bars[-1].name == "5 others"
    assert sum(bar.real for bar in chart.bars) == pytest.approx(1.0)
    assert sum(bar.made for bar in chart.bars) == pytest.approx(1.0)


def test_missing_values_are_a_category():
    column = pd.Series(pd.Categorical(["a", None, None]))
    assert [(bar.name, round(bar.real, 2)) for bar in category_bars(column, column).bars] == [
        ("(missing)", 0.67),
        ("a", 0.33),
    ]


def test_long_names_are_cut_in_the_picture_alone():
    name = "a very long name of a category"
    column = pd.Series(pd.Categorical([name, "b"]))
    bar = next(bar for bar in category_bars(column, column).bars if bar.name == name)
    assert bar.short == "a very lo…tegory"
    assert name in category_bars(column, column).words


def test_numbers_are_short():
    assert [number(x) for x in (0.0, 12345.6, 1e12, -0.5, float("inf"))] == [
        "0",
        "12,346",
        "1,000,000,000,000",
        "-0.500",
        "inf",
    ]
