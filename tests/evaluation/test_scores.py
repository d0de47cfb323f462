"""Scores of predictions beside a baseline's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn import metrics
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from combutab import MLPClassifier, MLPRegressor, PackRegressor
from combutab.evaluation import (
    METRICS,
    PredictionScores,
    evaluate_held_out,
    evaluate_predictions,
    find_metric,
)
from combutab.inspection import permutation_importance

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 3))
NOISY = X[:, 0] + RNG.normal(size=160)
TARGETS = {
    "two": np.where(NOISY > 0.8, "yes", "no"),
    "three": np.digitize(NOISY, [-0.5, 1.0]),
    "numbers": NOISY + 10,
    "several": np.column_stack([NOISY, X[:, 1]]),
}
TRAIN, TEST = slice(0, 100), slice(100, 160)


def fitted(name):
    y = TARGETS[name]
    make, dummy = LogisticRegression, DummyClassifier(strategy="prior")
    if name in ("numbers", "several"):
        make, dummy = LinearRegression, DummyRegressor()
    return make().fit(X[TRAIN], y[TRAIN]), dummy.fit(X[TRAIN], y[TRAIN]), y


@pytest.mark.parametrize("name", TARGETS)
def test_scores_are_those_of_scikit_learns_scorers(name):
    model, dummy, y = fitted(name)
    found = evaluate_predictions(model, X[TEST], y[TEST], y_train=y[TRAIN], n_resamples=20)
    table, numbers = found.table, {"yes": 1, "no": 0}
    assert found.metric == ("r2" if found.task == "regression" else "roc_auc")
    assert len(table) >= 3 + (name != "several")
    for metric in METRICS[found.task].values():
        if metric.name not in table.index:
            continue
        # f1 and average precision of text need the positive class, which scorers cannot have
        wanted = [numbers[label] for label in y] if name == "two" else y
        wanted = np.array(wanted)
        own = clone_fit(model, wanted), clone_fit(dummy, wanted)
        scorer = get_scorer(metric.scorer_name(2 if name == "two" else 3))
        sign = 1 if metric.greater_is_better else -1
        row = table.loc[metric.name]
        assert_allclose(row["score"], sign * scorer(own[0], X[TEST], wanted[TEST]))
        if metric.name not in ("mae", "mape"):
            assert_allclose(row["baseline"], sign * scorer(own[1], X[TEST], wanted[TEST]))
        if not found.no_interval and metric.name not in ("r2", "rmse", "mse"):
            assert row["low"] <= row["score"] <= row["high"]
            assert row["low"] < row["high"]
    assert found.beats_baseline


def clone_fit(model, y):
    return type(model)(**model.get_params()).fit(X[TRAIN], y[TRAIN])


def test_the_median_is_the_baseline_of_absolute_errors():
    model, _, y = fitted("numbers")
    found = evaluate_predictions(model, X[TEST], y[TEST], y_train=y[TRAIN], n_resamples=0)
    off = np.abs(y[TEST] - np.median(y[TRAIN]))
    assert_allclose(found.table.loc["mae", "baseline"], off.mean())
    assert_allclose(found.errors["baseline"][0.5], np.median(off))
    assert_allclose(found.errors["model"][1.0], np.abs(found.y_pred - y[TEST]).max())
    assert found.table["low"].isna().all()


def test_confusion_matrix():
    model, _, y = fitted("two")
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    expected = metrics.confusion_matrix(y[TEST], model.predict(X[TEST]))
    assert found.confusion.to_numpy().tolist() == expected.tolist()
    assert found.confusion.columns.tolist() == ["no", "yes"]
    assert (found.y_pred == model.predict(X[TEST])).all()
    for text in (str(found), found._repr_html_()):
        assert "balanced accuracy" in text


LABEL_METRICS = {
    "accuracy": metrics.accuracy_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f1": lambda y, predicted: metrics.f1_score(
        y, predicted, **({"pos_label": "yes"} if "yes" in y else {"average": "macro"})
    ),
}
CLASSIFIERS = {
    "tuned threshold": TunedThresholdClassifierCV(
        LogisticRegression(), scoring="balanced_accuracy"
    ),
    "tuned network": TunedThresholdClassifierCV(
        MLPClassifier((4,), max_iter=3, random_state=0), scoring="balanced_accuracy", cv=2
    ),
    "fixed threshold": FixedThresholdClassifier(
        LinearSVC(), threshold=-0.7, pos_label="yes", response_method="decision_function"
    ),
    "calibrated": SVC(probability=True, random_state=0),
    "ridge": RidgeClassifier(),
    "pipeline": make_pipeline(StandardScaler(), LinearSVC()),
    "grid": GridSearchCV(LinearSVC(), {"C": [0.1, 1.0]}, cv=2),
    "votes": VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier())]),
    "pairs": SVC(decision_function_shape="ovo"),
}


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("target", ["two", "three", "five"])
def test_metrics_of_labels_score_predict(name, target):
    y = np.digitize(NOISY, [-1, -0.3, 0.3, 1]) if target == "five" else TARGETS[target]
    if target != "two" and name in ("tuned threshold", "tuned network", "fixed threshold"):
        pytest.skip("thresholds are for two classes")
    model = clone(CLASSIFIERS[name]).fit(X[TRAIN], y[TRAIN])
    predicted = model.predict(X[TEST])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=3)
    for metric, value in LABEL_METRICS.items():
        assert_allclose(found.table.loc[metric, "score"], value(y[TEST], predicted))
    assert (found.y_pred == predicted).all()
    assert found.confusion.to_numpy().tolist() == (
        metrics.confusion_matrix(y[TEST], predicted).tolist()
    )


def test_classifiers_without_probabilities_are_ranked_by_decision_function():
    y = TARGETS["two"]
    model = LinearSVC().fit(X[TRAIN], y[TRAIN])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    distance = model.decision_function(X[TEST])
    assert found.metric == "roc_auc"
    assert_allclose(found.table.loc["roc_auc", "score"], metrics.roc_auc_score(y[TEST], distance))
    expected = metrics.average_precision_score(y[TEST], distance, pos_label="yes")
    assert_allclose(found.table.loc["average_precision", "score"], expected)
    assert "log_loss" not in found.table.index
    assert found.y_proba is None


def test_classifiers_of_labels_have_no_roc_auc():
    y = TARGETS["two"]
    model = clone(CLASSIFIERS["votes"]).fit(X[TRAIN], y[TRAIN])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    assert found.table.index.tolist() == ["accuracy", "balanced_accuracy", "f1"]
    with pytest.raises(ValueError, match="roc_auc"):
        evaluate_predictions(model, X[TEST], y[TEST], scoring="roc_auc")


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(10, random_state=0),
        MultiOutputClassifier(LogisticRegression()),
        MultiOutputClassifier(LinearSVC()),
        OneVsRestClassifier(LinearSVC()),
    ],
)
def test_label_matrices_of_scikit_learn(model):
    y = (np.c_[TARGETS["several"], X[:, 2]] > 0).astype(int)
    model = clone(model).fit(X[TRAIN], y[TRAIN])
    predicted = model.predict(X[TEST])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    assert_allclose(found.table.loc["accuracy", "score"], (predicted == y[TEST]).all(1).mean())
    expected = metrics.f1_score(y[TEST], predicted, average="macro")
    assert_allclose(found.table.loc["f1", "score"], expected)
    assert (found.y_pred == predicted).all()
    if hasattr(model, "predict_proba"):
        p = np.column_stack([each[:, 1] for each in model.predict_proba(X[TEST])])
        assert_allclose(found.table.loc["roc_auc", "score"], metrics.roc_auc_score(y[TEST], p))


def test_a_label_that_no_training_row_has():
    y = np.c_[TARGETS["several"][:, 0] > 0, np.zeros(len(X))].astype(int)
    model = RandomForestClassifier(10, random_state=0).fit(X[TRAIN], y[TRAIN])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    p = model.predict_proba(X[TEST])[0][:, 1]
    assert_allclose(found.table.loc["roc_auc", "score"], metrics.roc_auc_score(y[TEST][:, 0], p))


def test_several_targets_of_many_classes_raise():
    y = np.digitize(TARGETS["several"], [-0.5, 0.5])
    model = RandomForestClassifier(3).fit(X, y)
    with pytest.raises(ValueError, match="one classifier per target"):
        evaluate_predictions(model, X, y)


def test_predictions_in_a_column_score_as_numbers():
    y = TARGETS["numbers"]
    model = LinearRegression().fit(X[TRAIN], y[TRAIN, None])
    found = evaluate_predictions(model, X[TEST], y[TEST], n_resamples=0)
    predicted = model.predict(X[TEST])[:, 0]
    assert_allclose(found.table.loc["mae", "score"], np.abs(predicted - y[TEST]).mean())
    assert_allclose(found.errors["model"][1.0], np.abs(predicted - y[TEST]).max())


def test_several_labels():
    y = (TARGETS["several"] > 0).astype(int)
    clf = MLPClassifier((4,), max_iter=2, random_state=0).fit(X[TRAIN], y[TRAIN])
    found = evaluate_predictions(clf, X[TEST], y[TEST], n_resamples=5)
    p = clf.predict_proba(X[TEST])
    assert_allclose(found.table.loc["roc_auc", "score"], metrics.roc_auc_score(y[TEST], p))
    assert_allclose(
        found.table.loc["accuracy", "score"], (clf.predict(X[TEST]) == y[TEST]).all(1).mean()
    )
    assert found.confusion is None


def test_metrics_that_rows_cannot_have_are_left_out():
    model, _, y = fitted("three")
    rows = np.flatnonzero(y == 1)[:9]
    found = evaluate_predictions(model, X[rows], y[rows])
    assert found.metric == "log_loss"
    assert "roc_auc" not in found.table.index


@pytest.mark.parametrize(
    ("name", "task", "title", "scorer"),
    [
        ("ROC AUC", "classification", "ROC AUC", "roc_auc"),
        ("balanced-accuracy", "classification", "balanced accuracy", "balanced_accuracy"),
        ("neg_log_loss", "classification", "log loss", "neg_log_loss"),
        ("RMSE", "regression", "RMSE", "neg_root_mean_squared_error"),
        ("neg_median_absolute_error", "regression", "median absolute error", None),
        ("matthews_corrcoef", "classification", "matthews corrcoef", None),
    ],
)
def test_a_metric_by_any_of_its_names(name, task, title, scorer):
    metric = find_metric(name, task)
    assert (metric.title, metric.scorer) == (title, scorer or name)
    model, _, y = fitted("numbers" if task == "regression" else "three")
    found = evaluate_predictions(model, X[TEST], y[TEST], scoring=[name], n_resamples=0)
    value = get_scorer(metric.scorer_name(3))(model, X[TEST], y[TEST])
    expected = value if metric.greater_is_better else -value
    assert_allclose(found.table["score"], [expected])


@pytest.mark.parametrize(
    ("name", "task", "says"),
    [("acuracy", "classification", "'acuracy'"), ("r2", "classification", "'r2'")],
)
def test_a_name_that_is_no_metric(name, task, says):
    with pytest.raises(ValueError, match=says):
        find_metric(name, task)


def test_what_cannot_be_scored():
    model, _, y = fitted("two")
    with pytest.raises(ValueError, match="'maybe'"):
        evaluate_predictions(model, X[:2], ["no", "maybe"])
    with pytest.raises(ValueError, match=r"1 .*2 rows"):
        evaluate_predictions(model, X[:2], ["no"])
    with pytest.raises(ValueError, match="'r2' is a metric"):
        evaluate_predictions(model, X[TEST], y[TEST], scoring="r2")
    with pytest.raises(ValueError, match="y has missing values"):
        evaluate_predictions(model, X[:2], ["no", None])
    with pytest.raises(ValueError, match="scoring is empty"):
        evaluate_predictions(model, X[TEST], y[TEST], scoring=[])
    with pytest.raises(ValueError, match=r"log_loss.*predict_proba"):
        evaluate_predictions(LinearSVC().fit(X, y), X, y, scoring="log_loss")
    with pytest.raises(ValueError, match="neg_brier_score"):
        evaluate_predictions(LinearSVC().fit(X, y), X, y, scoring=["f1", "neg_brier_score"])
    with pytest.raises(ValueError, match=r"\(160, 2\)"):
        evaluate_predictions(model, X, TARGETS["several"] > 0)
    clf = MLPClassifier((4,), max_iter=2, early_stopping=False).fit(X, y)
    with pytest.raises(ValueError, match="trained on all rows"):
        evaluate_held_out(clf, y)


def test_rows_set_aside_in_fit():
    y = pd.Series(np.tile(TARGETS["two"], 2))
    table = np.vstack([X, X + 0.01])
    clf = MLPClassifier((4,), max_iter=2, random_state=0).fit(table, y)
    found = evaluate_held_out(clf, y, scoring="log loss", n_resamples=0)
    assert (
        found.rows.tolist() == np.flatnonzero(~np.isnan(clf.oof_decision_function_[:, 0])).tolist()
    )
    p = clf.oof_decision_function_[found.rows]
    assert_allclose(found.table["score"].iloc[0], metrics.log_loss(y[found.rows], p))
    shares = y.drop(found.rows).value_counts(normalize=True)
    expected = metrics.log_loss(y[found.rows], np.tile(shares[["no", "yes"]], (len(p), 1)))
    assert_allclose(found.table["baseline"].iloc[0], expected)
    with pytest.raises(ValueError, match="320"):
        evaluate_held_out(clf, y[:2])


def test_text_labels_score_the_rarer_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.normal(size=400) > 1.2, "churned", "stayed")  # classes_[0] is rarer
    clf = LogisticRegression().fit(X, y)
    table = evaluate_predictions(clf, X, y, n_resamples=0).table["score"]
    is_churned, probability = y == "churned", clf.predict_proba(X)[:, 0]
    expected = metrics.f1_score(is_churned, clf.predict(X) == "churned")
    assert table["f1"] == pytest.approx(expected)
    expected = metrics.average_precision_score(is_churned, probability)
    assert table["average_precision"] == pytest.approx(expected)
    assert table["roc_auc"] == pytest.approx(metrics.roc_auc_score(is_churned, probability))
    precision = evaluate_predictions(clf, X, y, scoring=["precision"], n_resamples=0)
    expected = metrics.precision_score(is_churned, clf.predict(X) == "churned")
    assert precision.table["score"].iloc[0] == pytest.approx(expected)
    importance = permutation_importance(clf, X, y, scoring="f1", n_repeats=2, random_state=0)
    assert importance.score == pytest.approx(table["f1"], abs=0.1)


@pytest.mark.parametrize(
    ("estimator", "split"), [(MLPRegressor, "validation_split"), (PackRegressor, "cv")]
)
def test_noise_of_a_later_level_beats_no_baseline(estimator, split):
    rng = np.random.default_rng(0)
    is_late = np.arange(200) >= 160
    y = rng.normal(size=200) + 3 * is_late
    parameters = {split: is_late, "n_members": 2, "max_iter": 20, "random_state": 0}
    model = estimator(**parameters).fit(rng.normal(size=(200, 4)), y)
    scores = evaluate_held_out(model, y)
    assert scores.table.loc["r2", "baseline"] == pytest.approx(0)
    assert not scores.beats_baseline


def test_precision_and_recall_by_threshold():
    y = np.array(["no", "no", "no", "yes", "yes"])
    proba = np.array([0.04, 0.35, 0.75, 0.35, 0.85])
    scores = PredictionScores(
        "classification", "f1", pd.DataFrame(), "", 5, None, None, y, y,
        np.column_stack([1 - proba, proba]), np.array(["no", "yes"]), positive="yes",
    )  # fmt: skip
    table = scores.thresholds
    assert table.columns.name == "yes"
    assert table.loc[0.3].tolist() == [0.8, 0.5, 1.0]
    assert table.loc[0.8].tolist() == [0.2, 1.0, 0.5]
    assert np.isnan(table.loc[0.9, "precision"])
    assert replace(scores, y_proba=None).thresholds is None


def test_positive_class_is_the_rarer_one_of_training():
    y_train = np.array(["churned"] * 3 + ["stayed"] * 9)
    y = np.array(["churned"] * 20 + ["stayed"] * 12)
    X = np.linspace(0, 1, 32)[:, None]
    model = LogisticRegression().fit(X, y)
    scores = evaluate_predictions(model, X, y, y_train=y_train, n_resamples=0)
    expected = metrics.f1_score(y, model.predict(X), pos_label="churned")
    assert scores.table.loc["f1", "score"] == pytest.approx(expected)
    assert scores.positive == scores.thresholds.columns.name == "churned"
    assert "are those of 'churned'" in str(scores)


@pytest.mark.parametrize("scoring", ["roc_auc_ovo", "neg_brier_score"])
def test_samples_without_a_class_do_not_count_for_intervals(scoring):
    groups = np.arange(300) // 20
    y = np.where(groups < 2, "c", np.where(groups % 2, "a", "b"))
    features = np.random.default_rng(0).normal(size=(300, 2)) + (y == "c")[:, None]
    model = LogisticRegression().fit(features, y)
    scores = evaluate_predictions(model, features, y, scoring=scoring, groups=groups)
    low, score, high = scores.table.iloc[0][["low", "score", "high"]]
    assert low < score < high


@pytest.mark.parametrize("parameters", [{"bagging": "cv"}, {"early_stopping": True}])
def test_rows_of_weight_0_have_no_part_in_the_baseline(parameters):
    rng = np.random.default_rng(0)
    features, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    weight = np.repeat([0.0, 1.0], [20, 180])
    reg = MLPRegressor(hidden_layer_sizes=(4,), max_iter=2, random_state=0, **parameters)
    reg.fit(features, y, sample_weight=weight)
    baselines = [
        evaluate_held_out(reg, np.where(weight == 0, value, y)).table["baseline"]
        for value in (0, 50)
    ]
    assert_allclose(*baselines)
    assert ((reg.oof_folds_ == -2) == (weight == 0)).all()
