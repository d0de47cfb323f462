"""In scikit-learn's company: estimators of estimators, routing."""

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingRegressor,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from combutab import MLPClassifier, MLPRegressor, PackClassifier

INF = float("inf")
X, Y = load_iris(return_X_y=True)
X_REG, Y_REG = (part[:200] for part in load_diabetes(return_X_y=True))
LEARN = {
    "hidden_layer_sizes": (16,),
    "max_iter": 15,
    "learning_rate_init": 0.03,
    "n_iter_no_change": INF,
    "random_state": 0,
}


_NET, _REG = MLPClassifier(**LEARN), MLPRegressor(**LEARN)
_LINES = LogisticRegression(max_iter=1000), LinearRegression()
_TWO = np.column_stack([Y, Y == 1]), np.column_stack([Y_REG, -Y_REG])
META = {  # an estimator of estimators, the rows it is fitted to, and a score that it reaches
    "calibration": (CalibratedClassifierCV(_NET, method="isotonic", cv=3), X, Y, 0.9),
    "bagging": (BaggingRegressor(_REG, n_estimators=3, random_state=0), X_REG, Y_REG, 0.4),
    "boosting": (AdaBoostClassifier(_NET, n_estimators=2, random_state=0), X, Y, 0.9),
    "one against the rest": (OneVsRestClassifier(_NET), X, Y, 0.85),
    "several labels": (MultiOutputClassifier(_NET), X, _TWO[0], 0.8),
    "a chain": (RegressorChain(_REG, order=[1, 0]), X_REG, _TWO[1], 0.4),
    "logs": (TransformedTargetRegressor(_REG, func=np.log, inverse_func=np.exp), X_REG, Y_REG, 0.2),
    "stacking": (StackingRegressor([("n", _REG), ("l", _LINES[1])], cv=2), X_REG, Y_REG, 0.4),
    "voting": (VotingClassifier([("n", _NET), ("l", _LINES[0])], voting="soft"), X, Y, 0.9),
}


@pytest.mark.parametrize("name", META)
def test_estimators_of_estimators(name):
    outer, rows, y, least = META[name]
    assert outer.fit(rows, y).score(rows, y) > least


def asking(**requests):
    return MLPClassifier(**LEARN).set_fit_request(**requests)


def test_sample_weights_are_routed_through_a_pipeline():
    weight = np.r_[np.zeros(50), np.ones(100)]  # without the first class
    with sklearn.config_context(enable_metadata_routing=True):
        scale = StandardScaler().set_fit_request(sample_weight=False)
        weighted = asking(sample_weight=True).set_score_request(sample_weight=True)
        routed = make_pipeline(scale, weighted).fit(X, Y, sample_weight=weight)
        assert routed[-1].classes_.tolist() == [1, 2]
        with pytest.raises(TypeError, match="sample_weight"):
            make_pipeline(scale, asking(sample_weight=False)).fit(X, Y, sample_weight=weight)
        scores = cross_validate(weighted, X, Y, cv=2, params={"sample_weight": np.ones(150)})
        assert scores["test_score"].shape == (2,)
        # a validation set of one's own is metadata as well
        validated = asking(X_val=True, y_val=True)
        with_val = make_pipeline(validated).fit(X, Y, X_val=X, y_val=Y)
        assert max(with_val[-1].validation_scores_) == with_val[-1].best_validation_score_
        assert with_val[-1].best_loss_ is None
        # which a pipeline brings to the scale of the others
        scaled = make_pipeline(StandardScaler(), validated, transform_input=["X_val"])
        scaled.fit(X, Y, X_val=X, y_val=Y)
        own = StandardScaler().fit_transform(X)
        alone = MLPClassifier(**LEARN).fit(own, Y, X_val=own, y_val=Y)
        assert scaled[-1].validation_scores_ == alone.validation_scores_
        request = MLPRegressor().set_predict_request(return_std=True)
        assert request.get_metadata_routing().predict.requests["return_std"] is True
        pack = PackClassifier().set_fit_request(sample_weight=True, X_val=True, y_val=True)
        assert pack.get_metadata_routing().fit.requests["X_val"] is True
