"""ProxyNorm: its moments against integrals, its output on Gaussian inputs, its refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import nn

from combutab.activations import PLN, Blend, CombU, LayerAct, PReLU, ProxyNorm

UNIT = {
    "relu": lambda x: max(x, 0.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "prelu": lambda x: x if x > 0 else 0.25 * x,
    "identity": lambda x: x,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "celu": lambda x: x if x > 0 else math.expm1(x),
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
}


def integral(phi, mean, std):
    """Mean and variance of phi(x), x ~ N(mean, std^2), by adaptive quadrature."""

    def moment(f):
        def integrand(u):
            return f(mean + std * u) * math.exp(-u * u / 2) / math.sqrt(2 * math.pi)

        kink = min(max(-mean / std, -11), 11)
        return sum(
            quad(integrand, a, b, epsabs=1e-13, limit=200)[0] for a, b in ((-12, kink), (kink, 12))
        )

    average = moment(phi)
    return average, moment(lambda x: (phi(x) - average) ** 2)


@pytest.mark.parametrize("name", UNIT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_closed_forms_against_quadrature(name, dtype):
    means, stds = np.meshgrid([-6.0, -1.0, 0.0, 0.4, 2.0, 30.0], [0.1, 1.0, 3.0])
    means, stds = means.ravel(), stds.ravel()
    module = ProxyNorm(name, len(means)).to(dtype)
    with torch.no_grad():
        module.beta.copy_(torch.from_numpy(means))
        module.gamma.copy_(torch.from_numpy(stds))
    mean, var = module.moments()
    expected = np.array([integral(UNIT[name], m, s) for m, s in zip(means, stds, strict=True)])
    tolerance = 1e-9 if dtype is torch.float64 else 2e-6
    for ours, theirs in ((mean, expected[:, 0]), (var, expected[:, 1])):
        error = np.abs(ours.detach().double().numpy() - theirs)
        assert (error <= tolerance * (1 + np.abs(theirs))).all()


def test_worked_number():
    # 002, Eq. (7), ReLU, standard proxy: mean 1/sqrt(2 pi), variance 1/2 - 1/(2 pi)
    mean, var = 1 / math.sqrt(2 * math.pi), 0.5 - 1 / (2 * math.pi)
    out = ProxyNorm("relu", 2).double()(torch.tensor([-1.0, 2.0], dtype=torch.float64))
    expected = [-mean / math.sqrt(var + 0.03), (2 - mean) / math.sqrt(var + 0.03)]
    assert out.tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", ["relu", "elu", "prelu", "combu", "combu-random"])
def test_sampled_form_comes_to_the_closed_one(name):
    exact = ProxyNorm(name, 8, n_samples=100_000).double()
    errors = []
    for n_samples in (64, 1024, 16_384):
        sampled = ProxyNorm(name, 8, n_samples=n_samples, closed_form=False).double()
        sampled.load_state_dict(exact.state_dict())
        errors.append(
            max(
                (a - b).abs().max().item()
                for a, b in zip(exact.moments(), sampled.moments(), strict=True)
            )
        )
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-3


def test_sample_points_are_those_of_the_paper():
    # quantiles at (i + 1/2) / n: for n = 2 the quartiles, so tanh's mean is 0
    module = ProxyNorm("tanh", 1, n_samples=2).double()
    mean, var = module.moments()
    assert mean.item() == pytest.approx(0, abs=1e-15)
    assert var.item() == pytest.approx(math.tanh(0.6744897501960817) ** 2, rel=1e-12)


@settings(deadline=None)  # the first call may load kernels
@given(
    st.sampled_from(["relu", "gelu", "tanh", "elu", "nlrelu", "prelu", "combu", "combu-random"]),
    st.floats(0.5, 2),
    st.floats(-0.5, 1),
    st.floats(-0.3, 0.3),
    st.floats(-0.3, 0.3),
)
def test_gaussian_input_is_standardised(name, gamma, beta, shift, spread):
    # 256 points cut the tails: enough in a network, not for a property
    module = ProxyNorm(name, 4, eps=0.0, n_samples=20_000).double()
    with torch.no_grad():
        for parameter, value in zip(
            (module.gamma, module.beta, module.proxy_beta, module.proxy_gamma),
            (gamma, beta, shift, spread),
            strict=True,
        ):
            parameter.fill_(value)
    u = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    weights = torch.exp(-0.5 * u * u)
    weights = (weights / weights.sum()).unsqueeze(1)
    out = module((shift + (1 + spread) * u).unsqueeze(1).expand(-1, 4)).detach()
    mean = (weights * out).sum(0)
    assert mean.abs().max() < 0.01
    assert ((weights * (out - mean) ** 2).sum(0) - 1).abs().max() < 0.02


def test_without_scale_only_the_mean_goes():
    x = torch.randn(5, 8)
    module = ProxyNorm("relu", 8, scale=False)
    torch.testing.assert_close(module(x), torch.relu(x) - 1 / math.sqrt(2 * math.pi))


def test_proxy_parameters_can_be_left_out():
    module = ProxyNorm("relu", 8, proxy_params=False)
    assert {n for n, _ in module.named_parameters()} == {"gamma", "beta"}
    x = torch.randn(5, 8)
    torch.testing.assert_close(module(x), ProxyNorm("relu", 8)(x))


@pytest.mark.parametrize("name", ["relu", "prelu", "elu", "selu", "identity", "combu", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("gamma", "beta"), [(0.0, 0.0), (0.0, 2.0), (1e-8, -3.0), (-1.0, 50.0)])
def test_degenerate_parameters_give_finite_gradients(name, dtype, gamma, beta):
    module = ProxyNorm(name, 8).to(dtype)
    with torch.no_grad():
        module.gamma.fill_(gamma)
        module.beta.fill_(beta)
    x = torch.linspace(-2, 2, 16, dtype=dtype).view(2, 8).requires_grad_()
    out = module(x)
    grads = torch.autograd.grad(out.sum(), [x, *module.parameters()])
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)


def test_activation_may_be_a_module_or_a_factory():
    x = torch.randn(5, 8)
    expected = ProxyNorm("relu", 8)(x)
    torch.testing.assert_close(ProxyNorm(nn.ReLU(), 8)(x), expected)
    torch.testing.assert_close(ProxyNorm(lambda width: nn.ReLU(), 8)(x), expected)


class _Of(nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class _Mine(PLN):
    pass


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("pln-4", "PLN"),
        ("pls", "PLS"),
        ("la-silu", "LASiLU"),
        ("la-hardsilu", "LAHardSiLU"),
        (lambda width: LayerAct(lambda n: 0.5 + torch.atan(n) / torch.pi), "LayerAct"),
        (_Mine, "_Mine"),
        (lambda width: Blend(width, "pln-4"), "PLN"),
        (lambda width: nn.Sequential(ProxyNorm("relu", width)), "ProxyNorm"),
    ],
)
def test_declared_multi_unit_activation_is_refused(spec, kind):
    with pytest.raises(ValueError, match=rf"unit-wise activation, .*; {kind} looks at many units"):
        ProxyNorm(spec, 8)


MIXERS = {
    "less the row's mean": lambda x: x - x.mean(-1, keepdim=True),
    "less the mean of the rows": lambda x: x - x.mean(0),
    "over the largest": lambda x: x / x.abs().amax(-1, keepdim=True).clamp_min(5),
    "the neighbour's": lambda x: x.roll(1, -1),
    "of rows before": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(-1),
    "by chance": lambda x: x + torch.randn_like(x),
    "another shape": lambda x: x[..., :4],
}


@pytest.mark.parametrize("name", MIXERS)
def test_detected_multi_unit_activation_is_refused(name):
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"unit-wise"):
        ProxyNorm(lambda width: _Of(MIXERS[name]), 8)
    assert torch.equal(torch.get_rng_state(), before)


def test_single_unit_activation_is_accepted():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return torch.sin(x)

    phi = Counted()
    module, x = ProxyNorm(phi, 8), torch.randn(5, 8)
    assert phi.calls == 0
    assert module.kernel() is None
    mean, var = 0.0, (1 - math.exp(-2)) / 2  # of sin(Y), Y standard normal
    expected = (torch.sin(x) - mean) / math.sqrt(var + 0.03)
    torch.testing.assert_close(module(x), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ProxyNorm("relu", 8, eps=-1.0), "eps must not be negative"),
        (lambda: ProxyNorm("relu", 8, n_samples=1), r"n_samples.*2"),
        (lambda: ProxyNorm(PReLU(8, dim=1), 8), "dim=-1"),
        (lambda: ProxyNorm(CombU(8, dim=1), 8), "dim=-1"),
        (lambda: ProxyNorm("relu", 8)(torch.zeros(2, 7)), "built for 8 features, got 7"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
