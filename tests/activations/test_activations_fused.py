"""The fused kernels give the numbers of the plain implementations.

They need a GPU, or Triton's interpreter, which serves a process that was started for it: without
a GPU these tests run in a process that ``test_in_the_interpreter`` starts.
"""

import copy
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from triton_interpreter import DEVICE, SERVED, check_in_interpreter, served

from combutab.activations import (
    ACTIVATIONS,
    PLN,
    PLS,
    CombU,
    LayerAct,
    ProxyNorm,
    _fused,
    _standardize,
    fused_kernels,
)

# the interpreter computes with numpy, which warns of infinite values
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

MAKERS = {
    **{name: ACTIVATIONS[name] for name in ("combu", "pln", "pln-4", "pls", "pls-2")},
    **{name: ACTIVATIONS[name] for name in ("la-silu", "la-hardsilu")},
    "combu-reversed": partial(CombU, ratios={"nlrelu": 0.3, "elu": 0.4, "relu": 0.3}),
    "combu-without-elu": partial(CombU, ratios={"relu": 0.5, "nlrelu": 0.5}),
    "pln-3": partial(PLN, norm_size=3),
    "pls-11": partial(PLS, norm_size=11),
    "proxy-relu": partial(ProxyNorm, "relu"),
    "proxy-elu": partial(ProxyNorm, "elu"),
    "proxy-nlrelu": partial(ProxyNorm, "nlrelu"),
    "proxy-combu": partial(ProxyNorm, "combu"),
}
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def make(name, width, dtype=torch.float32):
    """A module with parameters off their starting values."""
    generator = torch.Generator().manual_seed(1)
    module = MAKERS[name](width)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.rand(parameter.shape, generator=generator))
    return module.to(DEVICE, dtype)


def draw(*shape, dtype=torch.float32, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * x + 0.1 * x.sign()).to(DEVICE, dtype)  # away from kinks


@pytest.fixture
def calls(monkeypatch):
    """The kernels are asked for; a list that grows with each use of them."""
    found = []
    kernels = _fused._kernels

    def spy():
        found.append(1)
        return kernels()

    monkeypatch.setattr(_fused, "_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(_fused, "_kernels", spy)
    with fused_kernels():
        yield found


@contextmanager
def plain():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fused, "_asked_for", False)
        yield


def gradients(module, x, grad):
    """The output and its gradients by the input and all parameters."""
    x = x.detach().requires_grad_()
    out = module(x)
    return out, *torch.autograd.grad(out, [x, *module.parameters()], grad)


def compare(module, x, grad, tolerance):
    """Against the plain implementation in float64."""
    exact = copy.deepcopy(module).double()
    ours = gradients(module, x, grad)
    expected = gradients(exact, x.double(), grad.double())
    assert ours[0].dtype == ours[1].dtype == x.dtype
    for one, other in zip(ours, expected, strict=True):
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * scale)


@served
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("width", [12, 64, 257])
def test_values_and_gradients(name, width, calls):
    compare(make(name, width), draw(37, width), draw(37, width, seed=1), 2e-5)
    assert len(calls) >= 2, "forward and backward were fused"


@served
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name, dtype, calls):
    x, grad = draw(9, 40, dtype=dtype), draw(9, 40, dtype=dtype, seed=1)
    compare(make(name, 40), x, grad, TOLERANCES[dtype])
    assert len(calls) >= 2


@served
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("shape", [(24,), (1, 24), (2, 3, 24), (2, 1, 3, 24)])
def test_leading_shapes(name, shape, calls):
    compare(make(name, 24), draw(*shape), draw(*shape, seed=1), 2e-5)
    assert calls


@served
@pytest.mark.parametrize("name", MAKERS)
def test_strides(name, calls):
    module, x = make(name, 24), draw(7, 48)
    for view in (x[:, ::2], x[:, :24], x[:1, :24].expand(5, 24), draw(24, 7).T):
        compare(module, view, draw(*view.shape, seed=1), 2e-5)
    out = gradients(module, x[:, :24], torch.ones(1, device=DEVICE).expand(7, 24))
    torch.testing.assert_close(out, gradients(module, x[:, :24], torch.ones(7, 24, device=DEVICE)))
    assert calls


@served
@pytest.mark.parametrize("name", MAKERS)
def test_twice_differentiable(name, calls):
    module, x, grad = make(name, 16), draw(5, 16), draw(5, 16, seed=1)

    def penalty_gradients():
        y, above = x.clone().requires_grad_(), grad.clone().requires_grad_()
        (first,) = torch.autograd.grad(module(y), y, above, create_graph=True)
        parameters = list(module.parameters())
        loss = first.pow(2).sum()
        return torch.autograd.grad(loss, [y, above, *parameters], materialize_grads=True)

    fused = penalty_gradients()
    assert calls
    with plain():
        expected = penalty_gradients()
    for one, other in zip(fused, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@served
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e18, -1e18, 1e-30])
def test_extreme_values(name, value, calls, monkeypatch):
    """They come out as they do of the plain implementation, and stay in their row."""
    module, x, grad = make(name, 24), draw(5, 24), draw(5, 24, seed=1)
    x[2, ::5] = value
    fused = gradients(module, x, grad)[:2]
    assert calls
    # products with block matrices, which a CPU takes, carry NaN to neighbouring groups
    monkeypatch.setattr(_standardize, "_keeps_precision", lambda x: False)
    with plain():
        expected = gradients(module, x, grad)[:2]
    for one, other in zip(fused, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5, equal_nan=True)
        assert one[[0, 1, 3, 4]].isfinite().all()


@served
def test_small_inputs_keep_their_digits(calls):
    """ELU and NLReLU next to zero, where exp(x) - 1 and ln(1 + x) would lose them."""
    module = CombU(2, ratios={"elu": 0.5, "nlrelu": 0.5}).to(DEVICE)
    sizes = np.concatenate([np.logspace(-35, 0, 200), np.linspace(0.1, 30, 200)])
    x = np.stack([-sizes, sizes], 1).astype(np.float32)
    out = module(torch.tensor(x, device=DEVICE)).double().cpu().numpy()
    expected = np.stack([np.expm1(x[:, 0].astype(float)), np.log1p(x[:, 1].astype(float))], 1)
    np.testing.assert_allclose(out, expected, rtol=2e-6)
    assert calls


@served
@pytest.mark.parametrize("activation", ["relu", "combu"])
def test_proxy_norm_of_a_stack(activation, calls):
    """Parameters of (members, 1, width) give each member what its own module gives."""
    module, x, grad = make(f"proxy-{activation}", 24), draw(3, 7, 24), draw(3, 7, 24, seed=1)
    stacked = {
        key: (value + 0.2 * draw(3, 1, 24, seed=2).abs()).detach().requires_grad_()
        for key, value in module.named_parameters()
    }
    out = torch.func.functional_call(module, stacked, x)
    assert len(calls) == 1
    found = torch.autograd.grad(out, list(stacked.values()), grad)
    for m in range(3):
        own = {k: v[m, 0].detach().requires_grad_() for k, v in stacked.items()}
        alone = torch.func.functional_call(module, own, x[m])
        torch.testing.assert_close(out[m], alone)
        of_one = torch.autograd.grad(alone, list(own.values()), grad[m])
        for one, other in zip(found, of_one, strict=True):
            torch.testing.assert_close(one[m, 0], other, rtol=1e-4, atol=1e-4)


@served
def test_a_constant_group_is_zero(calls):
    for size, value in ((2, 0.1), (8, 0.1), (3, 1e4), (7, 1e4)):  # whose sums are exact
        x = torch.full((4, 2 * size), value, device=DEVICE)
        assert (PLN(2 * size, size)(x) == 0).all()
    assert calls


@pytest.mark.parametrize("name", MAKERS)
def test_what_the_kernels_do_not_serve_is_computed_plainly(name, calls):
    compare(make(name, 12, torch.float64), draw(5, 12).double(), draw(5, 12).double(), 1e-12)
    if name != "proxy-combu":  # whose CombU does see its units along the last axis
        module = MAKERS[name](12, dim=0).to(DEVICE)
        assert module(draw(12, 5)).shape == (12, 5)
    module = make(name, 12)
    assert module(draw(0, 12)).shape == (0, 12)
    x = draw(4, 12)
    mapped = torch.func.vmap(module)(x)
    with plain():
        torch.testing.assert_close(mapped, module(x))
    assert not calls


def test_other_scales_and_functions_are_computed_plainly(calls):
    LayerAct(lambda n: 0.5 + torch.atan(n) / torch.pi).to(DEVICE)(draw(3, 8))
    ProxyNorm("gelu", 8).to(DEVICE)(draw(3, 8))
    ProxyNorm("relu", 8, scale=False).to(DEVICE)(draw(3, 8))
    CombU(8, assignment="random").to(DEVICE)(draw(3, 8))
    assert not calls


def test_off_unless_asked_for():
    assert not _fused.use_fused(draw(3, 8))
    with fused_kernels():
        with fused_kernels():
            assert _fused._asked_for
        assert _fused._asked_for
    assert not _fused._asked_for


@pytest.mark.skipif(find_spec("triton") is not None, reason="triton is there")
def test_without_triton_the_error_says_what_to_do(calls):
    with pytest.raises(ImportError, match="pip install triton, or leave"):
        CombU(8)(draw(3, 8))


def test_in_the_interpreter():
    check_in_interpreter(__file__)


# ---- on a GPU alone ----------------------------------------------------------------------------

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda" or not SERVED, reason="needs a CUDA device and triton"),
]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("marked", [pytest.param(None, marks=gpu)])
def test_a_captured_graph_replays_them(name, marked, calls):
    module, x = make(name, 64), draw(32, 64).requires_grad_()
    grad = draw(32, 64, seed=1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compiled before they are captured
        gradients(module, x, grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients(module, x, grad)
    with torch.no_grad():
        x.copy_(draw(32, 64, seed=2))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(captured, gradients(module, x, grad))
    assert calls


@pytest.mark.parametrize("name", ["combu", "pln", "la-silu", "proxy-combu"])
@pytest.mark.parametrize("marked", [pytest.param(None, marks=gpu)])
def test_more_numbers_than_32_bits_count(name, marked, calls):
    if torch.cuda.mem_get_info()[0] < 30 * 2**30:
        pytest.skip("needs 30 GiB of the device's memory")
    n_rows, width = 2**31 // 256 + 64, 256
    last = draw(64, width, dtype=torch.bfloat16)
    x = torch.zeros(n_rows, width, dtype=torch.bfloat16, device=DEVICE)
    x[-64:] = last
    x.requires_grad_()
    module = make(name, width)
    out = module(x)
    torch.testing.assert_close(out[-64:], module(last))
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    alone = gradients(module, last, torch.ones_like(last))[1]
    torch.testing.assert_close(grad[-64:], alone)
    assert calls
