"""papers/proxynorm/training: its nets against torch, its numbers against synthetic rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.papers.proxynorm.random_nets.nets import EPS, Net, make_steps, nonlinearity
from benchmarks.papers.proxynorm.training import __main__ as training
from benchmarks.papers.proxynorm.training.nets import NORMS, ResidualNets, Shape
from benchmarks.papers.proxynorm.training.runs import Program, Recipe, load_split
from combutab.activations import ProxyNorm

SHAPES = {"table": {"n_inputs": 5}, "image": {"n_inputs": 64, "image": True}}

SMALL = Recipe(8, 3, n_train=64, n_test=50, epochs=2)


def build(kind, norm, seeds=(4,), **more):
    groups = 1 if norm.startswith("LN") else 2
    sizes = {"n_classes": 3, "norm": norm, "groups": groups, "width": 8, "n_blocks": 2}
    shape = Shape(**sizes, **SHAPES[kind], **more)
    return ResidualNets(shape, list(seeds))


def network(kind, norm, **more):
    """One member's own, which is not a stack."""
    return build(kind, norm, **more).nets.kinds[0].each[0]


def rows_of(kind, n_members=1):
    shape = (n_members, 6, SHAPES[kind]["n_inputs"])
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", SHAPES)
def test_networks_have_the_described_layers(kind, name):
    net = network(kind, name)
    _, stem, *blocks, norm, activation, _, _, dropout, classifier = net
    assert stem.stride == ((2, 2) if kind == "image" else (1, 1))
    assert stem.standardise is ("WS" in name)
    steps = [[block.branch[i : i + 2] for i in (0, 3)] for block in blocks]
    for first, second in [*(pair for both in steps for pair in both), (norm, activation)]:
        assert isinstance(first, nn.BatchNorm2d if name.startswith("BN") else nn.GroupNorm)
        if not name.startswith("BN"):
            assert first.num_groups == (1 if name.startswith("LN") else 2)
        assert (first.eps, first.affine) == (1e-6, not name.endswith("+PN"))
        assert isinstance(second, ProxyNorm if name.endswith("+PN") else nn.ReLU)
    # the last one only centres, before the mean over the positions of an image
    assert getattr(activation, "scale", True) is not (kind == "image" and name.endswith("+PN"))
    x = rows_of(kind)[0]
    h = stem(x.view(6, 1, 8, 8) if kind == "image" else x.view(6, 5, 1, 1))
    for block in blocks:
        assert (block.gain is None) is ("WS" not in name)
        h = h + block.branch(h)
    expected = classifier(activation(norm(h)).mean((2, 3)))
    torch.testing.assert_close(net(x), expected)
    assert dropout.p == 0


@pytest.mark.parametrize("name", ["BN", "GN+WS+PN"])
@pytest.mark.parametrize("kind", SHAPES)
def test_members_do_not_see_each_other(kind, name):
    x = rows_of(kind, 3)
    together = build(kind, name, [4, 5, 6], extra=True)(x)
    alone = build(kind, name, [5], extra=True)(x[1:2])
    torch.testing.assert_close(together[1:2], alone)


def program(net="CNN", data="digits", norm="LN+PN", batch_size=16, seeds=(0, 1), **more):
    return Program(net, data, norm, batch_size, "plain", seeds, **{"recipe": SMALL, **more})


def train(program):
    """The rows as they are kept."""
    job = training.job(program)
    return [own | found for own, found in zip(job.wanted, job.run(), strict=True)]


@pytest.mark.parametrize("kind", ["plain", "extra"])
def test_the_recorded_loss_is_without_the_penalty(kind):
    """At a rate of next to nothing it is that of the first weights."""
    recipe = replace(SMALL, learning_rate=1e-12)
    own = replace(program(norm="LN", recipe=recipe, seeds=(3,)), regularisation=kind)
    row = train(own)[0]
    split = load_split("digits", recipe)
    net = ResidualNets(Shape(64, 10, "LN", 1, 8, 1, image=True), [3])
    net.train(False)
    logits = net.predict(split.X_train, None, 500)[0]
    smoothing, near = (0.1, 0.2) if kind == "extra" else (0.0, 1e-4)  # with dropout
    expected = F.cross_entropy(logits, split.y_train, label_smoothing=smoothing).item()
    assert row["train_loss"] == pytest.approx(expected, rel=near)
    assert row["log_loss"] == pytest.approx(
        F.cross_entropy(net.predict(split.X_test, None, 500)[0], split.y_test).item(), rel=1e-4
    )


# ---- papers/proxynorm/random_nets: its nets against numpy, its numbers against synthetic rows ---

EXACT = {"dtype": torch.float64, "eps": 1e-14}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def steps(norm, gamma, beta, groups=2, eps=EPS):
    return make_steps(norm, groups, eps, torch.as_tensor(gamma), torch.as_tensor(beta))


@torch.no_grad()
def test_a_random_net_is_the_network_of_numpy():
    """LN, dense: the third layer's output by plain numpy from the layers drawn."""
    network, X = Net("dense", 6, 3, n_inputs=20).build("LN", 5, **EXACT)
    z = X.flatten(1).numpy()
    for conv, _, affine, _ in network[1:]:
        x = z @ conv.weight.flatten(1).numpy().T
        y = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
        z = np.maximum(y * affine.gamma.flatten().numpy() + affine.beta.flatten().numpy(), 0)
    np.testing.assert_allclose(network(X).flatten(1), z, atol=1e-9)


def test_linearity_of_relu():
    # symmetric: z = relu(y) has half of y's power, and half of its own is not explained
    y = torch.randn(100, 1, generator=torch.Generator().manual_seed(0)).double()
    y = torch.cat([y, -y])
    for channels, share in (([y], 0.5), ([y.abs()], 0.0), ([y, y.abs(), -y.abs(), 0 * y], 1 / 6)):
        (found,) = nonlinearity(nn.Sequential(nn.ReLU()), torch.cat(channels, 1), 1)
        assert found == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("norm", ["LN", "BN"])
def test_batch_norm_keeps_activations_nonlinear(norm):
    found = nonlinearity(*Net("dense", 64, 16).build(norm, 0), 1)
    assert (found.iloc[-1] < 0.15) == (norm == "LN")
    assert found.min() > 0.3 or norm == "LN"
