"""The studies on the PLN paper: targets, networks, training and what the rows say."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.papers.pln import approximation, deep_networks
from benchmarks.papers.pln.deep_networks import build

# ---- One hidden layer ---------------------------------------------------------------------------


def test_the_target_functions_are_what_the_page_says():
    x = np.array([-5.0, -0.5, 0.25, 5.0])
    paper = approximation.target("trigonometric", 0)
    np.testing.assert_allclose(paper(x), np.sin(2 * x + 1) + np.cos(x))
    values = approximation.target("random values", 3)
    middle = (values(np.array([0.0])) + values(np.array([0.5]))) / 2
    assert values(np.array([0.25])) == pytest.approx(middle), "straight lines"
    for family in approximation.N_POINTS:
        drawn = [approximation.target(family, number)(approximation.GRID) for number in range(5)]
        assert len({tuple(values) for values in drawn}) == 5
        again = approximation.target(family, 4)(approximation.GRID)
        np.testing.assert_array_equal(drawn[4], again)
    for family in ("bumps", "polynomials"):
        drawn = approximation.target(family, 2)(approximation.GRID)
        assert np.abs(drawn).max() == pytest.approx(1.0)


def test_rows_hold_the_errors_of_the_trained_network(monkeypatch):
    kept, trained = [], approximation.trained
    monkeypatch.setattr(approximation, "trained", lambda *a: kept.append(trained(*a)) or kept[-1])
    shape = {"family": "random values", "n_points": "21", "width": "16"}
    networks = [("0", "combu", 3, 0.01), ("4", "relu", 3, 0.01), ("4", "relu", 3, 1e30)]
    errors = approximation.train(shape, networks, 30)
    state = kept[0][1][1].state
    net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    with torch.no_grad():
        for i in (0, 2):
            net[i].weight.copy_(state[f"linears.{i // 2}.weight"].T)
            net[i].bias.copy_(state[f"linears.{i // 2}.bias"].squeeze(0))

    def error(x):
        with torch.no_grad():
            output = net(torch.tensor(x)[:, None])[:, 0].numpy()
        return output - approximation.target("random values", 4)(x)

    assert errors[1] == pytest.approx(np.mean(error(np.linspace(-5, 5, 21)) ** 2), rel=1e-4)
    assert np.isinf(errors[2]), "it diverged"


def test_the_learning_rate_is_chosen_on_another_seed(monkeypatch):
    calls = []

    def train(shape, networks, n_steps):
        calls.append((networks, n_steps))
        best = {"relu": 0.001, "tanh": 0.1}
        return np.array([abs(rate - best[name]) + seed for _, name, seed, rate in networks])

    monkeypatch.setattr(approximation, "train", train)
    own = {"family": "trigonometric", "number": "1", "n_steps": "100"}
    rows = [own | {"activation": name, "seed": seed} for name in ("relu", "tanh") for seed in "12"]
    found = approximation.run(rows)
    assert [row["learning_rate"] for row in found] == [0.001, 0.001, 0.1, 0.1]
    assert [row["mse"] for row in found] == [1, 2, 1, 2]
    (searched, steps), (networks, n_steps) = calls
    assert (steps, n_steps) == (25, 100)
    assert {seed for _, _, seed, _ in searched} == {0}
    assert networks[1] == ("1", "relu", 2, 0.001)


# ---- Deep networks without normalisation ---------------------------------------------------------


def settings(**changed):
    """A row of settings, as text."""
    row = {"data": "digits", "body": "plain", "init": "torch", "depth": 4, "activation": "tanh"}
    row |= {"width": 32, "n_rows": 600, "n_steps": 120, "batch_size": 64, "seed": 0}
    return {name: str(value) for name, value in (row | changed).items()}


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def forward_by_hand(body, net, x, member):
    """One member's output in float64 numpy, with ReLU."""
    first, *hidden, last = (
        (layer.weight[member].detach().numpy(), layer.bias[member].detach().numpy())
        for layer in net.linears
    )

    def relu(values):
        return np.maximum(values, 0.0)

    def linear(values, layer):
        return values @ layer[0] + layer[1]

    h = linear(x, first)
    if body == "plain":
        for layer in hidden:
            h = linear(relu(h), layer)
        return linear(relu(h), last)
    if body == "residual":
        h = relu(h)
        for one, other in zip(hidden[::2], hidden[1::2], strict=True):
            h = relu(h + linear(relu(linear(h, one)), other))
        return linear(h, last)
    for one, other in zip(hidden[::2], hidden[1::2], strict=True):
        h = h + linear(relu(linear(relu(h), one)), other)
    return linear(relu(h), last)


@pytest.mark.parametrize("body", deep_networks.BODIES)
def test_network_is_what_it_says(body):
    shape = settings(body=body, depth=8, activation="relu", init="kaiming", width=6)
    net = build(shape, 5, 3, [3, 4], torch.float64)
    assert sum(p.numel() for p in net.parameters()) == 2 * (6 * 6 + 6 * 42 + 3 * 7)
    assert net.n_decayed == 6 * 6 + 6 * 42 + 3 * 7, "biases decay too"
    x = drawn(2, 7, 5)
    out = net(x).detach().numpy()
    for member in range(2):
        expected = forward_by_hand(body, net, x[member].numpy(), member)
        np.testing.assert_allclose(out[member], expected, rtol=1e-12)
    torch.testing.assert_close(net.predict(x[0], None, 5)[0], net(x)[0], rtol=1e-12, atol=0)
    alone = build(shape, 5, 3, [4], torch.float64)
    torch.testing.assert_close(alone(x[1:]), net(x)[1:])


def test_training_learns_diverges_and_takes_each_member_alone():
    slow, fast = deep_networks.train([settings(learning_rate=rate, seed=7) for rate in (0.1, 1e30)])
    assert slow["train_score"] > 0.95
    assert slow["test_score"] > 0.8
    assert not slow["diverged"]
    wild = settings(learning_rate=1e30, activation="relu", init="kaiming", n_steps=12)
    (exploded,) = deep_networks.train([wild])
    assert exploded["diverged"]
    assert exploded["test_score"] is exploded["train_loss"] is None
    (alone,) = deep_networks.train([settings(learning_rate=0.1, seed=7)])
    beside = pytest.approx(slow["train_loss"], rel=1e-3)
    assert alone["train_loss"] == beside, "also beside a wild rate"
    assert fast != slow
