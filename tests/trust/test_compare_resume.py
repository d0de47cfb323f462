"""compare: what is interrupted or killed goes on from finished networks, with the same results."""

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from torch import nn

from combutab.cli import main
from combutab.cli._compare import FILES, JOURNAL
from combutab.estimators import _jobs
from combutab.model_selection import ComparisonError, compare_activations
from tests.trust.forked import Forked, needs_fork

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
X, Y = load_iris(return_X_y=True, as_frame=True)
SMALL = {"activations": ["relu", "combu", "pln-4"], "seeds": 2, "folds": 3, "epochs": 4}
SMALL |= {"hidden": [8], "estimator_params": {"learning_rate_init": 0.01}}
SMALL |= {"baselines": ["guess", "linear"]}  # boosting takes longer than all else
FEW = SMALL | {"seeds": 1, "folds": 2, "refit": False}
PLACE = ["activation", "fold", "seed"]
ARGUMENTS = ["compare", "iris.csv", "--target", "kind", "--seeds", "2", "--folds", "3"]
ARGUMENTS += ["--activations", "relu,combu,pln-4", "--hidden", "8", "--epochs", "4"]
ARGUMENTS += ["--baselines", "guess,linear"]


@pytest.fixture(autouse=True)
def small_stacks(monkeypatch):
    """Stacks of one or two networks: there is something to interrupt between."""
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 2000)


def write_iris(folder):
    table = X.set_axis(list("abcd"), axis=1).assign(kind=Y.map({0: "p", 1: "q", 2: "r"}))
    table.to_csv(folder / "iris.csv", index=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
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
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_jobs._STACK_UNITS, "cpu", 2000)
        return compare_activations(X, Y, **SMALL)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The bytes that a whole comparison keeps."""
    path = tmp_path_factory.mktemp("journal") / "scores.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_jobs._STACK_UNITS, "cpu", 2000)
        compare_activations(X, Y, **SMALL, refit=False, checkpoint=path, name="data")
    return path.read_bytes()


# ---- in Python -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_jobs", "at"), [(None, 0.5), (None, 17.0), (2, 3.0)])
def test_an_interrupted_comparison_goes_on_with_the_same_results(tmp_path, whole, n_jobs, at):
    def interrupt(done):
        if done >= at:
            raise KeyboardInterrupt

    path = tmp_path / "scores.jsonl"
    with pytest.raises(KeyboardInterrupt):
        compare_activations(X, Y, **SMALL, checkpoint=path, progress=interrupt, n_jobs=n_jobs)
    kept = networks(path)
    assert len(kept) <= at + 4  # stacks that finish meanwhile
    if n_jobs is None:
        assert len(kept) >= at - 2  # all but those of the stack that was stopped
    seen = []
    found = compare_activations(X, Y, **SMALL, checkpoint=path, progress=seen.append, n_jobs=n_jobs)
    same(found, whole)
    assert seen[0] >= len(kept)
    assert seen[-1] == 19
    np.testing.assert_array_equal(
        found.best_estimator.predict_proba(X), whole.best_estimator.predict_proba(X)
    )


def test_a_finished_comparison_trains_nothing_again(tmp_path, whole, monkeypatch):
    path = tmp_path / "new" / "scores.jsonl"
    same(compare_activations(X, Y, **SMALL, checkpoint=path), whole)
    before = path.read_bytes()
    assert len(networks(path)) == 18

    def train(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(_jobs, "train_one_stack", train)
    monkeypatch.setattr("combutab.model_selection._comparison.score_baseline", train)
    same(compare_activations(X, Y, **SMALL, checkpoint=path, refit=False), whole)
    assert path.read_bytes() == before


def test_a_file_that_is_cut_anywhere_is_gone_on_from(tmp_path, whole):
    """As after a kill: a torn last line is left out, whole ones are taken over."""
    path = tmp_path / "scores.jsonl"
    compare_activations(X, Y, **SMALL, checkpoint=path)
    text = path.read_bytes()
    first = text.index(b"\n") + 1
    n_cuts = 4 * BUDGET if BUDGET > 1 else 2
    for cut in np.random.default_rng(0).integers(first, len(text), size=n_cuts):
        path.write_bytes(text[:cut])
        same(compare_activations(X, Y, **SMALL, checkpoint=path), whole)
        lines = path.read_bytes().splitlines()
        assert len(
            {tuple(json.loads(line).get(p) for p in [*PLACE, "baseline"]) for line in lines[1:]}
        ) == (18 + 6)
        assert len(lines) == 1 + 18 + 6


def test_a_fit_that_failed_is_not_tried_again(tmp_path):
    class Explodes(nn.Module):
        def forward(self, x):
            return x * float("inf")

    activations = {"bad": lambda width: Explodes(), "relu": "relu"}
    path = tmp_path / "scores.jsonl"
    arguments = FEW | {"activations": activations, "checkpoint": path}
    first = compare_activations(X, Y, **arguments)
    again = compare_activations(X, Y, **arguments)
    assert "bad is left out, 2 of its 2 fits failed: Solver produced" in first.sentences
    same(again, first)
    assert "NaN" not in path.read_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epochs": 5}, "epochs 4 rather than 5"),
        ({"seeds": 3}, "seeds 2 rather than 3"),
        ({"folds": 4}, "folds 3 rather than 4"),
        ({"hidden": [8, 8]}, "hidden 8 rather than 8-8"),
        ({"activations": ["relu", "combu", "pln-8"]}, "activations relu-combu-pln-4 rather than"),
        ({"metric": "f1"}, "metric accuracy rather than f1"),
        ({"random_state": 1}, "random_state 0 rather than 1"),
        ({"baselines": "guess"}, "baselines guess-linear rather than guess"),
        ({"estimator_params": {"learning_rate_init": 0.02}}, "learning_rate_init 0.01 rather than"),
        ({"X": X * 1.0000001}, "other values or columns"),
        ({"X": X.set_axis(list("abcd"), axis=1)}, "other values or columns"),
        ({"X": X.astype("float32")}, "other values or columns"),
        ({"X": X.to_numpy()}, "other values or columns"),
        ({"X": X.iloc[::-1]}, "other values or columns"),
        ({"y": Y.where(Y.index != 7, 1)}, "other values or columns"),
        ({"recipe": "default"}, "recipe paper rather than default"),
        ({"name": "flowers"}, "data data rather than flowers"),
    ],
)
def test_scores_of_another_comparison_are_never_mixed_in(tmp_path, journal, change, says):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(journal)
    arguments = {"X": X, "y": Y, "refit": False, "checkpoint": path, "name": "data"} | SMALL
    other = arguments | change
    with pytest.raises(ComparisonError, match="holds the scores of another comparison") as caught:
        compare_activations(other.pop("X"), other.pop("y"), **other)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == journal


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
    with pytest.raises(ComparisonError, match=r"results\.csv is no file of kept scores"):
        compare_activations(X, Y, **SMALL, checkpoint=path)
    assert path.read_bytes() == text


def test_a_disk_that_fills_up_ends_the_journal_and_not_the_training(tmp_path, monkeypatch, whole):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("combutab.model_selection._journal.os.fsync", fail)
    with pytest.warns(UserWarning, match=r"no longer kept in .*: No space left on device") as seen:
        found = compare_activations(X, Y, **SMALL, checkpoint=tmp_path / "scores.jsonl")
    assert len(seen) == 1
    same(found, whole)


# ---- the command ---------------------------------------------------------------------------------


def tables(folder):
    results = pd.read_csv(folder / "results.csv").drop(columns="seconds")
    return results, pd.read_csv(folder / "summary.csv"), (folder / FILES[-1]).read_bytes()


STOPPED = [*ARGUMENTS, "--epochs", "40", "--hidden", "256,256", "--jobs", "1", "--out", "o"]


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory):
    """The tables of a run that nothing stopped."""
    place = tmp_path_factory.mktemp("whole")
    write_iris(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_jobs._STACK_UNITS, "cpu", 2000)
        patch.chdir(place)
        assert main(STOPPED) == 0
    return tables(place / "o")


@needs_fork
def test_a_command_that_is_stopped_goes_on(folder, unstopped):
    """By Ctrl-C and by a kill, in turn, at moments after one more network than the last has."""
    generator, journal, stops = np.random.default_rng(0), folder / "o" / JOURNAL, set()

    def count():
        return journal.read_bytes().count(b'{"activation"') if journal.exists() else 0

    def slowly():
        numbers, train = itertools.count(), _jobs.train_one_stack

        def train_one_stack(*arguments):
            if next(numbers) == 3:
                time.sleep(500)  # for a signal that is late
            return train(*arguments)

        _jobs.train_one_stack = train_one_stack
        return main(STOPPED)

    for how in ["SIGINT", "SIGKILL"] * BUDGET:
        n_before = count()
        process = Forked(slowly, folder)
        while process.returncode is None and count() <= n_before:
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.2))
        process.send_signal(getattr(signal, how))
        _, err = process.communicate()
        if process.returncode == 0:  # a longer budget has stopped it often enough
            break
        stops.add(how)
        assert "Traceback" not in err
        assert {path.name for path in (folder / "o").iterdir()} == {JOURNAL}
        n_kept = count()
        assert n_kept > n_before
        if how == "SIGINT":
            assert process.returncode == 130
            assert err.splitlines()[-1] == (
                f"combutab: interrupted; the scores of {n_kept} of 18 networks are kept in "
                f"o/{JOURNAL}: the same command goes on from them"
            )
    assert stops == {"SIGINT", "SIGKILL"}
    process = Forked(lambda: main(STOPPED), folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert re.search(rf"\n{n_kept} of them are trained: going on from o/{JOURNAL}\n", err)
    for one, other in zip(tables(folder / "o"), unstopped, strict=True):
        if isinstance(one, bytes):
            assert one == other
        else:
            pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_a_folder_of_other_results_is_not_overwritten(folder, capsys, monkeypatch):
    Path("o").mkdir()
    Path("o", "notes.txt").write_text("mine")  # is no obstacle
    assert main([*ARGUMENTS, "--out", "o"]) == 0
    assert Path("o", "notes.txt").read_text() == "mine"
    before = {path.name: path.read_bytes() for path in Path("o").iterdir()}
    for options, says in (
        (["--epochs", "5"], "epochs 4 rather than 5"),
        (["--target", "a", "--task", "regression"], "other values or columns"),
    ):
        capsys.readouterr()
        assert main([*ARGUMENTS, "--out", "o", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "o holds other results (" in err
        assert says in err
        assert err.endswith("or overwrite them with --force\n")
        assert {path.name: path.read_bytes() for path in Path("o").iterdir()} == before
    assert main([*ARGUMENTS, "--out", "o", "--epochs", "5", "--force"]) == 0
    assert pd.read_csv("o/results.csv")["epochs"].eq(5).all()
    # the same again, in whatever folder it is and with whatever number of threads
    Path("o").rename("moved")
    assert main([*ARGUMENTS, "--out", "moved", "--epochs", "5", "--jobs", "1"]) == 0


def test_files_of_unknown_origin_are_not_overwritten(folder, capsys):
    Path("o").mkdir()
    for name in FILES:
        Path("o", name).write_text("mine")
        assert main([*ARGUMENTS, "--out", "o"]) == 2
        assert f"o holds other results ({name} without {JOURNAL})" in capsys.readouterr().err
        assert [(path.name, path.read_text()) for path in Path("o").iterdir()] == [(name, "mine")]
        Path("o", name).unlink()
    for name in FILES:
        Path("o", name).write_text("mine")
    assert main([*ARGUMENTS, "--out", "o", "--force"]) == 0
    assert b"mine" not in [Path("o", name).read_bytes() for name in FILES]
