"""Names, parameterised names, callables, and what the errors say."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from combutab.activations import ACTIVATIONS, PLN, PLS, Blend, CombU, ProxyNorm, make_activation


def test_names_that_the_manual_has_are_there():
    names = (
        "relu leaky_relu prelu elu selu celu pelu silu swish gelu mish tanh sigmoid logistic "
        "hardsilu softplus nlrelu identity combu combu-random pln pls pln-4 pln-8 pls-2 "
        "complex-combu la-silu la-hardsilu dyt derf snake rational blend"
    )
    assert set(names.split()) <= set(ACTIVATIONS)


@pytest.mark.parametrize(("name", "kind", "size"), [("pln-3", PLN, 3), ("pls-16", PLS, 16)])
def test_sizes_in_names(name, kind, size):
    module = make_activation(name, 48)
    assert type(module) is kind
    assert module.norm_size == size


def test_default_size_is_8():
    assert make_activation("pln", 16).norm_size == make_activation("pls", 16).norm_size == 8


def test_callables():
    ratios = {"relu": 0.5, "tanh": 0.5}
    assert make_activation(partial(CombU, ratios=ratios), 6).ratios == ratios
    assert make_activation(partial(CombU, ratios=ratios), 6, dim=1).dim == 1
    assert isinstance(make_activation(lambda width: nn.Tanh(), 6), nn.Tanh)


@pytest.mark.parametrize(
    ("name", "near"),
    [("rleu", "relu"), ("CombU", "combu"), ("la_silu", "la-silu"), ("nl-relu", "nlrelu")],
)
def test_unknown_name_lists_the_known_and_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown activation '{name}'") as error:
        make_activation(name, 8)
    assert f"did you mean {near!r}?" in str(error.value)
    assert all(known in str(error.value) for known in ACTIVATIONS)


def test_size_in_a_name_is_checked():
    with pytest.raises(ValueError, match="PLS"):
        make_activation("pln-1", 8)


@pytest.mark.parametrize("spec", [nn.ReLU(), None, 3, lambda width: "relu"])
def test_not_a_spec(spec):
    with pytest.raises(TypeError, match="activation must"):
        make_activation(spec, 8)


# ---- What every name in the registry promises, whatever it computes -----------------------------


MAKERS = {
    **ACTIVATIONS,
    "mixed": partial(CombU, ratios={"tanh": 0.4, "prelu": 0.3, "gelu": 0.3}),
    "mixed-random": partial(
        CombU, ratios={"tanh": 0.4, "prelu": 0.3, "gelu": 0.3}, assignment="random"
    ),
    "proxy-relu": partial(ProxyNorm, "relu"),
    "proxy-prelu": partial(ProxyNorm, "prelu"),
    "proxy-combu": partial(ProxyNorm, "combu"),
    "proxy-combu-random": partial(ProxyNorm, "combu-random"),
    "proxy-gelu": partial(ProxyNorm, "gelu", proxy_params=False),
    "learned-random": partial(
        CombU,
        ratios={"dyt": 0.2, "derf": 0.2, "snake": 0.2, "rational": 0.2, "blend": 0.2},
        assignment="random",
    ),
    "proxy-snake": partial(ProxyNorm, "snake"),
    "proxy-derf": partial(ProxyNorm, "derf"),
    "blend-pln": partial(Blend, activation="pln-4"),
}


OWN = [name for name in ACTIVATIONS if type(ACTIVATIONS[name](8)).__module__.startswith("combutab")]


def away_from_kinks(*shape, seed=0, dtype=torch.float64):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + 0.1 * x.sign()).to(dtype)


def make(name, width=8, dtype=torch.float64, **options):
    """A module with parameters off their starting values."""
    generator = torch.Generator().manual_seed(1)
    module = MAKERS[name](width, **options).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise.to(dtype))
    return module


@pytest.mark.parametrize("name", MAKERS)
def test_shape_is_kept(name):
    for shape in ((8,), (0, 8), (1, 8), (5, 8), (2, 3, 5, 8)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        out = make(name)(x)
        assert out.shape == x.shape
        out.sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("name", MAKERS)
def test_any_width(name):
    for width in (1, 2, 3, 5, 6, 9, 17, 33):
        if (width > 1 or "pln" not in name) and (width % 2 == 0 or "complex" not in name):
            assert make(name, width)(away_from_kinks(4, width)).isfinite().all(), width


@pytest.mark.parametrize("name", MAKERS)
def test_dtype_is_kept_and_values_agree(name):
    for dtype, tolerance in (
        (torch.float16, 4e-3),
        (torch.bfloat16, 3e-2),
        (torch.float32, 1e-5),
        (torch.float64, 0),
    ):
        exact = make(name, dtype=dtype)
        x = away_from_kinks(16, 8, dtype=dtype)
        ours, wide = x.clone().requires_grad_(), x.double().requires_grad_()
        out, expected = exact(ours), copy.deepcopy(exact).double()(wide)
        (grad,) = torch.autograd.grad(out.sum(), ours)
        (expected_grad,) = torch.autograd.grad(expected.sum(), wide)
        assert out.dtype == grad.dtype == dtype
        assert_close = partial(torch.testing.assert_close, msg=lambda t, of=dtype: f"{of}: {t}")
        assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        assert_close(grad.double(), expected_grad, rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("name", MAKERS)
def test_leading_positions_do_not_mix(name):
    module = make(name)
    x = away_from_kinks(3, 5, 8)
    poisoned = x.clone()
    poisoned[1, 2] = float("nan")
    out, expected = module(poisoned), module(x)
    keep = torch.ones(3, 5, dtype=torch.bool)
    keep[1, 2] = False
    torch.testing.assert_close(out[keep], expected[keep])
    for i in range(3):
        torch.testing.assert_close(module(x[i]), expected[i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_dim(name):
    module, last = make(name, 6, dim=1), make(name, 6)
    last.load_state_dict(module.state_dict())
    x = away_from_kinks(2, 6, 3, 3)
    expected = last(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(module(x), expected, rtol=1e-12, atol=1e-12)
    negative = make(name, 6, dim=-3)
    negative.load_state_dict(module.state_dict())
    torch.testing.assert_close(negative(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_first_and_second_derivatives(name):
    module = make(name, 6)
    x = away_from_kinks(2, 6).requires_grad_()
    names = [n for n, _ in module.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def call(x, *parameters):
        return functional_call(module, dict(zip(names, parameters, strict=True)), x)

    batched = name in OWN
    assert gradcheck(call, (x, *parameters), check_batched_grad=batched)
    assert gradgradcheck(call, (x, *parameters), check_batched_grad=batched)


@pytest.mark.parametrize("name", MAKERS)
def test_gradient_is_the_same_with_create_graph(name):
    module = make(name)
    x = away_from_kinks(4, 8).requires_grad_()
    weights = torch.linspace(-1, 1, 32, dtype=torch.float64).view(4, 8)
    (fast,) = torch.autograd.grad(module(x), x, weights)
    (slow,) = torch.autograd.grad(module(x), x, weights, create_graph=True)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", MAKERS)
def test_state_dict_deepcopy_and_pickle(name):
    module = make(name)
    x = away_from_kinks(4, 8)
    fresh = MAKERS[name](8).double()
    fresh.load_state_dict(module.state_dict())
    for other in (fresh, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(other(x), module(x), rtol=0, atol=0)
    assert repr(module)


@pytest.mark.parametrize("name", MAKERS)
def test_vmap(name):
    module = make(name)
    x = away_from_kinks(4, 3, 8)
    torch.testing.assert_close(torch.func.vmap(module)(x), module(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.func.vmap(module, in_dims=1, out_dims=1)(x), module(x), rtol=1e-12, atol=1e-12
    )

    def total(row):
        return module(row).sin().sum()

    x.requires_grad_()
    (expected,) = torch.autograd.grad(module(x).sin().sum(), x)
    per_row = torch.func.vmap(torch.func.vmap(torch.func.grad(total)))(x.detach())
    torch.testing.assert_close(per_row, expected, rtol=1e-10, atol=1e-10)


class SideBySide(torch.nn.Module):
    """A module a row of the input."""

    def __init__(self, names):
        super().__init__()
        self.parts = torch.nn.ModuleList(make(name) for name in names)

    def forward(self, x):
        return torch.stack([part(row) for part, row in zip(self.parts, x, strict=True)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Guards may run slower")  # Python 3.13.0
def test_all_compile_in_one_graph():
    torch._dynamo.reset()
    names = [n for n in MAKERS if n in OWN or n not in ACTIVATIONS]
    module = SideBySide(names)  # one compilation: one after the other take several times as long
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x = away_from_kinks(len(names), 4, 8).requires_grad_()
    out, expected = compiled(x), module(x)
    (grad,) = torch.autograd.grad(out.sin().sum(), x)
    (expected_grad,) = torch.autograd.grad(expected.sin().sum(), x)
    for i, name in enumerate(names):
        assert_close = partial(torch.testing.assert_close, msg=lambda t, of=name: f"{of}: {t}")
        assert_close(out[i], expected[i], rtol=1e-12, atol=1e-12)
        assert_close(grad[i], expected_grad[i], rtol=1e-10, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gpu_agrees_with_cpu(name, dtype):
    module = make(name, 64, dtype=dtype)
    x = away_from_kinks(32, 64, dtype=dtype).requires_grad_()
    out = module(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    module.cuda()
    there = x.detach().cuda().requires_grad_()
    out_there = module(there)
    (grad_there,) = torch.autograd.grad(out_there.sum(), there)
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float32: 1e-4}.get(dtype, 1e-10)
    if name == "hardsilu":  # torch's own kernel multiplies by 1/6 of single precision, in any
        tolerance = max(tolerance, 1e-7)
    torch.testing.assert_close(out_there.cpu(), out, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(grad_there.cpu(), grad, rtol=tolerance, atol=8 * tolerance)
