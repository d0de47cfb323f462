"""The same on a GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from combutab import CTGAN, TVAE, TabFlow, TabFlowImputer, load

DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(RNG.integers(0, 3, 240) * 5.0, 1.0),
        "kind": RNG.choice(["a", "b", "c"], 240),
        "n": RNG.integers(0, 9, 240),
    }
)
TABLE.loc[::9, "x"] = np.nan
QUICK = {"epochs": 3, "batch_size": 60, "random_state": 0}
OWN = {
    CTGAN: {"embedding_dim": 8},
    TVAE: {"embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (32, 32), "early_stopping": False},
}
ALL = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])


def make(cls, **parameters):
    return cls(**{**QUICK, **OWN[cls], **parameters})


def losses(model: CTGAN | TVAE | TabFlow) -> np.ndarray:
    return model.history_.select_dtypes("number").to_numpy(float)


@ALL
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_members": 3},
        {"activation": "original"},
        {"activation": "pln-8", "normalization": "none"},
        {"activation": "la-silu", "normalization": "layer"},
        {"activation": "relu", "normalization": "layer", "proxy_norm": True},
    ],
    ids=str,
)
def test_a_gpu_trains_what_a_cpu_trains(cls, parameters):
    if cls is TabFlow and parameters.get("proxy_norm"):
        pytest.skip("TabFlow has none")
    exact = {**parameters, "precision": "float64"}
    cpu, gpu = (make(cls, **exact, device=device).fit(TABLE) for device in ("cpu", DEVICE))
    assert_allclose(losses(gpu), losses(cpu), rtol=1e-6, atol=1e-8)
    single = make(cls, **parameters, device=DEVICE).fit(TABLE)
    assert_allclose(losses(single), losses(cpu), rtol=5e-2, atol=5e-2)
    expected, got = (model.sample(200, random_state=1) for model in (cpu, gpu))
    assert list(got) == list(expected)
    same = (got["kind"].to_numpy() == expected["kind"].to_numpy()).mean()
    assert same > 0.95, "a draw next to a boundary may fall to the other side"


@ALL
@pytest.mark.parametrize(("there", "here"), [(DEVICE, "cpu"), ("cpu", DEVICE)])
def test_models_move_between_devices(cls, there, here, tmp_path):
    make(cls, device=there).fit(TABLE).save(tmp_path / "model")
    wanted = pd.DataFrame({"kind": ["a"] * 5})
    moved = load(tmp_path / "model", device=here)
    assert len(moved.sample(50, random_state=0)) == 50
    assert len(moved.sample_from(wanted, random_state=0)) == 5


@ALL
def test_global_state_is_left_alone(cls):
    before = torch.cuda.get_rng_state()
    make(cls, device=DEVICE).fit(TABLE).sample(20)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_conditions_and_missing_cells_on_a_gpu():
    model = make(TabFlow, n_members=2, device=DEVICE).fit(TABLE)
    made = model.sample(60, conditions={"kind": "b", "x": (0.0, 8.0)}, random_state=0)
    assert (made["kind"] == "b").all()
    assert made["x"].between(0.0, 8.0).all()
    holes = TABLE.mask(np.random.default_rng(1).random(TABLE.shape) < 0.2)
    assert not model.impute(holes, random_state=0).isna().any(axis=None)
    here, there = (
        TabFlowImputer(make(TabFlow, precision="float64", device=device), random_state=0)
        for device in ("cpu", DEVICE)
    )
    expected, found = here.fit_transform(holes), there.fit_transform(holes)
    assert_allclose(found["x"], expected["x"], rtol=1e-3, atol=1e-3)
    assert (found["kind"] == expected["kind"]).mean() > 0.99
