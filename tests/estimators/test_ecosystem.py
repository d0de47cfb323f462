"""In scikit-learn's company: searches, pipelines, wrappers, routing."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from combutab import MLPClassifier, MLPRegressor, PackClassifier, TabMRegressor

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


def test_randomized_search(classifier):
    sampled = RandomizedSearchCV(
        classifier, {"alpha": [0.0, 1.0], "dropout": [0.0, 0.2]}, n_iter=2, cv=2, random_state=0
    ).fit(X, Y)
    assert sampled.best_score_ > 0.8


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


def test_calibration(classifier):
    for method in ("sigmoid", "isotonic"):
        calibrated = CalibratedClassifierCV(classifier, method=method, cv=3).fit(X, Y)
        assert_allclose(calibrated.predict_proba(X).sum(1), 1)
        assert calibrated.score(X, Y) > 0.9


def test_bagging_and_boosting(classifier, regressor):
    bagged = BaggingRegressor(regressor, n_estimators=3, random_state=0).fit(X_REG, Y_REG)
    assert bagged.score(X_REG, Y_REG) > 0.4
    seeds = {m.random_state for m in bagged.estimators_}
    assert len(seeds) == 3
    assert BaggingClassifier(classifier, n_estimators=2, random_state=0).fit(X, Y).score(X, Y) > 0.9
    boosted = AdaBoostClassifier(classifier, n_estimators=3, random_state=0).fit(X, Y)
    assert boosted.score(X, Y) > 0.9
    AdaBoostRegressor(regressor, n_estimators=2, random_state=0).fit(X_REG, Y_REG).predict(X_REG)


def test_meta_estimators(classifier, regressor):
    assert OneVsRestClassifier(classifier).fit(X, Y).score(X, Y) > 0.85
    two = np.column_stack([Y, Y == 1])
    assert MultiOutputClassifier(classifier).fit(X, two).predict(X).shape == (150, 2)
    chain = RegressorChain(regressor, order=[1, 0]).fit(X_REG, np.column_stack([Y_REG, -Y_REG]))
    assert chain.predict(X_REG).shape == (442, 2)
    logged = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp)
    assert (logged.fit(X_REG, Y_REG).predict(X_REG) > 0).all()
    stacked = StackingRegressor([("net", regressor), ("line", LinearRegression())], cv=2)
    assert stacked.fit(X_REG, Y_REG).score(X_REG, Y_REG) > 0.4
    vote = VotingClassifier(
        [("net", classifier), ("line", LogisticRegression(max_iter=1000))], voting="soft"
    )
    assert vote.fit(X, Y).score(X, Y) > 0.9


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
    sizes, _, scores = learning_curve(
        classifier, X, Y, cv=3, train_sizes=[0.3, 1.0], shuffle=True, random_state=0
    )
    assert scores.shape == (2, 3)
    assert len(sizes) == 2
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


def test_deep_copies_are_independent(classifier):
    classifier.fit(X, Y)
    twin = copy.deepcopy(classifier)
    assert_array_equal(twin.predict_proba(X), classifier.predict_proba(X))
    before = twin.predict_proba(X)
    classifier.partial_fit(X, Y)
    assert_array_equal(twin.predict_proba(X), before)
    assert (classifier.predict_proba(X) != before).any()


# ---- files of others -------------------------------------------------------------------------


def test_the_state_holds_no_frame_and_comes_back_whole():
    clf = MLPClassifier(hidden_layer_sizes=(4,), max_iter=3, random_state=0).fit(X, Y)
    kinds = {type(value).__module__.split(".")[0] for value in clf.__getstate__().values()}
    assert "pandas" not in kinds
    again = pickle.loads(pickle.dumps(clf))
    pd.testing.assert_frame_equal(again.history_, clf.history_)
    assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert isinstance(copy.deepcopy(clf).history_, pd.DataFrame)


@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor, TabMRegressor])
def test_skops_keeps_a_fitted_estimator(cls):
    skops = pytest.importorskip("skops.io", reason="needs skops")
    model = cls(hidden_layer_sizes=(4,), max_iter=3, random_state=0).fit(X, Y)
    data = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=data)
    assert all(name.startswith("combutab.") for name in unknown)  # to be trusted, ours alone
    again = skops.loads(data, trusted=unknown)
    assert_array_equal(again.predict(X), model.predict(X))
    pd.testing.assert_frame_equal(again.history_, model.history_)
