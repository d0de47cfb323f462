"""A stacked search finds the same in every backend, thread, process and context."""

import itertools
import pickle
import threading
import warnings

import joblib
import numpy as np
import pytest
import torch
from joblib._parallel_backends import ThreadingBackend
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, paper_recipe
from combutab.estimators import _jobs
from combutab.training import TimeLimit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3)) + 5
Y = (X[:, 0] - X[:, 1] > 0).astype(int)
INF = float("inf")
NET = MLPClassifier(
    **paper_recipe(
        "classification", hidden_layer_sizes=(6,), max_iter=6, learning_rate_init=0.02,
        n_iter_no_change=INF, dropout=0.0, precision="float64",
    ), random_state=0,
)  # fmt: skip
GRIDS = {
    "first": {"learning_rate_init": [0.05, 1e-6], "activation": ["tanh", "relu"]},
    "last": {"learning_rate_init": [1e-6, 0.05], "activation": ["relu", "tanh"]},
}
TIMES = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


class _Remote(ThreadingBackend):
    """Stands for Dask and Ray: sends away all it is given, pickled, whatever ``n_jobs`` is."""

    def effective_n_jobs(self, n_jobs):
        return 2

    def configure(self, n_jobs=1, parallel=None, **options):
        return super().configure(n_jobs=2, parallel=parallel, **options)

    def submit(self, func, callback=None):
        sent = pickle.dumps(func)
        return super().submit(lambda: pickle.loads(pickle.dumps(pickle.loads(sent)())), callback)

    apply_async = submit


joblib.register_parallel_backend("trust-remote", _Remote)
pytestmark = pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
BACKENDS = ["sequential", "threading", "loky", "multiprocessing", "trust-remote"]


def least_sure(results):
    """A refit of one's own: the last of the best."""
    return int(np.flatnonzero(results["rank_test_score"] == 1)[-1])


REFITS = {
    "best": {},
    "callable": {"refit": least_sure},
    "metric": {"scoring": ["accuracy", "neg_log_loss"], "refit": "neg_log_loss"},
}


@pytest.fixture(autouse=True)
def small_stacks(monkeypatch):
    """More stacks than one, so that there is something to share out."""
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 1000)


def agree(ours, theirs):
    """The same candidates, scores and winner, and a winner that was trained on all rows."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key, expected in theirs.cv_results_.items():
        got = ours.cv_results_[key]
        if key == "params":
            assert got == expected
            continue
        assert got.dtype == expected.dtype
        if key in TIMES:
            assert (got >= 0).all()
        elif "_test_" in key and "rank" not in key:
            assert_allclose(got, expected, rtol=1e-9, err_msg=key)
        else:
            assert_array_equal(got, expected, err_msg=key)
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_index_ == theirs.best_index_
    alone = theirs.best_estimator_
    assert ours.best_estimator_.t_ == alone.t_ == len(X) * alone.n_iter_
    raw = [ours.best_estimator_, alone]
    predicted = [getattr(m, "predict_proba", m.predict)(X) for m in raw]
    assert_allclose(*predicted, rtol=1e-9)
    assert type(ours.best_estimator_) is type(ours.estimator)


@pytest.fixture(scope="module")
def expected():
    return {
        (winner, refit): GridSearchCV(NET, GRIDS[winner], cv=3, **REFITS[refit]).fit(X, Y)
        for winner, refit in itertools.product(GRIDS, REFITS)
    }


@pytest.mark.parametrize(("n_jobs", "own"), [(1, 2), (2, None)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_finds_what_grid_search_finds(backend, n_jobs, own, expected):
    """Each with the first and the last candidate as winner; the ways to refit, which know of no
    backend, take turns."""
    turn = BACKENDS.index(backend) + n_jobs
    winners = set()
    for i, winner in enumerate(GRIDS):
        refit = [*REFITS][(turn + i) % len(REFITS)]
        search = StackedGridSearchCV(NET, GRIDS[winner], cv=3, n_jobs=own, **REFITS[refit])
        with joblib.parallel_config(backend=backend, n_jobs=n_jobs):
            search.fit(X, Y)
        agree(search, expected[winner, refit])
        winners.add(search.best_index_)
    assert min(winners) == 0
    assert max(winners) > 1


def test_failed_candidates_fail_everywhere_alike():
    grid = {"learning_rate_init": [0.05, -1.0], "activation": ["rleu", "relu"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = GridSearchCV(NET, grid, cv=3).fit(X, Y)
        for backend in BACKENDS:
            with joblib.parallel_config(backend=backend, n_jobs=2):
                agree(StackedGridSearchCV(NET, grid, cv=3).fit(X, Y), reference)
    scores = reference.cv_results_["mean_test_score"]
    assert np.isnan(scores).sum() == 3


# ---- who else fits while a search does ----------------------------------------


def fitting_scorer(estimator, X, y):
    """Trains a network of its own, of the very parameters that the search fits."""
    rival = clone(estimator).fit(X, y)
    assert rival.t_ == len(X) * rival.n_iter_
    return float(np.round(rival.score(X, y) + estimator.score(X, y), 9))


class FittingSplitter(KFold):
    def split(self, X, y=None, groups=None):
        assert clone(NET).fit(X, y).t_ == len(X) * NET.max_iter
        return super().split(X, y, groups)


def test_scorers_splitters_and_refits_that_fit_get_fits_of_their_own():
    def refit(results):
        assert clone(NET).fit(X, Y).t_ == len(X) * NET.max_iter
        return int(results["rank_test_score"].argmin())

    options = {"cv": FittingSplitter(3), "scoring": fitting_scorer, "refit": refit}
    search = StackedGridSearchCV(NET, GRIDS["last"], **options).fit(X, Y)
    agree(search, GridSearchCV(NET, GRIDS["last"], **options).fit(X, Y))


def test_nested_in_cross_validation():
    search = StackedGridSearchCV(NET, GRIDS["last"], cv=2)
    reference = cross_val_score(GridSearchCV(NET, GRIDS["last"], cv=2), X, Y, cv=3)
    for backend in ("threading", "loky", "trust-remote"):
        with joblib.parallel_config(backend=backend):
            scores = cross_val_score(search, X, Y, cv=3, n_jobs=2)
            each = cross_validate(search, X, Y, cv=KFold(2), n_jobs=2, return_estimator=True)
        assert_allclose(scores, reference)
        for found in each["estimator"]:
            assert found.best_estimator_.t_ == len(X) // 2 * NET.max_iter
    outer = StackedGridSearchCV(NET, {"alpha": [0.0]}, cv=2, scoring=fitting_scorer)
    assert np.isfinite(cross_val_score(outer, X, Y, cv=2, n_jobs=2)).all()


def test_searches_in_threads_at_once_find_their_own(expected):
    reg = MLPRegressor(**{n: v for n, v in NET.get_params().items() if n not in (
        "class_weight", "label_smoothing", "calibration")})  # fmt: skip
    target = X @ [3.0, -2.0, 1.0] + 100
    wanted = [
        (expected["first", "best"], Y),
        (GridSearchCV(reg, GRIDS["last"], cv=3).fit(X, target), target),
        (expected["last", "best"], Y),
    ]
    found: dict[int, StackedGridSearchCV] = {}
    failed: list[BaseException] = []
    start, n_threads = threading.Barrier(6), torch.get_num_threads()

    def run(i):
        reference, y = wanted[i % 3]
        start.wait()
        try:
            search = StackedGridSearchCV(
                reference.estimator, reference.param_grid, cv=3, n_jobs=1 + i // 3
            )
            found[i] = search.fit(X, y)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert len(found) == 6
    for i, search in found.items():
        agree(search, wanted[i % 3][0])
    assert torch.get_num_threads() == n_threads


def test_copies_carry_nothing_of_a_search():
    search = StackedGridSearchCV(NET, GRIDS["last"], cv=3).fit(X, Y)
    for copied in (clone(search), pickle.loads(pickle.dumps(search))):
        copied.fit(X, Y)
        agree(copied, search)
    again = clone(search.best_estimator_).fit(X[:40], Y[:40])
    assert again.t_ == 40 * NET.max_iter


def test_a_watched_search_is_watched():
    if not hasattr(GridSearchCV, "set_callbacks"):
        pytest.skip("this scikit-learn has no callbacks")
    from sklearn.callback import ProgressBar

    search = StackedGridSearchCV(NET, {"alpha": [0.0, 0.1]}, cv=2).set_callbacks(ProgressBar())
    words = "callbacks watch one fit at a time|does not support callbacks"  # scikit-learn's own
    with pytest.warns(UserWarning, match=words) as caught:
        search.fit(X, Y)
    assert "one fit at a time" in str(caught[0].message)
    bars = StackedGridSearchCV(clone(NET).set_params(callbacks=[TimeLimit(99)]), {}, cv=2)
    with pytest.warns(UserWarning, match="callbacks watch one fit at a time"):
        bars.fit(X, Y)
