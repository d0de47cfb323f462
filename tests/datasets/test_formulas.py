"""make_formula: drawn as the paper's Tables 9 to 12 say, targets right to the last digits."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from combutab.datasets import FORMULAS, make_formula
from combutab.datasets._formulas import _quantile_bins

VARIABLES = {
    "gs": ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "v"],
    "ar": ["n", "T", "E_a", "A"],
    "ns": ["A", "r", "x", "y", "z"],
    "bs": ["sigma", "T-t", "S_t", "K", "r"],
}


@pytest.fixture(scope="module")
def drawn():
    return {name: make_formula(name, 20_000, random_state=7) for name in FORMULAS}


def uniform_p(values, low, high):
    assert low <= values.min() <= values.max() <= high
    return stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue


def frequencies_p(values, support, probabilities):
    values = np.asarray(values)
    observed = [int((values == s).sum()) for s in support]
    assert sum(observed) == len(values), "a value outside the support"
    return stats.chisquare(observed, np.asarray(probabilities) * len(values)).pvalue


def exponent(values):
    """The power of ten of mantissas drawn from U(1, 10)."""
    return np.floor(np.log10(np.asarray(values))).astype(int)


# --- shape, names, seeds ---------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMULAS)
def test_names_types_and_finite_values(drawn, name):
    X, y = drawn[name]
    assert list(X) == VARIABLES[name]
    assert X.shape == (20_000, len(VARIABLES[name]))
    integers = [column for column in X if X[column].dtype == np.int64]
    assert integers == {"ar": ["n"], "bs": ["T-t"]}.get(name, [])
    assert y.dtype == np.float64
    assert np.isfinite(X.to_numpy(dtype=float)).all()
    assert np.isfinite(y).all()
    assert (y >= 0).all()
    assert y.name == {"gs": "f", "ar": "k", "ns": "u", "bs": "P"}[name]


@pytest.mark.parametrize("name", FORMULAS)
def test_random_state(name):
    before = np.random.get_state()[1].copy()
    X, _ = make_formula(name, 50, random_state=3)
    assert X.equals(make_formula(name, 50, random_state=3)[0])
    assert X.equals(make_formula(name, 50, random_state=np.random.default_rng(3))[0])
    assert not X.equals(make_formula(name, 50, random_state=4)[0])
    assert not make_formula(name, 50)[0].equals(make_formula(name, 50)[0])
    for advancing in (np.random.default_rng(0), np.random.RandomState(0)):
        first = make_formula(name, 50, random_state=advancing)[0]
        assert not first.equals(make_formula(name, 50, random_state=advancing)[0])
    same = [make_formula(name, 50, random_state=np.random.RandomState(5))[0] for _ in range(2)]
    assert same[0].equals(same[1])
    assert np.array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "xx"}, "'xx'"),
        ({"task": "ranking"}, "task must"),
        ({"n_samples": 0}, "n_samples must"),
        ({"task": "classification", "n_classes": 1}, "n_classes must"),
        ({"task": "classification", "n_samples": 3}, "4 .* 3 rows .* 1 empty; ask for fewer"),
        ({"random_state": "seed"}, "random_state must"),
        ({"random_state": -1}, "random_state must be .* got -1"),
    ],
)
def test_bad_arguments(arguments, says):
    with pytest.raises(ValueError, match=says):
        make_formula(**({"name": "gs", "n_samples": 20} | arguments))


# --- the distributions of Tables 9 to 12 ------------------------------------------------------


def test_gs_distribution():
    X, _ = make_formula("gs", 20_000, random_state=1)
    x = X[[f"x{i}" for i in range(1, 9)]].to_numpy()
    mean, sd = x.mean(axis=1), x.std(axis=1, ddof=1)
    # The mean of 8 draws is N(0, 10) plus N(0, sigma / sqrt 8); E sigma^2 = (1 + 6 + 36) / 3.
    assert abs(mean.mean()) < 4 * 10.1 / math.sqrt(20_000)
    assert mean.var() == pytest.approx(100 + 43 / 3 / 8, rel=0.05)
    # Mean of the unbiased variance is E sigma^2; of its fourth power of sigma, (6^5 - 1) / 25.
    assert (sd**2).mean() == pytest.approx(43 / 3, rel=0.03)
    assert (sd**4).mean() == pytest.approx((1 + 2 / 7) * (6**5 - 1) / 25, rel=0.05)
    standard = ((X["v"] - mean) / sd).to_numpy()
    assert stats.kstest(standard, "norm").pvalue > 0.01
    # Each x is exchangeable with the others: the position of the largest is uniform.
    assert frequencies_p(x.argmax(axis=1), range(8), [1 / 8] * 8) > 0.01


def test_ar_distribution(drawn):
    X, _ = drawn["ar"]
    assert frequencies_p(X["n"], range(11), [1 / 11] * 11) > 0.01
    assert uniform_p(X["T"], 1, 11) > 0.01
    assert uniform_p(X["E_a"], 0, 100) > 0.01
    assert X["A"].between(0, 10).all()
    # A = U(0, 1) * 10**V(-2, 1): its distribution function is the mean of four uniform ones.
    mixture = lambda a: sum(np.clip(a / 10.0**b, 0, 1) for b in (-2, -1, 0, 1)) / 4  # noqa: E731
    assert stats.kstest(X["A"], mixture).pvalue > 0.01


def test_ns_distribution(drawn):
    X, _ = drawn["ns"]
    assert uniform_p(X["A"], 0, 1) > 0.01
    support, probabilities = [-3, -2, -1, 0, 1], [0.1, 0.2, 0.4, 0.2, 0.1]
    for name in "rxyz":
        power = exponent(X[name])
        assert frequencies_p(power, support, probabilities) > 0.01
        assert uniform_p(X[name] / 10.0**power, 1, 10) > 0.01
    # Each has its own exponent: the pairs are independent.
    table = pd.crosstab(exponent(X["r"]), exponent(X["z"]))
    assert stats.chi2_contingency(table).pvalue > 0.01


def test_bs_distribution(drawn):
    X, _ = drawn["bs"]
    assert uniform_p(X["sigma"], 0, 100) > 0.01
    assert uniform_p(X["r"], 0, 0.1) > 0.01
    times = [a * 10**b for b in (1, 2, 3) for a in range(1, 10)]
    assert frequencies_p(X["T-t"], times, [1 / 27] * 27) > 0.01
    power = exponent(X["S_t"])
    assert frequencies_p(power, range(5), [0.2] * 5) > 0.01
    assert (exponent(X["K"]) == power).all()
    spot, strike = X["S_t"] / 10.0**power, X["K"] / 10.0**power
    assert uniform_p(spot, 1, 10) > 0.01
    assert uniform_p(strike, 1, 10) > 0.01
    assert abs(stats.spearmanr(spot, strike).statistic) < 4 / math.sqrt(len(X))


# --- the targets ------------------------------------------------------------------------------


def test_gs_target(drawn):
    X, y = drawn["gs"]
    x = X[[f"x{i}" for i in range(1, 9)]]
    expected = stats.norm.pdf(X["v"], loc=x.mean(axis=1), scale=x.std(axis=1, ddof=1))
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_gs_target_of_eight_equal_values_is_finite():
    row = {f"x{i + 1}": np.array([2.0, 2.0]) for i in range(8)} | {"v": np.array([2.0, 3.0])}
    assert np.isfinite(FORMULAS["gs"].evaluate(row)).all()


def test_ar_target(drawn):
    X, y = drawn["ar"]
    # ln k = ln A + n ln T - E_a / (R T)
    log_k = np.log(X["A"]) + X["n"] * np.log(X["T"]) - X["E_a"] / (8.314 * X["T"])
    np.testing.assert_allclose(np.log(y), log_k, rtol=0, atol=1e-11)


def test_ns_target_is_the_norm_of_the_velocity(drawn):
    X, y = drawn["ns"]
    A, r, x, y_, z = X.to_numpy().T
    u = np.stack([2 * (x * z - r * y_), 2 * (r * x + y_ * z), r**2 - x**2 - y_**2 + z**2])
    u = A * u / (r**2 + x**2 + y_**2 + z**2) ** 2
    np.testing.assert_allclose(y, np.linalg.norm(u, axis=0), rtol=1e-12)


def moderate(X, seed=0):
    """The same rows with volatilities and times at which calls and puts both have a price."""
    generator = np.random.default_rng(seed)
    sigma = generator.uniform(0.01, 0.5, len(X))
    return X.assign(**{"sigma": sigma, "T-t": generator.integers(1, 10, len(X))})


@pytest.mark.parametrize("sigma", ["paper", "moderate", "tiny"])
def test_bs_target_against_forty_digits(drawn, sigma):
    mp = pytest.importorskip("mpmath")
    X = drawn["bs"][0].iloc[:300]
    if sigma != "paper":
        low, high = {"moderate": (-1, 1), "tiny": (-4, -1)}[sigma]
        X = X.assign(sigma=10 ** np.random.default_rng(0).uniform(low, high, len(X)))
    prices = FORMULAS["bs"].evaluate(X)
    compared = 0
    with mp.workdps(40):
        for row, price in zip(X.to_numpy(dtype=float), prices, strict=True):
            s, time, spot, strike, rate = map(mp.mpf, row)
            volatility = s * mp.sqrt(time)
            d1 = (mp.log(spot / strike) + (rate + s * s / 2) * time) / volatility
            if not -1000 < d1 < 1000:  # beyond the reach of 40 digits; the price is a bound
                continue
            d2 = d1 - volatility
            lower = [mp.erfc(d / mp.sqrt(2)) / 2 for d in (d1, d2)]
            exact = strike * mp.exp(-rate * time) * lower[1] - spot * lower[0]
            if exact > 1e-290:
                assert abs(price - exact) <= 2e-12 * exact
                compared += 1
    assert compared > 20


# --- classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("n_classes", [2, 4, 7])
def test_classes_are_quantile_bins_of_the_same_data(name, n_classes):
    X, y = make_formula(name, 1000, random_state=2)
    X_same, labels = make_formula(
        name, 1000, task="classification", n_classes=n_classes, random_state=2
    )
    pd.testing.assert_frame_equal(X, X_same)
    assert labels.dtype == np.int64
    assert labels.name == f"{y.name}_class"
    counts = labels.value_counts().sort_index()
    assert counts.index.tolist() == list(range(n_classes))
    # BS has about 1 % of ties at a price of 0, all inside its lowest class.
    assert counts.max() - counts.min() <= 1
    ranges = y.groupby(labels).agg(["min", "max"])
    assert (ranges["max"].to_numpy()[:-1] < ranges["min"].to_numpy()[1:]).all()


def test_bs_ties_are_zeros_only():
    _, y = make_formula("bs", 20_000, random_state=0)
    assert 0.005 < (y == 0).mean() < 0.02
    assert not y[y > 1e-300].duplicated().any()


def test_dominating_values_raise_instead_of_empty_classes():
    target = np.array([0.0] * 60 + [1.0, 2.0, 3.0, 4.0] * 10)
    assert np.bincount(_quantile_bins(target, 2)).tolist() == [60, 40]
    assert np.bincount(_quantile_bins(-target, 2)).tolist() == [40, 60]
    with pytest.raises(ValueError, match=r"n_classes=4.*100.*5.*1"):
        _quantile_bins(target, 4)


@given(
    values=st.lists(st.integers(0, 30), min_size=2, max_size=60),
    n_classes=st.integers(2, 6),
)
def test_bins_are_monotone_and_keep_ties_together(values, n_classes):
    target = np.array(values, dtype=float)
    try:
        labels = _quantile_bins(target, n_classes)
    except ValueError:
        different = len(np.unique(target))
        assert (
            different < 2
            or (n_classes > 2 and different < len(target))
            or (len(target) < n_classes)
        )
        return
    assert np.unique(labels).tolist() == list(range(n_classes))
    order = np.argsort(target, kind="stable")
    assert (np.diff(labels[order]) >= 0).all()
    assert all(len(np.unique(labels[target == value])) == 1 for value in np.unique(target))
