"""predict_parquet writes what it predicts part by part, and all of it or nothing."""

from __future__ import annotations

import errno
import os
import resource
import signal
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier, MLPRegressor
from combutab.core import files
from combutab.estimators import _streaming

pa = pytest.importorskip("pyarrow")
fs = pytest.importorskip("pyarrow.fs")
pq = pytest.importorskip("pyarrow.parquet")

QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0, "device": "cpu"}
QUICK |= {"n_iter_no_change": float("inf")}
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


def test_categories_of_another_type_and_rows_of_rare_ones(tmp_path):
    rng = np.random.default_rng(0)
    n = 400
    codes = rng.choice(["1", "2", "A7"], n)
    rare = [f"name {i:03}" for i in range(n - 100)] + ["often"] * 100  # in files by their order
    frame = pd.DataFrame({"code": codes, "name": rare, "y": codes == "1"})
    frame.to_parquet(tmp_path / "fit.parquet", row_group_size=50)
    model = MLPClassifier(**QUICK).fit_parquet(tmp_path / "fit.parquet", "y")
    rows = frame[codes != "A7"]
    rows.to_parquet(tmp_path / "text.parquet")
    rows.astype({"code": int}).to_parquet(tmp_path / "numbers.parquet")
    np.testing.assert_array_equal(
        model.predict_parquet(tmp_path / "numbers.parquet", "predict_proba"),
        model.predict_parquet(tmp_path / "text.parquet", "predict_proba"),
    )
    rows.assign(code=rows["code"].astype(int) + 5).to_parquet(tmp_path / "other.parquet")
    with pytest.warns(UserWarning, match="hardly a row of column 'code'"):
        model.predict_parquet(tmp_path / "other.parquet")


def test_integers_that_are_one_float_are_refused(tmp_path):
    ids = pd.Series(np.arange(300) + 2**60, dtype="Int64").mask(np.arange(300) % 7 == 0)
    frame = pd.DataFrame({"id": ids, "y": np.arange(300.0)})
    frame.to_parquet(tmp_path / "fit.parquet", row_group_size=50)
    with pytest.raises(ValueError, match="column 'id' holds numbers such as 11529215046068"):
        MLPRegressor(**QUICK).fit_parquet(tmp_path / "fit.parquet", "y")
    model = MLPRegressor(**QUICK, categorical_features=["id"], min_frequency=1)
    frame["id"] = 2**60 + ids % 3  # exact as categories, though some are missing
    frame.to_parquet(tmp_path / "fit.parquet", row_group_size=50)
    model.fit_parquet(tmp_path / "fit.parquet", "y")
    assert model.encoder_.categories_ == {0: [2**60, 2**60 + 1, 2**60 + 2, None]}


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
        ({"out": "table.parquet"}, ValueError, "table.parquet' is a file that is read"),
        ({"out": "none/out.parquet"}, FileNotFoundError, "none does not exist"),
        ({"out": None, "keep": ["x"]}, ValueError, "name it with out"),
        ({"out": "nowhere://b/out.parquet"}, ValueError, "no way to a nowhere:// path"),
        ({"method": "predict_joint"}, ValueError, "predict_joint gives .*two dimensions"),
        ({"keep": ["prediction"]}, ValueError, "has a column 'prediction'"),
    ],
)
def test_what_cannot_be_written_is_refused(table, monkeypatch, arguments, error, message):
    monkeypatch.chdir(table.parent)
    frame = pd.read_parquet(table).assign(prediction=0)
    frame.to_parquet(table)
    model = classifier(table)
    monkeypatch.setattr(
        MLPClassifier, "predict_joint", lambda self, X: np.zeros((len(X), 1, 1)), raising=False
    )
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


@pytest.mark.usefixtures("small_parts")
def test_a_source_that_breaks_off_leaves_nothing(table, tmp_path):
    model = classifier(table)
    content = table.read_bytes()
    at = pq.read_metadata(table).row_group(3).column(0).data_page_offset
    table.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40 :])
    with pytest.raises(ValueError, match=r"cannot read \S*table\.parquet"):
        model.predict_parquet(table, out=tmp_path / "out.parquet")
    assert os.listdir(tmp_path) == ["table.parquet"]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("limit", [0, 100, 4000])
def test_a_disk_that_fills_up(table, tmp_path, limit):
    model, out = classifier(table), tmp_path / "out.parquet"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match=r"out\.parquet"):
            model.predict_parquet(table, out=out, keep="all")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == ["table.parquet"]


def test_a_folder_that_is_read_only_is_found_before_anything_is_predicted(table, tmp_path):
    model, read_only = classifier(table), OSError(errno.EROFS, os.strerror(errno.EROFS))
    with (
        mock.patch.object(files.os, "mkdir", side_effect=read_only),
        fails_at(model, 0, AssertionError("predicted")),
        pytest.raises(OSError, match=r"Read-only file system: .*out\.parquet"),
    ):
        model.predict_parquet(table, out=tmp_path / "out.parquet")
    assert os.listdir(tmp_path) == ["table.parquet"]


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

    with mock.patch.object(pa.fs, "FileSystem", mock.Mock(wraps=fs.FileSystem, from_uri=from_uri)):
        yield home


@pytest.mark.usefixtures("small_parts")
def test_a_far_place_is_written_whole_or_not_at_all(table, remote):
    model = classifier(table)
    model.predict_parquet(table, out="far://out.parquet")
    found = pd.read_parquet(remote / "out.parquet")["prediction"]
    assert found.tolist() == model.predict_parquet(table).tolist()
    with fails_at(model, 2, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        model.predict_parquet(table, out="far://other.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=r"far://other\.parquet|other\.parquet cannot be written"):
            model.predict_parquet(table, out="far://other.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(remote) == ["out.parquet"]
