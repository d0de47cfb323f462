"""No weight, number or table that cannot be is taken, and none is silently ignored."""

import os
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from combutab import MLPClassifier, MLPRegressor
from tests.trust.small_rows import FRAME, INF, LABELS, LEARNS, QUICK, X, Z, target_of

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
BAD_CLASS_WEIGHTS = [
    ({0: -1, 1: 1, 2: 1}, "class_weight of class 0 must be at least 0 and finite, got -1"),
    ({0: np.nan, 1: 1, 2: 1}, "class 0 must be at least 0 and finite, got nan"),
    ({0: INF}, "class 0 must be at least 0 and finite, got inf"),
    ({0: "2"}, "class_weight of class 0 must be a number, got '2'"),
    ({0: None}, "class_weight of class 0 must be a number"),
    ({0: 1e300}, "must be 0, or between 1e-18 and 1e.18, got 1e.300"),
    ({0: 1e-30}, "must be 0, or between"),
    ({0: 0, 1: 0, 2: 0}, "is 0 for every class: nothing is left to fit"),
    ({"0": 1.0, "1": 2.0}, r"names \['0', '1'\], which are no classes of y"),
    ({0: 1, 7: 2}, r"names \[7\].*the classes \[1, 2\] are not in class_weight"),
    ([1.0, 2.0, 3.0], "must be a dict class -> weight"),
    ([{0: 1}], "class_weight is a list, which is for multi-label"),
    ([], "class_weight"),
]


@pytest.mark.parametrize(("class_weight", "words"), BAD_CLASS_WEIGHTS)
def test_class_weights_that_cannot_be_are_refused_before_training(
    class_weight, words, monkeypatch, tmp_path
):
    monkeypatch.setattr("combutab.estimators._base.train_jobs", None)
    model = MLPClassifier(**QUICK, class_weight=class_weight)
    with pytest.raises(ValueError, match=words):
        model.fit(X, LABELS)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, LABELS, classes=[0, 1, 2])
    pytest.importorskip("pyarrow")
    pd.DataFrame(X, columns=list("abc")).assign(y=LABELS).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=words):
        model.fit_parquet(tmp_path / "t.parquet", "y")


def test_class_weights_of_labels_are_checked_too():
    y = np.column_stack([LABELS > 0, LABELS > 1]).astype(int)
    for wrong in ([{0: 1, 1: -1}, {0: 1, 1: 1}], [{0: 1, 1: np.nan}, {0: 1}]):
        with pytest.raises(ValueError, match="class_weight of class 1 must be at least 0"):
            MLPClassifier(**QUICK, class_weight=wrong).fit(X, y)


def test_a_weight_for_a_class_that_is_not_there_is_said_and_changes_nothing():
    plain = MLPClassifier(**QUICK, class_weight={0: 1, 1: 2, 2: 3}).fit(X, LABELS)
    model = MLPClassifier(**QUICK, class_weight={0: 1, 1: 2, 2: 3, 9: 4})
    with pytest.warns(UserWarning, match=r"names \[9\], which are no classes of y"):
        model.fit(X, LABELS)
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
@pytest.mark.parametrize("solver", ["adam", "sgd", "adamw"])
def test_batches_of_rows_without_weight_teach_nothing_and_break_nothing(solver):
    # sorted, in batches of one class each: half of them weigh nothing
    order = np.argsort(Z)
    rows, y = X[order], (Z[order] > np.median(Z)).astype(int)
    model = MLPClassifier(
        **{**LEARNS, "solver": solver, "batch_size": 20, "shuffle": False, "alpha": 0.01},
        class_weight={0: 0, 1: 1}, warm_start=True,
    ).fit(rows, y)  # fmt: skip
    assert np.isfinite(model.loss_curve_).all()
    assert (model.predict(rows) == 1).all()  # the only class that was taught
    model.set_params(class_weight=None, solver="adam").fit(rows, y)
    assert model.score(rows, y) > 0.9


def test_sample_weights_that_cannot_be_are_refused():
    for weight, words in [
        (np.full(120, 1e300), "must be 0, or between 1e-18 and 1e.18, got 1e.300"),
        (np.full(120, 1e-300), "must be 0, or between"),
        (np.where(Z > 0, 1.0, 5e-324), "must be 0, or between"),
        (-np.ones(120), "[Nn]egative"),
        (np.where(Z > 0, np.nan, 1.0), "NaN"),
        (np.where(Z > 0, INF, 1.0), "infinity"),
        (np.zeros(120), "zero"),
        (np.ones(120) + 1j, "Complex"),
    ]:
        for cls in (MLPClassifier, MLPRegressor):
            with pytest.raises(ValueError, match=words):
                cls(**QUICK).fit(X, target_of(cls), sample_weight=weight)
    with pytest.raises(ValueError, match="class_weight times sample_weight must be 0, or between"):
        MLPClassifier(**QUICK, class_weight={0: 1e10, 1: 1, 2: 1}).fit(
            X, LABELS, sample_weight=np.full(120, 1e10)
        )
    parameters = {**LEARNS, "alpha": 0.0}
    once = MLPRegressor(**parameters).fit(X, Z).predict(X)
    for size in (2.0**-59, 2.0**59):
        again = MLPRegressor(**parameters).fit(X, Z, sample_weight=np.full(120, size)).predict(X)
        assert_allclose(again, once, rtol=1e-3, atol=1e-3)


# ---- numbers that are none, tables that are others ----------------------------------------

REALS = [n for n, rules in MLPRegressor._parameter_constraints.items()
         if any("Interval" in type(rule).__name__ and rule.type is not None
                and "float" in str(rule) for rule in rules)]  # fmt: skip


@pytest.mark.parametrize("name", REALS)
def test_nan_and_negative_numbers_are_no_parameters(name):
    assert len(REALS) > 8
    for value in (np.nan, -1.0, -INF):
        with pytest.raises(ValueError, match=name):
            MLPRegressor(**{**QUICK, name: value}).fit(X, Z)


def test_other_tables_at_predict_are_refused_or_mean_the_same():
    model = MLPRegressor(**LEARNS).fit(FRAME, Z)
    expected = model.predict(FRAME)
    same = [
        FRAME.astype({"a": str}), FRAME.astype(object), FRAME.astype({"few": "category"}),
        FRAME.astype({"a": "Float64"}), FRAME.convert_dtypes(),
    ]  # fmt: skip
    for table in same:
        assert_allclose(model.predict(table), expected, rtol=1e-6, atol=1e-6)
    for table, words in [
        (FRAME[[*list("cba"), "few", "many"]], "same order"),
        (FRAME.drop(columns="b"), "feature names"),
        (FRAME.assign(b=pd.Timestamp("2020")), "'b' holds numbers, got dates"),
        (FRAME.assign(b="x"), "'b' is numeric, but 'x' could not be converted"),
        (FRAME.assign(b=1j), "[Cc]omplex"),
        (FRAME.assign(b=INF), "infinity"),
        (FRAME.set_axis(["a", "a", "c", "few", "many"], axis=1), "feature names|duplicate"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.predict(table)
    for table, words in [
        (FRAME.set_axis(["a", "a", "c", "few", "many"], axis=1), "duplicate column names"),
        (FRAME[[]], "0 feature"),
        (X[:, :0], "0 feature"),
        (X[:0], "0 sample"),
        (X + 1j, "Complex"),
        (FRAME.assign(b=1j), "[Cc]omplex"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPRegressor(**QUICK).fit(table, Z[: len(table)])


def test_partial_fits_in_threads_leave_the_warnings_filters_alone():
    before = list(warnings.filters)
    parameters = {**QUICK, "n_iter_no_change": 10}

    def run(seed):
        model = MLPRegressor(**{**parameters, "random_state": seed})
        for _ in range(30 * BUDGET):
            model.partial_fit(X, Z)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
