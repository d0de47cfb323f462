"""The study of deep networks without normalisation: its networks, training, numbers and page."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.papers.common.claims import FAILS, HOLDS, IN_PART
from benchmarks.papers.pln import shared
from benchmarks.papers.pln.depth import networks
from benchmarks.papers.pln.depth.findings import (
    TABLE_2,
    Evidence,
    choose_rates,
    deepest,
    figure_8,
    gradient_table,
    steadiness,
    table_1,
    table_1_gradients,
    table_2,
    threshold,
)
from benchmarks.papers.pln.depth.networks import Task, build, gradient_norms


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


def test_relu_keeps_a_linear_gradient_and_sigmoid_does_not():
    deep = {}
    for name, depth in product(("identity", "sigmoid"), (10, 30)):
        row = settings(activation=name, depth=depth, width=16, n_rows=300)
        deep[name, depth] = float(networks.initial_gradients([row])[0]["first"])
    # torch's own initialisation has variance 1 / (3 width): each layer divides by sqrt(3)
    shrunk = deep["identity", 30] / deep["identity", 10]
    assert math.log(shrunk) == pytest.approx(-20 * math.log(math.sqrt(3)), rel=0.35)
    assert deep["sigmoid", 30] < 4.0**-20 * deep["sigmoid", 10]


def test_rate_rises_and_falls():
    factors = [networks.rate_factor(step, 240) for step in range(240)]
    assert factors[0] == pytest.approx(1 / 20)
    assert factors[19] == factors[20] == factors[59] == 1.0
    assert factors[60] == pytest.approx(1 / 2.5)
    assert factors[-1] == pytest.approx(2.5**-5)
    assert len({round(f, 9) for f in factors[20:]}) == 6


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


ENDS = pd.DataFrame({"depth": [20, 110]})  # depths that were trained


def gradients_of(values, body="residual", init="kaiming"):
    """Rows of {(activation, depth): norms by seed}, the same for the first layer and the mean."""
    kind = {"data": "digits", "body": body, "init": init, "last_hidden": 1.0}
    return pd.DataFrame(
        [
            {**kind, "activation": name, "depth": depth, "first": norm, "mean": norm}
            for (name, depth), norms in values.items()
            for norm in norms
        ]
    )


def test_growth_in_powers_of_ten():
    norms = {("relu", 20): (0.1, 10.0), ("relu", 110): (1e8, 1e8)}
    norms |= {("pln-8", 20): (1.0, 1.0), ("pln-8", 110): (10.0, 10.0)}
    norms |= {("tanh", 20): (1.0, 1.0), ("tanh", 110): (1e-4, 1e-2)}
    rows = gradients_of(norms)
    assert gradient_table(rows, "first").loc["relu", 20] == pytest.approx(1.0), "a geometric mean"
    evidence = Evidence(rows, ENDS)
    grown = evidence.growth("residual", "kaiming", "first")
    assert grown.to_dict() == pytest.approx({"relu": 8.0, "pln-8": 1.0, "tanh": -3.0})
    said = steadiness(evidence, "residual", "kaiming")
    assert said == "PLN-8 is number 1 of 3 in steadiness: PLN-8 +1.0, tanh -3.0, ReLU +8.0"


def evidence_of(shallow, deep, body="residual", init="kaiming"):
    """Mean norms of sigmoid, tanh, ReLU and PLN-8 at both depths."""
    names = ("sigmoid", "tanh", "relu", "pln-8")
    norms = {(name, 20): (norm,) for name, norm in zip(names, shallow, strict=True)}
    norms |= {(name, 110): (norm,) for name, norm in zip(names, deep, strict=True)}
    return Evidence(gradients_of(norms, body, init), ENDS)


def test_verdict_of_table_2():
    paper = [TABLE_2.loc[["sigmoid", "tanh", "relu", "pln-8"], depth] for depth in (20, 110)]
    found = table_2(evidence_of(*paper), "residual")
    assert found.verdict == HOLDS
    assert "ReLU +12.9 (paper +12.9)" in found.numbers
    ones = [1.0] * 4
    assert table_2(evidence_of(ones, [1e-30, 10, 1e10, 10]), "residual").verdict == IN_PART
    assert table_2(evidence_of(ones, [0.1, 0.1, 10, 1e9]), "residual").verdict == FAILS


def test_verdict_of_table_1_on_gradients():
    found = table_1_gradients(evidence_of([0.1, 0.2, 0.3, 0.6], [1.0] * 4, "plain", "torch"))
    assert found.verdict == HOLDS
    assert found.numbers.startswith("2 times the largest of the other three (paper: 2.62 times)")
    behind = evidence_of([0.1, 0.2, 0.7, 0.6], [1.0] * 4, "plain", "torch")
    assert table_1_gradients(behind).verdict == FAILS


def test_verdict_of_table_1_and_figure_8():
    good, bad = (0.95, 0.9), (0.1, 0.1)

    def evidence(kind, **trains):
        cells = [
            (name.replace("pln8", "pln-8"), depth, 0.1, at, at)
            for name, scores in trains.items()
            for depth, at in zip((20, 110), scores, strict=True)
        ]
        return Evidence(ENDS, chosen_of(cells, *kind))

    def verdicts(**trains):
        one = table_1(evidence(("plain", "torch"), **trains))
        other = figure_8(evidence(("residual", "kaiming"), **trains), "residual")
        return one, other

    steady, lost = (good, good), (bad, bad)
    one, other = verdicts(sigmoid=steady, tanh=steady, relu=(good, bad), pln8=steady)
    assert (one.verdict, other.verdict) == (IN_PART, HOLDS)
    assert "110 layers: sigmoid, tanh and PLN-8" in other.numbers
    one, other = verdicts(sigmoid=lost, tanh=lost, relu=lost, pln8=steady)
    assert (one.verdict, other.verdict) == (HOLDS, IN_PART)
    assert one.numbers.endswith("all that train: PLN-8")
    one, other = verdicts(sigmoid=lost, tanh=lost, relu=steady, pln8=lost)
    assert (one.verdict, other.verdict) == (FAILS, FAILS)


def test_what_gradients_tell():
    trained = [("relu", (0.9, 0.9), 1e3), ("tanh", (0.9, 0.9), 1.0), ("pln-8", (0.95, 0.9), 10.0)]
    lost = [("sigmoid", (0.1, 0.1), 1e-9), ("selu", (0.1, 0.1), 1e-3), ("gelu", (0.1, 0.1), 0.1)]
    cells = [(name, 110, 0.1, scores, scores) for name, scores, _ in trained + lost]
    norms = {(name, 110): (ratio,) for name, _, ratio in trained + lost}
    evidence = Evidence(gradients_of(norms, "plain", "torch"), chosen_of(cells))
    said = threshold(evidence)
    assert "a factor of 100 of the last hidden layer's, 2 of 3 train" in said
    assert said.endswith("towards the input): 1 of 1; smaller (vanishing): 0 of 2")
    assert deepest(evidence) == "plain, torch's own initialisation: PLN-8, ReLU and tanh"
