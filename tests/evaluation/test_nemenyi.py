"""Nemenyi's test, its groups and its sentences."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from combutab.evaluation import mean_ranks, nemenyi, summarise_nemenyi

# AUC of C4.5, with m, with cf, with both on 14 data sets: Table 6 of Demsar (2006). In the row
# before the last it prints 0.975 twice, and ranks 2 and 3 beside it.
DEMSAR = pd.DataFrame(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ],
    columns=pd.Index(["C4.5", "m", "cf", "m+cf"], name="algorithm"),
)
# Demsar's Table 5: q of 0.05 and of 0.10 for 2 to 10 models
Q = {
    0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}


def ranked(*rows, names="abcdefgh", **index):
    """Scores of which the ranks are the given ones, the best being 1."""
    return pd.DataFrame(
        [[10.0 - rank for rank in row] for row in rows],
        columns=pd.Index(list(names[: len(rows[0])]), name="activation"),
    ).rename_axis(**index)


# --- numbers ----------------------------------------------------------------------------------


def test_demsar_s_example():
    result = nemenyi(DEMSAR)
    assert result.mean_ranks.round(3).to_dict() == {
        "m+cf": 1.964,
        "m": 2.0,
        "cf": 2.893,
        "C4.5": 3.143,
    }
    assert result.mean_ranks.index.tolist() == ["m+cf", "m", "cf", "C4.5"]
    # Printed: 9.28, without the correction for ties. Those of 2, 2, 4 and 2 take
    # (6 + 6 + 60 + 6) / (14 * 60) off the divisor.
    assert result.friedman.statistic * (1 - 78 / 840) == pytest.approx(9.28, abs=0.01)
    # 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25; the best and the worst are 1.18 apart
    assert result.critical_difference == pytest.approx(2.569 * math.sqrt(20 / 84), rel=2e-4)
    assert round(result.critical_difference, 2) == 1.25
    assert result.cliques == (("m+cf", "m", "cf", "C4.5"),)
    assert result.n_rows == 14


def test_demsar_s_example_at_ten_percent():
    # CD 1.12: C4.5 differs from m and from m+cf, and cf from neither
    result = nemenyi(DEMSAR, alpha=0.10)
    assert round(result.critical_difference, 2) == 1.12
    assert result.cliques == (("m+cf", "m", "cf"), ("cf", "C4.5"))
    assert result.alpha == 0.10


@pytest.mark.parametrize("alpha", Q)
@pytest.mark.parametrize("k", range(3, 11))
def test_critical_differences_of_the_printed_table(k, alpha):
    scores = ranked(*[range(k)] * 7, names="abcdefghij")
    expected = Q[alpha][k - 2] * math.sqrt(k * (k + 1) / (6 * 7))
    assert nemenyi(scores, alpha=alpha).critical_difference == pytest.approx(expected, rel=5e-4)


def test_friedman_and_p_values_against_scipy():
    scores = DEMSAR.drop(index=9)
    result = nemenyi(scores)
    assert result.friedman == pytest.approx(tuple(stats.friedmanchisquare(*scores.to_numpy().T)))
    ranks = np.array([stats.rankdata(-row) for row in scores.to_numpy()])
    for (i, a), (j, b) in itertools.product(enumerate(scores), repeat=2):
        q = abs(ranks[:, i].mean() - ranks[:, j].mean()) / math.sqrt(4 * 5 / (12 * 13))
        expected = 1.0 if i == j else stats.studentized_range.sf(q, 4, math.inf)
        assert result.p.loc[a, b] == pytest.approx(expected, rel=1e-6)
    assert result.p.index.tolist() == result.p.columns.tolist() == result.mean_ranks.index.tolist()


def test_scores_equal_up_to_rounding_are_tied():
    equal = [0.3, 0.1 + 0.2, 0.9 / 3]  # differ in the last bit
    assert len(set(equal)) > 1
    names = ["relu", "combu", "tanh", "elu"]
    rows = [[*equal, 0.1], [*equal[::-1], 0.1], [*equal, 0.2]] * 2
    result = nemenyi(pd.DataFrame(rows, columns=names))
    assert result.mean_ranks.to_dict() == {"relu": 2.0, "combu": 2.0, "tanh": 2.0, "elu": 4.0}
    rounded = pd.DataFrame(np.round(rows, 6), columns=names)
    assert result.friedman == nemenyi(rounded).friedman
    np.testing.assert_array_equal(result.p, nemenyi(rounded).p)
    losses = mean_ranks(pd.DataFrame(rows, columns=names), greater_is_better=False)
    assert losses.to_dict() == {"relu": 3.0, "combu": 3.0, "tanh": 3.0, "elu": 1.0}


def test_ranks_with_ties_by_hand():
    # Ranks 1 2 3 4, 1.5 1.5 3 4, 1 3 3 3 and 2.5 2.5 2.5 2.5
    scores = ranked([1, 2, 3, 4], [1, 1, 3, 4], [1, 2, 2, 2], [7, 7, 7, 7])
    expected = {"a": 6 / 4, "b": 9 / 4, "c": 11.5 / 4, "d": 13.5 / 4}
    assert nemenyi(scores).mean_ranks.to_dict() == pytest.approx(expected)
    losses = nemenyi(-scores, greater_is_better=False)
    assert losses.mean_ranks.to_dict() == pytest.approx(expected)
    np.testing.assert_allclose(losses.p, nemenyi(scores).p)


tables = st.integers(3, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 5), min_size=k, max_size=k), min_size=2, max_size=12)
)


@settings(deadline=None, max_examples=50)
@given(rows=tables, alpha=st.sampled_from([0.01, 0.05, 0.3]))
def test_groups_p_values_and_critical_difference_agree(rows, alpha):
    scores = ranked(*rows)
    result = nemenyi(scores, alpha=alpha)
    ranks = mean_ranks(scores)
    pd.testing.assert_series_equal(result.mean_ranks, ranks.sort_values(kind="stable"))
    names = result.mean_ranks.index
    far = {
        (a, b)
        for a, b in itertools.product(names, repeat=2)
        if abs(ranks[a] - ranks[b]) > result.critical_difference
    }
    assert {(a, b) for a, b in itertools.product(names, repeat=2) if result.p[a][b] < alpha} == far
    alike = [  # every group of models that is alike, by brute force
        set(group)
        for size in range(2, len(names) + 1)
        for group in itertools.combinations(names, size)
        if not any(pair in far for pair in itertools.combinations(group, 2))
    ]
    largest = [group for group in alike if not any(group < other for other in alike)]
    assert sorted(map(sorted, result.cliques)) == sorted(map(sorted, largest))
    starts = [names.get_loc(clique[0]) for clique in result.cliques]
    assert starts == sorted(starts)


@settings(deadline=None, max_examples=30)
@example(k=3, alpha=0.049)  # where Friedman's test needs a row more than Nemenyi's
@given(k=st.integers(3, 14), alpha=st.sampled_from([0.001, 0.01, 0.05, 0.1]))
def test_rows_needed_are_the_fewest_possible(k, alpha):
    def differ(n):
        result = nemenyi(ranked(*[range(k)] * n, names="abcdefghijklmn"), alpha=alpha)
        return result.differ and result.p.iloc[0, -1] < alpha

    needed = nemenyi(ranked(*[range(k)] * 2, names="abcdefghijklmn"), alpha=alpha).n_rows_needed
    assert needed == next(n for n in itertools.count(2) if differ(n))


@pytest.mark.parametrize(
    ("scores", "arguments", "says"),
    [
        (ranked([1, 2], [1, 2]), {}, r"got shape \(2, 2\); compare two models with wilcoxon"),
        (ranked([1, 2, 3]), {}, r"at least 2 rows .* got shape \(1, 3\)"),
        (ranked([1, 2, math.nan], [1, 2, 3]), {}, r"1 missing or infinite value\(s\) of 6"),
        (ranked([1, 2, 3], [1, 2, 3]), {"alpha": 5}, "such as 0.05, got 5"),
        (
            ranked([1, 2, 3], [1, 2, 3], names="aab"),
            {},
            r"one column per model, got several of \['a'",
        ),
    ],
)
def test_bad_input(scores, arguments, says):
    with pytest.raises(ValueError, match=says):
        nemenyi(scores, **arguments)


# --- sentences --------------------------------------------------------------------------------


def test_sentences_of_demsar_s_example():
    assert summarise_nemenyi(nemenyi(DEMSAR, alpha=0.10)).splitlines()[1:] == [
        "Mean ranks, 1 is the best: m+cf 1.96, m 2.00, cf 2.89, C4.5 3.14.",
        "By Nemenyi's test (critical difference 1.12 ranks, 10 % level) these are not "
        "significantly different: m+cf, m and cf; cf and C4.5.",
        "m+cf and m rank better than C4.5.",
    ]


def test_friedman_finds_a_difference_that_nemenyi_cannot_place():
    text = summarise_nemenyi(nemenyi(DEMSAR))
    p = stats.friedmanchisquare(*DEMSAR.to_numpy().T).pvalue
    assert p < 0.05
    first, _, last = text.splitlines()
    assert first == f"Friedman's test over 14 data sets: the 4 algorithms differ (p = {p:.2g})."
    assert last == (
        "By Nemenyi's test (critical difference 1.25 ranks, 5 % level) no algorithm is "
        "significantly different from any other: which of them differ is left open."
    )


def test_friedman_finds_nothing():
    # Column sums 7, 8 and 9: 12 / (4 * 3 * 4) * (49 + 64 + 81) - 3 * 4 * 4 = 1/2, p = exp(-1/4)
    result = nemenyi(ranked([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3], index="data_set"))
    assert summarise_nemenyi(result).splitlines() == [
        "Friedman's test over 4 data sets finds no difference between the 3 activations "
        "(p = 0.78).",
        "Mean ranks, 1 is the best: a 1.75, b 2.00, c 2.25.",
        "No activation is significantly different from any other.",
    ]
    assert result.not_different == (("a", "b", "c"),)


def test_friedman_decides_before_nemenyi_pairs():
    rows = [
        [1, 4, 6, 3, 5, 7, 2],
        [2, 6, 4, 3, 1, 5, 2],
        [2, 5, 2, 7, 6, 4, 1],
        [1, 2, 7, 3, 5, 6, 4],
        [2, 6, 7, 3, 1, 2, 5],
        [2, 1, 7, 4, 6, 3, 2],
        [2, 1, 4, 6, 2, 7, 5],
        [2, 2, 3, 4, 7, 1, 5],
    ]
    result = nemenyi(ranked(*rows))
    assert result.p.loc["a", "c"] < 0.05 < result.friedman.pvalue
    assert len(result.cliques) == 2
    assert [sorted(group) for group in result.not_different] == [list("abcdefg")]
    assert summarise_nemenyi(result).splitlines()[2:] == [
        "No activation is significantly different from any other."
    ]


@pytest.mark.parametrize(("k", "n", "said"), [(3, 2, True), (3, 3, False), (8, 2, True)])
def test_too_few_rows_to_find_anything(k, n, said):
    text = summarise_nemenyi(nemenyi(ranked(*[range(k)] * n)))
    sentence = (
        f"With {n} data sets no two of {k} activations can differ significantly, even if all "
        "ranked them alike: at least 3 are needed."
    )
    assert (sentence in text.splitlines()) == said
    assert ("With" in text) == said


def test_rows_of_several_levels_are_folds():
    scores = ranked([1, 2, 3], [2, 3, 1])
    scores.index = pd.MultiIndex.from_tuples([(0, 0), (0, 1)], names=["repeat", "fold"])
    assert "over 2 folds" in summarise_nemenyi(nemenyi(scores))


def test_everyone_differs_significantly():
    text = summarise_nemenyi(nemenyi(ranked(*[[2, 1, 3]] * 12)))
    assert text.splitlines()[2:] == [
        "By Nemenyi's test (critical difference 0.96 ranks, 5 % level) every activation is "
        "significantly different from every other.",
        "b ranks better than a and c.",
        "a ranks better than c.",
    ]


def test_things_are_called_what_the_scores_call_them():
    scores = ranked([1, 2, 3], [2, 3, 1], [3, 1, 2]).rename_axis(index="study", columns="loss")
    says = "over 3 studies finds no difference between the 3 losses"
    assert says in summarise_nemenyi(nemenyi(scores))
