"""The studies of activations: their statistics on cases worked by hand, and their quick forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.activations import tables
from benchmarks.activations.effects import block, effects, paired, spread_of_splits
from benchmarks.activations.recipes import scores
from benchmarks.activations.shares import PARTS, ByLayer, Learning, combu_of
from benchmarks.activations.variance import variance_components, variance_shares
from combutab import ProxyNorm

DATA_HOME = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA_HOME.is_dir(), reason="needs ../shared/data")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(variance_shares, "__defaults__", (10,))


def test_components_by_hand():
    found = variance_components(np.array([[1.0, 1.0], [9.0, 13.0]]), ("table", "activation"))
    # mean squares 100, 4 and 4: the last is the noise, of which the others have as much
    assert found == pytest.approx({"table": 48.0, "activation": 0.0, "table x activation": 4.0})


def make_rows(logs, levels, column="activation", **more):
    """Rows of a study from logarithms of errors, (tables, splits, levels)."""
    found = [
        {"kind": "openml", "data": f"t{t}", "split": s, column: level, "loss": np.exp(value)}
        for t, of_table in enumerate(logs)
        for s, of_split in enumerate(of_table)
        for level, value in zip(levels, of_split, strict=True)
    ]
    return pd.DataFrame(found).assign(**more)


def test_effects_are_ratios_over_tables():
    rng = np.random.default_rng(0)
    base = 5 * rng.normal(size=(8, 1, 1)) + rng.normal(size=(8, 4, 1))  # of table and split
    change = np.array([0.0, np.log(2.0), 0.0]) + 1e-3 * rng.normal(size=(8, 4, 3))
    rows = make_rows(base + change, ("combu", "relu", "gelu"), recipe="default")
    logs = block(rows, "activation", ("combu", "relu", "gelu"), ("openml",))
    found = effects(logs, "combu")
    assert found["relu"].ratio.mean == pytest.approx(2.0, rel=0.01)
    assert found["relu"].ratio.low < 2.01
    assert (found["relu"].better, found["relu"].worse) == (0, 8)
    assert found["relu"].p == pytest.approx(2 * 2.0**-7), "Wilcoxon's of 8 signs alike, twice"
    assert (found["gelu"].better, found["gelu"].worse) == (0, 0)
    assert spread_of_splits(logs) == pytest.approx(np.exp(base.std(axis=1, ddof=1).max()), rel=1)
    gone = (rows["data"] == "t0") & (rows["activation"] == "gelu")
    pairs = {"a": ("relu", "combu"), "b": ("relu", "gelu"), "c": ("relu", "mish")}
    gains = paired(rows[~gone], "activation", pairs, ("openml",))
    assert {name: pair.size for name, pair in gains.items()} == {"a": "8 x 4", "b": "7 x 4"}
    assert gains["a"].effect.ratio.mean == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("straight", [False, True])
def test_learned_units_harden_to_combu(straight):
    learning = Learning(straight=straight)
    units = learning(12)
    with torch.no_grad():
        units.logits.normal_()
    x = torch.randn(7, 12, requires_grad=True)
    combined = units.hardened()
    units.eval()
    torch.testing.assert_close(units(x), combined(x))
    counts = learning.counts()[12]
    assert sum(counts.values()) == 12
    assert {name: length for name, _, length in combined.spans} == {
        name: n for name, n in counts.items() if n
    }
    assert combined.kernel() is not None
    assert ProxyNorm(combined, 12)(x).isfinite().all()
    units.train()
    before = units.logits.detach().clone()
    given = units(x)
    assert torch.allclose(given, combined(x)) == straight, "the mean of the parts, or one of them"
    given.square().sum().backward()
    assert units.logits.grad.abs().sum() > 0
    assert torch.equal(units.logits, before)


def test_combu_without_one_of_its_parts():
    combined = combu_of(torch.tensor([2, 0, 2, 2]), PARTS)
    x = torch.tensor([[-1.0, -1.0, 2.0, 3.0]])
    assert combined(x)[0].tolist() == pytest.approx([0.0, 0.0, np.log(3.0), np.log(4.0)])
    assert ByLayer({4: {"relu": 1.0}})(4)(x)[0].tolist() == [0.0, 0.0, 2.0, 3.0]


def test_what_diverged_is_a_row_and_other_errors_are_raised():
    failed = ValueError("Solver produced non-finite parameter weights.")
    assert scores(None, failed, (None, None), (None, None)) == {"error": str(failed)}
    with pytest.raises(ValueError, match="hidden"):
        scores(None, ValueError("hidden_layer_sizes"), (None, None), (None, None))


@needs_data
def test_thirty_equations_by_the_rule():
    found = tables.equations(str(DATA_HOME))
    assert len(set(found)) == len(found) == 30
    table = tables.source("openml", "autoMpg", str(DATA_HOME))
    (X, y), (other, _) = tables.rows_of(table, 0)
    assert len(X) == len(y) <= 400
    assert not set(map(tuple, X.to_numpy())) & set(map(tuple, other.to_numpy()))
    known = tables.features(table)
    assert all(map(np.isfinite, known.values()))
    assert known["log error of a linear model"] < 0
