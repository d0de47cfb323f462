"""The study of PLN as normalisation: its networks, contrasts and page."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.common.claims import FAILS, HOLDS, IN_PART
from benchmarks.papers.pln import normalization
from benchmarks.papers.pln.normalization import (
    SETTINGS,
    SIZES,
    contrast,
    is_as_good,
    is_nonlinear,
    needs_no_activation,
)
from benchmarks.papers.pln.shared import TASKS

SPLITS = 10


def rows_of(scores):
    """Rows of {(data, normalization, activation): scores by split}."""
    return pd.DataFrame(
        [
            {
                "data": data,
                "depth": 3,
                "normalization": normalization,
                "activation": activation,
                "split": split,
                "score": score,
                "n_train": 80,
                "n_test": 20,
                "task": "regression",
            }
            for (data, normalization, activation), by_split in scores.items()
            for split, score in enumerate(by_split)
        ]
    )


def noisy(mean, seed):
    return mean + 0.002 * np.random.default_rng(seed).standard_normal(SPLITS)


def study(means, n_data=8):
    """Scores around the same means on each of some data sets."""
    return rows_of(
        {
            (f"data{i}", *kind): noisy(mean, 100 * i + place)
            for i in range(n_data)
            for place, (kind, mean) in enumerate(means.items())
        }
    )


def test_contrast_against_scipy_and_by_hand():
    first, second = ("pln", "relu"), ("batch", "relu")
    rows = rows_of(
        {
            ("a", *first): noisy(0.9, 0),
            ("a", *second): noisy(0.8, 1),
            ("b", *first): noisy(0.5, 2),
            ("b", *second): noisy(0.5, 3),
            ("c", *first): noisy(0.1, 4),
            ("c", *second): noisy(0.3, 5),
        }
    )
    result = contrast(rows, first, second)
    assert result.mean == pytest.approx((0.1 + 0.0 - 0.2) / 3, abs=2e-3)
    assert (result.pvalues < 0.05).tolist() == [True, False, True]
    assert str(result).endswith("; 1 for, 1 against)")
    differences = [
        noisy(a, i) - noisy(b, i + 1) for a, b, i in ((0.9, 0.8, 0), (0.5, 0.5, 2), (0.1, 0.3, 4))
    ]
    np.testing.assert_allclose(result.differences, np.mean(differences, axis=1))
    by_hand = []
    for d in differences:  # Nadeau and Bengio: the variance times 1 / k + n_test / n_train
        t = d.mean() / np.sqrt((1 / SPLITS + 20 / 80) * d.var(ddof=1))
        by_hand.append(2 * stats.t.sf(abs(t), SPLITS - 1))
    smallest, middle, largest = sorted(by_hand)
    adjusted = [3 * smallest, 2 * middle, largest]
    assert sorted(result.pvalues) == pytest.approx(adjusted, rel=1e-6)
    assert result.p == pytest.approx(stats.wilcoxon(np.mean(differences, axis=1)).pvalue)
    opposite = contrast(rows, second, first)
    assert opposite.mean == pytest.approx(-result.mean)
    np.testing.assert_allclose(opposite.pvalues, result.pvalues)


def test_one_data_set_has_its_own_test():
    rows = study({("pln", "relu"): 0.9, ("batch", "relu"): 0.8}, n_data=1)
    result = contrast(rows, ("pln", "relu"), ("batch", "relu"))
    assert result.sign == 1.0
    assert result.p == result.pvalues[0], "Wilcoxon's test has nothing to say of one difference"
    assert "against" not in str(result)
    same = contrast(rows, ("pln", "relu"), ("pln", "relu"))
    assert same.sign == 0.0
    assert same.mean == 0.0


PLN = {("pln", "identity"): 0.80, ("pln", "relu"): 0.81}


def test_verdict_on_activations():
    found = needs_no_activation(study(PLN | {("pln", "sigmoid"): 0.70, ("pln", "tanh"): 0.75}))
    assert found.verdict == HOLDS
    assert "sigmoid -0.10" in found.numbers
    assert "(p = 0.008; 0 for, 8 against)" in found.numbers
    needed = study(
        PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.7, ("pln", "tanh"): 0.9},
    )
    assert needs_no_activation(needed).verdict == IN_PART
    never = study(PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.9, ("pln", "tanh"): 0.9})
    assert needs_no_activation(never).verdict == FAILS


def test_verdict_on_nonlinearity():
    others = {("none", "identity"): 0.6, ("batch", "identity"): 0.6, ("layer", "identity"): 0.9}
    assert is_nonlinear(study(PLN | others)).verdict == HOLDS
    one = study(PLN | others | {("batch", "identity"): 0.85})
    assert is_nonlinear(one).verdict == IN_PART
    on_training_rows = study(PLN | others).rename(columns={"score": "train_score"})
    on_training_rows["score"] = one["score"]
    assert is_nonlinear(on_training_rows, "train_score").verdict == HOLDS
    # better on three data sets is no proof: Wilcoxon's p is 0.25 there
    assert is_nonlinear(study(PLN | others, 3)).verdict == FAILS


def test_verdict_on_a_match():
    equal = {("pln", "relu"): 0.81} | {(kind, "relu"): 0.8 for kind in ("batch", "layer")}
    found = is_as_good(study(equal))
    assert (found.verdict, found.numbers) == (HOLDS, "2 of 2 comparisons")
    found = is_as_good(study(equal | {("batch", "relu"): 0.9}))
    assert found.verdict == IN_PART
    assert "1 of 2 comparisons; not so against batch norm with ReLU -0.0" in found.numbers
    assert "layer" not in found.numbers


def test_stacks_and_their_networks():
    arguments = Namespace(quick=False, data=list(TASKS), data_home=None)
    stacks = [job.wanted for job in normalization.jobs(arguments)]
    kinds = 4 * len(SIZES["activation"])
    assert len(stacks) == kinds * (len(TASKS) + 1)
    assert {len(stack) for stack in stacks} == {10}
    rows = pd.DataFrame(row for stack in stacks for row in stack)
    assert tuple(rows) == SETTINGS
    assert not rows.duplicated().any()
    deep = rows[rows["depth"] == "15"]
    assert set(deep["data"]) == {"digits"}
    assert set(deep["n_steps"]) == {"1000"}
    assert set(rows.loc[rows["depth"] == "3", "n_steps"]) == {"500"}
    net = normalization.estimator(deep.to_dict("records")[3], 1437)
    assert (len(net.hidden_layer_sizes), net.random_state) == (15, 3)
    assert net.max_iter * 23 >= 1000 > (net.max_iter - 1) * 23, "23 batches of 64 an epoch"
    assert normalization.estimator(stacks[0][0], 400).normalization == "none"
