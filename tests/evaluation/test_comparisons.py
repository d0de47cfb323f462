"""Models on the same resamples: mean ranks, the best beside the others, every pair; sentences."""

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from combutab.evaluation import (
    compare_pairs,
    compare_with_best,
    corrected_interval,
    corrected_resampled_ttest,
    holm,
    mean_ranks,
    summarise,
    summarise_pairs,
    wilcoxon,
)

# ---- Mean ranks, compare_with_best and its sentences --------------------------------------------


SIZES = {"n_train": 80, "n_test": 20}


def tidy(scores, seeds=1, spread=0.0):
    return pd.DataFrame(
        [
            {
                "activation": name,
                "fold": fold,
                "seed": seed,
                "score": value + spread * (seed - (seeds - 1) / 2),
            }
            for name, values in scores.items()
            for fold, value in enumerate(values)
            for seed in range(seeds)
        ]
    )


THREE = {
    "relu": [0.80, 0.86, 0.81, 0.79, 0.79],
    "combu": [0.90, 0.92, 0.91, 0.88, 0.93],
    "gelu": [0.91, 0.90, 0.92, 0.87, 0.92],
}


# --- mean ranks -------------------------------------------------------------------------------


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 4), min_size=width, max_size=width), min_size=1, max_size=6
        )
    )
)
def test_mean_ranks_properties(rows):
    wide = pd.DataFrame(rows, dtype=float)
    ranks = mean_ranks(wide)
    assert ranks.mean() == pytest.approx((wide.shape[1] + 1) / 2)
    reverse = mean_ranks(wide, greater_is_better=False)
    np.testing.assert_allclose(ranks + reverse, wide.shape[1] + 1)
    np.testing.assert_allclose(ranks, wide.rank(axis=1, ascending=False).mean())


@pytest.mark.parametrize("wide", [pd.DataFrame(), pd.DataFrame({"a": [1.0, math.nan]})])
def test_mean_ranks_bad_input(wide):
    with pytest.raises(ValueError, match="finite and not empty"):
        mean_ranks(wide)


# --- compare_with_best ------------------------------------------------------------------------


def test_p_values_and_intervals_against_scipy():
    table = compare_with_best(tidy(THREE), **SIZES).set_index("activation")
    raw = []
    for name in ("gelu", "relu"):
        # The corrected test is the plain one with t shrunk by sqrt((1/k) / (1/k + n2/n1)).
        t = stats.ttest_rel(THREE["combu"], THREE[name]).statistic * math.sqrt(0.2 / (0.2 + 0.25))
        raw.append(2 * stats.t.sf(abs(t), 4))
    assert raw[1] < raw[0]
    assert table["p"]["relu"] == pytest.approx(2 * raw[1], rel=1e-9)
    assert table["p"]["gelu"] == pytest.approx(raw[0], rel=1e-9)
    half = stats.t.ppf(0.975, 4) * math.sqrt(0.2 + 0.25) * np.std(THREE["relu"], ddof=1)
    assert table["low"]["relu"] == pytest.approx(0.81 - half, rel=1e-12)
    assert table["high"]["relu"] == pytest.approx(0.81 + half, rel=1e-12)


def test_alpha_sets_tests_and_intervals():
    wide, narrow = (compare_with_best(tidy(THREE), **SIZES, alpha=a) for a in (1e-4, 0.9))
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()
    assert not wide["distinguishable"].any()
    assert narrow["distinguishable"].tolist() == [False, True, True]
    assert wide["p"].equals(narrow["p"])


def test_resample_may_be_several_columns():
    results = tidy(THREE, seeds=3, spread=0.001)
    table = compare_with_best(results, resample=["seed", "fold"], **SIZES)
    assert table["n_resamples"].tolist() == [15, 15, 15]
    relu = results.loc[results["activation"] == "relu", "score"]
    assert tuple(table.loc[2, ["mean", "low", "high"]]) == pytest.approx(
        tuple(corrected_interval(relu, **SIZES))
    )


@pytest.mark.parametrize("compare", [compare_with_best, compare_pairs])
def test_losses_and_other_column_names(compare):
    expected = compare(tidy(THREE), **SIZES)
    losses = tidy(THREE).assign(score=lambda t: 1 - t["score"])
    found = compare(losses, **SIZES, greater_is_better=False)
    assert found["activation"].tolist() == expected["activation"].tolist()
    for column in {"p", "p_corrected_t", "mean_rank"} & set(expected):
        np.testing.assert_allclose(found[column], expected[column])
    results = tidy(THREE).rename(columns={"activation": "model", "score": "r2", "fold": "split"})
    results["model"] = results["model"].astype("category")
    named = compare(results, score="r2", group="model", resample="split", **SIZES)
    assert named["model"].tolist() == expected["activation"].tolist()


def test_equal_means_are_ordered_by_mean_rank():
    # Means are equal; b is ahead in two of three folds, and c is a again.
    table = compare_with_best(tidy({"a": [1, 1, 4], "b": [2, 2, 2], "c": [1, 1, 4]}), **SIZES)
    assert table["activation"].tolist() == ["b", "a", "c"]
    assert table["p"].tolist()[1:] == [1.0, 1.0]


def test_rounding_does_not_order_means():
    scores = {"relu": [0.3, 0.5], "combu": [0.1 + 0.2, 0.5]}
    rows = [(name, i, v) for name, values in scores.items() for i, v in enumerate(values)]
    results = pd.DataFrame(rows, columns=["activation", "fold", "score"])
    table = compare_with_best(results, n_train=4, n_test=1)
    assert table["activation"].tolist() == ["relu", "combu"]
    assert table["mean_rank"].tolist() == [1.5, 1.5]
    assert table["p"].tolist()[1] == 1.0


def test_identical_and_constantly_different_models():
    base = [0.5, 0.6, 0.7]
    table = compare_with_best(
        tidy({"a": base, "same": base, "less": [value - 0.1 for value in base]}), **SIZES
    )
    assert table["p"].tolist()[1:] == [1.0, 0.0]
    assert table["distinguishable"].tolist() == [False, False, True]


def test_single_group_has_one_row():
    table = compare_with_best(tidy({"relu": [1, 2, 3]}), **SIZES)
    assert len(table) == 1
    assert summarise(table).count("\n") == 0


@given(
    st.lists(st.lists(st.integers(0, 8), min_size=4, max_size=4), min_size=2, max_size=5),
    st.sampled_from(["corrected-t", "wilcoxon"]),
)
def test_comparison_properties(scores, test):
    named = {f"m{i}": values for i, values in enumerate(scores)}
    table = compare_with_best(tidy(named), **SIZES, test=test)
    assert sorted(table["activation"]) == sorted(named)
    assert (np.diff(table["mean"]) <= 0).all()
    assert ((table["low"] <= table["mean"]) & (table["mean"] <= table["high"])).all()
    assert table["mean_rank"].mean() == pytest.approx((len(named) + 1) / 2)
    p = table["p"][1:]
    assert p.between(0, 1).all()
    assert (table["distinguishable"][1:] == (p < 0.05)).all()
    best, *others = (named[name] for name in table["activation"])
    raw = [
        wilcoxon(best, other)
        if test == "wilcoxon"
        else corrected_resampled_ttest(best, other, **SIZES)
        for other in others
    ]
    np.testing.assert_allclose(p, holm([result.pvalue for result in raw]), rtol=1e-9)


# --- sentences --------------------------------------------------------------------------------


def test_sentences_are_made_from_the_numbers():
    text = summarise(compare_with_best(tidy(THREE), **SIZES), score="accuracy")
    lines = text.splitlines()
    assert lines[0].startswith("combu has the best mean accuracy: 0.908 (95 % interval 0.8")
    assert lines[0].endswith("over 5 folds.")
    assert lines[1].startswith(
        "Not significantly different from combu at the 5 % level: gelu (p = 0."
    )
    assert lines[2].startswith(
        "Significantly different from combu at the 5 % level: relu (p = 0.01"
    )
    assert len(lines) == 3


@pytest.mark.parametrize("n_others", [1, 2, 9])
@pytest.mark.parametrize("folds", [3, 5, 7, 10])
def test_sentences_say_when_wilcoxon_cannot_find_anything(n_others, folds):
    # The other models lose every fold by different steps: the smallest p-value there is.
    steps = 1 + np.arange(folds)
    scores = {"best": 10.0 + steps * 0} | {f"m{i}": 9.0 - steps - i for i in range(n_others)}
    table = compare_with_best(tidy(scores), **SIZES, test="wilcoxon")
    text = summarise(table)
    assert ("cannot find a difference" in text) == (not table["distinguishable"].any())
    careful = compare_with_best(tidy(scores), **SIZES, alpha=0.001)
    assert "0.1 % level" in summarise(careful, alpha=0.001)
    assert f"best has the best mean score: 10, the same in all {folds} folds." in text
    assert "Wilcoxon" not in summarise(careful, alpha=0.001)


def test_groups_are_named_as_they_are():
    scores = {32: [1.0, 1.2, 1.1], 64: [1.1, 1.0, 1.3], 128: [0.1, 0.2, 0.3]}
    text = summarise(compare_with_best(tidy(scores), **SIZES))
    assert re.findall(r"(\S+) \(p", text) == ["32", "128"]


def test_small_p_values_are_not_zero():
    table = compare_with_best(tidy({"a": [2, 3, 4.0001], "b": [1, 2, 3]}), **SIZES)
    assert 0 < table["p"].iloc[1] < 1e-6
    assert "b (p < 0.0001)" in summarise(table)


def test_no_spread_is_not_said_to_be_certainty():
    """A t-test of equal differences has p = 0, and equal scores an interval without length."""
    table = compare_with_best(tidy({"a": [0.7] * 3, "b": [0.6] * 3}), **SIZES)
    assert summarise(table).splitlines() == [
        "a has the best mean score: 0.7, the same in all 3 folds.",
        "Significantly different from a at the 5 % level: b (by the same amount in every fold).",
    ]
    # means over seeds, which differ in their last digit
    same = tidy({"a": [0.1 + 0.2 + 0.4, 0.7, 0.4 + 0.2 + 0.1]})
    assert same["score"].nunique() > 1
    assert "interval" not in summarise(compare_with_best(same, **SIZES))


def test_ends_of_a_short_interval_are_told_apart():
    table = compare_with_best(tidy({"a": [0.7, 0.7, 0.700001]}), **SIZES)
    low, high = table[["low", "high"]].iloc[0]
    said = re.search(r"interval (\S+) to (\S+)\)", summarise(table)).groups()
    assert said[0] != said[1]
    np.testing.assert_allclose([float(end) for end in said], [low, high], atol=1e-6)


# ---- compare_pairs: every pair on one data set, and its sentences -------------------------------


PAIRS = [("combu", "gelu"), ("combu", "relu"), ("gelu", "relu")]


# --- the table --------------------------------------------------------------------------------


def test_one_row_a_pair_the_better_first():
    pairs = compare_pairs(tidy(THREE), **SIZES)
    assert list(pairs) == [
        "activation",
        "other_activation",
        "difference",
        "bootstrap_low",
        "bootstrap_high",
        "p_corrected_t",
        "p_wilcoxon",
        "distinguishable",
        "n_resamples",
    ]
    assert list(zip(pairs["activation"], pairs["other_activation"], strict=True)) == PAIRS
    assert pairs["difference"].tolist() == pytest.approx([0.004, 0.098, 0.094])
    assert pairs["distinguishable"].tolist() == [False, True, True]
    assert pairs["n_resamples"].tolist() == [5, 5, 5]
    assert pairs.index.tolist() == [0, 1, 2]


def test_bootstrap_interval_is_that_of_the_paired_differences():
    # Of the 4 resamples of the differences 0 and 1 the mean is 0 in one and 1 in one
    pairs = compare_pairs(tidy({"a": [7.0, 4.0], "b": [7.0, 3.0]}), **SIZES)
    assert pairs.loc[0, ["bootstrap_low", "bootstrap_high"]].tolist() == [0.0, 1.0]
    pairs = compare_pairs(tidy({"a": [7.0, 4.0], "b": [7.0, 3.0]}), **SIZES, alpha=0.6)
    assert pairs.loc[0, ["bootstrap_low", "bootstrap_high"]].tolist() == [0.5, 0.5]


def test_seeds_are_averaged_within_resamples():
    once = compare_pairs(tidy(THREE), **SIZES)
    thrice = tidy(THREE, seeds=3, spread=0.05)
    pd.testing.assert_frame_equal(once, compare_pairs(thrice, **SIZES), rtol=1e-9)
    assert compare_pairs(thrice, resample=["seed", "fold"], **SIZES)["n_resamples"].tolist() == [
        15,
        15,
        15,
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 8), min_size=4, max_size=4), min_size=2, max_size=5))
def test_pairs_properties(scores):
    named = {f"m{i}": values for i, values in enumerate(scores)}
    pairs = compare_pairs(tidy(named), **SIZES)
    found = {frozenset(pair) for pair in pairs[["activation", "other_activation"]].to_numpy()}
    assert found == set(map(frozenset, itertools.combinations(named, 2)))
    assert len(pairs) == len(found)
    assert (pairs["difference"] >= 0).all()
    assert pairs["difference"].between(pairs["bootstrap_low"], pairs["bootstrap_high"]).all()
    scores = [(named[a], named[b]) for a, b in pairs.iloc[:, :2].itertuples(index=False)]
    for column, p in {
        "p_corrected_t": [corrected_resampled_ttest(a, b, **SIZES).pvalue for a, b in scores],
        "p_wilcoxon": [wilcoxon(a, b).pvalue for a, b in scores],
    }.items():
        np.testing.assert_allclose(pairs[column], holm(p), rtol=1e-9)
    assert (pairs["distinguishable"] == (pairs["p_corrected_t"] < 0.05)).all()


# --- sentences --------------------------------------------------------------------------------


def found(p, p_wilcoxon=None, n_resamples=30, alpha=0.05, group="activation"):
    """A table of pairs made by hand: {"a b": p of the corrected t-test}."""
    pairs = pd.DataFrame([pair.split() for pair in p], columns=[group, f"other_{group}"])
    pairs["difference"] = 0.25
    pairs["p_corrected_t"] = list(p.values())
    pairs["p_wilcoxon"] = list((p_wilcoxon or p).values())
    pairs["distinguishable"] = pairs["p_corrected_t"] < alpha
    pairs["n_resamples"] = n_resamples
    return pairs


def test_sentences_of_pairs_are_made_from_the_numbers():
    pairs = found({"a b": 0.7, "a c": 0.06, "a d": 0.01, "b c": 0.2, "b d": 1e-9, "c d": 0.4})
    assert summarise_pairs(pairs, score="accuracy").splitlines() == [
        "2 of 6 pairs of activations are significantly different in accuracy over 30 folds "
        "(corrected t-test, Holm-adjusted, 5 % level).",
        "These are not significantly different: a, b and c; c and d.",
        "a is better than d (accuracy +0.25, p = 0.01).",
        "b is better than d (accuracy +0.25, p < 0.0001).",
    ]


def test_nothing_found():
    pairs = found({"a b": 0.3, "a c": 0.06, "b c": 1.0}, group="loss_function")
    assert summarise_pairs(pairs, score="r2").splitlines() == [
        "No loss function is significantly different from any other in r2 over 30 folds "
        "(corrected t-test, Holm-adjusted, 5 % level).",
        "The smallest p-value is that of a and c (p = 0.06).",
    ]


def test_where_wilcoxon_decides_otherwise():
    p = {"a b": 0.01, "a c": 0.3, "b c": 0.9}
    assert "Wilcoxon" not in summarise_pairs(found(p))
    other = found(p, {"a b": 0.2, "a c": 0.01, "b c": 0.9})
    assert summarise_pairs(other).endswith("decides otherwise on 2 of 3 pairs.")


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=15, max_size=15))
def test_groups_are_maximal_cliques(apart):
    verdicts = dict(zip(itertools.combinations("abcdef", 2), apart, strict=True))
    if not any(apart) or all(apart):
        return
    text = summarise_pairs(
        found({" ".join(pair): 0.01 if v else 0.5 for pair, v in verdicts.items()})
    )
    said = re.search("These are not significantly different: (.*)[.]\n", text).group(1)
    alike = [
        set(group)
        for size in range(2, 7)
        for group in itertools.combinations("abcdef", size)
        if not any(verdicts[pair] for pair in itertools.combinations(group, 2))
    ]
    largest = [group for group in alike if not any(group < other for other in alike)]
    assert sorted(
        re.findall("[a-f]", group.replace(" and ", " ")) for group in said.split("; ")
    ) == sorted(map(sorted, largest))


# ---- What is refused ----------------------------------------------------------------------------

REFUSED = [
    (None, {"alpha": 5}, "alpha must be between 0 and 1, such as 0.05, got 5"),
    (None, {"score": "f1"}, "no column 'f1'; it has activation, fold, seed, score"),
    (None, {"resample": ["fold", "x"]}, "no column 'x'"),
    (None, {"n_train": 0}, "n_train must be at least 1"),
    (None, {"n_test": 0}, "n_test must be at least 1"),
    (lambda r: r[r["fold"] == 0], {}, "at least 2 folds are needed to compare, got 1"),
    (lambda r: r.drop(index=[1, 2]), {}, "in each of the 5 folds; relu lacks 2"),
    (
        lambda r: r.assign(score=r["score"].where(r.index != 0)),
        {},
        r"1 of 15 values of 'score' are missing or infinite \(activation: relu\)",
    ),
]


@pytest.mark.parametrize(
    ("compare", "change", "arguments", "says"),
    [
        *((compare, *row) for compare in (compare_with_best, compare_pairs) for row in REFUSED),
        (compare_with_best, None, {"test": "anova"}, "'anova'"),
        (compare_pairs, lambda r: r[:5], {}, "'activation'"),
    ],
)
def test_bad_input(compare, change, arguments, says):
    results = tidy(THREE)
    with pytest.raises(ValueError, match=says):
        compare(change(results) if change else results, **(SIZES | arguments))
