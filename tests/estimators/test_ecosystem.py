"""In scikit-learn's company: searches, pipelines, wrappers, routing."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingRegressor,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from combutab import MLPClassifier, MLPRegressor, PackClassifier

INF = float("inf")
X, Y = load_iris(return_X_y=True)
X_REG, Y_REG = load_diabetes(return_X_y=True)
LEARN = {
    "hidden_layer_sizes": (16,),
    "max_iter": 30,
    "learning_rate_init": 0.02,
    "n_iter_no_change": INF,
    "random_state": 0,
}


@pytest.fixture
def classifier():
    return MLPClassifier(**LEARN)


@pytest.fixture
def regressor():
    return MLPRegressor(**LEARN)


def test_pipelines_and_column_transformers(classifier):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 5.8, "u", "v"))
    transform = ColumnTransformer(
        [("scale", StandardScaler(), ["a", "b"]), ("hot", OneHotEncoder(), ["kind"])],
        remainder="passthrough",
    )
    pipeline = make_pipeline(transform, classifier).fit(frame, Y)
    assert pipeline.score(frame, Y) > 0.9
    sparse_out = make_pipeline(OneHotEncoder(), classifier).fit(frame[["kind"]], Y)
    assert sparse_out.score(frame[["kind"]], Y) > 0.5
    tuned = GridSearchCV(pipeline, {"mlpclassifier__alpha": [0.0, 0.1]}, cv=2).fit(frame, Y)
    assert "mlpclassifier__alpha" in tuned.best_params_
    assert "MLPClassifier" in pipeline._repr_html_()


def test_pandas_output_before_us_names_our_features(classifier):
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), classifier).set_output(transform="pandas")
    pipeline.fit(frame, Y)
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")
    assert pipeline.predict(frame).shape == (150,)  # and no warning about names


_NET, _REG = MLPClassifier(**LEARN), MLPRegressor(**LEARN)
_LINES = LogisticRegression(max_iter=1000), LinearRegression()
_TWO = np.column_stack([Y, Y == 1]), np.column_stack([Y_REG, -Y_REG])
META = {  # an estimator of estimators, the rows it is fitted to, and a score that it reaches
    "calibration": (CalibratedClassifierCV(_NET, method="isotonic", cv=3), X, Y, 0.9),
    "bagging": (BaggingRegressor(_REG, n_estimators=3, random_state=0), X_REG, Y_REG, 0.4),
    "boosting": (AdaBoostClassifier(_NET, n_estimators=2, random_state=0), X, Y, 0.9),
    "boosted regression": (AdaBoostRegressor(_REG, n_estimators=2), X_REG, Y_REG, 0.2),
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


def test_cross_validation_and_inspection(classifier, regressor):
    result = cross_validate(
        regressor,
        X_REG,
        Y_REG,
        cv=3,
        scoring=["r2", "neg_mean_absolute_error"],
        return_estimator=True,
        return_train_score=True,
    )
    assert (result["test_r2"] > 0.2).all()
    assert len(result["estimator"]) == 3
    proba = cross_val_predict(classifier, X, Y, cv=3, method="predict_proba")
    assert (proba.argmax(1) == Y).mean() > 0.85
    noise = np.random.default_rng(0).normal(size=(442, 1))
    rows = np.hstack([X_REG[:, [2]], noise])
    fitted = regressor.fit(rows, Y_REG)
    importance = permutation_importance(fitted, rows, Y_REG, n_repeats=3, random_state=0)
    assert importance.importances_mean[0] > 0.2 > importance.importances_mean[1]
    curve = partial_dependence(fitted, rows, [0], grid_resolution=5)["average"][0]
    assert curve[-1] > curve[0]


def test_sample_weights_are_routed_through_a_pipeline(classifier):
    weight = np.r_[np.zeros(50), np.ones(100)]  # without the first class
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            MLPClassifier(**LEARN)
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True),
        ).fit(X, Y, sample_weight=weight)
        assert routed[-1].classes_.tolist() == [1, 2]
        deaf = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            MLPClassifier(**LEARN).set_fit_request(sample_weight=False),
        )
        with pytest.raises(TypeError, match="sample_weight"):
            deaf.fit(X, Y, sample_weight=weight)
        scores = cross_validate(
            MLPClassifier(**LEARN)
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True),
            X,
            Y,
            cv=2,
            params={"sample_weight": np.ones(150)},
        )
        assert scores["test_score"].shape == (2,)
        # a validation set of one's own is metadata as well
        with_val = make_pipeline(
            MLPClassifier(**LEARN).set_fit_request(X_val=True, y_val=True)
        ).fit(X, Y, X_val=X, y_val=Y)
        assert max(with_val[-1].validation_scores_) == with_val[-1].best_validation_score_
        assert with_val[-1].best_loss_ is None
        assert with_val.score(X, Y) > 0.9
        # which a pipeline brings to the scale of the others
        scaled = make_pipeline(
            StandardScaler(),
            MLPClassifier(**LEARN).set_fit_request(X_val=True, y_val=True),
            transform_input=["X_val"],
        ).fit(X, Y, X_val=X, y_val=Y)
        alone = MLPClassifier(**LEARN)
        own = StandardScaler().fit_transform(X)
        alone.fit(own, Y, X_val=own, y_val=Y)
        assert scaled[-1].validation_scores_ == alone.validation_scores_
        request = MLPRegressor().set_predict_request(return_std=True)
        assert request.get_metadata_routing().predict.requests["return_std"] is True
        pack = PackClassifier().set_fit_request(sample_weight=True, X_val=True, y_val=True)
        assert pack.get_metadata_routing().fit.requests["X_val"] is True


# ---- files of others -------------------------------------------------------------------------
