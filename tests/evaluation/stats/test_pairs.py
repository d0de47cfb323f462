"""compare_pairs: every pair on one data set, and its sentences."""

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from combutab.evaluation import compare_pairs, summarise_pairs

SIZES = {"n_train": 80, "n_test": 20}
THREE = {
    "relu": [0.80, 0.86, 0.81, 0.79, 0.79],
    "combu": [0.90, 0.92, 0.91, 0.88, 0.93],
    "gelu": [0.91, 0.90, 0.92, 0.87, 0.92],
}
PAIRS = [("combu", "gelu"), ("combu", "relu"), ("gelu", "relu")]


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


def adjusted(p):
    """Holm's by its definition: the largest of the scaled p-values up to each one's place."""
    places = sorted(range(len(p)), key=p.__getitem__)
    scaled = [min(1.0, p[i] * (len(p) - step)) for step, i in enumerate(places)]
    return [max(scaled[: places.index(i) + 1]) for i in range(len(p))]


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


def test_p_values_against_scipy():
    pairs = compare_pairs(tidy(THREE), **SIZES)
    corrected, signed = [], []
    for a, b in PAIRS:
        t = stats.ttest_rel(THREE[a], THREE[b]).statistic * math.sqrt(0.2 / (0.2 + 0.25))
        corrected.append(2 * stats.t.sf(abs(t), 4))
        # Rounded: steps of 0.01 in doubles are no ties
        d = np.round(np.subtract(THREE[a], THREE[b]), 3)
        sums = [
            sum(rank for rank, plus in zip(stats.rankdata(abs(d)), signs, strict=True) if plus)
            for signs in itertools.product([0, 1], repeat=5)
        ]
        positive, total = stats.rankdata(abs(d))[d > 0].sum(), 15
        smaller = min(positive, total - positive)
        signed.append(min(1.0, 2 * np.mean(np.array(sums) <= smaller)))
    np.testing.assert_allclose(pairs["p_corrected_t"], adjusted(corrected), rtol=1e-9)
    np.testing.assert_allclose(pairs["p_wilcoxon"], adjusted(signed), rtol=1e-9)


def test_bootstrap_interval_is_that_of_the_paired_differences():
    # Of the 4 resamples of the differences 0 and 1 the mean is 0 in one and 1 in one
    pairs = compare_pairs(tidy({"a": [7.0, 4.0], "b": [7.0, 3.0]}), **SIZES)
    assert pairs.loc[0, ["bootstrap_low", "bootstrap_high"]].tolist() == [0.0, 1.0]
    pairs = compare_pairs(tidy({"a": [7.0, 4.0], "b": [7.0, 3.0]}), **SIZES, alpha=0.6)
    assert pairs.loc[0, ["bootstrap_low", "bootstrap_high"]].tolist() == [0.5, 0.5]


def test_bootstrap_interval_against_scipy():
    generator = np.random.default_rng(0)
    a, b = generator.normal(1, 1, 60), generator.normal(0, 1, 60)
    row = compare_pairs(tidy({"b": b, "a": a}), **SIZES).iloc[0]
    theirs = stats.bootstrap(
        (a, b),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        paired=True,
        method="percentile",
        random_state=np.random.default_rng(1),
    ).confidence_interval
    assert (row["bootstrap_low"], row["bootstrap_high"]) == pytest.approx(theirs, abs=0.02)


def test_the_same_table_each_time_unless_asked():
    first, again = (compare_pairs(tidy(THREE), **SIZES) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    other = compare_pairs(tidy(THREE), **SIZES, random_state=np.random.default_rng(5))
    drawn = ["bootstrap_low", "bootstrap_high"]
    pd.testing.assert_frame_equal(first.drop(columns=drawn), other.drop(columns=drawn))


def test_seeds_are_averaged_and_resamples_may_be_several_columns():
    once = compare_pairs(tidy(THREE), **SIZES)
    thrice = tidy(THREE, seeds=3, spread=0.05)
    pd.testing.assert_frame_equal(once, compare_pairs(thrice, **SIZES), rtol=1e-9)
    assert compare_pairs(thrice, resample=["seed", "fold"], **SIZES)["n_resamples"].tolist() == [
        15,
        15,
        15,
    ]


def test_losses_are_best_when_small():
    losses = {name: [1 - value for value in values] for name, values in THREE.items()}
    pairs = compare_pairs(tidy(losses), **SIZES, greater_is_better=False)
    assert list(zip(pairs["activation"], pairs["other_activation"], strict=True)) == PAIRS
    assert pairs["difference"].tolist() == pytest.approx([-0.004, -0.098, -0.094])
    np.testing.assert_allclose(
        pairs["p_corrected_t"], compare_pairs(tidy(THREE), **SIZES)["p_corrected_t"]
    )


def test_columns_may_have_other_names():
    results = tidy(THREE).rename(columns={"activation": "model", "score": "r2", "fold": "split"})
    results["model"] = results["model"].astype("category")
    pairs = compare_pairs(results, score="r2", group="model", resample="split", **SIZES)
    assert list(zip(pairs["model"], pairs["other_model"], strict=True)) == PAIRS


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
    for column in ("p_corrected_t", "p_wilcoxon"):
        assert pairs[column].between(0, 1).all()
    assert (pairs["distinguishable"] == (pairs["p_corrected_t"] < 0.05)).all()


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (None, {"alpha": 0}, "alpha must be between 0 and 1, such as 0.05, got 0"),
        (None, {"score": "f1"}, "no column 'f1'; it has activation, fold, seed, score"),
        (None, {"n_test": 0}, "n_test must be at least 1"),
        (lambda r: r[r["activation"] == "relu"], {}, "at least 2 values of 'activation' .* got 1"),
        (lambda r: r[r["fold"] == 0], {}, "at least 2 resamples are needed to compare, got 1"),
        (lambda r: r.drop(index=[1, 2]), {}, "in each of the 5 resamples; relu lacks 2"),
    ],
)
def test_bad_input(change, arguments, says):
    results = tidy(THREE)
    with pytest.raises(ValueError, match=says):
        compare_pairs(change(results) if change else results, **(SIZES | arguments))


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


def test_sentences_are_made_from_the_numbers():
    pairs = found({"a b": 0.7, "a c": 0.06, "a d": 0.01, "b c": 0.2, "b d": 1e-9, "c d": 0.4})
    assert summarise_pairs(pairs, score="accuracy").splitlines() == [
        "2 of 6 pairs of activations are significantly different in accuracy over 30 resamples "
        "(corrected t-test, Holm-adjusted, 5 % level).",
        "These are not significantly different: a, b and c; c and d.",
        "a is better than d (accuracy +0.25, p = 0.01).",
        "b is better than d (accuracy +0.25, p < 0.0001).",
    ]


def test_groups_need_not_lie_along_a_line():
    # a and c are alike, though b between them differs from both
    pairs = found({"a b": 0.01, "a c": 0.6, "a d": 0.2, "b c": 0.02, "b d": 0.3, "c d": 0.01})
    assert "These are not significantly different: a and c; a and d; b and d." in summarise_pairs(
        pairs
    )


def test_several_losers_share_a_sentence():
    pairs = found({"a b": 0.01, "a c": 0.02, "b c": 0.6})
    assert "a is better than b (r2 +0.25, p = 0.01) and c (r2 +0.25, p = 0.02)." in summarise_pairs(
        pairs, score="r2"
    )


def test_nothing_found():
    pairs = found({"a b": 0.3, "a c": 0.06, "b c": 1.0}, group="loss_function")
    assert summarise_pairs(pairs, score="r2").splitlines() == [
        "No loss function is significantly different from any other in r2 over 30 resamples "
        "(corrected t-test, Holm-adjusted, 5 % level).",
        "The smallest p-value is that of a and c (p = 0.06).",
    ]


def test_everything_found():
    lines = summarise_pairs(found({"a b": 0.03, "a c": 0.01, "b c": 0.04})).splitlines()
    assert lines[0].startswith("3 of 3 pairs of activations are significantly different")
    assert [line[:16] for line in lines[1:]] == ["a is better than", "b is better than"]


def test_level_is_the_table_s():
    pairs = found({"a b": 0.07, "a c": 0.3, "b c": 0.9}, alpha=0.1)
    text = summarise_pairs(pairs, alpha=0.1)
    assert "1 of 3 pairs" in text
    assert "10 % level" in text


def test_where_wilcoxon_decides_otherwise():
    p = {"a b": 0.01, "a c": 0.3, "b c": 0.9}
    assert "Wilcoxon" not in summarise_pairs(found(p))
    other = found(p, {"a b": 0.2, "a c": 0.01, "b c": 0.9})
    assert summarise_pairs(other).endswith("decides otherwise on 2 of 3 pairs.")


def test_wilcoxon_decides_nothing_where_it_cannot_find_anything():
    text = summarise_pairs(found({"a b": 0.01}, {"a b": 0.125}, n_resamples=4))
    assert "Wilcoxon test cannot find any difference" in text
    assert "decides otherwise" not in text


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=15, max_size=15))
def test_groups_are_the_largest_that_are_alike_pair_by_pair(apart):
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


@pytest.mark.parametrize("models", [2, 3, 7])
@pytest.mark.parametrize("folds", [3, 5, 7, 10, 12])
def test_sentences_say_when_wilcoxon_cannot_find_anything(models, folds):
    # Each model loses every fold to the one before it, by steps that differ
    steps = 1.0 + np.arange(folds)
    pairs = compare_pairs(tidy({f"m{i}": -i * steps for i in range(models)}), **SIZES)
    blind = "cannot find any difference" in summarise_pairs(pairs)
    assert blind == (pairs["p_wilcoxon"].min() >= 0.05)
    assert (
        f"and {len(pairs)} comparison(s) the Wilcoxon test" in summarise_pairs(pairs) or not blind
    )
