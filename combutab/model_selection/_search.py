"""Grid search that trains the networks of many candidates and folds as one stack."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples

from combutab.core.html import ChartRow, interval_chart, result_html
from combutab.core.scorers import make_target_scorer
from combutab.core.splits import warn_repeated_rows
from combutab.core.tasks import has_callbacks
from combutab.core.world import plain_parameters
from combutab.estimators import BaseMLP, FitOutcome, FitTask, fit_stacked, refuse_text
from combutab.preprocessing import as_numpy, as_pandas, is_polars, plain_labels

_SHOWN = 12  # candidates in a notebook


class StackedGridSearchCV(GridSearchCV):
    """Grid search that trains the networks of many candidates and folds together.

    The results are those of scikit-learn's ``GridSearchCV`` up to rounding, in less time. Networks
    of the same shape (layers, batch size, solver, epochs) are trained as one batched program; they
    can differ in activation, learning rate, penalty, dropout and seed. The preprocessing of each
    fold is fitted on its training rows only. Scoring, errors, ``refit`` and ``cv_results_`` are
    those of scikit-learn.

    Parameters
    ----------
    estimator : MLPClassifier, MLPRegressor, TabMClassifier or TabMRegressor
        Other estimators, such as pipelines, and estimators with callbacks are searched one fit at a
        time by ``GridSearchCV``, with a warning.
    param_grid : dict or list of dict
        Parameters of the estimator, with lists of values, as in ``GridSearchCV``.
    scoring : str, callable, list, tuple or dict, optional
        As in ``GridSearchCV``. A name can also be that of a metric in
        ``combutab.evaluation.METRICS``, such as "log_loss". Of two classes, the positive one is 1
        or True, or else the rarer one.
    n_jobs, refit, cv, verbose, pre_dispatch, error_score, return_train_score
        As in ``GridSearchCV``. ``n_jobs`` is the number of stacks of networks that are trained at
        the same time, in threads unless joblib has another backend. None is the number of torch
        threads on a CPU, one stack on a GPU, or all workers of a cluster
        (``joblib.parallel_config(backend="dask")``, ``"ray"``). The result does not depend on it.
        Scores are computed in this process.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_, scorer_, n_splits_
        As in ``GridSearchCV``. The time of a fit, in seconds, is its share of the time of its
        stack.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier, StackedGridSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> net = MLPClassifier(hidden_layer_sizes=(16,), max_iter=20, random_state=0,
    ...                     n_iter_no_change=float("inf"))
    >>> grid = {"activation": ["relu", "combu"], "learning_rate_init": [0.001, 0.01]}
    >>> search = StackedGridSearchCV(net, grid, cv=3).fit(X, y)
    >>> search.best_params_["learning_rate_init"], len(search.cv_results_["params"])
    (0.01, 4)
    """

    scoring: Any

    def fit(self, X: Any, y: Any = None, **params: Any) -> StackedGridSearchCV:
        """Train and score every candidate on every fold, and refit the best on all rows.

        Parameters
        ----------
        X, y
            As in the estimator's ``fit``.
        **params
            ``sample_weight`` and ``groups``. With others, or with metadata routing,
            ``GridSearchCV`` searches one fit at a time, with a warning.

        Returns
        -------
        self
        """
        is_polars(X)  # raises the error about lazy frames
        if is_regressor(self.estimator):
            refuse_text(y, "y")
        elif isinstance(y, np.ndarray | pd.Series) and y.dtype == object:
            y = plain_labels(np.asarray(y))
        X, y = indexable(X, y)
        groups, cv, scoring = params.get("groups"), self.cv, self.scoring
        self.scoring = _find_scorers(scoring, self.estimator, y)
        try:
            self._validate_params()
            self.cv: Any = check_cv(cv, y, classifier=is_classifier(self.estimator))
            candidates = list(ParameterGrid(self.param_grid))
            splits = list(self.cv.split(X, y, groups))
            if y is not None:
                warn_repeated_rows(as_pandas(as_numpy(X)), y, splits)
            obstacle = self._obstacle(params, candidates)
            if obstacle is not None:
                warnings.warn(
                    f"the candidates are not trained together, because {obstacle}; scikit-learn's "
                    "GridSearchCV trains them one fit at a time",
                    stacklevel=2,
                )
                return super().fit(X, y, **params)
            inner = GridSearchCV(**self.get_params(deep=False))
        finally:
            self.cv, self.scoring = cv, scoring
        tasks = self._tasks(X, y, params.get("sample_weight"), candidates, splits)
        outcomes = fit_stacked(tasks, n_jobs=self.n_jobs)
        trained = [
            _Trained(task.estimator, outcome, _num_samples(task.X))
            for task, outcome in zip(tasks, outcomes, strict=True)
        ]
        # Scores are computed in this process: to send a network to a worker takes longer.
        inner.set_params(cv=splits, n_jobs=1)
        inner.estimator = _TrainedInOrder(clone(self.estimator), trained)
        with warnings.catch_warnings(record=True) as caught:
            inner.fit(X, y, **{n: v for n, v in params.items() if n != "groups"})
        for warning in caught:
            message = warning.message
            if issubclass(warning.category, ConvergenceWarning):  # not of a candidate's fit
                message = f"{message} (the refit to all rows, with {inner.best_params_})"
            warnings.warn_explicit(message, warning.category, warning.filename, warning.lineno)
        self.__dict__.update({n: v for n, v in vars(inner).items() if n.endswith("_")})
        seconds = np.array([o.seconds for o in outcomes]).reshape(len(candidates), len(splits))
        self.cv_results_["mean_fit_time"] = seconds.mean(1)
        self.cv_results_["std_fit_time"] = seconds.std(1)
        return self

    def _html_repr(self) -> str:
        """The diagram of scikit-learn and, once fitted, the candidates' scores below it."""
        diagram: str = super()._html_repr()
        results = getattr(self, "cv_results_", {})
        name = self.refit if isinstance(self.refit, str) else "score"
        if f"mean_test_{name}" not in results:
            return diagram
        table = pd.DataFrame(results)
        mean, deviation = table[f"mean_test_{name}"], table[f"std_test_{name}"]
        best = table.assign(low=mean - deviation, high=mean + deviation).dropna(subset="low")
        best = best.sort_values(f"rank_test_{name}", kind="stable").head(_SHOWN)
        if best.empty:
            return diagram
        rows = [
            ChartRow(", ".join(f"{n}={v}" for n, v in params.items()) or "as given", *numbers)
            for params, *numbers in best[["params", f"mean_test_{name}", "low", "high"]].to_numpy()
        ]
        caption = "Mean test score over the folds and its standard deviation."
        title = f"{len(table)} candidates, {len(rows)} of them shown, the best first"
        chart = interval_chart(rows, (best["low"].min(), best["high"].max()), caption)
        return diagram + result_html(title, [], chart, caption)

    def _obstacle(self, params: dict[str, Any], candidates: list[dict[str, Any]]) -> str | None:
        """Say why this search cannot be stacked; None if it can."""
        if not isinstance(self.estimator, BaseMLP):
            return f"{type(self.estimator).__name__} is not an estimator of combutab that stacks"
        parameters = set(self.estimator.get_params())
        searched = {name for candidate in candidates for name in candidate}
        unknown = sorted(searched - parameters)
        if unknown:
            return f"{unknown} are not parameters of {type(self.estimator).__name__}"
        other_params = sorted(set(params) - {"sample_weight", "groups"})
        if other_params:
            return f"fit was given {other_params} (it can stack with sample_weight and groups only)"
        if get_config().get("enable_metadata_routing") and params:
            return "metadata routing is on"
        watched = has_callbacks(self) or has_callbacks(self.estimator) or self.estimator.callbacks
        if watched or "callbacks" in searched:
            return "callbacks watch one fit at a time"
        return None

    def _tasks(
        self, X: Any, y: Any, weight: Any, candidates: list[Any], splits: list[Any]
    ) -> list[FitTask]:
        """Candidate by candidate, fold by fold: the order in which scikit-learn fits."""
        base = clone(self.estimator)
        folds = [
            (
                _safe_indexing(X, train),
                None if y is None else _safe_indexing(y, train),
                None if weight is None else _safe_indexing(weight, train),
            )
            for train, _ in splits
        ]
        return [
            FitTask(clone(base).set_params(**clone(candidate, safe=False)), *fold[:2], k, fold[2])
            for candidate in candidates
            for k, fold in enumerate(folds)
        ]


def _find_scorers(scoring: Any, estimator: Any, y: Any) -> Any:
    """Replace names of metrics in ``scoring`` by scorers, also in lists and dicts of names."""
    if is_classifier(estimator):
        task = "classification"
    elif is_regressor(estimator):
        task = "regression"
    else:
        return scoring
    if isinstance(scoring, str) and y is not None:
        return make_target_scorer(scoring, np.asarray(y), task)
    if isinstance(scoring, dict):
        return {name: _find_scorers(metric, estimator, y) for name, metric in scoring.items()}
    if isinstance(scoring, list | tuple | set) and 0 < len({*scoring}) == len(scoring):
        return {name: _find_scorers(name, estimator, y) for name in scoring}
    return scoring


class _Trained(FrozenEstimator):
    """A fit that is done, as scikit-learn's search is shown it: ``fit`` trains no more."""

    def __init__(self, estimator: BaseMLP, outcome: FitOutcome, n_rows: int) -> None:
        super().__init__(estimator)
        self.outcome, self.n_rows = outcome, n_rows

    def set_params(self, **params: Any) -> Self:
        """Check that these are the parameters that were trained."""
        plain = plain_parameters(self.estimator)
        searched = {name: value for name, value in params.items() if name in plain}
        trained = {name: plain[name] for name in searched}
        if repr(searched) != repr(trained):
            raise RuntimeError(
                f"GridSearchCV asked for a fit of {searched}, but {trained} was trained"
            )
        return self

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Raise the error of a fit that failed."""
        if _num_samples(X) != self.n_rows:
            raise RuntimeError(
                f"GridSearchCV asked for a fit to {_num_samples(X)} rows, but got {self.n_rows}"
            )
        if self.outcome.error is not None:
            raise self.outcome.error
        return self

    def __sklearn_clone__(self) -> Any:
        return clone(self.estimator)


class _TrainedInOrder(FrozenEstimator):
    """Stands for the estimator of a search: its clones are the fits that are done, then its own."""

    def __init__(self, estimator: BaseMLP, trained: Iterable[_Trained]) -> None:
        super().__init__(estimator)
        self.left = deque([self, *trained])  # a search clones itself one to clone first

    def __sklearn_clone__(self) -> Any:
        return self.left.popleft() if self.left else clone(self.estimator)
