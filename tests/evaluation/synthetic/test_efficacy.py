"""ml_efficacy: scores against independent computations, and cases whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import EfficacyScorer, ml_efficacy

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


def shuffled(table, seed=0):
    """Every column alone is as it was; nothing between them is left."""
    rng = np.random.default_rng(seed)
    return table.apply(lambda column: rng.permutation(column.to_numpy()))


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
        learners={"logistic": LogisticRegression()}, pos_label=labels[0],
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
            "f1_binary": f1_score(test["y"] == labels[0], predicted == labels[0]),
            "roc_auc": area,
            "log_loss": log_loss(test["y"], chances),
        }
        for metric, value in expected.items():
            assert score_of(table, metric, source) == pytest.approx(value, abs=1e-6)


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


@pytest.mark.usefixtures("paper_defaults")
@pytest.mark.parametrize("target", ["y", "kind"])
def test_the_paper_s_network(target):
    data = classes(0, 90) if target == "kind" else quantities(0, 90)
    train, test = data[:60], data[60:].reset_index(drop=True)
    table = ml_efficacy(
        real_train=train, real_test=test, synthetic=train, target=target, learners="paper",
        random_state=7,
    )  # fmt: skip
    kind = MLPClassifier if target == "kind" else MLPRegressor
    net = kind(
        hidden_layer_sizes=(128, 128), activation="relu", max_iter=500, n_iter_no_change=math.inf,
        learning_rate_init=5e-4, dropout=0.1, alpha=0.0, random_state=7,
    ).fit(train.drop(columns=target), train[target])  # fmt: skip
    predicted = net.predict(test.drop(columns=target))
    if target == "kind":
        expected = {"accuracy": (predicted == test[target]).mean()}
    else:
        error = (predicted - test[target]) / train[target].std(ddof=0)
        expected = {"mae": error.abs().mean(), "mse": (error**2).mean()}
    for metric, value in expected.items():
        assert score_of(table, metric) == pytest.approx(value, rel=2e-2)
        assert score_of(table, metric, learner="paper_mlp", column="gap") == 0


# ---- known answers -----------------------------------------------------------------------------


LEARNERS = ["linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp"]


@pytest.mark.parametrize("make", [quantities, classes])
def test_a_copy_is_as_good_and_worse_tables_are_worse(make):
    train, test = make(0, 300), make(1, 300)
    synthetic = {
        "copy": train[train.columns[::-1]],
        "better": make(4, 300, noise=1.5),
        "worse": make(4, 300, noise=6.0),
    }
    table = ml_efficacy(
        real_train=train, real_test=test, target="y", synthetic=synthetic, random_state=7
    )
    assert table["learner"].unique().tolist()[:5] == LEARNERS
    assert table["source"].unique().tolist() == ["real", *synthetic]
    for metric in ("r2",) if make is quantities else ("accuracy", "f1_macro", "roc_auc"):
        scores = table[table["metric"] == metric].pivot(
            index="learner", columns="source", values="mean"
        )
        assert (scores["real"] > 0.7).all()
        assert (scores["real"] >= scores[["better", "worse"]].max(axis=1)).all()
        assert scores["better"].mean() > scores["worse"].mean() + 0.03
    assert (table.loc[table["source"] == "copy", "gap"] == 0).all()


@pytest.mark.parametrize("make", [quantities, classes])
def test_shuffled_columns_and_noise_teach_nothing(make):
    train, test = make(0, 300), make(1, 300)
    rng = np.random.default_rng(3)
    noise = [train.assign(y=rng.permutation(train["y"]))[train.columns] for _ in range(10)]
    synthetic = {"shuffled": [shuffled(train, seed) for seed in range(10)], "noise": noise}
    table = ml_efficacy(
        real_train=train, real_test=test, target="y", synthetic=synthetic,
        learners=["linear", "decision_tree", "hist_gradient_boosting"],
    )  # fmt: skip
    for learner in table["learner"].unique():
        for source in synthetic:
            if make is quantities:
                assert score_of(table, "r2", source, learner=learner) < 0.05
                assert score_of(table, "mae", source, "gap", learner) > 0.4
            else:
                # one rule learned of noise can be right or wrong for most rows; ten are not
                assert 0.3 < score_of(table, "roc_auc", source, learner=learner) < 0.7
                assert score_of(table, "accuracy", source, "gap", learner) > 0.15


def test_samples_are_averaged():
    train, test = quantities(0, 80), quantities(1, 50)
    samples = [quantities(seed, 80, noise=4.0) for seed in (2, 3, 4)]

    def run(synthetic):
        return ml_efficacy(
            real_train=train, real_test=test, synthetic=synthetic, target="y", learners="linear"
        )

    together = run(samples)
    alone = [score_of(run(sample), "mae") for sample in samples]
    assert score_of(together, "mae") == pytest.approx(np.mean(alone))
    assert score_of(together, "mae", column="sd") == pytest.approx(np.std(alone, ddof=1))
    assert score_of(together, "mae", column="n_tables") == 3
    assert np.isnan(score_of(together, "mae", "real", "sd"))
    named = run({"x": samples, "y": samples[0]})
    assert score_of(named, "mae", "x") == score_of(together, "mae")
    assert score_of(named, "mae", "y") == alone[0]


def test_tables_are_learned_from_in_processes_too():
    train, test = quantities(0, 80), quantities(1, 50)
    runs = [
        ml_efficacy(
            real_train=train, real_test=test, synthetic=quantities(2, 80), target="y",
            learners={"tree": DecisionTreeRegressor(max_features=1)}, n_jobs=n_jobs,
        )
        for n_jobs in (None, 2)
    ]  # fmt: skip
    pd.testing.assert_frame_equal(*runs)


def test_random_state_decides_and_no_global_state_is_touched():
    train, test = classes(0, 100), classes(1, 100)

    def run(random_state):
        return ml_efficacy(
            real_train=train, real_test=test, synthetic=classes(2, 100), target="y",
            learners=["random_forest", "mlp"], random_state=random_state,
        )  # fmt: skip

    np.random.seed(3)
    state = np.random.get_state()[1].copy()
    first = run(1)
    pd.testing.assert_frame_equal(first, run(np.int64(1)))
    assert not first["mean"].equals(run(2)["mean"])
    assert not first["mean"].equals(run(np.random.default_rng(0))["mean"])
    assert (np.random.get_state()[1] == state).all()


def test_tables_stay_as_they_are():
    train, test, made = (classes(seed, 60) for seed in (0, 1, 2))
    before = [t.copy(deep=True) for t in (train, test, made)]
    ml_efficacy(real_train=train, real_test=test, synthetic=made, target="y", learners="linear")
    for table, copy in zip((train, test, made), before, strict=True):
        pd.testing.assert_frame_equal(table, copy)


# ---- the scorer --------------------------------------------------------------------------------


class Repeats(BaseEstimator):
    """A generator that gives its rows again, with noise on the target."""

    def __init__(self, noise=0.0):
        self.noise = noise

    def fit(self, X, y=None):
        self.rows_ = X
        return self

    def sample(self, n):
        rows = self.rows_.iloc[np.arange(n) % len(self.rows_)].reset_index(drop=True)
        return rows.assign(y=rows["y"] + self.noise * np.random.default_rng(0).normal(size=n))


def test_scorer_in_cross_validation():
    data = quantities(0, 120)
    scorer = EfficacyScorer(target="y", metric="mae", learner=LinearRegression(), n_samples=60)
    scores = cross_val_score(Repeats(), data, scoring=scorer, cv=2)
    for score, (train, test) in zip(
        scores, [(data[60:], data[:60]), (data[:60], data[60:])], strict=True
    ):
        model = LinearRegression().fit(train[["a", "b"]], train["y"])
        error = np.abs(model.predict(test[["a", "b"]]) - test["y"]).mean() / test["y"].std(ddof=0)
        assert score == pytest.approx(-error, rel=1e-4)
    assert (cross_val_score(Repeats(200.0), data, scoring=scorer, cv=2) < scores).all()
    best = EfficacyScorer(target="y", learner="linear")(Repeats().fit(data), data)
    assert best > 0.95, "R2 by default"


def test_scorer_names_the_metrics_it_knows():
    data = quantities(0, 40)
    scorer = EfficacyScorer(target="y", metric="accuracy", learner="linear")
    with pytest.raises(ValueError, match="one of r2, mae, mse"):
        scorer(Repeats().fit(data), data)


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
    with pytest.raises(ValueError, match=r"'boost'; known are standard, paper, linear"):
        ml_efficacy(**tables, learners=["linear", "boost"])
    with pytest.raises(ValueError, match="the learner 'ols' is LinearRegression"):
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


def test_columns_may_have_any_names():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({("a", 1): rng.normal(size=80), 0: rng.normal(size=80)})
    table["y"] = table[0] > 0
    found = ml_efficacy(
        real_train=table, real_test=table, synthetic=table, target="y", learners=["linear"]
    )
    plain = table.set_axis(["first", "second", "y"], axis=1)
    expected = ml_efficacy(
        real_train=plain, real_test=plain, synthetic=plain, target="y", learners=["linear"]
    )
    pd.testing.assert_frame_equal(found, expected)
