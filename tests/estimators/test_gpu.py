"""The same on a GPU."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes, load_iris

from combutab import (
    MLPClassifier,
    MLPRegressor,
    TabMClassifier,
    load,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

INF = float("inf")
X, Y = load_iris(return_X_y=True)
X_REG, Y_REG = load_diabetes(return_X_y=True)
QUICK = {"hidden_layer_sizes": (32, 16), "max_iter": 10, "n_iter_no_change": INF, "random_state": 0}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_members": 4},
        {"normalization": "batch"},
        {"normalization": "layer", "proxy_norm": True},
        {"activation": "combu-random"},
        {"activation": "pln-4"},
        {"activation": "prelu"},
        {"solver": "sgd"},
        {"solver": "adamw", "max_grad_norm": 0.5, "learning_rate": "cosine"},
        {"early_stopping": True, "batch_size": 32},
    ],
    ids=str,
)
def test_a_gpu_trains_what_a_cpu_trains(parameters):
    exact = {**QUICK, "precision": "float64", **parameters}
    cpu = MLPClassifier(**exact, device="cpu").fit(X, Y)
    gpu = MLPClassifier(**exact, device="cuda").fit(X, Y)
    assert gpu.network().device.type == "cuda"
    assert_allclose(gpu.loss_curve_, cpu.loss_curve_, rtol=1e-8)
    assert_allclose(gpu.predict_proba(X), cpu.predict_proba(X), rtol=1e-6)
    single = {**QUICK, **parameters}
    cpu = MLPRegressor(**single, device="cpu").fit(X_REG, Y_REG)
    gpu = MLPRegressor(**single, device="cuda").fit(X_REG, Y_REG)
    assert_allclose(gpu.loss_curve_, cpu.loss_curve_, rtol=1e-2)
    assert isinstance(gpu.predict(X_REG), np.ndarray)


@pytest.mark.parametrize("precision", ["float32", "float64", "bf16-mixed"])
def test_heads_that_share_weights(precision):
    small = {"n_heads": 4, "n_bins": 6, "numeric_embedding_dim": 4, "early_stopping": False}
    models = [
        TabMClassifier(**QUICK, **small, precision=precision, device=device).fit(X, Y)
        for device in ("cpu", "cuda")
    ]
    rtol = {"float32": 1e-2, "float64": 1e-8, "bf16-mixed": 0.1}[precision]
    assert_allclose(models[1].loss_curve_, models[0].loss_curve_, rtol=rtol)
    assert models[1].network().device.type == "cuda"
    assert_allclose(models[1].predict_proba(X), models[0].predict_proba(X), atol=10 * rtol)


@pytest.mark.parametrize(("there", "here"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_models_move_between_devices(there, here, tmp_path):
    model = MLPClassifier(**QUICK, n_members=2, device=there).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device=here)
    moved = pickle.loads(pickle.dumps(model)).set_params(device=here)
    for other in (loaded, moved):
        assert other.network().device.type == here
        assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=1e-5)
        other.partial_fit(X, Y)


def test_global_state_is_left_alone():
    before = torch.cuda.get_rng_state()
    MLPClassifier(**QUICK, activation="combu-random", device="cuda").fit(X, Y).predict(X)
    assert torch.equal(torch.cuda.get_rng_state(), before)
