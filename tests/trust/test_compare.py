"""compare: nothing is crowned that a guess beats, and known truths are told right."""

import contextlib
import itertools
import json
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, log_loss, mean_absolute_error
from torch import nn

from combutab.cli import main
from combutab.model_selection import (
    ComparisonError,
    compare_activations,
    plan_comparison,
)
from combutab.model_selection._sentences import other_measures
from combutab.plotting import plot_comparison
from combutab.preprocessing import TableEncoder
from combutab.reports import render_report
from tests import short
from tests.short import BUDGET
from tests.trust.forked import Forked, needs_fork

pytestmark = pytest.mark.usefixtures("few_trees")  # of a baseline
FILES = ["results.csv", "summary.csv", "baselines.csv", "comparison.png", "best_model.safetensors"]
JOURNAL = "journal.jsonl"
SMALL = {"seeds": 1, "folds": 5, "refit": False, "activations": ["relu", "combu"]}

SMALL |= {"hidden": [32], "epochs": 20, "estimator_params": {"learning_rate_init": 0.02}}

SMALL |= {"recipe": "paper"}

QUICK = SMALL | {"baselines": ["guess", "linear"]}  # boosting takes longer than all else

BRIEF = {"folds": 3, "epochs": 2}  # where nothing is said of how good the networks are


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
    [*enumerate(["accuracy", "log_loss"] * BUDGET)],
)
def test_nothing_wins_where_there_is_nothing_to_learn(seed, metric):
    settings = SMALL if BUDGET > 1 or seed == 0 else QUICK  # with boosting once
    found = compare_activations(*noise(seed), **settings, scoring=metric)
    assert found.winner is None
    assert not found.summary["beats_guess"].any()
    label = "log loss" if metric == "log_loss" else "ROC AUC"
    assert first(found).startswith(
        f"No activation is significantly better than guessing by {label}: "
    )
    assert f"\nAmong the activations, {found.best} has the best mean " in found.sentences


def test_linear_model_wins_on_linear_data():
    X = normal(300, 5)
    y = X @ [3.0, -2.0, 1.0, 0.5, 0.0] + 0.1 * normal(300, 1, 1)[:, 0]
    found = compare_activations(X, y, **SMALL)
    assert found.winner == found.best
    assert found.baselines["baseline"].iloc[0] == "linear"
    assert found.baselines["mean"].iloc[0] > 0.999
    assert re.search(r"^Better than \w+: linear 0\.999", found.sentences, re.M)
    assert re.search(
        r"^Worse than \w+: .*guess|^It is significantly better than guessing", found.sentences, re.M
    )


def test_metric_that_beats_guessing_is_named():
    folds = np.arange(5)
    wobble = np.array([0.0, 0.01, -0.01, 0.005, -0.005])
    scores = {"accuracy": 0.9 - 0.01 + wobble, "f1": 0.5 + 30 * wobble, "roc_auc": 0.77 + wobble}
    others = dict.fromkeys(["balanced_accuracy", "average_precision", "f1_macro"], np.nan)
    frame = {"activation": "relu", "fold": folds, "log_loss": 0.9, **others, **scores}
    results = pd.DataFrame(frame)
    guess = others | {"accuracy": 0.9, "f1": 0.5, "log_loss": 0.3, "roc_auc": 0.5}
    scored = pd.DataFrame({"baseline": "guess", "fold": folds, **guess})
    X = np.arange(100.0)[:, None]
    y = np.arange(100) % 2
    plan = plan_comparison(X, y, scoring="log_loss", folds=5)  # 80 rows to train on, 20 to test
    summary = pd.DataFrame({"activation": ["relu"], "beats_guess": [False]})
    said = other_measures(plan, summary, results, scored)
    assert re.fullmatch(
        r"Some activation is significantly better than guessing by ROC AUC "
        r"\(relu 0\.77, guessing 0\.5, p .*\)\.",
        said,
    )
    assert other_measures(plan, summary.assign(beats_guess=True), results, scored) == ""
    assert other_measures(plan, summary, results.assign(roc_auc=0.5 + wobble), scored) == ""
    assert other_measures(plan, summary.drop(columns="beats_guess"), results, scored) == ""


@pytest.mark.usefixtures("short_report")
def test_learned_uneven_classes_beat_the_guess():
    X = normal(800, 3)
    chance = np.where(X[:, 0] > 0.5, 0.4, 0.01)  # never above one half: no accuracy beats a guess
    y = (np.random.default_rng(1).random(800) < chance).astype(int)
    settings = SMALL | {"baselines": ["guess"]}
    by_default = compare_activations(X, y, **settings)
    assert by_default.metric == "roc_auc"
    assert by_default.winner == by_default.best
    found = compare_activations(X, y, scoring="accuracy", **settings)
    assert found.winner == found.best
    assert "o activation beats" not in found.sentences
    lines = found.sentences.splitlines()
    assert re.fullmatch(
        r"It is significantly better than guessing by ROC AUC \(0\.[78]\d*, guessing 0\.5, .*",
        lines[1],
    )
    assert "By accuracy, guessing (always the most frequent class) is at least as good" in lines[2]
    assert re.search(r"^Other metrics of .* ROC AUC 0\.[78].*log loss", found.sentences, re.M)
    guess = found.baselines.set_index("baseline").loc["guess"]
    assert guess["p"] > 0.05  # by accuracy, as its row in the table is
    assert (found.summary["p_guess"] < 0.05).all()
    page = render_report(found)
    assert "This is tested by ROC AUC, because accuracy has no power" in page


# ---- scores and tests by hand --------------------------------------------------------------------


def test_guesses_are_the_best_dummies_by_metric():
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
    assert row["rmse"] == pytest.approx(row["mse"] ** 0.5)
    train_mape = [(np.abs(each - y[train]) / y[train]).mean() for each in y[train]]
    best = y[train][np.argmin(train_mape)]
    assert row["mape"] == pytest.approx((np.abs(best - y[test]) / y[test]).mean())
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
    nets, areas = (
        found.results.pivot_table(index="fold", columns="activation", values=metric)
        for metric in ("accuracy", "roc_auc")
    )
    base = found.baseline_results.pivot(index="fold", columns="baseline", values="accuracy")
    sizes = found.results.groupby("fold")[["n_train", "n_test"]].first()
    sizes = {"n_train": stats.hmean(sizes["n_train"]), "n_test": sizes["n_test"].mean()}

    def p(a, b):
        d = (a - b).to_numpy()
        t = d.mean() / np.sqrt((1 / 5 + sizes["n_test"] / sizes["n_train"]) * d.var(ddof=1))
        return 2 * stats.t.sf(abs(t), df=4)

    names = found.summary["activation"]
    wanted = holm([p(areas[name], 0.5) for name in names])
    np.testing.assert_allclose(found.summary["p_guess"], wanted)
    better = areas[names].mean() > 0.5
    assert found.summary["beats_guess"].tolist() == ((wanted < 0.05) & better).tolist()
    others = dict(
        zip(
            ["linear", "boosting"],
            holm([p(nets[found.best], base[name]) for name in ("linear", "boosting")]),
            strict=True,
        )
    )
    shown = found.baselines.set_index("baseline")["p"]
    of_guess = holm([p(nets[name], base["guess"]) for name in names])[0]  # by accuracy
    for name, value in (others | {"guess": of_guess}).items():
        assert shown[name] == pytest.approx(value)


def test_a_test_that_cannot_find_anything_says_so():
    """Of five folds Wilcoxon's p is never below 0.0625."""
    X = normal(200, 2)
    found = compare_activations(X, X[:, 0] > 0, **QUICK | {"epochs": 2}, test="wilcoxon")
    assert found.winner is None
    assert "with 5 folds Wilcoxon's test cannot find a significant difference for 2" in first(found)


# ---- what is named -------------------------------------------------------------------------------


def test_networks_of_one_answer_are_named():
    from torch import nn

    activations = {"dead": lambda width: nn.Threshold(float("inf"), 0.0), "relu": "relu"}
    X = normal(200, 3)
    for y, what in ((X[:, 0] > 0.6, "the same class"), (X[:, 0], "nearly the same number")):
        found = compare_activations(X, y, **QUICK | {"activations": activations, "epochs": 15})
        constant = found.results.groupby("activation")["constant"].sum()
        assert constant.to_dict() == {"dead": 5, "relu": 0}
        assert f"Networks of dead (5 of 5) predict {what} for every row" in found.sentences
        assert not found.summary.set_index("activation")["beats_guess"]["dead"]
        assert re.search(
            r"^Not significantly better than guessing .*: dead \(p ", found.sentences, re.M
        )


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
    with pytest.raises(ComparisonError, match=r"guess, linear, boosting.*'xgb'"):
        compare_activations(X, y, **SMALL, baselines=["xgb"])


def test_failing_baseline_is_named_and_left_out(monkeypatch):
    def refuse(self, X, y):
        raise ValueError("no trees\ntoday")

    monkeypatch.setattr("sklearn.ensemble.HistGradientBoostingClassifier.fit", refuse, raising=True)
    found = compare_activations(*noise(2), **SMALL | BRIEF)
    assert set(found.baselines["baseline"]) == {"guess", "linear"}
    assert "The baseline boosting is left out: no trees today" in found.sentences


# ---- compare: what is interrupted or killed goes on from finished networks, with the same

X, Y = load_iris(return_X_y=True, as_frame=True)

RESUMED = {"activations": ["relu", "combu"], "seeds": 2, "folds": 2, "epochs": 4}  # 8 networks

RESUMED |= {"recipe": "paper", "hidden": [8], "estimator_params": {"learning_rate_init": 0.01}}

RESUMED |= {"baselines": ["guess", "linear"]}  # boosting takes longer than all else

FEW = RESUMED | {"seeds": 1, "folds": 2, "refit": False}

PLACE = ["activation", "fold", "seed"]

COMMAND = ["compare", "iris.csv", "--target", "kind", "--seeds", "2", "--folds", "3"]

COMMAND += ["--activations", "relu,combu,pln-4", "--hidden", "8", "--epochs", "4"]

COMMAND += ["--baselines", "guess,linear", "--recipe", "paper"]


@pytest.fixture(scope="module")
def small_stacks():
    """Stacks of one or two networks: there is something to interrupt between."""
    with short.small_stacks(2000):
        yield


def write_iris(folder):
    table = X.set_axis(list("abcd"), axis=1).assign(kind=Y.map({0: "p", 1: "q", 2: "r"}))
    table.to_csv(folder / "iris.csv", index=False)


@pytest.fixture
def iris_folder(tmp_path, monkeypatch):
    write_iris(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def networks(path):
    """The networks' records of a journal."""
    records = map(json.loads, Path(path).read_text().splitlines()[1:])
    return [record for record in records if "activation" in record]


def same(found, other):
    for frame in ("results", "baseline_results"):
        left, right = (getattr(each, frame).drop(columns="seconds") for each in (found, other))
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    pd.testing.assert_frame_equal(found.summary, other.summary, check_exact=True)
    assert found.sentences == other.sentences


@pytest.fixture(scope="module")
def whole(small_stacks):
    return compare_activations(X, Y, **RESUMED)


@pytest.fixture(scope="module")
def journal(small_stacks, tmp_path_factory):
    """The bytes that a whole comparison keeps."""
    path = tmp_path_factory.mktemp("journal") / "scores.jsonl"
    compare_activations(X, Y, **RESUMED, refit=False, checkpoint=path, name="data")
    return path.read_bytes()


# ---- in Python -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_jobs", "at"), [(None, 7.0), (2, 2.0)])
def test_interrupted_comparison_continues_to_the_same_results(tmp_path, whole, n_jobs, at):
    def interrupt(done):
        if done >= at:
            raise KeyboardInterrupt

    path = tmp_path / "scores.jsonl"
    with pytest.raises(KeyboardInterrupt):
        compare_activations(X, Y, **RESUMED, checkpoint=path, progress=interrupt, n_jobs=n_jobs)
    kept = networks(path)
    assert len(kept) <= at + 4  # stacks that finish meanwhile
    if n_jobs is None:
        assert len(kept) >= at - 2  # all but those of the stack that was stopped
    seen = []
    found = compare_activations(
        X, Y, **RESUMED, checkpoint=path, progress=seen.append, n_jobs=n_jobs
    )
    same(found, whole)
    assert seen[0] >= len(kept)
    assert seen[-1] == 9
    np.testing.assert_array_equal(
        found.best_estimator.predict_proba(X), whole.best_estimator.predict_proba(X)
    )


def test_a_finished_comparison_trains_nothing_again(tmp_path, whole, monkeypatch):
    path = tmp_path / "new" / "scores.jsonl"
    same(compare_activations(X, Y, **RESUMED, checkpoint=path), whole)
    before = path.read_bytes()
    assert len(networks(path)) == 8

    def train(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr("combutab.estimators._jobs.train_one_stack", train)
    monkeypatch.setattr("combutab.model_selection._comparison.score_baseline", train)
    same(compare_activations(X, Y, **RESUMED, checkpoint=path, refit=False), whole)
    assert path.read_bytes() == before


def test_truncated_journal_is_continued(tmp_path, whole):
    """As after a kill: a torn last line is left out, whole ones are taken over."""
    path = tmp_path / "scores.jsonl"
    compare_activations(X, Y, **RESUMED, checkpoint=path)
    text = path.read_bytes()
    first = text.index(b"\n") + 1
    n_cuts = 4 * BUDGET if BUDGET > 1 else 2
    for cut in np.random.default_rng(0).integers(first, len(text), size=n_cuts):
        path.write_bytes(text[:cut])
        same(compare_activations(X, Y, **RESUMED, checkpoint=path), whole)
        lines = path.read_bytes().splitlines()
        assert len(
            {tuple(json.loads(line).get(p) for p in [*PLACE, "baseline"]) for line in lines[1:]}
        ) == (8 + 4)
        assert len(lines) == 1 + 8 + 4


def test_a_fit_that_failed_is_not_tried_again(tmp_path):
    class Explodes(nn.Module):
        def forward(self, x):
            return x * float("inf")

    activations = {"bad": lambda width: Explodes(), "relu": "relu"}
    path = tmp_path / "scores.jsonl"
    arguments = FEW | {"activations": activations, "checkpoint": path}
    first = compare_activations(X, Y, **arguments)
    again = compare_activations(X, Y, **arguments)
    assert "bad is left out, because 2 of its 2 fits failed: Solver produced" in first.sentences
    same(again, first)
    assert "NaN" not in path.read_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epochs": 5}, "epochs 4 rather than 5"),
        ({"seeds": 3}, "seeds 2 rather than 3"),
        ({"activations": ["relu", "pln-8"]}, "activations relu-combu rather than"),
        ({"random_state": 1}, "random_state 0 rather than 1"),
        ({"estimator_params": {"learning_rate_init": 0.02}}, "learning_rate_init 0.01 rather than"),
        ({"X": X * 1.0000001}, "other values or columns"),
        ({"X": X.astype("float32")}, "other values or columns"),
        ({"y": Y.where(Y.index != 7, 1)}, "other values or columns"),
        ({"name": "flowers"}, "data data rather than flowers"),
    ],
)
def test_scores_of_another_comparison_are_never_mixed_in(tmp_path, journal, change, says):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(journal)
    arguments = {"X": X, "y": Y, "refit": False, "checkpoint": path, "name": "data"} | RESUMED
    other = arguments | change
    with pytest.raises(ComparisonError, match="another") as caught:
        compare_activations(other.pop("X"), other.pop("y"), **other)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == journal


def test_equal_values_of_another_type_are_another_table(tmp_path):
    """1 and True are equal."""
    tables = [pd.DataFrame({"a": [value, "x"] * 20}, dtype=object) for value in (1, True)]
    settings = FEW | {"activations": ["relu"], "baselines": None}
    settings["checkpoint"] = tmp_path / "scores.jsonl"
    compare_activations(tables[0], np.arange(40.0), **settings)
    with pytest.raises(ComparisonError, match="other values or columns"):
        compare_activations(tables[1], np.arange(40.0), **settings)


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def extra_repr(self):
        return f"{self.factor}"

    def forward(self, x):
        return self.factor * x.relu()


def test_modules_of_other_settings_are_other_activations(tmp_path):
    def compare(factor):
        activations = {"scaled": lambda width: Scaled(factor)}
        compare_activations(X, Y, **FEW | {"activations": activations, "checkpoint": path})

    path = tmp_path / "scores.jsonl"
    compare(1.0)
    compare(1.0)
    with pytest.raises(ComparisonError, match="other activations"):
        compare(2.0)


@pytest.mark.parametrize(
    "text", [b"", b"old", b"a,b\n1,2\n", b"[]\n", b'{"format": 2}\n', b"\xff\n"]
)
def test_another_file_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "results.csv"
    path.write_bytes(text)
    with pytest.raises(ComparisonError, match=r"results\.csv.*checkpoint"):
        compare_activations(X, Y, **RESUMED, checkpoint=path)
    assert path.read_bytes() == text


def test_full_disk_ends_the_journal_only(tmp_path, monkeypatch, whole):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("combutab.model_selection._journal.os.fsync", fail)
    with pytest.warns(
        UserWarning,
        match=r"No space left",
    ) as seen:
        found = compare_activations(X, Y, **RESUMED, checkpoint=tmp_path / "scores.jsonl")
    assert len(seen) == 1
    same(found, whole)


# ---- the command ---------------------------------------------------------------------------------


def tables(folder):
    results = pd.read_csv(folder / "results.csv").drop(columns="seconds")
    return results, pd.read_csv(folder / "summary.csv"), (folder / FILES[-1]).read_bytes()


STOPPED = [*COMMAND, "--epochs", "5", "--hidden", "256,256", "--jobs", "1", "--out", "o"]


@pytest.fixture(scope="module")
def unstopped(small_stacks, tmp_path_factory):
    """The tables of a run that nothing stopped."""
    place = tmp_path_factory.mktemp("whole")
    write_iris(place)
    with contextlib.chdir(place):
        assert main(STOPPED) == 0
    return tables(place / "o")


@pytest.mark.slow
@needs_fork
def test_a_command_that_is_stopped_goes_on(iris_folder, unstopped):
    """By Ctrl-C and by a kill, in turn, at moments after one more network than the last has."""
    generator, journal, stops = np.random.default_rng(0), iris_folder / "o" / JOURNAL, set()

    def count():
        return journal.read_bytes().count(b'{"activation"') if journal.exists() else 0

    def slowly():
        jobs = sys.modules["combutab.estimators._jobs"]
        numbers, train = itertools.count(), jobs.train_one_stack

        def train_one_stack(*arguments):
            if next(numbers) == 1:
                time.sleep(100)  # for a signal that is late, which waits for this thread
            return train(*arguments)

        jobs.train_one_stack = train_one_stack
        return main(STOPPED)

    for how in ["SIGINT", "SIGKILL"] * BUDGET:
        n_before = count()
        process = Forked(slowly, iris_folder)
        while process.returncode is None and count() <= n_before:
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.2))
        process.send_signal(getattr(signal, how))
        _, err = process.communicate()
        if process.returncode == 0:  # a longer budget has stopped it often enough
            break
        stops.add(how)
        assert "Traceback" not in err
        assert {path.name for path in (iris_folder / "o").iterdir()} == {JOURNAL}
        n_kept = count()
        assert n_kept > n_before
        if how == "SIGINT":
            assert process.returncode == 130
            assert err.splitlines()[-1] == (
                f"combutab: interrupted; the scores of {n_kept} of 18 networks are kept in "
                f"o/{JOURNAL}; the same command continues from them"
            )
    assert stops == {"SIGINT", "SIGKILL"}
    process = Forked(lambda: main(STOPPED), iris_folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert re.search(rf"\nContinuing from o/{JOURNAL}, with {n_kept} net", err)
    for one, other in zip(tables(iris_folder / "o"), unstopped, strict=True):
        if isinstance(one, bytes):
            assert one == other
        else:
            pd.testing.assert_frame_equal(one, other, check_exact=True)


@pytest.mark.slow
def test_a_folder_of_other_results_is_not_overwritten(iris_folder, capsys, monkeypatch):
    Path("o").mkdir()
    Path("o", "notes.txt").write_text("mine")  # is no obstacle
    assert main([*COMMAND, "--out", "o"]) == 0
    assert Path("o", "notes.txt").read_text() == "mine"
    before = {path.name: path.read_bytes() for path in Path("o").iterdir()}
    for options, says in (
        (["--epochs", "5"], "epochs 4 rather than 5"),
        (["--target", "a", "--task", "regression"], "other values or columns"),
    ):
        capsys.readouterr()
        assert main([*COMMAND, "--out", "o", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "o holds other results (" in err
        assert says in err
        assert err.endswith("or overwrite them with --force\n")
        assert {path.name: path.read_bytes() for path in Path("o").iterdir()} == before
    assert main([*COMMAND, "--out", "o", "--epochs", "5", "--force"]) == 0
    assert pd.read_csv("o/results.csv")["epochs"].eq(5).all()
    # the same again, in whatever folder it is and with whatever number of threads
    Path("o").rename("moved")
    assert main([*COMMAND, "--out", "moved", "--epochs", "5", "--jobs", "1"]) == 0


def test_files_of_unknown_origin_are_not_overwritten(iris_folder, capsys):
    Path("o").mkdir()
    for name in FILES:
        Path("o", name).write_text("mine")
        assert main([*COMMAND, "--out", "o"]) == 2
        assert f"o holds other results ({name} without {JOURNAL})" in capsys.readouterr().err
        assert [(path.name, path.read_text()) for path in Path("o").iterdir()] == [(name, "mine")]
        Path("o", name).unlink()
    for name in FILES:
        Path("o", name).write_text("mine")
    fewer = ["--seeds", "1", "--folds", "2", "--activations", "relu,combu"]
    assert main([*COMMAND, *fewer, "--out", "o", "--force"]) == 0
    assert b"mine" not in [Path("o", name).read_bytes() for name in FILES]
