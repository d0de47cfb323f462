"""Fidelity: tables of known quality, and each measure by independent computations and by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

from combutab.evaluation import fidelity

# ---- Tables whose fidelity is known, and how a value of its measures is found -------------------


def law(n, seed=0):
    """Rows of one distribution: two related numbers, two related categories, a date, gaps."""
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame(
        {
            "x": x,
            "y": x + 0.3 * rng.normal(size=n),
            "c": c,
            "d": np.where(c == "a", "u", rng.choice(["u", "v"], n)),
            "t": pd.Timestamp("2020") + pd.to_timedelta(100 * rng.exponential(size=n), unit="D"),
        }
    )
    table.loc[rng.random(n) < 0.1, "y"] = None
    table.loc[(table["c"] == "b") & (rng.random(n) < 0.5), "d"] = None
    return table


def shuffled(table, seed=1):
    rng = np.random.default_rng(seed)
    order = {name: rng.permutation(len(table)) for name in table}
    return pd.DataFrame({name: column.to_numpy()[order[name]] for name, column in table.items()})


def value(table, measure, column=None, other=None, source="synthetic", what="mean"):
    """The one value of a measure."""
    row = table[
        (table["measure"] == measure)
        & table["column"].map(lambda name: name == column)
        & table["other_column"].map(lambda name: name == other)
        & (table["source"] == source)
    ]
    assert len(row) == 1, (measure, column, other, source)
    return row[what].item()


# ---- Fidelity of whole tables: of known quality, in any form, hostile ones, and the scorer ------


@pytest.fixture(scope="module")
def known():
    """Synthetic tables whose quality is known."""
    real = law(2000)
    return fidelity(real=real, synthetic={"copy": real, "fresh": law(2000, seed=9)})


def test_all_scores_lie_between_0_and_1(known):
    assert known["aspect"].unique().tolist() == ["shape", "pairs", "coverage", "missing", "support"]
    assert set(known.loc[~known["greater_is_better"], "measure"]) == {"wasserstein"}
    assert known.loc[known["greater_is_better"], "mean"].between(0, 1).all()
    assert (known.loc[~known["greater_is_better"], "mean"] >= 0).all()
    assert (known["note"] == "").all()
    assert not known.duplicated(["measure", "column", "other_column", "source"]).any()


def test_a_copy_is_perfect(known):
    copy = known[known["source"] == "copy"]
    best = np.where(copy["greater_is_better"], 1.0, 0.0)
    np.testing.assert_allclose(copy["mean"], best, atol=1e-9)


# ---- several tables ----------------------------------------------------------------------------


def test_columns_of_arrays_are_positions():
    rng = np.random.default_rng(0)
    table = fidelity(real=rng.normal(size=(50, 2)), synthetic=rng.normal(size=(60, 2)))
    pairs = table.loc[table["measure"] == "correlation", ["column", "other_column"]]
    assert pairs.to_numpy().tolist() == [[0, 1]]
    assert table.loc[table["measure"] == "alpha_precision", "column"].item() is None


# ---- hostile tables ----------------------------------------------------------------------------


def test_columns_without_values():
    real = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"], "e": [None, None]})
    made = pd.DataFrame({"x": [None, None], "c": [None, None], "e": [1.0, 2.0]})
    table = fidelity(real=real, synthetic=made)
    for measure, column in (("ks", "x"), ("range_coverage", "x"), ("tv", "c")):
        assert value(table, measure, column) == 0.0
        assert value(table, measure, column, what="note") == "no synthetic values"
    assert np.isnan(value(table, "wasserstein", "x"))
    for measure in ("ks", "wasserstein", "range_coverage", "range_adherence"):
        assert np.isnan(value(table, measure, "e"))
        assert value(table, measure, "e", what="note") == "no real values"
    assert value(table, "missing_share", "c") == 0.0
    assert np.isnan(value(table, "correlation", "x", "e"))


def test_constant_columns():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "k": [5.0, 5.0, 5.0], "c": "one"})
    table = fidelity(
        real=real, synthetic={"same": real, "other": real.assign(x=2.0, k=7.5, c="two")}
    )
    assert value(table, "range_coverage", "k", source="same") == 1.0
    assert value(table, "range_coverage", "k", source="other") == 0.0
    assert value(table, "range_adherence", "k", source="other") == 0.0
    assert value(table, "wasserstein", "k", source="other") == pytest.approx(2.5)
    assert value(table, "tv", "c", source="same") == 1.0
    assert value(table, "tv", "c", source="other") == 0.0
    assert value(table, "correlation", "x", "k", source="same", what="note") == (
        "no real correlation"
    )
    assert np.isnan(value(table, "correlation", "x", "k", source="same"))
    for measure in ("alpha_precision", "beta_recall"):
        assert value(table, measure, source="same") == pytest.approx(1.0)


def test_a_constant_synthetic_column_has_no_correlation():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]})
    table = fidelity(real=real, synthetic=real.assign(y=2.0))
    assert value(table, "correlation", "x", "y") == pytest.approx(0.5)
    assert "taken as 0" in value(table, "correlation", "x", "y", what="note")


@pytest.mark.parametrize(("n_real", "n_made"), [(1, 1), (1, 30), (30, 1), (2, 2)])
def test_tables_of_one_row(n_real, n_made):
    table = fidelity(real=law(n_real), synthetic=law(n_made, 1))
    scores = table[table["greater_is_better"]]["mean"]
    assert scores.dropna().between(0, 1).all()
    if min(n_real, n_made) < 2:
        assert value(table, "beta_recall", what="note") == "fewer than 2 rows"


def test_numbers_of_any_size():
    real = pd.DataFrame({"x": [1e300, -1e300, 5.0, 2.0], "y": [1e-300, 2e-300, 0.0, 1.0]})
    table = fidelity(real=real, synthetic=real)
    assert value(table, "correlation", "x", "y") == pytest.approx(1.0)
    assert value(table, "ks", "x") == 1.0


@pytest.mark.parametrize(
    "wrong", [{"n_bins": 1}, {"max_rows": 1}, {"n_bins": 2.5}, {"synthetic": []}, {"synthetic": {}}]
)
def test_wrong_arguments(wrong):
    real = law(10)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        fidelity(**({"real": real, "synthetic": real} | wrong))


# ---- one column --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_ks_and_wasserstein_are_scipys(seed):
    rng = np.random.default_rng(seed)
    # with ties, sizes that differ, and missing values
    real = pd.DataFrame({"x": rng.normal(size=200).round(1)})
    made = pd.DataFrame({"x": (rng.gumbel(size=150) * 2).round(1)})
    a, b = real["x"].copy(), made["x"].copy()
    real.loc[200:204, "x"] = np.nan
    table = fidelity(real=real, synthetic=made)
    assert value(table, "ks", "x") == pytest.approx(1 - scipy.stats.ks_2samp(a, b).statistic)
    swapped = fidelity(real=made, synthetic=real)  # the other is the greater one
    assert value(swapped, "ks", "x") == value(table, "ks", "x")
    expected = scipy.stats.wasserstein_distance(a, b) / a.std(ddof=0)
    assert value(table, "wasserstein", "x") == pytest.approx(expected)


def test_a_shift_is_its_wasserstein_distance():
    real = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=101, freq="D")})
    table = fidelity(real=real, synthetic=real + pd.Timedelta(days=10))
    # the variance of 0, ..., n - 1 is (n^2 - 1) / 12
    assert value(table, "wasserstein", "t") == pytest.approx(10 / np.sqrt((101**2 - 1) / 12))
    assert value(table, "ks", "t") == pytest.approx(1 - 10 / 101)
    assert value(table, "range_coverage", "t") == pytest.approx(0.9)
    assert value(table, "range_adherence", "t") == pytest.approx(91 / 101)


def test_categories_by_hand():
    real = pd.DataFrame({"c": ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + [None] * 2})
    made = pd.DataFrame({"c": ["a"] * 2 + ["b"] * 1 + ["z"] * 1})
    table = fidelity(real=real, synthetic=made)
    # (.5, .3, .2, 0) and (.5, .25, 0, .25)
    assert value(table, "tv", "c") == pytest.approx(0.75)
    assert value(table, "category_coverage", "c") == pytest.approx(2 / 3)
    assert value(table, "category_adherence", "c") == pytest.approx(3 / 4)
    assert value(table, "missing_share", "c") == pytest.approx(1 - 2 / 12)


def test_missing_patterns_by_hand():
    real = pd.DataFrame({"a": [1, None, None, 4], "b": ["x", "y", None, None], "k": 0})
    made = pd.DataFrame({"a": [1, None, None, 4], "b": ["x", None, None, "y"], "k": 0})
    table = fidelity(real=real, synthetic=made)
    assert value(table, "missing_share", "a") == 1.0
    assert value(table, "missing_share", "b") == 1.0
    # none, a, ab, b: a quarter each; none, ab: a half each
    assert value(table, "missing_pattern") == pytest.approx(0.5)
    assert "k" not in set(table.loc[table["measure"] == "missing_share", "column"])


# ---- pairs -------------------------------------------------------------------------------------


def test_correlations_are_numpys():
    real, made = law(300), law(200, seed=5)
    table = fidelity(real=real, synthetic=made)

    def correlation(rows):
        rows = rows[["x", "y"]].dropna().to_numpy()
        return np.corrcoef(rows.T)[0, 1]

    expected = 1 - abs(correlation(real) - correlation(made)) / 2
    assert value(table, "correlation", "x", "y") == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_joint_frequencies_are_those_of_a_cross_table(seed):
    real, made = law(300, seed), law(250, seed + 10)
    table = fidelity(real=real, synthetic=made, n_bins=4)
    edges = [-np.inf, *np.sort(real["x"].to_numpy())[[74, 149, 224]], np.inf]  # 75 values a bin

    def frequencies(rows, *names):
        columns = {
            "x": pd.cut(rows["x"], edges).astype(str),
            "c": rows["c"],
            "d": rows["d"].astype(object).fillna("missing"),
        }
        return pd.Series(list(zip(*(columns[name] for name in names), strict=True))).value_counts(
            normalize=True
        )

    for pair in (("c", "d"), ("x", "c"), ("x", "d")):
        off = frequencies(real, *pair).sub(frequencies(made, *pair), fill_value=0.0)
        assert value(table, "contingency", *pair) == pytest.approx(1 - off.abs().sum() / 2)


def test_bins_of_few_and_missing_values():
    # 0 is most of it, and the bins are {0}, the rest, and missing
    real = pd.DataFrame({"n": [0.0] * 6 + [1.0, 2.0, None, None], "c": list("aaaaaabbcc")})
    made = pd.DataFrame({"n": [0.0] * 5 + [None] * 5, "c": list("aaaaacccca")})
    table = fidelity(real=real, synthetic=made, n_bins=2)
    # (.6 0a, .2 rest b, .2 missing c) and (.5 0a, .4 missing c, .1 missing a)
    assert value(table, "contingency", "n", "c") == pytest.approx(0.5 + 0.2)


def test_many_categories_are_compared_as_few_are():
    rng = np.random.default_rng(0)
    names = np.array([f"id-{i}" for i in range(3000)])
    real = pd.DataFrame({"a": names, "b": names[::-1]})
    made = real.iloc[rng.permutation(3000)[:1000]]
    table = fidelity(real=real, synthetic=made, max_rows=100)
    assert value(table, "tv", "a") == pytest.approx(1 / 3)
    assert value(table, "contingency", "a", "b") == pytest.approx(1 / 3)


def test_numbers_that_are_categories():
    real = pd.DataFrame({"k": [0, 1, 1, 2], "x": [0.1, 0.2, 0.3, 0.4]})
    table = fidelity(real=real, synthetic=real.assign(k=[0, 1, 5, 2]), categorical=["k"])
    assert value(table, "tv", "k") == pytest.approx(0.75)


# ---- rows --------------------------------------------------------------------------------------


def alpha_beta(real, made, k=5):
    """Both integrals, from one level and one row after the other."""
    real, made = ((each - real.mean(0)) / real.std(0) for each in (real, made))
    levels = np.linspace(0, 1, 101)
    from_real = np.linalg.norm(real - real.mean(0), axis=1)
    to_real = np.linalg.norm(made - real.mean(0), axis=1)
    from_made = np.linalg.norm(made - made.mean(0), axis=1)
    precision, recall = [], []
    for level in levels:
        precision.append((to_real <= np.quantile(from_real, level)).mean())
        covered = []
        for i, row in enumerate(real):
            others = np.linalg.norm(np.delete(real, i, axis=0) - row, axis=1)
            to_made = np.linalg.norm(made - row, axis=1)
            is_near = to_made.min() <= np.sort(others)[k - 1]
            covered.append(is_near and from_made[to_made.argmin()] <= np.quantile(from_made, level))
        recall.append(np.mean(covered))
    return [
        1 - 2 * scipy.integrate.trapezoid(np.abs(np.array(curve) - levels), levels)
        for curve in (precision, recall)
    ]


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 0.5), (0.5, 1.0), (0.0, 2.0)])
def test_alpha_precision_and_beta_recall_match_loops(shift, scale):
    rng = np.random.default_rng(0)
    real = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 3))
    made = rng.permutation(real) * scale + shift * real.std(0) + 0.3 * rng.normal(size=(120, 3))
    table = fidelity(real=real, synthetic=made)
    found = [value(table, "alpha_precision"), value(table, "beta_recall")]
    # a quantile between two rows is any number between their radii
    np.testing.assert_allclose(found, alpha_beta(real, made), atol=0.015)
