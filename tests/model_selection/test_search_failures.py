"""Searches in which fits fail, and what StackedGridSearchCV leaves to GridSearchCV."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.training import TimeLimit
from tests.model_selection.test_search import CLASSIFIER, QUICK, X_REG, Y_REG, X, Y

pytestmark = pytest.mark.usefixtures("paper_defaults")


def _with_failures(estimator, grid, error_score=np.nan, X=X, y=Y):
    results = []
    for cls in (StackedGridSearchCV, GridSearchCV):
        search = cls(estimator, grid, cv=2, error_score=error_score, refit=False)
        with pytest.warns() as caught:
            results.append(search.fit(X, y))
        results[-1].words = [w for w in caught if issubclass(w.category, FitFailedWarning)]
    assert_allclose(
        results[0].cv_results_["mean_test_score"],
        results[1].cv_results_["mean_test_score"],
        rtol=1e-6,
    )
    assert len(results[0].words) == len(results[1].words) == 1
    return results[0]


BAD = {
    "diverges": {"solver": ["sgd"], "learning_rate_init": [0.01, 1e300]},
    "unknown activation": {"activation": ["relu", "rleu"]},
    "unknown activation first": {"activation": ["rleu", "relu"]},
    "wrong value": {"alpha": [-1.0, 0.0]},
    "wrong value last": {"alpha": [0.0, -1.0]},
    "shape that cannot be": {"normalization": ["none", "group"], "hidden_layer_sizes": [(10,)]},
    "no validation rows": {"early_stopping": [True], "validation_fraction": [0.0, 0.2]},
    "wrong columns": {"categorical_features": [None, [99]]},
}


@pytest.mark.parametrize("kind", BAD)
def test_a_candidate_that_fails_scores_error_score_and_harms_no_other(kind):
    estimator = MLPRegressor(**QUICK, precision="float64")
    error_score = -7.0 if kind in ("diverges", "wrong value") else np.nan
    search = _with_failures(estimator, BAD[kind], error_score, X_REG, Y_REG)
    scores = search.cv_results_["mean_test_score"]
    failed = np.isnan(scores) if np.isnan(error_score) else scores == error_score
    assert failed.sum() == 1
    with pytest.raises((ValueError, TypeError)):
        StackedGridSearchCV(estimator, BAD[kind], cv=2, error_score="raise").fit(X_REG, Y_REG)


class _Breaks(sklearn.base.BaseEstimator):
    """An activation that fails in its forward pass, which no check can foresee."""

    def __new__(cls, width):
        import torch

        class Module(torch.nn.Module):
            def forward(self, x):
                raise RuntimeError("this activation breaks")

        return Module()


def test_an_activation_that_breaks_in_training_is_one_failed_candidate():
    search = _with_failures(
        MLPClassifier(**QUICK, precision="float64"), {"activation": ["relu", _Breaks, "tanh"]}
    )
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True, False]
    assert "this activation breaks" in str(search.words[0].message)


def test_a_search_in_which_all_fail_says_so():
    with pytest.raises(ValueError, match=r"(?s)All the 4 fits failed.*unknown activation 'x'"):
        StackedGridSearchCV(CLASSIFIER, {"activation": ["x", "y"]}, cv=2).fit(X, Y)


def test_wrong_arguments_of_the_search():
    for options, words in [
        ({"param_grid": 5}, "'param_grid' parameter of StackedGridSearchCV"),
        ({"param_grid": {"alpha": 0.1}}, "needs to be a list"),
        ({"param_grid": {"alpha": []}}, "empty|non-empty"),
        ({"cv": "five"}, "'cv' parameter|Expected `cv`"),
        ({"scoring": "nope"}, "'scoring' parameter"),
        ({"refit": "nope", "scoring": ["accuracy"]}, "refit"),
        ({"error_score": "ignore"}, "'error_score' parameter"),
    ]:
        arguments = {"param_grid": {"alpha": [0.0]}, "cv": 2, **options}
        with pytest.raises((ValueError, TypeError), match=words):
            StackedGridSearchCV(CLASSIFIER, **arguments).fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        StackedGridSearchCV(CLASSIFIER, {"alpha": [0.0]}).fit(X, Y[:10])
    with pytest.raises(NotFittedError):
        StackedGridSearchCV(CLASSIFIER, {"alpha": [0.0]}).predict(X)


def test_other_things_fall_back_to_grid_search_with_a_warning():
    pipeline = make_pipeline(StandardScaler(), CLASSIFIER)
    with_bar = clone(CLASSIFIER).set_params(callbacks=[TimeLimit(100)])
    for estimator, grid, fit, words in [
        (
            pipeline,
            {"mlpclassifier__alpha": [0.0, 1.0]},
            {},
            "Pipeline is not an estimator of comb",
        ),
        (LogisticRegression(max_iter=1000), {"C": [1.0, 2.0]}, {}, "LogisticRegression is not an"),
        (with_bar, {"alpha": [0.0, 1.0]}, {}, "callbacks watch one fit at a time"),
        (
            CLASSIFIER,
            {"callbacks": [None, [TimeLimit(9)]]},
            {},
            "callbacks watch one fit at a time",
        ),
        (
            CLASSIFIER,
            {"alpha": [0.0]},
            {"X_val": X, "y_val": Y},
            r"fit was given \['X_val', 'y_val'",
        ),
    ]:
        search = StackedGridSearchCV(estimator, grid, cv=2)
        with pytest.warns(UserWarning, match=f"{words}.*one fit at a time") as caught:
            search.fit(X, Y, **fit)
        assert caught[0].filename == __file__
        reference = GridSearchCV(estimator, grid, cv=2).fit(X, Y, **fit)
        assert_allclose(
            search.cv_results_["mean_test_score"], reference.cv_results_["mean_test_score"]
        )
    with (
        pytest.warns(
            UserWarning, match=r"the grid has \['alhpa'\], no parameters of MLPClassifier"
        ),
        pytest.raises(ValueError, match="Invalid parameter 'alhpa'"),
    ):
        StackedGridSearchCV(CLASSIFIER, {"alhpa": [1]}, cv=2).fit(X, Y)


def test_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = clone(CLASSIFIER).set_fit_request(sample_weight=True)
        estimator.set_score_request(sample_weight=True)
        search = StackedGridSearchCV(estimator, {"alpha": [0.0]}, cv=2)
        with pytest.warns(UserWarning, match="metadata routing is on"):
            search.fit(X, Y, sample_weight=np.ones(150))
        search.fit(X, Y)  # without metadata there is nothing to route
