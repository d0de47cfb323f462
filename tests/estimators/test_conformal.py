"""Conformal intervals and sets of labels: thresholds, coverage, files and refusals."""

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import combutab
from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMRegressor,
)
from combutab.estimators._targets import ConformalScores

QUICK = {"hidden_layer_sizes": (32,), "max_iter": 60, "random_state": 0}
# intervals and sets cover whatever the network has learned
BRIEF = QUICK | {"max_iter": 8, "n_iter_no_change": np.inf}
PACK = {"n_members": 3, "max_iter": 8, "boosting": False, "random_state": 0}
TABM = {"hidden_layer_sizes": (16,), "n_heads": 4, "early_stopping": True, "max_iter": 10}


def make_rows(n_rows, seed):
    """Simulate a sine curve whose noise grows with x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n_rows)
    return x[:, None], np.sin(x) + rng.normal(0.0, 0.05 + 0.08 * x)


X, Y = make_rows(900, 0)
X_NEW, Y_NEW = make_rows(2000, 1)
LABELS, NEW_LABELS = (
    np.array(["low", "mid", "top"])[np.digitize(y, [-0.5, 1.0])] for y in (Y, Y_NEW)
)


MODELS = {
    "squared error": MLPRegressor(**BRIEF),
    "quantile": MLPRegressor("quantile", **QUICK),
    "two quantiles": MLPRegressor("quantile", quantiles=[0.5, 0.9], **BRIEF),
    "gaussian": MLPRegressor("gaussian_nll", **QUICK),
    "first rows": MLPRegressor(n_members=2, validation_split=np.arange(900) < 300, **BRIEF),
    "TabM": TabMRegressor(**TABM, random_state=0, n_iter_no_change=np.inf),
    "pack": PackRegressor(**PACK),
    "pack of quantiles": PackRegressor(loss="quantile", cv=None, **PACK),
    "classifier": MLPClassifier(**BRIEF),
    "pack classifier": PackClassifier(**PACK),
}


@functools.cache
def fitted(name):
    return MODELS[name].fit(X, LABELS if "classifier" in name else Y)


def share_inside(intervals, y):
    return float(((intervals[..., 0] <= y) & (y <= intervals[..., 1])).mean())


# ---- Thresholds ----------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.5, 0.8, 0.9, 0.95]),
)
def test_threshold_is_the_order_statistic(scores, coverage):
    n = len(scores)
    rank = next(k for k in range(1, n + 2) if k >= coverage * (n + 1) - 1e-9)
    learned = ConformalScores.of(np.array(scores, dtype=float), None)
    if rank > n:
        with pytest.raises(ValueError, match=f"coverage={coverage}"):
            learned.threshold(coverage, "rows")
    else:
        assert learned.threshold(coverage, "rows") == pytest.approx(sorted(scores)[rank - 1])


def test_levels_of_many_rows_are_at_most_one_level_above():
    scores = np.random.default_rng(0).exponential(size=34_567)
    learned = ConformalScores.of(scores, None)
    assert len(learned.levels) == 1000
    for coverage in (0.2, 0.9, 0.99):
        exact, above = np.quantile(scores, [coverage, coverage + 0.0011], method="higher")
        assert exact <= learned.threshold(coverage, "rows") <= above * 1.01


def test_weights_count_as_repeated_rows():
    scores = np.arange(1.0, 301.0)
    weight = np.where(scores > 150, 3.0, 1.0)
    weighted = ConformalScores.of(scores, weight)
    repeated = ConformalScores.of(np.repeat(scores, weight.astype(int)), None)
    assert weighted.n_rows == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    for coverage in (0.25, 0.5, 0.9):
        expected = repeated.threshold(coverage, "rows")
        assert weighted.threshold(coverage, "rows") == pytest.approx(expected, rel=0.02)


def test_levels_are_rounded_up_to_three_digits():
    levels = ConformalScores.of(np.array([0.0, 0.123456, 987.654, 1e200, np.inf]), None).levels
    assert levels.tolist() == pytest.approx([0.0, 0.124, 988.0, 1e200, np.inf])


# ---- Intervals -----------------------------------------------------------------------------------


def test_intervals_have_the_size_of_out_of_fold_residuals():
    reg = MLPRegressor(bagging="cv", **BRIEF).fit(X, Y)
    residuals = np.sort(np.abs(Y - reg.oof_prediction_))
    expected = residuals[int(np.ceil(0.9 * (len(Y) + 1))) - 1]
    intervals = reg.predict_interval(X_NEW)
    assert intervals.shape == (len(X_NEW), 2)
    np.testing.assert_allclose(intervals.mean(1), reg.predict(X_NEW), atol=1e-9)
    np.testing.assert_allclose(np.ptp(intervals, axis=1) / 2, expected, rtol=0.011)


@pytest.mark.parametrize("name", [name for name in MODELS if "classifier" not in name])
def test_intervals_contain_the_targets_of_new_rows(name):
    for coverage in (0.5, 0.9):  # six standard errors of 170 rows, those that are set aside least
        error = 6 * np.sqrt(coverage * (1 - coverage) / 170)
        intervals = fitted(name).predict_interval(X_NEW, coverage)
        assert abs(share_inside(intervals, Y_NEW) - coverage) < error


@pytest.mark.parametrize("name", ["quantile", "gaussian"])
def test_widths_follow_the_predicted_distribution(name):
    narrow, wide = np.ptp(fitted(name).predict_interval([[0.5], [9.5]]), axis=1)
    assert wide > 2 * narrow


def test_intervals_of_counts_are_not_negative():
    counts = np.random.default_rng(0).poisson(X[:, 0] / 4)
    reg = MLPRegressor("poisson", **BRIEF).fit(X, counts)
    intervals = reg.predict_interval(X, 0.95)
    assert intervals.min() == 0.0
    assert share_inside(intervals, counts) > 0.9


def test_each_target_has_its_own_width():
    targets = np.column_stack([Y, 100 * Y[::-1]])
    reg = MLPRegressor(**BRIEF).fit(X, targets)
    intervals = reg.predict_interval(X, 0.8)
    assert intervals.shape == (len(X), 2, 2)
    widths = np.ptp(intervals, axis=2)
    assert (widths[:, 1] > 50 * widths[:, 0]).all()


# ---- Sets of labels ------------------------------------------------------------------------------


def test_sets_have_labels_above_the_out_of_fold_threshold():
    clf = MLPClassifier(bagging="cv", **BRIEF).fit(X, LABELS)
    columns = np.searchsorted(clf.classes_, LABELS)
    true_class = clf.oof_decision_function_[np.arange(len(X)), columns]
    limit = np.sort(true_class)[::-1][int(np.ceil(0.9 * (len(X) + 1))) - 1]
    probabilities = clf.predict_proba(X_NEW)
    sets = clf.predict_set(X_NEW)
    is_near = np.abs(np.log(probabilities / limit)) < 0.011 * abs(np.log(limit))
    expected = (probabilities >= limit) | (probabilities == probabilities.max(1, keepdims=True))
    assert sets.dtype == bool
    assert ((sets == expected) | is_near).all()


@pytest.mark.parametrize("name", ["classifier", "pack classifier"])
def test_sets_contain_the_labels_of_new_rows(name):
    clf = fitted(name)
    columns = np.searchsorted(clf.classes_, NEW_LABELS)
    by_class = [columns == j for j in range(3)]
    error = 6 * np.sqrt(0.9 * 0.1 / 360)
    for per_class, groups in ((False, [columns >= 0]), (True, by_class)):
        sets = clf.predict_set(X_NEW, 0.9, per_class=per_class)
        assert sets.any(1).all()
        hits = sets[np.arange(len(sets)), columns]
        for group in groups:
            assert hits[group].mean() > 0.9 - error * (2 if per_class else 1)


def test_two_classes_have_sets_of_both_where_uncertain():
    y = Y > 0
    clf = MLPClassifier(**QUICK).fit(X, y)
    sizes = clf.predict_set(X_NEW, 0.99).sum(1)
    assert {*sizes} == {1, 2}
    is_certain = clf.predict_proba(X_NEW).max(1) > 0.999
    assert (sizes[is_certain] == 1).all()


# ---- Fits with other validation rows, and fits without any ---------------------------------------


@pytest.mark.parametrize("model", [MLPRegressor(**BRIEF), PackRegressor(**PACK)])
def test_validation_rows_of_the_caller_are_used(model):
    shifted = Y_NEW[:500] + np.random.default_rng(0).normal(0.0, 3.0, 500)
    model.fit(X, Y, X_val=X_NEW[:500], y_val=shifted)
    assert np.ptp(model.predict_interval(X_NEW), axis=1).min() > 2 * 1.645 * 3 * 0.8


def test_parquet_files_have_intervals(tmp_path):
    pd.DataFrame({"x": X[:, 0], "y": Y}).to_parquet(tmp_path / "rows.parquet")
    reg = MLPRegressor(**BRIEF).fit_parquet(tmp_path / "rows.parquet", target="y")
    inside = share_inside(reg.predict_interval(pd.DataFrame({"x": X_NEW[:, 0]})), Y_NEW)
    assert abs(inside - 0.9) < 0.15


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"early_stopping": False}, ["fit"]),
        ({"solver": "lbfgs", "early_stopping": False}, ["fit"]),
        ({}, ["fit", "partial_fit"]),
        ({"warm_start": True}, ["fit", "fit"]),
    ],
    ids=["no validation rows", "lbfgs", "partial_fit", "warm start"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_intervals_without_unseen_rows(settings, fits):
    reg = MLPRegressor(**{**QUICK, "max_iter": 3, **settings})
    for name in fits:
        getattr(reg, name)(X, Y)
    with pytest.raises(ValueError, match="early_stopping=True"):
        reg.predict_interval(X)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, np.nan, "0.9", None, True])
def test_invalid_coverages_are_refused(coverage):
    with pytest.raises(ValueError, match="coverage"):
        fitted("squared error").predict_interval(X, coverage)


def test_rare_classes_need_rows_of_their_own():
    rare = np.where(np.arange(len(X)) % 90 == 0, "rare", "usual")
    clf = MLPClassifier(**BRIEF | {"max_iter": 2}).fit(X, rare)
    clf.predict_set(X, 0.9)
    with pytest.raises(ValueError, match="9 rows of class 'rare'"):
        clf.predict_set(X, 0.9, per_class=True)


def test_multi_label_targets_have_no_sets():
    labels = np.column_stack([Y > 0, X[:, 0] > 5]).astype(int)
    clf = MLPClassifier(**BRIEF | {"max_iter": 2}).fit(X, labels)
    with pytest.raises(ValueError, match="multi-label"):
        clf.predict_set(X)


# ---- Files and exports ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["gaussian", "classifier", pytest.param("pack of quantiles", marks=pytest.mark.slow)],
)
def test_files_and_onnx_have_the_same_regions(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = fitted(name)
    method = "predict_set" if name == "classifier" else "predict_interval"
    expected = getattr(model, method)(X_NEW[:200], 0.8)
    model.save(tmp_path / "model.safetensors")
    loaded = combutab.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(getattr(loaded, method)(X_NEW[:200], 0.8), expected)
    pickled = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(getattr(pickled, method)(X_NEW[:200], 0.8), expected)
    model.to_onnx(tmp_path / "model.onnx", coverage=0.8)
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    outputs = session.run([method.replace("predict", "prediction")], {"X": X_NEW[:200]})
    np.testing.assert_allclose(outputs[0], expected, atol=1e-5)


def test_forged_scores_are_refused(tmp_path):
    reg = MLPRegressor(**BRIEF | {"max_iter": 2}).fit(X, Y)
    for scores in (
        [reg._conformal[0]] * 2,
        [ConformalScores(180.0, np.array([2.0, 1.0]))],
        [ConformalScores(180.0, np.array([]))],
    ):
        reg._conformal = scores
        reg.save(tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match="conformal"):
            combutab.load(tmp_path / "model.safetensors")
