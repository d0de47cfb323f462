"""Fit many estimators as stacks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from sklearn import get_config

from combutab.estimators._base import BaseMLP
from combutab.estimators._jobs import Job, train_jobs
from combutab.estimators._prefitted import FitOutcome
from combutab.training import Callback, MemberResult


@dataclass(frozen=True)
class FitTask:
    """One fit that is wanted: an unfitted estimator, which is fitted in place, and its data.

    ``data_key`` is equal for tasks that have the very same rows (the fold's number, say): their
    table is then encoded once for all estimators whose encoding parameters agree.
    """

    estimator: BaseMLP
    X: Any
    y: Any
    data_key: object
    sample_weight: Any = None


def fit_stacked(
    tasks: Sequence[FitTask],
    *,
    n_jobs: int | None = None,
    callbacks: Sequence[Callback] = (),
    on_done: Callable[[int], None] | None = None,
) -> list[FitOutcome]:
    """Fit all estimators, in as few batched programs as their shapes allow.

    Each result is the one that the estimator's own ``fit`` gives with the same ``random_state``,
    up to the order of floating-point sums; only the optimiser's state is not kept (``partial_fit``
    begins with a fresh one). A fit that fails leaves its error in its outcome.

    Parameters
    ----------
    tasks : sequence of FitTask
    n_jobs : int, optional
        Stacks that train at the same time, in threads unless joblib's current backend is another.
        By default, on a CPU and without callbacks, as many as torch has threads.
    callbacks : sequence of Callback
        Told of every stack's epochs; used with ``n_jobs`` of None or 1 only.
    on_done : callable, optional
        Called with the number of networks that finished, after each stack.

    Returns
    -------
    list of FitOutcome
        In the order of ``tasks``.
    """
    outcomes = [FitOutcome(0.0) for _ in tasks]
    jobs: list[Job] = []
    owners: list[int] = []
    encoded: dict[object, tuple[Any, dict[str, Any]]] = {}
    for i, task in enumerate(tasks):
        started = time.perf_counter()
        try:
            _validate(task.estimator)
            jobs.append(_prepare(task, encoded))
            owners.append(i)
        except Exception as error:  # the caller decides: it is in the outcome
            outcomes[i].error = error
        outcomes[i].seconds = time.perf_counter() - started
    started = time.perf_counter()
    results = _train(jobs, callbacks, on_done, n_jobs)
    n_networks = sum(len(job.members) for job in jobs)
    per_network = (time.perf_counter() - started) / max(n_networks, 1)
    for i, job, result in zip(owners, jobs, results, strict=True):
        outcomes[i].seconds += per_network * len(job.members)
        if isinstance(result, Exception):
            outcomes[i].error = result
            continue
        try:
            tasks[i].estimator._absorb(job, result)
        except ValueError as error:  # it diverged
            outcomes[i].error = error
    return outcomes


def _validate(estimator: BaseMLP) -> None:
    """What scikit-learn does in ``fit`` before ours begins."""
    if not get_config()["skip_parameter_validation"]:
        estimator._validate_params()


def _train(
    jobs: Sequence[Job],
    callbacks: Sequence[Callback],
    on_done: Callable[[int], None] | None,
    n_jobs: int | None,
) -> Sequence[list[MemberResult] | Exception]:
    """Train as stacks; where one of them fails, alone, so that each job has its own error."""
    finished = 0

    def count(n_networks: int) -> None:
        nonlocal finished
        finished += n_networks
        if on_done is not None:
            on_done(n_networks)

    def count_the_rest(n_networks: int) -> None:
        nonlocal finished
        again, finished = min(finished, n_networks), finished - min(finished, n_networks)
        if on_done is not None and n_networks > again:
            on_done(n_networks - again)

    try:
        return train_jobs(jobs, callbacks, count, n_jobs=n_jobs, keep_optimizers=False)
    except BrokenExecutor as error:  # a worker was killed, for want of memory say
        _warn_of_retraining(jobs, error, "in this process")
        return _train(jobs, callbacks, count_the_rest, 1)
    except Exception as together:
        results: list[list[MemberResult] | Exception] = []
        for job in jobs:
            try:
                results += train_jobs([job], callbacks, count_the_rest, keep_optimizers=False)
            except Exception as error:
                results.append(error)
        if not any(isinstance(result, Exception) for result in results):
            _warn_of_retraining(jobs, together, "one fit at a time")
        return results


def _warn_of_retraining(jobs: Sequence[Job], error: Exception, how: str) -> None:
    warnings.warn(
        f"training side by side failed with {type(error).__name__}: {' '.join(str(error).split())} "
        f"All {len(jobs)} fits are trained again, {how}.",
        RuntimeWarning,
        stacklevel=5,
    )


def _prepare(task: FitTask, encoded: dict[object, tuple[Any, dict[str, Any]]]) -> Job:
    estimator = task.estimator
    estimator._check_parameters()
    key = (task.data_key, type(estimator), estimator._data_key())
    if key in encoded:
        prepared, learned = encoded[key]
        estimator.__dict__.update(learned)
    else:
        prepared = estimator._prepare(task.X, task.y, task.sample_weight)
        parameters = estimator.get_params(deep=False)
        learned = {n: v for n, v in vars(estimator).items() if n not in parameters}
        encoded[key] = prepared, learned
    return estimator._job(prepared)
