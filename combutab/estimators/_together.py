"""Fit many estimators as stacks."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from combutab.core.parallel import BrokenBackend, Failed, OtherVersions, on_cluster
from combutab.estimators._base import FitTask, Prepared, keep_results, prepare_job
from combutab.estimators._fitted import Unfinished
from combutab.estimators._jobs import (
    Job,
    is_interrupted,
    stacks_to_train,
    train_jobs,
    train_plain,
)
from combutab.training import Callback, MemberResult

_N_NAMED = 5


@dataclass
class FitOutcome:
    """Result of a fit of `fit_stacked`: its share of the stack's seconds, and the error if any."""

    seconds: float
    error: Exception | None = None


def fit_stacked(
    tasks: Sequence[FitTask],
    *,
    n_jobs: int | None = None,
    callbacks: Sequence[Callback] = (),
    on_progress: Callable[[float], None] | None = None,
    on_fitted: Callable[[dict[int, FitOutcome]], None] | None = None,
    skip: Collection[int] = (),
) -> list[FitOutcome]:
    """Fit several estimators together, in as few batched programs as possible.

    Each result is that of the estimator's own ``fit`` with the same ``random_state``, up to the
    order of floating-point sums. Only the state of the optimiser is not kept: ``partial_fit``
    starts with a new one. If a fit fails, its outcome contains the error.

    Parameters
    ----------
    tasks : sequence of FitTask
        The estimators and their data.
    n_jobs : int, optional
        Number of stacks that are trained at the same time, in threads, or with another active
        backend of joblib. By default, without callbacks, the number of workers of a cluster if the
        backend is one ("dask", "ray"), or on a CPU the number of torch threads.
    callbacks : sequence of Callback, default=()
        Callbacks for the epochs of every stack. They require ``n_jobs`` of None or 1.
    on_progress : callable, optional
        Called with the number of networks trained so far. If stacks are trained in threads, it is
        called after each epoch with fractions (one call at a time, from any thread), else after
        each stack.
    on_fitted : callable, optional
        Called after each stack with the outcomes of its tasks, by position, so that results can be
        saved before a later stack is interrupted.
    skip : collection of int, default=()
        Positions of tasks that need no fit. It changes no digit of the other results. A skipped
        task is still fitted if it is in the same stack as others.

    Returns
    -------
    list of FitOutcome
        One outcome per task, in the order of ``tasks``.

    Raises
    ------
    BrokenExecutor
        If the scheduler or the workers of a cluster cannot be reached.
    RuntimeError
        If a worker of a cluster has another version of the package or of torch.
    """
    outcomes = [FitOutcome(0.0) for _ in tasks]
    jobs: list[Job] = []
    owners: list[int] = []
    encoded: dict[object, Prepared] = {}
    for i, task in enumerate(tasks):
        started = time.perf_counter()
        try:
            jobs.append(prepare_job(task, encoded))
            owners.append(i)
        except Exception as error:  # the caller decides: it is in the outcome
            outcomes[i].error = error
        outcomes[i].seconds = time.perf_counter() - started
    failed = {i: outcome for i, outcome in enumerate(outcomes) if outcome.error is not None}
    if failed and on_fitted is not None:
        on_fitted(failed)
    started, n_trained = time.perf_counter(), 0
    parameters = [task.estimator.get_params(deep=False) for task in tasks]
    warned: list[tuple[int, Unfinished]] = []
    skipped = {j for j, i in enumerate(owners) if i in skip}
    with closing(_job_results(jobs, skipped, callbacks, n_jobs, on_progress)) as outputs:
        for results in outputs:
            n_trained += sum(len(jobs[j].members) for j in results)
            per_network = (time.perf_counter() - started) / n_trained
            for j, result in results.items():
                i, notes = owners[j], list[Unfinished]()
                outcomes[i].seconds += per_network * len(jobs[j].members)
                if isinstance(result, Exception):
                    outcomes[i].error = result
                    continue
                try:
                    keep_results(tasks[i].estimator, jobs[j], result, notes)
                except ValueError as error:  # it diverged
                    outcomes[i].error = error
                warned.extend((i, note) for note in notes if i not in skip)
            if on_fitted is not None:
                on_fitted({owners[j]: outcomes[owners[j]] for j in results})
    _warn_together(warned, parameters)
    return outcomes


def _warn_together(
    warned: Sequence[tuple[int, Unfinished]], parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Give each warning once, with the fits that it is about by the parameters that vary."""
    labels = _varied(parameters)
    by_text: dict[tuple[str, type[Warning]], list[int]] = {}
    for i, note in warned:
        by_text.setdefault((note.text, note.category), []).append(i)
    for (text, category), fits in by_text.items():
        counts, of_all = Counter(labels[i] for i in fits), Counter(labels)
        named_fits = [f"{name} ({n} of {of_all[name]})" for name, n in counts.items() if name]
        more = [f"{len(named_fits) - _N_NAMED} more"] if len(named_fits) > _N_NAMED else []
        which = "; ".join([*named_fits[:_N_NAMED], *more])
        where = f"{len(fits)} of {len(parameters)} fits{which and f': {which}'}"
        warnings.warn(f"{text} ({where})", category, stacklevel=4)


def _varied(parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each fit by the parameters in which they differ, seeds aside."""
    words = [
        {n: f"{n}={repr(v)[:60]}" for n, v in values.items() if n != "random_state"}
        for values in parameters
    ]
    names = dict.fromkeys(name for values in words for name in values)
    differ = [name for name in names if len({values.get(name) for values in words}) > 1]
    return [", ".join(values[name] for name in differ if name in values) for values in words]


def _job_results(
    jobs: Sequence[Job],
    skip: Collection[int],
    callbacks: Sequence[Callback],
    n_jobs: int | None,
    on_progress: Callable[[float], None] | None,
) -> Generator[dict[int, list[MemberResult] | Exception]]:
    """Results of jobs by their positions, as they are done; errors at the end.

    Failed jobs are trained again, so that each job has its own error: in this process if a worker
    died, and one by one if a stack failed.
    """
    done, furthest = set[int](), 0.0
    errors = dict[int, Exception]()  # errors of failed stacks, by job
    shared = set[int]()  # those of them that others shared this stack with

    def left() -> set[int]:
        return {*range(len(jobs))}.difference(skip, done, errors)

    def train(
        selected: set[int], n_jobs: int | None, *, together: bool = True
    ) -> Generator[dict[int, list[MemberResult] | Exception]]:
        stacks = stacks_to_train(jobs, {*range(len(jobs))} - selected, together=together)
        n_skipped = sum(len(job.members) for job in jobs) - sum(map(len, stacks))

        def tell(n_networks: float) -> None:  # jobs that are trained again count once
            nonlocal furthest
            furthest = max(furthest, n_skipped + n_networks)
            if on_progress is not None:
                on_progress(furthest)

        if n_skipped:
            tell(0)
        results_by_job: list[dict[int, MemberResult]] = [{} for _ in jobs]
        plain = [train_plain] * len(stacks)
        outputs = train_jobs(jobs, stacks, plain, callbacks, n_jobs=n_jobs, on_progress=tell)
        with closing(outputs):
            for i, trained in outputs:
                stack_jobs = {position.job for position in stacks[i]}
                if isinstance(trained, Failed):
                    errors.update(dict.fromkeys(stack_jobs, trained.error))
                    shared.update(stack_jobs if len(stack_jobs) > 1 else ())
                    continue
                for position, result in zip(stacks[i], trained, strict=True):
                    results_by_job[position.job][position.member] = result
                interrupted = is_interrupted(trained)
                if interrupted and len(jobs) > 1:  # results of some jobs only are of no use
                    raise KeyboardInterrupt
                new = {
                    j: [result for _, result in sorted(results_by_job[j].items())]
                    for j in sorted(stack_jobs - done)
                    if interrupted or len(results_by_job[j]) == len(jobs[j].members)
                }
                done.update(new)
                if new:
                    yield dict(new)
                if interrupted:
                    return

    def warn(n_left: int, error: Exception, how: str) -> None:
        which = "All" if n_left == len(jobs) else "The other"
        warnings.warn(
            f"training side by side failed with {type(error).__name__}: "
            f"{' '.join(str(error).split())} {which} {n_left} fits are trained again, {how}.",
            RuntimeWarning,
            stacklevel=4,
        )

    try:
        yield from train(left(), n_jobs)
    except (BrokenBackend, OtherVersions):
        raise
    except Exception as error:  # a worker was killed, such as for memory
        warn(len(left()), error, "in this process")
        yield from train(left(), 1)
    again = shared - done
    if again:
        first = errors[min(again)]
        for j in again:
            del errors[j]
        yield from train(again, n_jobs if on_cluster() else 1, together=False)
        if not again & errors.keys():
            warn(len(again), first, "one fit at a time")
    failed = {j: error for j, error in errors.items() if j not in done}
    if failed:
        yield dict(failed)
