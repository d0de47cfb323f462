"""ml_efficacy: scores against independent computations, known answers, and what tables hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    log_loss,
    roc_auc_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from combutab.evaluation import METRICS, ml_efficacy
from combutab.evaluation._efficacy import _curve_scores, make_learners
from tests.paper_networks import PAPER, shape_of

# ---- ml_efficacy: scores against independent computations, and cases whose answer is known ------


COLUMNS = ["learner", "metric", "source", "mean", "sd", "gap", "n_tables", "note"]


def quantities(seed, n, noise=0.5):
    """y = 2 a - b + noise, in units of its own."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(3, 2, n), rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "y": 10 + 5 * (2 * a - b + noise * rng.normal(size=n))})


def classes(seed, n, labels=("no", "yes"), noise=0.6):
    rng = np.random.default_rng(seed)
    size, kind = rng.normal(5, 3, n), rng.choice(["u", "v", "w"], n)
    latent = (size - 5) / 3 + (kind == "u") - 0.3 + noise * rng.normal(size=n)
    edges = np.quantile(latent, np.linspace(0, 1, len(labels) + 1)[1:-1])
    return pd.DataFrame(
        {"size": size, "kind": kind, "y": np.array(labels)[np.digitize(latent, edges)]}
    )


def score_of(table, metric, source="synthetic", column="mean", learner=None):
    rows = table[(table["metric"] == metric) & (table["source"] == source)]
    if learner is not None:
        rows = rows[rows["learner"] == learner]
    (value,) = rows[column]
    return value


# ---- against independent computations ----------------------------------------------------------


def test_regression_is_that_of_least_squares_by_hand():
    train, test, made = quantities(0, 60), quantities(1, 40), quantities(2, 50, noise=3.0)
    table = ml_efficacy(
        real_train=train, real_test=test, synthetic=made, target="y",
        learners={"least squares": LinearRegression()},
    )  # fmt: skip
    assert list(table) == COLUMNS
    expected = {}
    for source, rows in {"real": train, "synthetic": made}.items():
        design = np.column_stack([np.ones(len(rows)), rows["a"], rows["b"]])
        weights, *_ = np.linalg.lstsq(design, rows["y"].to_numpy(), rcond=None)
        predicted = np.column_stack([np.ones(len(test)), test["a"], test["b"]]) @ weights
        error = predicted - test["y"].to_numpy()
        std = train["y"].std(ddof=0)
        expected[source] = {
            "r2": 1 - (error**2).sum() / ((test["y"] - test["y"].mean()) ** 2).sum(),
            "mae": np.abs(error).mean() / std,
            "mse": (error**2).mean() / std**2,
        }
    # features are scaled in single precision
    for source, scores in expected.items():
        for metric, value in scores.items():
            assert score_of(table, metric, source) == pytest.approx(value, rel=1e-4)
    for metric, sign in (("r2", 1), ("mae", -1), ("mse", -1)):
        behind = sign * (expected["real"][metric] - expected["synthetic"][metric])
        assert behind > 0
        assert score_of(table, metric, column="gap") == pytest.approx(behind, rel=1e-2)
        assert score_of(table, metric, "real", "gap") == 0


@pytest.mark.parametrize("labels", [("no", "yes"), (0, 1), (0, 1, 2)])
def test_classification_is_that_of_a_pipeline(labels):
    train, made = classes(0, 300, labels), classes(1, 250, labels, noise=2.0)
    # other rows than those trained on: what were learned from them would move the scales
    test = classes(2, 200, labels).assign(size=lambda t: t["size"] + 4)
    table = ml_efficacy(
        real_train=train, real_test=test, synthetic=made, target="y", task="classification",
        learners={"logistic": LogisticRegression()},
    )  # fmt: skip
    for source, rows in {"real": train, "synthetic": made}.items():
        scale, onehot = StandardScaler(), OneHotEncoder(sparse_output=False)
        X = np.hstack([scale.fit_transform(rows[["size"]]), onehot.fit_transform(rows[["kind"]])])
        Z = np.hstack([scale.transform(test[["size"]]), onehot.transform(test[["kind"]])])
        model = LogisticRegression().fit(X, rows["y"])
        chances = model.predict_proba(Z)
        area = roc_auc_score(
            test["y"], chances if len(labels) > 2 else chances[:, 1], multi_class="ovr"
        )
        predicted = model.predict(Z)
        expected = {
            "accuracy": accuracy_score(test["y"], predicted),
            "f1_macro": f1_score(test["y"], predicted, average="macro"),
            "roc_auc": area,
            "log_loss": log_loss(test["y"], chances),
        }
        for metric, value in expected.items():
            assert score_of(table, metric, source) == pytest.approx(value, abs=1e-6)


def test_positive_class_is_the_rarer_one():
    a = np.random.default_rng(0).normal(size=400)
    table = pd.DataFrame({"a": a, "b": a**2, "y": np.where(a > 0.9, "bad", "good")})
    table.loc[::9, "y"] = "good"
    train, test = table[:200], table[200:]
    found = ml_efficacy(
        real_train=train,
        real_test=test,
        synthetic=train,
        target="y",
        learners={"linear": make_pipeline(StandardScaler(), LogisticRegression())},
        n_resamples=20,
    )
    scores = found[found["source"] == "real"].set_index("metric")
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train[["a", "b"]], train["y"])
    X, is_bad = test[["a", "b"]], test["y"] == "bad"
    f1 = f1_score(test["y"], model.predict(X), pos_label="bad")
    assert scores["mean"]["f1"] == pytest.approx(f1)
    precision = average_precision_score(is_bad, model.predict_proba(X)[:, 0])
    assert scores["mean"]["average_precision"] == pytest.approx(precision)
    assert 0 < scores["se"]["f1"] < 0.2


def test_scores_without_probabilities():
    train, test = classes(0, 200), classes(1, 150)

    class Labels(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.model_ = RidgeClassifier().fit(X, y)
            self.classes_ = self.model_.classes_
            return self

        def predict(self, X):
            return self.model_.predict(X)

    table = ml_efficacy(
        real_train=train, real_test=test, synthetic=train, target="y",
        learners={"distances": RidgeClassifier(), "labels": Labels()},
    )  # fmt: skip
    X, Z = (pd.get_dummies(t.drop(columns="y"), dtype=float) for t in (train, test))
    scale = StandardScaler().fit(X[["size"]])
    X["size"], Z["size"] = scale.transform(X[["size"]])[:, 0], scale.transform(Z[["size"]])[:, 0]
    model = RidgeClassifier().fit(X, train["y"])
    area = roc_auc_score(test["y"], model.decision_function(Z))
    assert score_of(table, "roc_auc", learner="distances") == pytest.approx(area, abs=1e-4)
    hard = roc_auc_score(test["y"], model.predict(Z) == "yes")
    assert score_of(table, "roc_auc", learner="labels") == pytest.approx(hard, abs=1e-4)
    assert "no probabilities" in score_of(table, "roc_auc", column="note", learner="labels")
    assert score_of(table, "roc_auc", column="note", learner="distances") == ""
    assert np.isnan(table.loc[table["metric"] == "log_loss", "mean"]).all()


# ---- learners ----------------------------------------------------------------------------------


def test_pipelines_are_given_the_table():
    train, test = classes(0, 80), classes(1, 60)
    seen = []

    class Looks(OneHotEncoder):
        def fit_transform(self, X, y=None):
            seen.append(X)
            return super().fit_transform(X, y)

    pipeline = make_pipeline(Looks(handle_unknown="ignore"), LogisticRegression())
    ml_efficacy(
        real_train=train, real_test=test, synthetic=train, target="y", learners={"mine": pipeline}
    )
    assert [list(X.columns) for X in seen] == [["size", "kind"]] * 2
    assert not hasattr(pipeline[0], "categories_"), "a clone is fitted"
    assert pipeline[1].random_state is None


def test_unfit_learners_are_refused():
    train = classes(0, 40)
    tables = {"real_train": train, "real_test": train, "synthetic": train, "target": "y"}
    with pytest.raises(ValueError, match="'boost'"):
        ml_efficacy(**tables, learners=["linear", "boost"])
    with pytest.raises(ValueError, match="'ols'"):
        ml_efficacy(**tables, learners={"ols": LinearRegression()})
    with pytest.raises(ValueError, match="learners is empty"):
        ml_efficacy(**tables, learners=[])

    class Breaks(LogisticRegression):
        def fit(self, X, y):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken") as caught:
        ml_efficacy(**tables, learners={"bad": Breaks()})
    assert caught.value.__notes__ == ["The learner 'bad', trained on real_train."]


def test_optional_learners_come_where_they_are_installed(monkeypatch):
    import sys
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    train = classes(0, 40)
    tables = {"real_train": train, "real_test": train, "synthetic": train, "target": "y"}
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match="pip install catboost"):
        ml_efficacy(**tables, learners="catboost")
    fake = ModuleType("xgboost")
    fake.__spec__ = ModuleSpec("xgboost", None)
    fake.XGBClassifier, fake.XGBRegressor = LogisticRegression, LinearRegression
    monkeypatch.setitem(sys.modules, "xgboost", fake)
    table = ml_efficacy(**tables, learners=["linear", "xgboost"])
    assert table["learner"].unique().tolist() == ["linear", "xgboost"]


# ---- ml_efficacy on what tables hold: missing values, dates, other dtypes, one class ------------


FAST = ["linear", "hist_gradient_boosting"]

ALL = ["linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp"]


def mixed(seed, n=120, labels=("no", "yes")):
    """Numbers, text, truth values and dates, on all of which the class depends."""
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    table = pd.DataFrame(
        {
            "size": rng.integers(0, 50, n),
            "kind": rng.choice(["u", "v", "w"], n),
            "member": rng.choice([True, False], n),
            "day": day,
        }
    )
    latent = table["size"] / 25 + (table["kind"] == "u") + table["member"] + (day.year == 2021)
    latent = latent + 0.3 * rng.normal(size=n)
    edges = np.quantile(latent, np.linspace(0, 1, len(labels) + 1)[1:-1])
    return table.assign(y=np.array(labels)[np.digitize(latent, edges)])


def run(train, test, synthetic, learners=FAST, target="y", **parameters):
    return ml_efficacy(
        real_train=train, real_test=test, synthetic=synthetic, target=target, learners=learners,
        **parameters,
    )  # fmt: skip


def of(table, metric, column="mean", source="synthetic"):
    return table[(table["metric"] == metric) & (table["source"] == source)][column].tolist()


def test_missing_values_unseen_categories_and_empty_columns():
    train, test, made = mixed(0), mixed(1), mixed(2)
    rng = np.random.default_rng(0)
    for table in (test, made):
        for name in ("size", "kind", "day"):
            table[name] = table[name].mask(pd.Series(rng.random(len(table)) < 0.2))
    test["kind"] = test["kind"].where(rng.random(len(test)) < 0.8, "never seen")
    made["member"] = None
    made["size"] = np.where(np.arange(len(made)) % 2, np.nan, 7.0)
    table = run(train, test, [made, made.assign(day=pd.NaT)], learners=ALL)
    assert np.isfinite(table["mean"]).all()
    assert (table["note"] == "").all()
    assert table.loc[table["metric"] != "log_loss", "mean"].between(0, 1).all()


@pytest.mark.parametrize("learner", ALL)
def test_one_class_scores_as_the_constant_prediction(learner):
    train, test = mixed(0), mixed(1)
    made = mixed(2).assign(y="yes")
    table = run(train, test, made, learners=learner)
    share = (test["y"] == "yes").mean()
    constant = np.full(len(test), "yes")
    assert of(table, "accuracy") == [pytest.approx(share)]
    assert of(table, "roc_auc") == [0.5]
    assert of(table, "log_loss") == [pytest.approx(log_loss(test["y"] == "yes", [1.0] * 120))]
    assert of(table, "f1_macro") == [
        pytest.approx(f1_score(test["y"], constant, average="macro", zero_division=0))
    ]
    (note,) = set(table.loc[table["source"] == "synthetic", "note"])
    assert note == (
        "the rows have only one class, so the prediction is constant; "
        "no rows to learn a class of the test rows from"
    )
    assert (table.loc[table["source"] == "real", "note"] == "").all()


def test_one_target_value_scores_as_the_constant_prediction():
    train, test = (mixed(seed).assign(y=lambda t: 1.5 * t["size"]) for seed in (0, 1))
    table = run(train, test, train.assign(y=20.0))
    unit = train["y"].std(ddof=0)
    assert of(table, "mae") == [pytest.approx((test["y"] - 20.0).abs().mean() / unit)] * 2
    assert of(table, "mse") == [pytest.approx(((test["y"] - 20.0) ** 2).mean() / unit**2)] * 2
    bias = (test["y"].mean() - 20.0) ** 2 / test["y"].var(ddof=0)
    assert of(table, "r2") == [pytest.approx(-bias)] * 2
    assert set(of(table, "r2", "note")) == {
        "the rows have only one target value, so the prediction is constant"
    }


def test_classes_that_the_synthetic_table_lacks():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(3):
        X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
        latent = X["a"] + 0.5 * X["b"] + 0.5 * rng.normal(size=200)
        tables.append(
            X.assign(y=np.array(["low", "mid", "high"])[np.digitize(latent, [-0.5, 0.5])])
        )
    train, test, made = tables
    made = made[made["y"] != "mid"]
    table = run(train, test, made, learners=["linear", "random_forest", "mlp"])
    scale = StandardScaler().fit(made[["a", "b"]])
    model = LogisticRegression().fit(scale.transform(made[["a", "b"]]), made["y"])
    chances = model.predict_proba(scale.transform(test[["a", "b"]]))
    areas = [roc_auc_score(test["y"] == c, chances[:, i]) for i, c in enumerate(model.classes_)]
    assert of(table, "roc_auc")[0] == pytest.approx((sum(areas) + 0.5) / 3, abs=1e-5)
    assert all(0.5 < area < 0.8 for area in of(table, "roc_auc"))
    never = np.insert(chances, list(model.classes_).index("low") + 1, 0.0, axis=1)
    expected = log_loss(test["y"], never, labels=["high", "low", "mid"])
    assert of(table, "log_loss")[0] == pytest.approx(expected, rel=1e-5)
    assert set(of(table, "roc_auc", "note")) == {"no rows to learn a class of the test rows from"}
    assert set(of(table, "roc_auc", "note", "real")) == {""}


def test_classes_of_the_synthetic_table_alone_are_wrong():
    real = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 5, "y": ["a", "a", "b", "b"] * 5})
    made = real.assign(y=["a", "c", "b", "b"] * 5)
    table = run(real, real, made, learners="decision_tree")
    assert of(table, "accuracy") == [0.75]
    # a: precision 1, recall 1/2; b: 1 and 1; c, which is predicted and never right: 0
    assert of(table, "f1_macro") == [pytest.approx((2 / 3 + 1 + 0) / 3)]
    assert of(table, "roc_auc") == [pytest.approx((0.75 + 1) / 2)]
    assert of(table, "f1_macro", source="real") == [1.0]


@pytest.mark.parametrize(
    ("n", "note"), [(10, "no early stopping: there are too few rows"), (11, "")]
)
def test_numbers_of_a_few_rows_can_be_learned(n, note):
    table = run(quantities(0, n), quantities(1, 8), quantities(2, n), learners="mlp")
    assert np.isfinite(table["mean"]).all()
    assert set(of(table, "rmse", "note")) == {note}


@pytest.mark.parametrize(("learner", "n"), [("hist_gradient_boosting", 10500), ("mlp", 30)])
def test_class_with_one_row_is_learnable(learner, n):
    train, test = mixed(0), mixed(1)
    made = mixed(2, 2 * n)
    made = pd.concat([made[made["y"] == "no"], made[made["y"] == "yes"][:1]])
    table = run(train, test, made, learners=learner)
    assert np.isfinite(table["mean"]).all()
    note = "no early stopping: a class has too few rows"
    assert of(table, "accuracy", "note")[0].partition(";")[0] == note


def test_one_test_class_has_no_roc_auc():
    train, test = mixed(0), mixed(1)
    table = run(train, test[test["y"] == "no"], train, learners="linear")
    assert np.isnan(of(table, "roc_auc")).all()
    assert of(table, "roc_auc", "note") == ["one class in the test rows: no ROC AUC"]
    numbers = train.assign(y=train["size"] * 0.5)
    table = run(numbers, numbers.assign(y=3.0), numbers, learners="linear")
    assert np.isnan(of(table, "r2")).all()
    assert np.isfinite(of(table, "mae")).all()


def test_rows_without_a_target_are_left_out():
    train, test, made = mixed(0), mixed(1), mixed(2)
    holes = made.copy()
    holes.loc[::3, "y"] = None
    table = run(train, test, {"holes": holes, "dropped": holes.dropna()})
    assert of(table, "accuracy", source="holes") == of(table, "accuracy", source="dropped")
    assert of(table, "accuracy", "note", "holes")[0] == "40 rows without a target are left out"
    with pytest.raises(ValueError, match=r"synthetic\[1\].*'y'"):
        run(train, test, [made, made.assign(y=None)])


def test_the_task_is_inferred_or_said():
    train, test, made = (mixed(seed).assign(y=lambda t: t["size"] % 3) for seed in (0, 1, 2))
    assert "accuracy" in run(train, test, made)["metric"].tolist()
    assert "mae" in run(train, test, made, task="regression")["metric"].tolist()
    with pytest.raises(ValueError, match="a regression needs numbers"):
        run(train, test, made, target="kind", task="regression")
    with pytest.raises(ValueError, match="task must be 'auto'"):
        run(train, test, made, task="clustering")


def test_wrong_targets_are_refused():
    train, test, made = mixed(0), mixed(1), mixed(2)
    with pytest.raises(ValueError, match=r"real_test lacks \['day'\]"):
        run(train, test.drop(columns="day"), made)
    with pytest.raises(ValueError, match="'size'"):
        run(train, test, made, target="z")
    with pytest.raises(ValueError, match="no column"):
        run(train[["y"]], test[["y"]], made[["y"]])
    with pytest.raises(ValueError, match="n_resamples must"):
        run(train, test, made, n_resamples=1)


@pytest.mark.slow
def test_errors_are_those_of_other_test_rows():
    """Of many test sets of one distribution, scores and gaps differ by about the errors told."""
    rng = np.random.default_rng(0)

    def draw(n, slope):
        x = rng.normal(size=n)
        return pd.DataFrame({"x": x, "y": np.where(slope * x + rng.normal(size=n) > 0, "a", "b")})

    train, made = draw(400, 1.0), draw(400, 0.3)
    tables = [
        run(train, draw(150, 1.0), made, learners="linear", n_resamples=200) for _ in range(40)
    ]
    for metric in METRICS["classification"]:
        rows = pd.concat([table[table["metric"] == metric] for table in tables])
        for source, group in rows.groupby("source"):
            assert group["se"].mean() == pytest.approx(group["mean"].std(ddof=1), rel=0.35)
            if source == "synthetic":
                assert group["gap_se"].mean() == pytest.approx(group["gap"].std(), rel=0.5)
        assert (rows.loc[rows["source"] == "real", "gap_se"] == 0).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_curves_of_resamples_are_those_of_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    truth = np.append(rng.integers(n_classes - 1, size=40), n_classes - 1)  # one of the last
    chances = rng.random((41, n_classes)).round(1)  # with ties
    resamples = rng.integers(41, size=(30, 41))
    areas, precisions = _curve_scores(truth, chances, resamples)
    for rows, *found in zip(resamples, areas, precisions, strict=True):
        for value, score in zip(found, (roc_auc_score, average_precision_score), strict=True):
            codes = [1] if n_classes == 2 else range(n_classes)
            there = [c for c in codes if 0 < (truth[rows] == c).sum() < len(rows)]
            wanted = [score(truth[rows] == c, chances[rows, c]) for c in there]
            assert value == pytest.approx(np.mean(wanted) if wanted else np.nan, nan_ok=True)


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("task", sorted(PAPER))
def test_the_learner_mlp_is_the_papers_network(task):
    made = make_learners(["mlp"], task, random_state=0)
    own = {"activation": "relu", "min_frequency": 1}
    assert shape_of(made["mlp"]) == PAPER[task] | own | {"early_stopping": True}
