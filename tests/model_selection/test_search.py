"""StackedGridSearchCV finds what GridSearchCV finds, fails where it fails, leaves it the rest."""

import functools
import pickle
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer, mean_absolute_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    RepeatedStratifiedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from combutab import CombU, MLPClassifier, MLPRegressor, StackedGridSearchCV, paper_recipe
from combutab.training import TimeLimit

pytestmark = pytest.mark.usefixtures("paper_defaults")


INF = float("inf")


X, Y = load_iris(return_X_y=True)


X_REG, Y_REG = load_diabetes(return_X_y=True)


NAMES = np.array(["setosa", "versicolor", "virginica"])


QUICK = {
    "hidden_layer_sizes": (8,),
    "max_iter": 4,
    "learning_rate_init": 0.02,
    "n_iter_no_change": INF,
    "random_state": 0,
}


CLASSIFIER = MLPClassifier(**paper_recipe("classification", **QUICK))


REGRESSOR = MLPRegressor(**paper_recipe("regression", **QUICK))


FRAME = pd.DataFrame(X, columns=list("abcd")).assign(
    kind=np.where(X[:, 0] > 5.8, "large", "small"), id=[f"n{i % 12}" for i in range(150)]
)


TIMES = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


def _agree(ours, theirs):
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key, expected in theirs.cv_results_.items():
        got = ours.cv_results_[key]
        if key in TIMES:
            assert got.shape == expected.shape
            assert (got >= 0).all()
        elif "score" in key and "rank" not in key:
            assert_allclose(got, expected, rtol=1e-6, atol=1e-12, err_msg=key)
            assert got.dtype == expected.dtype
        elif key.startswith("param"):
            assert repr(got) == repr(expected)
        else:
            assert_array_equal(got, expected, err_msg=key)
            assert got.dtype == expected.dtype
    attributes = {n for n in vars(theirs) if n.endswith("_") and not n.startswith("_")}
    assert {n for n in vars(ours) if n.endswith("_") and not n.startswith("_")} == attributes
    assert ours.n_splits_ == theirs.n_splits_
    if hasattr(theirs, "best_params_"):
        assert repr(ours.best_params_) == repr(theirs.best_params_)
        assert ours.best_index_ == theirs.best_index_
    if hasattr(theirs, "best_score_"):
        assert_allclose(ours.best_score_, theirs.best_score_, rtol=1e-6)


def _both(estimator, grid, X, y, fit=None, **options):
    options = {"cv": 2, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        searches = [
            cls(clone(estimator), grid, **options).fit(X, y, **(fit or {}))
            for cls in (StackedGridSearchCV, GridSearchCV)
        ]
    _agree(*searches)
    return searches


# ---- the same scores ----------------------------------------
# Each parameter has its turn, some beside those that they act with: a pair a grid, not all of them.


GRIDS = {
    "activation, alpha": {"activation": ["relu", "combu", "tanh", "prelu"], "alpha": [0.0, 1.0]},
    "dropout, seed": {"dropout": [0.0, 0.5], "random_state": [0, 1]},
    "shapes": [
        {"hidden_layer_sizes": [(8,), (8, 8), 5, "auto", ()]},
        {"hidden_layer_sizes": [(8, 8)], "activation": ["la-silu"]},
    ],
    "encoding": [
        {"numeric_encoding": ["standard", "quantile", "robust", "none"]},
        {"numeric_encoding": ["quantile"], "max_iter": [3]},
    ],
    "class weights": [{"class_weight": [None, "balanced"]}, {"class_weight": [{0: 1, 1: 5, 2: 1}]}],
    "early stopping": {"early_stopping": [False, True], "random_state": [0, 1]},
    "validation rows": {"early_stopping": [True], "validation_fraction": [0.1, 0.4]},
    "columns": {"categorical_features": [None, [0], [1, 2]], "max_onehot": [2, 32]},
    "precision": {"precision": ["float32", "float64"], "warm_start": [False, True]},
    "members": {"n_members": [1, 3], "random_state": [0, 7]},
    "batches, solvers": [
        {"solver": ["adam", "adamw", "sgd", "lbfgs"]},
        {"solver": ["adam"], "batch_size": [16, 60]},
    ],
    "norms": {"normalization": ["none", "batch", "layer"], "activation": ["relu", "combu-random"]},
    "clipping, rate": [
        {"max_grad_norm": [None, 0.1], "learning_rate": ["constant", "cosine"]},
        {"learning_rate_init": [0.001, 0.05]},
    ],
    "callables": {
        "activation": [
            "relu",
            functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5}),
            functools.partial(CombU, ratios={"relu": 0.25, "tanh": 0.75}),
            CombU,
        ]
    },
    "stops": {"n_iter_no_change": [1, INF], "tol": [0.01, 0.2], "max_iter": [25]},
    "unlike dicts": [
        {"activation": ["relu"], "alpha": [0.0]},
        {"solver": ["sgd"], "learning_rate_init": [0.1, 0.5], "label_smoothing": [0.1]},
        {},
    ],
    "empty": {},
}


@pytest.mark.parametrize("grid", GRIDS)
def test_scores_are_those_of_grid_search(grid):
    stacked, plain = _both(MLPClassifier(**QUICK, precision="float64"), GRIDS[grid], X, Y)
    assert_allclose(stacked.predict_proba(X), plain.predict_proba(X), rtol=1e-6, atol=1e-9)
    assert stacked.score(X, Y) == plain.score(X, Y)


def test_scores_of_a_regressor_with_every_loss():
    losses = ["squared_error", "absolute_error", "huber", "poisson", "quantile", "gaussian_nll"]
    grid = [{"loss": losses}, {"loss": ["quantile"], "alpha": [1.0], "scale_target": [False]}]
    estimator = clone(REGRESSOR).set_params(precision="float64", learning_rate_init=0.001)
    _both(estimator, grid, X_REG, Y_REG)


def test_candidates_do_train_as_stacks(monkeypatch):
    sizes = []
    original = sys.modules["combutab.estimators._together"].train_jobs

    def spy(jobs, *args, **keywords):
        sizes.append(len(jobs))
        return original(jobs, *args, **keywords)

    def refuse(*args, **keywords):
        raise AssertionError("fitted one at a time")

    monkeypatch.setattr("combutab.estimators._together.train_jobs", spy)
    monkeypatch.setattr("combutab.estimators._base.train_job", refuse)
    monkeypatch.setattr("combutab.estimators._base.train_shared", refuse)
    grid = {"activation": ["relu", "combu"], "alpha": [0.0, 0.1], "random_state": [0, 1]}
    StackedGridSearchCV(CLASSIFIER, grid, cv=5, refit=False).fit(X, Y)
    assert sizes == [2 * 2 * 2 * 5]


def test_long_masks_are_told_apart():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, size=(60, 1500)).astype(float)
    masks = np.zeros((2, 1500), dtype=bool)
    masks[1, 700] = True  # in the middle, which numpy's repr leaves out
    _both(
        MLPClassifier(**{**QUICK, "max_iter": 2}, precision="float64"),
        {"categorical_features": list(masks)},
        rows,
        rng.integers(0, 2, 60),
        cv=2,
    )


# ---- options of the search ----------------------------------------


SMALL_GRID = {"activation": ["relu", "combu"]}


def test_train_scores_and_several_metrics():
    for options in (
        {"return_train_score": True},
        {"scoring": ["accuracy", "neg_log_loss"], "refit": "neg_log_loss"},
        {"scoring": {"a": "accuracy", "b": "balanced_accuracy"}, "refit": False},
        {"scoring": "neg_log_loss", "refit": False},
        {"refit": lambda results: int(results["mean_test_score"].argmin())},
        {"scoring": lambda estimator, X, y: -len(estimator.coefs_) - estimator.loss_},
    ):
        stacked, _ = _both(MLPClassifier(**QUICK, precision="float64"), SMALL_GRID, X, Y, **options)
        refitted = options.get("refit", True) is not False
        assert hasattr(stacked, "best_estimator_") is refitted
        assert hasattr(stacked, "predict") is refitted
    scorer = make_scorer(mean_absolute_error, greater_is_better=False)
    _both(
        clone(REGRESSOR).set_params(precision="float64"), SMALL_GRID, X_REG, Y_REG, scoring=scorer
    )


NAMED_LABELS = np.where(Y == 1, "rare", "usual")


@pytest.mark.parametrize(
    ("scoring", "labels", "expected"),
    [
        ("log loss", Y, "neg_log_loss"),
        ("f1", Y, "f1_macro"),
        ("ROC AUC", Y, "roc_auc_ovr"),
        ("f1", NAMED_LABELS, make_scorer(f1_score, pos_label="rare")),
    ],
)
def test_search_accepts_names_of_metrics(scoring, labels, expected):
    grid = {"activation": ["relu"]}
    estimator = MLPClassifier(**QUICK, precision="float64")
    reference = GridSearchCV(estimator, grid, cv=2, scoring=expected, refit=False).fit(X, labels)
    search = StackedGridSearchCV(estimator, grid, cv=2, scoring=scoring, refit=False)
    assert search.fit(X, labels).scoring == scoring
    score = reference.cv_results_["mean_test_score"]
    assert_allclose(search.cv_results_["mean_test_score"], score)
    search.set_params(scoring={"m": scoring}).fit(X, labels)
    assert_allclose(search.cv_results_["mean_test_m"], score)
    with pytest.raises(ValueError, match="acuracy"):
        StackedGridSearchCV(CLASSIFIER, grid, scoring="acuracy").fit(X, labels)


def test_any_splitter():
    groups = np.arange(150) % 6
    half = np.arange(150) < 75
    shuffled = np.random.default_rng(0).permutation(150)
    iterable = [(shuffled[:100], shuffled[100:]), (shuffled[50:], shuffled[:50])]
    for cv, fit in [
        (2, {}),
        (KFold(3, shuffle=True, random_state=0), {}),
        (RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0), {}),
        (ShuffleSplit(2, test_size=0.3, random_state=1), {}),
        (PredefinedSplit(np.where(half, -1, np.arange(150) % 2)), {}),
        (iterable, {}),
        (GroupKFold(3), {"groups": groups}),
        (LeaveOneGroupOut(), {"groups": groups}),
    ]:
        estimator = MLPClassifier(**QUICK, precision="float64")
        _both(estimator, {"alpha": [0.5]}, X, Y, cv=cv, fit=fit)
    generator = StackedGridSearchCV(CLASSIFIER, {"alpha": [0.0]}, cv=iter(iterable)).fit(X, Y)
    assert generator.n_splits_ == 2


def test_sample_weights_are_cut_by_fold():
    weight = np.random.default_rng(0).uniform(0, 3, 150)
    weight[::7] = 0
    estimator = MLPClassifier(**QUICK, precision="float64")
    _both(estimator, SMALL_GRID, X, Y, fit={"sample_weight": weight})
    unweighted = StackedGridSearchCV(estimator, SMALL_GRID, cv=2).fit(X, Y)
    weighted = StackedGridSearchCV(estimator, SMALL_GRID, cv=2).fit(X, Y, sample_weight=weight)
    assert weighted.best_estimator_.loss_ != unweighted.best_estimator_.loss_


def test_tables_and_labels_of_every_kind():
    estimator = MLPClassifier(**QUICK, precision="float64", max_onehot=10)
    _both(estimator, SMALL_GRID, FRAME, NAMES[Y])
    _both(estimator, SMALL_GRID, FRAME, pd.Series(NAMES[Y], index=np.arange(150)[::-1] * 3))
    _both(estimator, SMALL_GRID, X.tolist(), Y.tolist())
    _both(estimator, SMALL_GRID, X, np.eye(3, dtype=int)[Y])
    targets = np.column_stack([Y_REG, -Y_REG])
    _both(clone(REGRESSOR).set_params(precision="float64"), SMALL_GRID, X_REG, targets)


def test_stacks_trained_at_the_same_time():
    estimator = MLPClassifier(**QUICK, precision="float64")
    grid = {"hidden_layer_sizes": [(8,), (6, 6)], "alpha": [0.0, 1.0]}
    alone, parallel = (
        StackedGridSearchCV(estimator, grid, cv=2, n_jobs=n).fit(FRAME, Y) for n in (None, 2)
    )
    _agree(parallel, alone)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_generators_as_seeds(make):
    estimator = MLPClassifier(**{**QUICK, "random_state": make(3)}, precision="float64")
    # many of one kind: no two may be taken for one another, though each draws its own split
    _both(estimator, {"early_stopping": [True], "alpha": [0.0, 0.1, 1.0]}, X, Y)
    _both(estimator, {"alpha": [0.0, 1.0], "early_stopping": [False, True]}, X, Y)


def test_candidates_without_seed_differ():
    search = StackedGridSearchCV(
        clone(REGRESSOR).set_params(random_state=None), {"tol": [1e-4, 1e-5]}, cv=2
    ).fit(X_REG, Y_REG)
    first, second = search.cv_results_["mean_test_score"]
    assert first != second


# ---- no leakage ----------------------------------------


def test_each_folds_encoding_knows_its_training_rows_alone():
    seen = {}

    def spy(estimator, rows, y):
        seen[tuple(np.round(y[:3], 6))] = (
            estimator.encoder_.numeric_scaler_.centre[0],
            estimator.target_.shift[0],
        )
        return 0.0

    splits = list(KFold(3).split(X_REG))
    StackedGridSearchCV(REGRESSOR, {"alpha": [0.0, 1.0]}, cv=splits, scoring=spy).fit(X_REG, Y_REG)
    assert len(seen) == 3
    for train, test in splits:
        centre, mean = seen[tuple(np.round(Y_REG[test][:3], 6))]
        assert_allclose(centre, X_REG[train, 0].mean(), rtol=1e-6)
        assert_allclose(mean, Y_REG[train].mean(), rtol=1e-9)


# ---- as an estimator ----------------------------------------


def test_best_estimator_equals_a_single_fit():
    grid = {
        "activation": ["relu", "combu", "tanh", "prelu"],
        "alpha": [0.0, 1.0],
        "learning_rate_init": [0.001, 0.1],
    }
    search = StackedGridSearchCV(CLASSIFIER, grid, cv=3).fit(FRAME, Y)
    alone = clone(CLASSIFIER).set_params(**search.best_params_).fit(FRAME, Y)
    assert_array_equal(search.best_estimator_.predict_proba(FRAME), alone.predict_proba(FRAME))
    assert search.classes_.tolist() == [0, 1, 2]
    assert search.n_features_in_ == 6
    assert search.feature_names_in_.tolist() == list(FRAME.columns)
    assert search.refit_time_ > 0
    best = search.cv_results_["mean_test_score"].max()
    assert search.best_score_ == best > 0.75
    again = pickle.loads(pickle.dumps(search))
    assert_array_equal(again.predict(FRAME), search.predict(FRAME))


def test_unconverged_fits_share_one_warning():
    plain = {"early_stopping": False, "learning_rate": "constant"}
    net = MLPRegressor(hidden_layer_sizes=(4,), max_iter=6, n_iter_no_change=3, **plain)
    grid = {"alpha": [0.0, 1.0], "tol": [1e-4, 1e9], "random_state": [0]}
    search = StackedGridSearchCV(net, grid, cv=2, refit=False)
    with pytest.warns(
        ConvergenceWarning,
        match=r"converged yet. \(4 of 8 fits: alpha=0.0, tol=0.0001 \(2 of 2\); "
        r"alpha=1.0, tol=0.0001 \(2 of 2\)\)$",
    ) as caught:
        search.fit(X, X[:, 0])
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_unconverged_refit_is_named():
    X, y = load_iris(return_X_y=True)
    net = MLPClassifier((4,), max_iter=2, n_members=2, random_state=0, early_stopping=False)
    search = StackedGridSearchCV(net, {"alpha": [0.0]}, cv=2)
    with pytest.warns(ConvergenceWarning) as told:
        search.fit(X, y)
    fits, refit = (str(each.message) for each in told)
    assert "(2 of 2 fits)" in fits
    assert refit.endswith("(2 of 2 members: 0, 1) (the refit to all rows, with {'alpha': 0.0})")


# ---- searches in which fits fail, and what is left to GridSearchCV -------------------------------


def _with_failures(estimator, grid, error_score=np.nan, X=X, y=Y):
    results = []
    for cls in (StackedGridSearchCV, GridSearchCV):
        search = cls(estimator, grid, cv=2, error_score=error_score, refit=False)
        with pytest.warns() as caught:
            results.append(search.fit(X, y))
        results[-1].words = [w for w in caught if issubclass(w.category, FitFailedWarning)]
    assert_allclose(
        results[0].cv_results_["mean_test_score"],
        results[1].cv_results_["mean_test_score"],
        rtol=1e-6,
    )
    assert len(results[0].words) == len(results[1].words) == 1
    return results[0]


BAD = {
    "diverges": {"solver": ["sgd"], "learning_rate_init": [0.01, 1e300]},
    "unknown activation": {"activation": ["relu", "rleu"]},
    "unknown activation first": {"activation": ["rleu", "relu"]},
    "wrong value": {"alpha": [-1.0, 0.0]},
    "wrong value last": {"alpha": [0.0, -1.0]},
    "shape that cannot be": {"normalization": ["none", "group"], "hidden_layer_sizes": [(10,)]},
    "no validation rows": {"early_stopping": [True], "validation_fraction": [0.0, 0.2]},
    "wrong columns": {"categorical_features": [None, [99]]},
}


@pytest.mark.parametrize("kind", BAD)
def test_failing_candidate_gets_error_score(kind):
    estimator = MLPRegressor(**QUICK, precision="float64")
    error_score = -7.0 if kind in ("diverges", "wrong value") else np.nan
    search = _with_failures(estimator, BAD[kind], error_score, X_REG, Y_REG)
    scores = search.cv_results_["mean_test_score"]
    failed = np.isnan(scores) if np.isnan(error_score) else scores == error_score
    assert failed.sum() == 1
    with pytest.raises((ValueError, TypeError)):
        StackedGridSearchCV(estimator, BAD[kind], cv=2, error_score="raise").fit(X_REG, Y_REG)


class _Breaks(sklearn.base.BaseEstimator):
    """An activation that fails in its forward pass, which no check can foresee."""

    def __new__(cls, width):
        import torch

        class Module(torch.nn.Module):
            def forward(self, x):
                raise RuntimeError("this activation breaks")

        return Module()


def test_broken_activation_fails_one_candidate():
    search = _with_failures(
        MLPClassifier(**QUICK, precision="float64"), {"activation": ["relu", _Breaks, "tanh"]}
    )
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True, False]
    assert "this activation breaks" in str(search.words[0].message)


def test_a_search_in_which_all_fail_says_so():
    with pytest.raises(ValueError, match=r"(?s)4 fits.*'x'"):
        StackedGridSearchCV(CLASSIFIER, {"activation": ["x", "y"]}, cv=2).fit(X, Y)


def test_other_estimators_fall_back_with_a_warning():
    pipeline = make_pipeline(StandardScaler(), CLASSIFIER)
    with_bar = clone(CLASSIFIER).set_params(callbacks=[TimeLimit(100)])
    alphas, limits = {"alpha": [0.0, 1.0]}, {"callbacks": [None, [TimeLimit(9)]]}
    lines = LogisticRegression(max_iter=1000)
    for estimator, grid, fit, words in [
        (
            pipeline,
            {"mlpclassifier__alpha": [0.0, 1.0]},
            {},
            "Pipeline is not an estimator of comb",
        ),
        (lines, {"C": [1.0, 2.0]}, {}, "LogisticRegression is not an"),
        (with_bar, alphas, {}, "callbacks watch one fit at a time"),
        (CLASSIFIER, limits, {}, "callbacks watch one fit at a time"),
        (CLASSIFIER, alphas, {"X_val": X, "y_val": Y}, r"fit was given \['X_val', 'y_val'"),
    ]:
        search = StackedGridSearchCV(estimator, grid, cv=2)
        with pytest.warns(UserWarning, match=f"{words}.*one fit at a time") as caught:
            search.fit(X, Y, **fit)
        assert caught[0].filename == __file__
        reference = GridSearchCV(estimator, grid, cv=2).fit(X, Y, **fit)
        assert_allclose(
            search.cv_results_["mean_test_score"], reference.cv_results_["mean_test_score"]
        )
    with (
        pytest.warns(UserWarning, match=r"\['alhpa'\].*MLPClassifier"),
        pytest.raises(ValueError, match="Invalid parameter 'alhpa'"),
    ):
        StackedGridSearchCV(CLASSIFIER, {"alhpa": [1]}, cv=2).fit(X, Y)


def test_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = clone(CLASSIFIER).set_fit_request(sample_weight=True)
        estimator.set_score_request(sample_weight=True)
        search = StackedGridSearchCV(estimator, {"alpha": [0.0]}, cv=2)
        with pytest.warns(UserWarning, match="metadata routing is on"):
            search.fit(X, Y, sample_weight=np.ones(150))
        search.fit(X, Y)  # without metadata there is nothing to route


# ---- in a notebook ---------------------------------------------------------------------------


def test_a_notebook_shows_the_candidates_the_best_first():
    grid = {"activation": ["relu", "combu"], "learning_rate_init": [0.02, 1e-5]}
    search = StackedGridSearchCV(CLASSIFIER, grid, cv=2)
    assert "candidates" not in search._repr_html_()
    shown = search.fit(X, Y)._repr_mimebundle_()["text/html"]
    assert "4 candidates, 4 of them shown, the best first" in shown
    rows = re.findall(r"<title>(.*?): ([\d.]+) \(", shown)
    names = [", ".join(f"{k}={v}" for k, v in p.items()) for p in search.cv_results_["params"]]
    order = np.argsort(search.cv_results_["rank_test_score"], kind="stable")
    assert [name for name, _ in rows] == [names[i] for i in order]
    assert float(rows[0][1]) == pytest.approx(search.best_score_, rel=1e-3)
    several = StackedGridSearchCV(CLASSIFIER, grid, cv=2, scoring=["accuracy"], refit=False)
    assert several.fit(X, Y)._repr_html_()  # the scores have other names
