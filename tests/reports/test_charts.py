"""What charts show: shares that add up, axes in the data's terms, nothing lost or disclosed."""

import re

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import align_tables
from combutab.reports import _charts
from combutab.reports._identifiers import is_identifier


def histogram(real, synthetic, others=(), least=1):
    return _charts.histogram(real, synthetic, others, min_rows=least)


def category_bars(real, synthetic, others=(), least=1):
    return _charts.category_bars(real, synthetic, others, min_rows=least)


def shares(chart):
    return {bar.name: (round(bar.real, 3), round(bar.synthetic, 3)) for bar in chart.bars}


def masses(outlines, heights):
    """The share of each bin of an outline."""
    areas = heights * np.diff(outlines.edges)
    return areas / areas.sum()


def test_a_histogram_has_the_shares_of_both_columns():
    real = pd.Series([0.0, 0.0, 0.0, 1.0, 2.0, 2.0])
    synthetic = pd.Series([0.0, 1.0, 1.0, 2.0])
    drawn = histogram(real, synthetic).outlines
    assert drawn.real == pytest.approx([1 / 2, 1 / 6, 1 / 3])
    assert drawn.synthetic == pytest.approx([1 / 4, 1 / 2, 1 / 4])
    assert drawn.edges.tolist() == [-0.5, 0.5, 1.5, 2.5]
    assert drawn.ticks == [(0.0, "0"), (1.0, "1"), (2.0, "2")]


def test_outliers_are_counted_at_the_edge():
    real = pd.Series(np.linspace(0.0, 1.0, 1001))
    synthetic = pd.Series(1e9 + np.arange(30.0))
    drawn = histogram(real, synthetic).outlines.synthetic
    assert drawn[-1] == 1.0
    assert (drawn[:-1] == 0.0).all()


def test_an_axis_of_dates_has_dates():
    days = pd.Series(pd.date_range("2024-01-03", periods=200)).astype("datetime64[us]")
    drawn = histogram(days, days, least=5).outlines
    names = [pd.Timestamp(text) for _, text in drawn.ticks]
    # every ten days since 1970, and about the first and the last date
    assert {(name - pd.Timestamp("1970-01-01")).days % 10 for name in names} == {0}
    assert abs(names[0] - days[0]) < pd.Timedelta("10D")
    assert abs(names[-1] - days[199]) < pd.Timedelta("10D")
    assert "real: median about 2024-04-07, most between 2024-01-" in drawn.words


@pytest.mark.parametrize("values", [[5.0, 5.0], [0.0, 0.0], [-3.0, -3.0, np.nan]])
def test_a_constant_column_is_one_bar(values):
    chart = histogram(pd.Series(values), pd.Series(values))
    assert shares(chart) == {f"{values[0]:g}": (1.0, 1.0)}
    assert chart.outlines is None


def test_zeros_are_a_bar_of_their_own():
    # 92 % zeros against small positive numbers were in one bin and looked alike, scoring 0.25
    rng = np.random.default_rng(0)
    some = np.exp(rng.normal(5, 1, 1000))
    real = pd.Series(np.where(np.arange(1000) < 920, 0.0, some))
    synthetic = pd.Series(np.where(np.arange(1000) < 250, 0.0, rng.random(1000)))
    chart = histogram(real, synthetic, least=5)
    assert shares(chart) == {"0": (0.92, 0.25), "all other values": (0.08, 0.75)}
    assert chart.outlines.edges[0] > 0  # of the other values


@pytest.mark.parametrize("kind", ["zeros", "peaks", "heavy", "counts", "shifted", "uniform"])
@pytest.mark.parametrize("other", ["zeros", "peaks", "heavy", "counts", "shifted", "uniform"])
def test_what_looks_alike_scores_alike(kind, other):
    """The difference that is drawn is no less than that which is scored, but for a bin's share."""
    n = 1500

    def column(name, seed):
        rng = np.random.default_rng(seed)
        return pd.Series(
            {
                "zeros": np.where(rng.random(n) < 0.92, 0.0, rng.exponential(9.0, n)),
                "peaks": np.where(rng.random(n) < 0.5, 40.0, rng.normal(40, 0.01, n)),
                "heavy": rng.standard_cauchy(n),
                "counts": rng.poisson(1.5, n).astype(float),
                "shifted": rng.poisson(1.5, n) + 0.4,
                "uniform": rng.random(n) * 100,
            }[name]
        )

    real, synthetic = column(kind, 0), column(other, 1)
    chart = histogram(real, synthetic, least=5)
    drawn = [(bar.real, bar.synthetic) for bar in chart.bars if bar.name != "all other values"]
    rest = next(
        ((b.real, b.synthetic) for b in chart.bars if b.name == "all other values"), (1.0, 1.0)
    )
    if chart.outlines:
        outlines = (chart.outlines.real, chart.outlines.synthetic)
        shares = [
            share * masses(chart.outlines, each) for each, share in zip(outlines, rest, strict=True)
        ]
        drawn += list(zip(*shares, strict=True))
    elif not chart.bars:
        raise AssertionError("nothing is drawn")
    elif rest != (1.0, 1.0):
        drawn.append(rest)
    drawn = np.array(drawn)
    shown = np.abs(drawn[:, 0] - drawn[:, 1]).sum() / 2
    values = np.sort(np.concatenate([real, synthetic]))
    cdfs = [np.searchsorted(np.sort(each), values, side="right") / n for each in (real, synthetic)]
    scored = np.abs(cdfs[0] - cdfs[1]).max()
    hidden = drawn.min(axis=1)[len(chart.bars) :].max(initial=0.0)  # in a bin both have rows in
    assert scored <= shown + hidden + 0.02


def test_rare_categories_share_one_bar():
    real = pd.Series(pd.Categorical([f"c{min(i, 20 - i)}" for i in range(20)]))
    synthetic = pd.Series(pd.Categorical(["c1", "new", None, "c2"]))
    chart = category_bars(real, synthetic)
    assert len(chart.bars) == 9
    assert chart.bars[-1].name == "other (5 values)"
    assert sum(bar.real for bar in chart.bars) == pytest.approx(1.0)
    assert sum(bar.synthetic for bar in chart.bars) == pytest.approx(1.0)


def test_missing_values_are_a_category():
    column = pd.Series(pd.Categorical(["a", None, None]))
    assert [(bar.name, round(bar.real, 2)) for bar in category_bars(column, column).bars] == [
        ("(missing)", 0.67),
        ("a", 0.33),
    ]


# ---- what few rows have ------------------------------------------------------------------------


def test_categories_of_few_rows_are_one_bar():
    real = pd.Series(["Rome"] * 20 + ["Oslo"] * 4 + ["Anna's house"])
    synthetic = pd.Series(["Rome"] * 10 + ["Anna's house"] * 9 + ["Atlantis"] * 6)
    held_out = pd.Series(["Oslo", "secret"])
    chart = category_bars(real, synthetic, [held_out], least=5)
    # Oslo has five rows with those held out; no one is from Atlantis; one row alone has a house
    assert shares(chart) == {
        "Rome": (0.8, 0.4),
        "Oslo": (0.16, 0.0),
        "Atlantis": (0.0, 0.24),
        "other (1 value)": (0.04, 0.36),
    }
    assert "house" not in repr(chart)
    assert list(shares(category_bars(real[20:], synthetic, least=5))) == [
        "Rome",
        "Atlantis",
        "other (2 values)",
    ]
    assert category_bars(real[20:], real[20:], least=5) is None


def test_no_row_decides_an_axis():
    rng = np.random.default_rng(0)
    column = pd.Series(np.append(rng.normal(100, 10, 500), [98765.4321, -4321.98765]))
    chart = histogram(column, column, least=5)
    ends = [float(text.replace(",", "")) for _, text in chart.outlines.ticks]
    assert 60 < ends[0] < 90 < 110 < ends[-1] < 140
    assert not {"98765", "98,765", "4321", "4,322"} & set(re.findall(r"[\d,]+", repr(chart)))
    # the other rows alone give the same ends
    again = histogram(column[:500], column[:500], least=5)
    assert again.outlines.ticks == chart.outlines.ticks


def test_bins_hold_no_row_or_enough():
    rng = np.random.default_rng(1)
    real = pd.Series(rng.standard_cauchy(200))
    chart = histogram(real, real, least=5)
    counts = masses(chart.outlines, chart.outlines.real) * 200
    assert ((counts < 1e-9) | (counts > 5 - 1e-9)).all()
    assert histogram(real[:9], real, least=5) is None


def test_a_rare_count_is_not_named():
    real = pd.Series([1.0] * 50 + [2.0] * 30 + [3.0] * 20 + [4.0])
    chart = histogram(real, real, least=5)
    assert [text for _, text in chart.outlines.ticks] == ["1", "2", "3"]


# ---- which columns are taken for identifiers -----------------------------------------------------

RNG = np.random.default_rng(0)
N = 200
IDENTIFIERS = {
    "row": range(N),
    "row with gaps": [None, *range(1000, 1000 + N - 1)],
    "customer_id": RNG.permutation(10**6)[:N] * 17,  # by its name alone
    "mail": [f"user{i}@mail.org" for i in range(N)],
    "pairs": [f"family {i // 2}" for i in range(N)],  # of two rows each
    "decimals": [f"x{RNG.random():.12f}" for _ in range(N)],
    "read as text": [f"{RNG.random():.12f}" for _ in range(N)],
}
OTHERS = {
    "income": RNG.normal(1e4, 1e3, N),
    "population": RNG.permutation(10**6)[:N] * 17,
    "great": RNG.normal(0, 1e300, N),
    "city": RNG.choice(["Rome", "Oslo", "Cork"], N),
    "day": pd.date_range("2001-01-01", periods=N),
    "member": RNG.random(N) < 0.5,
    "nothing": [None] * N,
}


@pytest.mark.parametrize("name", [*IDENTIFIERS, *OTHERS])
def test_identifiers_and_others(name):
    table = pd.DataFrame({name: (IDENTIFIERS | OTHERS)[name]})
    aligned = align_tables({"real": table}, reference="real")["real"]
    assert is_identifier(aligned[name]) == (name in IDENTIFIERS)
