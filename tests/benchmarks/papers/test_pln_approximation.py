"""The approximation study of the PLN paper: its targets, search, numbers, and its quick form."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks.papers.common.claims import FAILS, HOLDS, UNDECIDED
from benchmarks.papers.pln.approximation import numbers, runs
from benchmarks.papers.pln.approximation.__main__ import ORDERS, compare, rank_sizes, trends
from tests.benchmarks.quick_forms import run_quick


def test_the_targets_are_lipschitz():
    x = np.linspace(-5, 5, 20_001)
    for target in runs.TARGETS.values():
        steepest = np.abs(np.diff(target.function(x))).max() / (x[1] - x[0])
        assert 0.8 * target.lipschitz < steepest <= target.lipschitz * (1 + 1e-9)
    assert runs.TARGETS["trigonometric"].function(np.array([-0.5])) == pytest.approx(math.cos(0.5))
    random = runs.TARGETS["random"]
    assert random.points().tolist() == np.arange(-5, 5.5, 0.5).tolist()
    assert np.abs(random.function(random.points())).max() <= 1


def test_norm_sizes_wider_than_the_layer_are_left_out():
    grid = runs.Grid(widths=(8,))
    tried = {run.activation for run in grid.search()}
    assert {"pln-8", "pls-8", "relu", "la-silu"} <= tried
    assert not {"pln-16", "pls-32"} & tried
    # 2 targets, 4 settings of solver and batch size, 4 rates
    assert len(grid.search()) == 32 * len(tried)


def test_the_best_of_the_search_are_trained_again_from_new_seeds():
    grid = runs.Grid(widths=(8,), activations=("relu", "tanh"), rates=(0.1, 0.01), n_finalists=2)
    rows = []
    for run in grid.search():
        sgd = run.activation == "relu" and (run.solver, run.batch_size) == ("sgd", 16)
        rows.append(run.settings | {"tail_mse": str(run.learning_rate) if sgd else "0.5"})
    tanh = [row for row in rows if (row["activation"], row["data"]) == ("tanh", "random")]
    for row in tanh:
        row["tail_mse"] = ""  # diverged
    tanh[-1]["tail_mse"] = "7"
    final = grid.finals(rows)
    chosen = [(r.activation, r.data, r.solver, r.batch_size, r.learning_rate) for r in final]
    assert chosen[:10] == 5 * [("relu", "trigonometric", "sgd", 16, 0.01)] + 5 * [
        ("relu", "trigonometric", "sgd", 16, 0.1)
    ]
    assert ("tanh", "random", "sgd", 16, 0.01) in chosen
    assert [run.seed for run in final] == 8 * [1, 2, 3, 4, 5], "the search has seed 0"


def test_a_stack_shares_all_but_activation_rate_and_seed():
    grid = runs.Grid(widths=(8, 16), activations=("relu", "tanh"))
    stacks = list(runs.stacks(grid.search()))
    assert sum(map(len, stacks)) == len(grid.search())
    assert len(stacks) == 2 * 2 * 2 * 2  # widths, targets, solvers, batch sizes
    assert {len(stack) for stack in stacks} == {8}


def test_rows_hold_the_errors_of_the_trained_network(monkeypatch):
    stack = [
        runs.Run("random", "final", 16, name, "sgd", 4, rate, 3, 10)
        for name, rate in (("combu", 0.01), ("relu", 0.01), ("relu", 1e12))
    ]
    kept = []
    train_stack = runs.train_stack
    monkeypatch.setattr(runs, "train_stack", lambda *a: kept.extend(train_stack(*a)) or kept)
    rows = runs.train(stack)
    state = kept[1].state
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


def test_members_of_a_stack_are_trained_as_if_alone():
    stack = [
        runs.Run("random", "search", 8, name, "adam", 4, 0.01, seed, 5)
        for name in ("pln-4", "tanh")
        for seed in (0, 1)
    ]
    together = runs.train(stack)
    for run, row in zip(stack, together, strict=True):
        alone = runs.train([run])[0]
        assert float(row["mse"]) == pytest.approx(float(alone["mse"]), rel=1e-4)


def _finals(losses):
    """Rows of two widths and five seeds; ``losses``: activation -> loss by width and seed."""
    return pd.DataFrame(
        [
            {
                "data": "random",
                "stage": "final",
                "width": width,
                "activation": name,
                "solver": "adam",
                "batch_size": 4,
                "learning_rate": 0.1,
                "seed": seed,
                "mse": mse(width, seed),
                "sup_error": mse(width, seed) ** 0.5,
            }
            for name, mse in losses.items()
            for width in (32, 64)
            for seed in range(5)
        ]
    )


def test_claims_are_tested_in_pairs():
    rows = numbers.finals(
        _finals(
            {
                "relu": lambda width, seed: 1.0 / width,
                "tanh": lambda width, seed: (0.5 + 0.01 * seed) / width,
                "sigmoid": lambda width, seed: (2.0 if seed % 2 else 0.5) / width,
            }
        )
    )
    pairs = [
        ("random", "tanh", "relu"),
        ("random", "relu", "tanh"),
        ("random", "sigmoid", "relu"),
        ("random", "pln-4", "relu"),
    ]
    found = compare(rows, pairs)
    assert list(found) == pairs[:3], "pln-4 is not there"
    assert [finding.verdict for finding in found.values()] == [HOLDS, FAILS, UNDECIDED]
    # log(0.52); ten differences of one sign: 2 / 2^10, times the three tests
    assert found[pairs[0]].numbers == "-0.65, 2 of 2 widths, p = 0.006"
    assert "0 of 2 widths" in found[pairs[1]].numbers
    assert "2 of 2 widths" in found[pairs[2]].numbers


def test_a_network_that_diverged_counts_as_worse_than_zero():
    rows = numbers.finals(_finals({"relu": lambda width, seed: math.nan if seed else 1e9}))
    assert (rows["log_loss"] == 1.0).all()


def test_trends_are_those_of_the_widths():
    rows = _finals(
        {
            "relu": lambda width, seed: (1 + 0.01 * seed) / width,
            "tanh": lambda width, seed: width / 100,
            "sigmoid": lambda width, seed: 0.1 + 0.01 * seed,
        }
    )
    found = trends(numbers.finals(rows))
    verdicts = {name: finding.verdict for (_, name), finding in found.items()}
    assert verdicts == {"relu": HOLDS, "tanh": FAILS, "sigmoid": UNDECIDED}
    one_width = rows[rows["width"] == 32]
    assert trends(numbers.finals(one_width)) == {}


def test_the_setting_with_the_lowest_median_counts():
    steady = _finals({"relu": lambda width, seed: 0.1})
    lucky = _finals({"relu": lambda width, seed: 0.001 if seed < 2 else 0.2})
    late = _finals({"relu": lambda width, seed: 0.05 if width == 64 else math.nan})
    rows = [steady, lucky.assign(batch_size=16), late.assign(learning_rate=0.01)]
    best = numbers.finals(pd.concat([*rows, steady.assign(stage="search", mse=1e-9)]))
    assert best["mse"].tolist() == [0.1] * 5 + [0.05] * 5
    assert best["width"].tolist() == [32] * 5 + [64] * 5


def test_norm_sizes_are_ranked_where_all_are_there():
    names = ("pln-2", "pln-4", "pln-8")
    rows = _finals({name: lambda w, s, i=i: 0.1 * (1 + i + s) for i, name in enumerate(names)})
    rows = numbers.finals(rows[~((rows["activation"] == "pln-8") & (rows["width"] == 32))])
    found = rank_sizes(rows, "PLN")
    # Friedman's: 12 / (5 * 3 * 4) * (5^2 + 10^2 + 15^2) - 3 * 5 * 4 = 10, 2 degrees of freedom:
    # exp(-5)
    assert found.numbers == "PLN-2 1.0, PLN-4 2.0, PLN-8 3.0; 1 widths, p = 0.007"
    assert found.verdict == HOLDS
    assert rank_sizes(rows, "PLS") is None


@pytest.mark.parametrize(
    ("activation", "n"), [("pln-2", 16), ("pln-4", 8), ("pls-1", 32), ("tanh", 32), ("relu", 31)]
)
@pytest.mark.parametrize("data", ["trigonometric", "random"])
def test_the_constructed_network_keeps_the_bound(data, activation, n):
    found = numbers.reference(data, activation, 32)
    lipschitz = 10 * runs.TARGETS[data].lipschitz
    assert found.bound == pytest.approx(lipschitz / (2 * n))
    assert found.sup < lipschitz / (2 * (n - 0.5))
    assert math.exp(found.log_loss / 2) <= found.sup


def test_slopes_are_those_of_powers():
    widths = [8, 64, 512, 4096]
    errors = [3 * width**-1.5 for width in widths]
    assert numbers.slope(widths, errors) == pytest.approx(-1.5)
    assert numbers.slope([*widths, 9], [*errors, math.nan]) == pytest.approx(-1.5)
    assert math.isnan(numbers.slope([8, 16], [1.0, math.nan]))


def test_the_claims_name_activations_that_are_trained():
    assert {name for _, *pair in ORDERS for name in pair} <= set(runs.ACTIVATIONS)
    assert {data for data, *_ in ORDERS} == set(runs.TARGETS)
    assert len(ORDERS) == 23, "no pair twice"


def test_quick_form(tmp_path):
    said = run_quick("papers.pln.approximation", tmp_path)
    assert "final, random, width 16" in said
    rows = pd.read_csv(tmp_path / "pln_approximation.csv")
    assert set(rows["stage"]) == {"search", "final"}
    assert rows.loc[rows["stage"] == "final", "seed"].value_counts().to_dict() == {1: 64, 2: 64}
    text = (tmp_path / "pln_approximation.md").read_text()
    assert "trigonometric: PLN-4 < sigmoid" in text
    assert str(tmp_path) not in text
    for name in ("norm_sizes", "activations", "bounds", "fits"):
        assert (tmp_path / f"pln_approximation_{name}.png").stat().st_size > 10_000
        assert f"(pln_approximation_{name}.png)" in text
    before = (tmp_path / "pln_approximation.csv").read_bytes()
    again = run_quick("papers.pln.approximation", tmp_path)
    assert "to go" not in again, "nothing is trained twice"
    assert (tmp_path / "pln_approximation.csv").read_bytes() == before
