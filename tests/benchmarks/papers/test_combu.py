"""The study runner: what a row says can be repeated, and nothing finished is ever lost."""

import itertools
import json
import math
import os
import re
import signal
import sqlite3
import time
from argparse import Namespace
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.metrics import f1_score, mean_absolute_error

from benchmarks.common.results import Store
from benchmarks.outputs import read_text, write_text
from benchmarks.papers.combu import generation, report, sources, study
from benchmarks.papers.combu import table7_generation as table7
from benchmarks.papers.combu.expected import ACTIVATIONS
from combutab import MLPClassifier, MLPRegressor
from combutab.datasets import make_formula
from combutab.evaluation import friedman
from tests.trust.forked import Forked, needs_fork

RECIPE = study.Recipe(hidden=(16,), epochs=3, batch_size=40)

GS = sources.Source("formula", "gs", "regression", n_samples=100)

LABELS = replace(GS, task="classification")

TWO = study.Protocol("two", n_splits=2, n_seeds=2)

RESULTS = Path(study.__file__).parent / "results"


def run_study(path, activations=("relu", "combu"), recipe=RECIPE, data=(GS, LABELS), jobs=1):
    fits = study.make_fits(data, [TWO], activations, recipe)
    name = path.name.removesuffix(".csv.gz")
    experiment = study.experiment(name, lambda arguments: study.fit_jobs(fits))
    return experiment.complete(Namespace(out=path.parent, jobs=jobs))


def lines_without_seconds(path):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return table.drop(columns="seconds").to_csv(index=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "all.csv.gz"
    run_study(path)
    return path


@pytest.mark.usefixtures("paper_defaults")
def test_rows_can_be_reproduced_from_what_they_say(finished):
    rows = pd.read_csv(finished)
    for row in rows.iloc[[3, 14]].itertuples():
        X, y = make_formula(row.data, 100, task=row.task, random_state=row.data_random_state)
        train, test = TWO.splits(replace(GS, task=row.task))[row.split]
        same = ("activation", "batch_size", "learning_rate_init", "dropout", "random_state")
        params = {"hidden_layer_sizes": (int(row.hidden),), "max_iter": row.epochs, "alpha": 0.0}
        params |= {"n_iter_no_change": np.inf} | {name: getattr(row, name) for name in same}
        assert (len(train), len(test)) == (row.n_train, row.n_test) == (80, 20)
        if row.task == "regression":
            net = MLPRegressor(**params).fit(X.iloc[train], y[train])
            error = mean_absolute_error(y[test], net.predict(X.iloc[test])) / y[train].std(ddof=0)
            assert row.mae == pytest.approx(error, rel=1e-4)
            assert row.target_std_train == pytest.approx(y[train].std(ddof=0))
            assert row.target_std_all == pytest.approx(y.std(ddof=0))
        else:
            net = MLPClassifier(**params).fit(X.iloc[train], y[train])
            expected = f1_score(y[test], net.predict(X.iloc[test]), average="macro")
            assert row.f1 == pytest.approx(expected)


def test_finished_rows_are_not_trained_again(finished, tmp_path, monkeypatch):
    path = tmp_path / "all.csv.gz"
    run_study(path, activations=["relu"])
    before = read_text(path).splitlines()
    trained = []
    train_chunk = study.train_chunk
    monkeypatch.setattr(study, "train_chunk", lambda own: trained.extend(own) or train_chunk(own))
    with parallel_config(backend="threading"):
        rows = run_study(path)
    assert {fit.activation for fit in trained} == {"combu"}
    assert len(rows) == 16
    assert set(before) <= set(read_text(path).splitlines())  # their seconds too
    assert lines_without_seconds(path) == lines_without_seconds(finished)
    run_study(path, activations=["relu"])  # a smaller study keeps what a larger one found
    assert len(pd.read_csv(path)) == 16


def drive(*paths):
    """Twelve networks, long enough to be stopped."""
    recipe = replace(RECIPE, hidden=(32,), epochs=30)
    for path in paths:
        run_study(path, ["relu", "combu", "elu"], recipe, [replace(GS, n_samples=200)])


def stop(path, finished, how):
    """Drive in a process of its own, until a signal when so many more networks are finished."""
    numbers, train = itertools.count(), study.train_chunk

    def train_chunk(fits):
        if next(numbers) == finished + 2:
            time.sleep(500)  # for a signal that is late
        return train(fits)

    def slowly():
        study.train_chunk = train_chunk
        drive(path)

    ours, theirs = os.pipe()
    process = Forked(slowly, path.parent, [theirs, theirs])
    os.close(theirs)
    with open(ours) as shown:
        reports = (line for line in shown if line.startswith("["))
        list(zip(range(finished), reports, strict=False))
        process.send_signal(how)
        process.communicate()
    return process


@needs_fork
def test_killed_study_continues_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "CHUNK", 1)
    whole, path = tmp_path / "whole.csv.gz", tmp_path / "killed.csv.gz"
    process = stop(path, 3, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was too fast to be killed"
    with closing(sqlite3.connect(path.with_suffix(".journal"))) as connection:
        killed = connection.execute("SELECT row FROM rows ORDER BY rowid").fetchall()
    killed = [json.loads(row) for (row,) in killed]
    assert 3 <= len(killed) < 12
    process = stop(path, 2, signal.SIGINT)
    assert process.returncode != 0
    assert [file.name for file in tmp_path.iterdir()] == ["killed.csv.gz"]
    stopped = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    assert len(killed) + 2 <= len(stopped) < 12
    drive(path, whole)
    assert lines_without_seconds(path) == lines_without_seconds(whole)
    assert {file.name for file in tmp_path.iterdir()} == {"whole.csv.gz", "killed.csv.gz"}
    ended = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    for kept in (killed, stopped):  # nothing finished was trained again: their seconds are there
        assert all(any(row.items() <= other.items() for other in ended) for row in kept)


def test_rows_of_other_settings_are_refused(finished, tmp_path):
    before = finished.read_bytes()
    with pytest.raises(ValueError, match=r"epochs=3.*epochs=4.*--out"):
        run_study(finished, recipe=replace(RECIPE, epochs=4))
    assert finished.read_bytes() == before
    other = tmp_path / "other.csv.gz"
    write_text(other, "a,b\n1,2\n")
    with pytest.raises(ValueError, match="other columns"):
        run_study(other)
    assert read_text(other) == "a,b\n1,2\n"


def test_two_processes_cannot_write_to_one_file(tmp_path):
    first, second = (Store(tmp_path / "all.csv.gz", study.SETTINGS, study.KEY) for _ in range(2))
    with first.open([]), pytest.raises(RuntimeError, match="another process"), second.open([]):
        pass


def test_diverging_network_has_no_scores(tmp_path):
    diverging = replace(RECIPE, learning_rate_init=1e30)
    rows = run_study(tmp_path / "all.csv.gz", recipe=diverging, data=[GS])
    assert rows["error"].str.contains("non-finite").all()
    assert rows["mae"].isna().all()


def test_a_grouped_split_keeps_equal_rows_together(monkeypatch):
    X = pd.DataFrame({"a": [1.0, np.nan, 2.0, 3.0] * 10, "b": ["x", None, "y", "y"] * 10})
    X.loc[39] = [9.0, "z"]
    copies = sources.Source("openml", "copies", "regression")
    monkeypatch.setattr(sources, "_load", lambda source: (X, pd.Series(np.arange(40.0))))
    groups = copies.row_groups()
    assert len(set(groups)) == 5
    fits = study.make_fits([copies], study.PROTOCOLS.values(), ["relu"])
    assert {fit.protocol.name for fit in fits} == set(study.PROTOCOLS)
    content = X["a"].map(repr) + X["b"].map(repr)
    assert pd.Series(groups).groupby(content).nunique().eq(1).all()
    for train, test in replace(TWO, grouped=True).splits(copies):
        assert not set(content[train]) & set(content[test])
        assert len(train) + len(test) == 40
    assert any(set(content[train]) & set(content[test]) for train, test in TWO.splits(copies))


@pytest.mark.parametrize(("n_rows", "hidden", "epochs"), [(999, 2, 500), (1000, 5, 200)])
def test_sizes_and_epochs_follow_the_paper(n_rows, hidden, epochs):
    recipe = study.paper_recipe(n_rows)
    assert (len(recipe.hidden), recipe.epochs, recipe.batch_size) == (hidden, epochs, 500)


# ---- The studies' reports: hand-worked cells, ranks and comparisons -----------------------------


def fits(data, activation, scores, *, task="regression", seeds=None, **columns):
    """Rows of one activation: ``scores`` of both metrics, a seed each, or splits of ``seeds``."""
    table = []
    for i, score in enumerate(scores):
        split, seed = divmod(i, seeds) if seeds else (0, i)
        row = {"protocol": "paper", "data": data, "task": task, "activation": activation}
        row |= {"split": split, "seed": seed, "n_train": 80, "n_test": 20}
        row |= dict.fromkeys(("mae", "mse", "accuracy", "f1"), np.nan)
        row |= dict.fromkeys(report.TASK_METRICS[task], score)
        table.append(row | columns)
    return table


def formulas(lines):
    """Rows of the seven activations; ``lines``: formula -> MAE of each."""
    rows = [
        row
        for data, scores in lines.items()
        for name, score in zip(ACTIVATIONS, scores, strict=True)
        for row in fits(data, name, [score], loss_curve="1 1 1", metric_curve="1 1 1")
    ]
    return pd.DataFrame(rows)


STUDIES = (RESULTS.parents[2] / "STUDIES.md").read_text("utf-8")


def test_the_counts_and_p_values_that_are_told():
    """The table's cells reproduced are the pages', and Friedman's p-values those of the rows."""
    lines = re.findall(
        r"^\| .*\(papers/combu/results/(\w+\.md)\).*\| (.*) \|$", STUDIES, re.MULTILINE
    )
    assert len(lines) == 5
    for page, told in lines:
        reproduced = (RESULTS / page).read_text("utf-8").partition("Reproduced, ")[2]
        for count in re.findall(r"\d+ of \d+", told):
            assert count in reproduced.partition("A cell")[0]
    rows = pd.read_csv(RESULTS / "table3_formulas.csv.gz")
    p = {m: friedman(report.ranks(rows, m)).pvalue for m in report.METRICS}
    assert f"(p = {p.pop('mae'):.3f})" in STUDIES
    assert f"between {min(p.values()):.2f} and {max(p.values()):.2f})" in STUDIES


# ---- Table 7's study: rows can be repeated, a kill loses nothing finished, the report counts


@pytest.mark.usefixtures("paper_defaults")
def test_scores_are_reproducible_from_their_row(tmp_path):
    stack = [generation.Generator(GS, "tvae", name, 1, 1, 2) for name in ("relu", "combu")]
    recipe, learners = study.Recipe(hidden=(8,), epochs=2), ("mlp", "boosting")
    wanted = [
        generation.Score(*each, recipe) for each in itertools.product(stack, (0, 1), learners)
    ]
    experiment = replace(table7.SCORES, name="rows", jobs=lambda arguments: table7.jobs(wanted))
    rows = experiment.complete(Namespace(out=tmp_path, jobs=1))
    train, test = generation.split(GS)
    _, (_, sample) = generation.generate(stack)[1]
    net = MLPRegressor(
        activation="relu", hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=math.inf,
        learning_rate_init=5e-4, dropout=0.1, alpha=0.0, random_state=11,
    ).fit(sample.drop(columns="target"), sample["target"])  # fmt: skip
    error = net.predict(test.drop(columns="target")) - test["target"]
    error /= train["target"].std(ddof=0)
    last_mlp, last_boosting = rows.iloc[-2], rows.iloc[-1]
    assert last_mlp["mae"] == pytest.approx(error.abs().mean(), rel=1e-4)
    assert last_mlp["mse"] == pytest.approx((error**2).mean(), rel=1e-4)
    assert last_mlp["target_std_train"] == pytest.approx(train["target"].std(ddof=0))
    assert (last_mlp["n_train"], last_mlp["n_test"]) == (len(train), len(test)) == (80, 20)
    assert last_boosting["mae"] != last_mlp["mae"]
