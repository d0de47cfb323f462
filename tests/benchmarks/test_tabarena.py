"""The estimators as models of AutoGluon: fitted within a limit of time, and saved."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("autogluon.core")

from autogluon.common.space import Space

from benchmarks.tabarena.models import MODELS
from benchmarks.tabarena.search_spaces import SPACES

QUICK = {
    "COMBUTAB_MLP": {"hidden_layer_sizes": (8,), "max_iter": 3},
    "COMBUTAB_TABM": {"hidden_layer_sizes": (8,), "max_iter": 2, "n_heads": 2},
    "COMBUTAB_PACK": {"n_members": 2, "max_iter": 3},
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"x": rng.normal(size=240), "kind": pd.Categorical(rng.choice(list("ab"), 240))}
    )
    X.loc[::9, "x"] = np.nan
    return X, X["x"].fillna(0) + (X["kind"] == "a")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("problem", ["binary", "multiclass", "regression"])
def test_a_model_is_fitted_saved_and_loaded(model, problem, table, tmp_path):
    X, number = table
    cuts = {"binary": [0.5], "multiclass": [0.0, 1.0]}
    y = number if problem == "regression" else pd.Series(np.digitize(number, cuts[problem]))
    kinds = {"regression": "rmse", "binary": "roc_auc", "multiclass": "log_loss"}
    made = model(
        path=str(tmp_path),
        problem_type=problem,
        eval_metric=kinds[problem],
        hyperparameters=QUICK[model.ag_key],
    )
    made.fit(X=X[:180], y=y[:180], X_val=X[180:], y_val=y[180:], time_limit=60, num_cpus=1)
    answers = made.predict_proba(X[180:])
    again = type(made).load(made.save())
    np.testing.assert_array_equal(again.predict_proba(X[180:]), answers)
    assert answers.shape == ((60, 3) if problem == "multiclass" else (60,))
    assert made.estimate_memory_usage(X=X) > 1e8


def test_search_spaces_have_known_parameters():
    for model in MODELS:
        known = model.estimators[0]().get_params()
        space = SPACES[model.ag_key]
        assert set(space) <= set(known)
        assert all(isinstance(each, Space) for each in space.values())
