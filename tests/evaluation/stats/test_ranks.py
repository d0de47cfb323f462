"""Mean ranks, compare_with_best and its sentences."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from combutab.evaluation import (
    compare_with_best,
    corrected_interval,
    corrected_resampled_ttest,
    holm,
    mean_ranks,
    summarise,
    wilcoxon,
)

SIZES = {"n_train": 80, "n_test": 20}


def tidy(scores, seeds=1, spread=0.0):
    """Rows of (activation, fold, seed, score) from {name: one score a fold}."""
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


def test_mean_ranks_by_hand():
    # Row 1: b 1, a and c tied on 2.5. Row 2: c 1, a 2, b 3. Row 3: all tied on 2.
    wide = pd.DataFrame({"a": [1, 5, 7], "b": [2, 1, 7], "c": [1, 9, 7]})
    expected = {"a": 6.5 / 3, "b": 2.0, "c": 5.5 / 3}
    assert mean_ranks(wide).to_dict() == pytest.approx(expected)
    assert mean_ranks(-wide, greater_is_better=False).to_dict() == pytest.approx(expected)


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


def test_one_row_a_group_the_best_first():
    table = compare_with_best(tidy(THREE), **SIZES)
    assert list(table) == [
        "activation",
        "mean",
        "low",
        "high",
        "mean_rank",
        "p",
        "distinguishable",
        "n_resamples",
        "test",
    ]
    assert table["activation"].tolist() == ["combu", "gelu", "relu"]
    assert table["mean"].tolist() == pytest.approx([0.908, 0.904, 0.81])
    assert table["mean_rank"].tolist() == pytest.approx([1.4, 1.6, 3.0])
    assert table["n_resamples"].tolist() == [5, 5, 5]
    assert math.isnan(table["p"][0])
    assert table["distinguishable"].tolist() == [False, False, True]
    assert table.index.tolist() == [0, 1, 2]


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


def test_alpha_is_the_level_of_the_tests_and_the_intervals():
    wide, narrow = (compare_with_best(tidy(THREE), **SIZES, alpha=a) for a in (1e-4, 0.9))
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()
    assert not wide["distinguishable"].any()
    assert narrow["distinguishable"].tolist() == [False, True, True]
    assert wide["p"].equals(narrow["p"])


def test_wilcoxon_instead():
    table = compare_with_best(tidy(THREE), **SIZES, test="wilcoxon")
    raw = [wilcoxon(THREE["combu"], THREE[name]).pvalue for name in ("gelu", "relu")]
    np.testing.assert_allclose(table["p"][1:], holm(raw))
    assert table["p"][2] == 0.125  # 2 comparisons times 2 / 2^5
    assert set(table["test"]) == {"wilcoxon"}


def test_seeds_inside_a_fold_are_averaged_first():
    once = compare_with_best(tidy(THREE), **SIZES)
    thrice = compare_with_best(tidy(THREE, seeds=3, spread=0.05), **SIZES)
    pd.testing.assert_frame_equal(once, thrice, rtol=1e-9)


def test_resample_may_be_several_columns():
    results = tidy(THREE, seeds=3, spread=0.001)
    table = compare_with_best(results, resample=["seed", "fold"], **SIZES)
    assert table["n_resamples"].tolist() == [15, 15, 15]
    relu = results.loc[results["activation"] == "relu", "score"]
    assert tuple(table.loc[2, ["mean", "low", "high"]]) == pytest.approx(
        tuple(corrected_interval(relu, **SIZES))
    )


def test_row_order_and_other_columns_do_not_matter():
    results = tidy(THREE, seeds=2, spread=0.01).assign(seconds=1.0, device="cpu")
    shuffled = results.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(
        compare_with_best(results, **SIZES), compare_with_best(shuffled, **SIZES), rtol=1e-9
    )


def test_losses_are_best_when_small():
    losses = {name: [1 - value for value in values] for name, values in THREE.items()}
    table = compare_with_best(tidy(losses), **SIZES, greater_is_better=False)
    scores = compare_with_best(tidy(THREE), **SIZES)
    assert table["activation"].tolist() == scores["activation"].tolist()
    np.testing.assert_allclose(table["p"], scores["p"])
    np.testing.assert_allclose(table["mean_rank"], scores["mean_rank"])


def test_equal_means_go_by_mean_rank_then_by_first_met():
    # Means are equal; b is ahead in two of three folds, and c is a again.
    table = compare_with_best(tidy({"a": [1, 1, 4], "b": [2, 2, 2], "c": [1, 1, 4]}), **SIZES)
    assert table["activation"].tolist() == ["b", "a", "c"]
    assert table["p"].tolist()[1:] == [1.0, 1.0]


def test_identical_and_constantly_different_models():
    base = [0.5, 0.6, 0.7]
    table = compare_with_best(
        tidy({"a": base, "same": base, "less": [value - 0.1 for value in base]}), **SIZES
    )
    assert table["p"].tolist()[1:] == [1.0, 0.0]
    assert table["distinguishable"].tolist() == [False, False, True]


def test_a_single_group_has_nothing_to_be_compared_with():
    table = compare_with_best(tidy({"relu": [1, 2, 3]}), **SIZES)
    assert len(table) == 1
    assert summarise(table).count("\n") == 0


def test_groups_and_columns_may_have_other_names_and_types():
    results = tidy(THREE).rename(columns={"activation": "model", "score": "r2", "fold": "split"})
    results["model"] = results["model"].astype("category")
    table = compare_with_best(results, score="r2", group="model", resample="split", **SIZES)
    assert table["model"].tolist() == ["combu", "gelu", "relu"]


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


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (None, {"test": "anova"}, "test must be one of corrected-t, wilcoxon, got 'anova'"),
        (None, {"alpha": 5}, "alpha must be between 0 and 1, such as 0.05, got 5"),
        (None, {"score": "f1"}, "no column 'f1'; it has activation, fold, seed, score"),
        (None, {"resample": ["fold", "x"]}, "no column 'x'"),
        (None, {"n_train": 0}, "n_train must be at least 1"),
        (lambda r: r[r["fold"] == 0], {}, "at least 2 resamples are needed to compare, got 1"),
        (lambda r: r.drop(index=[1, 2]), {}, "in each of the 5 resamples; relu lacks 2"),
        (
            lambda r: r.assign(score=r["score"].where(r.index != 0)),
            {},
            r"1 of 15 values of 'score' are missing or infinite \(activation: relu\)",
        ),
    ],
)
def test_bad_input(change, arguments, says):
    results = tidy(THREE)
    with pytest.raises(ValueError, match=says):
        compare_with_best(change(results) if change else results, **(SIZES | arguments))


# --- sentences --------------------------------------------------------------------------------


def test_sentences_are_made_from_the_numbers():
    text = summarise(compare_with_best(tidy(THREE), **SIZES), score="accuracy")
    lines = text.splitlines()
    assert lines[0].startswith("combu has the best mean accuracy: 0.908 (95 % interval 0.8")
    assert lines[0].endswith("over 5 resamples.")
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
    assert ("cannot find any difference" in text) == (not table["distinguishable"].any())
    careful = compare_with_best(tidy(scores), **SIZES, alpha=0.001)
    assert "0.1 % level" in summarise(careful, alpha=0.001)
    assert f"best has the best mean score: 10, the same in all {folds} resamples." in text
    assert "Wilcoxon" not in summarise(careful, alpha=0.001)


def test_the_interval_has_the_confidence_of_the_tests():
    table = compare_with_best(tidy(THREE), **SIZES, alpha=0.001)
    assert "(99.9 % interval 0." in summarise(table, alpha=0.001)


def test_very_small_p_values_are_not_written_as_zero():
    table = compare_with_best(tidy({"a": [2, 3, 4.0001], "b": [1, 2, 3]}), **SIZES)
    assert 0 < table["p"].iloc[1] < 1e-6
    assert "b (p < 0.0001)" in summarise(table)


def test_no_spread_is_not_said_to_be_certainty():
    """A t-test of equal differences has p = 0, and equal scores an interval without length."""
    table = compare_with_best(tidy({"a": [0.7] * 3, "b": [0.6] * 3}), **SIZES)
    assert summarise(table).splitlines() == [
        "a has the best mean score: 0.7, the same in all 3 resamples.",
        "Significantly different from a at the 5 % level: b (by the same in every resample).",
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
