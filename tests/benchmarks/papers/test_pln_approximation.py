"""The approximation study of the PLN paper: its targets, search, numbers, and its quick form."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks.papers.common.claims import FAILS, HOLDS, UNDECIDED
from benchmarks.papers.pln.approximation import findings, runs
from benchmarks.papers.pln.shared import stacked_jobs


def test_the_targets_are_lipschitz():
    x = np.linspace(-5, 5, 20_001)
    for target in runs.TARGETS.values():
        steepest = np.abs(np.diff(target.function(x))).max() / (x[1] - x[0])
        assert 0.8 * target.lipschitz < steepest <= target.lipschitz * (1 + 1e-9)
    assert runs.TARGETS["trigonometric"].function(np.array([-0.5])) == pytest.approx(math.cos(0.5))
    random = runs.TARGETS["random"]
    assert random.points.tolist() == np.arange(-5, 5.5, 0.5).tolist()
    assert np.abs(random.function(random.points)).max() <= 1


def test_norm_sizes_wider_than_the_layer_are_left_out():
    search = runs.search(runs.SIZES | {"width": [8]})
    tried = set(search["activation"])
    assert {"pln-8", "pls-8", "relu", "la-silu"} <= tried
    assert not {"pln-16", "pls-32"} & tried
    # 2 targets, 4 settings of solver and batch size, 4 rates
    assert len(search) == 32 * len(tried)


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


def test_a_stack_shares_all_but_activation_rate_and_seed():
    search = runs.search(runs.SIZES | {"width": [8, 16], "activation": ["relu", "tanh"]})
    stacks = [job.wanted for job in stacked_jobs(search, runs.STACK, runs.train)]
    assert len(stacks) == 2 * 2 * 2 * 2  # widths, targets, solvers, batch sizes
    assert {len(stack) for stack in stacks} == {8}
    assert stacks[0][0] == {
        "data": "trigonometric",
        "stage": "search",
        "width": "8",
        "activation": "relu",
        "solver": "adam",
        "batch_size": "4",
        "learning_rate": "0.1",
        "seed": "0",
        "n_points": "51",
        "epochs": "80",
    }


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


def test_members_of_a_stack_are_trained_as_if_alone():
    stack = stack_of(
        *(("pln-4", 0.01, 0), ("pln-4", 0.01, 1), ("tanh", 0.01, 0)),
        stage="search",
        width=8,
        epochs=5,
        solver="adam",
    )
    for run, row in zip(stack, runs.train(stack), strict=True):
        alone = runs.train([run])[0]
        assert float(row["mse"]) == pytest.approx(float(alone["mse"]), rel=1e-4)


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


def test_trained_errors_stand_beside_the_bound():
    rows = final_rows({"tanh": lambda width, seed: (0.1 * (seed + 1)) ** 2, "gelu": lambda *_: 1.0})
    bounds = findings.against_bounds(findings.cells(findings.finals(rows)))
    assert bounds["activation"].unique().tolist() == ["tanh"], "gelu has no proof"
    assert bounds["sup"].tolist() == pytest.approx([0.3, 0.3])
    assert bounds["below"].tolist() == [True, True], "one seed is"
    assert bounds["above"].tolist() == (bounds["constructed"] < 0.3).tolist()


def test_the_claims_name_activations_that_are_trained():
    assert {name for *_, lower, higher in findings.ORDERS for name in (lower, higher)} <= set(
        runs.ACTIVATIONS
    )
    assert {data for _, data, *_ in findings.ORDERS} == set(runs.TARGETS)
    assert len(set(findings.ORDERS)) == 23, "no pair twice"
