"""Targets and weights: labels of every kind, several targets, sample and class weights."""

import datetime
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    jaccard_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from sklearn.utils.class_weight import compute_class_weight

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)
from combutab.estimators import FitTask, fit_stacked
from combutab.model_selection import StackedGridSearchCV, compare_activations

pytestmark = pytest.mark.usefixtures("paper_defaults", "few_trees")


INF = float("inf")


X, IRIS = load_iris(return_X_y=True)


QUICK = {
    "hidden_layer_sizes": (16,),
    "max_iter": 40,
    "learning_rate_init": 0.02,
    "n_iter_no_change": INF,
    "random_state": 0,
}


EXACT = {**QUICK, "max_iter": 6, "dropout": 0.0, "precision": "float64"}


NAMES = np.array(["setosa", "versicolor", "virginica"])


LABELS = {
    "int": IRIS,
    "negative int": IRIS - 1,
    "wide int": IRIS * 10**12,
    "float": IRIS.astype(float),
    "uint8": IRIS.astype(np.uint8),
    "str": NAMES[IRIS],
    "object": NAMES[IRIS].astype(object),
    "bool": IRIS == 1,
    "binary str": np.where(IRIS == 1, "yes", "no"),
    "binary float": np.where(IRIS == 1, 2.0, -7.0),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_were(kind):
    y = LABELS[kind]
    model = MLPClassifier(**QUICK).fit(X, y)
    assert_array_equal(model.classes_, np.unique(y))
    assert model.classes_.dtype == np.unique(y).dtype
    predicted = model.predict(X)
    assert predicted.dtype == model.classes_.dtype
    assert (predicted == y).mean() > 0.9
    proba = model.predict_proba(X)
    assert proba.shape == (150, len(model.classes_))
    assert_allclose(proba.sum(1), 1, atol=1e-6)
    assert_array_equal(model.classes_[proba.argmax(1)], predicted)
    assert_allclose(model.predict_log_proba(X), np.log(proba))
    assert model.score(X, y) == (predicted == y).mean()


SERIES = {
    "str": lambda y: pd.Series(NAMES[y]),
    "string": lambda y: pd.Series(NAMES[y], dtype="string"),
    "category": lambda y: pd.Series(NAMES[y], dtype="category"),
    "Int64": lambda y: pd.Series(y, dtype="Int64"),
    "boolean": lambda y: pd.Series(y == 1, dtype="boolean"),
    "list": lambda y: NAMES[y].tolist(),
    "list of int": lambda y: y.tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "arrow": lambda y: pd.Series(NAMES[y], dtype="string[pyarrow]"),
    "polars": lambda y: pytest.importorskip("polars").Series(NAMES[y]),
}


@pytest.mark.parametrize("kind", SERIES)
def test_containers_of_labels(kind):
    y = SERIES[kind](IRIS)
    predicted = MLPClassifier(**QUICK).fit(X, y).predict(X)
    assert (predicted == np.asarray(y)).mean() > 0.9


def test_grid_search_takes_booleans_of_dtype_object():
    net = MLPClassifier(**QUICK)
    y = pd.Series(IRIS == 1, dtype=object)
    search = StackedGridSearchCV(net, {"alpha": [0, 1e-4]}, cv=2, error_score="raise")
    plain = StackedGridSearchCV(net, {"alpha": [0, 1e-4]}, cv=2).fit(X, IRIS == 1)
    assert search.fit(X, y).best_score_ == plain.best_score_


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (MLPClassifier, (False, True)),
        (MLPClassifier, (3, 4)),
        (MLPClassifier, (0.0, 1.0)),
        (PackClassifier, (False, True)),
        (TabMClassifier, (3, 4)),
    ],
)
def test_labels_of_dtype_object_have_their_own_dtype(model, values):
    x = np.random.default_rng(0).normal(size=64)
    y = pd.Series([*np.array(values)[(x > 0).astype(int)], None], dtype=object).dropna()
    fitted = model(max_iter=2, random_state=0, n_iter_no_change=np.inf).fit(x[:, None], y)
    assert fitted.classes_.dtype == np.array(values).dtype
    assert fitted.score(x[:, None], y) == np.mean(fitted.predict(x[:, None]) == y.to_numpy())


def test_series_index_is_ignored():
    order = np.random.default_rng(0).permutation(150)
    y = pd.Series(NAMES[IRIS], index=order)
    frame = pd.DataFrame(X, index=order[::-1], columns=list("abcd"))
    weight = pd.Series(np.r_[np.zeros(10), np.ones(140)], index=order + 7)
    for options in ({}, {"early_stopping": True}):
        expected = MLPClassifier(**EXACT, **options).fit(
            frame.reset_index(drop=True), y.to_numpy(), sample_weight=weight.to_numpy()
        )
        got = MLPClassifier(**EXACT, **options).fit(frame, y, sample_weight=weight)
        assert_array_equal(got.predict_proba(frame), expected.predict_proba(frame))
    numbers = pd.Series(IRIS * 1.5, index=order)
    assert MLPRegressor(**QUICK).fit(frame, numbers).score(frame, numbers) > 0.9


# ---- several labels, several targets ----------------------------------------


MULTILABEL = np.column_stack([IRIS == 0, IRIS >= 1, X[:, 0] > 5.8]).astype(int)


@pytest.mark.parametrize(
    "container",
    [
        np.asarray,
        pd.DataFrame,
        list,
        scipy.sparse.csr_matrix,
        scipy.sparse.csc_array,
        lambda y: y.astype(bool),
        lambda y: y.astype(float),
    ],
    ids=["array", "frame", "list", "csr", "csc", "bool", "float"],
)
def test_multilabel(container):
    model = MLPClassifier(**QUICK).fit(X, container(MULTILABEL))
    assert_array_equal(model.classes_, [0, 1, 2])
    assert (model.n_outputs_, model.out_activation_) == (3, "logistic")
    predicted, proba = model.predict(X), model.predict_proba(X)
    assert predicted.shape == proba.shape == (150, 3)
    assert_array_equal(predicted, proba > 0.5)
    assert (predicted == MULTILABEL).mean() > 0.9
    assert proba.sum(1).std() > 0.1  # labels are independent
    assert model.score(X, MULTILABEL) == (predicted == MULTILABEL).all(1).mean()


def test_multilabel_stops_early_on_its_subset_accuracy():
    model = MLPClassifier(**QUICK).fit(X, MULTILABEL, X_val=X, y_val=MULTILABEL)
    assert_allclose(model.best_validation_score_, model.score(X, MULTILABEL))
    stopped = MLPClassifier(**QUICK, early_stopping=True).fit(X, MULTILABEL)
    assert len(stopped.validation_scores_) == QUICK["max_iter"]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_targets_that_are_no_classes_are_refused():
    for y, words in [
        (np.column_stack([IRIS, IRIS]), "Multioutput target data is not supported"),
        (np.where(MULTILABEL, 1, -1), r"must hold 0 and 1, got \[-1, 1\]"),
        (X[:, 0], "Unknown label type: continuous"),
        (np.array(["a", None, "b"] * 50, dtype=object), "y contains NaN"),
        (np.array(["a", np.nan, "b"] * 50, dtype=object), "y contains NaN"),
        (pd.Series(["a", None, "b"] * 50, dtype="category"), "y contains NaN"),
        (np.where(IRIS == 1, np.nan, IRIS), "y contains NaN"),
        (np.where(IRIS == 1, np.inf, IRIS), "y contains infinity"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPClassifier(**QUICK).fit(X, y)
    model = MLPClassifier(**QUICK, warm_start=True).fit(X, IRIS)
    with pytest.raises(ValueError, match="single-label"):
        model.fit(X, MULTILABEL)


def test_regression_targets_that_cannot_be():
    for y, words in [
        (np.where(IRIS == 1, np.nan, 1.0), "y contains NaN"),
        (np.where(IRIS == 1, np.inf, 1.0), "y contains infinity"),
        (NAMES[IRIS], "must hold numbers, but it has text that is not numbers: .setosa"),
        (np.ones((150, 2, 2)), "dim 3|shape"),
        (None, "requires y to be passed, but the target y is None"),
        (np.ones(149), "inconsistent numbers of samples"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPRegressor(**QUICK).fit(X, y)


def _but_one(value):
    y = X[:, 0].astype(object)
    y[77] = value
    return y


NO_NUMBERS = {
    "one of many": (_but_one("n.a!"), r"has 149 numbers, and 'n\.a!' \(data row 78\); convert"),
    "empty": (_but_one(""), r"149 numbers, and a blank \(data row 78\)"),
    "date": (_but_one(datetime.date(2020, 1, 1)), r"149 numbers, and '2020-01-01'"),
    "complex": (_but_one(1j), r"149 numbers, and '1j' \(data row 78\)"),
    "too large": (_but_one(10**400), r"149 numbers, and '1000*…' \(data row 78\)"),
    "text nan": ([*X[1:, 0].astype(str), "nan"], r"149 numbers, and 'nan' \(data row 150\)"),
    "commas": ([f"{v},5" for v in IRIS], "150 numbers with a decimal comma, such as '0,5'; conv"),
    "percent": ([f"{v:.1f}%" for v in X[:, 0]], "a sign of currency or percent, such as '5.1%'"),
    "category": (pd.Series(NAMES[IRIS], dtype="category"), "use MLPClassifier if they are"),
    "frame": (pd.DataFrame({"a": X[:, 0], "b": _but_one("?")}), r"but column 'b' has .*'\?'"),
    "missing": (_but_one(None), "y contains NaN"),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_targets_that_are_not_numbers_are_named(kind):
    y, words = NO_NUMBERS[kind]
    with pytest.raises(ValueError, match=words):
        MLPRegressor(**QUICK).fit(X, y)


def test_every_regressor_names_them(tmp_path):
    y = _but_one("n.a!")
    model = MLPRegressor(**QUICK).fit(X, X[:, 0])
    words = r"it has 149 numbers, and 'n\.a!' \(data row 78\)"
    for call in (
        lambda: PackRegressor().fit(X, y),
        lambda: TabMRegressor().fit(X, y),
        lambda: MLPRegressor(**QUICK).partial_fit(X, y),
        lambda: StackedGridSearchCV(MLPRegressor(**QUICK), {"alpha": [0, 1]}).fit(X, y),
        lambda: model.score(X, y),
    ):
        with pytest.raises(ValueError, match=f"y must hold numbers, but {words}"):
            call()
    with pytest.raises(ValueError, match=r"149.*'n\.a!'"):
        compare_activations(X, y, task="regression")
    with pytest.raises(ValueError, match=f"y_val must hold numbers, but {words}"):
        MLPRegressor(**QUICK).fit(X, X[:, 0], X_val=X, y_val=y)
    pytest.importorskip("pyarrow")
    pd.DataFrame(X, columns=list("abcd")).assign(y=y.astype(str)).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=f"the target 'y' must hold numbers, but {words}"):
        MLPRegressor(**QUICK).fit_parquet(tmp_path / "t.parquet", "y")


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int64[pyarrow]"])
def test_integers_beyond_float64_are_refused(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    whole = pd.Series(2**60 + np.arange(150), dtype=dtype)
    for y in (whole, pd.DataFrame({"a": whole, "b": X[:, 0]})):
        with pytest.raises(ValueError, match=r"150.*1152921504606846976"):
            MLPRegressor(**QUICK).fit(X, y)


# ---- sample weights ----------------------------------------


def _equal(a, b):
    assert_allclose(a.loss_curve_, b.loss_curve_, rtol=1e-9)
    for got, expected in zip([*a.coefs_, *a.intercepts_], [*b.coefs_, *b.intercepts_], strict=True):
        assert_allclose(got, expected, rtol=1e-7, atol=1e-10)


def test_rows_of_weight_zero_shape_nothing():
    frame = pd.DataFrame({"a": X[:, 0], "kind": NAMES[IRIS]})
    spoiled = frame.copy()
    spoiled.loc[:4, "a"] = 1e9
    spoiled.loc[:4, "kind"] = "never seen"
    y = NAMES[IRIS].copy()
    y[:5] = "setosa"
    y_spoiled = y.astype(object)
    y_spoiled[:5] = "a class that does not exist"
    weight = np.r_[np.zeros(5), np.ones(145)]
    spoiled_fit = MLPClassifier(**EXACT).fit(spoiled, y_spoiled, sample_weight=weight)
    clean_fit = MLPClassifier(**EXACT).fit(frame[5:], y[5:].astype(object))
    assert_array_equal(spoiled_fit.classes_, clean_fit.classes_)
    assert_allclose(spoiled_fit.predict_proba(frame), clean_fit.predict_proba(frame), rtol=1e-9)


def test_weight_scale_affects_only_the_penalty():
    parameters = {**EXACT, "alpha": 0.0}
    once = MLPRegressor(**parameters).fit(X, IRIS)
    _equal(MLPRegressor(**parameters).fit(X, IRIS, sample_weight=np.full(150, 7.0)), once)


def test_the_validation_score_is_weighted():
    weight = np.where(IRIS == 2, 10.0, 1.0)
    model = MLPClassifier(**QUICK, early_stopping=True, validation_fraction=0.4)
    seen = []

    class Spy(MLPClassifier):
        def _make_job(self, prepared, *mode):
            seen.append(prepared)
            return super()._make_job(prepared, *mode)

    model = Spy(**model.get_params()).fit(X, IRIS, sample_weight=weight)
    (prepared,) = seen
    ((_, val),) = prepared.splits
    dense, y = prepared.rows.dense[val], prepared.rows.y[val].numpy()
    right = model.network()(dense[None])[0].argmax(1).numpy() == y
    expected = np.average(right, weights=weight[IRIS == 2][:1].item() ** (y == 2))
    assert_allclose(model.best_validation_score_, expected, rtol=1e-6)


# ---- class weights ----------------------------------------


@pytest.mark.parametrize("labels", [IRIS, NAMES[IRIS], IRIS == 1])
def test_class_weights_are_sample_weights(labels):
    y = np.asarray(labels)[20:]  # unbalanced
    rows, classes = X[20:], np.unique(labels)
    balanced = compute_class_weight("balanced", classes=classes, y=y)
    for class_weight, values in [
        ("balanced", balanced),
        (dict(zip(classes.tolist(), (1.0, 5.0, 2.0), strict=False)), (1.0, 5.0, 2.0)),
    ]:
        by_row = np.asarray(values)[np.searchsorted(classes, y)]
        weighted = MLPClassifier(**EXACT, class_weight=class_weight).fit(rows, y)
        assert weighted.loss_ != MLPClassifier(**EXACT).fit(rows, y).loss_
        # class weights act on the loss, not on the encoding
        plain = {**EXACT, "numeric_encoding": "none"}
        a = MLPClassifier(**plain, class_weight=class_weight).fit(rows, y)
        b = MLPClassifier(**plain).fit(rows, y, sample_weight=by_row)
        _equal(a, b)
        # both together are their product
        extra = np.random.default_rng(0).uniform(0.5, 2, len(y))
        a = MLPClassifier(**plain, class_weight=dict.fromkeys(classes.tolist(), 2.0))
        b = MLPClassifier(**plain).fit(rows, y, sample_weight=2 * extra)
        _equal(a.fit(rows, y, sample_weight=extra), b)


UNEVEN, FEW = make_classification(260, 4, weights=[0.8], flip_y=0.2, random_state=0)
AS_SAMPLE_WEIGHTS = {**EXACT, "numeric_encoding": "none"}
SETS_ROWS_ASIDE = {
    "loss": MLPClassifier(**AS_SAMPLE_WEIGHTS, early_stopping=True, early_stopping_scoring="loss"),
    "accuracy": MLPClassifier(
        **AS_SAMPLE_WEIGHTS, early_stopping=True, early_stopping_scoring=None
    ),
    "scorer": MLPClassifier(
        **AS_SAMPLE_WEIGHTS, early_stopping=True, early_stopping_scoring="balanced_accuracy"
    ),
    "two networks": MLPClassifier(
        **AS_SAMPLE_WEIGHTS, n_members="auto", early_stopping="auto", calibration="temperature"
    ),
    "folds": MLPClassifier(**AS_SAMPLE_WEIGHTS, n_members=3, bagging="cv"),
    "TabM": TabMClassifier(
        **AS_SAMPLE_WEIGHTS, n_heads=2, numeric_embedding="none", early_stopping=True
    ),
    "pack": PackClassifier(
        n_members=2,
        max_iter=4,
        random_state=0,
        member_params={"hidden_layer_sizes": (8,), "numeric_encoding": "none"},
    ),
}


@pytest.mark.parametrize("labels", ["single", "multi-label"])
def test_balanced_weights_count_sample_weights(labels):
    y = FEW if labels == "single" else np.stack([FEW, UNEVEN[:, 0] > 1], 1).astype(int)
    repeats = np.random.default_rng(0).integers(1, 4, len(y)) + 3 * FEW
    model = MLPClassifier(**EXACT, class_weight="balanced")
    weight = model._prepare(UNEVEN, y, repeats).rows.weight.numpy()
    repeated = model._prepare(*(np.repeat(rows, repeats, axis=0) for rows in (UNEVEN, y)))
    first = np.append(0, repeats.cumsum()[:-1])
    assert_allclose(weight, repeats * repeated.rows.weight.numpy()[first], rtol=1e-6)
    if labels == "single":
        assert_allclose(weight[FEW == 1].sum(), weight[FEW == 0].sum(), rtol=1e-5)


@pytest.mark.parametrize("name", SETS_ROWS_ASIDE)
def test_class_weights_count_in_validation(name):
    weighted = clone(SETS_ROWS_ASIDE[name]).set_params(class_weight={0: 1.0, 1: 6.0})
    weighted.fit(UNEVEN, FEW)
    reference = clone(SETS_ROWS_ASIDE[name]).fit(UNEVEN, FEW, np.where(FEW == 1, 6.0, 1.0))
    assert_array_equal(weighted.predict_proba(UNEVEN), reference.predict_proba(UNEVEN))
    assert_array_equal(weighted.history_, reference.history_)


@pytest.mark.parametrize("labels", ["single", "multi-label"])
def test_validation_rows_use_training_class_weights(labels):
    n_train = 160
    y = FEW if labels == "single" else np.stack([FEW, UNEVEN[:, 0] > 1], 1).astype(int)
    model = MLPClassifier(**EXACT, class_weight="balanced", early_stopping_scoring="loss")
    model.fit(UNEVEN[:n_train], y[:n_train], X_val=UNEVEN[n_train:], y_val=y[n_train:])
    train, val = (part.reshape(len(part), -1) for part in (y[:n_train], y[n_train:]))
    weight = np.ones(len(val))
    loss = np.zeros(len(val))
    p = model.predict_proba(UNEVEN[n_train:])
    for j in range(train.shape[1]):
        share = train[:, j].mean()
        weight *= np.where(val[:, j] == 1, 0.5 / share, 0.5 / (1 - share))
        p_j = p[:, -1] if labels == "single" else p[:, j]
        loss -= np.log(np.where(val[:, j] == 1, p_j, 1 - p_j))
    expected = -np.average(loss, weights=weight)
    assert_allclose(model.best_validation_score_, expected, rtol=1e-6)


def test_class_without_training_rows_has_weight_1():
    y = np.where(np.arange(260) >= 250, 2, FEW)
    model = MLPClassifier(
        **EXACT,
        class_weight="balanced",
        early_stopping=True,
        validation_split=np.arange(260) >= 200,
    )
    prepared = model._prepare(UNEVEN, y)
    weight = prepared.rows.weight.numpy()
    shares = np.bincount(FEW[:200]) / 200
    assert_allclose(weight[250:], 1.0)
    assert_allclose(weight[:250], 0.5 / shares[FEW[:250]])


def test_validation_rows_without_weight_are_refused():
    model = MLPClassifier(
        **EXACT, class_weight={0: 1.0, 1: 0.0}, early_stopping=True, validation_split=FEW == 1
    )
    with pytest.raises(ValueError, match="class_weight"):
        model.fit(UNEVEN, FEW)
    with pytest.raises(ValueError, match="class_weight"):
        clone(model).set_params(validation_split=None).fit(
            UNEVEN, FEW, X_val=UNEVEN[FEW == 1], y_val=FEW[FEW == 1]
        )


def test_class_weights_of_rows_that_lack_a_class():
    plain = {**EXACT, "numeric_encoding": "none"}
    for class_weight in ({0: 5.0}, {0: 5.0, 1: 2.0, 2: 0.5}):
        model = MLPClassifier(**plain, class_weight=class_weight)
        model.partial_fit(X[50:], IRIS[50:], classes=[0, 1, 2]).partial_fit(X[:50], IRIS[:50])
        by_row = np.array([class_weight.get(c, 1.0) for c in IRIS])
        reference = MLPClassifier(**plain)
        reference.partial_fit(X[50:], IRIS[50:], by_row[50:], classes=[0, 1, 2])
        reference.partial_fit(X[:50], IRIS[:50], by_row[:50])
        _equal(model, reference)


def test_class_weights_of_labels():
    weights = [{0: 1, 1: 3}, {0: 1, 1: 1}, {0: 2, 1: 1}]
    model = MLPClassifier(**QUICK, class_weight=weights).fit(X, MULTILABEL)
    assert (model.predict(X) == MULTILABEL).mean() > 0.85
    for class_weight, words in [
        ("unbalanced", "class_weight"),
        ({"no such class": 2.0}, "class"),
        ([{0: 1.0}], "class_weight"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPClassifier(**QUICK, class_weight=class_weight).fit(X, IRIS)


# ---- scores by their names, of labels of every kind ------------------------------------------

STOPS = {**QUICK, "max_iter": 3, "early_stopping": True, "n_members": 1}
POSITIVES = UNEVEN[:, 0] > np.quantile(UNEVEN[:, 0], 0.8)
TWO_CLASSES = {
    "numbers": (POSITIVES.astype(int), 1),
    "booleans": (POSITIVES, True),
    "rarer first": (np.where(POSITIVES, "churned", "stayed"), "churned"),
    "rarer last": (np.where(POSITIVES, "yes", "no"), "yes"),
    "other numbers": (np.where(POSITIVES, 3, 7), 3),
    "frequent 1": (np.where(POSITIVES, 0, 1), 1),
}
OF_POSITIVE_CLASS = {
    "f1": f1_score,
    "precision": precision_score,
    "recall": recall_score,
    "neg_brier_score": brier_score_loss,
    "jaccard": jaccard_score,
    "average_precision": average_precision_score,
}


@pytest.mark.parametrize(
    ("name", "scoring"),
    [(name, scoring) for name in TWO_CLASSES for scoring in ("f1", "average_precision")]
    + [("rarer first", scoring) for scoring in [*OF_POSITIVE_CLASS][1:-1]],
)
def test_scores_are_those_of_the_rarer_class(name, scoring):
    y, positive = TWO_CLASSES[name]
    model = MLPClassifier(**STOPS, early_stopping_scoring=scoring).fit(UNEVEN, y)
    val = ~np.isnan(model.oof_decision_function_[:, 0])
    is_positive = y[val] == positive
    place = model.classes_.tolist().index(positive)
    p = model.predict_proba(UNEVEN[val])[:, place]
    if scoring in ("average_precision", "neg_brier_score"):
        expected = OF_POSITIVE_CLASS[scoring](is_positive, p)
    else:
        predicted = model.predict(UNEVEN[val]) == positive
        expected = OF_POSITIVE_CLASS[scoring](is_positive, predicted, zero_division=0)
    sign = -1 if scoring.startswith("neg_") else 1
    assert_allclose(model.best_validation_score_, sign * expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("ROC AUC", "roc_auc"), ("log_loss", "neg_log_loss"), ("AP", "average_precision")],
)
def test_metrics_are_known_by_each_of_their_names(spelling, name):
    y = TWO_CLASSES["rarer first"][0]
    scores = [
        MLPClassifier(**STOPS, early_stopping_scoring=scoring).fit(UNEVEN, y).validation_scores_
        for scoring in (spelling, name)
    ]
    assert_allclose(scores[0], scores[1], rtol=1e-5)
    few = {"n_members": 1, "max_iter": 1, "max_ensemble_size": 2}
    few["member_params"] = {"hidden_layer_sizes": (8,), "numeric_embedding": "none"}
    pack = PackClassifier(**few, random_state=0, boosting=False)
    packs = [clone(pack).set_params(scoring=scoring).fit(UNEVEN, y) for scoring in (spelling, name)]
    assert_array_equal(packs[0].predict_proba(UNEVEN), packs[1].predict_proba(UNEVEN))


def test_regressors_know_metrics_by_each_of_their_names():
    for spelling, name in (
        ("rmse", "neg_root_mean_squared_error"),
        ("MAE", "neg_mean_absolute_error"),
    ):
        scores = [
            MLPRegressor(**STOPS, early_stopping_scoring=scoring)
            .fit(UNEVEN, UNEVEN[:, 0])
            .validation_scores_
            for scoring in (spelling, name)
        ]
        assert_array_equal(*scores)


@pytest.mark.parametrize("scoring", ["roc_auc", "average_precision", "f1", "log_loss"])
def test_validation_rows_may_lack_one_of_many_classes(scoring):
    y = np.where(np.arange(260) < 40, "rare", TWO_CLASSES["rarer first"][0])
    model = MLPClassifier(
        **STOPS, early_stopping_scoring=scoring, validation_split=np.arange(260) >= 150
    )
    assert np.isfinite(model.fit(UNEVEN, y).validation_scores_).all()


@pytest.mark.parametrize(
    ("model", "scoring"),
    [
        (MLPClassifier(early_stopping_scoring="logloss"), "early_stopping_scoring='logloss'"),
        (MLPClassifier(early_stopping_scoring="rmse"), "early_stopping_scoring='rmse'"),
        (MLPRegressor(early_stopping_scoring="f1"), "early_stopping_scoring='f1'"),
        (PackClassifier(scoring="logloss"), "scoring='logloss'"),
        (PackRegressor(scoring="roc_auc"), "scoring='roc_auc'"),
    ],
)
def test_unknown_scores_are_refused_by_name(model, scoring):
    with pytest.raises(ValueError, match=scoring):
        model.fit(UNEVEN, FEW)


# ---- a classifier that answers one class to every row says so ------------------------------------


RNG = np.random.default_rng(0)


ROWS = RNG.normal(size=(400, 3))


YES = np.where(ROWS[:, 0] > 0.6, "yes", "no")


LEARNS = {
    "hidden_layer_sizes": (8,),
    "activation": "relu",
    "alpha": 0.0,
    "learning_rate_init": 0.03,
    "dropout": 0.0,
    "batch_size": 100,
    "max_iter": 20,
    "n_iter_no_change": INF,
    "random_state": 0,
}
STALLS = {**LEARNS, "alpha": 1e4}  # which leaves nothing but the last bias


def told(estimator, ROWS, y, **more):
    """What fit says of one class."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(ROWS, y, **more)
    assert all(issubclass(w.category, ConvergenceWarning) for w in caught)
    found = [w for w in caught if "predicts class" in str(w.message)]
    assert all(w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 60},
        {"early_stopping": True, "early_stopping_scoring": "loss"},
        {"early_stopping": True, "early_stopping_scoring": "roc_auc"},
        {"n_members": 2, "bagging": "cv", "early_stopping_scoring": "loss"},
        {"precision": "float64", "label_smoothing": 0.1},
        {"activation": "elu", "n_members": 2},
    ],
    ids=lambda more: ", ".join(f"{n}={v}" for n, v in more.items()) or "plain",
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_network_without_progress_warns_once(more, n_classes):
    y = YES if n_classes == 2 else np.where(ROWS[:, 1] > 1.2, "perhaps", YES)
    if n_classes == 3 and more.get("early_stopping_scoring") == "roc_auc":
        more = {**more, "early_stopping_scoring": "roc_auc_ovr"}
    assert not told(MLPClassifier(**LEARNS | more), ROWS, y)
    model = MLPClassifier(**STALLS | more)
    (message,) = told(model, ROWS, y)
    assert set(model.predict(ROWS)) == {"no"}
    rows = "validation" if more.get("early_stopping") or "bagging" in more else "training"
    n_rows = 40 if more.get("early_stopping") else 400
    assert f"predicts class 'no' for all {n_rows} {rows} rows" in message
    share, loss, entropy = (
        float(number)
        for number in re.search(
            r"([\d.]+)% .* loss ([\d.]+) .* frequencies, ([\d.]+), ", message
        ).groups()
    )
    assert abs(share / 100 - (y == "no").mean()) < 0.02
    assert 0.95 * entropy < loss
    assert "hardly differ" in message or "AUC 0." in message
    for way_out in ("learning_rate_init other than 0.03", "max_iter="):
        assert way_out in message
    by_other = rows == "validation" and more.get("early_stopping_scoring") != "loss"
    assert ("early_stopping_scoring='loss'" in message) == by_other


def test_learned_rare_class_does_not_warn():
    n = 2000
    column = np.arange(n) % 5 == 0
    rare = column & (RNG.uniform(size=n) < 0.3)  # 6 %, of one row in five: none is answered
    model = MLPClassifier(**LEARNS)
    assert not told(model, column[:, None].astype(float), rare)
    assert not model.predict([[0.0], [1.0]]).any()
    assert model.predict_proba([[1.0]])[0, 1] > 0.2
    assert told(MLPClassifier(**STALLS), column[:, None].astype(float), rare)


def test_a_model_that_ranks_rows_is_no_stall():
    rare = RNG.uniform(size=400) < 1 / (1 + np.exp(4 - 2 * ROWS[:, 0]))  # 6 %
    # label smoothing keeps all probabilities above 0.15
    smoothed = {**LEARNS, "label_smoothing": 0.3, "max_iter": 40}
    model = MLPClassifier(**smoothed)
    assert not told(model, ROWS, rare)
    assert not model.predict(ROWS).any()
    p = model.predict_proba(ROWS)[:, 1]
    assert roc_auc_score(rare, p) > 0.8
    entropy = -np.log(np.where(rare, rare.mean(), 1 - rare.mean())).mean()
    assert -np.log(np.where(rare, p, 1 - p)).mean() > 0.95 * entropy


def test_uninformative_data_does_not_warn_of_stall():
    assert not told(MLPClassifier(**STALLS), ROWS, np.full(400, "no"))
    assert not told(MLPClassifier(**STALLS, class_weight={"yes": 0.0}), ROWS, YES)
    assert not told(MLPClassifier(**STALLS), ROWS, np.stack([YES == "yes", ROWS[:, 1] > 2], 1) * 1)
    assert not told(MLPClassifier(**STALLS), np.zeros((400, 1)), YES)
    assert not told(
        MLPClassifier(**STALLS), ROWS, YES, X_val=ROWS[YES == "no"], y_val=YES[YES == "no"]
    )


def test_short_and_continued_fits_do_not_warn():
    assert not told(MLPClassifier(**STALLS | {"max_iter": 19}), ROWS, YES)
    model = MLPClassifier(**STALLS, warm_start=True)
    for _ in range(2):
        assert not told(model, ROWS, YES)  # but of max_iter
    model = MLPClassifier(**STALLS)
    for _ in range(25):
        model.partial_fit(ROWS, YES, classes=["no", "yes"])
    stops = MLPClassifier(**STALLS | {"n_iter_no_change": 2, "tol": 1.0, "warm_start": True})
    assert told(stops, ROWS, YES)


def test_stacked_fits_warn_once_an_estimator():
    tasks = [
        FitTask(MLPClassifier(**settings | {"random_state": seed}), ROWS, YES, data_key=0)
        for settings in (LEARNS, STALLS)
        for seed in range(2)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_stacked(tasks)
        assert len(caught) == 2
        StackedGridSearchCV(MLPClassifier(**LEARNS), {"alpha": [0.0, 1e4]}, cv=3).fit(ROWS, YES)
        assert len(caught) == 2 + 3  # a fold each
    assert all("predicts class 'no'" in str(w.message) for w in caught)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (lambda i: f"{i},5", r"60.*'0,5'"),
        (lambda i: f"${i}", "numbers with a sign of currency or percent, such as '\\$0'"),
        (lambda i: f"P{i}", r"60.*60"),
    ],
)
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_classes_that_look_like_numbers_warn(form, says):
    X = np.random.default_rng(0).normal(size=(60, 2))
    clf = MLPClassifier(max_iter=1, hidden_layer_sizes=(2,), n_iter_no_change=np.inf)
    with pytest.warns(UserWarning, match=f"takes each of 60 different texts for a class, .*{says}"):
        clf.fit(X, [form(i) for i in range(60)])
