"""The allocation-free step gives the gradients that autograd gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

from combutab.activations import ACTIVATIONS, CombU, PReLU, in_place
from combutab.nn import Member, MLPSpec, StackedMLP, _one_dnn, _step_products
from combutab.nn._step_loan import GradientLoan

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
        "mish",
        "softplus",
        "hardsilu",
    }
    assert expected <= set(IN_PLACE)
    assert in_place(CombU(8, assignment="random")) is None
    assert in_place(PReLU(8)) is None


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


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def objective(raw):
    return raw.sin().sum() + raw[:, 0].square().sum()


def both_ways(net, x, *, codes=None, dropout=False, valid=None, seed=1):
    """Gradients of one step: by the step's own passes, and by autograd through the network."""
    keys = range(seed, seed + net.n_members)
    masks = net.mask_maker().draw(keys, x.shape[1]) if dropout else None
    kept = None if masks is None else [mask.clone() for mask in masks]
    buffers = net.flat_buffers.values.clone()
    net.gradients(x, objective, codes, masks, valid)
    fast = net.flat.grads.clone()
    net.flat_buffers.values.copy_(buffers)
    net.flat.grads.zero_()
    net.flat.backward(objective(net(x, codes, kept, valid)))
    return fast, net.flat.grads


def close(fast, slow):
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-11)
    assert slow.abs().sum() > 0


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("init", ["torch", "ntk"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_match_autograd(init, dropout, n_outputs):
    names = ["relu", "gelu", "combu", "swish", "nlrelu", "pln-4", "prelu", "la-silu"]
    members = [Member(i, name, dropout if i % 2 else 0.0) for i, name in enumerate(names)]
    shape = MLPSpec(6, (16, 24, 8), n_outputs, init=init)
    net = StackedMLP(shape, members, dtype=torch.float64)
    close(*both_ways(net, draw(len(names), 9, 6), dropout=bool(dropout)))


class Doubled(nn.Module):
    """A user's activation that the library knows nothing of."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, x):
        return torch.tanh(x) * self.weight


class Blind(nn.Module):
    """One that no gradient passes."""

    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return torch.ones_like(x)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "pln-3", "pls-1", "pln-32", Doubled, Blind])
def test_every_activation(activation, dropout):
    members = [Member(i, activation, dropout) for i in range(2)]
    net = StackedMLP(MLPSpec(5, (32, 26), 3), members, dtype=torch.float64)
    for n_rows in (9, 4, 9):  # batches of any size use the same memory
        close(*both_ways(net, draw(2, n_rows, 5), dropout=bool(dropout)))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("activation", ["relu", "gelu", "combu", "la-hardsilu", "mish", "prelu"])
@pytest.mark.parametrize("kind", ["batch", "layer", "group", "rms", "pln", "pls"])
def test_every_normalization(kind, activation, dropout):
    members = [Member(0, activation, dropout), Member(1, "elu", dropout)]
    shape = MLPSpec(5, (32, 24), 3, normalization=kind)
    net = StackedMLP(shape, members, dtype=torch.float64)
    with torch.no_grad():  # gains and shifts that are not where they start
        net.flat.values.add_(draw(*net.flat.values.shape, seed=5), alpha=0.1)
    valid = torch.arange(9)[None] < torch.tensor([[9], [6]])
    for given in (None, valid):
        close(*both_ways(net, draw(2, 9, 5), dropout=bool(dropout), valid=given))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("activation", ["relu", "gelu", "combu", "combu-random", "prelu", "mish"])
@pytest.mark.parametrize("kind", ["layer", "group"])
def test_proxy_norm(kind, activation, dropout):
    members = [Member(i, activation, dropout) for i in range(2)] + [Member(2, "elu", dropout)]
    shape = MLPSpec(5, (32, 32, 24), 3, normalization=kind, proxy_norm=True)
    net = StackedMLP(shape, members, dtype=torch.float64)
    with torch.no_grad():
        net.flat.values.add_(draw(*net.flat.values.shape, seed=5), alpha=0.1)
    close(*both_ways(net, draw(3, 9, 5), dropout=bool(dropout)))


def test_embeddings():
    shape = MLPSpec(4, (8, 8), 2, cardinalities=(3, 50))
    net = StackedMLP(shape, [Member(0, "combu"), Member(1, "gelu")], dtype=torch.float64)
    codes = torch.stack([torch.arange(7) % 3, torch.arange(7) * 7], -1).expand(2, 7, 2)
    close(*both_ways(net, draw(2, 7, 4), codes=codes))


@pytest.mark.parametrize("proxy_norm", [False, True])
def test_shorter_batches_and_dropped_members_reuse_the_memory(proxy_norm):
    members = [Member(i, name, 0.3) for i, name in enumerate(["combu", "combu", "elu", "prelu"])]
    shape = MLPSpec(4, (8, 8), 1, normalization="layer", proxy_norm=proxy_norm)
    net = StackedMLP(shape, members, dtype=torch.float64)
    for keep, n_rows in (([0, 1, 2, 3], 10), ([0, 1, 2, 3], 3), ([0, 2, 3], 10), ([1, 2], 4)):
        if len(keep) < net.n_members:
            net.select(keep)
        close(*both_ways(net, draw(net.n_members, n_rows, 4), dropout=True))


def test_a_closed_form_of_the_slopes_is_used():
    class Squares:
        def __call__(self, raw):
            raise AssertionError("autograd is not needed")

        def gradient(self, raw):
            return 2 * raw

    net = StackedMLP(MLPSpec(4, (8,), 2), [Member(0, "combu")], dtype=torch.float64)
    x = draw(1, 6, 4)
    net.gradients(x, Squares())
    fast = net.flat.grads.clone()
    net.flat.backward(net(x).square().sum())
    close(fast, net.flat.grads)


# widths and rows at which each library of products is taken
@pytest.mark.parametrize("sizes", [(256, 256, 256), (8, 128, 1), (256, 256, 3), (128, 128, 40)])
@pytest.mark.parametrize("name", ["combu", "gelu", "pls-8"])
def test_float32_products_of_any_size(name, sizes):
    n_in, width, n_out = sizes
    shape = MLPSpec(n_in, (width, width), n_out)
    nets = [
        StackedMLP(shape, [Member(i, name, 0.2) for i in range(3)], dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    ]
    nets[1].flat.values.copy_(nets[0].flat.values)
    x = draw(3, 500, n_in)
    fast, _ = both_ways(nets[0], x.float(), dropout=True)
    _, exact = both_ways(nets[1], x, dropout=True)
    error = (fast - exact).abs().amax() / exact.abs().amax()
    assert error < 1e-5


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_without_one_dnn_the_numbers_are_the_same_to_rounding(dropout, monkeypatch):
    net = StackedMLP(MLPSpec(256, (256, 256), 3), [Member(0, "combu", dropout)])
    x = draw(1, 500, 256, dtype=torch.float32)
    by_one_dnn, _ = both_ways(net, x, dropout=bool(dropout))
    by_one_dnn = by_one_dnn.clone()
    monkeypatch.setattr(_one_dnn, "_has_one_dnn", lambda: False)
    fast, slow = both_ways(net, x, dropout=bool(dropout))
    scale = slow.abs().amax()
    assert (fast - slow).abs().amax() < 1e-5 * scale
    assert (by_one_dnn - slow).abs().amax() < 1e-5 * scale


@pytest.mark.parametrize("name", ["combu", "silu", "pln-8", "la-silu", "prelu"])
@pytest.mark.parametrize("width", [16, 256])
def test_a_member_has_the_numbers_that_it_has_alone(name, width):
    shape = MLPSpec(width, (width, width), 3)
    members = [Member(1, "relu", 0.2), Member(2, name, 0.2), Member(3, name, 0.1)]
    x = draw(3, 500, width, dtype=torch.float32)
    stack = StackedMLP(shape, members)
    stack.gradients(x, objective, None, stack.mask_maker().draw([5, 6, 7], 500))
    for i, member in enumerate(members):
        alone = StackedMLP(shape, [member])
        masks = alone.mask_maker().draw([5 + i], 500)
        alone.gradients(x[i : i + 1], objective, None, masks)
        n = alone.flat.grads.shape[1]
        exact = width == 256  # each product is a call of its own
        torch.testing.assert_close(
            alone.flat.grads[0],
            stack.flat.grads[i, :n],
            **({"rtol": 0, "atol": 0} if exact else {}),
        )


def test_lowered_precision_takes_autograd():
    net = StackedMLP(MLPSpec(4, (8,), 1), [Member(0, "relu")])
    context = partial(torch.autocast, "cpu", torch.bfloat16)
    net.gradients(torch.ones(1, 5, 4), lambda raw: raw.sum(), context=context)
    assert net.flat.grads.abs().sum() > 0


@pytest.mark.parametrize("names", [["combu", "tanh"], ["gelu", "prelu"], ["pln-8", "la-silu"]])
def test_predictions_are_the_forward_pass_from_several_threads(names):
    members = [Member(i, name) for i, name in enumerate(names)]
    net = StackedMLP(MLPSpec(6, (32, 16), 2), members, dtype=torch.float64).eval()
    tables = torch.randn(8, 100, 6, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        expected = [net(x.expand(2, *x.shape)) for x in tables]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda x: net.predict(x, None, 16), tables))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["none", "layer", "pln"])
@pytest.mark.parametrize("name", ["relu", "gelu", "combu", "pln-8", "la-silu", "prelu"])
def test_outputs_in_the_gradients_memory(name, kind, dropout):
    shape = MLPSpec(16, (16, 24, 16, 16), 5, normalization=kind)
    net = StackedMLP(shape, [Member(0, name, dropout)], dtype=torch.float64)
    for n_rows in (4, 16, 40, 4):  # of many rows, not all outputs find a place
        lent = net._step._loan.places(n_rows)
        assert any(place is not None for place in lent)
        assert (None in lent) == (n_rows == 40)
        net.flat.grads.fill_(torch.nan)
        close(*both_ways(net, draw(1, n_rows, 16), dropout=bool(dropout)))


def test_a_place_is_free_until_the_next_layers_gradient_is_written():
    widths, n_rows = (7, 30, 3, 20, 5), 4
    matrix = torch.zeros(1, 1000)
    targets, start = [], 0
    for n_in, n_out in pairwise(widths):
        targets.append(matrix[:, start : start + n_in * n_out].view(1, n_in, n_out))
        start += n_in * n_out
    places = GradientLoan(targets).places(n_rows)
    assert all(place is not None for place in places)
    for i, place in enumerate(places):
        place.fill_(i + 1)
    for i in reversed(range(len(targets))):
        assert all((places[j] == j + 1).all() for j in range(i + 1))
        targets[i].fill_(-1)
    assert GradientLoan([t.expand(2, -1, -1) for t in targets]).places(n_rows) == [None] * 4
    assert GradientLoan(targets[::2]).places(n_rows) == [None] * 2


def test_slopes_in_the_memory_of_the_outputs():
    class Squares:
        def gradient(self, raw):
            return raw

    net = StackedMLP(MLPSpec(8, (16, 16), 2), [Member(0, "combu")], dtype=torch.float64)
    x = draw(1, 4, 8)
    net.gradients(x, Squares())  # the outputs lie where gradients will
    fast = net.flat.grads.clone()
    net.flat.backward(0.5 * net(x).square().sum())
    close(fast, net.flat.grads)


def test_slopes_that_are_one_number():
    class Sum:
        def gradient(self, raw):
            return torch.ones(()).expand_as(raw)

    net = StackedMLP(MLPSpec(256, (256,), 256), [Member(0, "combu")])
    x = draw(1, 500, 256, dtype=torch.float32)
    net.gradients(x, Sum())
    fast = net.flat.grads.clone()
    net.flat.backward(net(x).sum())
    torch.testing.assert_close(fast, net.flat.grads, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("sizes", [(1, 2048), (500, 128), (501, 128), (4, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_input_gradients_written_over_the_gradient(sizes, masked):
    n_rows, width = sizes
    grad, weight = draw(2, n_rows, width).float(), draw(2, width, width, seed=2).float()
    factor = draw(2, n_rows, width, seed=3).float() if masked else None
    expected = grad.double() @ weight.double().mT * 0.5
    expected = expected if factor is None else expected * factor.double()
    room = partial(torch.empty_like, grad.clone())
    got = _step_products.input_gradient(grad, weight, room, factor, 0.5, over=True)
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-3)
