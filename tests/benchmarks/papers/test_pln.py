"""The studies on the PLN paper in their smallest form, as a user would run them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks.papers.pln import shared
from benchmarks.papers.pln.approximation import findings, runs
from benchmarks.papers.pln.depth import networks
from benchmarks.papers.pln.depth.findings import (
    Evidence,
    choose_rates,
)
from benchmarks.papers.pln.depth.networks import Task, build, gradient_norms

# ---- The study of PLN as normalisation: its networks, contrasts and page ------------------------

SPLITS = 10


def rows_of(scores):
    """Rows of {(data, normalization, activation): scores by split}."""
    return pd.DataFrame(
        [
            {
                "data": data,
                "depth": 3,
                "normalization": normalization,
                "activation": activation,
                "split": split,
                "score": score,
                "n_train": 80,
                "n_test": 20,
                "task": "regression",
            }
            for (data, normalization, activation), by_split in scores.items()
            for split, score in enumerate(by_split)
        ]
    )


def noisy(mean, seed):
    return mean + 0.002 * np.random.default_rng(seed).standard_normal(SPLITS)


def study(means, n_data=8):
    """Scores around the same means on each of some data sets."""
    return rows_of(
        {
            (f"data{i}", *kind): noisy(mean, 100 * i + place)
            for i in range(n_data)
            for place, (kind, mean) in enumerate(means.items())
        }
    )


PLN = {("pln", "identity"): 0.80, ("pln", "relu"): 0.81}


# ---- The approximation study of the PLN paper: its targets, search, numbers, and its quick form --


def test_the_targets_are_lipschitz():
    x = np.linspace(-5, 5, 20_001)
    for target in runs.TARGETS.values():
        steepest = np.abs(np.diff(target.function(x))).max() / (x[1] - x[0])
        assert 0.8 * target.lipschitz < steepest <= target.lipschitz * (1 + 1e-9)
    assert runs.TARGETS["trigonometric"].function(np.array([-0.5])) == pytest.approx(math.cos(0.5))
    random = runs.TARGETS["random"]
    assert random.points.tolist() == np.arange(-5, 5.5, 0.5).tolist()
    assert np.abs(random.function(random.points)).max() <= 1


def stack_of(*networks, **shared):
    """Settings of (activation, rate, seed), as text."""
    names = ("activation", "learning_rate", "seed")
    rows = [
        {"data": "random", "batch_size": 4, **shared, **dict(zip(names, n, strict=True))}
        for n in networks
    ]
    return [{name: str(value) for name, value in row.items()} for row in rows]


def test_rows_hold_the_errors_of_the_trained_network(monkeypatch):
    kept, trained = [], runs.trained
    monkeypatch.setattr(runs, "trained", lambda *a: kept.extend(trained(*a)) or tuple(kept))
    rows = runs.train(
        stack_of(
            *(("combu", 0.01, 3), ("relu", 0.01, 3), ("relu", 1e12, 3)),
            stage="final",
            width=16,
            epochs=10,
            solver="sgd",
        )
    )
    state = kept[1][1].state
    net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    with torch.no_grad():
        for i in (0, 2):
            net[i].weight.copy_(state[f"linears.{i // 2}.weight"].T)
            net[i].bias.copy_(state[f"linears.{i // 2}.bias"].squeeze(0))

    def output(x):
        with torch.no_grad():
            return net(torch.tensor(x)[:, None])[:, 0].numpy()

    target, row = runs.TARGETS["random"], rows[1]
    points, grid = np.linspace(-5, 5, 21), np.linspace(-5, 5, 1001)
    mse = np.mean((output(points) - target.function(points)) ** 2)
    assert float(row["mse"]) == pytest.approx(mse, rel=1e-4)
    sup = np.abs(output(grid) - target.function(grid)).max()
    assert float(row["sup_error"]) == pytest.approx(sup, rel=1e-4)
    drawn = np.array(row["curve"].split(), dtype=np.float64)
    np.testing.assert_allclose(drawn, output(np.linspace(-5, 5, 101)), atol=6e-4)
    assert rows[2]["mse"] == ""
    assert rows[2]["error"].startswith("diverged")


@pytest.mark.parametrize(
    ("activation", "n"), [("pln-2", 16), ("pln-4", 8), ("pls-1", 32), ("tanh", 32), ("relu", 31)]
)
@pytest.mark.parametrize("data", ["trigonometric", "random"])
def test_the_constructed_network_keeps_the_bound(data, activation, n):
    found = findings.reference(data, activation, 32)
    lipschitz = 10 * runs.TARGETS[data].lipschitz
    assert found["bound"] == pytest.approx(lipschitz / (2 * n))
    assert found["constructed"] < lipschitz / (2 * (n - 0.5))
    assert math.exp(found["constructed_log_loss"] / 2) <= found["constructed"]


# ---- The study of deep networks without normalisation: its networks, training, numbers and page --


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


@pytest.mark.parametrize("body", networks.BODIES)
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


@pytest.mark.parametrize("body", networks.BODIES)
def test_gradient_norms_against_differences(body):
    net = build(settings(body=body, width=3), 2, 1, [0, 1], torch.float64)
    x = drawn(2, 9, 2, seed=5)

    def losses(outputs):
        return outputs.square().mean((1, 2))

    found = gradient_norms(net, x, losses)
    with torch.no_grad():
        by_hand = {}
        for name, parameter in net.named_parameters():
            slopes = torch.zeros_like(parameter)
            for i in np.ndindex(*parameter.shape):
                kept = parameter[i].item()
                parameter[i] = kept + 1e-6
                up = losses(net(x)).sum()
                parameter[i] = kept - 1e-6
                slopes[i] = (up - losses(net(x)).sum()) / 2e-6
                parameter[i] = kept
            by_hand[name] = slopes.flatten(1).norm(dim=1)
    assert len(by_hand) == 8, "4 matrices and 4 biases"
    every = torch.stack(list(by_hand.values()))
    expected = [by_hand["linears.0.weight"], by_hand["linears.2.weight"], every.mean(0)]
    torch.testing.assert_close(found, torch.stack(expected, dim=1), rtol=1e-6, atol=1e-9)


def test_training_learns_diverges_and_takes_each_member_alone():
    slow, fast = networks.train([settings(learning_rate=rate, seed=7) for rate in (0.1, 1e30)])
    assert float(slow["train_score"]) > 0.95
    assert float(slow["test_score"]) > 0.8
    assert slow["diverged"] == "False"
    wild = settings(learning_rate=1e30, activation="relu", init="kaiming", n_steps=12)
    (exploded,) = networks.train([wild])
    assert exploded["diverged"] == "True"
    assert exploded["test_score"] == exploded["train_loss"] == ""
    (alone,) = networks.train([settings(learning_rate=0.1, seed=7)])
    beside = pytest.approx(float(slow["train_loss"]), rel=1e-3)
    assert float(alone["train_loss"]) == beside, "also beside a wild rate"
    assert fast != slow


def test_a_stack_that_was_interrupted_gives_no_rows(monkeypatch):
    def interrupted(*arguments):
        return [replace(result, reason="interrupted") for result in train_stack(*arguments)]

    train_stack = shared.train_stack
    monkeypatch.setattr(shared, "train_stack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        networks.train([settings(learning_rate=0.1, n_steps=2)])


def test_scores_and_losses_of_a_task():
    none = torch.empty(0)
    numbers = torch.tensor([0.0, 1.0, 2.0, 3.0])
    regression = Task(none, none, numbers, numbers, 1)
    outputs = torch.stack([numbers, numbers.mean().expand(4), numbers + 1.0]).unsqueeze(-1)
    assert regression.scores(outputs, numbers).tolist() == pytest.approx([1.0, 0.0, 0.2])
    assert regression.losses(outputs, numbers).tolist() == [0.0, 1.25, 1.0]
    assert regression.trivial_score == 0.0
    classes = torch.tensor([0, 1, 1, 2])
    classification = Task(none, none, classes, classes, 3)
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 1]]), 3).double() * 50.0
    assert classification.scores(logits, classes).tolist() == [0.75]
    assert classification.losses(logits, classes).item() == pytest.approx(50.0 / 4)
    assert classification.trivial_score == 0.5


def chosen_of(cells, body="plain", init="torch"):
    """The best rates of cells: (activation, depth, rate, train scores, test scores)."""
    kind = {"data": "digits", "body": body, "init": init, "trivial_score": 0.1}
    return choose_rates(
        pd.DataFrame(
            [
                {**kind, "activation": activation, "depth": depth, "learning_rate": rate}
                | {"seed": seed, "train_score": fit, "test_score": held_out}
                for activation, depth, rate, *scores in cells
                for seed, (fit, held_out) in enumerate(zip(*scores, strict=True))
            ]
        )
    )


def test_the_rate_is_chosen_by_training_rows():
    nan = math.nan
    chosen = chosen_of(
        [
            ("relu", 20, 0.1, (0.9, nan), (0.9, nan)),  # 0.5 on average: nan counts as 0.1
            ("relu", 20, 0.01, (0.56, 0.6), (0.3, 0.2)),
            ("tanh", 20, 0.1, (0.99, 0.54), (0.99, 0.5)),
            ("tanh", 20, 0.01, (0.0, 0.0), (1.0, 1.0)),
            ("tanh", 56, 0.1, (nan, nan), (nan, nan)),
            ("tanh", 56, 0.01, (nan, nan), (nan, nan)),
        ]
    )
    assert Evidence(chosen, chosen).trains("plain", "torch") == {20: ["relu"], 56: []}
    relu, tanh, lost = (row for _, row in chosen.iterrows())
    assert (relu["learning_rate"], relu["trains"]) == (0.01, True)
    assert relu["test"] == pytest.approx(0.25)
    assert tanh["learning_rate"] == 0.1
    assert not tanh["trains"], "one seed kept more than half of the error"
    assert (lost["train"], lost["test"]) == (0.1, 0.1), "a network that diverged is a constant"
