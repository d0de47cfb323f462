"""The report of a fitted model: what it says, and what of the rows it does not show."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import evaluate_held_out
from combutab.reports import render_report, report_model, write_report

pytestmark = pytest.mark.usefixtures("few_resamples")

FAST = {"hidden_layer_sizes": (16,), "max_iter": 8, "n_iter_no_change": np.inf, "random_state": 0}


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    city = rng.choice(["Rome", "Oslo"], n).astype(object)
    city[0] = "a place that one row has"
    table = pd.DataFrame({"age": rng.normal(40, 10, n), "city": city, "noise": rng.random(n)})
    y = np.where(table["age"] + 10 * (city == "Rome") + rng.normal(0, 3, n) > 45, "yes", "no")
    return table, pd.Series(y, name="churn")


@pytest.fixture(scope="module")
def classifier():
    X, y = rows()
    return MLPClassifier(**FAST).fit(X, y)


def test_the_page_of_a_classifier(classifier, tmp_path):
    X, y = rows(seed=1)
    write_report(classifier, tmp_path / "model.html", X, y)
    page = (tmp_path / "model.html").read_text("utf-8")
    text = re.sub(r"<[^>]+>", " ", page)
    for said in (
        "Prediction of churn",
        "The model is better than the baseline: ROC AUC",
        "Confusion matrix",
        "Calibration curve",
        "Most important: age",
        "2 categories, rarer ones joined into one; one-hot",
        "combutab predict model.safetensors",
        "hidden_layer_sizes=(16,)",
    ):
        assert said in text, said
    assert "a place that one row has" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_given_scores_and_explained_rows_are_shown(classifier):
    X, y = rows()
    scores = evaluate_held_out(classifier, y)
    found = report_model(classifier, X, y, scores=scores, explain=X[1:3], n_repeats=2)
    assert found.scores is scores
    assert found.attributions.values.shape == (2, 3)
    text = re.sub(r"<[^>]+>", " ", render_report(found))
    assert f"Scores on {scores.n_rows:,} rows" in text
    assert "Row 1: probability of" in text


def test_few_large_errors_do_not_show_a_better_model():
    rng = np.random.default_rng(12)
    X, y = rng.normal(size=(200, 3)), rng.standard_t(1.5, 200)  # independent
    model = LinearRegression().fit(X[:100], y[:100])
    found = report_model(model, X[100:], y[100:], n_repeats=2)
    assert found.scores.beats_baseline
    page = render_report(found)
    assert "uncertain" in page
    assert "The model is better" not in page
    exact = render_report(report_model(model, X, model.predict(X), n_repeats=2))
    assert "The model is better" in exact


def test_page_of_a_regressor_and_foreign_model():
    X, _ = rows()
    y = 3 * X["age"].to_numpy()
    text = re.sub(r"<[^>]+>", " ", render_report(MLPRegressor(**FAST).fit(X, y), X, y))
    assert "Predicted and true values" in text
    assert "Quantiles of the absolute error" in text
    ages, labels = X[["age"]], X["age"] > 40
    text = re.sub(
        r"<[^>]+>", " ", render_report(LogisticRegression().fit(ages, labels), ages, labels)
    )
    assert "LogisticRegression" in text
    assert "ROC AUC is 1, and" in text


def test_the_page_of_a_model_without_probabilities():
    X, y = rows()
    svc = LinearSVC().fit(X[["age"]], y)
    text = re.sub(r"<[^>]+>", " ", render_report(svc, X[["age"]], y))
    assert "Confusion matrix" in text
    assert "decision function of" in text
    assert "Calibration curve" not in text
    assert "Predicted and true values" not in text


def test_calibration_is_that_of_the_predicted_class():
    X, _ = rows()
    y = np.digitize(X["age"], [35, 45])
    logistic = LogisticRegression(max_iter=1000).fit(X[["age"]], y)
    found = report_model(logistic, X[["age"]], y, n_repeats=2)
    labels = np.full(len(y), 2)  # as a classifier predicts that has another rule than argmax
    found = replace(found, scores=replace(found.scores, y_pred=labels))
    means = re.search(r"Means of groups of rows: ([^;]+): ", render_report(found))
    assert float(means[1]) < 0.1  # the largest of three probabilities is at least 1/3


def test_a_model_that_has_learned_nothing():
    X, _ = rows(80)
    y = np.random.default_rng(3).random(80) < 0.5
    found = report_model(
        LogisticRegression(C=1e-9).fit(X[["noise"]], y), X[["noise"]], ~y, n_repeats=2
    )
    assert "no better than the baseline" in render_report(found)


def test_an_estimator_needs_rows(classifier, tmp_path):
    with pytest.raises(TypeError, match="X and y"):
        write_report(classifier, tmp_path / "model.html")
    assert not list(tmp_path.iterdir())
