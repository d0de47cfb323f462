"""The fused kernels of a loop that owns its memory give the numbers of the plain ones.

As in ``test_activations_fused``, Triton's interpreter serves where there is no GPU.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from triton_interpreter import DEVICE, check_in_interpreter, served

from combutab import MLPRegressor
from combutab.activations import CombU, NLReLU, _fused, fused_kernels, in_place
from combutab.nn import MaskMaker

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter

MODULES = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "nlrelu": NLReLU,
    "combu": partial(CombU, 24),
    "combu-reversed": partial(CombU, 24, ratios={"nlrelu": 0.3, "elu": 0.4, "relu": 0.3}),
}
OTHERS = {
    "leaky": partial(nn.LeakyReLU, 0.1),
    "elu-2": partial(nn.ELU, 2.0),
    "nlrelu-2": partial(NLReLU, 2.0),
    "tanh": nn.Tanh,
    "combu-tanh": partial(CombU, 24, ratios={"relu": 0.5, "tanh": 0.5}),
    "combu-leaky": partial(CombU, 24, ratios={"relu": 0.5, "leaky_relu": 0.5}),
}


def draw(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return (2 * x).to(DEVICE)


@pytest.fixture
def calls(monkeypatch):
    """The kernels are asked for; a list of those that were called."""
    found = []
    kernels = _fused.step_kernels

    def spy():
        found.append(1)
        return kernels()

    monkeypatch.setattr(_fused, "_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr("combutab.activations._in_place.step_kernels", spy)
    monkeypatch.setattr(_fused, "step_kernels", spy)
    with fused_kernels():
        yield found


@served
@pytest.mark.parametrize("name", MODULES)
def test_forward_and_backward(name, calls):
    kernels, module = in_place(MODULES[name]()), MODULES[name]()
    x, grad = draw(3, 5, 24), draw(3, 5, 24, seed=1)
    leaf = x.double().requires_grad_()
    expected = module(leaf)
    (expected_grad,) = torch.autograd.grad(expected, leaf, grad.double())
    kernels.forward_(x)
    torch.testing.assert_close(x.double(), expected, rtol=2e-6, atol=2e-6)
    kernels.backward_(x, grad)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=2e-6, atol=2e-6)
    assert len(calls) == 2


@served
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("columns", [slice(0, 24), slice(8, 32)])
def test_drop(name, columns, calls):
    """Masks are columns of a wider matrix; what is beside them stays."""
    kernels, module = in_place(MODULES[name]()), MODULES[name]()
    x, out = draw(3, 5, 24), torch.empty(3, 5, 24, device=DEVICE)
    wide = (draw(3, 5, 40, seed=1) > 0) / 0.9
    before = wide.clone()
    leaf = x.double().requires_grad_()
    phi = module(leaf)
    mask = before[..., columns].double()
    (slope,) = torch.autograd.grad(phi, leaf, mask)
    kernels.drop_(x, wide[..., columns], out)
    torch.testing.assert_close(out.double(), phi * mask, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(wide[..., columns].double(), slope, rtol=2e-6, atol=2e-6)
    beside = [i for i in range(40) if not columns.start <= i < columns.stop]
    assert torch.equal(wide[..., beside], before[..., beside])
    assert len(calls) == 1


@served
def test_what_is_not_contiguous_is_computed_plainly(calls):
    kernels = in_place(nn.ReLU())
    x, grad = draw(3, 5, 48)[..., ::2], draw(3, 5, 48)[..., ::2]
    expected = x.clamp_min(0)
    kernels.forward_(x)
    kernels.backward_(x, grad)
    assert torch.equal(x, expected)
    assert torch.equal(grad, expected)
    out, mask = torch.empty(3, 5, 24, device=DEVICE), draw(5, 3, 24).transpose(0, 1)
    kernels.drop_(draw(3, 5, 24), mask, out)
    assert not calls


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_keep_their_kernels(name):
    with fused_kernels():
        kernels = in_place(OTHERS[name]())
    assert type(kernels) is type(in_place(OTHERS[name]()))


def test_they_are_taken_only_if_asked_for():
    assert type(in_place(nn.ReLU())).__name__ == "_ReLU"
    with fused_kernels():
        assert type(in_place(nn.ReLU())).__name__ == "_Fused"


@served
@pytest.mark.parametrize("n_rows", [1, 7, 50])
def test_masks_are_those_that_are_drawn_without_kernels(n_rows, calls):
    maker = MaskMaker([16, 11], [0.5, 0.0, 0.1], device=DEVICE)
    keys = torch.tensor([1, -5, 2**62], device=DEVICE)
    fused = [mask.clone() for mask in maker.draw(keys, n_rows)]
    assert len(calls) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fused, "_asked_for", False)
        plain = MaskMaker([16, 11], [0.5, 0.0, 0.1], device=DEVICE).draw(keys, n_rows)
    for one, other in zip(fused, plain, strict=True):
        assert torch.equal(one, other)


@served
@pytest.mark.parametrize("activation", ["combu", "relu", "nlrelu"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_fit(activation, dropout, calls):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    model = MLPRegressor(
        hidden_layer_sizes=(8, 8), activation=activation, dropout=dropout, max_iter=4,
        n_iter_no_change=np.inf, random_state=0, n_members=2, batch_size=10, device=DEVICE,
    )  # fmt: skip
    fused = model.fit(X, X[:, 0]).loss_curve_
    # of each of 8 steps: two layers there and back, or two with dropout and the masks
    assert len(calls) == 8 * (3 if dropout else 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fused, "_asked_for", False)
        n_calls = len(calls)
        np.testing.assert_allclose(fused, model.fit(X, X[:, 0]).loss_curve_, rtol=1e-5)
    assert len(calls) == n_calls


def test_in_the_interpreter():
    check_in_interpreter(__file__)
