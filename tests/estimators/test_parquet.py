"""Parquet: fit_parquet learns what fit learns, in parts; predict_parquet writes all or nothing."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier, MLPRegressor
from combutab.core.text import parse_bytes
from combutab.estimators import _streaming
from combutab.estimators._streaming import MemoryPlan, ParquetRows
from tests.trust.test_writing import limited

pa = pytest.importorskip("pyarrow")
fs = pytest.importorskip("pyarrow.fs")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.usefixtures("paper_defaults")


FEATURES = ["a", "b", "c", "city", "code", "flag"]


EXACT = {
    "hidden_layer_sizes": (16, 16),
    "max_iter": 4,
    "n_iter_no_change": math.inf,
    "random_state": 0,
    "device": "cpu",
    "batch_size": 100,
}


def make_table(n: int = 1200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)).astype(np.float32), columns=["a", "b", "c"])
    frame["city"] = np.array(["Rome", "Oslo", "Lima"], dtype=object)[rng.integers(0, 3, n)]
    frame["code"] = np.array([f"c{i}" for i in range(60)], dtype=object)[rng.integers(0, 60, n)]
    frame["flag"] = rng.random(n) < 0.3
    frame["y"] = np.sin(frame["a"]) + frame["b"] * frame["flag"] + (frame["city"] == "Rome")
    frame.loc[rng.random(n) < 0.1, ["c", "city"]] = np.nan, None
    frame["weight"] = rng.integers(0, 3, n).astype(float)
    frame["label"] = np.array(["low", "mid", "top"], dtype=object)[np.digitize(frame["y"], [0, 1])]
    return frame


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    make_table().to_parquet(path, row_group_size=100)
    return path


def windows_of(n_rows: int, lanes: int = 3, read: int = 100):
    """Within, streamed fits have windows of this many rows."""
    plan = MemoryPlan(read, lanes, n_rows)
    return mock.patch.object(_streaming, "plan_memory", return_value=plan)


def in_memory(estimator, path, target, weight=None):
    frame = pd.read_parquet(path)
    return estimator.fit(frame[FEATURES], frame[target], None if weight is None else frame[weight])


CASES = {  # weights have no say in any of it: every other case has some
    "regressor": (MLPRegressor, "y", None, {}),
    "members": (MLPRegressor, "y", "weight", {"n_members": 3, "dropout": 0.0}),
    "quantile": (MLPRegressor, "y", None, {"loss": "quantile", "numeric_encoding": "quantile"}),
    "double": (MLPRegressor, "y", "weight", {"precision": "float64", "solver": "sgd"}),
    "classifier": (MLPClassifier, "label", None, {}),
    "balanced": (
        *(MLPClassifier, "label", "weight"),
        {"class_weight": "balanced", "label_smoothing": 0.1},
    ),
    "two": (MLPClassifier, "flag", None, {"class_weight": {False: 1.0, True: 3.0}}),
    "embedded": (MLPClassifier, "label", "weight", {"max_onehot": 2, "normalization": "batch"}),
}


@pytest.mark.parametrize("name", CASES)
def test_fit_parquet_equals_fit_in_memory(file, name):
    kind, target, weight, parameters = CASES[name]
    frame = pd.read_parquet(file)
    columns = [column for column in FEATURES if column != target]
    expected = kind(**EXACT, **parameters).fit(
        frame[columns], frame[target], None if weight is None else frame[weight]
    )
    found = kind(**EXACT, **parameters)
    result = found.fit_parquet(
        file, target, columns=columns, sample_weight=weight, memory_limit="200MB"
    )
    assert result is found
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)
    method = "predict_proba" if kind is MLPClassifier else "predict"
    told = found.predict_parquet(file, method)
    wanted = getattr(expected, method)(frame[columns])
    np.testing.assert_allclose(told, wanted, rtol=1e-4, atol=1e-5)
    assert vars(found).keys() == vars(expected).keys()
    for name in ("t_", "n_iter_", "n_outputs_"):
        assert getattr(found, name) == getattr(expected, name)
    if kind is MLPClassifier:
        assert found.classes_.tolist() == expected.classes_.tolist()
        assert found.classes_.dtype == expected.classes_.dtype
    assert found.get_params() == kind(**EXACT, **parameters).get_params()


def test_one_column_by_its_name(file):
    estimator = MLPClassifier(**EXACT).fit_parquet(file, "label", columns="a")
    assert estimator.feature_names_in_.tolist() == ["a"]


def prepared_of(estimator, file, target):
    """The prepared data of a fit to a file."""
    with mock.patch.object(
        type(estimator), "_make_job", autospec=True, side_effect=type(estimator)._make_job
    ) as make_job:
        estimator.fit_parquet(file, target, columns=["a", "b"], memory_limit="200MB")
    return make_job.call_args.args[1]


def test_validation_rows_do_not_shape_the_target(file):
    model = MLPRegressor(**EXACT, early_stopping=True, validation_fraction=0.3)
    prepared = prepared_of(model, file, "y")
    y = pd.read_parquet(file)["y"].to_numpy(np.float64)
    val = prepared.target.decode(prepared.rows.y.numpy().astype(np.float64))
    assert 0.2 < len(val) / len(y) < 0.4
    mean = (y.sum() - val.sum()) / (len(y) - len(val))
    np.testing.assert_allclose(model.target_.shift, mean, rtol=1e-5)
    assert abs(mean - y.mean()) > 1e-3
    std = np.sqrt(((y - mean) ** 2).sum() - ((val - mean) ** 2).sum()) / np.sqrt(len(y) - len(val))
    np.testing.assert_allclose(model.target_.scale, std, rtol=1e-5)


def test_validation_rows_have_class_weights(file):
    model = MLPClassifier(**EXACT, early_stopping=True, class_weight={False: 1.0, True: 3.0})
    rows = prepared_of(model, file, "flag").rows
    assert rows.weight.tolist() == (1 + 2 * rows.y[:, 0]).tolist()
    assert len(rows.y) > 50


def test_windows_in_order_are_training_in_memory(file):
    expected = in_memory(MLPRegressor(**EXACT, shuffle=False, dropout=0.1), file, "y")
    with windows_of(700):
        found = MLPRegressor(**EXACT, shuffle=False, dropout=0.1)
        found.fit_parquet(file, "y", columns=FEATURES)
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


def test_windows_visit_each_row_once_per_epoch(tmp_path):
    pd.DataFrame({"row": np.arange(1000.0), "y": np.arange(1000.0)}).to_parquet(
        tmp_path / "t.parquet", row_group_size=90
    )
    seen, sizes = [], []
    windows = ParquetRows.windows

    def spied(self, epoch):
        seen.append([])
        for window in windows(self, epoch):
            seen[-1] += window.y[:, 0].tolist()
            sizes.append(len(window.y))
            yield window

    regressor = MLPRegressor(**EXACT, scale_target=False)
    with mock.patch.object(ParquetRows, "windows", spied), windows_of(300, lanes=4, read=32):
        regressor.fit_parquet(tmp_path / "t.parquet", "y")
    assert len(seen) == 4
    for epoch in seen:
        assert sorted(epoch) == list(range(1000))
    assert seen[0] != seen[1]
    assert sizes == [300, 300, 300, 100] * 4, "whole batches, but the last"
    groups = {int(row) // 90 for row in seen[0][:300]}
    assert len(groups) >= 4, "several row groups in a window"


def test_early_stopping_holds_rows_out(file):
    frame = pd.read_parquet(file)
    for target, kind in (("label", MLPClassifier), ("y", MLPRegressor)):
        estimator = kind(**EXACT, early_stopping=True, validation_fraction=0.2, alpha=0.0)
        with windows_of(500):
            estimator.fit_parquet(file, target, columns=FEATURES)
        assert len(estimator.validation_scores_) == estimator.n_iter_ == 4
        assert estimator.best_validation_score_ == max(estimator.validation_scores_)
        n_val = len(frame) - estimator.t_ // 4
        assert abs(n_val - 240) < 4 * np.sqrt(1200 * 0.2 * 0.8)
        score = estimator.score(frame[FEATURES], frame[target])
        assert abs(score - max(estimator.validation_scores_)) < 0.1


def test_several_targets_and_files(tmp_path):
    frame = make_table()
    frame["z"] = frame["a"] * 2
    frame[:400].to_parquet(tmp_path / "1.parquet")
    frame[400:].to_parquet(tmp_path / "2.parquet")
    columns = ["a", "b", "city"]
    found = MLPRegressor(**EXACT).fit_parquet(tmp_path, ["y", "z"], columns=columns)
    expected = MLPRegressor(**EXACT).fit(frame[columns], frame[["y", "z"]])
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)
    assert found.predict_parquet(tmp_path).shape == (1200, 2)


def test_dictionary_and_integer_labels(tmp_path):
    frame = make_table()[["a", "b", "label"]]
    frame["label"] = pd.Categorical(frame["label"], categories=["top", "never", "mid", "low"])
    frame["digit"] = frame["label"].cat.codes.to_numpy() * 7
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    for target, classes in (("label", ["low", "mid", "top"]), ("digit", [0, 14, 21])):
        found = MLPClassifier(**EXACT).fit_parquet(tmp_path, target, columns=["a", "b"])
        expected = MLPClassifier(**EXACT).fit(frame[["a", "b"]], frame[target])
        assert found.classes_.tolist() == classes == expected.classes_.tolist()
        np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


def test_ordered_categories_are_read(tmp_path):
    frame = make_table()[["a", "b"]]
    sizes = pd.Categorical(["large", "small", None] * (len(frame) // 3), ["small", "large"])
    frame["size"] = sizes.as_ordered()
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    found = MLPRegressor(**EXACT).fit_parquet(tmp_path, "b")
    assert found.encoder_.ordered_ == (2,)
    assert found.encoder_.categories_ == {1: ["small", "large", None]}


# ---- errors ------------------------------------------------------------------------------------


def fit(path, target="y", kind=MLPRegressor, parameters=None, **arguments):
    return kind(**EXACT, **(parameters or {})).fit_parquet(path, target, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "none"}, "there is no column 'none'"),
        ({"columns": ["a", "none"]}, "there is no column 'none'"),
        ({"columns": ["a", "y"]}, "columns ['y'] are named more than once"),
        ({"columns": ["a", "a"]}, "columns ['a'] are named more than once"),
        ({"columns": []}, "there is no column beside the target"),
        ({"target": []}, "there is no target"),
        ({"sample_weight": "none"}, "there is no column 'none'"),
        ({"sample_weight": "city"}, "sample_weight='city' is a column of type"),
        ({"sample_weight": "y"}, "columns ['y'] are named more than once"),
        ({"target": "city"}, "the target 'city' must hold numbers, but"),
        ({"memory_limit": "1MB"}, "memory_limit of 1000000 bytes is too small"),
        ({"memory_limit": "much"}, "got 'much'"),
        ({"memory_limit": 0}, "got 0"),
        ({"memory_limit": "-5MB"}, "got '-5MB'"),
        ({"parameters": {"solver": "lbfgs"}}, "needs all rows at once"),
        ({"parameters": {"warm_start": True}}, "set warm_start=False"),
        ({"parameters": {"loss": "poisson"}}, "it needs y >= 0"),
        ({"parameters": {"early_stopping": True, "validation_fraction": 1e-4}}, "too small"),
        ({"kind": MLPClassifier, "target": "y"}, "Unknown label type: continuous"),
        ({"kind": MLPClassifier, "target": ["label", "flag"]}, "one target column"),
    ],
)
def test_what_cannot_be_fitted_is_refused(file, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(file, **arguments)


_NUMBERS, _ONES = {"y": np.arange(4.0)}, {"w": np.ones(4)}


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"y": [1.0, None, 2.0, 3.0]}, MLPRegressor, "has 1 missing value"),
        ({"y": [1.0, math.nan, 2.0, 3.0]}, MLPRegressor, "has 1 missing value"),
        ({"y": ["a", None, "b", None]}, MLPClassifier, "has 2 missing value"),
        ({"y": ["a"] * 4}, MLPClassifier, "the target 'y' is 'a' in all rows: one class"),
        ({"y": [1.0, math.inf, 2.0, 3.0]}, MLPRegressor, "infinity"),
        (_NUMBERS | {"w": np.zeros(4)}, MLPRegressor, "zero for every row"),
        (_NUMBERS | {"w": [1.0, -1.0, 0.0, 0.0]}, MLPRegressor, "got -1.0 in row 1"),
        (_NUMBERS | {"w": [1.0, 1.0, math.nan, 0.0]}, MLPRegressor, "got nan in row 2"),
    ],
)
def test_targets_and_weights_that_cannot_be_used(tmp_path, columns, kind, message):
    pd.DataFrame({"x": np.arange(4.0)} | _ONES | columns).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(tmp_path, kind=kind, sample_weight="w")


def test_rows_of_weight_zero_may_lack_the_target(tmp_path):
    frame = make_table()[["a", "b", "y", "weight"]]
    frame.loc[frame["weight"] == 0, "y"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet")
    found = fit(tmp_path, sample_weight="weight")
    kept = frame[frame["weight"] > 0]
    expected = MLPRegressor(**EXACT).fit(kept[["a", "b"]], kept["y"], kept["weight"])
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


def test_small_memory_limit_names_a_sufficient_one(file):
    with pytest.raises(ValueError, match="too small") as caught:
        fit(file, memory_limit="1MB", columns=FEATURES)
    enough = int(re.search(r"at least (\d+) bytes", str(caught.value))[1])
    with pytest.raises(ValueError, match="the network") as caught:
        fit(file, memory_limit=enough, columns=FEATURES)
    enough = int(re.search(r"at least (\d+) bytes", str(caught.value))[1])
    assert fit(file, memory_limit=enough, columns=FEATURES).n_iter_ == 4


def test_a_failed_fit_leaves_no_fitted_estimator(file):
    regressor = MLPRegressor(**EXACT).fit_parquet(file, "y", columns=FEATURES)
    with (
        pytest.raises(ValueError, match="distinct categories"),
        mock.patch.object(_streaming, "_CATEGORY_BYTES", 10**7),
    ):
        regressor.fit_parquet(file, "y", columns=FEATURES, memory_limit="500MB")
    assert not regressor.__sklearn_is_fitted__()


def test_prediction_needs_the_columns(file, tmp_path):
    regressor = MLPRegressor(**EXACT).fit_parquet(file, "y", columns=["a", "b"])
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no column 'b'"):
        regressor.predict_parquet(tmp_path)
    nameless = MLPRegressor(**EXACT).fit(np.ones((200, 1)), np.arange(200.0))
    with pytest.raises(ValueError, match="without names"):
        nameless.predict_parquet(file)


def test_without_pyarrow(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=re.escape("pip install pyarrow")):
        fit(file)


def test_sizes():
    sizes = {"1B": 1, "500MB": 500_000_000, "2 GiB": 2**31, "1.5kB": 1500, 7: 7}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    for wrong in ("", "MB", "1e3MB", "5 apples", "5", 1.5, None, True, -1):
        with pytest.raises(ValueError, match="memory_limit must"):
            parse_bytes(wrong)


# ---- predictions ---------------------------------------------------------------------------------


QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0, "n_iter_no_change": math.inf}


N = 230


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=N), "s": rng.choice(["u", None], N)})
    frame["when"] = pd.date_range("2024-01-01", periods=N)
    frame["list"] = [[i] for i in range(N)]
    frame["label"] = np.where(frame["x"] > 0, "high", "low")
    frame["y"] = frame["x"] * 2
    frame.to_parquet(tmp_path / "table.parquet", row_group_size=60)
    return tmp_path / "table.parquet"


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(_streaming, "PREDICT_ROWS", 50)


def classifier(table):
    return MLPClassifier(**QUICK).fit_parquet(table, "label", columns=["x", "s"])


@pytest.mark.usefixtures("small_parts")
def test_predictions_stand_beside_the_columns_that_are_kept(table, tmp_path):
    model, out = classifier(table), tmp_path / "out.parquet"
    out.write_text("what was there")
    assert model.predict_parquet(table, out=out, keep=["list", "s", "when"]) is None
    found = pq.read_table(out)
    assert found.column_names == ["list", "s", "when", "prediction"]
    kept = pq.read_table(table, columns=["list", "s", "when"])
    assert found.select(["list", "s", "when"]).equals(kept), "as Arrow has them"
    assert found["prediction"].to_pylist() == model.predict_parquet(table).tolist()
    assert pq.read_metadata(out).num_row_groups > 4, "part by part"
    model.predict_parquet(table, "predict_proba", out=out)
    proba = pd.read_parquet(out)
    assert list(proba) == ["probability_high", "probability_low"]
    np.testing.assert_array_equal(proba, model.predict_parquet(table, "predict_proba"))
    assert sorted(os.listdir(tmp_path)) == ["out.parquet", "table.parquet"]


def test_several_targets_and_all_columns(table, tmp_path):
    model = MLPRegressor(**QUICK).fit_parquet(table, ["x", "y"], columns=["s"])
    model.predict_parquet(table, out=tmp_path / "out.parquet", keep="all")
    found = pq.read_table(tmp_path / "out.parquet")
    expected = [*pq.read_table(table).column_names, "prediction_0", "prediction_1"]
    assert found.column_names == expected
    np.testing.assert_array_equal(
        np.column_stack([found["prediction_0"], found["prediction_1"]]),
        model.predict_parquet(table),
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"keep": ["none"]}, ValueError, "there is no column 'none'"),
        ({"keep": "x"}, ValueError, r"keep must be 'all' or a list of columns, such as \['x'\]"),
        ({"keep": ["x", "x"]}, ValueError, "more than once"),
        ({"out": "table.parquet"}, ValueError, "table.parquet' is one of the files that are read"),
        ({"out": "none/out.parquet"}, FileNotFoundError, "none does not exist"),
        ({"out": None, "keep": ["x"]}, ValueError, "name it with out"),
        ({"out": "nowhere://b/out.parquet"}, ValueError, "no way to a nowhere:// path"),
        ({"keep": ["prediction"]}, ValueError, "has a column 'prediction'"),
    ],
)
def test_what_cannot_be_written_is_refused(table, monkeypatch, arguments, error, message):
    monkeypatch.chdir(table.parent)
    frame = pd.read_parquet(table).assign(prediction=0)
    frame.to_parquet(table)
    model = classifier(table)
    with pytest.raises(error, match=message):
        model.predict_parquet(table, **{"out": "out.parquet"} | arguments)
    assert os.listdir(table.parent) == ["table.parquet"]


def fails_at(model, part, error):
    """A predict that works for so many parts."""
    calls = []
    predict = type(model).predict

    def predict_or_fail(self, X):
        calls.append(len(X))
        if len(calls) > part:
            raise error
        return predict(self, X)

    return mock.patch.object(type(model), "predict", predict_or_fail)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("a part that is none")])
@pytest.mark.parametrize("before", [None, b"what was there"])
def test_what_ends_in_the_middle_leaves_nothing(table, tmp_path, error, before):
    model, out = classifier(table), tmp_path / "out.parquet"
    if before is not None:
        out.write_bytes(before)
    files = sorted(os.listdir(tmp_path))
    with fails_at(model, 2, error), pytest.raises((KeyboardInterrupt, ValueError)):
        model.predict_parquet(table, out=out, keep="all")
    assert sorted(os.listdir(tmp_path)) == files
    assert before is None or out.read_bytes() == before


# ---- places that are not on this machine -------------------------------------------------------


@pytest.fixture
def remote(tmp_path):
    """The folder that is the file system of far:// paths."""
    home = tmp_path / "far"
    home.mkdir()
    far = fs.SubTreeFileSystem(str(home), fs.LocalFileSystem())
    find = pa.fs.FileSystem.from_uri

    def from_uri(uri):
        return (far, uri.removeprefix("far://")) if uri.startswith("far://") else find(uri)

    known = type("FileSystem", (fs.FileSystem,), {"from_uri": staticmethod(from_uri)})
    with mock.patch.object(pa.fs, "FileSystem", known):
        yield home


@pytest.mark.usefixtures("small_parts")
def test_remote_output_is_written_atomically(table, remote):
    model = classifier(table)
    model.predict_parquet(table, out="far://out.parquet")
    found = pd.read_parquet(remote / "out.parquet")["prediction"]
    assert found.tolist() == model.predict_parquet(table).tolist()
    with fails_at(model, 2, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        model.predict_parquet(table, out="far://other.parquet")
    words = r"far://other\.parquet|other\.parquet cannot be written"
    with limited(100), pytest.raises(OSError, match=words):
        model.predict_parquet(table, out="far://other.parquet")
    assert os.listdir(remote) == ["out.parquet"]


# ---- windows are filled by a thread, one ahead; whatever ends a fit ends the thread --------------


WINDOWED = QUICK | {"batch_size": 50, "early_stopping": False}
IN_WINDOWS = pytest.mark.usefixtures("small_windows")


def threads():
    return [each for each in threading.enumerate() if each.name.startswith("combutab-ahead")]


@pytest.fixture
def path(tmp_path):
    x = np.random.default_rng(0).normal(size=(1000, 2))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=x[:, 0])
    frame.to_parquet(tmp_path / "table.parquet", row_group_size=70)
    return tmp_path / "table.parquet"


@pytest.fixture
def small_windows():
    plan = MemoryPlan(40, 3, 200)
    with mock.patch.object(_streaming, "plan_memory", return_value=plan):
        yield
    assert not threads(), "none is left behind"


# ---- a fit -------------------------------------------------------------------------------------


@IN_WINDOWS
def test_windows_do_not_overwrite_each_other(path):
    """The memory of a window is not written to before it is done with."""
    rows = []
    windows = ParquetRows.windows

    def slow(self, epoch):
        for window in windows(self, epoch):
            before = window.y.clone()
            time.sleep(0.01)
            assert (window.y == before).all()
            rows.extend(window.y[:, 0].tolist())
            yield window

    with mock.patch.object(ParquetRows, "windows", slow):
        found = MLPRegressor(**WINDOWED, scale_target=False).fit_parquet(path, "y")
    expected = sorted(pd.read_parquet(path)["y"].astype(np.float32).tolist() * 2)
    assert sorted(rows) == expected
    again = MLPRegressor(**WINDOWED, scale_target=False).fit_parquet(path, "y")
    assert again.loss_curve_ == found.loss_curve_, "whatever the threads' timing"


@IN_WINDOWS
def test_truncated_file_is_named(path):
    def spoil(job, *args, **options):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        return original(job, *args, **options)

    original = _streaming.train_shared
    model = MLPRegressor(**WINDOWED)
    with (
        mock.patch.object(_streaming, "train_shared", spoil),
        pytest.raises(ValueError, match=r"cannot read \S*table\.parquet") as caught,
    ):
        model.fit_parquet(path, "y")
    assert not model.__sklearn_is_fitted__()
    assert not threads(), "though the error holds all frames"
    assert caught.value.__traceback__ is not None


@IN_WINDOWS
@pytest.mark.parametrize("where", ["in a step", "while it waits for a window"])
def test_a_real_ctrl_c_in_an_epoch(path, where):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("Ctrl-C is the main thread's")
    windows, filled, epochs = ParquetRows.windows, ParquetRows._filled, []

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    def watched(self, epoch):
        epochs.append(epoch)
        for i, window in enumerate(windows(self, epoch)):
            if where == "in a step" and epoch == 1 and i == 1:
                interrupt()
            yield window

    def slow(self, *args):
        for i, window in enumerate(filled(self, *args)):
            if where != "in a step" and len(epochs) == 2 and i == 2:
                interrupt()
            yield window

    model = MLPRegressor(**WINDOWED)
    with (
        mock.patch.object(ParquetRows, "windows", watched),
        mock.patch.object(ParquetRows, "_filled", slow),
        pytest.warns(UserWarning, match="interrupted"),
    ):
        model.fit_parquet(path, "y")
    assert epochs == [0, 1]
    assert model.predict_parquet(path).shape == (1000,)


# ---- files of several times the limit train within the limit -------------------------------------


LIMIT = 64_000_000


FILES, ROWS = 8, 200_000  # rows of each


SCRIPT = """
import json, resource, sys
import numpy as np, pandas as pd
from combutab import MLPRegressor

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

folder, limit = sys.argv[1], int(sys.argv[2])
settings = dict(hidden_layer_sizes=(8,), max_iter=1, n_iter_no_change=np.inf, random_state=0,
                batch_size=1000, device="cpu", early_stopping=True)
small = folder + "/small.parquet"
frame = pd.DataFrame({"x": np.arange(4e3), "s": ["a", "b"] * 2000, "y": np.arange(4e3)})
frame.to_parquet(small)
MLPRegressor(**settings).fit_parquet(small, "y")  # all libraries are loaded
base = status("VmRSS")
# and no more is to be had than an address space that is far smaller than the table
space = status("VmSize") + 3 * limit
resource.setrlimit(resource.RLIMIT_AS, (space, space))
open("/proc/self/clear_refs", "w").write("5")
model = MLPRegressor(**settings).fit_parquet(folder + "/large", "y", memory_limit=limit)
print(json.dumps({"taken": status("VmHWM") - base, "t": model.t_, "loss": model.loss_}))
"""


@pytest.mark.slow
def test_files_of_four_times_the_limit(tmp_path):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("measures memory by /proc")
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=ROWS) for i in range(20)}
    columns["s"] = pa.array(["u", "v"] * (ROWS // 2))
    columns["y"] = columns["x0"] - columns["x1"]
    part = pa.table(columns)
    assert FILES * part.nbytes > 4 * LIMIT
    folder = tmp_path / "large"
    folder.mkdir()
    pq.write_table(part, folder / "0.parquet", row_group_size=20_000)
    for i in range(1, FILES):  # the same rows: what matters is how many
        (folder / f"{i}.parquet").hardlink_to(folder / "0.parquet")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), str(LIMIT)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["taken"] < LIMIT
    assert 0 < found["t"] < FILES * ROWS, "some rows validate"
    assert found["loss"] < 0.5  # the target's variance is 1
