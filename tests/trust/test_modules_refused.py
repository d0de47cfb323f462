"""A user's own activation modules that cannot be honoured are refused with the reason."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from combutab import CTGAN, TVAE, MLPClassifier, MLPRegressor
from combutab.activations import ProxyNorm
from combutab.nn import Member, MLPSpec, StackedMLP
from tests.trust.own_modules import (
    OWN,
    WIDTH,
    Mixed,
    Normed,
    Reduced,
    Softmax,
    table,
    without_width,
)


class AcrossRows(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class ByChance(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, training=True)


class Kept(nn.Module):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(())

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return x - self.mean


class Late(nn.Module):
    def forward(self, x):
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(()))
        return torch.relu(x)


class Detached(nn.Module):
    def forward(self, x):
        return x.detach()


class Doubles(nn.Module):
    def forward(self, x):
        return x.double()


_ONE = Mixed(8)

REFUSED = {
    "across rows": (without_width(AcrossRows), "depends on the rows"),
    "softmax over rows": (lambda width: nn.Softmax(dim=0), "depends on the rows"),
    "by chance": (without_width(ByChance), "chance"),
    "a tensor as it is": (without_width(Kept), "register_buffer"),
    "a late buffer": (without_width(Late), "buffers"),
    "another type": (without_width(Doubles), "float64"),
    "a whole module again": (lambda width: _ONE, "fresh"),
    "another width": (lambda width: nn.Linear(width, width + 1), "keeps the shape"),
    "not differentiable": (without_width(Detached), "differentiated"),
    "fails": (lambda width: nn.Conv2d(3, 3, 3), "fails"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    "fit",
    [
        lambda a: MLPRegressor(activation=a, hidden_layer_sizes=(8,)).fit(*table()),
        lambda a: MLPClassifier(activation=a, hidden_layer_sizes=(8,)).fit(
            table()[0], table()[0][:, 0] > 3
        ),
        lambda a: CTGAN(activation=a, generator_dim=(8,), discriminator_dim=(8,)).fit(table()[0]),
        lambda a: TVAE(activation=a, compress_dims=(8,), decompress_dims=(8,)).fit(table()[0]),
    ],
    ids=["regressor", "classifier", "CTGAN", "TVAE"],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(name, fit):
    factory, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        fit(factory)


class RowMean(nn.Module):
    """Unit-wise to the eye of a list of names."""

    def forward(self, x):
        return torch.relu(x - x.mean(-1, keepdim=True))


@pytest.mark.parametrize(
    "factory", [Normed, *(without_width(cls) for cls in (RowMean, ByChance, Softmax))]
)
def test_proxy_norm_refuses_what_is_not_unit_wise(factory):
    with pytest.raises(ValueError, match="unit-wise"):
        ProxyNorm(factory, 8)


def test_proxy_norm_of_a_users_module_is_one_members():
    """A parameter that is reduced over the width once mixed the members of a stack."""
    shape = MLPSpec(3, (WIDTH, WIDTH), 2, normalization="layer", proxy_norm=True)
    members = [Member(seed, Reduced) for seed in range(3)]
    nets = [
        StackedMLP(shape, part, dtype=torch.float64) for part in (members, *([m] for m in members))
    ]
    x = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = nets[0](x.expand(3, -1, -1))
    for i, alone in enumerate(nets[1:]):
        torch.testing.assert_close(together[i], alone(x)[0], rtol=1e-9, atol=1e-9)


def test_a_proxy_norm_takes_the_moments_of_a_subclass_from_its_forward():
    """The closed form is the base class's."""
    norm = ProxyNorm(lambda width: OWN["subclass of ReLU"](width), 4, eps=0.0)
    y = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0))
    z = norm(y.expand(-1, 4))
    assert z.mean().abs() < 0.02
    assert abs(z.var() - 1) < 0.03
