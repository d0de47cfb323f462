"""The advice of a comparison recommends no model whose mean is clearly worse."""

import numpy as np
import pandas as pd
import pytest

from combutab.model_selection import ModelComparison

P = 0.5917


def advise(summary, baselines=(), group="activation", metric="accuracy", beats_guess=True):
    """Advice of a comparison from (name, mean, distinguishable), the best first."""
    columns = ["mean", "distinguishable"]
    table = pd.DataFrame(summary, columns=[group, *columns]).assign(p=P, beats_guess=beats_guess)
    table["low"], table["high"] = 0.0, 1.0  # wide intervals
    learners = pd.DataFrame(baselines, columns=["baseline", *columns]).assign(p=P)
    task = "regression" if metric == "rmse" else "classification"
    best = str(table.iloc[0, 0])
    return ModelComparison(
        "data", task, metric, pd.DataFrame(), table, "", best, None, {}, learners
    ).advice


RELU = ("relu", 0.896, False)


@pytest.mark.parametrize(
    ("baselines", "expected"),
    [
        ([("linear", 0.864, False)], "linear (simpler, 0.032 worse, p = 0.59)"),
        ([("boosting", 0.914, False), ("linear", 0.864, False)], "relu (0.018 worse, p = 0.59)"),
    ],
)
def test_a_worse_model_is_named_with_its_difference(baselines, expected):
    words = advise([RELU], baselines)
    name = max([RELU, *baselines], key=lambda row: row[1])[0]
    assert words.startswith(f"Use {name}, which has the best mean.")
    assert words.endswith(f"These rows cannot decide between it and {expected}.")


@pytest.mark.parametrize("mean", [0.8955, 0.896, 0.93])
def test_linear_is_advised_if_its_mean_is_no_worse(mean):
    assert advise([RELU], [("linear", mean, False)]).startswith("Use linear: it is simpler")


def test_a_significantly_better_baseline_is_advised():
    assert advise([RELU], [("boosting", 0.93, True)]).startswith("Use boosting instead")
    # significantly worse by less than .001: no reason to prefer the network
    assert "significantly better" not in advise([RELU], [("boosting", 0.8955, True)])


def test_smaller_errors_are_better():
    words = advise([("relu", 0.40, False)], [("linear", 0.43, False)], metric="rmse")
    assert words.startswith("Use relu")
    words = advise([("relu", 0.40, False)], [("boosting", 0.38, False)], metric="rmse")
    assert words.startswith("Use boosting")


def test_default_activation_is_kept_only_if_no_other_is_better():
    keep = advise([("relu", 0.896, False), ("combu", 0.8955, False)])
    assert keep.startswith("Keep the default activation, combu")
    words = advise([("relu", 0.896, False), ("tanh", 0.89, False), ("combu", 0.85, False)])
    assert words.startswith("Use relu, which has the best mean.")
    assert words.endswith("combu (the default activation, 0.046 worse, p = 0.59).")
    words = advise([("relu", 0.896, False), ("combu", 0.85, True)])
    assert "significantly better than the default activation, combu" in words


@pytest.mark.parametrize("mean", np.arange(0.5, 0.9, 0.05))
def test_a_simpler_model_with_a_worse_mean_is_not_advised(mean):
    words = advise([("mlp", 0.9, False), ("linear", mean, False)], group="model")
    assert words.startswith("Use mlp, which has the best mean. These rows cannot decide")
    assert f"linear ({0.9 - mean:.2g} worse, p = 0.59)" in words


def test_a_simpler_model_with_the_same_mean_is_advised():
    words = advise([("mlp", 0.9, False), ("linear", 0.8995, False)], group="model")
    assert words.startswith("Use linear: it is simpler than mlp")


def test_no_choice_helps_if_none_beats_the_guess():
    assert advise([RELU], beats_guess=False).startswith("No choice of the activation helps")
