"""Pickles, and files without pickle: what they hold, what they refuse, what comes back."""

import functools
import json
import os
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from torch import nn

import combutab
from combutab import CombU, MLPClassifier, MLPRegressor, load
from combutab.training import ProgressBar

INF = float("inf")
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
QUICK = {
    "hidden_layer_sizes": (8, 8),
    "max_iter": 3,
    "n_iter_no_change": INF,
    "min_frequency": 2,
    "random_state": 0,
}
FRAME = pd.DataFrame(
    {
        "size": np.where(X[:, 0] > 7, np.nan, X[:, 0]),
        "kind": np.where(X[:, 1] > 3, "long", None),
        "id": [f"n{i % 60}" for i in range(150)],  # embedded
        "flag": X[:, 2] > 4,
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(150), unit="D"),
        "level": pd.Categorical(Y * 10),
    }
)
half_tanh = functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5})

MODELS = {
    "int labels": (MLPClassifier(**QUICK), X, Y - 1),
    "str labels": (MLPClassifier(**QUICK), X, NAMES[Y]),
    "object labels": (MLPClassifier(**QUICK), X, NAMES[Y].astype(object)),
    "bool labels": (MLPClassifier(**QUICK), X, Y == 1),
    "float labels": (MLPClassifier(**QUICK), X, Y * -2.0),
    "one label": (MLPClassifier(**QUICK), X, Y * 0),
    "multi-label": (MLPClassifier(**QUICK), X, np.eye(3, dtype=int)[Y]),
    "mixed table": (MLPClassifier(**QUICK), FRAME, NAMES[Y]),
    "ensemble": (MLPClassifier(**QUICK, n_members=3), FRAME, Y),
    "class weights": (MLPClassifier(**QUICK, class_weight={0: 1.0, 1: 2.5, 2: 1.0}), X, Y),
    "regressor": (MLPRegressor(**QUICK), X, Y * 1e6),
    "several targets": (MLPRegressor(**QUICK), FRAME, np.column_stack([Y, -Y, Y**2])),
    "quantiles": (MLPRegressor("quantile", quantiles=[0.1, 0.9], **QUICK), X, Y),
    "gaussian": (MLPRegressor("gaussian_nll", n_members=2, **QUICK), X, Y),
    "poisson": (MLPRegressor("poisson", **QUICK), X, Y),
    "batch norm": (MLPRegressor(normalization="batch", n_members=2, **QUICK), X, Y),
    "proxy norm": (MLPRegressor(normalization="layer", proxy_norm=True, **QUICK), X, Y),
    "combu-random": (MLPRegressor(activation="combu-random", n_members=2, **QUICK), X, Y),
    "prelu": (MLPRegressor(activation="prelu", **QUICK), X, Y),
    "partial": (MLPRegressor(activation=half_tanh, **QUICK), X, Y),
    "class of ours": (MLPRegressor(activation=CombU, **QUICK), X, Y),
    "ntk": (MLPRegressor(init="ntk", **QUICK), X, Y),
    "float64": (MLPRegressor(precision="float64", **QUICK), X, Y),
    "bf16": (MLPRegressor(precision="bf16-mixed", **QUICK), X, Y),
    "numpy parameters": (MLPRegressor(**QUICK, alpha=np.float32(0.5), n_members=np.int64(2)), X, Y),
    "quantile encoding": (MLPRegressor(numeric_encoding="quantile", **QUICK), FRAME, Y),
    "robust encoding": (MLPRegressor(numeric_encoding="robust", **QUICK), FRAME, Y),
    "named categories": (
        MLPRegressor(categorical_features=["id", "kind", "flag"], **QUICK),
        FRAME,
        Y,
    ),
    "early stopping": (MLPClassifier(early_stopping=True, **QUICK), X, Y),
    "generator": (MLPClassifier(**{**QUICK, "random_state": np.random.default_rng(0)}), X, Y),
}


def _outputs(model, table):
    outputs = [model.predict(table)]
    if isinstance(model, MLPClassifier):
        outputs.append(model.predict_proba(table))
    elif model.loss == "quantile":
        outputs.append(model.predict(table, quantiles=model.quantiles))
    elif model.loss == "gaussian_nll":
        outputs += model.predict(table, return_std=True)
    return outputs


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model, table, y = MODELS[request.param]
    return model.fit(table, y), table, y


def _same(a, b):
    if isinstance(a, pd.DataFrame):
        pd.testing.assert_frame_equal(a, b)
    else:
        assert_array_equal(a, b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_a_saved_model_comes_back_to_the_last_bit(fitted, tmp_path):
    model, table, _ = fitted
    model.save(tmp_path / "model.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    for again in (
        load(tmp_path / "model.safetensors"),
        type(model).load(str(tmp_path / "model.safetensors")),
    ):
        assert type(again) is type(model)
        for got, expected in zip(_outputs(again, table), _outputs(model, table), strict=True):
            _same(got, expected)
        for name in {n for n in vars(model) if n.endswith("_")} - {"encoder_", "target_"}:
            _same(getattr(again, name), getattr(model, name))
        for name, value in model.target_.to_state().items():
            _same(getattr(again.target_, name), value)
        for got, expected in zip(again.coefs_, model.coefs_, strict=True):
            assert_array_equal(got, expected)
        kept = {
            n: v for n, v in model.get_params().items() if n not in ("activation", "random_state")
        }
        assert {n: again.get_params()[n] for n in kept} == kept


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_loaded_model_goes_on_training(fitted, tmp_path):
    model, table, y = fitted
    model.save(tmp_path / "model")
    warm = load(tmp_path / "model").set_params(warm_start=True).fit(table, y)
    assert len(warm.loss_curve_) == 2 * len(model.loss_curve_)
    assert warm.t_ == 2 * model.t_
    if not model.early_stopping:
        partial = load(tmp_path / "model").partial_fit(table, y)
        assert partial.n_iter_ == model.n_iter_ + 1
    refitted = load(tmp_path / "model").fit(table, y)
    assert len(refitted.loss_curve_) == 3


def test_a_pickle_is_the_model(fitted):
    model, table, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    for got, expected in zip(_outputs(again, table), _outputs(model, table), strict=True):
        _same(got, expected)


def test_saving_again_gives_the_same_bytes(tmp_path):
    model = MLPClassifier(**QUICK, n_members=2).fit(FRAME, Y)
    model.save(tmp_path / "a")
    load(tmp_path / "a").save(tmp_path / "b")
    header_a, header_b = (header_of(tmp_path / n) for n in "ab")
    assert header_a == header_b


MARKER = 1234567.890123


@pytest.mark.parametrize("write", ["pickle", "save"])
def test_no_training_data_is_kept(write, tmp_path):
    sizes = []
    for n in (50, 5000):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(n, 3))
        y = rng.normal(size=n)
        rows[7, 1], y[9] = MARKER, -MARKER
        model = MLPRegressor(
            **{**QUICK, "hidden_layer_sizes": (8,)}, numeric_encoding="none", early_stopping=True
        ).fit(rows, y, sample_weight=np.full(n, 0.5))
        model.predict(rows)
        if write == "pickle":
            data = pickle.dumps(model)
        else:
            model.save(tmp_path / "m")
            data = (tmp_path / "m").read_bytes()
        for value in (MARKER, -MARKER):
            for dtype in (np.float64, np.float32):
                assert dtype(value).tobytes() not in data
            assert str(value).encode() not in data
        sizes.append(len(data))
    assert abs(sizes[1] - sizes[0]) < 200


def test_joblib_across_processes(tmp_path):
    model = MLPClassifier(**QUICK, callbacks=[ProgressBar()]).fit(FRAME, NAMES[Y])
    joblib.dump(model, tmp_path / "model.joblib", compress=3)
    model.save(tmp_path / "model.safetensors")
    FRAME.to_pickle(tmp_path / "frame.pkl")
    code = (
        "import sys, joblib, numpy, pandas, combutab\n"
        "from pathlib import Path\n"
        "folder = Path(sys.argv[1])\n"
        "frame = pandas.read_pickle(folder / 'frame.pkl')\n"
        "a = joblib.load(folder / 'model.joblib').predict_proba(frame)\n"
        "b = combutab.load(folder / 'model.safetensors').predict_proba(frame)\n"
        "numpy.save(folder / 'proba.npy', numpy.stack([a, b]))\n"
    )
    root = os.path.dirname(os.path.dirname(combutab.__file__))
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    expected = model.predict_proba(FRAME)
    for got in np.load(tmp_path / "proba.npy"):
        assert_allclose(got, expected, rtol=1e-6)


def header_of(path):
    with safetensors.safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["combutab"])


# ---- failures leave nothing ----------------------------------------


class Square(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x * x


@pytest.mark.parametrize("activation", [Square, functools.partial(Square)])
def test_an_activation_of_ones_own_cannot_be_saved_and_leaves_the_old_file(activation, tmp_path):
    path = tmp_path / "model"
    MLPClassifier(**QUICK).fit(X, Y).save(path)
    before = path.read_bytes()
    model = MLPClassifier(**QUICK, activation=activation).fit(X, Y)
    with pytest.raises(ValueError, match=r"activation=.*cannot be saved without code.*pickle"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_failures_while_writing_leave_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    model = MLPClassifier(**QUICK).fit(X, Y)
    model.save(path)
    before = path.read_bytes()

    def full_disk(place, key, text, tensors):
        place.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("combutab._model_files.write_tensors", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_folders_that_cannot_be_written(tmp_path):
    model = MLPClassifier(**QUICK).fit(X, Y)
    with pytest.raises(FileNotFoundError, match=r"the folder .*missing does not exist; create it"):
        model.save(tmp_path / "missing" / "model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        model.save(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            MLPClassifier(**QUICK).fit(X, Y).save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o700)


def test_a_saved_file_has_the_permissions_of_any_file(tmp_path):
    MLPClassifier(**QUICK).fit(X, Y).save(tmp_path / "model")
    (tmp_path / "plain").touch()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode
