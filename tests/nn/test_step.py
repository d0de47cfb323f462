"""The chain of layers in memory of its own gives the gradients that autograd gives."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

from combutab.activations import ACTIVATIONS
from combutab.nn import Member, MLPSpec, StackedMLP, _chain

LIBRARIES = ["torch", "onednn"]


@pytest.fixture(params=LIBRARIES)
def library(request, monkeypatch):
    """The library of large products, whatever is quick on this machine."""
    monkeypatch.setenv("COMBUTAB_MATMUL", request.param)
    _chain._by_one_dnn.cache_clear()
    if request.param == "onednn" and not _chain._by_one_dnn():
        pytest.skip("no oneDNN here")
    yield request.param
    monkeypatch.undo()
    _chain._by_one_dnn.cache_clear()


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


@pytest.mark.parametrize("sizes", [(256, 256, 256), (8, 128, 1), (256, 256, 3), (128, 128, 40)])
@pytest.mark.parametrize("name", ["elu", "gelu", "pls-8"])
def test_float32_products_of_any_size(name, sizes, library):
    n_in, width, n_out = sizes
    shape = MLPSpec(n_in, (width, width), n_out)
    nets = [
        StackedMLP(shape, [Member(i, name, 0.2) for i in range(3, 6)], dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    ]
    nets[1].flat.values.copy_(nets[0].flat.values)
    x = draw(3, 500, n_in)
    fast, _ = both_ways(nets[0], x.float(), dropout=True)
    _, exact = both_ways(nets[1], x, dropout=True)
    error = (fast - exact).abs().amax() / exact.abs().amax()
    assert error < 1e-5


def test_environment_pins_the_matmul_library(monkeypatch):
    monkeypatch.setenv("COMBUTAB_MATMUL", "fastest")
    _chain._by_one_dnn.cache_clear()
    with pytest.raises(ValueError, match=r"'torch'.*'onednn'"):
        _chain._by_one_dnn()
    monkeypatch.setenv("COMBUTAB_MATMUL", "torch")
    assert not _chain._by_one_dnn()
    _chain._by_one_dnn.cache_clear()


@pytest.mark.parametrize(
    ("vendor", "family", "expected"),
    [("AuthenticAMD", 25, False), ("AuthenticAMD", 26, True), ("GenuineIntel", 26, False)],
)
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_processors_on_which_one_dnn_is_quicker(vendor, family, expected, system, monkeypatch):
    def read(path, **_):
        if system == "windows":
            raise FileNotFoundError(path)
        return f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\n"

    name = f"AMD64 Family {family} Model 2 Stepping 0, {vendor}"
    monkeypatch.setattr(_chain.Path, "read_text", read)
    monkeypatch.setattr(_chain.platform, "processor", lambda: name)
    assert _chain._is_zen_5_or_later() == expected


@pytest.mark.parametrize("name", ["combu", "silu", "pln-8", "la-silu", "prelu"])
@pytest.mark.parametrize("width", [16, 256])
def test_member_equals_its_single_network(name, width, library):
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
        exact = width == 256 and library == "onednn"  # each product is a call of its own
        torch.testing.assert_close(
            alone.flat.grads[0],
            stack.flat.grads[i, :n],
            **({"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-3}),
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


@pytest.mark.parametrize(
    ("slopes", "loss"),
    [
        (lambda raw: 2 * raw, lambda raw: raw.square().sum()),
        (lambda raw: raw, lambda raw: 0.5 * raw.square().sum()),  # in the memory of the outputs
        (lambda raw: torch.ones(()).double().expand_as(raw), torch.sum),  # one number
    ],
)
def test_a_closed_form_of_the_slopes_is_used(slopes, loss):
    class Closed:
        def __call__(self, raw):
            raise AssertionError("autograd is not needed")

        def gradient(self, raw):
            return slopes(raw)

    net = StackedMLP(MLPSpec(8, (16, 16), 12), [Member(0, "combu")], dtype=torch.float64)
    x = draw(1, 30, 8)
    net.gradients(x, Closed())
    fast = net.flat.grads.clone()
    net.flat.backward(loss(net(x)))
    close(fast, net.flat.grads)
