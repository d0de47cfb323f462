"""robustness: whose scores it gives, and how they sum up."""

from __future__ import annotations

import weakref

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer, mean_absolute_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

from combutab import MLPClassifier
from combutab.evaluation import CORRUPTIONS, corrupt, robustness


@pytest.fixture(scope="module")
def mixed():
    """A table on which scikit-learn's and our classifiers do well, and its parts."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "x": rng.normal(size=400),
            "count": rng.integers(0, 20, 400),
            "kind": pd.Categorical(rng.choice(["u", "v", "w"], 400)),
            "truth": rng.random(400) < 0.5,
        }
    )
    y = np.where(X["x"] + 0.1 * X["count"] + (X["kind"] == "u") > 1.2, "yes", "no")
    return train_test_split(X, y, random_state=0)


def linear_model():
    return make_pipeline(
        make_column_transformer(
            (SimpleImputer(), ["x", "count", "truth"]),
            (
                OneHotEncoder(handle_unknown="ignore"),
                make_column_selector(dtype_include="category"),
            ),
        ),
        LogisticRegression(),
    )


@pytest.fixture(scope="module")
def models(mixed):
    X, _, y, _ = mixed
    X = X.assign(truth=X["truth"].astype(float))  # as corrupted tables give it
    found = {
        "linear": linear_model(),
        "boosting": HistGradientBoostingClassifier(
            max_iter=20, categorical_features="from_dtype", random_state=0
        ),
        "mlp": MLPClassifier(
            hidden_layer_sizes=(16,),
            batch_size=32,
            learning_rate_init=0.01,
            max_iter=20,
            n_iter_no_change=np.inf,
            random_state=0,
        ),
    }
    return {name: model.fit(X, y) for name, model in found.items()}


def test_scores_are_those_of_the_corrupted_tables(models, mixed):
    X_train, X, _, y = mixed
    found = robustness(models, X, y, X_reference=X_train, severities=[2, 5])
    scores = found.scores
    assert found.scoring == "accuracy"
    assert list(dict.fromkeys(scores["corruption"])) == ["clean", *CORRUPTIONS]
    assert len(scores) == 3 * (1 + 2 * len(CORRUPTIONS))
    for row in scores.itertuples():
        table = X
        if row.severity:
            table = corrupt(X, row.corruption, row.severity, X_reference=X_train)
        expected = accuracy_score(y, models[row.estimator].predict(table))
        assert row.score == pytest.approx(expected)
    summary = found.summary.set_index("estimator")
    assert summary.index.tolist() == list(models)
    for name in models:
        own = scores[scores["estimator"] == name]
        wrong = own[own["severity"] > 0]
        assert summary.loc[name, "clean"] == own["score"].iloc[0] > 0.85
        assert summary.loc[name, "corrupted"] == pytest.approx(wrong["score"].mean())
        drop = own["score"].iloc[0] - wrong["score"].mean()
        assert summary.loc[name, "drop"] == pytest.approx(drop)
        assert drop > 0
    assert list(summary) == ["clean", "corrupted", "drop"]


def test_the_same_numbers_whatever_else_is_asked_for(models, mixed):
    _, X, _, y = mixed
    two = {name: models[name] for name in ("linear", "mlp")}

    def scores(models, **options):
        found = robustness(models, X, y, **options).scores
        return found.set_index(["estimator", "corruption", "severity"])["score"]

    whole = scores(two, severities=[2, 4])
    part = scores({"mlp": models["mlp"]}, corruptions=["shift", "missing"], severities=[4])
    pd.testing.assert_series_equal(part, whole[part.index])
    pd.testing.assert_series_equal(whole, scores(two, severities=(4, 2, 2)))
    assert not whole.equals(scores(two, severities=[2, 4], random_state=3))


def test_mean_corruption_error(models, mixed):
    # Hendrycks and Dietterich: of the sums over severities, the mean of the ratios
    _, X, _, y = mixed
    found = robustness(models, X, y, baseline="linear")
    wrong = found.scores[found.scores["severity"] > 0]
    wide = wrong.pivot_table(index="severity", columns=["estimator", "corruption"], values="score")
    clean = found.summary.set_index("estimator")["clean"]
    for row in found.summary.itertuples():
        errors, of_linear = 1 - wide[row.estimator], 1 - wide["linear"]
        assert row.mce == pytest.approx((errors.sum() / of_linear.sum()).mean())
        errors, of_linear = (
            clean[row.estimator] - wide[row.estimator],
            clean["linear"] - wide["linear"],
        )
        assert row.relative_mce == pytest.approx((errors.sum() / of_linear.sum()).mean())
    assert found.summary["mce"][0] == found.summary["relative_mce"][0] == 1.0


def test_mean_corruption_error_of_losses():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
    y = X["a"] - 2 * X["b"]
    models = {"tree": DecisionTreeRegressor(random_state=0), "line": LinearRegression()}
    models = {name: model.fit(X[:150], y[:150]) for name, model in models.items()}
    X, y = X[150:], y[150:]
    options = {"corruptions": ["gaussian_noise", "shift"], "baseline": "tree"}
    found = robustness(models, X, y, scoring="neg_mean_absolute_error", **options)
    ratios = []
    for name in options["corruptions"]:
        line, tree = (
            sum(mean_absolute_error(y, m.predict(corrupt(X, name, s))) for s in range(1, 6))
            for m in (models["line"], models["tree"])
        )
        ratios.append(line / tree)
    assert found.summary["mce"][1] == pytest.approx(np.mean(ratios))
    assert found.scoring == "neg_mean_absolute_error"
    own = make_scorer(mean_absolute_error, greater_is_better=False)
    same = robustness(models, X, y, scoring=own, perfect_score=0.0, **options)
    pd.testing.assert_frame_equal(same.summary, found.summary)
    assert robustness(models, X, y, corruptions="shift").scoring == "r2"


def test_a_baseline_without_errors():
    X = pd.DataFrame({"x": np.arange(20.0)})
    y = np.zeros(20, dtype=int)
    perfect = DummyClassifier(strategy="constant", constant=0).fit(X, y)
    never = DummyClassifier(strategy="constant", constant=1).fit(X, np.ones(20, dtype=int))
    found = robustness({"b": perfect, "same": perfect, "never": never}, X, y, baseline="b").summary
    assert found["mce"].tolist() == [1.0, 1.0, np.inf]
    assert found["relative_mce"].tolist() == [1.0, 1.0, 1.0]  # none loses anything


class Watcher(ClassifierMixin, BaseEstimator):
    """Remembers which tables it was given, and how many were alive."""

    def __init__(self):
        self.seen, self.alive, self.tables = [], [], []

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        table = pd.DataFrame(X)
        self.seen.append((type(X), table.copy()))
        self.tables.append(weakref.ref(X))
        self.alive.append(sum(ref() is not None for ref in self.tables))
        return np.zeros(len(X), dtype=int)


def test_all_estimators_are_given_the_same_tables_one_at_a_time():
    X = pd.DataFrame({"x": np.arange(60.0), "k": ["a", "b"] * 30})
    y = np.zeros(60, dtype=int)
    watchers = {name: Watcher().fit(X, y) for name in ("one", "two")}
    robustness(watchers, X, y)
    one, two = watchers.values()
    whole = [table for _, table in one.seen if len(table) == 60]
    assert len(whole) == 1 + 5 * len(CORRUPTIONS)
    for (_, a), (_, b) in zip(one.seen, two.seen, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert max(one.alive) <= 2  # the clean table, and a corrupted one
    pd.testing.assert_frame_equal(whole[0], X)


def test_arrays_stay_arrays():
    X, y = np.arange(60.0).reshape(30, 2), np.zeros(30, dtype=int)
    before = X.copy()
    watcher = Watcher().fit(X, y)
    found = robustness(watcher, X, y, corruptions=["shift", "missing"])
    assert {kind for kind, _ in watcher.seen} == {np.ndarray}
    assert {table.to_numpy().dtype for _, table in watcher.seen} == {np.dtype(float)}
    np.testing.assert_array_equal(X, before)
    assert found.summary["estimator"].tolist() == ["Watcher"]
    assert np.isnan(watcher.seen[-1][1]).any(axis=None)


def test_an_estimator_that_cannot_take_a_corruption_fails_before_the_work(mixed):
    X, y = pd.DataFrame({"x": np.arange(50.0)}), np.arange(50) % 2
    watcher, model = Watcher().fit(X, y), LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="NaN") as caught:
        robustness({"watcher": watcher, "linear": model}, X, y)
    (note,) = caught.value.__notes__
    assert "'linear', at the corruption 'missing' of severity 5" in note
    assert "imputer" in note
    assert all(len(table) < 50 for _, table in watcher.seen)
    robustness(model, X, y, corruptions=["shift"])


def test_own_corruptions():
    def upside_down(table, severity, rng):
        return -severity * table

    X, y = pd.DataFrame({"x": np.arange(30.0)}), np.arange(30) % 2
    watcher = Watcher().fit(X, y)
    found = robustness(watcher, X, y, corruptions=["shift", upside_down], severities=[2])
    assert found.scores["corruption"].tolist() == ["clean", "shift", "upside_down"]
    pd.testing.assert_frame_equal(watcher.seen[-1][1], -2 * X)
    named = robustness(watcher, X, y, corruptions={"mine": upside_down}, severities=[1])
    assert named.scores["corruption"].tolist() == ["clean", "mine"]

    def jitter(table, severity, rng):
        return table + rng.random(table.shape)

    pd.testing.assert_frame_equal(corrupt(X, jitter, 1), corrupt(X, jitter, 1))
    assert not corrupt(X, jitter, 1).equals(corrupt(X, jitter, 1, random_state=1))


def test_what_no_column_can_suffer_is_left_out():
    numbers, y = pd.DataFrame({"a": np.arange(40.0)}), np.arange(40) % 2
    found = robustness(Watcher().fit(numbers, y), numbers, y, severities=[1])
    assert "category_swap" not in set(found.scores["corruption"])
    words = pd.DataFrame({"k": ["a", "b"] * 10})
    found = robustness(Watcher().fit(words, y[:20]), words, y[:20], severities=[1])
    assert found.scores["corruption"].tolist() == [
        "clean",
        "category_swap",
        "missing",
        "column_dropout",
    ]


# ---- errors --------------------------------------------------------------------------------------


def too_short(table, severity, rng):
    return table[1:]


def no_table(table, severity, rng):
    return table.to_numpy()


def too_short_again(table, severity, rng):
    return table


too_short_again.__name__ = "too_short"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"corruptions": ["noise"]}, ValueError, "unknown corruption 'noise'.*gaussian_noise"),
        ({"corruptions": ["roundin"]}, ValueError, "did you mean 'rounding'"),
        ({"corruptions": ["category_swap"]}, ValueError, "acts on category columns.*none"),
        ({"corruptions": [3]}, TypeError, "name or a function"),
        ({"corruptions": []}, ValueError, "corruptions is empty"),
        ({"corruptions": {"clean": too_short}}, ValueError, "'clean' is the name of the clean"),
        ({"corruptions": [too_short, too_short_again]}, ValueError, "share a name"),
        ({"corruptions": [too_short]}, ValueError, "'too_short' must keep the columns.*number"),
        ({"corruptions": [no_table]}, TypeError, "must return a DataFrame, got ndarray"),
        ({"severities": [0, 1]}, ValueError, r"some of \(1, 2, 3, 4, 5\), got \[0, 1\]"),
        ({"severities": []}, ValueError, "severities"),
        ({"severities": [1.5]}, ValueError, "severities"),
        ({"categorical": ["z"]}, ValueError, r"no column of the table: \['z'\]"),
        ({"baseline": "other"}, ValueError, "baseline='other' is none of the estimators: Watcher"),
        (
            {"baseline": "Watcher", "scoring": lambda m, X, y: 0.0},
            ValueError,
            "what a perfect estimator scores",
        ),
        ({"scoring": "accuracies"}, ValueError, "accuracies"),
        ({"X_reference": pd.DataFrame({"y": [1.0]})}, ValueError, r"lacks \['x'\], and adds"),
        ({"X_reference": pd.DataFrame({"x": []})}, ValueError, "X_reference has no rows"),
        ({"X_reference": [1.0]}, TypeError, "X_reference must be a pandas DataFrame.*list"),
        ({"y_test": [1, 2]}, ValueError, "inconsistent numbers of samples"),
        ({"X_test": pd.DataFrame({"x": []}), "y_test": []}, ValueError, "X_test has no rows"),
        ({"X_test": np.zeros(4)}, TypeError, r"2-D array, got ndarray of shape \(4,\)"),
        ({"estimator": {}}, ValueError, "at least one fitted estimator"),
        (
            {"X_test": pd.DataFrame([[1, 2]] * 4, columns=["a", "a"])},
            ValueError,
            "share a name: a; rename",
        ),
    ],
)
def test_errors(options, error, message):
    X, y = pd.DataFrame({"x": np.arange(4.0)}), np.arange(4) % 2
    watcher = Watcher().fit(X, y)
    given = {"estimator": watcher, "X_test": X, "y_test": y} | options
    with pytest.raises(error, match=message):
        robustness(given.pop("estimator"), given.pop("X_test"), given.pop("y_test"), **given)
    assert not watcher.seen
