"""papers/proxynorm/training: its nets against torch, its numbers against synthetic rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.papers.proxynorm.random_nets.nets import EPS, Net, make_steps, nonlinearity
from benchmarks.papers.proxynorm.training import __main__ as training
from benchmarks.papers.proxynorm.training import runs
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
def test_each_map_has_a_norm_and_an_activation_before_it(kind, name):
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


def test_batch_norm_predicts_by_running_statistics():
    stack = build("table", "BN")
    norm = stack.nets.kinds[0].each[0][2].branch[0]
    x = rows_of("table")
    stack(x)
    seen = norm.running_mean.clone()
    stem = stack.nets.kinds[0].each[0][1]
    torch.testing.assert_close(seen, 0.03 * stem(x[0].view(6, 5, 1, 1)).mean((0, 2, 3)))
    stack.eval()
    torch.testing.assert_close(stack(x[:, :1]), stack(x)[:, :1])
    assert torch.equal(norm.running_mean, seen)


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


def test_the_sum_of_rates_does_not_depend_on_the_batch():
    programs = [program(batch_size=b, recipe=runs.RECIPES["CNN"]) for b in (8, 32, 128, 512)]
    assert [p.epochs for p in programs] == [6, 12, 24, 48]
    assert [p.steps for p in programs] == [768, 384, 192, 96]
    sums = [p.learning_rate * p.steps for p in programs]
    np.testing.assert_allclose(sums, sums[0])
    rates = [runs.rate_factor(step / 768) for step in range(768)]
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert np.mean(rates) == pytest.approx(0.5, abs=0.01)


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


@pytest.mark.parametrize(
    ("norm", "axes"), [("BN", (0, 2, 3)), ("IN", (2, 3)), ("LN", (1, 2, 3)), ("LN+PN", (1, 2, 3))]
)
def test_norms_take_the_statistics_of_their_axes(norm, axes):
    x = torch.randn(5, 6, 3, 3, generator=generator(), dtype=torch.float64).numpy() * 3 + 1
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    step = steps(norm, np.ones(6), np.zeros(6), eps=1e-14)[0]  # BN takes no 0
    np.testing.assert_allclose(step(torch.from_numpy(x)), expected, atol=1e-12)


@pytest.mark.parametrize("norm", ["LN", "LN+PN"])
def test_activation_step(norm):
    gamma, beta = torch.tensor([1.0, 0.5, -2.0]), torch.tensor([0.0, 1.0, 0.3])
    y = torch.randn(4, 3, 2, 2, generator=generator())
    with torch.no_grad():
        found = nn.Sequential(*steps(norm, gamma, beta)[1:])(y)
    expected = (y * gamma.view(-1, 1, 1) + beta.view(-1, 1, 1)).clamp_min(0)
    if norm == "LN+PN":  # Eq. (7), its moments by sampling
        proxy = gamma * torch.randn(400_000, 1, generator=generator()) + beta
        std, mean = torch.std_mean(proxy.clamp_min(0), dim=0)
        expected = (expected - mean.view(-1, 1, 1)) / (std**2 + 0.03).sqrt().view(-1, 1, 1)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


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


def test_nonlinearity_is_the_residual_of_least_squares_in_each_channel():
    net = Net("conv", 4, 2, ("BN",), n_inputs=12)
    network, X = net.build("BN", 3)
    residuals, powers = [], []
    for values in network[2][:3](network[:2](X)).detach().double().movedim(1, 0).flatten(1).numpy():
        z = np.maximum(values, 0)
        (slope,), *_ = np.linalg.lstsq(values[:, None], z, rcond=None)
        residuals.append(((z - values * slope) ** 2).mean())
        powers.append((z**2).mean())
    assert nonlinearity(network, X, 1)[2] == pytest.approx(sum(residuals) / sum(powers))


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
