"""PLN, PLS and LayerAct: what makes each what it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from combutab.activations import PLN, PLS, LAHardSiLU, LASiLU, LayerAct, Swish

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
@given(st.integers(2, 40), st.integers(0, 99), st.floats(-5, 5))
def test_pln_is_shift_invariant(width, seed, shift):
    x = spread(4, width, seed)
    torch.testing.assert_close(PLN(width, 4)(x + shift), PLN(width, 4)(x))


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


def test_low_matmul_precision_does_not_touch_the_statistics():
    x = 100 + spread(64, 64, 0).float()
    expected = PLN(64, 4)(x)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        out = PLN(64, 4)(x)
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)


def test_layeract_takes_any_scale():
    y = spread(3, 8, 0)
    tanh = LayerAct(lambda n: 0.5 + 0.5 * torch.tanh(n / 2))
    torch.testing.assert_close(tanh(y), LASiLU()(y))
    torch.testing.assert_close(LayerAct(torch.nn.Sigmoid())(y), LASiLU()(y))


def test_layeract_is_not_silu_of_its_input():
    y = 5 + spread(3, 8, 0)
    assert (LASiLU()(y) - Swish()(y)).abs().max() > 0.5


def test_layeract_saturates_beyond_three():
    y = torch.zeros(16, dtype=torch.float64)
    y[0], y[1:] = 10.0, -0.1
    out = LAHardSiLU()(y)  # n of the outlier is sqrt(15) > 3
    assert out[0] == 10.0
    y = -y
    assert LAHardSiLU()(y)[0] == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PLN(8, 1), "norm_size must be at least 2 for PLN, got norm_size=1; use PLS"),
        (lambda: PLN(8, [7, 1]), "use PLS for single units"),
        (lambda: PLN(1, 4), "width must be at least 2 for PLN"),
        (lambda: PLS(8, 0), "norm_size must be at least 1 for PLS"),
        (lambda: PLS(8, []), "norm_size must be at least 1 for PLS"),
        (lambda: PLS(8, [4, 3]), "must sum to the width 8, got .* sums to 7"),
        (lambda: PLN(8)(torch.zeros(2, 7)), "PLN was built for 8 features, got 7"),
        (lambda: LayerAct(torch.tanh), r"scale\(0\) must be 1/2 .* got 0.0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scale_must_be_callable():
    with pytest.raises(TypeError, match="got 'sigmoid'"):
        LayerAct("sigmoid")
