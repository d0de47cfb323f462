"""The study of deep networks without normalisation: its networks, training, numbers and page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.papers.common.claims import FAILS, HOLDS, IN_PART
from benchmarks.papers.pln.depth.findings import (
    choose_rates,
    decades,
    deepest,
    figure_8,
    gradient_table,
    kept,
    table_1,
    table_1_gradients,
    table_2,
    that_train,
    threshold,
)
from benchmarks.papers.pln.depth.net import Shape, gradient_norms
from benchmarks.papers.pln.depth.train import (
    Task,
    initial_gradients,
    load_task,
    rate_factor,
    train,
)
from tests.benchmarks.quick_forms import run_quick

ROOT = Path(__file__).parents[3]
DATA_HOME = ROOT.parent / "shared" / "data"


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


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


@pytest.mark.parametrize("body", ["plain", "residual", "pre-activation"])
def test_network_is_what_it_says(body):
    shape = Shape(body, 8, "relu", "kaiming", width=6)
    net = shape.build(5, 3, [3, 4], double=True)
    assert sum(p.numel() for p in net.parameters()) == 2 * (6 * 6 + 6 * 42 + 3 * 7)
    assert net.n_decayed == 6 * 6 + 6 * 42 + 3 * 7, "biases decay too"
    x = torch.randn(2, 7, 5, dtype=torch.float64, generator=generators(0)[0])
    out = net(x).detach().numpy()
    for member in range(2):
        expected = forward_by_hand(body, net, x[member].numpy(), member)
        np.testing.assert_allclose(out[member], expected, rtol=1e-12)
    torch.testing.assert_close(net.predict(x[0], None, 5)[0], net(x)[0], rtol=1e-12, atol=0)
    alone = shape.build(5, 3, [4], double=True)
    torch.testing.assert_close(alone(x[1:]), net(x)[1:])


@pytest.mark.parametrize("depth", [3, 2, 7])
def test_depth_that_has_no_pairs_is_refused(depth):
    with pytest.raises(ValueError, match=f"even and at least 4.*got {depth}"):
        Shape("plain", depth, "relu", "torch")


def test_other_bodies_are_refused():
    with pytest.raises(ValueError, match="got 'dense'"):
        Shape("dense", 4, "relu", "torch")


@pytest.mark.parametrize("body", ["plain", "residual", "pre-activation"])
def test_gradient_norms_against_differences(body):
    net = Shape(body, 4, "tanh", "torch", width=3).build(2, 1, [0, 1], double=True)
    x = torch.randn(2, 9, 2, dtype=torch.float64, generator=generators(5)[0])

    def losses(outputs):
        return outputs.square().mean((1, 2))

    norms = gradient_norms(net, x, losses)
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
    expected = by_hand["linears.0.weight"]
    torch.testing.assert_close(norms.first, expected, rtol=1e-6, atol=1e-9)
    expected = by_hand["linears.2.weight"]
    torch.testing.assert_close(norms.last_hidden, expected, rtol=1e-6, atol=1e-9)
    assert len(by_hand) == 8, "4 matrices and 4 biases"
    every = torch.stack(list(by_hand.values()))
    torch.testing.assert_close(norms.mean, every.mean(0), rtol=1e-6, atol=1e-9)


def test_relu_keeps_a_linear_gradient_and_sigmoid_does_not():
    task = load_task("digits", 300)
    deep = {
        (name, depth): float(
            initial_gradients(task, Shape("plain", depth, name, "torch", width=16), [0]).first
        )
        for name in ("identity", "sigmoid")
        for depth in (10, 30)
    }
    # torch's own initialisation has variance 1 / (3 width): each layer divides by sqrt(3)
    shrunk = deep["identity", 30] / deep["identity", 10]
    assert math.log(shrunk) == pytest.approx(-20 * math.log(math.sqrt(3)), rel=0.35)
    assert deep["sigmoid", 30] < 4.0**-20 * deep["sigmoid", 10]


def test_rate_rises_and_falls():
    factors = [rate_factor(step, 240) for step in range(240)]
    assert factors[0] == pytest.approx(1 / 20)
    assert factors[19] == factors[20] == factors[59] == 1.0
    assert factors[60] == pytest.approx(1 / 2.5)
    assert factors[-1] == pytest.approx(2.5**-5)
    assert len({round(f, 9) for f in factors[20:]}) == 6


def test_training_learns_diverges_and_takes_each_member_alone():
    task = load_task("digits", 600)
    shape = Shape("plain", 4, "tanh", "torch")
    sizes = {"n_steps": 120, "batch_size": 64}
    slow, fast = train(task, shape, [7], [0.1, 1e30], **sizes)
    assert slow.train_score > 0.95
    assert slow.test_score > 0.8
    exploded = train(task, Shape("plain", 4, "relu", "kaiming"), [7], [1e30], **sizes)[0]
    assert exploded.diverged
    assert math.isnan(exploded.test_score)
    (alone,) = train(task, shape, [7], [0.1], **sizes)
    assert alone.train_loss == pytest.approx(slow.train_loss, rel=1e-3), "also beside a wild rate"
    assert fast != slow


def test_scores_and_losses_of_a_task():
    none = torch.empty(0)
    numbers = torch.tensor([0.0, 1.0, 2.0, 3.0])
    regression = Task(none, numbers, none, numbers, 1)
    outputs = torch.stack([numbers, numbers.mean().expand(4), numbers + 1.0]).unsqueeze(-1)
    assert regression.scores(outputs, numbers).tolist() == pytest.approx([1.0, 0.0, 0.2])
    assert regression.losses(outputs, numbers.expand(3, -1)).tolist() == [0.0, 1.25, 1.0]
    assert regression.trivial_score == 0.0
    classes = torch.tensor([0, 1, 1, 2])
    classification = Task(none, classes, none, classes, 3)
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 1]]), 3).double() * 50.0
    assert classification.scores(logits, classes).tolist() == [0.75]
    assert classification.losses(logits, classes[None]).item() == pytest.approx(50.0 / 4)
    assert classification.trivial_score == 0.5


def rows_of(cells):
    """Training rows: (activation, depth, rate, train scores, test scores)."""
    rows = []
    for activation, depth, rate, on_train, on_test in cells:
        for seed, (fit, held_out) in enumerate(zip(on_train, on_test, strict=True)):
            rows.append(
                {
                    "data": "digits",
                    "body": "plain",
                    "init": "torch",
                    "depth": depth,
                    "activation": activation,
                    "learning_rate": rate,
                    "seed": seed,
                    "train_score": fit,
                    "test_score": held_out,
                    "diverged": math.isnan(fit),
                    "trivial_score": 0.1,
                }
            )
    return pd.DataFrame(rows)


def test_the_rate_is_chosen_by_training_rows():
    nan = math.nan
    chosen = choose_rates(
        rows_of(
            [
                ("relu", 20, 0.1, (0.9, nan), (0.9, nan)),  # 0.5 on average: nan counts as 0.1
                ("relu", 20, 0.01, (0.56, 0.6), (0.3, 0.2)),
                ("tanh", 20, 0.1, (0.99, 0.54), (0.99, 0.5)),
                ("tanh", 20, 0.01, (0.0, 0.0), (1.0, 1.0)),
                ("tanh", 56, 0.1, (nan, nan), (nan, nan)),
                ("tanh", 56, 0.01, (nan, nan), (nan, nan)),
            ]
        )
    ).set_index(["activation", "depth"])
    relu = chosen.loc[("relu", 20)]
    assert relu["learning_rate"] == 0.01
    assert relu["trains"]
    assert relu["test"] == pytest.approx(0.25)
    tanh = chosen.loc[("tanh", 20)]
    assert tanh["learning_rate"] == 0.1
    assert not tanh["trains"], "one seed kept more than half of the error"
    lost = chosen.loc[("tanh", 56)]
    assert (lost["train"], lost["test"]) == (0.1, 0.1), "a network that diverged is a constant"
    assert that_train(chosen.reset_index(), 20) == ["relu"]


def gradient_rows(values):
    return pd.DataFrame(
        [
            {"activation": name, "depth": depth, "seed": seed, "first": norm}
            for (name, depth), norms in values.items()
            for seed, norm in enumerate(norms)
        ]
    )


def test_growth_in_decades():
    rows = gradient_rows(
        {
            ("relu", 20): (0.1, 10.0),
            ("relu", 110): (1e8, 1e8),
            ("pln-8", 20): (1.0, 1.0),
            ("pln-8", 110): (10.0, 10.0),
            ("sigmoid", 20): (1.0, 1.0),
            ("sigmoid", 110): (0.0, 1.0),
        }
    )
    table = gradient_table(rows, "first")
    assert table.loc["relu", 20] == pytest.approx(1.0), "a geometric mean"
    grown = decades(table, 20, 110)
    assert grown["relu"] == pytest.approx(8.0)
    assert grown["pln-8"] == pytest.approx(1.0)
    assert grown["sigmoid"] == -math.inf
    assert kept(rows, 20, 110).startswith("PLN-8 is number 1 of 3")
    assert "ReLU +8.0" in kept(rows, 20, 110)


def table_of(**columns):
    names = ["sigmoid", "tanh", "relu", "pln-8"]
    return pd.DataFrame({int(k[1:]): v for k, v in columns.items()}, index=names, dtype=float)


def test_verdict_of_table_2():
    paper = table_of(d20=[0.13, 0.04, 1.68, 0.08], d110=[170.3, 27.06, 1.2e13, 41.01])
    found = table_2(paper, 20, 110)
    assert found.verdict == HOLDS
    assert "ReLU +12.9 (paper +12.9)" in found.numbers
    vanishing = table_of(d20=[1, 1, 1, 1], d110=[1e-30, 10, 1e10, 10])
    assert table_2(vanishing, 20, 110).verdict == IN_PART
    opposite = table_of(d20=[1, 1, 1, 1], d110=[0.1, 0.1, 10, 1e9])
    assert table_2(opposite, 20, 110).verdict == FAILS


def test_verdict_of_table_1_on_gradients():
    ahead = table_of(d20=[0.1, 0.2, 0.3, 0.6])
    found = table_1_gradients(ahead, 20)
    assert found.verdict == HOLDS
    assert found.numbers.startswith("2 times the largest of the other three (paper: 2.62 times)")
    assert table_1_gradients(table_of(d20=[0.1, 0.2, 0.7, 0.6]), 20).verdict == FAILS


def test_verdict_of_table_1_and_figure_8():
    good, bad = (0.95, 0.9), (0.1, 0.1)

    def chosen(**trains):
        return choose_rates(
            rows_of(
                [
                    (name.replace("pln8", "pln-8"), depth, 0.1, at, at)
                    for name, scores in trains.items()
                    for depth, at in zip((20, 110), scores, strict=True)
                ]
            )
        )

    steady, lost = (good, good), (bad, bad)
    as_paper = chosen(sigmoid=steady, tanh=steady, relu=(good, bad), pln8=steady)
    assert figure_8(as_paper).verdict == HOLDS
    assert "110 layers: sigmoid, tanh and PLN-8" in figure_8(as_paper).numbers
    assert table_1(as_paper, 20).verdict == IN_PART
    only = chosen(sigmoid=lost, tanh=lost, relu=lost, pln8=steady)
    assert table_1(only, 20).verdict == HOLDS
    assert figure_8(only).verdict == IN_PART
    assert table_1(only, 20).numbers.endswith("all that train: PLN-8")
    never = chosen(sigmoid=lost, tanh=lost, relu=steady, pln8=lost)
    assert figure_8(never).verdict == FAILS
    assert table_1(never, 20).verdict == FAILS


def test_what_gradients_tell():
    trained = [("relu", (0.9, 0.9), 1e3), ("tanh", (0.9, 0.9), 1.0), ("pln-8", (0.95, 0.9), 10.0)]
    lost = [("sigmoid", (0.1, 0.1), 0.0), ("selu", (0.1, 0.1), 1e-3), ("gelu", (0.1, 0.1), 0.1)]
    cells = [(name, 110, 0.1, scores, scores) for name, scores, _ in trained + lost]
    chosen = choose_rates(rows_of(cells))
    gradients = gradient_rows({(name, 110): (ratio,) for name, _, ratio in trained + lost})
    gradients = gradients.assign(body="plain", init="torch", last_hidden=1.0)
    said = threshold(chosen, gradients)
    assert "a factor of 100 of the last hidden layer's, 2 of 3 train" in said
    assert said.endswith("towards the input): 1 of 1; smaller (vanishing): 0 of 2")
    assert deepest(chosen) == "plain, torch's own initialisation: PLN-8, ReLU and tanh"


def test_quick_form(tmp_path):
    data = ["--data", "digits"]
    if DATA_HOME.is_dir():
        data = ["--data-home", str(DATA_HOME)]
    run_quick("papers.pln.depth", tmp_path, *data)
    rows = pd.read_csv(tmp_path / "pln_depth.csv")
    digits = rows[rows["data"] == "digits"]
    assert len(digits) == 5 * 2 * 4 * 2 * 2, "kinds, depths, activations, rates, seeds"
    assert digits["train_score"].between(0, 1).sum() == (~digits["diverged"]).sum()
    gradients = pd.read_csv(tmp_path / "pln_depth_gradients.csv")
    assert (gradients["first"] > 0).all()
    assert gradients.groupby(["body", "init"]).ngroups == 6
    text = (tmp_path / "pln_depth.md").read_text()
    for words in (
        "## Verdicts",
        "paper, ResNet-110",
        "89.45",
        "python -m benchmarks.papers.pln.depth",
    ):
        assert words in text
    assert str(tmp_path) not in text
    assert (tmp_path / "pln_depth.png").stat().st_size > 10_000
    assert (tmp_path / "pln_depth_gradients_digits.png").stat().st_size > 10_000
    (tmp_path / "pln_depth.md").unlink()
    again = run_quick("papers.pln.depth", tmp_path, *data, "--report")
    assert "to go" not in again, "nothing is trained twice"
    assert (tmp_path / "pln_depth.md").read_text() == text
