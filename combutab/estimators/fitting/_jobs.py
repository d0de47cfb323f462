"""The training of many jobs' stacks, one after the other or side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

import numpy as np
import torch
from joblib import effective_n_jobs
from torch import Tensor

from combutab._clusters import Failed, unwanted
from combutab._device import mind_forks
from combutab._parallel import attempt, completed, on_cluster
from combutab.estimators.fitting._stacks import Job, Place, plan_stacks, train_one_stack
from combutab.training import Callback, EpochReport, MemberResult, StackFile

_Trained = tuple[list[MemberResult], "StackWatch | None"]
_GOLDEN = (5**0.5 - 1) / 2  # its multiples' fractions are spread evenly, however many there are


class StackWatch(Callback):
    """Follows one stack, wherever that trains: it is sent along, and back with the results."""

    def begins(self) -> bool:
        """Tell whether the stack is to be trained, when and where it would begin."""
        return True

    def take(self, other: StackWatch) -> None:
        """Take over what this one's copy has noted in another process; here it is this one."""


class JobFile(Protocol):
    """The file of a job's training."""

    def part(self, stack: int) -> StackFile:
        """The place of one of its stacks."""


def train_jobs(
    jobs: Sequence[Job],
    callbacks: Sequence[Callback] = (),
    on_progress: Callable[[float], None] | None = None,
    *,
    on_jobs: Callable[[dict[int, list[MemberResult]]], None] | None = None,
    on_failed: Callable[[list[int], Exception], None] | None = None,
    skip: Collection[int] = (),
    together: bool = True,
    n_jobs: int | None = None,
    keep_optimizers: bool = True,
    watch: Callable[[Sequence[tuple[int, int]]], StackWatch] | None = None,
    file: JobFile | None = None,
) -> list[list[MemberResult]]:
    """Train all members of all jobs, as few stacks as memory and caches allow.

    After a keyboard interrupt no further stack is begun: a single job keeps the members that it
    has, several jobs have no use for some of theirs and the interrupt goes on to the caller.

    Parameters
    ----------
    jobs : sequence of Job
        Jobs of equal shape, configuration and device train together.
    callbacks : sequence of Callback
        Told of every stack's epochs.
    on_progress : callable, optional
        Called with the number of members that have been trained so far: where stacks train in
        threads after each epoch, in fractions (one call at a time, from any thread), else after
        each stack.
    on_jobs : callable, optional
        Called after each stack with the results of the jobs whose last members it had, by position.
    on_failed : callable, optional
        Called with the positions of a failed stack's jobs and its error, and the others go on; by
        default the error is raised.
    skip : collection of int, default=()
        Positions of jobs that need no training. Stacks are those of all jobs all the same, as the
        last digits of a member's result depend on its stack; one of such jobs alone is left out.
    together : bool, default=True
        False: each job has stacks of its own.
    n_jobs : int, optional
        Stacks that train at the same time, in threads unless joblib's current backend is another.
        By default, for several jobs without callbacks, as many as a cluster has workers if joblib's
        backend is one ("dask", "ray"), else on a CPU as many as torch has threads: a small
        network's operations are too short to be shared out.
    keep_optimizers : bool, default=True
        Keep the optimisers' states, twice the size of the weights, to go on from later.
    watch : callable, optional
        Gives each stack what follows it, for its members, (job, member) each.
    file : JobFile, optional
        Where a single job is written to now and then, and taken up from.

    Returns
    -------
    list of list of MemberResult
        One list a job, in the jobs' order; empty where it was left out.
    """
    results: list[list[MemberResult | None]] = [[None] * len(job.members) for job in jobs]
    stacks, n_skipped = [], 0
    if together:
        planned = plan_stacks(jobs)
    else:
        planned = [
            [Place(i, place.member) for place in stack]
            for i, job in enumerate(jobs)
            for stack in plan_stacks([job])
        ]
    order = np.arange(len(planned))
    if (
        len(jobs) > 1
    ):  # neighbours have alike activations: spread, the pace so far is that of the rest
        order = np.argsort(order * _GOLDEN % 1.0, kind="stable")
    for i in order.tolist():
        stack = planned[i]
        if all(place.job in skip for place in stack):
            n_skipped += len(stack)
        else:
            stacks.append(stack)
    aside = len(jobs) > 1 and not callbacks
    if n_jobs is None and aside and not on_cluster() and _on_cpu(jobs):
        n_jobs = min(torch.get_num_threads(), len(stacks))
    board = _Board(len(stacks), n_skipped, on_progress)
    watches = [None if watch is None else watch([(p.job, p.member) for p in s]) for s in stacks]
    outputs: Generator[tuple[int, _Trained | Failed]]
    if n_jobs in (0, 1) or (n_jobs is None and not (aside and on_cluster())):
        outputs = (
            (
                i,
                attempt(
                    _train_watched,
                    jobs,
                    s,
                    callbacks,
                    watches[i],
                    keep_optimizers,
                    None if file is None else file.part(i),
                ),
            )
            for i, s in enumerate(stacks)
        )
    else:
        outputs = _train_side_by_side(jobs, stacks, n_jobs, board, watches, keep_optimizers)
    with closing(outputs):
        for i, found in outputs:
            stack = stacks[i]
            if isinstance(found, Failed):
                if on_failed is None:
                    raise found.error
                on_failed(list(dict.fromkeys(place.job for place in stack)), found.error)
                continue
            trained, watched = found
            own = watches[i]
            if own is not None and watched is not None:
                own.take(watched)
            for place, result in zip(stack if trained else (), trained, strict=True):
                results[place.job][place.member] = result
            if any(result.reason == "interrupted" for result in trained):
                if len(jobs) > 1:
                    raise KeyboardInterrupt
                break
            board.tell(i, len(stack))
            if on_jobs is not None:
                of_stack = {job: results[job] for job in dict.fromkeys(p.job for p in stack)}
                on_jobs({job: [*filter(None, row)] for job, row in of_stack.items() if all(row)})
    return [[r for r in row if r is not None] for row in results]


def _on_cpu(jobs: Sequence[Job]) -> bool:
    return all(job.device.type == "cpu" for job in jobs)


class _Board:
    """The progress of stacks that train at the same time, and whether they shall stop.

    A copy that is sent to another process tells nobody: its stack counts once it is back.
    """

    def __init__(
        self, n_stacks: int, n_skipped: int, on_progress: Callable[[float], None] | None
    ) -> None:
        self.stopped = False
        self._trained = [0.0] * n_stacks + [float(n_skipped)]
        self._on_progress, self._lock = on_progress, threading.Lock()
        if n_skipped:
            self.tell(-1, n_skipped)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_on_progress": None, "_lock": None}

    def tell(self, stack: int, n_trained: float) -> None:
        """Say how many members' worth of a stack has been trained by now."""
        if self._on_progress is None:
            return
        with self._lock:
            self._trained[stack] = n_trained
            self._on_progress(sum(self._trained))


class _Told(Callback):
    """Tells the board of a stack's epochs, and ends it where the board says so."""

    def __init__(self, board: _Board, stack: int) -> None:
        self.board, self.stack = board, stack

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.board.tell(self.stack, self.n_members * report.epoch / report.max_epochs)
        return self.board.stopped or unwanted()


def _train_side_by_side(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[Place]],
    n_jobs: int | None,
    board: _Board,
    watches: Sequence[StackWatch | None],
    keep_optimizers: bool,
) -> Generator[tuple[int, _Trained | Failed]]:
    """The stacks' results as they are done, in threads or processes with their share of torch's.

    A cluster's workers keep the number of threads that the cluster gave them.
    """
    n_threads = torch.get_num_threads()
    share = None if on_cluster() else max(1, n_threads // effective_n_jobs(n_jobs))
    tasks = (
        (share, *_extract(jobs, s), (_Told(board, i),), watches[i], keep_optimizers)
        for i, s in enumerate(stacks)
    )
    outputs = completed(_train_with, tasks, n_jobs=n_jobs, shared=_tables(jobs))
    try:
        for found in outputs:  # noqa: UP028 - which would close them before the board is told
            yield found
    finally:
        board.stopped = True
        outputs.close()
        torch.set_num_threads(n_threads)  # what threads set is what later ones begin with


def _tables(jobs: Sequence[Job]) -> Iterator[Tensor]:
    """What is as long as the data, of which many jobs have the same."""
    for job in jobs:
        rows = job.rows
        yield from (t for t in (rows.dense, rows.y, rows.codes, rows.weight) if t is not None)
        for plan in job.plans:
            yield from (t for t in (plan.rows, plan.val_rows) if t is not None)


def _train_with(n_threads: int | None, *arguments: Any) -> _Trained:
    if n_threads is not None and torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)  # of this thread, or of a process that waits for more
    mind_forks()
    return _train_watched(*arguments)


def _extract(jobs: Sequence[Job], stack: Sequence[Place]) -> tuple[list[Job], list[Place]]:
    """The jobs that a stack needs, and the stack in their numbering: what a process is sent."""
    needed = sorted({place.job for place in stack})
    return [jobs[i] for i in needed], [
        Place(needed.index(place.job), place.member) for place in stack
    ]


def _train_watched(
    jobs: Sequence[Job],
    stack: Sequence[Place],
    callbacks: Sequence[Callback],
    watch: StackWatch | None,
    keep_optimizers: bool,
    file: StackFile | None = None,
) -> _Trained:
    """Train a stack; no results where it is left out."""
    if watch is None:
        results = train_one_stack(jobs, stack, callbacks, file)
    elif watch.begins():
        results = train_one_stack(jobs, stack, (*callbacks, watch), file)
    else:
        results = []
    if not keep_optimizers:
        for result in results:
            result.optimizer = {}
    return results, watch
