"""The mechanisms of the private generator, one by one; noise cannot be fixed by a seed.

Statistical checks fail by chance with a probability below 1e-9 each.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from combutab.generators.private._mechanisms import (
    Ledger,
    PrivateRows,
    bound_rows,
    epsilon_of,
    exact_counts,
    release_categories,
    release_choice,
    release_counts,
    rho_of,
)

BUDGET = Ledger(100.0, 1e-6, 5e-7)
WORDS = {"max_rows": 1, "step": "a step", "columns": ["a"]}


def ample():
    """A ledger that has paid for nothing yet."""
    BUDGET.steps.clear()
    return BUDGET


def reference_epsilon(rho, delta):
    """Canonne, Kamath and Steinke (2020), Proposition 7, by minimising over the order."""

    def at(log_order):
        a = 1 + math.exp(log_order)
        return a * rho + math.log(1 / (a * delta)) / (a - 1) + math.log1p(-1 / a)

    return optimize.minimize_scalar(at, bounds=(-9, 12), method="bounded").fun


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_the_conversion_is_that_of_the_literature(rho, delta):
    assert epsilon_of(rho, delta) == pytest.approx(reference_epsilon(rho, delta), rel=1e-3)
    assert epsilon_of(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0, 100.0])
def test_a_budget_is_used_up_but_not_exceeded(epsilon):
    back = epsilon_of(rho_of(epsilon, 1e-6), 1e-6)
    assert 0.9999 * epsilon < back <= epsilon


def test_bound_rows_keeps_at_most_max_rows():
    persons = np.random.default_rng(0).integers(0, 50, 600)
    kept = bound_rows(persons, 7)
    had, have = np.bincount(persons, minlength=50), np.bincount(persons[kept], minlength=50)
    np.testing.assert_array_equal(have, np.minimum(had, 7))
    assert (np.diff(kept) > 0).all()
    assert len(bound_rows(np.array([], dtype=int), 3)) == 0


def test_which_rows_are_kept_is_drawn_evenly():
    n = 3000
    kept = bound_rows(np.repeat(np.arange(n), 3), 1) % 3
    assert stats.chisquare(np.bincount(kept, minlength=3)).pvalue > 1e-9


def test_exact_counts_are_those_of_a_crosstab():
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, 3, 99), rng.integers(0, 4, 99)], axis=1)
    expected = pd.crosstab(codes[:, 0], codes[:, 1])
    np.testing.assert_array_equal(exact_counts(codes, (3, 4)), expected)
    assert exact_counts(codes[:0], (3, 5)).tolist() == [[0] * 5] * 3
    with pytest.raises(ValueError, match="2 columns, sizes 1"):
        exact_counts(codes, (3,))


@pytest.mark.parametrize("max_rows", [1, 4])
def test_noise_scale_of_counts_follows_the_budget(max_rows):
    ledger, counts = Ledger(100.0, 1e-6), np.arange(4000).reshape(8, 500)
    noisy, scale = release_counts(counts, 0.02, ledger, **{**WORDS, "max_rows": max_rows})
    assert scale == pytest.approx(5 * max_rows)  # rho = (max_rows / scale)^2 / 2
    assert noisy.shape == counts.shape
    assert noisy.dtype == np.int64
    chi_square = ((noisy - counts) ** 2).sum() / scale**2
    low, high = stats.chi2(counts.size).ppf([5e-10, 1 - 5e-10])
    assert low < chi_square < high
    assert ledger.steps[0]["rho"] == pytest.approx(0.02)
    assert ledger.steps[0]["sensitivity"] == max_rows


def test_a_choice_is_drawn_by_its_score():
    counts = [np.array([100, 0]), np.array([90, 10]), np.array([50, 50])]
    expected = [np.array([100.2, 0.0]), np.array([90.0, 10.0]), np.array([0.0, 0.0])]
    for _ in range(20):  # a gap of 100 scales
        assert release_choice(counts, expected, 0.5, ample(), **WORDS) == 2
    penalties = [-300.0, 0.0, 0.0]
    assert release_choice(counts, expected, 0.5, ample(), penalties=penalties, **WORDS) == 0
    assert (
        release_choice(
            [counts[1]] * 2, [expected[2], expected[1] * 0.6], 0.5, ample(), weights=[1, 9], **WORDS
        )
        == 1
    )


def test_choice_has_the_odds_of_exponential_mechanism():
    # scores 0 and 1, scale 1: by Gumbel noise the odds are those of a logistic distribution
    rho, n = 0.5, 1500
    counts, expected = [np.array([1]), np.array([1])], [np.array([1.0]), np.array([0.0])]
    wins = sum(release_choice(counts, expected, rho, ample(), **WORDS) for _ in range(n))
    assert stats.binomtest(wins, n, 1 / (1 + math.exp(-1))).pvalue > 1e-9


def test_weights_raise_the_sensitivity():
    ledger, arrays = Ledger(100.0, 1e-6), [np.array([5]), np.array([7])]
    options = {**WORDS, "max_rows": 3}
    release_choice(arrays, arrays, 0.5, ledger, weights=[1, 4], **options)
    assert ledger.steps[0]["sensitivity"] == 12
    assert ledger.steps[0]["scale"] == pytest.approx(12)
    assert ledger.steps[0]["rho"] == pytest.approx(0.5)


def test_only_frequent_categories_are_released():
    ledger = Ledger(100.0, 1e-6, 5e-7)
    counts = {"often": 5000, 17: 4000, "once": 1, **{f"rare {i}": 1 for i in range(50)}}
    found = release_categories(counts, 0.02, 5e-7, ledger, **WORDS)
    assert found == [17, "often"]
    step = ledger.steps[0]
    assert 0 < step["delta"] <= 5e-7
    threshold = int(step["mechanism"].split()[-1])
    # a single row is above the threshold with a probability of delta at most, and not far below
    assert stats.norm.sf((threshold - 1.5) / step["scale"]) <= 5e-7
    assert stats.norm.sf((threshold - 2.5) / step["scale"]) > 2.5e-7


def test_threshold_grows_with_rows_per_person():
    thresholds = []
    for max_rows in (1, 2, 8):
        ledger = Ledger(100.0, 1e-6, 5e-7)
        release_categories({"a": 1}, 0.1, 5e-7, ledger, **{**WORDS, "max_rows": max_rows})
        thresholds.append(int(ledger.steps[0]["mechanism"].split()[-1]))
    assert thresholds[1] > 2 * thresholds[0] - 2
    assert thresholds[2] > 4 * thresholds[1] - 4


def test_exceeding_the_budget_is_refused_before_drawing():
    ledger = Ledger(1.0, 1e-6)
    rho = ledger.rho_left
    release_counts(np.zeros(3), rho, ledger, **WORDS)  # all of it
    assert ledger.rho_left < 1e-6 * rho
    assert ledger.spent()[0] <= 1.0
    with pytest.raises(RuntimeError, match="the budget is"):
        release_counts(np.zeros(3), rho / 1000, ledger, **WORDS)
    with pytest.raises(RuntimeError, match="delta"):
        release_categories({"a": 1}, rho / 1000, 1e-7, ledger, **WORDS)
    assert len(ledger.steps) == 1


def test_ledger_records_and_sums_all_steps():
    ledger = Ledger(2.0, 1e-6)
    rows = PrivateRows(np.array([[0, 1], [2, 0]]), [3, 2], ["x", "y"], 2, ledger)
    rho = ledger.rho / 4
    counts, _ = rows.measure([0, 1], rho, "pair")
    assert counts.shape == (3, 2)
    assert rows.choose([(0,), (1,)], [np.zeros(3), np.zeros(2)], rho, "choose") in (0, 1)
    rows.measure([1], 2 * rho, "rest")
    frame = ledger.to_frame()
    assert frame["step"].tolist() == ["pair", "choose", "rest"]
    assert frame["columns"].tolist() == [("x", "y"), ("2 candidates",), ("y",)]
    assert frame["sensitivity"].tolist() == [2, 2, 2]
    assert frame["epsilon"].is_monotonic_increasing
    assert frame["epsilon"].iloc[-1] == pytest.approx(2.0, rel=1e-4)
    assert ledger.spent() == (pytest.approx(frame["epsilon"].iloc[-1]), 1e-6)
    assert frame["rho"].sum() == pytest.approx(ledger.rho)


def test_there_is_no_way_to_fix_the_noise():
    np.random.seed(0)
    first = release_counts(np.zeros(40), 0.001, ample(), **WORDS)[0]
    np.random.seed(0)
    assert (release_counts(np.zeros(40), 0.001, ample(), **WORDS)[0] != first).any()
