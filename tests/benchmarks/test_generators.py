"""The comparison of generators: what it runs and leaves out, its baseline, and its ratios."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.quality import imputation
from benchmarks.quality.imputers import Gaps
from benchmarks.quality.synthesizers import Task, smote
from combutab.evaluation import privacy

# ---- the baseline ------------------------------------------------------------------------------


def test_smote_is_between_neighbours_of_a_class():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    table = pd.DataFrame({"x": x, "n": np.round(10 * x).astype(int), "gap": x})
    table["kind"] = pd.Categorical(np.where(x > 0.5, "u", "v"))
    table["y"] = pd.Categorical(np.where(x > 0, "up", "down"))
    table.loc[::5, "gap"] = np.nan
    rows = smote(Task(table, "y", True, 0))(2000)
    assert list(rows) == list(table)
    assert (rows["y"] == np.where(rows["x"] > 0, "up", "down")).all(), "never across the classes"
    assert rows["x"].between(x.min(), x.max()).all()
    assert rows["x"].nunique() > 1900, "no copies"
    assert (rows["n"] == rows["n"].round()).all()
    assert (rows["n"] - 10 * rows["x"]).abs().max() < 6
    assert rows["gap"].isna().mean() == pytest.approx(0.1, abs=0.1)
    assert rows["kind"].dtype == table["kind"].dtype
    other = pd.DataFrame({"x": rng.normal(size=300)})
    near = privacy(real_train=table[["x"]], holdout=other, synthetic=rows[["x"]], random_state=0)
    assert near["mean"].iloc[0] > 0.6, "near to the rows learned from"
    again = smote(Task(table, "y", True, 0))(2000)
    pd.testing.assert_frame_equal(rows, again)
    lonely = table.assign(y=pd.Categorical(["up"] + ["down"] * 299))
    assert len(smote(Task(lonely, "y", True, 0))(50)) == 50


# ---- The comparison of imputers: its quick form, its measures, and the donors -------------------


def gaps():
    table = pd.DataFrame({"x": [0.0, 2.0, 4.0, 6.0], "kind": pd.Categorical(list("abab"))})
    return Gaps(table, np.array([[True, True], [True, False], [False, True], [False, False]]), 0)


def test_measures_by_hand():
    own = gaps()
    filled = own.table.assign(x=[1.0, 2.0, 4.0, 6.0], kind=pd.Categorical(list("bbab")))
    other = own.table.assign(x=[-3.0, 2.5, 4.0, 6.0])
    found = imputation.judge(own, [filled, other])
    # the deviation of 0, 2, 4, 6 is sqrt(5); of two hidden numbers one is 1 off
    assert found["rmse"][0] == pytest.approx(np.sqrt((1 / 5 + 0) / 2))
    assert found["wrong"][0] == 0.5
    assert found["coverage"][0] == 1.0  # 0 in [-3, 1], 2 in [2, 2.5]
    assert len(found["rmse"]) == 1 + imputation.N_RESAMPLES
    alone = imputation.judge(own, [filled])
    assert np.isnan(alone["coverage"]).all()
    np.testing.assert_array_equal(alone["rmse"], found["rmse"])
