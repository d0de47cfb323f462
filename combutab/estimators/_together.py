"""Fit many estimators as stacks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from sklearn import get_config

from combutab.estimators._base import BaseMLP
from combutab.estimators.fitting import FitOutcome, Job, train_jobs
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
    on_progress: Callable[[float], None] | None = None,
    on_fitted: Callable[[dict[int, FitOutcome]], None] | None = None,
    skip: Collection[int] = (),
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
    on_progress : callable, optional
        Called with the number of networks that have been trained so far: where stacks train in
        threads after each epoch, in fractions (one call at a time, from any thread), else after
        each stack.
    on_fitted : callable, optional
        Called after each stack with the outcomes of the tasks that it finished, by position: what
        is kept by then is not lost if a later stack is interrupted.
    skip : collection of int, default=()
        Positions of tasks that need no fit. The others' stacks are what they are without it, and
        so is every digit of their results; a skipped task that shares a stack with others is
        fitted, too.

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
    failed = {i: outcome for i, outcome in enumerate(outcomes) if outcome.error is not None}
    if failed and on_fitted is not None:
        on_fitted(failed)
    started, fitted, n_trained = time.perf_counter(), set[int](), 0

    def set_fitted_attributes(results: Mapping[int, list[MemberResult] | Exception]) -> None:
        nonlocal n_trained
        n_trained += sum(len(jobs[j].members) for j in results)
        per_network = (time.perf_counter() - started) / n_trained
        for j in results:
            fitted.add(j)
            i = owners[j]
            outcomes[i].seconds += per_network * len(jobs[j].members)
            outcomes[i].error = _set_fitted_attributes(tasks[i].estimator, jobs[j], results[j])
        if on_fitted is not None:
            on_fitted({owners[j]: outcomes[owners[j]] for j in results})

    skipped = {j for j, i in enumerate(owners) if i in skip}
    trained = _train(jobs, callbacks, on_progress, set_fitted_attributes, skipped, n_jobs)
    # where a stack failed, all were trained alone after some had been fitted
    rest = {j: result for j, result in enumerate(trained) if j not in fitted | skipped}
    if rest:
        set_fitted_attributes(rest)
    return outcomes


def _set_fitted_attributes(
    estimator: BaseMLP, job: Job, result: list[MemberResult] | Exception
) -> Exception | None:
    """Let an estimator take over what training found; returns what went wrong."""
    if isinstance(result, Exception):
        return result
    try:
        estimator._keep(job, result)
    except ValueError as error:  # it diverged
        return error
    return None


def _validate(estimator: BaseMLP) -> None:
    """Validate as scikit-learn does in ``fit``, before ours begins."""
    if not get_config()["skip_parameter_validation"]:
        estimator._validate_params()


def _train(
    jobs: Sequence[Job],
    callbacks: Sequence[Callback],
    on_progress: Callable[[float], None] | None,
    on_jobs: Callable[[Mapping[int, list[MemberResult] | Exception]], None],
    skip: Collection[int],
    n_jobs: int | None,
) -> Sequence[list[MemberResult] | Exception]:
    """Train as stacks; where one of them fails, alone, so that each job has its own error."""
    done, furthest = set[int](), 0.0

    def tell(n_networks: float) -> None:  # what is trained again counts once
        nonlocal furthest
        furthest = max(furthest, n_networks)
        if on_progress is not None:
            on_progress(furthest)

    def take(results: Mapping[int, list[MemberResult]]) -> None:
        new = {j: result for j, result in results.items() if j not in done}
        done.update(new)
        if new:
            on_jobs(new)

    def train(n_jobs: int | None) -> Sequence[list[MemberResult]]:
        return train_jobs(
            jobs,
            callbacks,
            tell,
            on_jobs=take,
            skip={*skip, *done},
            n_jobs=n_jobs,
            keep_optimizers=False,
        )

    try:
        try:
            return train(n_jobs)
        except BrokenExecutor as error:  # a worker was killed, for want of memory say
            _warn_of_retraining(jobs, {*skip, *done}, error, "in this process")
            return train(1)
    except Exception as together:
        results: list[list[MemberResult] | Exception] = []
        n_before = 0
        again = [j for j in range(len(jobs)) if j not in done and j not in skip]
        for j, job in enumerate(jobs):
            if j not in again:
                results.append([])
                continue
            try:
                results += train_jobs([job], callbacks, keep_optimizers=False)
            except Exception as error:
                results.append(error)
            n_before += len(job.members)
            tell(n_before)
        if not any(isinstance(result, Exception) for result in results):
            _warn_of_retraining(jobs, {*skip, *done}, together, "one fit at a time")
        return results


def _warn_of_retraining(
    jobs: Sequence[Job], done: Collection[int], error: Exception, how: str
) -> None:
    which = f"The other {len(jobs) - len(done)}" if done else f"All {len(jobs)}"
    warnings.warn(
        f"training side by side failed with {type(error).__name__}: {' '.join(str(error).split())} "
        f"{which} fits are trained again, {how}.",
        RuntimeWarning,
        stacklevel=5,
    )


def _prepare(task: FitTask, encoded: dict[object, tuple[Any, dict[str, Any]]]) -> Job:
    estimator = task.estimator
    estimator._validate()
    key = (task.data_key, type(estimator), estimator._data_key())
    if key in encoded:
        prepared, learned = encoded[key]
        estimator.__dict__.update(learned)
    else:
        prepared = estimator._encode(task.X, task.y, task.sample_weight)
        parameters = estimator.get_params(deep=False)
        learned = {n: v for n, v in vars(estimator).items() if n not in parameters}
        encoded[key] = prepared, learned
    return estimator._build(prepared)
