"""Two-sample tests of single columns, pairs and shuffled tables, on tables of known differences."""

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import detection_parts
from tests.evaluation.leaks import people

REAL = people(400, 0)


def parts(synthetic, **options):
    return detection_parts(real=REAL, synthetic=synthetic, **options)


def by_part(table):
    return table.set_index("part")


def test_other_real_rows_are_not_detected():
    table = parts(people(400, 1))
    assert (table["auc"] < 0.6).all()
    assert (table["dependence"].dropna() < 0.08).all()


def test_a_shifted_column_is_named():
    fresh = people(400, 1)
    table = parts(fresh.assign(weight=fresh["weight"] + 24))  # two standard deviations
    all_parts = by_part(table)
    assert all_parts.loc["shuffled", "auc"] > 0.85
    assert all_parts.loc["all", "dependence"] < 0.1
    first = table[table["part"] == "column"].iloc[0]
    assert first["column"] == "weight"
    assert first["auc"] > 0.85
    assert table[table["part"] == "column"]["auc"].iloc[1] < 0.6


def test_a_lost_dependence_is_named():
    fresh = people(400, 1)
    rng = np.random.default_rng(0)
    table = parts(fresh.assign(born=rng.permutation(fresh["born"])), n_pairs=5)
    all_parts = by_part(table)
    assert all_parts.loc["all", "auc"] > 0.85
    assert all_parts.loc["all", "dependence"] > 0.3
    assert all_parts.loc["shuffled", "auc"] < 0.6
    first = table[table["part"] == "pair"].iloc[0]
    assert {first["column"], first["other_column"]} == {"age", "born"}
    assert first["dependence"] > 0.3


def test_form_of_the_table():
    table = parts(people(300, 1), n_columns=2, n_pairs=3)
    assert table["part"].tolist() == ["all", "shuffled"] + ["column"] * 2 + ["pair"] * 3
    assert table["dependence"].notna().tolist() == [True, False, False, False, True, True, True]
    assert (table["se"] > 0).all()
    columns = table[table["part"] == "column"]["auc"]
    assert columns.is_monotonic_decreasing
    again = parts(people(300, 1), n_columns=2, n_pairs=3)
    pd.testing.assert_frame_equal(table, again)


def test_constant_and_empty_columns():
    odd = {"one": 1, "empty": None, "text": "same"}
    table = detection_parts(
        real=REAL[["age"]].assign(**odd), synthetic=people(200, 1)[["age"]].assign(**odd)
    )
    assert table["auc"].between(0.4, 0.6).all()


@pytest.mark.parametrize(
    "options", [{"n_splits": 1}, {"n_columns": -1}, {"n_pairs": 0.5}, {"max_rows": 2}]
)
def test_wrong_arguments(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        parts(people(50, 1), **options)
    with pytest.raises(ValueError, match="synthetic has 2 rows, too few for 3 folds"):
        parts(people(2, 1))
