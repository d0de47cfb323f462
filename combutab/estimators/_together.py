"""Fit many estimators as stacks."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from combutab.core.parallel import BrokenBackend, OtherVersions, on_cluster
from combutab.estimators._base import BaseMLP
from combutab.estimators._data import Prepared
from combutab.estimators._fitted import Unfinished
from combutab.estimators._jobs import Job, train_jobs
from combutab.training import Callback, MemberResult

_N_NAMED = 5


@dataclass
class FitOutcome:
    """The outcome of a fit: its share of the stack's seconds, and the error if it failed."""

    seconds: float
    error: Exception | None = None


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
        By default and without callbacks, as many as a cluster has workers if joblib's backend is
        one ("dask", "ray"), else on a CPU as many as torch has threads.
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

    Raises
    ------
    BrokenExecutor
        If a cluster's scheduler is gone, or its workers cannot be reached.
    RuntimeError
        If a cluster's worker has another version of the package or of torch.
    """
    outcomes = [FitOutcome(0.0) for _ in tasks]
    jobs: list[Job] = []
    owners: list[int] = []
    encoded: dict[object, Prepared] = {}
    for i, task in enumerate(tasks):
        started = time.perf_counter()
        try:
            jobs.append(_prepare(task, encoded))
            owners.append(i)
        except Exception as error:  # the caller decides: it is in the outcome
            outcomes[i].error = error
        outcomes[i].seconds = time.perf_counter() - started
    failed = {i: outcome for i, outcome in enumerate(outcomes) if outcome.error is not None}
    if failed and on_fitted is not None:
        on_fitted(failed)
    started, n_trained = time.perf_counter(), 0

    parameters = [task.estimator.get_params(deep=False) for task in tasks]
    told: list[tuple[int, Unfinished]] = []

    def set_fitted_attributes(results: Mapping[int, list[MemberResult] | Exception]) -> None:
        nonlocal n_trained
        n_trained += sum(len(jobs[j].members) for j in results)
        per_network = (time.perf_counter() - started) / n_trained
        for j in results:
            i = owners[j]
            outcomes[i].seconds += per_network * len(jobs[j].members)
            notes: list[Unfinished] = []
            outcomes[i].error = _set_fitted_attributes(
                tasks[i].estimator, jobs[j], results[j], notes
            )
            told.extend((i, note) for note in notes if i not in skip)
        if on_fitted is not None:
            on_fitted({owners[j]: outcomes[owners[j]] for j in results})

    skipped = {j for j, i in enumerate(owners) if i in skip}
    training = _StackedFits(jobs, callbacks, on_progress, set_fitted_attributes, skipped, n_jobs)
    errors = training.run()
    if errors:
        set_fitted_attributes(errors)
    _warn_together(told, parameters)
    return outcomes


def _warn_together(
    told: Sequence[tuple[int, Unfinished]], parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Give each warning once, with the fits that it is about by the parameters that vary."""
    named = _varied(parameters)
    by_text: dict[tuple[str, type[Warning]], list[int]] = {}
    for i, note in told:
        by_text.setdefault((note.text, note.category), []).append(i)
    for (text, category), fits in by_text.items():
        counts, of_all = Counter(named[i] for i in fits), Counter(named)
        each = [f"{name} ({n} of {of_all[name]})" for name, n in counts.items() if name]
        more = [f"{len(each) - _N_NAMED} more"] if len(each) > _N_NAMED else []
        which = "; ".join([*each[:_N_NAMED], *more])
        where = f"{len(fits)} of {len(parameters)} fits{which and f': {which}'}"
        warnings.warn(f"{text} ({where})", category, stacklevel=4)


def _varied(parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each fit by the parameters in which they differ, seeds aside."""
    words = [
        {n: f"{n}={repr(v)[:60]}" for n, v in each.items() if n != "random_state"}
        for each in parameters
    ]
    names = dict.fromkeys(name for each in words for name in each)
    differ = [name for name in names if len({each.get(name) for each in words}) > 1]
    return [", ".join(each[name] for name in differ if name in each) for each in words]


def _set_fitted_attributes(
    estimator: BaseMLP,
    job: Job,
    result: list[MemberResult] | Exception,
    told: list[Unfinished],
) -> Exception | None:
    """Let an estimator take over what training found; returns what went wrong."""
    if isinstance(result, Exception):
        return result
    try:
        estimator.keep_results(job, result, told=told)
    except ValueError as error:  # it diverged
        return error
    return None


class _StackedFits:
    """Jobs that are trained as stacks, and what failed again, so that each has its own error."""

    def __init__(
        self,
        jobs: Sequence[Job],
        callbacks: Sequence[Callback],
        on_progress: Callable[[float], None] | None,
        on_jobs: Callable[[Mapping[int, list[MemberResult] | Exception]], None],
        skip: Collection[int],
        n_jobs: int | None,
    ) -> None:
        self.jobs, self.callbacks, self.skip, self.n_jobs = jobs, callbacks, skip, n_jobs
        self._on_progress, self._on_jobs = on_progress, on_jobs
        self._done, self._furthest = set[int](), 0.0
        self._failed: list[tuple[list[int], Exception]] = []  # stacks

    def run(self) -> dict[int, Exception]:
        """Train; returns the errors of the jobs that have no results."""
        try:
            self._train(self.skip, self.n_jobs)
        except (BrokenBackend, OtherVersions):
            raise
        except BrokenExecutor as error:  # a worker was killed, for want of memory say
            self._warn(len(self._left()), error, "in this process")
            self._train({*range(len(self.jobs))} - self._left(), 1)
        except Exception as error:  # of no stack: what cannot be sent to a process, say
            self._failed.append((sorted(self._left()), error))
        self._train_alone()
        return {j: error for stack, error in self._failed for j in stack if j not in self._done}

    def _left(self) -> set[int]:
        failed = {j for stack, _ in self._failed for j in stack}
        return {*range(len(self.jobs))} - {*self.skip, *self._done, *failed}

    def _train_alone(self) -> None:
        """Train the jobs of stacks that failed, each for itself."""
        shared = [each for each in self._failed if len(each[0]) > 1]
        if not shared:
            return
        again = {j for stack, _ in shared for j in stack} - self._done
        self._failed = [each for each in self._failed if each not in shared]
        n_failed = len(self._failed)
        others = {*range(len(self.jobs))} - again
        self._train(others, self.n_jobs if on_cluster() else 1, together=False)
        if len(self._failed) == n_failed:
            self._warn(len(again), shared[0][1], "one fit at a time")

    def _train(self, skip: Collection[int], n_jobs: int | None, together: bool = True) -> None:
        train_jobs(
            self.jobs,
            self.callbacks,
            self._tell,
            on_jobs=self._take,
            on_failed=lambda stack, error: self._failed.append((stack, error)),
            skip=skip,
            together=together,
            n_jobs=n_jobs,
            keep_optimizers=False,
        )

    def _tell(self, n_networks: float) -> None:  # what is trained again counts once
        self._furthest = max(self._furthest, n_networks)
        if self._on_progress is not None:
            self._on_progress(self._furthest)

    def _take(self, results: Mapping[int, list[MemberResult]]) -> None:
        new = {j: result for j, result in results.items() if j not in self._done}
        self._done.update(new)
        if new:
            self._on_jobs(new)

    def _warn(self, n_left: int, error: Exception, how: str) -> None:
        which = "All" if n_left == len(self.jobs) else "The other"
        warnings.warn(
            f"training side by side failed with {type(error).__name__}: "
            f"{' '.join(str(error).split())} {which} {n_left} fits are trained again, {how}.",
            RuntimeWarning,
            stacklevel=5,
        )


def _prepare(task: FitTask, encoded: dict[object, Prepared]) -> Job:
    estimator = task.estimator.checked()
    key = (task.data_key, type(estimator), estimator.encoding_key())
    if key not in encoded:
        encoded[key] = estimator.encode_data(task.X, task.y, task.sample_weight)
    return estimator.make_job(encoded[key])
