"""Values against float64 numpy, numbers worked by hand, and extreme inputs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, expit
from torch.nn import functional as F

from combutab.activations import (
    ACTIVATIONS,
    PELU,
    PLN,
    PLS,
    Blend,
    CombU,
    ComplexCombU,
    Derf,
    DyT,
    LAHardSiLU,
    LASiLU,
    LayerAct,
    NLReLU,
    PReLU,
    Rational,
    Snake,
    Swish,
    make_activation,
)


def np_elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def np_groups(x, size, center):
    out = []
    for start in range(0, x.shape[-1], size):
        group = x[..., start : start + size]
        if center:
            group = group - group.mean(-1, keepdims=True)
        out.append(group / np.sqrt((group**2).mean(-1, keepdims=True) + 1e-5))
    return np.concatenate(out, -1)


def np_layer(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def np_combu(x):  # width 8
    return np.concatenate(
        [
            np.maximum(x[..., :4], 0),
            np_elu(x[..., 4:6]),
            np.log(1 + np.maximum(x[..., 6:], 0)),
        ],
        -1,
    )


def np_complex_combu(x):  # width 8: 4 pairs
    z = x[..., :4] + 1j * x[..., 4:]
    positive = np.maximum(z.real, 0)
    relu = positive + 1j * np.maximum(z.imag, 0)
    elu = positive + np.exp(np.minimum(z.real, 0) + 1j * z.imag) - 1
    nlrelu = np.log(1 + positive + 1j * z.imag)
    out = np.concatenate([relu[..., :2], elu[..., 2:3], nlrelu[..., 3:]], -1)
    return np.concatenate([out.real, out.imag], -1)


REFERENCES = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "prelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "elu": np_elu,
    "selu": lambda x: 1.0507009873554805 * np_elu(x, 1.6732632423543772),
    "celu": np_elu,
    "pelu": np_elu,
    "silu": lambda x: x * expit(x),
    "swish": lambda x: x * expit(x),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "tanh": np.tanh,
    "sigmoid": expit,
    "logistic": expit,
    "hardsilu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "nlrelu": lambda x: np.log(1 + np.maximum(x, 0)),
    "identity": lambda x: x,
    "dyt": lambda x: np.tanh(0.5 * x),
    "derf": lambda x: erf(0.5 * x),
    "snake": lambda x: x + np.sin(x) ** 2,
    "rational": lambda x: 4.125 + 0.5 * x - 4.125 / (1 + (15 / 64 * x) ** 2),
    "blend": lambda x: np.maximum(x, 0),
    "combu": np_combu,
    "complex-combu": np_complex_combu,
    "pln": lambda x: np_groups(x, 8, True),
    "pln-4": lambda x: np_groups(x, 4, True),
    "pln-8": lambda x: np_groups(x, 8, True),
    "pls": lambda x: np_groups(x, 8, False),
    "pls-2": lambda x: np_groups(x, 2, False),
    "la-silu": lambda x: x * expit(np_layer(x)),
    "la-hardsilu": lambda x: x * np.clip(np_layer(x) / 6 + 0.5, 0, 1),
}


def test_every_name_has_a_reference():
    assert set(ACTIVATIONS) - {"combu-random"} == set(REFERENCES)


@pytest.mark.parametrize("name", REFERENCES)
def test_against_numpy(name):
    x = np.random.default_rng(0).normal(0, 3, (50, 8))
    ours = ACTIVATIONS[name](8).double()(torch.from_numpy(x))
    np.testing.assert_allclose(ours.detach().numpy(), REFERENCES[name](x), rtol=1e-12, atol=1e-12)


def test_random_combu_against_numpy():
    x = np.random.default_rng(0).normal(0, 3, (50, 8))
    module = CombU(8, assignment="random", generator=torch.Generator().manual_seed(3))
    order = np.argsort(module.partition.numpy(), kind="stable")
    expected = np.empty_like(x)
    expected[:, order] = np_combu(x[:, order])
    ours = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


def test_complex_combu_of_real_numbers_is_combu():
    x = np.random.default_rng(0).normal(0, 3, (50, 16))
    pairs = torch.from_numpy(np.concatenate([x, 0 * x], -1))
    real, imaginary = ComplexCombU(32)(pairs).chunk(2, -1)
    torch.testing.assert_close(real, CombU(16)(pairs[:, :16]), rtol=1e-15, atol=0)
    assert not imaginary.any()


def test_complex_combu_turns_by_any_angle():
    b = torch.tensor([-500.0, -1e-9, 0.0, 1e-9, 2.0, 500.0], dtype=torch.float64).unsqueeze(1)
    cosine, sine = ComplexCombU(2, {"elu": 1.0})(torch.cat([0 * b, b], 1)).chunk(2, 1)
    torch.testing.assert_close(sine, b.sin(), rtol=1e-15, atol=0)
    torch.testing.assert_close(cosine + 1, b.cos(), rtol=0, atol=3e-16)
    _, arctangent = ComplexCombU(2, {"nlrelu": 1.0})(torch.cat([0 * b, b], 1)).chunk(2, 1)
    torch.testing.assert_close(arctangent, b.atan(), rtol=1e-15, atol=0)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_betas_against_numpy(beta):
    x = np.random.default_rng(0).normal(0, 3, (50, 8))
    t = torch.from_numpy(x)
    np.testing.assert_allclose(NLReLU(beta)(t), np.log1p(beta * np.maximum(x, 0)), rtol=1e-12)
    np.testing.assert_allclose(Swish(beta)(t), x * expit(beta * x), rtol=1e-12)


def test_pelu_against_numpy():
    rng = np.random.default_rng(0)
    x, a, b = rng.normal(0, 3, (50, 8)), rng.uniform(0.5, 2, 8), rng.uniform(0.5, 2, 8)
    module = PELU(8).double()
    with torch.no_grad():
        module.log_a.copy_(torch.from_numpy(np.log(a)))
        module.log_b.copy_(torch.from_numpy(np.log(b)))
    expected = np.where(x >= 0, a / b * x, a * np.expm1(np.minimum(x, 0) / b))
    ours = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def learned(module, **values):
    """A module of 8 units with these values of its parameters."""
    with torch.no_grad():
        for name, value in values.items():
            module.double().get_parameter(name).copy_(torch.from_numpy(value))
    return module


def test_learned_shapes_against_numpy():
    rng = np.random.default_rng(0)
    x, (a, s, w, b, c, d) = rng.normal(0, 3, (50, 8)), rng.uniform(0.3, 2, (6, 8))
    found = {
        "dyt": (learned(DyT(8), alpha=a, weight=w, bias=b), w * np.tanh(a * x) + b),
        "derf": (
            learned(Derf(8), alpha=a, shift=s, weight=w, bias=b),
            w * erf(a * x + s) + b,
        ),
        "snake": (learned(Snake(8), log_a=np.log(a)), x + np.sin(a * x) ** 2 / a),
        "rational": (
            learned(Rational(8), c0=a, c1=s, r0=w, r1=b, b0=c, b1=d),
            a + s * x + (w + b * x) / (1 + (c + d * x) ** 2),
        ),
        "blend": (learned(Blend(8, "tanh"), w=w), (1 - w) * x + w * np.tanh(x)),
    }
    for module, expected in found.values():
        ours = module(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


def test_blend_takes_any_activation():
    x = torch.from_numpy(np.random.default_rng(0).normal(0, 3, (50, 8)))
    for g in ("pln-4", "blend", lambda width: torch.nn.Hardtanh()):
        half = Blend(8, g, init=0.5).double()
        torch.testing.assert_close(half(x), (x + make_activation(g, 8).double()(x)) / 2)


def test_worked_number_combu():
    # 003, Eq. (1) on four units (2 ReLU, 1 ELU, 1 NLReLU): e^-1 - 1 and ln 2
    out = CombU(4)(torch.tensor([3.0, -3.0, -1.0, 1.0], dtype=torch.float64))
    assert out.tolist() == pytest.approx([3.0, 0.0, 1 / math.e - 1, math.log(2)], abs=1e-15)


def test_worked_number_pln_and_pls():
    # 000, Eq. (3): 1, 2, 3, 6 has mean 3 and variance (4 + 1 + 0 + 9) / 4 = 3.5
    x = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)
    pln = make_activation("pln-4", 4)(x) * math.sqrt(1 + 1e-5 / 3.5)
    assert pln.tolist() == pytest.approx([d / math.sqrt(3.5) for d in (-2, -1, 0, 3)], abs=1e-12)
    # 000, Eq. (6): the mean square is (1 + 4 + 9 + 36) / 4 = 12.5
    pls = make_activation("pls-4", 4)(x) * math.sqrt(1 + 1e-5 / 12.5)
    assert pls.tolist() == pytest.approx([v / math.sqrt(12.5) for v in (1, 2, 3, 6)], abs=1e-12)


def test_worked_number_layeract():
    # 001, Eq. (6): y = (1, 3) has mean 2 and biased variance 1, so n = (-1, 1) without alpha
    y = torch.tensor([1.0, 3.0], dtype=torch.float64)
    out = make_activation("la-silu", 2)(y)
    assert out.tolist() == pytest.approx([1 / (1 + math.e), 3 / (1 + 1 / math.e)], abs=1e-5)
    # the unbiased variance, 2, of the published code would give 0.3302
    assert abs(out[0].item() - 0.3302) > 0.06
    hard = make_activation("la-hardsilu", 2)(y)
    assert hard.tolist() == pytest.approx([1 / 3, 2.0], abs=1e-5)


@settings(deadline=None)  # the first call may load kernels
@given(st.sampled_from(list(ACTIVATIONS)), st.floats(-1e4, 1e4), st.sampled_from([16, 32, 64]))
def test_finite_for_any_finite_constant_input(name, value, bits):
    """Large inputs, zeros and constant groups give neither NaN nor infinity, nor do gradients."""
    dtype = {16: torch.float16, 32: torch.float32, 64: torch.float64}[bits]
    x = torch.full((2, 6), value, dtype=dtype, requires_grad=True)
    module = ACTIVATIONS[name](6).to(dtype)
    out = module(x)
    assert out.isfinite().all()
    grads = torch.autograd.grad(out.float().sum(), [x, *module.parameters()])
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if not n.startswith(("pl", "la-"))])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_nan_gradient_at_the_largest_numbers(name, dtype):
    top = torch.finfo(dtype).max
    x = torch.tensor([[-top, top, -top, top, -top, top, -top, top]], dtype=dtype)
    x.requires_grad_()
    out = ACTIVATIONS[name](8).to(dtype)(x)
    assert not out.isnan().any()
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert not grad.isnan().any()


@pytest.mark.parametrize("beta", [1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nlrelu_in_half_precision(beta, dtype):
    x = torch.tensor([1e-3, 0.1, 7.0, 300.0, 6e4], dtype=dtype, requires_grad=True)
    out = NLReLU(beta)(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    wide = x.detach().double()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), torch.log1p(beta * wide), rtol=2 * eps, atol=0)
    # the derivative follows from the rounded output, whose error it inherits: eps * out
    expected = beta / (1 + beta * wide)
    torch.testing.assert_close(grad.double(), expected, rtol=16 * eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_snake_in_half_precision(dtype):
    x = torch.tensor([-88.0, -20.5, -3.0, 0.5, 7.25, 41.0], dtype=dtype, requires_grad=True)
    module = Snake(6, init=3.0).to(dtype)
    (grad,) = torch.autograd.grad(module(x).sum(), x)
    frequency = module.log_a.detach().double().exp()
    expected = 1 + torch.sin(2 * frequency * x.detach().double())
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(grad.double(), expected, rtol=eps, atol=2 * eps)


@pytest.mark.parametrize("name", ["elu", "pelu", "celu", "combu", "combu-random"])
def test_expm1_keeps_small_inputs(name):
    x = torch.full((8,), -1e-6)
    out = ACTIVATIONS[name](8)(x).double()
    kept = out[out != 0]
    assert len(kept) >= 2
    torch.testing.assert_close(kept, torch.full_like(kept, -1e-6), rtol=1e-5, atol=0)


def test_prelu_weight_gradient_with_infinite_input():
    module = PReLU(2)
    module(torch.tensor([[float("inf"), 1.0]])).sum().backward()
    assert module.weight.grad.tolist() == [0.0, 0.0]


# ---- CombU: partitions, equality with its parts, what it saves ----------------------------------

UNIT_WISE = [n for n in ACTIVATIONS if not n.startswith(("pl", "la-", "combu", "complex-"))]


@settings(deadline=None)  # the first call may load kernels
@given(st.sampled_from(UNIT_WISE), st.integers(1, 20), st.sampled_from(["contiguous", "random"]))
def test_of_one_part_is_the_part(name, width, assignment):
    x = torch.randn(3, width, dtype=torch.float64)
    combined = CombU(width, {name: 1.0}, assignment).double()
    torch.testing.assert_close(combined(x), ACTIVATIONS[name](width).double()(x))


@settings(deadline=None)  # the first call may load kernels
@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=len(UNIT_WISE)).filter(sum),
    st.integers(1, 300),
)
def test_partition_covers_every_unit_once(shares, width):
    ratios = {name: s / sum(shares) for name, s in zip(UNIT_WISE, shares, strict=False)}
    spans = CombU(width, ratios).spans
    assert [start for _, start, _ in spans] == [
        sum(length for _, _, length in spans[:i]) for i in range(len(spans))
    ]
    assert sum(length for _, _, length in spans) == width
    for name, _, length in spans[1:]:
        assert abs(length - ratios[name] * width) <= 0.5 or spans[0][2] == 0


@pytest.mark.parametrize(
    ("width", "lengths"),
    [(256, [128, 64, 64]), (6, [2, 2, 2]), (5, [3, 1, 1]), (3, [1, 1, 1]), (2, [2]), (1, [1])],
)
def test_default_counts(width, lengths):
    assert [length for _, _, length in CombU(width).spans] == lengths


def test_random_partition_is_saved_with_the_weights():
    first = CombU(64, assignment="random", generator=torch.Generator().manual_seed(0))
    second = CombU(64, assignment="random", generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, 64)
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert CombU(64).state_dict() == {}


def test_random_partition_follows_its_generator():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (
        CombU(64, assignment="random", generator=torch.Generator().manual_seed(7)) for _ in "ab"
    )
    assert torch.equal(first.partition, second.partition)
    assert torch.equal(before, torch.get_rng_state())


def test_derivative_at_zero():
    # as torch has it: ReLU 0, ELU 1; NLReLU like ReLU
    for assignment in ("contiguous", "random"):
        module = CombU(8, assignment=assignment, generator=torch.Generator().manual_seed(0))
        x = torch.zeros(8, requires_grad=True)
        (grad,) = torch.autograd.grad(module(x).sum(), x)
        order = (
            torch.arange(8) if module.partition is None else module.partition.argsort(stable=True)
        )
        assert grad[order].tolist() == [0, 0, 0, 0, 1, 1, 0, 0]


# ---- PLN, PLS and LayerAct: what makes each what it is ------------------------------------------

sizes = st.integers(2, 20)


def spread(rows, width, seed):
    return torch.randn(
        rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@settings(deadline=None)  # the first call may load kernels
@given(st.integers(2, 60), sizes, st.integers(0, 99))
def test_pln_groups_have_mean_0_and_variance_1(width, size, seed):
    module = PLN(width, size, eps=0.0)
    out = module(spread(4, width, seed))
    lengths = [length for groups, length in module.runs for _ in range(groups)]
    assert sum(lengths) == width
    assert min(lengths) >= 2
    for group in out.split(lengths, -1):
        torch.testing.assert_close(group.mean(-1), torch.zeros(4).double(), atol=1e-9, rtol=0)
        torch.testing.assert_close(
            group.var(-1, correction=0), torch.ones(4).double(), atol=1e-9, rtol=0
        )


@settings(deadline=None)  # the first call may load kernels
@given(
    st.integers(1, 60), st.integers(1, 20), st.floats(1e-3, 1e3), st.booleans(), st.integers(0, 99)
)
def test_pls_is_scale_invariant(width, size, factor, flip, seed):
    module = PLS(width, size, eps=0.0)
    x = spread(4, width, seed)
    factor = -factor if flip else factor
    torch.testing.assert_close(module(factor * x), (-1 if flip else 1) * module(x))


@settings(deadline=None)  # the first call may load kernels
@given(st.integers(2, 40), st.integers(0, 99))
def test_la_silu_after_layer_norm_is_silu(width, seed):
    y = F.layer_norm(spread(4, width, seed), (width,), eps=0.0)
    torch.testing.assert_close(LASiLU(alpha=0.0)(y), F.silu(y))
    torch.testing.assert_close(LAHardSiLU(alpha=0.0)(y), F.hardswish(y))


@pytest.mark.parametrize(
    ("width", "size", "runs"),
    [
        (16, 4, [(4, 4)]),
        (6, 8, [(1, 6)]),
        (10, 4, [(2, 4), (1, 2)]),
        (9, 4, [(1, 4), (1, 5)]),
        (3, 2, [(1, 3)]),
        (7, [2, 2, 3], [(2, 2), (1, 3)]),
        (7, [2, 3, 2], [(1, 2), (1, 3), (1, 2)]),
    ],
)
def test_groups_of_pln(width, size, runs):
    assert PLN(width, size).runs == runs


@pytest.mark.parametrize(
    ("width", "size", "runs"),
    [(9, 4, [(2, 4), (1, 1)]), (3, 1, [(3, 1)]), (1, 8, [(1, 1)]), (4, [1, 3], [(1, 1), (1, 3)])],
)
def test_groups_of_pls(width, size, runs):
    assert PLS(width, size).runs == runs


def test_sizes_may_differ():
    x = spread(3, 7, 0)
    expected = torch.cat([PLN(4, 4)(x[:, :4]), PLN(3, 3)(x[:, 4:])], -1)
    torch.testing.assert_close(PLN(7, [4, 3])(x), expected)


def test_channel_pln_takes_its_statistics_per_position():
    out = PLN(8, 4, eps=0.0, dim=1)(spread(2 * 8 * 5, 3, 0).view(2, 8, 5, 3))
    mean = out.unflatten(1, (2, 4)).mean(2)
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("value", [0.0, 1000.1, -3e4])
def test_constant_groups_give_nothing(size, dtype, value):
    x = torch.full((2, 2 * size), value, dtype=dtype, requires_grad=True)
    out = PLN(2 * size, size)(x)
    assert out.abs().max() < 0.05
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert grad.isfinite().all()


@pytest.mark.parametrize("kind", [PLN, PLS])
@pytest.mark.parametrize("size", [2, 4, 5, 8, 32])
def test_every_way_to_the_statistics_agrees(kind, size):
    """Block products, reductions and the library's kernel give the same numbers."""
    width = 3 * size + 2
    x = spread(6, width, 0).float().requires_grad_()
    module, last = kind(width, size, dim=0), kind(width, size)
    weights = spread(6, width, 1).float()
    (grad,) = torch.autograd.grad(last(x), x, weights)
    (grad_dim,) = torch.autograd.grad(module(x.T).T, x, weights)
    torch.testing.assert_close(module(x.T).T, last(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grad, grad_dim, rtol=1e-3, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        out = last(x)
    torch.testing.assert_close(out, last(x), rtol=1e-5, atol=1e-5)


def test_layeract_takes_any_scale():
    y = spread(3, 8, 0)
    tanh = LayerAct(lambda n: 0.5 + 0.5 * torch.tanh(n / 2))
    torch.testing.assert_close(tanh(y), LASiLU()(y))
    torch.testing.assert_close(LayerAct(torch.nn.Sigmoid())(y), LASiLU()(y))


@pytest.mark.parametrize(("name", "floor"), [("la-silu", -0.2785), ("la-hardsilu", -0.375)])
def test_layeract_depends_on_the_layer(name, floor):
    """The LayerAct paper's Figures 4 and 5, 200 layers; ``floor`` is SiLU's and HardSiLU's."""
    noise = torch.randn(200, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    module = make_activation(name, 512)
    lowest = module(noise - 5).amin(dim=1)
    assert lowest.max() < floor - 1
    assert lowest.mean() == pytest.approx({"la-silu": -2.93, "la-hardsilu": -2.67}[name], abs=0.03)
    cases = []
    for mean, sd in ((0, 1), (0, 5), (-5, 1)):
        y = mean + sd * noise
        y[:, 0] = -1
        cases.append(module(y)[:, 0])
    assert torch.stack([cases[1] - cases[0], cases[2] - cases[0]]).amax() < -0.1


def test_la_hardsilu_saturates_in_most_layers():
    """The paper's Figure 5 says none does for N(0, 5²); 40 % of layers of 512 have none."""
    noise = torch.randn(200, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = []
    for mean, sd in ((0, 1), (0, 5), (-5, 1), (5, 1)):
        y = mean + sd * noise
        scales = make_activation("la-hardsilu", 512)(y) / y
        shares.append((scales >= 0.01).all(dim=1).double().mean().item())
    assert shares[1] == pytest.approx(0.40, abs=0.02)
    assert np.ptp(shares) < 0.01, "no more in this case than in the others"


def test_layeract_saturates_beyond_three():
    y = torch.zeros(16, dtype=torch.float64)
    y[0], y[1:] = 10.0, -0.1
    out = LAHardSiLU()(y)  # n of the outlier is sqrt(15) > 3
    assert out[0] == 10.0
    y = -y
    assert LAHardSiLU()(y)[0] == 0.0


# ---- What is refused ----------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ComplexCombU(7), r"width=7.*8"),
        (lambda: ComplexCombU(0), "even width"),
        (lambda: ComplexCombU(8, {"tanh": 1.0}), "got 'tanh'; known: relu, elu, nlrelu$"),
        (lambda: ComplexCombU(8, {"relu": 0.5}), "must sum to 1"),
        (lambda: ComplexCombU(8, {"relu": 1.5, "elu": -0.5}), "must not be negative"),
        (lambda: ComplexCombU(8)(torch.zeros(2, 6)), "was built for 8 features, got 6"),
        (lambda: CombU(8, {"relu": 0.5, "elu": 0.4}), "must sum to 1"),
        (lambda: CombU(8, {}), "must sum to 1"),
        (lambda: CombU(8, {"relu": 1.5, "elu": -0.5}), "must not be negative"),
        (lambda: CombU(8, {"relu": NAN}), "must not be negative"),
        (lambda: CombU(8, {"pln-4": 1.0}), "'pln-4'"),
        (lambda: CombU(8, assignment="shuffled"), "'contiguous' or 'random'"),
        (lambda: CombU(0), "at least 1"),
        (lambda: CombU(8)(torch.zeros(2, 7)), r"8.*7.*dim=-1"),
        (lambda: PLN(8, 1), r"norm_size.*2.*PLN.*norm_size=1.*PLS"),
        (lambda: PLN(8, [7, 1]), "PLS"),
        (lambda: PLN(1, 4), r"2.*PLN"),
        (lambda: PLS(8, 0), r"norm_size.*1.*PLS"),
        (lambda: PLS(8, []), r"norm_size.*1.*PLS"),
        (lambda: PLS(8, [4, 3]), "must sum to the width 8, got .* sums to 7"),
        (lambda: PLN(8)(torch.zeros(2, 7)), r"PLN.*8.*7"),
        (lambda: LayerAct(torch.tanh), r"scale\(0\) must be 1/2 .* got 0.0"),
        (lambda: LayerAct("sigmoid"), "got 'sigmoid'"),
        (lambda: Blend(8, init=NAN), "init must be finite"),
        (lambda: Swish(NAN), "beta must be finite"),
        *((lambda v=v: NLReLU(v), "beta must be positive") for v in (0.0, -1.0, INF, NAN)),
        *(
            (lambda make=make, v=v: make(8, v), "init must be positive and finite")
            for make in (DyT, Derf, Snake)
            for v in (0.0, -1.0, INF, NAN)
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
