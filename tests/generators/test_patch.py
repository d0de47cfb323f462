"""patch_ctgan: the ctgan package's own models with other activations."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import combutab
from combutab import CombU
from combutab.generators import patch_ctgan

ctgan = pytest.importorskip("ctgan", reason="needs the extra sdv")

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "number": RNG.normal(size=100),
        "kind": RNG.choice(["a", "b", "c"], 100, p=[0.7, 0.2, 0.1]),
        "flag": RNG.choice(["no", "yes"], 100),
    }
)
DISCRETE = ["kind", "flag"]
TINY = {
    ctgan.CTGAN: {"generator_dim": (12, 14), "discriminator_dim": (16, 18), "pac": 5},
    ctgan.TVAE: {"compress_dims": (12, 14), "decompress_dims": (16, 18)},
}
BOTH = pytest.mark.parametrize("cls", [ctgan.CTGAN, ctgan.TVAE])


def make(cls, **params):
    model = cls(**{"epochs": 2, "batch_size": 50, "enable_gpu": False, **TINY[cls], **params})
    model.set_random_state(0)
    return model


def fitted(model, table=TABLE, discrete=DISCRETE):
    model.fit(table, discrete)
    return model


def network(model):
    return model._generator if isinstance(model, ctgan.CTGAN) else model.decoder


def kinds(model):
    return {type(module) for module in network(model).modules()}


# ---- what is replaced ---------------------------------------------------------------------------


@BOTH
def test_every_hidden_layer_gets_its_activation(cls):
    widths = []

    def activation(width):
        widths.append(width)
        return CombU(width)

    model = patch_ctgan(make(cls), activation)
    widths.clear()  # that of the check
    fitted(model)
    assert widths == [12, 14, 16, 18]
    assert CombU in kinds(model)
    modules = [m for m in network(model).modules() if type(m).__module__.startswith("torch")]
    inside = [m for part in network(model).modules() if isinstance(part, CombU) for m in part.parts]
    outside = [m for m in modules if not any(m is each for each in inside)]
    assert not any(isinstance(m, nn.ReLU | nn.LeakyReLU) for m in outside)
    assert sum(isinstance(m, nn.Linear) for m in outside) == 3
    if cls is ctgan.CTGAN:
        assert sum(isinstance(m, nn.BatchNorm1d) for m in outside) == 2


@BOTH
def test_original_activations_reproduce_original_samples(cls):
    def own(width):
        return nn.LeakyReLU(0.2) if cls is ctgan.CTGAN and width in (16, 18) else nn.ReLU()

    expected = fitted(make(cls))
    patched = fitted(patch_ctgan(make(cls), own))
    pd.testing.assert_frame_equal(patched.sample(60), expected.sample(60))
    pd.testing.assert_frame_equal(patched.loss_values, expected.loss_values)


@pytest.mark.parametrize("name", ["combu-random", "pln-4", "la-silu", "prelu", "rational"])
def test_ctgan_trains_with_activations(name):
    table, discrete = TABLE[DISCRETE], DISCRETE  # without numbers there are no mixtures to fit
    model = fitted(patch_ctgan(make(ctgan.CTGAN, epochs=1), name), table, discrete)
    assert np.isfinite(model.loss_values.to_numpy(dtype=float)).all()
    assert model.sample(20).notna().all(axis=None)


# ---- what is not touched ------------------------------------------------------------------------


@BOTH
def test_the_package_and_other_models_are_as_before(cls):
    modules = [sys.modules[cls.__module__], sys.modules["ctgan"]]
    before = [dict(vars(module)) for module in modules]
    given = make(cls)
    state = dict(vars(given))
    one, other = patch_ctgan(given, "tanh"), patch_ctgan(make(cls), "pln-4")
    fitted(one)
    fitted(other)
    assert type(given) is cls
    assert vars(given) == state
    assert nn.Tanh in kinds(one)
    assert combutab.PLN not in kinds(one)
    assert combutab.PLN in kinds(other)
    assert nn.Tanh not in kinds(other)
    assert {nn.ReLU} <= kinds(fitted(given))
    for module, names in zip(modules, before, strict=True):
        assert vars(module).keys() == names.keys()
        assert all(vars(module)[name] is value for name, value in names.items())


# ---- what it can do -----------------------------------------------------------------------------


@BOTH
def test_a_class_gives_a_class(cls):
    patched = patch_ctgan(cls, "elu")
    assert issubclass(patched, cls)
    assert patched is not cls
    model = fitted(make_of(patched, cls))
    assert nn.ELU in kinds(model)
    assert len(fitted(model).sample(7)) == 7  # again


def make_of(patched, cls):
    return patched(epochs=1, batch_size=50, **TINY[cls])


@BOTH
def test_it_pickles_copies_saves_and_loads(cls, tmp_path):
    model = fitted(patch_ctgan(make(cls), "combu"))
    model.save(tmp_path / "model.pt")
    models = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        cls.load(tmp_path / "model.pt"),
        type(model).load(tmp_path / "model.pt"),
    ]
    model.set_random_state(5)
    expected = model.sample(30)
    for again in models:
        assert CombU in kinds(again)
        again.set_random_state(5)
        pd.testing.assert_frame_equal(again.sample(30), expected)
    assert CombU in kinds(fitted(models[0]))  # trained anew, with the same activation


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [combutab.CTGAN(), combutab.TVAE, nn.Linear(1, 1), "ctgan"])
def test_other_models_are_refused(thing):
    with pytest.raises(TypeError, match="ctgan"):
        patch_ctgan(thing)


@BOTH
def test_fitted_models_are_refused(cls):
    model = fitted(make(cls, epochs=1), TABLE[DISCRETE])
    with pytest.raises(ValueError, match="has been fitted"):
        patch_ctgan(model)


@BOTH
def test_wrong_activations_are_refused(cls):
    with pytest.raises(ValueError, match="'combu'"):
        patch_ctgan(cls, "comby")
    with pytest.raises(TypeError, match="fresh module"):
        patch_ctgan(cls, nn.ReLU())
    with pytest.raises(ValueError, match=r"keeps the shape.*\(8, 1\)"):
        patch_ctgan(cls, lambda width: nn.Linear(width, 1))


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class _Square(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return _Once.apply(x)


def test_the_gradient_penalty_needs_two_derivatives():
    with pytest.raises(ValueError, match=r"differentiated twice.*gradient penalty"):
        patch_ctgan(ctgan.CTGAN, _Square)
    patch_ctgan(ctgan.TVAE, _Square)  # has no penalty


def test_without_ctgan_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctgan", None)
    with pytest.raises(ImportError, match="pip install sdv ctgan"):
        patch_ctgan(object)
