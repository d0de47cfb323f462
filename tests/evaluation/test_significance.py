"""The tests and intervals against scipy, hand-worked numbers and enumeration."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from combutab.evaluation import (
    bootstrap_interval,
    corrected_interval,
    corrected_resampled_ttest,
    friedman,
    holm,
    t_interval,
    wilcoxon,
)

scores = st.lists(st.integers(-20, 20).map(lambda i: i / 8), min_size=2, max_size=9)
pairs = scores.flatmap(
    lambda a: st.tuples(
        st.just(a),
        st.lists(st.integers(-20, 20).map(lambda i: i / 8), min_size=len(a), max_size=len(a)),
    )
)


# --- corrected resampled t-test ---------------------------------------------------------------


def test_corrected_t_by_hand():
    # d = 1, 2, 3: mean 2, variance 1, k = 3. Factor 1/3 + 1/6 = 1/2: t = 2 / sqrt(1/2) = 2.828.
    # With 2 degrees of freedom the two-sided p is 1 - t / sqrt(t^2 + 2) = 1 - sqrt(0.8).
    result = corrected_resampled_ttest([2, 4, 6], [1, 2, 3], n_train=60, n_test=10)
    assert result.statistic == pytest.approx(math.sqrt(8), rel=1e-14)
    assert result.pvalue == pytest.approx(1 - math.sqrt(0.8), rel=1e-12)


@given(pair=pairs)
def test_uncorrected_t_is_scipy_s_paired_test(pair):
    a, b = map(np.array, pair)
    if np.ptp(a - b) == 0:
        return
    ours = corrected_resampled_ttest(a, b, n_train=1e300, n_test=1)
    theirs = stats.ttest_rel(a, b)
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9, abs=1e-12)
    assert ours.pvalue == pytest.approx(theirs.pvalue, rel=1e-9, abs=1e-12)


@given(pair=pairs, ratio=st.floats(0.01, 2))
def test_corrected_t_is_antisymmetric_and_conservative(pair, ratio):
    a, b = pair
    one = corrected_resampled_ttest(a, b, n_train=1000, n_test=1000 * ratio)
    other = corrected_resampled_ttest(b, a, n_train=1000, n_test=1000 * ratio)
    assert one.statistic == -other.statistic
    assert one.pvalue == other.pvalue
    assert 0 <= one.pvalue <= 1
    assert one.pvalue >= corrected_resampled_ttest(a, b, n_train=1e12, n_test=1).pvalue


def test_corrected_t_without_variance():
    a = np.array([0.1, 0.2, 0.3])
    assert corrected_resampled_ttest(a, a, n_train=2, n_test=1) == (0.0, 1.0)
    assert corrected_resampled_ttest(a, a * (1 + 2e-16), n_train=2, n_test=1) == (0.0, 1.0)
    # 0.1 more everywhere; the differences are not the same double, but the same number.
    assert len(set((a + 0.1) - a)) > 1
    assert corrected_resampled_ttest(a + 0.1, a, n_train=2, n_test=1) == (math.inf, 0.0)
    assert corrected_resampled_ttest(a, a + 0.1, n_train=2, n_test=1) == (-math.inf, 0.0)


# --- Wilcoxon ---------------------------------------------------------------------------------


def test_wilcoxon_by_hand():
    # d = 1, 2, -3 (ranks 1, 2, 3): the sums are 3 and 3. P(W <= 3) = 5/8 of {0,1,2,3,3,4,5,6};
    # twice that is cut at 1. With d = 1, 2, 3 the sum 0 has 1/8, two-sided 1/4.
    assert wilcoxon([1, 2, 0], [0, 0, 3]) == (3.0, 1.0)
    assert wilcoxon([1, 2, 3], [0, 0, 0]) == (0.0, 0.25)
    # One zero is left out; |d| = 1, 1, 2 have ranks 1.5, 1.5, 3; the negative sum is 1.5.
    # P(W <= 1.5) = P({}, {1.5}, {1.5'}) = 3/8, two-sided 3/4.
    assert wilcoxon([5, 1, 0, 2], [5, 0, 1, 0]) == (1.5, 0.75)


@given(
    d=st.lists(st.integers(1, 10**6), min_size=2, max_size=40, unique=True),
    seed=st.integers(0, 10**6),
)
def test_wilcoxon_is_scipy_s_exact_test_without_ties(d, seed):
    d = np.array(d) * np.random.default_rng(seed).choice([-1, 1], size=len(d))
    expected = stats.wilcoxon(d, method="exact")
    ours = wilcoxon(d, np.zeros(len(d)))
    assert ours.statistic == expected.statistic
    assert ours.pvalue == pytest.approx(expected.pvalue, rel=1e-9)


@settings(max_examples=50)
@given(pair=pairs)
def test_wilcoxon_with_ties_enumerates_all_signs(pair):
    a, b = map(np.array, pair)
    d = (a - b)[a != b]
    ranks = stats.rankdata(np.abs(d)) if len(d) else np.array([])
    smaller = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    sums = [
        ranks[np.array(signs, dtype=bool)].sum()
        for signs in itertools.product([False, True], repeat=len(d))
    ]
    expected = min(1.0, 2 * np.mean(np.array(sums) <= smaller))
    assert wilcoxon(a, b) == (smaller, pytest.approx(expected, rel=1e-12))
    assert wilcoxon(b, a) == wilcoxon(a, b)


@pytest.mark.parametrize("ties", [False, True])
def test_wilcoxon_of_many_pairs_is_the_normal_approximation(ties):
    d = np.random.default_rng(1).normal(0.1, 1.0, 250)
    d = np.round(d, 1) if ties else d
    d = d[d != 0]
    method = stats.wilcoxon(d, method="approx", correction=False)
    assert wilcoxon(d, 0 * d).pvalue == pytest.approx(method.pvalue, rel=1e-9)
    # Just under the limit the exact value is near it.
    d = d[:100]
    approximate = stats.wilcoxon(d, method="approx", correction=False).pvalue
    exact = wilcoxon(d, 0 * d).pvalue
    assert exact == pytest.approx(approximate, rel=0.02)
    assert exact != pytest.approx(approximate, rel=1e-6)


def test_wilcoxon_knows_rounding_from_difference():
    # 0.9 - 0.8, 0.3 - 0.2 and 0.2 - 0.1 are three doubles and one step: all tied, ranks 2, 2, 2.
    assert wilcoxon([0.9, 0.2, 0.2], [0.8, 0.3, 0.1]).statistic == 2.0
    assert wilcoxon([0.1 + 0.2, 1.0], [0.3, 1.0]) == (0.0, 1.0)
    # A small difference of small scores counts beside large scores.
    assert wilcoxon([1e9, 2e-6], [1e9, 1e-6]).statistic == 0.0
    assert wilcoxon([1e9, 2e-6, 5.0], [1e9, 1e-6, 9.0]).pvalue == 1.0


# --- Friedman ---------------------------------------------------------------------------------


def test_friedman_by_hand():
    # Ranks in three rows: 1 2 3, 1 2 3, 2 1 3; column sums 4, 5, 9.
    # 12 / (3 * 3 * 4) * (16 + 25 + 81) - 3 * 3 * 4 = 122 / 3 - 36 = 14 / 3.
    # With 2 degrees of freedom p = exp(-x / 2).
    result = friedman(pd.DataFrame([[1, 2, 3], [1, 2, 3], [2, 1, 3]]))
    assert result.statistic == pytest.approx(14 / 3)
    assert result.pvalue == pytest.approx(math.exp(-7 / 3))


def test_friedman_with_ties_by_hand():
    # Ranks 1.5 1.5 3 and 1 2 3: sums 2.5, 3.5, 6, mean 4. The usual statistic is
    # 12 / (2 * 3 * 4) * (6.25 + 12.25 + 36) - 3 * 2 * 4 = 3.25; the one tie of two takes
    # 6 / (2 * 3 * 8) = 1/8 off the divisor: 3.25 / (7/8).
    assert friedman([[1, 1, 2], [1, 2, 3]]).statistic == pytest.approx(3.25 / 0.875)


def test_scores_equal_up_to_rounding_are_ties():
    a, b = np.full(6, 0.3), np.full(6, 0.1 + 0.2)
    b[::2] = 0.3 * (1 - 1e-14)  # some below, some above
    assert (a != b).all()
    assert friedman(np.c_[a, b, a]) == (0.0, 1.0)
    assert wilcoxon(a, b) == (0.0, 1.0)
    assert corrected_resampled_ttest(a, b, n_train=4, n_test=1) == (0.0, 1.0)
    different = b + 1e-9
    assert friedman(np.c_[a, different, a]).pvalue < 0.01
    assert wilcoxon(a, different).pvalue < 0.05


def test_friedman_of_ties_only_and_of_bad_input():
    assert friedman([[1, 1, 1], [2, 2, 2]]) == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"\(3, 2\).*wilcoxon"):
        friedman(np.ones((3, 2)))
    with pytest.raises(ValueError, match="missing or infinite"):
        friedman([[1, 1, math.nan], [2, 2, 2]])


# --- Holm -------------------------------------------------------------------------------------


@given(p=st.lists(st.floats(0, 1), min_size=0, max_size=12), level=st.floats(0.001, 0.2))
def test_holm_rejects_what_the_step_down_rule_rejects(p, level):
    adjusted = holm(p)
    rejected = set()
    for step, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] * (len(p) - step) > level:
            break
        rejected.add(i)
    assert {i for i in range(len(p)) if adjusted[i] <= level} == rejected
    assert ((adjusted >= p) & (adjusted <= 1)).all()


# --- intervals --------------------------------------------------------------------------------


@given(values=scores, confidence=st.floats(0.5, 0.999))
def test_t_interval_is_scipy_s(values, confidence):
    interval = t_interval(values, confidence=confidence)
    if np.ptp(values) == 0:
        assert interval == (values[0], values[0], values[0])
        return
    low, high = stats.t.interval(
        confidence, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    assert interval == pytest.approx((np.mean(values), low, high), rel=1e-9, abs=1e-12)


@given(pair=pairs, ratio=st.floats(0.02, 1))
def test_corrected_interval_of_differences_is_the_corrected_test(pair, ratio):
    a, b = map(np.array, pair)
    if np.ptp(a - b) == 0:
        return
    p = corrected_resampled_ttest(a, b, n_train=50, n_test=50 * ratio).pvalue
    if not 1e-6 < p < 1 - 1e-6:
        return
    # The interval at confidence 1 - p touches zero.
    _, low, high = corrected_interval(a - b, n_train=50, n_test=50 * ratio, confidence=1 - p)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-6 * (high - low))


def test_corrected_interval_by_hand():
    # Scores 1, 2, 3; factor 1/3 + 2/3 = 1; t(0.975, 2) = sqrt(2) * 0.95 / sqrt(1 - 0.95^2).
    t = math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2)
    interval = corrected_interval([1, 2, 3], n_train=3, n_test=2)
    assert interval == pytest.approx((2, 2 - t, 2 + t), rel=1e-12)


def test_bootstrap_interval_by_hand():
    # Of the 4 resamples of (0, 1) the mean is 0 in one, 1 in one: the 60 % interval is all of it,
    # the 40 % interval the middle point.
    assert bootstrap_interval([0, 1], confidence=0.6, random_state=0) == (0.5, 0.0, 1.0)
    assert bootstrap_interval([0, 1], confidence=0.4, random_state=0) == (0.5, 0.5, 0.5)


def test_bootstrap_random_state():
    values = [1.0, 5.0, 2.0, 9.0, 4.0]
    before = np.random.get_state()[1].copy()
    first = bootstrap_interval(values, random_state=3, n_resamples=99)
    assert first == bootstrap_interval(
        values, random_state=np.random.default_rng(3), n_resamples=99
    )
    assert first != bootstrap_interval(values, random_state=4, n_resamples=99)
    advancing = np.random.RandomState(0)
    draws = {bootstrap_interval(values, random_state=advancing, n_resamples=99) for _ in range(3)}
    assert len(draws) == 3
    bootstrap_interval(values, n_resamples=9)
    assert np.array_equal(np.random.get_state()[1], before)


# --- what is refused --------------------------------------------------------------------------


def t_test(a=(1, 2), b=(2, 4), n_train=10, n_test=5):
    return corrected_resampled_ttest(a, b, n_train=n_train, n_test=n_test)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: t_test(a=[1]), "a must"),
        (lambda: t_test(a=[[1, 2]]), "one-dimensional"),
        (lambda: t_test(b=[1, 2, 3]), "same folds, got 2 and 3"),
        (lambda: t_test(b=[1, math.nan]), r"b has 1 missing or infinite value\(s\) of 2"),
        (lambda: t_test(n_train=0), "n_train must"),
        (lambda: t_test(n_test=math.nan), "n_test must"),
        *(
            (lambda bad=bad: holm(bad), r"one-dimensional and in \[0, 1\]")
            for bad in ([0.1, 1.1], [-0.1], [math.nan], [[0.1]], 0.1)
        ),
        *(
            (lambda interval=interval, given=given: interval(**{"scores": [1, 2]} | given), says)
            for interval in (t_interval, bootstrap_interval)
            for given, says in [
                ({"scores": [1.0]}, "at least 2 values"),
                ({"scores": [1.0, math.inf]}, "1 missing or infinite"),
                ({"confidence": 1.0}, "confidence must be between 0 and 1"),
                ({"confidence": 95}, "such as 0.95, got 95"),
            ]
        ),
        (lambda: bootstrap_interval([1, 2], n_resamples=0), "n_resamples must"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()
