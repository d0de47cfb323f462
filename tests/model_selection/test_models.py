"""compare_models: models by name and any estimator, on the folds of a comparison of activations."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Perceptron, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from combutab import MLPClassifier, PackClassifier
from combutab.model_selection import ComparisonError, compare_models, plan_comparison
from combutab.reports import render_report

pytestmark = pytest.mark.usefixtures("few_trees")

X, Y = load_iris(return_X_y=True, as_frame=True)
NETWORK = MLPClassifier((8,), max_iter=5)
MODELS = {"linear": "linear", "network": NETWORK, "tree": DecisionTreeClassifier(max_features=2)}


@pytest.fixture(scope="module")
def compared():
    return compare_models(X, Y, models=MODELS, folds=3, seeds=2)


def test_scores_are_those_of_a_fit_by_hand(compared):
    assert len(compared.results) == 3 * 3 * 2
    plan = plan_comparison(X, Y, models=MODELS, folds=3, seeds=2)
    for name in ("network", "tree"):
        train, test = plan.splits[1]
        model = plan.estimator(name, 1, 1).fit(X.iloc[train], Y.iloc[train])
        row = compared.results.query("model == @name and fold == 1 and seed == 1").iloc[0]
        assert row["accuracy"] == accuracy_score(Y.iloc[test], model.predict(X.iloc[test]))
    seeds = compared.results.query("model == 'tree'").groupby("fold")["log_loss"].nunique()
    assert seeds.max() == 2


def test_the_best_model_is_refitted_and_advised(compared):
    assert compared.best == compared.summary["model"].iloc[0]
    assert compared.best_estimator.predict(X).shape == (150,)
    assert compared.baselines["baseline"].tolist() == ["guess"]
    assert compared.summary["beats_guess"].iloc[0]
    assert compared.sentences.splitlines()[-1] == f"Advice: {compared.advice}"
    assert compared.advice.startswith("Use ")


def test_a_page_names_models(compared):
    page = render_report(compared)
    assert "data: which model is best?" in page
    assert compared.advice in page
    assert "activation" not in page


@pytest.mark.parametrize("dtype", ["object", "category", "Int64"])
@pytest.mark.parametrize("labels", [[0, 1], [False, True]])
def test_the_best_model_predicts_the_labels(labels, dtype):
    y = pd.Series(np.array(labels)[(Y > 0).astype(int)]).astype(dtype)
    best = compare_models(X, y, models=["linear"], folds=2).best_estimator
    assert (best.predict(X) == y.to_numpy()).all()


def test_categories_of_fractions_are_text_labels():
    y = pd.Series(np.where(Y > 0, 0.5, 1.5)).astype("category")
    best = compare_models(X, y, models=["linear"], folds=2).best_estimator
    assert set(best.predict(X)) == {"0.5", "1.5"}


def test_stored_scores_are_not_computed_again(compared, tmp_path, monkeypatch):
    settings = {"models": MODELS, "folds": 3, "seeds": 2, "refit": False}
    path = tmp_path / "scores.jsonl"
    first = compare_models(X, Y, **settings, checkpoint=path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-3]) + "\n")
    fits = []
    fit = DecisionTreeClassifier.fit
    monkeypatch.setattr(
        DecisionTreeClassifier, "fit", lambda self, *args: fits.append(1) or fit(self, *args)
    )
    again = compare_models(X, Y, **settings, checkpoint=path)
    assert len(fits) == 3
    scores = first.results.drop(columns="seconds")
    pd.testing.assert_frame_equal(again.results.drop(columns="seconds"), scores)
    with pytest.raises(ComparisonError, match="tree"):
        compare_models(X, Y, **settings | {"models": ["linear"]}, checkpoint=path)


def test_scores_before_an_error_of_an_estimator_are_stored(tmp_path, monkeypatch):
    path, fit = tmp_path / "scores.jsonl", DecisionTreeClassifier.fit
    settings = {"models": {"linear": "linear", "tree": DecisionTreeClassifier()}, "folds": 3}

    def fail(self, X, y):
        raise TypeError("a mistake")

    monkeypatch.setattr(DecisionTreeClassifier, "fit", fail)
    with pytest.raises(TypeError, match="a mistake"):
        compare_models(X, Y, **settings, checkpoint=path)
    n_stored = sum(
        '"model":"linear"' in line.replace(" ", "") for line in path.read_text().split("\n")
    )
    monkeypatch.setattr(DecisionTreeClassifier, "fit", fit)
    assert len(compare_models(X, Y, **settings, checkpoint=path).results) == 6
    assert n_stored == 3


def test_stored_scores_belong_to_all_parameters(tmp_path):
    def pipeline(degree):
        long_steps = [("a" * 400, "passthrough"), ("b" * 400, "passthrough")]
        polynomial, tree = PolynomialFeatures(degree), DecisionTreeClassifier()
        return Pipeline([long_steps[0], ("polynomial", polynomial), long_steps[1], ("tree", tree)])

    assert repr(pipeline(1)) == repr(pipeline(3))  # scikit-learn leaves out the middle
    settings = {"folds": 2, "refit": False, "checkpoint": tmp_path / "scores.jsonl"}
    compare_models(X, Y, models={"pipeline": pipeline(1)}, **settings)
    compare_models(X, Y, models={"pipeline": pipeline(1)}, **settings)
    with pytest.raises(ComparisonError, match="other parameters"):
        compare_models(X, Y, models={"pipeline": pipeline(3)}, **settings)


def test_stored_scores_belong_to_the_groups(tmp_path):
    cv = list(KFold(2).split(X))
    settings = {"models": ["linear"], "cv": cv, "refit": False, "task": "regression"}
    settings["checkpoint"] = tmp_path / "scores.jsonl"
    compare_models(X, Y, **settings, groups=np.arange(150) % 30)
    with pytest.raises(ComparisonError, match="other groups"):
        compare_models(X, Y, **settings, groups=np.arange(150) % 10)


def test_a_model_that_fails_is_left_out():
    table = X.assign(name="a")
    models = {"linear": "linear", "neighbors": KNeighborsClassifier()}
    found = compare_models(table, Y, models=models, folds=3, refit=False)
    assert found.summary["model"].tolist() == ["linear"]
    assert "neighbors is left out, because 3 of its 3 fits failed: " in found.sentences


def test_groups_reach_models_that_take_them():
    seen = []

    class Grouped(KNeighborsClassifier):
        def fit(self, X, y, groups=None):
            seen.append(groups)
            return super().fit(X, y)

    groups = np.arange(150) % 10
    compare_models(X, Y, models={"a": Grouped()}, folds=2, groups=groups, refit=False)
    assert [len(np.unique(values)) for values in seen] == [5, 5]


def test_linear_data_get_the_linear_model():
    data, target = load_diabetes(return_X_y=True)
    target = data @ np.arange(10.0)
    found = compare_models(data, target, models=["linear", "boosting"], folds=3, refit=False)
    assert found.best == "linear"
    assert found.metric == "r2"
    assert found.advice == "Use linear: it is significantly better than the others."
    equal = compare_models(
        data, target, models={"ridge": Ridge(1.0), "linear": "linear"}, folds=3, refit=False
    )
    assert equal.advice.startswith("Use linear")


def test_progress_counts_fits():
    seen = []
    compare_models(X, Y, models=MODELS, folds=2, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 3 * 2 + 1


def test_an_interrupted_pack_ends_the_comparison(monkeypatch):
    def fit(self, X, y, groups=None):
        import warnings

        warnings.warn("Training interrupted by user.", UserWarning, stacklevel=2)
        return self

    monkeypatch.setattr(PackClassifier, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        compare_models(X, Y, models=["pack"], folds=2)


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (["forest"], "models must be of linear, boosting, mlp, tabm, pack, .* got 'forest'"),
        (["mlp", "mlp"], "models"),
        ([], "models"),
        ({"a": Perceptron()}, "'a' must be an estimator with predict_proba"),
        ({"a": 3}, "'a' must be an estimator with fit"),
    ],
)
def test_wrong_models_are_refused(models, says):
    with pytest.raises(ComparisonError, match=says):
        compare_models(X, Y, models=models)
