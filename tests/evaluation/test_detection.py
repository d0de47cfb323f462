"""detection: tables that can be told apart, and tables that cannot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from combutab.evaluation import detection, ml_efficacy

LEARNERS = ["linear", "hist_gradient_boosting"]


def table_of(seed, n=400):
    """Two numbers and a class that go together, and a date."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return pd.DataFrame(
        {
            "a": a,
            "b": a + 0.1 * rng.normal(size=n),
            "kind": np.where(a + 0.3 * rng.normal(size=n) > 0, "u", "v"),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, n), unit="D"),
        }
    )


def shuffled(table):
    rng = np.random.default_rng(0)
    return table.apply(lambda column: rng.permutation(column.to_numpy()))


def areas(real, synthetic, learners=LEARNERS, **parameters):
    found = detection(real=real, synthetic=synthetic, learners=learners, **parameters)
    return found["mean"].tolist()


def test_copies_are_at_chance_for_any_learner():
    real = table_of(0)
    learners = {"tree": DecisionTreeClassifier(), "distances": RidgeClassifier()}
    copy = real.sample(frac=1.0, random_state=1)
    assert areas(real, copy, learners) == [0.5, 0.5]
    assert areas(real, copy[copy.columns[::-1]]) == [0.5, 0.5]
    twice = pd.concat([real, copy], ignore_index=True)
    assert areas(real, twice, learners) == [0.5, 0.5]


@pytest.mark.slow
def test_fresh_rows_are_at_chance():
    found = [areas(table_of(seed), table_of(100 + seed)) for seed in range(4)]
    assert np.mean(found, axis=0) == pytest.approx([0.5, 0.5], abs=0.03)


def test_shuffled_columns_are_detected_by_boosting():
    real = table_of(0)
    other = table_of(1)
    linear, boosting = areas(real, shuffled(other))
    assert linear < 0.6
    assert boosting > 0.9
    noise = other.assign(a=np.random.default_rng(0).uniform(2, 9, 400), kind="w", day=pd.NaT)
    assert min(areas(real, noise)) > 0.99


def test_one_column_is_told_as_its_ranks_tell():
    rng = np.random.default_rng(0)
    real, made = rng.normal(size=1500), rng.normal(0.7, 1, size=1000)
    tables = [pd.DataFrame({"x": values}) for values in (real, made)]
    statistic = stats.mannwhitneyu(made, real).statistic / (len(real) * len(made))
    assert areas(*tables, "linear") == [pytest.approx(statistic, abs=0.01)]


def test_equal_rows_are_a_detectable_category():
    rng = np.random.default_rng(0)

    def rows(share, n):
        return pd.DataFrame({"x": rng.choice(["u", "v"], n, p=[share, 1 - share])})

    real, made = rows(0.9, 1000), rows(0.3, 600)
    p, q = (made["x"] == "v").mean(), (real["x"] == "v").mean()
    # v is more often synthetic: (v, u) pairs are right, equal ones half so
    expected = p * (1 - q) + 0.5 * (p * q + (1 - p) * (1 - q))
    assert areas(real, made) == [pytest.approx(expected, abs=0.01)] * 2
    assert areas(real, real.sample(frac=1.0)) == [pytest.approx(0.5, abs=0.05)] * 2


@pytest.mark.slow
def test_the_standard_error_is_the_spread_over_tables():
    found = [
        detection(
            real=pd.DataFrame({"x": np.random.default_rng(seed).normal(size=300)}),
            synthetic=pd.DataFrame({"x": np.random.default_rng(99 + seed).normal(1, 1, size=150)}),
            learners="linear",
        ).iloc[0]
        for seed in range(40)
    ]
    spread = np.std([each["mean"] for each in found], ddof=1)
    assert np.mean([each["se"] for each in found]) == pytest.approx(spread, rel=0.3)


def test_the_standard_error_at_chance_is_mann_and_whitneys():
    same = detection(real=table_of(0), synthetic=table_of(0), learners="linear").iloc[0]
    assert same["se"] == pytest.approx(np.sqrt((2 * 400 + 1) / (12 * 400**2)))


class FlagsInvalid(DecisionTreeClassifier):
    """Sets the flag of an invalid operation, as OpenBLAS sometimes does on finite numbers."""

    def fit(self, X, y):
        np.subtract(np.inf, np.inf)
        return super().fit(X, y)

    def predict_proba(self, X):
        np.subtract(np.inf, np.inf)
        return super().predict_proba(X)


def test_floating_point_flags_of_learners_are_silent():
    real, test, made = map(table_of, range(3))
    learners = {"tree": FlagsInvalid(max_depth=2, random_state=0)}
    assert 0.4 < areas(real, made, learners)[0] < 0.6
    found = ml_efficacy(
        real_train=real, real_test=test, synthetic=made, target="kind", learners=learners
    )
    assert (found.loc[found["metric"] == "accuracy", "mean"] > 0.7).all()


def test_folds_are_of_equal_parts():
    """A learner that says what it saw: as many rows of each table in every fold."""
    seen = []

    class Counts(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            seen.append(np.bincount(y).tolist())
            return self

        def decision_function(self, X):
            return np.zeros(len(X))

    real, made = table_of(0, 103), table_of(1, 57)
    assert areas(real, made, {"counts": Counts()}, n_splits=4) == [0.5]
    assert len(seen) == 4
    assert {n for n, _ in seen} <= {77, 78}
    assert {n for _, n in seen} <= {42, 43}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"synthetic": {"few": table_of(0)[:4]}}, "few has 4 rows, too few for 5 folds"),
        ({"n_splits": 1}, "n_splits must"),
        ({"learners": "tree"}, "unknown learner 'tree'"),
    ],
)
def test_wrong_arguments(wrong, says):
    with pytest.raises(ValueError, match=says):
        detection(**{"real": table_of(0), "synthetic": table_of(1)} | wrong)
