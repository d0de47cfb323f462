"""compare_activations: networks, folds, seeds, scores, the verdict, and what is refused."""

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from torch import nn

from combutab import MLPClassifier, MLPRegressor
from combutab.model_selection import (
    DEFAULT_ACTIVATIONS,
    ComparisonError,
    compare_activations,
    plan_comparison,
    score_classifier,
)
from tests.paper_networks import PAPER, shape_of

pytestmark = pytest.mark.usefixtures("few_trees")


SMALL = {"activations": ["relu", "combu"], "seeds": 2, "folds": 3, "epochs": 3, "hidden": [8]}
SMALL |= {"recipe": "paper", "baselines": None}
CLASS_SCORES = [
    *("roc_auc", "log_loss", "accuracy", "balanced_accuracy", "average_precision", "f1"),
    "f1_macro",
]


KEYS = ["data", "activation", "fold", "seed", "n_train", "n_test"]


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def classified(wine):
    return compare_activations(*wine, **SMALL | {"baselines": ["guess", "linear"]}, name="wine")


@pytest.fixture(scope="module")
def regressed(diabetes):
    settings = SMALL | {"baselines": ["guess", "linear"]}
    return compare_activations(*diabetes, **settings, scoring="mae")


# ---- the results -----------------------------------------------------------------------------


def test_one_row_a_fit(classified, wine):
    results = classified.results
    scores = CLASS_SCORES
    assert results.columns.tolist() == [*KEYS, *scores, "seconds", "epochs", "constant"]
    assert len(results) == 2 * 3 * 2
    assert not results.duplicated(["activation", "fold", "seed"]).any()
    assert (results["data"] == "wine").all()
    assert (results["n_train"] + results["n_test"] == len(wine[0])).all()
    assert (results["epochs"] == 3).all()
    assert (results["seconds"] > 0).all()
    assert results[scores].notna().all(axis=None)


def test_scores_are_those_of_single_fits(classified, wine):
    X, y = wine
    plan = plan_comparison(X, y, **SMALL)
    row = classified.results.query("activation == 'combu' and fold == 1 and seed == 1").iloc[0]
    train, test = plan.splits[1]
    net = plan.estimator("combu", 1, 1).fit(X.iloc[train], y.iloc[train])
    truth, shares = y.iloc[test], net.predict_proba(X.iloc[test])
    predicted = net.predict(X.iloc[test])
    assert row["accuracy"] == accuracy_score(truth, predicted)
    assert row["f1_macro"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert row["f1"] == row["f1_macro"]  # of three classes
    assert row["log_loss"] == pytest.approx(log_loss(truth, shares), rel=1e-4)
    assert row["roc_auc"] == pytest.approx(roc_auc_score(truth, shares, multi_class="ovr"))
    assert row["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, predicted))
    one_against_rest = np.eye(3)[truth]
    wanted = average_precision_score(one_against_rest, shares, average="macro")
    assert row["average_precision"] == pytest.approx(wanted)


def test_regression_errors_are_in_standard_deviations(regressed, diabetes):
    X, y = diabetes
    plan = plan_comparison(X, y, **SMALL)
    row = regressed.results.query("activation == 'relu' and fold == 2 and seed == 0").iloc[0]
    train, test = plan.splits[2]
    predicted = plan.estimator("relu", 2, 0).fit(X.iloc[train], y.iloc[train]).predict(X.iloc[test])
    truth, sd = y.iloc[test], np.std(y.to_numpy())
    assert row["r2"] == pytest.approx(r2_score(truth, predicted), abs=1e-4)
    assert row["mae"] == pytest.approx(mean_absolute_error(truth, predicted) / sd, rel=1e-4)
    assert row["mse"] == pytest.approx(mean_squared_error(truth, predicted) / sd**2, rel=1e-4)
    assert row["rmse"] == pytest.approx(row["mse"] ** 0.5)
    wanted = mean_absolute_percentage_error(truth, predicted)
    assert row["mape"] == pytest.approx(wanted, rel=1e-4)


def test_folds_are_stratified_and_a_partition(wine):
    _, y = wine
    plan = plan_comparison(*wine, **SMALL)
    tested = np.concatenate([test for _, test in plan.splits])
    assert sorted(tested) == list(range(len(y)))
    for train, test in plan.splits:
        assert not set(train) & set(test)
        shares = y.iloc[test].value_counts(normalize=True).sort_index()
        assert np.abs(shares - y.value_counts(normalize=True).sort_index()).max() < 0.02


def test_activations_share_folds_and_seeds(wine):
    same = compare_activations(*wine, **SMALL | {"activations": {"a": "elu", "b": "elu"}})
    wide = same.results.pivot(index=["fold", "seed"], columns="activation", values="log_loss")
    np.testing.assert_array_equal(wide["a"], wide["b"])
    assert wide["a"].nunique() == 3 * 2  # and no two folds or seeds are the same
    assert same.summary["p"].iloc[1] == 1.0


def test_the_random_state_decides_folds_and_weights(wine, classified):
    scores = CLASS_SCORES
    again = compare_activations(*wine, **SMALL, refit=False)
    np.testing.assert_array_equal(again.results[scores], classified.results[scores])
    assert again.best_estimator is None
    other = compare_activations(*wine, **SMALL, random_state=1, refit=False)
    assert not np.isclose(other.results["log_loss"], classified.results["log_loss"]).any()


# ---- the verdict -----------------------------------------------------------------------------


def test_the_smallest_mean_error_over_folds_is_best(regressed):
    folds = regressed.results.groupby(["activation", "fold"])["mae"].mean().unstack(0)
    assert regressed.best == folds.mean().idxmin()
    assert regressed.summary["activation"].tolist() == folds.mean().sort_values().index.tolist()
    np.testing.assert_allclose(regressed.summary["mean"], folds.mean().sort_values())
    assert f"\nAmong the activations, {regressed.best} has the best mean MAE: " in (
        regressed.sentences
    )


def test_intervals_end_where_the_score_does(wine):
    X, y = wine
    found = compare_activations(X, y, **SMALL | {"epochs": 60, "hidden": [64]}, refit=False)
    folds = found.results.groupby(["activation", "fold"])["accuracy"].mean().unstack()
    half = stats.t.ppf(0.975, df=2) * np.sqrt(1 / 3 + 1 / 2) * folds.std(axis=1)
    assert (folds.mean(axis=1) + half > 1).any()  # Student's interval goes on
    assert found.summary["high"].max() == 1.0
    assert "to 1)" in found.sentences


def test_the_best_is_refitted_on_all_rows(classified, wine):
    X, y = wine
    plan = plan_comparison(X, y, **SMALL)
    net = classified.best_estimator
    assert net.activation == classified.best
    assert net.n_iter_ == 3
    assert net.t_ == 3 * len(X)
    by_hand = plan.estimator(classified.best).fit(X, y)
    np.testing.assert_allclose(net.predict_proba(X), by_hand.predict_proba(X), rtol=1e-4)


class Explodes(nn.Module):
    def forward(self, x):
        return x * float("inf")


def test_failing_activation_is_left_out_and_named(wine):
    found = compare_activations(
        *wine, **SMALL | {"activations": {"bad": lambda width: Explodes(), "relu": "relu"}}
    )
    assert found.summary["activation"].tolist() == ["relu"]
    assert found.results.query("activation == 'bad'")["accuracy"].isna().all()
    assert (
        "bad is left out, because 6 of its 6 fits failed: Solver produced non-finite"
        in found.sentences
    )
    with pytest.raises(ComparisonError, match="no activation"):
        compare_activations(*wine, **SMALL | {"activations": {"bad": lambda width: Explodes()}})


def test_a_notebook_shows_a_chart_and_the_words(classified):
    title, _, sentences = repr(classified).partition("\n")
    assert title.startswith("ModelComparison: ")
    assert sentences == classified.sentences
    shown = classified._repr_html_()
    page = ElementTree.fromstring(shown)
    names = [each.text for each in page.iter("title")]
    rows = [*classified.summary["activation"], *classified.baselines["baseline"]]
    assert [name.split(":")[0] for name in names] == rows
    lines = [each.text for each in page.iter("li")]
    assert lines == classified.sentences.splitlines()
    assert shown.startswith("<div")
    assert "accuracy" in page.find("p/b").text


# ---- progress and interrupts -----------------------------------------------------------------


def test_formatted_table_has_the_scores_and_tests(classified):
    table = classified.formatted()
    rows = [*classified.summary.to_dict("records"), *classified.baselines.to_dict("records")]
    assert table.iloc[:, 0].tolist() == [r.get("activation") or r["baseline"] for r in rows]
    assert [float(mean) for mean in table["mean"]] == pytest.approx(
        [r["mean"] for r in rows], abs=6e-4
    )
    assert table["differs from best"][0] in ("(best)", "–")
    assert set(table["differs from best"][1:]) <= {"yes", "no"}
    assert table["p-value (Holm)"][0] == ""


def test_progress_rises_to_the_end(wine):
    seen = []
    compare_activations(*wine, **SMALL, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] <= 12 / 3
    assert seen[-1] == 13


def test_interrupts_pass_through_early_stopping():
    """Also of the refit, whose own fit would end early and keep what it has."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    settings = SMALL | {"recipe": "default", "epochs": 60, "folds": 2, "baselines": None}
    settings |= {"activations": ["relu"], "seeds": 2}
    settings |= {"estimator_params": {"learning_rate_init": 0.05, "early_stopping": True}}
    y = np.random.default_rng(1).normal(size=100)
    seen = []
    found = compare_activations(X, y, **settings, progress=seen.append)
    assert found.results["epochs"].min() < 60  # nothing can be learned
    assert seen[-1] == 5
    assert found.design == "2 folds x 2 seeds, up to 60 epochs"
    for at in (1, 4.1):

        def interrupt(done, at=at):
            if done >= at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            compare_activations(X, y, **settings, progress=interrupt)


def test_an_error_is_not_taken_for_an_interrupt(wine):
    def fail(done):
        raise OSError("the terminal is gone")

    with pytest.raises(OSError, match="the terminal is gone"):
        compare_activations(*wine, **SMALL, progress=fail)


# ---- settings that are left to choose --------------------------------------------------------


def test_defaults():
    X, y = load_iris(return_X_y=True)
    plan = plan_comparison(X.tolist(), y.tolist())
    assert tuple(plan.activations) == DEFAULT_ACTIVATIONS
    assert len(DEFAULT_ACTIVATIONS) == 10
    assert plan.n_networks == 250
    assert (plan.task, plan.metric, plan.test) == ("classification", "accuracy", "corrected-t")
    assert plan.recipe == "default"
    assert plan_comparison(X, X[:, 0]).metric == "r2"
    assert [*plan_comparison(X, y, activations={"relu": 0, "tanh": 0}.keys()).activations] == [
        "relu",
        "tanh",
    ]


@pytest.mark.parametrize(("n_rows", "hidden"), [(1248, (128,) * 2), (1252, (256,) * 5)])
def test_auto_hidden_depends_on_training_rows(n_rows, hidden):
    X = np.arange(2.0 * n_rows).reshape(-1, 2)
    assert plan_comparison(X, X[:, 0], recipe="paper").hidden == hidden
    border = plan_comparison(X[:1249], X[:1249, 0], recipe="paper").hidden
    assert border in ((128,) * 2, (256,) * 5)


def test_large_tables_get_fewer_epochs():
    X = np.arange(40_000.0).reshape(-1, 2)
    sizes = 500, 4_000, 8_000, 20_000
    epochs = [plan_comparison(X[:n], X[:n, 0], recipe="paper").epochs for n in sizes]
    assert epochs == [80, 80, 46, 20]


def test_other_parameters_of_the_estimators(wine):
    found = compare_activations(*wine, **SMALL, estimator_params={"dropout": 0.0, "alpha": 0.1})
    assert found.best_estimator.dropout == 0.0
    assert found.settings["alpha"] == 0.1


# ---- targets ---------------------------------------------------------------------------------


def test_rare_class_may_miss_test_folds():
    X, y = load_iris(return_X_y=True)
    keep = np.r_[:102]  # two rows of class 2
    with pytest.warns(UserWarning, match=r"class 2.*\(3\)"):
        found = compare_activations(X[keep], y[keep], **SMALL)
    by_fold = found.results.groupby("fold")[["accuracy", "log_loss", "roc_auc"]].mean()
    assert by_fold["roc_auc"].isna().tolist().count(True) == 3 - 2
    assert by_fold[["accuracy", "log_loss"]].notna().all(axis=None)


IRIS_X, IRIS_Y = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": np.r_[IRIS_Y[:-1], 3]}, "class 3 has a single row, .* needs rows to train and to"),
        ({"y": IRIS_Y[:-1]}, "X has 150 rows and y has 149"),
        ({"y": np.ones(150)}, "fewer than two different values"),
        ({"y": np.array(["a"] * 150)}, "fewer than two different values"),
        ({"y": np.where(IRIS_Y == 1, np.nan, IRIS_Y)}, r"50 missing value\(s\)"),
        ({"y": np.c_[IRIS_Y, IRIS_Y]}, "150"),
        ({"y": IRIS_X[:, 0], "task": "classification"}, "fractions, so its values are not classes"),
        ({"y": np.where(IRIS_Y == 1, "a", "b"), "task": "regression"}, "needs a target of numbers"),
        (
            {"y": np.where(IRIS_Y == 1, np.inf, IRIS_Y), "task": "regression"},
            "target has infinite values",
        ),
        ({"y": pd.date_range("2020", periods=150)}, "dates or times"),
        ({"X": np.where(IRIS_X > 7, np.inf, IRIS_X)}, "inf"),
        ({"task": "ranking"}, "task must"),
        ({"scoring": "mape", "y": IRIS_Y, "task": "regression"}, "which is 0 in 50 rows; use mae"),
        ({"scoring": "r2"}, "'r2'"),
        ({"recipe": "best"}, "recipe must"),
        ({"test": "anova"}, "test must"),
        ({"seeds": 0}, "seeds must"),
        ({"folds": 1}, "folds must"),
        ({"folds": 151}, "151"),
        ({"folds": 51}, r"51 folds are more than the rows of any class \(50 at most\)"),
        ({"folds": 76, "task": "regression"}, "150 rows are too few for 76 folds"),
        ({"epochs": 0}, "epochs must"),
        ({"random_state": -1}, "random_state must"),
        ({"hidden": "wide"}, "hidden must"),
        ({"hidden": [8, 0]}, "each width of hidden must be .* at least 1, got 0"),
        ({"hidden": []}, "hidden must"),
        ({"activations": ["relu", "reloo"]}, "'reloo'"),
        ({"activations": ["relu", "relu"]}, "activation 'relu' is named twice"),
        ({"activations": [nn.ReLU]}, "pass a dict name ->"),
        ({"activations": []}, "at least one activation"),
        ({"device": "abacus"}, "'abacus'"),
        ({"device": "meta"}, "cannot use device 'meta'"),
        ({"estimator_params": {"max_iter": 3}}, "'max_iter'"),
        ({"estimator_params": {"dropout": 3}}, "'dropout' parameter"),
        ({"estimator_params": {"drop": 3}}, "unexpected keyword argument 'drop'"),
    ],
)
def test_what_is_refused_before_training(change, says):
    arguments = {"X": IRIS_X, "y": IRIS_Y} | SMALL | change
    with pytest.raises(ComparisonError, match=says) as caught:
        plan_comparison(arguments.pop("X"), arguments.pop("y"), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:class 2 has fewer rows")
@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
def test_metrics_that_need_every_class_in_every_fold(metric):
    with pytest.raises(ComparisonError, match=f"{metric} needs every class in every test fold"):
        plan_comparison(IRIS_X[:102], IRIS_Y[:102], **SMALL, scoring=metric)


@pytest.mark.parametrize(
    ("counts", "metric", "guess_metric"),
    [
        ((60, 40), "accuracy", "roc_auc"),
        ((66, 33), "accuracy", "roc_auc"),
        ((68, 32), "roc_auc", "roc_auc"),
        ((50, 48, 2), "accuracy", "accuracy"),  # a test fold lacks the last class
        ((90, 8, 2), "log_loss", "log_loss"),
    ],
)
@pytest.mark.filterwarnings("ignore:class 2 has fewer rows")
def test_default_metrics_have_power_for_uneven_classes(counts, metric, guess_metric):
    y = np.repeat(np.arange(len(counts)), counts)
    made = plan_comparison(np.arange(len(y))[:, None], y, **SMALL)
    assert (made.metric, made.guess_metric) == (metric, guess_metric)


# ---- folds by group, by time, or as given --------------------------------------------------------

GROUPS = np.arange(150) % 10


def test_rows_of_a_group_are_in_one_fold(tmp_path):
    made = plan_comparison(IRIS_X, IRIS_Y, **SMALL, groups=[f"patient {each}" for each in GROUPS])
    assert made.settings["split"] == "groups"
    tested = np.concatenate([test for _, test in made.splits])
    assert sorted(tested) == list(range(150))
    for train, test in made.splits:
        assert not set(GROUPS[train]) & set(GROUPS[test])
        assert set(IRIS_Y[test]) == {0, 1, 2}
    by_group = plan_comparison(IRIS_X, IRIS_X[:, 0], **SMALL, groups=GROUPS)
    assert not set(GROUPS[by_group.splits[1][0]]) & set(GROUPS[by_group.splits[1][1]])
    # kept scores are of these folds alone
    path = tmp_path / "scores.jsonl"
    settings = SMALL | {"checkpoint": path, "refit": False, "baselines": None, "seeds": 1}
    found = compare_activations(IRIS_X, IRIS_Y, **settings, groups=GROUPS)
    assert found.design == "3 folds of whole groups x 1 seed, 3 epochs"
    with pytest.raises(ComparisonError, match="folds"):
        compare_activations(IRIS_X, IRIS_Y, **settings, groups=np.arange(150) % 15)


def test_splitter_folds_enter_the_test():
    X = np.random.default_rng(0).normal(size=(120, 2))
    y = X[:, 0] + 0.1 * X[:, 1]
    cv = TimeSeriesSplit(4)
    settings = SMALL | {"refit": False, "baselines": None, "cv": cv}
    found = compare_activations(X, y, **settings)
    sizes = found.results.groupby("fold")[["n_train", "n_test"]].first()
    assert sizes["n_train"].tolist() == [24, 48, 72, 96]
    assert found.settings["folds"] == 4
    assert found.design == "4 folds (TimeSeriesSplit) x 2 seeds, 3 epochs"
    folds = found.results.groupby(["activation", "fold"])["r2"].mean().unstack(0)
    best, other = found.summary["activation"]
    d = (folds[best] - folds[other]).to_numpy()
    ratio = (24 / sizes["n_train"]).mean()  # of each fold's test rows to its training rows
    t = d.mean() / np.sqrt((1 / 4 + ratio) * d.var(ddof=1))
    assert found.summary["p"].iloc[1] == pytest.approx(2 * stats.t.sf(abs(t), df=3))
    pairs = [*cv.split(X)]
    same = plan_comparison(X, y, **SMALL | {"cv": pairs})
    assert all((a[1] == b[1]).all() for a, b in zip(same.splits, pairs, strict=True))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cv": 5}, "cv must"),
        ({"cv": [([0, 60], [1, 61])]}, "cv must"),
        ({"cv": [([0, 1, 99], [1, 2])] * 2}, "cv has a split of 3 training and 2 valid"),
        ({"cv": [([0, 1], [2, 3])] * 2}, r"2 training rows with 1 different target\(s\)"),
        ({"cv": [([0, 999], [2, 3])] * 2}, "150"),
        ({"cv": TimeSeriesSplit(3)}, "fold 0 of 3 .* with 1 different|no training rows"),
        ({"cv": [([0, 70], [2, 149])] * 2}, "has test rows of class 2, but no training rows of it"),
        ({"cv": GroupKFold(3)}, "150"),
        ({"groups": GROUPS[:-1]}, "groups has 149 values for 150 rows"),
        ({"groups": np.where(GROUPS == 1, np.nan, 0)}, "groups has 15 missing values"),
        ({"groups": GROUPS % 2}, "3 folds are more than the 2 groups"),
    ],
)
def test_folds_that_are_refused(change, says):
    with pytest.raises(ComparisonError, match=says) as caught:
        plan_comparison(IRIS_X, IRIS_Y, **SMALL | change)
    assert "\n" not in str(caught.value)


# ---- the networks that activations are compared in: the CombU paper's, or the defaults -----------


FRAME, CLASSES = load_iris(return_X_y=True, as_frame=True)


TARGETS = {"classification": CLASSES, "regression": FRAME.iloc[:, 0]}


def plan(task, **settings):
    return plan_comparison(FRAME, TARGETS[task], task=task, activations=["relu"], **settings)


@pytest.mark.parametrize("task", TARGETS)
def test_paper_recipe_ignores_defaults(task, no_defaults):
    made = plan(task, recipe="paper")
    settled = {"hidden_layer_sizes": (128, 128), "max_iter": 80, "n_iter_no_change": np.inf}
    for key in ((), (1, 2)):
        network = shape_of(made.estimator("relu", *key))
        assert network == PAPER[task] | settled | {"activation": "relu"}
    assert made.encoder().numeric == "standard"
    assert made.n_inputs == FRAME.shape[1]
    params = {"dropout": 0.4}
    changed = plan(task, recipe="paper", estimator_params=params, epochs=7, hidden=[5])
    network = shape_of(changed.estimator("relu"))
    settled |= {"hidden_layer_sizes": (5,), "max_iter": 7}
    assert network == PAPER[task] | settled | {"activation": "relu", "dropout": 0.4}


@pytest.mark.parametrize("task", TARGETS)
def test_by_default_they_are_those_that_users_get(task, monkeypatch):
    kind = MLPClassifier if task == "classification" else MLPRegressor
    changed = kind.__init__.__kwdefaults__ | {"max_iter": 17, "dropout": 0.35}
    monkeypatch.setattr(kind.__init__, "__kwdefaults__", changed)
    made = plan(task)
    own = kind(activation="relu", n_members=1)  # for each seed
    own.hidden_layer_sizes = own._hidden_layer_sizes(75)
    assert shape_of(made.estimator("relu")) == shape_of(own)
    assert (made.epochs, made.hidden) == (17, own.hidden_layer_sizes)
    network = plan(task, epochs=3, hidden=[5]).estimator("relu")
    assert (network.max_iter, network.hidden_layer_sizes, network.dropout) == (3, (5,), 0.35)


def test_embedded_numbers_are_more_inputs():
    """Of which the announced time goes by."""
    embedded = {"numeric_embedding": "pbld", "numeric_embedding_dim": 3}
    made = plan("classification", recipe="paper", estimator_params=embedded)
    assert made.n_inputs == 3 * FRAME.shape[1]


def test_scores_are_of_the_rarer_class():
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = np.where(X[:, 0] > 0.8, "churned", "stayed")
    clf = MLPClassifier((8,), max_iter=20, random_state=0).fit(X, y)
    expected = f1_score(y, clf.predict(X), pos_label="churned")
    assert score_classifier(clf, X, y)["f1"] == pytest.approx(expected)
