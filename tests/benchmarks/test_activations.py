"""The studies of activations: their rule on cases worked by hand, and what they train."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.activations import effects, real_tables, tables
from benchmarks.activations.shares import LearnedUnits
from benchmarks.papers.combu import study
from combutab.estimators import FitOutcome, FitTask

DATA_HOME = Path(__file__).parents[3] / "shared" / "data"
RESULTS = Path(effects.__file__).parent / "results"
needs_data = pytest.mark.skipif(not DATA_HOME.is_dir(), reason="needs ../shared/data")


def make_logs(values, levels):
    """Logarithms of (tables, splits, levels)."""
    n_tables, n_splits, _ = np.shape(values)
    index = pd.MultiIndex.from_product([[f"t{i}" for i in range(n_tables)], range(n_splits)])
    cells = np.reshape(values, (n_tables * n_splits, -1))
    return pd.DataFrame(cells, index.set_names(["data", "split"]), list(levels))


def test_iman_and_davenport_by_hand():
    """Chi-squared is 14/3, so F = 2 (14/3) / (6 - 14/3) = 7, with p = (1 + 7/2)^-2."""
    plain, corrected = effects.omnibus(pd.DataFrame([[1, 2, 3], [1, 2, 3], [2, 1, 3]]))
    assert plain == pytest.approx(np.exp(-7 / 3))
    assert corrected == pytest.approx(4.5**-2)
    assert effects.omnibus(pd.DataFrame([[1, 2, 3]] * 4))[1] == 0.0, "all tables agree"


def test_the_rule_has_three_answers():
    noise = np.array([-0.01, 0.01, 0.0, -0.01, 0.01])
    base = np.arange(5.0)
    values = {"combu": base, "relu": base + 0.5 * noise, "gelu": base - 0.2 + noise}
    values = pd.DataFrame(values | {"selu": base + 9 * noise})
    found = effects.beside(values, "combu").set_index("a")
    answers = {"relu": "less than 2 %", "gelu": "GELU is better", "selu": "not decided"}
    assert found["answer"].to_dict() == answers
    assert found.loc["gelu", "ratio"] == pytest.approx(np.exp(-0.2))
    half = 2.776445 * noise.std(ddof=1) / 5**0.5  # Student's quantile of 4 degrees
    assert found.loc["gelu", "high"] == pytest.approx(np.exp(-0.2 + half))
    few = effects.beside(values[:2], "combu")
    assert set(few["answer"]) == {"not decided"}, "two units decide nothing"


def test_a_p_value_is_adjusted_for_all_pairs():
    rng = np.random.default_rng(0)
    values = pd.DataFrame(rng.normal(size=(9, 3)), columns=["combu", "relu", "gelu"])
    values["gelu"] += 3.0
    one = effects.compare(values, [("combu", "gelu")])["p"][0]
    three = effects.compare(values, [("combu", "gelu"), ("relu", "gelu"), ("combu", "relu")])
    assert three["p"][0] in (pytest.approx(3 * one), pytest.approx(2 * one))


def test_what_diverged_is_the_worst_and_incomplete_splits_are_left_out():
    rows = pd.DataFrame(
        [("a", 0, "x", 1.0), ("a", 0, "y", np.nan), ("a", 0, "z", 4.0), ("a", 1, "x", 1.0)],
        columns=["data", "split", "net", "loss"],
    )
    found = effects.logs_of(rows, "net", ("x", "y", "z"))
    assert np.exp(found).to_numpy().tolist() == [[1.0, pytest.approx(4.0), pytest.approx(4.0)]]


def test_tables_of_the_same_values_are_one_unit():
    logs = make_logs([[[0.0, 1.0]], [[2.0, 3.0]], [[0.0, 1.0 + 1e-9]]], ("combu", "relu"))
    assert list(effects.by_table(logs).index) == ["t0", "t1"]
    assert effects.size(logs) == "2 tables x 1 split"


def test_no_mistake_counts_as_half_of_one_and_whole_tables_count():
    made = [
        {"data": data, "split": split, "activation": name, "task": task, "n_test": 50,
         "accuracy": 1.0 if task == "classification" else np.nan, "loss": 2.0}
        for data, task, n_splits in (
            *[("a", "classification", 2), ("b", "regression", 2), ("c", "regression", 1)],
        )
        for split in range(n_splits)
        for name in tables.SINGLE
    ]  # fmt: skip
    found = real_tables.logs(pd.DataFrame(made), 2)
    for measure, of_a in (("error", 0.01), ("loss", 2.0)):
        means = np.exp(found[measure]).groupby(level="data").mean()
        assert list(means.index) == ["a", "b"]
        assert means.to_numpy() == pytest.approx(np.repeat([[of_a], [2.0]], 9, axis=1))


def test_equal_rows_stay_on_one_side():
    X = pd.DataFrame({"a": np.repeat(np.arange(30), 3), "b": 1})
    for seed in range(5):
        train, test = real_tables.split_rows(X, seed, 90)
        assert not set(X["a"].iloc[train]) & set(X["a"].iloc[test])
        assert sorted([*train, *test]) == list(range(90))
        assert len(test) == 18


def test_classes_without_training_rows_are_not_scored(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=60)})
    rows["y"] = np.where(rows["x"] > 0, "up", "down")
    rows.loc[0, "y"] = "rare"
    rows.to_csv(tmp_path / "one.csv", index=False)
    X, _, _ = real_tables.load("one", str(tmp_path))
    split = next(s for s in range(99) if 0 in real_tables.split_rows(X, s, 60)[1])
    wanted = [{"data": "one", "split": split, "most_train": 60, "activation": "combu"}]
    (row,) = real_tables.run(str(tmp_path), wanted, quick=True)
    assert (row["error"], row["n_train"], row["n_test"]) == (None, 48, 11)


def test_costs_of_choosing_by_hand():
    """Of t0's splits each prefers another activation; of t1 and t2 ReLU is the best throughout."""
    values = [[[0.0, -1.0], [0.0, 2.0]], [[0.0, -1.0]] * 2, [[0.0, -3.0]] * 2]
    found = real_tables.costs_of_choice(make_logs(values, ("combu", "relu")))
    assert found["own splits"].tolist() == [(0.0 + 2.0) / 2, -1.0, -3.0]
    # the others' means of ReLU minus CombU: (-1 - 3) / 2, (0.5 - 3) / 2, (0.5 - 1) / 2
    assert found["other tables"].tolist() == [0.5, -1.0, -3.0]


@pytest.mark.parametrize(
    ("error", "loss", "default"),
    [(-0.3, -0.3, "gelu"), (-0.3, 0.3, None), (-0.005, -0.3, None), (0.3, -0.3, None)],
)
def test_the_default_changes_only_by_error_and_not_against_loss(error, loss, default):
    noise = np.array([0.001, -0.001, 0.0, 0.001, -0.001])
    every = {
        measure: real_tables.pairs(pd.DataFrame({"combu": np.zeros(5), "gelu": shift + noise}))
        for measure, shift in (("error", error), ("loss", loss))
    }
    assert real_tables.decide(every) == default
    (row,) = real_tables.of_reference(every["error"]).itertuples()
    assert (row.a, row.ratio) == ("gelu", pytest.approx(np.exp(error)))
    assert row.low < row.ratio < row.high


@pytest.mark.parametrize("straight", [False, True])
def test_learned_units_are_one_part_each_outside_of_training(straight):
    units = LearnedUnits(12, straight=straight)
    with torch.no_grad():
        units.logits.normal_()
    x = torch.randn(7, 12, requires_grad=True)
    parts = torch.stack([part(x) for part in units.parts], -1)
    chosen = parts.gather(-1, units.logits.argmax(-1).expand(7, 12)[..., None])[..., 0]
    units.eval()
    torch.testing.assert_close(units(x), chosen)
    units.train()
    given = units(x)
    assert torch.allclose(given, chosen) == straight, "the mean of the parts, or one of them"
    given.square().sum().backward()
    assert units.logits.grad.abs().sum() > 0


def test_what_diverged_is_a_row_and_other_errors_are_raised():
    task = FitTask(None, None, [1, 2, 3], 0)
    failed = FitOutcome(1.5, ValueError("Solver produced non-finite parameter weights."))
    row = study.scored(task, failed, None, [4], None)
    assert row == {"n_train": 3, "n_test": 1, "seconds": 1.5, "error": str(failed.error)}
    with pytest.raises(ValueError, match="hidden"):
        study.scored(task, FitOutcome(1.5, ValueError("hidden_layer_sizes")), None, [4], None)


@needs_data
def test_thirty_equations_by_the_rule():
    found = tables.equations(str(DATA_HOME))
    assert len(set(found)) == len(found) == 30
    (X, y), (other, _) = tables.rows_of(tables.source("autoMpg", str(DATA_HOME)), 0)
    assert len(X) == len(y) <= 400
    assert not set(map(tuple, X.to_numpy())) & set(map(tuple, other.to_numpy()))


def test_the_summary_quotes_the_rows():
    rows = real_tables.STUDY.experiments[0].store(RESULTS).read()
    samples = real_tables.logs(rows, real_tables.N_SPLITS)
    said = (RESULTS.parents[1] / "WHICH_ACTIVATION.md").read_text("utf-8")
    for logs in samples.values():
        means = effects.by_table(logs)
        assert len(means) * real_tables.N_SPLITS * len(tables.SINGLE) == len(rows), "whole tables"
        assert f"[{len(means)} tables]" in said
        for row in real_tables.of_reference(real_tables.pairs(means)).itertuples():
            assert effects.ratio_text(row) in said
