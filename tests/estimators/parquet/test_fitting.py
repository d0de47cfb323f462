"""fit_parquet learns what fit learns, from files read in parts."""

from __future__ import annotations

import math
import pickle
import re
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier, MLPRegressor
from combutab.core.text import parse_bytes
from combutab.datasets import load_openml
from combutab.estimators import _streaming as _streaming
from combutab.estimators._streaming import MemoryPlan, ParquetRows
from combutab.training import Callback

pytestmark = pytest.mark.usefixtures("paper_defaults")

pytest.importorskip("pyarrow")
DATA_HOME = Path(__file__).parents[3].parent / "shared" / "data"
FEATURES = ["a", "b", "c", "city", "code", "flag"]
EXACT = {
    "hidden_layer_sizes": (16, 16),
    "max_iter": 4,
    "n_iter_no_change": math.inf,
    "random_state": 0,
    "device": "cpu",
    "batch_size": 100,
}


def table(n: int = 1200, seed: int = 0) -> pd.DataFrame:
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
    table().to_parquet(path, row_group_size=100)
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
def test_what_one_window_holds_is_trained_on_as_in_memory(file, name):
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
    np.testing.assert_allclose(
        found.predict_parquet(file, "predict_proba" if kind is MLPClassifier else "predict"),
        expected.predict_proba(frame[columns])
        if kind is MLPClassifier
        else expected.predict(frame[columns]),
        rtol=1e-4,
        atol=1e-5,
    )
    assert vars(found).keys() == vars(expected).keys()
    assert (found.t_, found.n_iter_, found.n_outputs_) == (
        expected.t_,
        expected.n_iter_,
        expected.n_outputs_,
    )
    if kind is MLPClassifier:
        assert found.classes_.tolist() == expected.classes_.tolist()
        assert found.classes_.dtype == expected.classes_.dtype
    assert found.get_params() == kind(**EXACT, **parameters).get_params()


def test_windows_in_order_are_training_in_memory(file):
    expected = in_memory(MLPRegressor(**EXACT, shuffle=False, dropout=0.1), file, "y")
    with windows_of(700):
        found = MLPRegressor(**EXACT, shuffle=False, dropout=0.1)
        found.fit_parquet(file, "y", columns=FEATURES)
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


def test_each_row_is_seen_once_an_epoch_in_another_order(tmp_path):
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


@pytest.mark.parametrize("name", ["synthetic", "california_housing", "PhishingWebsites"])
def test_windows_reach_the_loss_of_training_in_memory(tmp_path, name):
    if name == "synthetic":
        frame = table(3000)
        X, y, kind = frame[FEATURES], frame["y"], MLPRegressor
    else:
        if not DATA_HOME.is_dir():
            pytest.skip("needs ../shared/data")
        data = load_openml(name, data_home=DATA_HOME)
        X, y = data.X.iloc[:4000], data.y.iloc[:4000]
        kind = MLPRegressor if data.task == "regression" else MLPClassifier
    X.assign(target=y.to_numpy()).to_parquet(tmp_path / "t.parquet", row_group_size=500)
    parameters = {**EXACT, "max_iter": 8, "learning_rate_init": 2e-3, "n_members": 3}
    memory = kind(**parameters).fit(X, y)
    with windows_of(1000, read=250):
        streamed = kind(**parameters).fit_parquet(tmp_path / "t.parquet", "target")
    memory, streamed = (
        model.history_.query("epoch == 8")["train_loss"] for model in (memory, streamed)
    )
    assert len(streamed) == 3
    noise = memory.std() + streamed.std()
    assert abs(streamed.mean() - memory.mean()) < max(3 * noise, 0.05 * memory.mean())


def test_random_state_determines_all(file):
    def fit(seed):
        classifier = MLPClassifier(**{**EXACT, "random_state": seed}, early_stopping=True)
        with windows_of(500):
            classifier.fit_parquet(file, "label", columns=FEATURES)
        return classifier.loss_curve_, classifier.validation_scores_

    first = fit(0)
    assert fit(0) == first
    assert fit(1) != first


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
        assert (
            abs(estimator.score(frame[FEATURES], frame[target]) - max(estimator.validation_scores_))
            < 0.1
        )


def test_an_interrupt_keeps_the_best_epoch(file):
    class Interrupt(Callback):
        def on_epoch_end(self, report):
            if report.epoch == 3:
                raise KeyboardInterrupt
            return False

    classifier = MLPClassifier(**EXACT, early_stopping=True, callbacks=[Interrupt()])
    with windows_of(500), pytest.warns(UserWarning, match="interrupted"):
        classifier.fit_parquet(file, "label", columns=FEATURES)
    assert classifier.n_iter_ == 3
    assert classifier.best_validation_score_ == max(classifier.validation_scores_)
    assert classifier.predict_parquet(file).shape == (1200,)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_fitted_estimator_is_one_like_any_other(file, tmp_path):
    with windows_of(500):
        classifier = MLPClassifier(**EXACT).fit_parquet(file, "label", columns=FEATURES)
    frame = pd.read_parquet(file)[FEATURES]
    expected = classifier.predict_proba(frame)
    parts = classifier.predict_parquet(file, "predict_proba")
    np.testing.assert_allclose(
        parts, expected, rtol=1e-5
    )  # products of other sizes round otherwise
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(frame), expected)
    classifier.save(tmp_path / "model.safetensors")
    loaded = MLPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(frame), expected)
    label = pd.read_parquet(file)["label"]
    classifier.set_params(warm_start=True).fit(frame, label)
    assert len(classifier.loss_curve_) == 8


def test_several_targets_and_files(tmp_path):
    frame = table()
    frame["z"] = frame["a"] * 2
    frame[:400].to_parquet(tmp_path / "1.parquet")
    frame[400:].to_parquet(tmp_path / "2.parquet")
    columns = ["a", "b", "city"]
    found = MLPRegressor(**EXACT).fit_parquet(tmp_path, ["y", "z"], columns=columns)
    expected = MLPRegressor(**EXACT).fit(frame[columns], frame[["y", "z"]])
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)
    assert found.predict_parquet(tmp_path).shape == (1200, 2)


def test_dictionary_and_integer_labels(tmp_path):
    frame = table()[["a", "b", "label"]]
    frame["label"] = pd.Categorical(frame["label"], categories=["top", "never", "mid", "low"])
    frame["digit"] = frame["label"].cat.codes.to_numpy() * 7
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    for target, classes in (("label", ["low", "mid", "top"]), ("digit", [0, 14, 21])):
        found = MLPClassifier(**EXACT).fit_parquet(tmp_path, target, columns=["a", "b"])
        expected = MLPClassifier(**EXACT).fit(frame[["a", "b"]], frame[target])
        assert found.classes_.tolist() == classes == expected.classes_.tolist()
        np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


# ---- errors ------------------------------------------------------------------------------------


def fit(path, target="y", kind=MLPRegressor, parameters=None, **arguments):
    return kind(**EXACT, **(parameters or {})).fit_parquet(path, target, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "none"}, "there is no column 'none'"),
        ({"columns": ["a", "none"]}, "there is no column 'none'"),
        ({"columns": ["a", "y"]}, "columns ['y'] have two parts to play"),
        ({"columns": ["a", "a"]}, "columns are named more than once: ['a']"),
        ({"columns": []}, "there is no column beside the target"),
        ({"target": []}, "there is no target"),
        ({"sample_weight": "none"}, "there is no column 'none'"),
        ({"sample_weight": "city"}, "sample_weight='city' is a column of type"),
        ({"sample_weight": "y"}, "columns ['y'] have two parts to play"),
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


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([1.0, None, 2.0, 3.0], MLPRegressor, "has 1 missing value"),
        ([1.0, math.nan, 2.0, 3.0], MLPRegressor, "has 1 missing value"),
        (["a", None, "b", None], MLPClassifier, "has 2 missing value"),
        (["a"] * 4, MLPClassifier, "the target 'y' is 'a' in all rows: one class"),
        ([1.0, math.inf, 2.0, 3.0], MLPRegressor, "infinity"),
    ],
)
def test_targets_that_teach_nothing(tmp_path, column, kind, message):
    frame = pd.DataFrame({"x": np.arange(4.0), "y": column})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(tmp_path, kind=kind)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([0.0, 0.0, 0.0], "zero for every row"),
        ([1.0, -1.0, 0.0], "got -1.0 in row 1"),
        ([1.0, 1.0, math.nan], "got nan in row 2"),
    ],
)
def test_weights_that_cannot_be_used(tmp_path, weight, message):
    frame = pd.DataFrame({"x": np.arange(3.0), "y": np.arange(3.0), "w": weight})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(tmp_path, sample_weight="w")


def test_rows_of_weight_zero_may_lack_the_target(tmp_path):
    frame = table()[["a", "b", "y", "weight"]]
    frame.loc[frame["weight"] == 0, "y"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet")
    found = fit(tmp_path, sample_weight="weight")
    kept = frame[frame["weight"] > 0]
    expected = MLPRegressor(**EXACT).fit(kept[["a", "b"]], kept["y"], kept["weight"])
    np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)


def test_a_limit_that_is_too_small_names_one_that_is_enough(file):
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


def test_without_pyarrow(file):
    with (
        mock.patch.dict(sys.modules, {"pyarrow": None}),
        pytest.raises(ImportError, match=re.escape("pip install 'combutab[parquet]'")),
    ):
        fit(file)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("1B", 1), ("500MB", 500_000_000), ("2 GiB", 2**31), ("1.5kB", 1500), (7, 7)],
)
def test_sizes(text, n_bytes):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "MB", "1e3MB", "5 apples", "5", 1.5, None, True, -1])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="memory_limit must be a positive number of bytes"):
        parse_bytes(text)
