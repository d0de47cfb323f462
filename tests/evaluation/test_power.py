"""power_decomposition: against numpy, and against the theorems."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from combutab import ProxyNorm
from combutab.evaluation import activation_stats, power_decomposition

pytestmark = pytest.mark.usefixtures("paper_defaults")

TERMS = ["P1", "P2", "P3", "P4"]


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


class Same(nn.Module):
    def forward(self, x):
        return x.clone()


def power(X, **options):
    return power_decomposition(Same(), X, layers="-", **options)


def numpy_terms(X):  # (inputs, channels, positions)
    means, sds = X.mean(2), X.std(2)
    return pd.DataFrame(
        {
            "P": (X**2).mean((0, 2)),
            "P1": means.mean(0) ** 2,
            "P2": means.var(0),
            "P3": sds.mean(0) ** 2,
            "P4": sds.var(0),
        }
    )


# ---- against numpy -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 16, 50])
@pytest.mark.parametrize("dim", [1, -1, 2])
def test_terms_are_those_of_numpy(batch_size, dim):
    # scale, shift and spread of their own for each channel and input
    X = normals(50, 4, 6) * normals(50, 1, 1, seed=1) ** 2 + 3 * normals(1, 4, 1, seed=2)
    given = np.moveaxis(X.reshape(50, 4, 2, 3), 1, dim)
    found = power(given, dim=dim, per_channel=True, batch_size=batch_size)
    assert found["channel"].tolist() == [0, 1, 2, 3]
    expected = numpy_terms(X)
    np.testing.assert_allclose(found[["P", *TERMS]], expected, rtol=1e-10)
    (mean,) = power(given, dim=dim, batch_size=batch_size).to_dict("records")
    assert mean["n_channels"] == 4
    np.testing.assert_allclose([mean[t] for t in ("P", *TERMS)], expected.mean(), rtol=1e-10)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 30),
    channels=st.integers(1, 4),
    positions=st.integers(1, 5),
    batch_size=st.integers(1, 30),
    offset=st.sampled_from([0.0, 1.0, -1e4]),
    seed=st.integers(0, 100),
)
def test_terms_sum_to_the_power(n, channels, positions, batch_size, offset, seed):
    X = normals(n, channels, positions, seed=seed) + offset
    found = power(X, dim=1, batch_size=batch_size, per_channel=True)
    np.testing.assert_allclose(found[TERMS].sum(axis=1), found["P"], rtol=1e-12)
    np.testing.assert_allclose(found["P"], (X**2).mean((0, 2)), rtol=1e-12)
    assert (found[TERMS] >= 0).all(axis=None)


def test_without_positions_all_power_is_between_inputs():
    X = normals(40, 3) + 2
    found = power(X, per_channel=True)
    np.testing.assert_allclose(found["P1"], X.mean(0) ** 2)
    np.testing.assert_allclose(found["P2"], X.var(0))
    assert (found[["P3", "P4"]] == 0).all(axis=None)


def test_small_variance_of_a_large_mean_survives():
    X = 1e6 + normals(1000, 1)
    found = power(X, batch_size=10).iloc[0]
    assert found["P2"] == pytest.approx(X.var(), rel=1e-6)
    assert found["P1"] == pytest.approx(X.mean() ** 2)


def test_one_case_by_hand():
    # one channel, two inputs of two positions: means 1 and 4, standard deviations 1 and 2
    found = power(np.array([[[0.0, 2.0]], [[2.0, 6.0]]]), dim=1).iloc[0]
    assert found[["P", *TERMS]].tolist() == pytest.approx([11.0, 6.25, 2.25, 2.25, 0.25])


# ---- known answers: Proposition 3, Theorems 1 and 2 ----------------------------------------------


def images(n=64, channels=6, size=5, seed=0):
    """Whose means and spreads vary from one to the next."""
    x = normals(n, channels, size, size, seed=seed)
    x *= np.exp(normals(n, channels, 1, 1, seed=seed + 1))
    return torch.from_numpy(x + normals(n, channels, 1, 1, seed=seed + 2) + 1)


BATCH = nn.BatchNorm2d(6, affine=False, track_running_stats=False, eps=1e-12)
NORMS = {
    "batch": BATCH,
    "layer": nn.GroupNorm(1, 6, affine=False, eps=0.0),
    "group": nn.GroupNorm(3, 6, affine=False, eps=0.0),
    "instance": nn.InstanceNorm2d(6, eps=1e-12),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalised_activations_have_power_one(name):
    found = power_decomposition(NORMS[name], images(), dim=1)
    assert found["P"].tolist() == pytest.approx([1.0])
    assert found[TERMS].sum(axis=1).tolist() == pytest.approx([1.0])
    assert found["layer"].tolist() == ["-"]


def test_batch_norm_leaves_nothing_constant():
    found = power_decomposition(BATCH, images(), dim=1, per_channel=True)
    np.testing.assert_allclose(found["P1"], 0.0, atol=1e-25)
    np.testing.assert_allclose(found["P"], 1.0)
    assert (found[["P2", "P3", "P4"]] > 0.01).all(axis=None)  # free to be anything


def test_instance_norm_leaves_no_variability_of_instances():
    found = power_decomposition(NORMS["instance"], images(), dim=1, per_channel=True)
    np.testing.assert_allclose(found["P3"], 1.0)
    np.testing.assert_allclose(found[["P1", "P2", "P4"]], 0.0, atol=1e-20)


class Affine(nn.Module):
    """Scales from N(1, 0.2^2), shifts from N(0, 0.2^2), as in the paper's appendix B.1."""

    def __init__(self, width):
        super().__init__()
        self.gamma = nn.Parameter(1 + 0.2 * torch.randn(width))
        self.beta = nn.Parameter(0.2 * torch.randn(width))

    def forward(self, x):
        return x * self.gamma + self.beta


RHO = 1.04 / 1.08


def random_net(depth, width, norm, phi):
    """Definition 1, of dense layers."""
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        linear = nn.Linear(width, width, bias=False)
        nn.init.normal_(linear.weight, std=width**-0.5)
        layers += [linear, norm(width), Affine(width), phi()]
    return nn.Sequential(*layers).double()


def layer_norm(width):
    return nn.LayerNorm(width, elementwise_affine=False)


class Identity(nn.Identity):
    pass


@pytest.mark.parametrize("phi", [nn.ReLU, Identity])
def test_layer_norm_collapses_as_theorem_1_says(phi):
    depth, X = 16, normals(64, 256)
    net = random_net(depth, 256, layer_norm, phi)
    found = power_decomposition(net, X)
    assert found["depth"].tolist() == list(range(1, depth + 1))
    assert found["P"].to_numpy() == pytest.approx(np.ones(depth), abs=1e-3)
    left = (found["P"] - found["P1"]).to_numpy()
    bound = RHO ** np.arange(depth)
    assert (left <= 1.1 * bound).all()
    if phi is Identity:  # then the bound is met
        np.testing.assert_allclose(left, bound, rtol=0.12)
    else:
        assert left[-1] < 0.1


def batch_norm(width):
    return nn.BatchNorm1d(width, affine=False, track_running_stats=False)


def test_batch_norm_does_not_collapse():
    X = normals(64, 64)
    found = power_decomposition(random_net(16, 64, batch_norm, nn.ReLU), X)
    assert found["P1"].max() < 1e-20


# ---- which layers --------------------------------------------------------------------------------


def test_default_layers_are_norms_or_activation_inputs():
    torch.manual_seed(0)
    X = normals(30, 4)
    linear, norm = nn.Linear(4, 4).double(), nn.LayerNorm(4).double()
    plain = nn.Sequential(linear, nn.ReLU(inplace=True))
    y = linear(torch.from_numpy(X)).detach()
    found = power_decomposition(plain, X, per_channel=True)
    assert found["layer"].unique().tolist() == ["1"]
    np.testing.assert_allclose(found["P"], (y**2).mean(0))
    found = power_decomposition(nn.Sequential(linear, norm, nn.ReLU()), X, per_channel=True)
    assert found["layer"].unique().tolist() == ["1"]
    np.testing.assert_allclose(found["P"], (norm(y).detach() ** 2).mean(0))
    given = power_decomposition(nn.Sequential(linear, norm, nn.ReLU()), X, at="input")
    assert given["P"].tolist() == pytest.approx([(y**2).mean().item()])
    gives = power_decomposition(plain, X, at="output")
    assert gives["P"].tolist() == pytest.approx([(y.relu() ** 2).mean().item()])
    named = power_decomposition(plain, X, layers=["0", "1"])
    assert named["layer"].tolist() == ["0", "1"]
    assert named["P"].tolist() == pytest.approx([(y**2).mean().item(), gives["P"][0]])


def test_proxy_norm_features_are_last():
    images = torch.from_numpy(normals(20, 3, 4, 5))
    images += torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1)  # which sets the channels apart
    net = nn.Sequential(ProxyNorm(nn.ReLU(), 3, dim=1)).double()
    power = power_decomposition(net, images, layers="0.activation", dim=1)
    assert power["n_channels"].tolist() == [3]
    stats = activation_stats(net, images, layers="0.activation", dim=1)
    assert stats.layers["n_units"].tolist() == [3]
    assert stats.layers["saturated"].notna().all()


# ---- errors --------------------------------------------------------------------------------------


def test_errors():
    X = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="'both'"):
        power_decomposition(nn.ReLU(), X, at="both")
    with pytest.raises(ValueError, match="no normalisation"):
        power_decomposition(nn.Linear(3, 3), X)
    with pytest.raises(ValueError, match=r"\(4, 2, 5\)"):
        power_decomposition(nn.ReLU(), torch.zeros(4, 2, 5))
    with pytest.raises(ValueError, match="batch_size"):
        power_decomposition(nn.ReLU(), X, batch_size=-1)
    with pytest.raises(ValueError, match=r"'norm'.*'-'"):
        power_decomposition(nn.ReLU(), X, layers="norm")
