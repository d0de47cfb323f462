"""Importances, dependences and attributions: of models whose columns' parts are known."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.inspection import partial_dependence as their_dependence
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import LinearSVC

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)
from combutab.inspection import (
    Attributions,
    PartialDependence,
    PermutationImportance,
    TableMasker,
    attributions,
    partial_dependence,
    permutation_importance,
)
from combutab.plotting import (
    AttributionDisplay,
    PartialDependenceDisplay,
    PermutationImportanceDisplay,
)

N = 160


def messy(seed=0, n=N):
    """Every kind of column that estimators take, with gaps."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 900, n), "D")
    return pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "whole": rng.integers(0, 60, n),
            "Whole": pd.array(np.where(rng.random(n) < 0.2, None, 7), dtype="Int64"),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "text": rng.choice(["a", "b", "c"], n),
            "text with gaps": np.where(rng.random(n) < 0.2, None, rng.choice(["p", "q"], n)),
            "category": pd.Categorical(rng.choice(["u", "v"], n), categories=["v", "u", "w"]),
            "many": rng.choice([f"word {i}" for i in range(12)], n),
            "truth": rng.random(n) < 0.5,
            "date": pd.Timestamp("2020-01-01") + days,
            "zoned": (pd.Timestamp("2020-01-01") + days).tz_localize("Europe/Berlin"),
            "span": pd.to_timedelta(rng.integers(0, 9, n), "h"),
        }
    )


X = messy()
SIGNAL = X["number"] + 2 * (X["text"] == "a") + 0.1 * np.random.default_rng(1).normal(size=N)
SMALL = {"max_iter": 4, "random_state": 0, "early_stopping": False, "n_iter_no_change": np.inf}
NETWORK = {**SMALL, "hidden_layer_sizes": (16,), "max_onehot": 8, "learning_rate_init": 0.02}
PACK = {"n_members": 3, "max_iter": 3, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    """fitted(name): an estimator of messy rows, fitted once."""
    made = {}
    makers = {
        "classifier": lambda: MLPClassifier(**NETWORK).fit(X, SIGNAL > 1),
        "three": lambda: MLPClassifier(**NETWORK).fit(X, np.digitize(SIGNAL, [0, 1.5])),
        "regressor": lambda: MLPRegressor(
            **NETWORK, n_members=2, numeric_embedding="piecewise-linear"
        ).fit(X, SIGNAL),
        "tabm": lambda: TabMClassifier(**NETWORK, n_heads=3).fit(X, SIGNAL > 1),
        "tabm of numbers": lambda: TabMRegressor(**NETWORK, n_heads=3).fit(X, SIGNAL),
        "pack": lambda: PackRegressor(
            **PACK, boosting=False, member_params={"max_onehot": 8}
        ).fit(X, SIGNAL),
        "trees": lambda: PackClassifier(**PACK).fit(X, SIGNAL > 1),
        "two targets": lambda: MLPRegressor(**NETWORK).fit(X, np.c_[SIGNAL, -SIGNAL]),
    }  # fmt: skip

    def fitted(name):
        if name not in made:
            made[name] = makers[name]()
        return made[name]

    return fitted


class Known(RegressorMixin, BaseEstimator):
    """Predicts 3 a + (kind is "x") * b: what each column does is known."""

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return 3.0 * X["a"].to_numpy() + np.where(X["kind"] == "x", X["b"], 0.0)


def known_rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["x", "y"], n)
    return pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "kind": kinds, "c": 1.0})


# ---- permutation importance ----------------------------------------------------------------------


def test_importances_of_a_known_function():
    rows = known_rows()
    found = permutation_importance(
        Known(), rows, Known().predict(rows), n_repeats=8, random_state=0
    )
    # shuffling a adds 2 * 9 Var(a) to a squared error of 0, and the target's variance is 9.5
    line = found.table.set_index("column").loc["a"]
    assert found.table["column"].iloc[0] == "a"
    assert line["low"] < 2 * 9 / 9.5 < line["high"]
    assert line["high"] - line["low"] < 1
    unused = found.table.set_index("column").loc["c"]
    assert (unused["importance"], unused["low"], unused["high"]) == (0, 0, 0)
    assert (found.scoring, found.score) == ("R2", 1.0)
    np.testing.assert_allclose(
        found.table.set_index("column")["importance"].loc[list(rows)], found.importances.mean()
    )


@pytest.mark.parametrize(
    ("name", "y"),
    [("classifier", SIGNAL > 1), ("three", np.digitize(SIGNAL, [0, 1.5])), ("regressor", SIGNAL)],
)
def test_importances_of_messy_columns(fitted, name, y):
    state = np.random.get_state()[1].copy()
    given = fitted(name), X, y
    found = permutation_importance(*given, n_repeats=2, max_samples=80, random_state=0)
    assert found.table["column"].iloc[0] in ("text", "number")
    assert sorted(found.table["column"]) == sorted(X.columns)
    assert found.scoring == ("R2" if name == "regressor" else "ROC AUC")
    assert (np.random.get_state()[1] == state).all()
    if name == "regressor":
        again = permutation_importance(*given, n_repeats=2, max_samples=80, random_state=0)
        pd.testing.assert_frame_equal(found.table, again.table)
    if name == "three":
        worse = permutation_importance(
            *given, n_repeats=2, max_samples=80, random_state=0, scoring="log_loss"
        )
        assert worse.table["importance"].iloc[0] > 0 < worse.score
        assert worse.effect == "increase of log loss"


def test_a_score_of_ones_own():
    rows = known_rows(50)
    found = permutation_importance(Known(), rows, rows["a"], scoring=lambda model, X, y: X["a"][0])
    assert not found.table.set_index("column")["importance"].drop("a").any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, np.where(y > 2, np.nan, y)), r"y has \d+ missing values"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X.rename(columns={"b": "a"}), y), "X .*'a'"),
        (lambda X, y: (X[:9], y), "inconsistent numbers of samples"),
    ],
)
def test_rows_that_cannot_be_scored(change, message):
    rows = known_rows(40)
    with pytest.raises(ValueError, match=message):
        permutation_importance(Known(), *change(rows, Known().predict(rows)), n_repeats=2)


def test_a_class_that_the_model_does_not_know(fitted):
    with pytest.raises(ValueError, match="'no'"):
        permutation_importance(fitted("three"), X, np.full(N, "no", dtype=object))


NUMBERS = np.random.default_rng(5).normal(size=(200, 3))
RARE = np.where(NUMBERS[:, 0] + NUMBERS[:, 1] > 1.5, "yes", "no")


@pytest.mark.parametrize("scoring", ["accuracy", "f1", "matthews_corrcoef"])
def test_importances_of_label_metrics_score_predict(scoring):
    model = FixedThresholdClassifier(LogisticRegression(), threshold=0.05).fit(NUMBERS, RARE)
    found = permutation_importance(model, NUMBERS, RARE, scoring=scoring, random_state=0)
    argmax = permutation_importance(
        model.estimator_, NUMBERS, RARE, scoring=scoring, random_state=0
    )
    score = {
        "accuracy": metrics.accuracy_score,
        "f1": lambda y, predicted: metrics.f1_score(y, predicted, pos_label="yes"),
        "matthews_corrcoef": metrics.matthews_corrcoef,
    }[scoring]
    right = score(RARE, model.predict(NUMBERS))
    assert abs(found.score - right) < 0.05
    assert abs(argmax.score - right) > 0.1


def test_importances_without_probabilities():
    svc = LinearSVC().fit(NUMBERS, RARE)
    found = permutation_importance(svc, NUMBERS, RARE, random_state=0)
    assert found.scoring == "ROC AUC"
    expected = metrics.roc_auc_score(RARE, svc.decision_function(NUMBERS))
    assert abs(found.score - expected) < 0.01
    with pytest.raises(ValueError, match=r"log_loss.*predict_proba"):
        permutation_importance(svc, NUMBERS, RARE, scoring="log_loss")
    votes = VotingClassifier([("a", LogisticRegression()), ("b", LinearSVC())])
    found = permutation_importance(votes.fit(NUMBERS, RARE), NUMBERS, RARE, random_state=0)
    assert found.scoring == "accuracy"


# ---- partial dependence --------------------------------------------------------------------------


def test_dependences_without_probabilities_are_of_decision_function():
    svc = LinearSVC().fit(NUMBERS, RARE)
    (yes,) = partial_dependence(svc, NUMBERS, [0], n_values=3, max_samples=200)
    (no,) = partial_dependence(svc, NUMBERS, [0], target="no", n_values=3, max_samples=200)
    changed = NUMBERS.copy()
    changed[:, 0] = yes.values[1]
    np.testing.assert_allclose(yes.individual[0, :, 1], svc.decision_function(changed))
    np.testing.assert_allclose(no.individual, -yes.individual)
    assert yes.average.columns.tolist() == ["decision function of 'yes'"]
    votes = VotingClassifier([("a", LogisticRegression()), ("b", LinearSVC())])
    with pytest.raises(ValueError, match=r"predict_proba.*decision_function"):
        partial_dependence(votes.fit(NUMBERS, RARE), NUMBERS)


def test_dependences_of_a_known_function():
    rows = known_rows()
    a, b, kind, c = partial_dependence(Known(), rows, max_samples=400)
    share = (rows["kind"] == "x").mean()
    slopes = np.diff(a.average.to_numpy()[:, 0]) / np.diff(a.values)
    np.testing.assert_allclose(slopes, 3)
    np.testing.assert_allclose(np.diff(b.average.to_numpy()[:, 0]), share * np.diff(b.values))
    at_x = kind.values.index("x")
    np.testing.assert_allclose(kind.individual[0, :, at_x], 3 * rows["a"] + rows["b"])
    assert (kind.categorical, a.categorical, c.values) == (True, False, [1.0])
    assert rows["a"].quantile(0.04) < a.values[0] < a.values[-1] < rows["a"].quantile(0.96)


def test_dependences_are_scikit_learns_where_it_has_them(fitted):
    estimator = fitted("classifier")
    (ours,) = partial_dependence(estimator, X, ["number"], max_samples=N)
    theirs = their_dependence(estimator, X, ["number"], custom_values={"number": ours.values})
    np.testing.assert_allclose(ours.average.to_numpy()[:, 0], theirs["average"][0], rtol=1e-5)
    assert list(ours.average) == ["probability of True"]
    (other,) = partial_dependence(estimator, X, ["number"], max_samples=N, target=False)
    np.testing.assert_allclose(other.average.to_numpy(), 1 - ours.average.to_numpy(), rtol=1e-4)


@pytest.mark.parametrize(("name", "n"), [("regressor", 1), ("three", 3), ("two targets", 2)])
def test_dependences_of_messy_columns(fitted, name, n):
    found = partial_dependence(fitted(name), X, n_values=4, max_samples=20, random_state=0)
    assert [each.column for each in found] == list(X.columns)
    for each in found:
        assert each.individual.shape == (n, 20, len(each.values)), each.column
        assert np.isfinite(each.individual).all()
        assert set(each.values) <= set(X[each.column].dropna().tolist())
        assert each.categorical == (X[each.column].dtype.kind in "Ob")
    zoned = found[list(X.columns).index("zoned")]
    assert all(value.tzinfo is not None for value in zoned.values)
    table = found[0].table
    assert len(table) == n * len(found[0].values)
    assert (table["low"] <= table["high"]).all()
    display = PartialDependenceDisplay.from_results(found)
    assert [axes.get_title(loc="left") for axes in display.axes_][:2] == ["number", "whole"]
    display.figure_.canvas.draw()


def test_one_column_by_its_name(fitted):
    (dependence,) = partial_dependence(fitted("classifier"), X, "number", max_samples=5)
    assert dependence.column == "number"


def test_columns_and_classes_that_there_are_not(fitted):
    with pytest.raises(ValueError, match="'txt'"):
        partial_dependence(fitted("classifier"), X, ["txt"])
    with pytest.raises(ValueError, match="'yes'"):
        partial_dependence(fitted("classifier"), X, ["text"], target="yes")


def test_two_labels_are_not_two_classes():
    rows = known_rows(60)
    labels = np.c_[rows["a"] > 0, rows["b"] > 0].astype(int)
    clf = MLPClassifier(**NETWORK).fit(rows, labels)
    (second,) = partial_dependence(clf, rows, ["b"], max_samples=60)
    expected = clf.predict_proba(rows.assign(b=second.values[-1]))[:, 1]
    np.testing.assert_allclose(second.individual[0, :, -1], expected, rtol=1e-4)
    with pytest.raises(ValueError, match="target=0"):
        partial_dependence(clf, rows, ["b"], target=0)


# ---- attributions --------------------------------------------------------------------------------


class LastOfThree(LogisticRegression):
    """Predicts the last class of all rows, whatever the probabilities are."""

    def predict(self, X):
        return np.full(len(X), self.classes_[-1])


def test_attributions_are_those_of_the_predicted_class():
    y = np.digitize(NUMBERS[:, 0], [-0.5, 0.5])
    model = LastOfThree().fit(NUMBERS, y)
    found = attributions(model, NUMBERS[:3], NUMBERS, n_background=5, random_state=0)
    assert found.outputs == ["probability of 2"] * 3
    np.testing.assert_allclose(found.predictions, model.predict_proba(NUMBERS[:3])[:, 2])


def test_attributions_of_one_label_of_a_forest():
    y = np.c_[NUMBERS[:, 0] > 0, NUMBERS[:, 1] > 0].astype(int)
    forest = RandomForestClassifier(5, random_state=0).fit(NUMBERS, y)
    with pytest.raises(ValueError, match=r"\[0, 1\].*target"):
        attributions(forest, NUMBERS[:3], NUMBERS)
    found = attributions(forest, NUMBERS[:3], NUMBERS, target=1, n_background=5, random_state=0)
    np.testing.assert_allclose(found.predictions, forest.predict_proba(NUMBERS[:3])[1][:, 1])


@pytest.mark.parametrize(
    "name", ["classifier", "three", "regressor", "tabm", "tabm of numbers", "pack"]
)
def test_integrated_gradients_add_up(fitted, name):
    estimator = fitted(name)
    found = attributions(estimator, X[:3], X, n_background=20, random_state=0)
    assert found.method == "integrated_gradients"
    answers = estimator.predict_proba(X) if name in ("classifier", "three", "tabm") else None
    own = estimator.predict(X) if answers is None else answers[np.arange(N), answers.argmax(1)]
    if name != "three" and answers is not None:
        own = answers[:, 1]
    np.testing.assert_allclose(found.predictions, own[:3], rtol=1e-5)
    np.testing.assert_allclose(
        found.values.sum(axis=1), found.predictions - found.base_values, atol=0.01 * np.ptp(own)
    )
    # of another method altogether
    shapley = attributions(estimator, X[:3], X, n_background=20, random_state=0, method="shapley")
    together = np.corrcoef(found.values.to_numpy().ravel(), shapley.values.to_numpy().ravel())
    assert together[0, 1] > 0.9
    np.testing.assert_allclose(shapley.base_values, found.base_values)


def test_shapley_values_of_known_functions(fitted):
    pack = fitted("trees")
    found = attributions(pack, X[:2], X, n_background=10, random_state=0)
    assert found.method == "shapley"
    np.testing.assert_allclose(
        found.values.sum(axis=1), found.predictions - found.base_values, atol=1e-6
    )
    with pytest.raises(ValueError, match="'shapley'"):
        attributions(pack, X[:2], X, method="integrated_gradients")
    rows, others = known_rows(3), known_rows(50, seed=1)
    found = attributions(Known(), rows, others, random_state=0)
    np.testing.assert_allclose(found.values["a"], 3 * (rows["a"] - others["a"].mean()))
    np.testing.assert_array_equal(found.values["c"], 0)


def test_a_linear_model_gets_the_exact_attributions():
    """An MLP without activation is linear in the encoded columns."""
    rows = known_rows(60)[["a", "b"]]
    y = 2 * rows["a"] - rows["b"]
    line = MLPRegressor(
        hidden_layer_sizes=(4,),
        activation="identity",
        numeric_encoding="standard",
        numeric_embedding="none",
        clip_predictions=False,
        max_iter=30,
        random_state=0,
    ).fit(rows, y)
    slopes = LinearRegression().fit(rows, line.predict(rows))
    assert r2_score(line.predict(rows), slopes.predict(rows)) > 0.9999
    found = attributions(line, rows[:5], rows, n_background=60)
    expected = slopes.coef_ * (rows[:5] - rows.mean())
    np.testing.assert_allclose(found.values, expected, atol=1e-3)


def test_what_cannot_be_attributed(fitted):
    with pytest.raises(ValueError, match="one row"):
        attributions(fitted("classifier"), X[:1])
    with pytest.raises(ValueError, match=r"2 outputs.*target"):
        attributions(fitted("two targets"), X[:2], X)
    with pytest.raises(ValueError, match="method must be"):
        attributions(fitted("classifier"), X[:2], X, method="lime")


# ---- pictures ------------------------------------------------------------------------------------


def test_pictures(fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = permutation_importance(
            fitted("classifier"), X, SIGNAL > 1, n_repeats=2, random_state=0
        )
        display = PermutationImportanceDisplay.from_results(found, n_columns=5)
        names = [label.get_text() for label in display.ax_.get_yticklabels()]
        assert names == found.table["column"][:5].tolist()
        assert display.ax_.get_xlabel() == "decrease of ROC AUC when the column is shuffled"
        given = attributions(fitted("classifier"), X[:2], X, n_background=5, random_state=0)
        bars = AttributionDisplay.from_results(given, 1, n_columns=4)
        widths = [bar.get_width() for bar in bars.ax_.patches]
        np.testing.assert_allclose(sum(widths), given.values.iloc[1].sum())
        assert bars.ax_.get_yticklabels()[-1].get_text() == f"{X.shape[1] - 3} other columns"
        for each in (display, bars):
            each.figure_.canvas.draw()


# ---- SHAP ----------------------------------------------------------------------------------------


def test_a_masker_gives_rows_that_the_model_takes(fitted):
    masker = TableMasker(X, max_samples=10)
    row = X.iloc[0].to_numpy()
    (hidden,) = masker(np.zeros(X.shape[1], dtype=bool), row)
    pd.testing.assert_frame_equal(hidden, masker.data)
    (shown,) = masker(np.ones(X.shape[1], dtype=bool), row)
    assert (shown.dtypes == X.dtypes).all()
    own = fitted("classifier").predict_proba(X[:1])
    np.testing.assert_allclose(fitted("classifier").predict_proba(shown), own.repeat(10, 0), 1e-4)


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_shap_explains_estimators_of_any_table(fitted, name):
    shap = pytest.importorskip("shap", reason="needs shap")
    estimator, of_numbers = fitted(name), X[["number", "gaps"]].fillna(0.0)
    small = type(estimator)(**NETWORK).fit(
        of_numbers, SIGNAL > 1 if name == "classifier" else SIGNAL
    )
    for model in (small, small.predict_proba if name == "classifier" else small.predict):
        found = shap.Explainer(model, of_numbers[:20])(of_numbers[:2])
        total = found.values.sum(axis=1) + found.base_values
        np.testing.assert_allclose(total, small(of_numbers[:2]), rtol=1e-4)
    explainer = shap.Explainer(estimator, TableMasker(X, max_samples=5))
    found = explainer(X[:1])
    total = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(total, estimator(X[:1]), rtol=1e-4)


def test_printed_results_list_columns_and_rows():
    table = pd.DataFrame({"column": ["age", "a\nb"], "importance": [0.25, 0.1]})
    table = table.assign(low=[0.125, 0.0], high=[0.375, 0.2])
    importance = PermutationImportance(table, table, "R2", True, 0.9, 200)
    title, _, *lines = str(importance).splitlines()
    assert title.endswith("decrease of R2 when a column is shuffled (R2 0.9, 200 rows)")
    assert [line.split() for line in lines] == [
        ["column", "importance", "95", "%", "interval"],
        ["age", "0.25", "0.125", "to", "0.375"],
        ["a", "b", "0.1", "0", "to", "0.2"],
    ]
    values = pd.DataFrame({"age": [1.0], "day": [-2.0]}, index=[7])
    data = pd.DataFrame({"age": [40.5], "day": [pd.Timestamp("2024-01-31")]}, index=[7])
    shown = Attributions(values, data, np.array([3.0]), np.array([4.0]), ["rent"], "shapley")
    title, _, *lines = str(shown).splitlines()
    assert title.startswith("Row 7: rent 3 (mean of other rows: 4)")
    assert [line.split() for line in lines[1:]] == [
        ["day", "2024-01-31", "-2"],
        ["age", "40.5", "1"],
    ]


def test_reprs_of_results_fit_a_screen():
    rows = pd.DataFrame(np.zeros((200, 30)))
    importance = pd.DataFrame({"column": range(30), "importance": 0.1})
    results = [
        PermutationImportance(importance, rows, "R2", True, 0.9, 200),
        PartialDependence("age", list(range(200)), False, rows, np.zeros((1, 50, 200))),
        Attributions(rows, rows, np.zeros(200), np.zeros(200), ["rent"] * 200, "shapley"),
    ]
    assert [repr(result).count("\n") for result in results] == [11, 0, 0]
    assert repr(results[1]) == "PartialDependence('age', n_values=200, n_rows=50)"
