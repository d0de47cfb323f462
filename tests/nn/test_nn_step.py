"""The allocation-free step gives the gradients that autograd gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from combutab.activations import ACTIVATIONS, CombU, in_place
from combutab.nn import Member, MLPShape, StackedMLP

IN_PLACE = [n for n in ACTIVATIONS if in_place(ACTIVATIONS[n](16)) is not None]


def test_the_common_activations_have_kernels():
    expected = {
        "relu",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "tanh",
        "sigmoid",
        "nlrelu",
        "combu",
        "swish",
        "gelu",
    }
    assert expected <= set(IN_PLACE)
    assert in_place(CombU(8, assignment="random")) is None
    assert in_place(nn.Mish()) is None


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_match_autograd(name, dtype):
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(5, 7, 16, generator=generator, dtype=dtype)
    grad = torch.randn(5, 7, 16, generator=generator, dtype=dtype)
    module, kernels = ACTIVATIONS[name](16), in_place(ACTIVATIONS[name](16))
    leaf = x.clone().requires_grad_()
    out = module(leaf)
    (expected,) = torch.autograd.grad(out, leaf, grad)
    before = x.clone()
    kernels.forward_(x)
    torch.testing.assert_close(x, out.detach())
    kernels.backward_(before if kernels.keeps_input else x, grad)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("init", ["torch", "ntk"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_match_autograd(init, dropout, n_outputs):
    names = ["relu", "gelu", "combu", "swish", "nlrelu"]
    members = [Member(i, name, dropout if i % 2 else 0.0) for i, name in enumerate(names)]
    shape = MLPShape(6, (16, 24, 8), n_outputs, init=init)
    net = StackedMLP(shape, members, dtype=torch.float64)
    assert net._step is not None
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 9, 6, generator=generator, dtype=torch.float64)
    masks = net.mask_maker().draw([1, 2, 3, 4, 5], 9) if dropout else None

    def objective(raw):
        return raw.sin().sum() + raw[:, 0].square().sum()

    net.gradients(x, objective, None, masks)
    fast = net.flat.grads.clone()
    net.flat.backward(objective(net(x, None, masks)))
    torch.testing.assert_close(fast, net.flat.grads)
    assert fast.abs().sum() > 0


def test_shorter_batches_and_dropped_members_reuse_the_buffers():
    members = [Member(i, name) for i, name in enumerate(["combu", "combu", "elu"])]
    net = StackedMLP(MLPShape(4, (8, 8), 1), members, dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    for keep, n_rows in (([0, 1, 2], 10), ([0, 1, 2], 3), ([0, 2], 10), ([1], 4)):
        if len(keep) < net.n_members:
            net.select(keep)
        x = torch.randn(net.n_members, n_rows, 4, generator=generator, dtype=torch.float64)
        net.gradients(x, lambda raw: raw.square().sum())
        fast = net.flat.grads.clone()
        net.flat.backward(net(x).square().sum())
        torch.testing.assert_close(fast, net.flat.grads)


@pytest.mark.parametrize(
    ("shape", "activation"),
    [
        (MLPShape(4, (8,), 1, normalization="layer"), "relu"),
        (MLPShape(4, (8,), 1, cardinalities=(3,)), "relu"),
        (MLPShape(4, (8,), 1), "mish"),
        (MLPShape(4, (8,), 1), "prelu"),
    ],
)
def test_other_networks_take_autograd(shape, activation):
    net = StackedMLP(shape, [Member(0, activation)])
    assert net._step is None
    codes = torch.zeros(1, 5, 1, dtype=torch.int64) if shape.cardinalities else None
    net.gradients(torch.ones(1, 5, 4), lambda raw: raw.sum(), codes)
    assert net.flat.grads.abs().sum() > 0


@pytest.mark.parametrize("names", [["combu", "tanh"], ["gelu", "prelu"]])
def test_predictions_are_the_forward_pass_from_several_threads(names):
    members = [Member(i, name) for i, name in enumerate(names)]
    net = StackedMLP(MLPShape(6, (32, 16), 2), members, dtype=torch.float64).eval()
    tables = torch.randn(8, 100, 6, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        expected = [net(x.expand(2, *x.shape)) for x in tables]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda x: net.predict(x, None, 16), tables))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
