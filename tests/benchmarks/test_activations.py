"""The studies of activations: their statistics on cases worked by hand, and their quick forms."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.activations import default, plan, recipes_report, tables
from benchmarks.activations.effects import block, effects, paired, rectangle, size, spread_of_splits
from benchmarks.activations.findings import chosen_weights
from benchmarks.activations.foresight import foresee
from benchmarks.activations.recipes import scores
from benchmarks.activations.shares import PARTS, ByLayer, Learning, combu_of
from benchmarks.activations.variance import variance_components, variance_shares
from benchmarks.papers.common.page import Page
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


def test_components_of_a_nested_design():
    rng = np.random.default_rng(0)
    sds = {"table": 3.0, "split": 2.0, "activation": 1.0, "both": 1.5, "rest": 0.5}
    shape = (60, 30, 40)
    values = (
        sds["table"] * rng.normal(size=(60, 1, 1))
        + sds["split"] * rng.normal(size=(60, 30, 1))
        + sds["activation"] * rng.normal(size=(1, 1, 40))
        + sds["both"] * rng.normal(size=(60, 1, 40))
        + sds["rest"] * rng.normal(size=shape)
    )
    names = ("table", "split", "activation")
    found = variance_components(values, names, {"split": "table"})
    assert set(found) == {
        *("table", "activation", "table x split", "table x activation"),
        "table x split x activation",
    }
    expected = {"table x split": 4.0, "table x activation": 2.25, "activation": 1.0}
    for name, variance in expected.items():
        assert found[name] == pytest.approx(variance, rel=0.3)
    assert found["table x split x activation"] == pytest.approx(0.25, rel=0.05)
    shares = variance_shares(values[:8, :4, :5], names, {"split": "table"})
    assert set(shares) == {"activation", "table x split", "table x activation", "rest"}
    assert sum(share.mean for share in shares.values()) == pytest.approx(1.0)
    assert all(0 <= low <= high <= 1 for _, low, high in shares.values())


def make_rows(logs, levels, column="activation", **more):
    """Rows of a study from logarithms of errors, (tables, splits, levels)."""
    found = [
        {"kind": "openml", "data": f"t{t}", "split": s, column: level, "loss": np.exp(value)}
        for t, of_table in enumerate(logs)
        for s, of_split in enumerate(of_table)
        for level, value in zip(levels, of_split, strict=True)
    ]
    return pd.DataFrame(found).assign(**more)


def test_a_block_has_whole_splits_alone():
    rows = make_rows(np.zeros((3, 3, 2)), ("combu", "relu"), recipe="default")
    gone = (rows["data"] == "t1") & (rows["split"] == 2) & (rows["activation"] == "relu")
    gone |= (rows["data"] == "t2") & (rows["split"] == 0) & (rows["activation"] == "combu")
    rows.loc[(rows["data"] == "t0") & (rows["activation"] == "relu"), "loss"] = np.nan
    rows.loc[(rows["data"] == "t0") & (rows["activation"] == "combu"), "loss"] = 7.0
    logs = block(rows[~gone], "activation", ("combu", "relu"), ("openml",), recipe="default")
    assert list(logs.index) == [
        *(("t0", 0), ("t0", 1), ("t0", 2), ("t1", 0), ("t1", 1), ("t2", 1), ("t2", 2))
    ]
    assert size(logs) == "3 x 2 to 3"
    values, whole = rectangle(logs)
    assert (values.shape, whole) == ((3, 2, 2), "3 x 2")
    assert rectangle(logs.loc[["t0"]]) is None
    assert np.exp(logs.loc["t0"].to_numpy()) == pytest.approx(7.0), "what diverged is the worst"
    assert block(rows, "activation", ("combu", "gelu"), ("openml",)).empty
    assert np.isnan(spread_of_splits(logs.loc[[("t0", 0)]]))


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


def test_a_choice_that_follows_a_feature_is_foreseen():
    wide = np.arange(12) % 2
    logs = np.where(wide[:, None, None] == np.array([0, 1, 2]), 0.0, 1.0)  # the best is its number
    logs = logs + np.array([0.0, 0.1, 0.0]) + np.zeros((12, 2, 1))
    rows = make_rows(logs, ("combu", "relu", "gelu"))
    known = pd.DataFrame({"wide": wide, "noise": np.arange(12) // 2}, [f"t{i}" for i in range(12)])
    costs = foresee(
        block(rows, "activation", ("combu", "relu", "gelu"), ("openml",)), known, "combu"
    )
    own = np.where(wide, 0.1 - 1.0, 0.0)
    assert costs["nearest tables"].to_numpy() == pytest.approx(own)
    assert costs["its own other splits"].to_numpy() == pytest.approx(own)
    assert costs["best on the other tables"].mean() > -0.45


def test_weights_of_mixed_packs():
    rows = pd.DataFrame({"data": ["a", "a", "b"], "activation": "mix"})
    rows["chosen"] = ["combu:0.5 pln-8:0.5", "combu:1", "pln-8:1"]
    weights = chosen_weights(rows, ("combu", "relu", "pln-8"))
    assert weights.to_dict("index") == {
        "a": {"combu": 0.75, "relu": 0.0, "pln-8": 0.25},
        "b": {"combu": 0.0, "relu": 0.0, "pln-8": 1.0},
    }


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


def rows_of_all(n_tables, n_splits):
    """Rows as the study of recipes has them, of numbers drawn."""
    rng = np.random.default_rng(0)
    found = []
    for stage in plan.PLAN:
        for recipe in stage.recipes:
            logs = rng.normal(size=(n_tables, 1, 1)) + 0.1 * rng.normal(
                size=(n_tables, n_splits, len(stage.activations))
            )
            for kind in stage.kinds:
                rows = make_rows(logs, stage.activations, recipe=recipe)
                found.append(rows.assign(kind=kind, data=kind + rows["data"]))
    mixed = {"most_train": 9, "error": "", "chosen": ""}
    rows = pd.concat(found, ignore_index=True).assign(**mixed)
    mix = rows["activation"] == "mix"
    rows.loc[mix, "chosen"] = [f"combu:{w:.2f} relu:{1 - w:.2f}" for w in rng.random(mix.sum())]
    return rows


@pytest.mark.parametrize("n_splits", [1, 2])
def test_page_of_recipes(n_splits, monkeypatch):
    drawn = np.random.default_rng(1)
    monkeypatch.setattr(tables, "features", lambda table: {"size": drawn.random()})
    page = Page("activations_recipes", "", "")
    rows = rows_of_all(3, n_splits)
    recipes_report.write(page, argparse.Namespace(data_home=None), rows)
    text = str(page)
    assert ("not judged" in text) == (n_splits == 1), "one split has no variance"
    assert "ot run" not in text
    assert text.count(f"6 x {n_splits}") >= 2, "two recipes on six tables"
    few = rows[rows["kind"] == "openml"]
    few = few[few["recipe"] == "paper"]
    page = Page("activations_recipes", "", "")
    recipes_report.write(page, argparse.Namespace(data_home=None), few)
    assert str(page).lower().count("not run") == 3, "parts, blends and packs"


def default_rows(errors, seconds, on):
    """Rows of the study of the default: errors and seconds by network, over CombU's, and noise."""
    noise = np.random.default_rng(0).normal(scale=1e-3, size=(2, 8, 3, len(default.NETWORKS)))
    found = []
    for kind, logs in zip(("openml", "feynman"), noise, strict=True):
        if kind in on:
            logs = logs + np.log([errors.get(name, 1.0) for name in default.NETWORKS])
        rows = make_rows(logs, default.NETWORKS, "network", error="")
        times = rows["network"].map(seconds).fillna(1.0)
        found.append(rows.assign(kind=kind, data=kind + rows["data"], cpu_seconds=times))
    return pd.concat(found, ignore_index=True)


@pytest.mark.parametrize(
    ("errors", "seconds", "on", "parts"),
    [
        ({"gelu": 0.8}, {}, ("openml", "feynman"), [True, True, True]),
        ({"gelu": 0.8}, {"gelu": 1.2}, ("openml", "feynman"), [True, True, True]),
        (
            {"gelu": 0.8, default.TWICE: 0.7}, {"gelu": 1.2},
            ("openml", "feynman"), [True, True, False],
        ),
        ({"gelu": 0.8}, {}, ("openml",), [False, True, True]),
    ],
)  # fmt: skip
def test_the_rule_for_the_default(errors, seconds, on, parts):
    rows = default_rows(errors, seconds, on)
    page = Page("activations_default", "", "")
    default.write(page, argparse.Namespace(), rows)
    answers = " | ".join("yes" if part else "no" for part in parts)
    assert f"| GELU | {answers} |" in str(page)
    assert ("The default becomes GELU" in str(page)) == all(parts)
    # what is worse on one real table by itself may not become the default
    losing = (rows["data"] == "openmlt0") & (rows["network"] == "gelu")
    rows.loc[losing, "loss"] *= 2.0
    page = Page("activations_default", "", "")
    default.write(page, argparse.Namespace(), rows)
    assert "CombU stays" in str(page)
