"""The studies of activations: their rule on cases worked by hand, and what they train."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.activations import effects, real_tables, tables
from benchmarks.activations.shares import LearnedUnits

DATA_HOME = Path(__file__).parents[3] / "shared" / "data"
RESULTS = Path(effects.__file__).parent / "results"
needs_data = pytest.mark.skipif(not DATA_HOME.is_dir(), reason="needs ../shared/data")


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


@pytest.mark.parametrize("straight", [False, True])
def test_learned_units_predict_by_one_part(straight):
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
