"""The study runner: what a row says can be repeated, and nothing finished is ever lost."""

from __future__ import annotations

import itertools
import json
import os
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

from benchmarks.papers.combu import (
    sources,
    study,
    table3_formulas,
    table5_classification,
    table6_regression,
)
from benchmarks.papers.common.results import Store
from combutab import MLPClassifier, MLPRegressor
from combutab.datasets import make_formula
from tests.trust.forked import Forked, needs_fork

ROOT = Path(__file__).parents[3]
DATA_HOME = ROOT.parent / "shared" / "data"


needs_data = pytest.mark.skipif(not DATA_HOME.is_dir(), reason="needs ../shared/data")

RECIPE = study.Recipe(hidden=(16,), epochs=3, batch_size=40)
GS = sources.Source("formula", "gs", "regression", n_samples=100)
LABELS = replace(GS, task="classification")
TWO = study.Protocol("two", n_splits=2, n_seeds=2)


def run_study(path, activations=("relu", "combu"), recipe=RECIPE, data=(GS, LABELS), jobs=1):
    fits = study.make_fits(data, [TWO], activations, recipe)
    experiment = study.experiment(path.stem, lambda arguments: study.fit_jobs(fits))
    return experiment.complete(Namespace(out=path.parent, jobs=jobs))


def lines_without_seconds(path):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return table.drop(columns="seconds").to_csv(index=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "all.csv"
    run_study(path)
    return path


def test_a_row_for_every_network_in_order(finished):
    rows = pd.read_csv(finished)
    assert list(rows) == list(study.COLUMNS)
    keys = rows[list(study.KEY)].astype(str).agg("/".join, axis=1).tolist()
    assert keys == [
        f"two/gs/{task}/{activation}/{split}/{seed}"
        for task in ("regression", "classification")
        for split in (0, 1)
        for activation in ("relu", "combu")
        for seed in (0, 1)
    ]
    assert rows["error"].isna().all()


@pytest.mark.usefixtures("paper_defaults")
def test_rows_can_be_reproduced_from_what_they_say(finished):
    rows = pd.read_csv(finished)
    for row in rows.iloc[[3, 14]].itertuples():
        X, y = make_formula(row.data, 100, task=row.task, random_state=row.data_random_state)
        train, test = TWO.splits(replace(GS, task=row.task))[row.split]
        params = {
            "activation": row.activation,
            "hidden_layer_sizes": (int(row.hidden),),
            "max_iter": row.epochs,
            "batch_size": row.batch_size,
            "learning_rate_init": row.learning_rate_init,
            "dropout": row.dropout,
            "alpha": 0.0,
            "random_state": row.random_state,
            "n_iter_no_change": np.inf,
        }
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


def test_activations_share_rows_and_seeds(finished):
    rows = pd.read_csv(finished).query("task == 'regression'")
    shared = rows.groupby(["split", "seed"])[["random_state", "target_std_train"]].nunique()
    assert (shared == 1).all(axis=None)
    assert rows.groupby("split")["target_std_train"].first().nunique() == 2
    assert rows["random_state"].nunique() == 4


def test_processes_give_the_same_file(finished, tmp_path):
    path = tmp_path / "all.csv"
    run_study(path, jobs=2)
    assert lines_without_seconds(path) == lines_without_seconds(finished)


def test_finished_rows_are_not_trained_again(finished, tmp_path, monkeypatch):
    path = tmp_path / "all.csv"
    run_study(path, activations=["relu"])
    before = path.read_text().splitlines()
    trained = []
    train_chunk = study.train_chunk
    monkeypatch.setattr(
        study, "train_chunk", lambda fits: trained.extend(fits) or train_chunk(fits)
    )
    with parallel_config(backend="threading"):
        rows = run_study(path)
    assert {fit.activation for fit in trained} == {"combu"}
    assert len(rows) == 16
    assert set(before) <= set(path.read_text().splitlines())  # their seconds too
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
        for _, _ in zip(range(finished), reports, strict=False):
            pass
        process.send_signal(how)
        process.communicate()
    return process


@needs_fork
def test_killed_or_interrupted_it_goes_on_where_it_stood(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "CHUNK_OPERATIONS", {"cpu": 1})  # each network alone
    whole, path = tmp_path / "whole.csv", tmp_path / "killed.csv"
    process = stop(path, 3, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was too fast to be killed"
    with closing(sqlite3.connect(path.with_suffix(".journal"))) as connection:
        killed = connection.execute("SELECT row FROM rows ORDER BY rowid").fetchall()
    killed = [json.loads(row) for (row,) in killed]
    assert 3 <= len(killed) < 12
    process = stop(path, 2, signal.SIGINT)
    assert process.returncode != 0
    assert [file.name for file in tmp_path.iterdir()] == ["killed.csv"]
    stopped = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    assert len(killed) + 2 <= len(stopped) < 12
    drive(path, whole)
    assert lines_without_seconds(path) == lines_without_seconds(whole)
    assert {file.name for file in tmp_path.iterdir()} == {"whole.csv", "killed.csv"}
    ended = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    for kept in (killed, stopped):  # nothing finished was trained again: their seconds are there
        assert all(any(row.items() <= other.items() for other in ended) for row in kept)


def test_rows_of_other_settings_are_refused(finished, tmp_path):
    before = finished.read_bytes()
    with pytest.raises(ValueError, match=r"epochs=3, this study wants epochs=4.*--out"):
        run_study(finished, recipe=replace(RECIPE, epochs=4))
    assert finished.read_bytes() == before
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="other columns"):
        run_study(other)
    assert other.read_text() == "a,b\n1,2\n"


def test_two_processes_cannot_write_to_one_file(tmp_path):
    store = Store(tmp_path / "all.csv", study.COLUMNS, study.KEY)
    with (
        store.open([]),
        pytest.raises(RuntimeError, match="another process"),
        Store(store.path, study.COLUMNS, study.KEY).open([]),
    ):
        pass


def test_a_network_that_diverges_has_an_error_and_no_scores(tmp_path):
    diverging = replace(RECIPE, learning_rate_init=1e30)
    rows = run_study(tmp_path / "all.csv", recipe=diverging, data=[GS])
    assert rows["error"].str.contains("non-finite").all()
    assert rows["mae"].isna().all()


def test_curves_are_means_over_blocks_of_epochs(tmp_path):
    recipe = replace(RECIPE, epochs=5, curve_block=2)
    rows = run_study(tmp_path / "all.csv", ["relu"], recipe)
    curves = rows["loss_curve"].str.split()
    assert curves.str.len().eq(3).all()  # of 2, 2 and 1 epochs
    fit = study.make_fits([GS], [TWO], ["relu"], recipe)[0]
    X, y = GS.load()
    train, _ = TWO.splits(GS)[0]
    history = fit.estimator().fit(X.iloc[train], y[train]).history_
    expected = 2 * history["train_loss"].to_numpy()
    first = [float(value) for value in curves[0]]
    assert first == pytest.approx(
        [expected[:2].mean(), expected[2:4].mean(), expected[4]], rel=1e-3
    )
    metric = [float(value) for value in rows["metric_curve"][0].split()]
    assert metric[2] == pytest.approx(history["train_metric"].iloc[-1], rel=1e-3)


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


def test_sets_without_equal_rows_have_one_sound_protocol():
    protocols = [study.PROTOCOLS["sound"], study.PROTOCOLS["sound-ungrouped"]]
    names = {fit.protocol.name for fit in study.make_fits([GS], protocols, ["relu"])}
    assert names == {"sound"}


@pytest.mark.parametrize(("n_rows", "hidden", "epochs"), [(999, 2, 500), (1000, 5, 200)])
def test_sizes_and_epochs_follow_the_paper(n_rows, hidden, epochs):
    recipe = study.paper_recipe(n_rows)
    assert (len(recipe.hidden), recipe.epochs, recipe.batch_size) == (hidden, epochs, 500)


def test_the_papers_protocol_and_the_sound_one():
    paper, sound = study.PROTOCOLS["paper"], study.PROTOCOLS["sound"]
    assert (paper.n_splits, paper.n_seeds) == (1, 5)
    assert sound.n_splits >= 10
    assert sound.n_seeds >= 3
    assert sound.grouped


@needs_data
@pytest.mark.parametrize(
    ("module", "data", "ungrouped"),
    [(table5_classification, "breast-w", True), (table6_regression, "autoMpg", False)],
)
def test_the_sets_with_equal_rows_run_both_ways(module, data, ungrouped):
    arguments = Namespace(
        quick=False, device="cpu", data_home=str(DATA_HOME), data=[data],
        protocols=list(study.PROTOCOLS), activations=["relu"],
    )  # fmt: skip
    jobs = module.STUDY.experiments[0].jobs(arguments)
    rows = pd.DataFrame([settings for job in jobs for settings in job.wanted])
    assert set(rows["data"]) == {data}
    networks = rows["protocol"].value_counts().to_dict()
    assert networks == {"paper": 5, "sound": 30} | ({"sound-ungrouped": 30} if ungrouped else {})


@pytest.mark.parametrize("names", [["paper"], ["all"], ["combu", "relu+ln+proxy"]])
def test_choosing_activations(names):
    chosen = study.choose_activations(names, study.VARIANTS)
    assert len(chosen) == {"paper": 7, "all": 14}.get(names[0], 2)
    assert set(chosen) <= set(study.VARIANTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick", "--data", "xx"], r"table3_formulas: no data set 'xx'; it has gs, ar$"),
        (["--report"], r"table3_formulas: .*No such file.*table3_formulas.csv'$"),
    ],
)
def test_unknown_data_and_a_missing_file_are_said_in_one_line(arguments, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        table3_formulas.STUDY.main([*arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="--out"):
        table3_formulas.STUDY.main(["--quick"])
