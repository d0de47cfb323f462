"""The studies on the PLN paper in their smallest form, as a user would run them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from benchmarks.papers.common.claims import FAILS, HOLDS, IN_PART, UNDECIDED
from benchmarks.papers.pln import shared
from benchmarks.papers.pln.approximation import findings, runs
from benchmarks.papers.pln.depth import networks
from benchmarks.papers.pln.depth.findings import (
    TABLE_2,
    Evidence,
    choose_rates,
    figure_8,
    gradient_table,
    steadiness,
    table_1,
    table_1_gradients,
    table_2,
)
from benchmarks.papers.pln.depth.networks import Task, build, gradient_norms
from benchmarks.papers.pln.normalization import (
    contrast,
    is_as_good,
    is_nonlinear,
    needs_no_activation,
)

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


def test_contrast_against_scipy_and_by_hand():
    first, second = ("pln", "relu"), ("batch", "relu")
    rows = rows_of(
        {
            ("a", *first): noisy(0.9, 0),
            ("a", *second): noisy(0.8, 1),
            ("b", *first): noisy(0.5, 2),
            ("b", *second): noisy(0.5, 3),
            ("c", *first): noisy(0.1, 4),
            ("c", *second): noisy(0.3, 5),
        }
    )
    result = contrast(rows, first, second)
    assert result.mean == pytest.approx((0.1 + 0.0 - 0.2) / 3, abs=2e-3)
    assert (result.pvalues < 0.05).tolist() == [True, False, True]
    assert str(result).endswith("; 1 for, 1 against)")
    differences = [
        noisy(a, i) - noisy(b, i + 1) for a, b, i in ((0.9, 0.8, 0), (0.5, 0.5, 2), (0.1, 0.3, 4))
    ]
    np.testing.assert_allclose(result.differences, np.mean(differences, axis=1))
    by_hand = []
    for d in differences:  # Nadeau and Bengio: the variance times 1 / k + n_test / n_train
        t = d.mean() / np.sqrt((1 / SPLITS + 20 / 80) * d.var(ddof=1))
        by_hand.append(2 * stats.t.sf(abs(t), SPLITS - 1))
    smallest, middle, largest = sorted(by_hand)
    adjusted = [3 * smallest, 2 * middle, largest]
    assert sorted(result.pvalues) == pytest.approx(adjusted, rel=1e-6)
    assert result.p == pytest.approx(stats.wilcoxon(np.mean(differences, axis=1)).pvalue)
    opposite = contrast(rows, second, first)
    assert opposite.mean == pytest.approx(-result.mean)
    np.testing.assert_allclose(opposite.pvalues, result.pvalues)


PLN = {("pln", "identity"): 0.80, ("pln", "relu"): 0.81}


def test_verdict_on_activations():
    found = needs_no_activation(study(PLN | {("pln", "sigmoid"): 0.70, ("pln", "tanh"): 0.75}))
    assert found.verdict == HOLDS
    assert "sigmoid -0.10" in found.numbers
    assert "(p = 0.008; 0 for, 8 against)" in found.numbers
    needed = study(
        PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.7, ("pln", "tanh"): 0.9},
    )
    assert needs_no_activation(needed).verdict == IN_PART
    never = study(PLN | {("pln", "relu"): 0.9, ("pln", "sigmoid"): 0.9, ("pln", "tanh"): 0.9})
    assert needs_no_activation(never).verdict == FAILS


def test_verdict_on_nonlinearity():
    others = {("none", "identity"): 0.6, ("batch", "identity"): 0.6, ("layer", "identity"): 0.9}
    assert is_nonlinear(study(PLN | others)).verdict == HOLDS
    one = study(PLN | others | {("batch", "identity"): 0.85})
    assert is_nonlinear(one).verdict == IN_PART
    on_training_rows = study(PLN | others).rename(columns={"score": "train_score"})
    on_training_rows["score"] = one["score"]
    assert is_nonlinear(on_training_rows, "train_score").verdict == HOLDS
    # better on three data sets is no proof: Wilcoxon's p is 0.25 there
    assert is_nonlinear(study(PLN | others, 3)).verdict == FAILS


def test_verdict_on_a_match():
    equal = {("pln", "relu"): 0.81} | {(kind, "relu"): 0.8 for kind in ("batch", "layer")}
    found = is_as_good(study(equal))
    assert (found.verdict, found.numbers) == (HOLDS, "2 of 2 comparisons")
    found = is_as_good(study(equal | {("batch", "relu"): 0.9}))
    assert found.verdict == IN_PART
    assert "1 of 2 comparisons; not so against batch norm with ReLU -0.0" in found.numbers
    assert "layer" not in found.numbers


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


def test_the_best_of_the_search_are_trained_again_from_new_seeds():
    sizes = runs.SIZES | {
        "width": [8],
        "activation": ["relu", "tanh"],
        "learning_rate": [0.1, 0.01],
    }
    rows = runs.search(sizes).assign(tail_mse="0.5")
    sgd = rows["activation"].eq("relu") & rows["solver"].eq("sgd") & rows["batch_size"].eq(16)
    rows.loc[sgd, "tail_mse"] = rows["learning_rate"].astype(str)
    tanh = rows.index[rows["activation"].eq("tanh") & rows["data"].eq("random")]
    rows.loc[tanh, "tail_mse"] = None  # diverged
    rows.loc[tanh[-1], "tail_mse"] = "7"
    final = runs.finals(sizes, rows.astype(str).assign(tail_mse=rows["tail_mse"]))
    names = ["activation", "data", "solver", "batch_size", "learning_rate"]
    chosen = [tuple(map(str, row)) for row in final[names].to_numpy()]
    relu = ("relu", "trigonometric", "sgd", "16")
    assert chosen[:10] == 5 * [(*relu, "0.01")] + 5 * [(*relu, "0.1")]
    assert len(chosen) == 2 * 2 * 3 * 5, "targets, activations, the best three, seeds"
    assert ("tanh", "random", "sgd", "16", "0.01") in chosen
    assert final["seed"].tolist() == 12 * [1, 2, 3, 4, 5], "the search has seed 0"
    assert set(final["epochs"]) == {400, 1000}


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


def final_rows(losses, data="random"):
    """Rows of two widths and five seeds; ``losses``: activation -> loss by width and seed."""
    setting = {"data": data, "stage": "final", "solver": "adam", "batch_size": 4}
    return pd.DataFrame(
        [
            {**setting, "learning_rate": 0.1, "activation": name, "width": width, "seed": seed}
            | {"mse": mse(width, seed), "sup_error": mse(width, seed) ** 0.5}
            for name, mse in losses.items()
            for width in (32, 64)
            for seed in range(5)
        ]
    )


def test_claims_are_tested_in_pairs():
    rows = findings.finals(
        final_rows(
            {
                "relu": lambda width, seed: 1.0 / width,
                "tanh": lambda width, seed: (0.5 + 0.01 * seed) / width,
                "sigmoid": lambda width, seed: (2.0 if seed % 2 else 0.5) / width,
            }
        )
    )
    pairs = [("tanh", "relu"), ("relu", "tanh"), ("sigmoid", "relu"), ("pln-4", "relu")]
    found = findings.decide(findings.compare(rows, [("A1", "random", *pair) for pair in pairs]))
    claims = ["random: tanh < ReLU", "random: ReLU < tanh", "random: sigmoid < ReLU"]
    assert list(found) == [("A1", claim, "here") for claim in claims], "pln-4 is not there"
    better, worse, unclear = found.values()
    assert [each.verdict for each in (better, worse, unclear)] == [HOLDS, FAILS, UNDECIDED]
    # log(0.52); ten differences of one sign: 2 / 2^10, times the three tests
    assert better.numbers == "-0.65, 2 of 2 widths, p = 0.006"
    assert "0 of 2 widths" in worse.numbers
    assert "2 of 2 widths" in unclear.numbers
    assert findings.decide({}) == {}


def test_a_network_that_diverged_counts_as_worse_than_zero():
    rows = findings.finals(final_rows({"relu": lambda width, seed: math.nan if seed else 1e9}))
    assert (rows["log_loss"] == 1.0).all()


def test_trends_are_those_of_the_widths():
    rows = final_rows(
        {
            "relu": lambda width, seed: (1 + 0.01 * seed) / width,
            "tanh": lambda width, seed: width / 100,
            "gelu": lambda width, seed: 0.1 + 0.01 * seed,
        }
    )
    found = findings.decide(findings.trends(findings.finals(rows)))
    assert {key: finding.verdict for key, finding in found.items()} == {
        ("Tables I to III", "ReLU", "random"): HOLDS,
        ("Tables I to III", "tanh", "random"): FAILS,
        ("not in the paper", "GELU", "random"): UNDECIDED,
    }


def test_the_setting_with_the_lowest_median_counts():
    steady = final_rows({"relu": lambda width, seed: 0.1})
    lucky = final_rows({"relu": lambda width, seed: 0.001 if seed < 2 else 0.2})
    late = final_rows({"relu": lambda width, seed: 0.05 if width == 64 else math.nan})
    rows = [steady, lucky.assign(batch_size=16), late.assign(learning_rate=0.01)]
    best = findings.finals(pd.concat([*rows, steady.assign(stage="search", mse=1e-9)]))
    assert best["mse"].tolist() == [0.1] * 5 + [0.05] * 5
    assert best["width"].tolist() == [32] * 5 + [64] * 5


def test_norm_sizes_are_ranked_where_all_are_there():
    sizes = ("2", "4", "8")
    losses = {
        f"{family}-{size}": lambda w, s, i=i: 0.1 * (1 + i + s)
        for family in ("pln", "pls")
        for i, size in enumerate(sizes)
    }
    rows = pd.concat([final_rows(losses, data) for data in runs.TARGETS])
    missing = (rows["activation"] == "pln-8") & (rows["width"] == 32)
    found = findings.decide(findings.rank_sizes(findings.finals(rows[~missing])))
    assert [column for *_, column in found] == 2 * list(runs.TARGETS)
    # Friedman's: 12 / (5 * 3 * 4) * (5^2 + 10^2 + 15^2) - 3 * 5 * 4 = 10, 2 degrees of freedom:
    # exp(-5), twice as two of the four tests have it
    pln = found["Figures 3, A1", "the norm sizes of PLN differ", "random"]
    assert pln.numbers == "PLN-2 1.0, PLN-4 2.0, PLN-8 3.0; 1 widths, p = 0.013"
    assert pln.verdict == HOLDS
    assert "; 2 widths" in found["Figures 3, A1", "the norm sizes of PLS differ", "random"].numbers


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
