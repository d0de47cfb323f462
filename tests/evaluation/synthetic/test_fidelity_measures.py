"""Each measure of fidelity, by independent computations and by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

from combutab.evaluation import fidelity
from tests.evaluation.synthetic.known_tables import law, noise, shuffled, value

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


def test_no_rows_on_missing_values_where_there_are_none():
    real = pd.DataFrame({"a": [1, 2, 3]})
    assert "missing" not in set(fidelity(real=real, synthetic=real)["aspect"])


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


def test_bins_of_a_column_with_few_values_and_with_missing_ones():
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


@pytest.mark.parametrize(
    ("shift", "scale"), [(0.0, 1.0), (0.0, 0.5), (0.5, 1.0), (0.0, 2.0), (3.0, 1.0)]
)
def test_alpha_precision_and_beta_recall_are_those_of_loops(shift, scale):
    rng = np.random.default_rng(0)
    real = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 3))
    made = rng.permutation(real) * scale + shift * real.std(0) + 0.3 * rng.normal(size=(120, 3))
    table = fidelity(real=real, synthetic=made)
    found = [value(table, "alpha_precision"), value(table, "beta_recall")]
    # a quantile between two rows is any number between their radii
    np.testing.assert_allclose(found, alpha_beta(real, made), atol=0.015)


def test_collapsed_rows_are_precise_and_recall_little():
    real = law(1000)
    few = pd.concat([law(10, seed=3)] * 100)
    table = fidelity(real=real, synthetic={"few": few, "fresh": law(1000, seed=4)})
    few, fresh = (value(table, "beta_recall", source=source) for source in ("few", "fresh"))
    assert few < 0.6 < fresh


def test_few_distinct_rows_score_as_many_do():
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"c": rng.choice(list("ab"), 400), "d": rng.choice(list("ab"), 400)})
    table = fidelity(real=real, synthetic={"copy": real, "constant": real.assign(c="a", d="b")})
    assert value(table, "alpha_precision", source="copy") == pytest.approx(1.0)
    assert value(table, "beta_recall", source="copy") == pytest.approx(1.0)
    assert value(table, "beta_recall", source="constant") < 0.5


def test_the_rows_drawn_follow_the_seed():
    def draw(seed):
        return fidelity(real=law(400), synthetic=law(400, 1), max_rows=100, random_state=seed)

    pd.testing.assert_frame_equal(draw(3), draw(3))
    assert not draw(3).equals(draw(4))


# ---- SDMetrics ---------------------------------------------------------------------------------


def test_single_columns_and_pairs_are_those_of_sdmetrics():
    metrics = pytest.importorskip("sdmetrics.single_column")
    pairs = pytest.importorskip("sdmetrics.column_pairs")
    real, made = law(300).dropna(ignore_index=True), noise(300)
    table = fidelity(real=real, synthetic=made)
    for measure, metric, column in (
        ("ks", metrics.KSComplement, "x"),
        ("ks", metrics.KSComplement, "t"),
        ("tv", metrics.TVComplement, "c"),
        ("range_coverage", metrics.RangeCoverage, "t"),
        ("range_adherence", metrics.BoundaryAdherence, "x"),
        ("category_coverage", metrics.CategoryCoverage, "d"),
        ("category_adherence", metrics.CategoryAdherence, "c"),
    ):
        expected = metric.compute(real_data=real[column], synthetic_data=made[column])
        assert value(table, measure, column) == pytest.approx(expected), (measure, column)
    for measure, metric, pair in (
        ("correlation", pairs.CorrelationSimilarity, ["x", "y"]),
        ("contingency", pairs.ContingencySimilarity, ["c", "d"]),
    ):
        expected = metric.compute(real_data=real[pair], synthetic_data=made[pair])
        assert value(table, measure, *pair) == pytest.approx(expected), measure


@pytest.mark.slow
def test_the_reports_of_sdmetrics():
    reports = pytest.importorskip("sdmetrics.reports")
    real, made = law(300), shuffled(law(300))
    # names and dtypes that SDMetrics does not take
    real, made = real.rename(columns={"x": 0}), made.rename(columns={"x": 0})
    table = fidelity(real=real, synthetic=made.astype({"c": "category"}), sdmetrics=True)
    kinds = {"0": "numerical", "y": "numerical", "c": "categorical", "d": "categorical"}
    columns = {name: {"sdtype": kind} for name, kind in (kinds | {"t": "datetime"}).items()}
    report = reports.QualityReport()
    report.generate(
        {"table": real.rename(columns={0: "0"})},
        {"table": made.rename(columns={0: "0"})},
        {"tables": {"table": {"columns": columns}}},
        verbose=False,
    )
    assert value(table, "quality") == pytest.approx(report.get_score())
    parts = report.get_properties().set_index("Property")["Score"]
    assert value(table, "column_shapes") == pytest.approx(parts["Column Shapes"])
    assert value(table, "column_pair_trends") == pytest.approx(parts["Column Pair Trends"])
    assert value(table, "diagnostic") == 1.0
    assert set(table.loc[table["aspect"] == "sdmetrics", "measure"]) == {
        "quality",
        "column_shapes",
        "column_pair_trends",
        "diagnostic",
        "data_validity",
        "data_structure",
    }
