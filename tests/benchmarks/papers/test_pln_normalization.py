"""The study of PLN as normalisation: its networks, contrasts and page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.benchmarks.quick_forms import run_quick

ROOT = Path(__file__).parents[3]
DATA_HOME = ROOT.parent / "shared" / "data"
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
    from benchmarks.papers.pln.normalization_numbers import contrast

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
    assert (result.better, result.worse) == (["a"], ["c"])
    differences = [
        noisy(a, i) - noisy(b, i + 1) for a, b, i in ((0.9, 0.8, 0), (0.5, 0.5, 2), (0.1, 0.3, 4))
    ]
    np.testing.assert_allclose(result.per_data["difference"], np.mean(differences, axis=1))
    by_hand = []
    for d in differences:  # Nadeau and Bengio: the variance times 1 / k + n_test / n_train
        t = d.mean() / np.sqrt((1 / SPLITS + 20 / 80) * d.var(ddof=1))
        by_hand.append(2 * stats.t.sf(abs(t), SPLITS - 1))
    smallest, middle, largest = sorted(by_hand)
    adjusted = [3 * smallest, 2 * middle, largest]
    assert sorted(result.per_data["p"]) == pytest.approx(adjusted, rel=1e-6)
    assert result.p == pytest.approx(stats.wilcoxon(np.mean(differences, axis=1)).pvalue)
    opposite = contrast(rows, second, first)
    assert opposite.mean == pytest.approx(-result.mean)
    assert opposite.better == ["c"]


def test_one_data_set_has_its_own_test():
    from benchmarks.papers.pln.normalization_numbers import contrast

    rows = study({("pln", "relu"): 0.9, ("batch", "relu"): 0.8}, n_data=1)
    result = contrast(rows, ("pln", "relu"), ("batch", "relu"))
    assert result.told_apart
    assert "Wilcoxon" not in result.words()
    same = contrast(rows, ("pln", "relu"), ("pln", "relu"))
    assert not same.told_apart
    assert same.mean == 0.0


PLN = {("pln", "identity"): 0.80, ("pln", "relu"): 0.81}


def test_verdict_on_activations():
    from benchmarks.papers.pln.normalization_numbers import verdict_activation

    as_paper = study(PLN | {("pln", "sigmoid"): 0.70, ("pln", "tanh"): 0.75})
    said = verdict_activation(as_paper)
    assert said.startswith("**Holds**")
    assert "sigmoid -0.10" in said
    assert "told apart; by data set 0 for, 8 against" in said
    needed = study(
        PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.7, ("pln", "tanh"): 0.9},
    )
    assert verdict_activation(needed).startswith("**Holds in part**")
    never = study(PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.9, ("pln", "tanh"): 0.9})
    assert verdict_activation(never).startswith("**Does not hold**")


def test_verdict_on_nonlinearity():
    from benchmarks.papers.pln.normalization_numbers import verdict_nonlinear

    others = {("none", "identity"): 0.6, ("batch", "identity"): 0.6, ("layer", "identity"): 0.9}
    assert verdict_nonlinear(study(PLN | others)).startswith("**Holds**")
    one = others | {("batch", "identity"): 0.85}
    assert verdict_nonlinear(study(PLN | one)).startswith("**Holds in part**")
    # better on three data sets is no proof: Wilcoxon's p is 0.25 there
    assert verdict_nonlinear(study(PLN | others, 3)).startswith("**Does not hold**")


def test_verdict_on_a_match():
    from benchmarks.papers.pln.normalization_numbers import match_table, verdict_match

    equal = {(kind, "relu"): 0.8 for kind in ("none", "batch", "layer")}
    assert verdict_match(study(PLN | equal), ["relu"]).startswith("**Holds** (in 2 of 2")
    ahead = equal | {("batch", "relu"): 0.9}
    said = verdict_match(study(PLN | ahead), ["relu"])
    assert said.startswith("**Holds in part** (in 1 of 2")
    assert "Not so against batch norm with ReLU -0.0" in said
    ((name, *cells),) = match_table(study(PLN | ahead), ["relu"])
    assert name == "ReLU"
    assert [cell[0] for cell in cells] == ["-", "+", "+"], "batch, layer, none"


def test_cells_and_their_networks():
    from benchmarks.papers.pln.normalization import (
        ACTIVATIONS,
        NORMALIZATIONS,
        TASKS,
        Plan,
        make_cells,
    )

    plan = Plan()
    cells = make_cells(plan, list(TASKS))
    kinds = len(NORMALIZATIONS) * len(ACTIVATIONS)
    assert len(cells) == len(set(cells)) == kinds * (len(TASKS) + 1)
    deep = [cell for cell in cells if cell.depth == 15]
    assert {cell.data for cell in deep} == {"digits"}
    assert deep[0].wanted(plan)[0]["n_steps"] == "1000"
    net = deep[0].estimator(plan, 1437, 3)
    assert len(net.hidden_layer_sizes) == 15
    assert net.max_iter * 23 >= 1000 > (net.max_iter - 1) * 23, "23 batches of 64 an epoch"
    assert make_cells(plan, ["boston"])[0].estimator(plan, 400, 0).normalization == "none"


def test_quick_form(tmp_path):
    data = ["--data", "digits"]
    if DATA_HOME.is_dir():
        data += ["boston", "--data-home", str(DATA_HOME)]
    run_quick("papers.pln.normalization", tmp_path, *data)
    rows = pd.read_csv(tmp_path / "pln_normalization.csv", keep_default_na=False)
    digits = rows[rows["data"] == "digits"]
    assert len(digits) == 2 * 4 * 4 * 2, "depths, normalisations, activations, splits"
    assert (digits["n_train"] == 120).all()
    assert digits["score"].between(0, 1).all()
    text = (tmp_path / "pln_normalization.md").read_text()
    for words in (
        "## Verdicts",
        "against batch norm",
        "python -m benchmarks.papers.pln.normalization",
    ):
        assert words in text
    assert str(tmp_path) not in text
    assert (tmp_path / "pln_normalization.png").stat().st_size > 10_000
    (tmp_path / "pln_normalization.md").unlink()
    again = run_quick("papers.pln.normalization", tmp_path, *data, "--report")
    assert "to go" not in again, "nothing is trained twice"
    assert (tmp_path / "pln_normalization.md").read_text() == text
