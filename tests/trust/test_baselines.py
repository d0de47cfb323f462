"""compare: nothing is crowned that a guess beats, and known truths are told right."""

import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, log_loss, mean_absolute_error

from combutab.cli import main
from combutab.model_selection import (
    ComparisonError,
    compare_activations,
    plan_comparison,
    shown_range,
)
from combutab.model_selection._comparison import other_measures
from combutab.plotting import plot_comparison
from combutab.preprocessing import TableEncoder
from combutab.reports import render_report

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
SMALL = {"seeds": 1, "folds": 5, "refit": False, "activations": ["relu", "combu"]}
SMALL |= {"hidden": [32], "epochs": 40, "estimator_params": {"learning_rate_init": 0.01}}
QUICK = SMALL | {"baselines": ["guess", "linear"]}  # boosting takes longer than all else
BRIEF = {"folds": 3, "epochs": 2}  # where nothing is said of how good the networks are
COLUMNS = ["baseline", "mean", "low", "high", "p", "distinguishable", "n_resamples", "test"]


def normal(n, width, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width))


def noise(seed, n=240, shares=(0.7, 0.3)):
    """A target that no feature tells anything of."""
    generator = np.random.default_rng((1, seed))
    return normal(n, 4, seed), generator.choice(len(shares), size=n, p=shares)


def planned(settings):
    return {name: value for name, value in settings.items() if name != "refit"}


def first(found):
    return found.sentences.splitlines()[0]


# ---- known truths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "metric"),
    [*enumerate(["accuracy", "f1", "log_loss", "roc_auc"] * BUDGET)],
)
def test_nothing_wins_where_there_is_nothing_to_learn(seed, metric):
    settings = SMALL if BUDGET > 1 or seed == 0 else QUICK  # with boosting once
    found = compare_activations(*noise(seed), **settings, metric=metric)
    assert found.winner is None
    assert not found.summary["beats_guess"].any()
    assert first(found).startswith(f"No activation beats guessing by {found.measure.label}: ")
    assert f"\nOf the activations {found.best} has the best mean " in found.sentences


@pytest.mark.parametrize("metric", ["r2", "mae", "mse"])
def test_nothing_wins_in_a_regression_on_noise(metric):
    X = normal(240, 4)
    y = np.random.default_rng(9).standard_t(2, size=240)  # with heavy tails
    found = compare_activations(X, y, **QUICK, metric=metric)
    assert found.winner is None
    assert first(found).startswith(f"No activation beats guessing by {found.measure.label}: ")


def test_the_linear_model_is_not_beaten_where_the_truth_is_linear():
    X = normal(300, 5)
    y = X @ [3.0, -2.0, 1.0, 0.5, 0.0] + 0.1 * normal(300, 1, 1)[:, 0]
    found = compare_activations(X, y, **SMALL)
    assert found.winner == found.best
    assert found.baselines["baseline"].iloc[0] == "linear"
    assert found.baselines["mean"].iloc[0] > 0.999
    assert re.search(r"^Better than \w+: linear 0\.999", found.sentences, re.M)
    assert re.search(r"^Worse than \w+: .*guess|^It beats guessing", found.sentences, re.M)


def test_networks_and_trees_beat_the_linear_model_on_an_exclusive_or():
    X = normal(400, 2)
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    found = compare_activations(X, y, **SMALL)
    means = found.baselines.set_index("baseline")["mean"]
    assert found.winner is not None
    assert found.summary["mean"].iloc[0] > 0.9 < means["boosting"]
    assert means["linear"] < 0.65 > means["guess"]
    assert re.search(rf"^Worse than {found.best}: linear 0\.[56]", found.sentences, re.M)


def test_a_measure_by_which_an_activation_beats_guessing_is_named():
    folds = np.arange(5)
    wobble = np.array([0.0, 0.01, -0.01, 0.005, -0.005])
    lines = {"accuracy": 0.9 - 0.01 + wobble, "f1": 0.5 + 30 * wobble, "roc_auc": 0.77 + wobble}
    results = pd.DataFrame({"activation": "relu", "fold": folds, "log_loss": np.nan, **lines})
    guess = {"accuracy": 0.9, "f1": 0.5, "log_loss": 0.3, "roc_auc": 0.5}
    scored = pd.DataFrame({"baseline": "guess", "fold": folds, **guess})
    X = np.arange(100.0)[:, None]
    y = np.arange(100) % 2
    plan = plan_comparison(X, y, metric="accuracy", folds=5)  # 80 rows to train on, 20 to test
    summary = pd.DataFrame({"activation": ["relu"], "beats_guess": [False]})
    said = other_measures(plan, summary, results, scored)
    assert re.fullmatch(
        r"An activation does beat guessing by ROC AUC \(relu 0\.77, the guess 0\.5, p .*\)\.", said
    )
    assert other_measures(plan, summary.assign(beats_guess=True), results, scored) == ""
    assert other_measures(plan, summary, results.assign(roc_auc=0.5 + wobble), scored) == ""
    assert other_measures(plan, summary.drop(columns="beats_guess"), results, scored) == ""


def test_several_classes():
    found = compare_activations(*load_iris(return_X_y=True), **SMALL)
    assert found.winner == found.best
    assert found.baselines.columns.tolist() == COLUMNS
    assert set(found.baselines["baseline"]) == {"guess", "linear", "boosting"}
    assert found.baselines.set_index("baseline")["mean"]["guess"] == pytest.approx(1 / 3)
    assert "It beats guessing (" in found.sentences


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.ones(60), "fewer than two different values"),
        (np.array(["a"] * 60), "fewer than two different values"),
        (np.array(["a"] * 59 + ["b"]), "a single row"),
    ],
)
def test_nothing_to_learn_is_refused(y, says):
    with pytest.raises(ComparisonError, match=says):
        compare_activations(normal(60, 2), y, **SMALL)


def test_heavy_tails_do_not_hide_a_signal_from_the_guess_by_mae():
    X = normal(500, 3)
    y = 5 * X[:, 0] + np.random.default_rng(2).standard_t(2, size=500)
    found = compare_activations(X, y, **QUICK, metric="mae")
    assert found.winner is not None
    assert (found.summary["mean"] < found.baselines.set_index("baseline")["mean"]["guess"]).all()


# ---- scores and tests by hand --------------------------------------------------------------------


def test_guesses_are_the_best_of_scikit_learns_dummies_by_metric():
    X, y = noise(0, n=200, shares=(0.6, 0.25, 0.15))
    found = compare_activations(X, y, **SMALL | BRIEF, baselines="guess")
    plan = plan_comparison(X, y, **planned(SMALL | BRIEF))
    for fold, (train, test) in enumerate(plan.splits):
        row = found.baseline_results.set_index("fold").loc[fold]
        prior = DummyClassifier(strategy="prior").fit(X[train], y[train])
        frequent = DummyClassifier(strategy="most_frequent").fit(X[train], y[train])
        assert row["accuracy"] == accuracy_score(y[test], frequent.predict(X[test]))
        assert row["log_loss"] == pytest.approx(log_loss(y[test], prior.predict_proba(X[test])))
        assert row["roc_auc"] == 0.5
        expected = [
            f1_score(
                y[test],
                DummyClassifier(strategy="stratified", random_state=seed)
                .fit(X[train], y[train])
                .predict(X[test]),
                average="macro",
            )
            for seed in range(50)
        ]
        # the mean of twenty draws; always the most frequent class has less
        assert row["f1"] == pytest.approx(np.mean(expected), abs=4 * np.std(expected) / 20**0.5)
        assert row["f1"] > f1_score(y[test], frequent.predict(X[test]), average="macro")


def test_guesses_of_a_regression_by_hand():
    X, y = normal(100, 2), np.random.default_rng(3).lognormal(size=100)
    found = compare_activations(X, y, **SMALL | BRIEF, baselines=["guess"])
    plan = plan_comparison(X, y, **planned(SMALL | BRIEF))
    train, test = plan.splits[2]
    row = found.baseline_results.set_index("fold").loc[2]
    mean = DummyRegressor(strategy="mean").fit(X[train], y[train]).predict(X[test])
    sd = np.std(y)
    assert row["mae"] == pytest.approx(np.abs(y[test] - np.median(y[train])).mean() / sd)
    assert row["mse"] == pytest.approx(((y[test] - mean) ** 2).mean() / sd**2)
    spread = ((y[test] - y[test].mean()) ** 2).sum()
    assert row["r2"] == pytest.approx(1 - ((y[test] - mean) ** 2).sum() / spread)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_linear_model_gets_the_networks_columns(task):
    """Numbers with a gap, few categories, and more than are one-hot encoded."""
    generator = np.random.default_rng(4)
    cities = [f"city {i}" for i in range(60)]
    X = pd.DataFrame(
        {
            "a": np.where(generator.random(300) < 0.1, np.nan, generator.normal(size=300)),
            "b": generator.choice(["x", "y"], 300),
            "city": generator.choice(cities, 300),
        }
    )
    y = (X["a"].fillna(0) + (X["b"] == "x") + 0.1 * generator.normal(size=300)).to_numpy()
    y = np.where(y > 0.5, "yes", "no") if task == "classification" else y
    found = compare_activations(X, y, **QUICK | BRIEF)
    plan = plan_comparison(X, y, **planned(QUICK | BRIEF))
    train, test = plan.splits[1]
    encoder = TableEncoder(max_onehot=10_000)  # one-hot for all that fit saw twice
    A = encoder.fit_transform(X.iloc[train]).astype(float)
    B = encoder.transform(X.iloc[test]).astype(float)
    row = found.baseline_results.set_index(["baseline", "fold"]).loc[("linear", 1)]
    if task == "classification":
        model = LogisticRegression(max_iter=1000).fit(A, y[train])
        assert row["accuracy"] == pytest.approx((model.predict(B) == y[test]).mean(), abs=0.05)
    else:
        predicted = Ridge().fit(A, y[train]).predict(B)
        wanted = mean_absolute_error(y[test], predicted) / np.std(y)
        assert row["mae"] == pytest.approx(wanted, rel=0.1)
    best = found.baselines.iloc[0]
    assert best["mean"] > (0.85 if task == "classification" else 0.8)


def holm(p):
    """The smallest times the number of tests, the next times one less, never falling."""
    order, adjusted, least = np.argsort(p), np.empty(len(p)), 0.0
    for place, i in enumerate(order):
        least = max(least, min(1.0, p[i] * (len(p) - place)))
        adjusted[i] = least
    return adjusted


@pytest.mark.usefixtures("short_report")
def test_the_guess_is_tested_as_activations_are():
    X = normal(150, 3)
    y = (X[:, 0] + 1.5 * normal(150, 1, 8)[:, 0] > 0.6).astype(int)
    found = compare_activations(
        X, y, **SMALL | {"activations": ["relu", "tanh", "elu"], "epochs": 15}
    )
    nets = found.results.pivot_table(index="fold", columns="activation", values="accuracy")
    base = found.baseline_results.pivot(index="fold", columns="baseline", values="accuracy")
    sizes = found.results.groupby("fold")[["n_train", "n_test"]].first().mean()

    def p(a, b):
        d = (a - b).to_numpy()
        t = d.mean() / np.sqrt((1 / 5 + sizes["n_test"] / sizes["n_train"]) * d.var(ddof=1))
        return 2 * stats.t.sf(abs(t), df=4)

    names = found.summary["activation"]
    wanted = holm([p(nets[name], base["guess"]) for name in names])
    np.testing.assert_allclose(found.summary["p_guess"], wanted)
    better = nets[names].mean() > base["guess"].mean()
    assert found.summary["beats_guess"].tolist() == ((wanted < 0.05) & better).tolist()
    others = dict(
        zip(
            ["linear", "boosting"],
            holm([p(nets[found.best], base[name]) for name in ("linear", "boosting")]),
            strict=True,
        )
    )
    shown = found.baselines.set_index("baseline")["p"]
    for name, value in (others | {"guess": wanted[0]}).items():
        assert shown[name] == pytest.approx(value)


def test_a_test_that_cannot_find_anything_says_so():
    """Of five folds Wilcoxon's p is never below 0.0625."""
    X = normal(200, 2)
    found = compare_activations(X, X[:, 0] > 0, **QUICK, test="wilcoxon")
    assert found.winner is None
    assert "over 5 resamples the Wilcoxon test cannot tell any of 2 from a guess" in first(found)


# ---- what is named -------------------------------------------------------------------------------


def test_networks_of_one_answer_are_named():
    from torch import nn

    activations = {"dead": lambda width: nn.Threshold(float("inf"), 0.0), "relu": "relu"}
    X = normal(200, 3)
    for y, what in ((X[:, 0] > 0.6, "the same class"), (X[:, 0], "nearly the same number")):
        found = compare_activations(X, y, **QUICK | {"activations": activations, "epochs": 15})
        constant = found.results.groupby("activation")["constant"].sum()
        assert constant.to_dict() == {"dead": 5, "relu": 0}
        assert f"Networks of dead (5 of 5) answer {what} for every row" in found.sentences
        assert not found.summary.set_index("activation")["beats_guess"]["dead"]
        assert re.search(r"^No better than guessing .*: dead \(p ", found.sentences, re.M)


def test_an_interval_without_length_is_not_shown_as_certainty(tmp_path):
    X, y = normal(200, 2), np.array(["no"] * 140 + ["yes"] * 60)
    found = compare_activations(
        X, y, **QUICK | {"epochs": 1, "estimator_params": {"learning_rate_init": 1e-6}}
    )
    (guess,) = found.baselines.query("baseline == 'guess'").itertuples()
    assert guess.low == guess.mean == guess.high == 0.7
    page = render_report(found)
    assert "0.7000 to 0.7000" not in page
    assert "interval 0.7 to 0.7" not in page + found.sentences
    assert "the same in all folds" in page
    plot_comparison(found).savefig(tmp_path / "p.png")


@pytest.mark.usefixtures("short_report")
def test_baselines_can_be_chosen_and_switched_off():
    X, y = noise(0)
    without = compare_activations(X, y, **SMALL | BRIEF, baselines=None)
    assert without.baselines.empty
    assert without.baseline_results.empty
    assert "p_guess" not in without.summary
    assert without.winner == without.best
    assert "guess" not in without.sentences
    assert "aseline" not in render_report(without).replace('"Baselines"', "").replace(
        "<dt>Baselines</dt><dd>none</dd>", ""
    )
    plot_comparison(without)
    some = compare_activations(X, y, **SMALL | BRIEF, baselines=["boosting", "linear"])
    assert set(some.baselines["baseline"]) == {"linear", "boosting"}
    assert some.winner == some.best
    np.testing.assert_array_equal(some.results["log_loss"], without.results["log_loss"])
    with pytest.raises(ComparisonError, match=r"must be of guess, linear, boosting, .* got 'xgb'"):
        compare_activations(X, y, **SMALL, baselines=["xgb"])


@pytest.mark.usefixtures("short_report")
def test_baselines_are_the_same_again_and_leave_global_state_alone():
    np.random.seed(0)
    state = np.random.get_state()[1].copy()
    frames = [
        compare_activations(*noise(1), **SMALL | BRIEF).baseline_results.drop(columns="seconds")
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(*frames)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_a_baseline_that_fails_is_named_and_left_out(monkeypatch):
    def refuse(self, X, y):
        raise ValueError("no trees\ntoday")

    monkeypatch.setattr("sklearn.ensemble.HistGradientBoostingClassifier.fit", refuse, raising=True)
    found = compare_activations(*noise(2), **SMALL | BRIEF)
    assert set(found.baselines["baseline"]) == {"guess", "linear"}
    assert "The baseline boosting is left out: no trees today" in found.sentences


# ---- pictures, pages, the command ----------------------------------------------------------------


@pytest.mark.usefixtures("short_report")
def test_the_picture_has_the_baselines_and_keeps_activations_apart():
    X = normal(300, 5)
    found = compare_activations(X, X @ [3.0, -2.0, 1.0, 0.5, 0.0], **SMALL)
    figure = plot_comparison(found)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [*found.summary["activation"], *found.baselines["baseline"]]
    low, _ = shown_range(found.results, found.summary, "r2", found.baselines)
    assert low > 0.3  # the guess's zero is an arrow at the edge, with its number
    guess = found.baselines.set_index("baseline")["mean"]["guess"]
    assert f"{guess:.4g}" in [text.get_text() for text in axes.texts]
    assert [line.get_marker() for line in axes.lines].count("<") >= 1
    assert "baseline" in [text.get_text() for text in figure.legends[0].get_texts()]
    figure.draw_without_rendering()
    inside = figure.get_tightbbox().get_points() * figure.dpi
    assert (inside >= 0).all()


def write_noise(place):
    X, y = noise(0)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=np.where(y, "yes", "no"))
    frame.to_csv(place / "noise.csv", index=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_noise(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ARGUMENTS = ["compare", "noise.csv", "--target", "y", "--seeds", "1", "--epochs", "3"]
ARGUMENTS += ["--folds", "3", "--hidden", "8"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A folder of a command that is through: the same again prints its table without training."""
    place = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_noise(place)
        assert main([*ARGUMENTS, "--report", "r.html"]) == 0
    return place


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_tables_and_sentences_fit(compared, capsys, monkeypatch, columns):
    monkeypatch.chdir(compared)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*ARGUMENTS, "--report", "r.html"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    table = out.split("No activation beats")[0].splitlines()
    rows = {line.split()[0]: line for line in table if re.match(r"[a-z0-9-]+ +0\.", line)}
    assert len(rows) == 13
    assert {"la-hardsilu", "guess", "linear", "boosting"} <= set(rows)
    if columns >= 60:
        assert re.search(r"told +beats", out)
        assert " to " in rows["la-hardsilu"]
    # words are whole: what is printed is the page's sentences
    page = (compared / "r.html").read_text("utf-8")
    words = " ".join(out.split())
    sentence = re.search(r'class="small told">\s*<li>(.*?)</li>', page)[1].replace("&#39;", "'")
    assert sentence in words


@pytest.mark.usefixtures("short_report")
def test_files_of_baselines(folder, capsys):
    assert main([*ARGUMENTS, "--activations", "relu"]) == 0
    place = folder / "combutab-compare"
    table = pd.read_csv(place / "baselines.csv")
    assert table.groupby("baseline").size().to_dict() == {"boosting": 3, "guess": 3, "linear": 3}
    assert set(pd.read_csv(place / "results.csv")["activation"]) == {"relu"}
    summary = pd.read_csv(place / "summary.csv")
    assert summary["beats_guess"].tolist() == [False]
    assert "No activation beats guessing" in capsys.readouterr().out
    assert main([*ARGUMENTS, "--activations", "relu", "--baselines", "none", "--out", "o"]) == 0
    assert pd.read_csv("o/baselines.csv").empty
    assert "guess" not in capsys.readouterr().out
    assert main([*ARGUMENTS, "--baselines", "xgboost", "--out", "p"]) == 2
    assert "baselines must be of guess, linear, boosting" in capsys.readouterr().err


@pytest.mark.usefixtures("short_report")
def test_learners_advice_to_their_user_is_not_passed_on():
    """Many collinear columns, few rows: neither convergence nor conditioning is warned of."""
    X = np.repeat(normal(60, 3), 40, axis=1) * 1e3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare_activations(X, X[:, 0] > 0, **SMALL | BRIEF)
    assert len(found.baselines) == 3
