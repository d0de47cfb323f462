"""Jobs: what an estimator wants trained, and the grouping of many of them into stacks."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from torch import Tensor

from combutab._device import mind_forks
from combutab._random import Purpose, derive
from combutab.estimators.fitting._data import concatenated
from combutab.estimators.fitting._folds import Folds
from combutab.nn import ActivationSpec, Member, NetworkSpec, TableNetwork
from combutab.training import (
    Callback,
    EpochReport,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    TrainConfig,
    train_lbfgs,
    train_stack,
)

# Units of one layer over all members: on a CPU larger stacks leave the caches (measured by
# benchmarks/speed/stack.py), on a GPU memory is the bound: a dozen buffers of 256 MB, not measured
# yet. A member's result does not depend on the split.
_STACK_UNITS = {"cpu": 1 << 19, "cuda": 1 << 26}
_GOLDEN = (5**0.5 - 1) / 2  # its multiples' fractions are spread evenly, however many there are
_FIRST_ROWS = 256  # that initial weights may depend on
_EVEN = 4  # a shape's stacks are a multiple of this many, for as many threads to share evenly


# Told of a stack's members, (job, member) each, when it is about to train, in its thread. It gives
# callbacks of the stack's own, or None to leave it out.
Watch = Callable[[Sequence[tuple[int, int]]], Sequence[Callback] | None]


@dataclass(frozen=True)
class Job:
    """One estimator's training: its members, which share data, network and configuration."""

    spec: NetworkSpec
    config: TrainConfig
    members: tuple[Member, ...]
    plans: tuple[MemberPlan, ...]
    rows: Rows
    device: torch.device
    max_fun: int = 15000
    start_states: tuple[dict[str, Tensor], ...] | None = None
    folds: Folds | None = None  # that the members validate on


def train_streamed(
    job: Job, stream: RowStream, callbacks: Sequence[Callback] = ()
) -> list[MemberResult]:
    """Train all members of a job in one stack, on rows that are read once for all of them."""
    net = _build(job, job.members, job.start_states)
    if job.start_states is None and job.spec.needs_rows:
        first = next(stream.windows(0))
        plans = [replace(plan, rows=torch.arange(len(first.dense))) for plan in job.plans]
        _start_from_rows(net, _on_device(job, first), plans, range(len(plans)))
    return train_stack(net, _on_device(job), job.plans, job.config, callbacks, stream)


def first_states(job: Job) -> tuple[dict[str, Tensor], ...]:
    """The weights that a job's members begin with."""
    net = _build(job, job.members, job.start_states)
    if job.start_states is None and job.spec.needs_rows:
        _start_from_rows(net, _on_device(job), job.plans, range(len(job.plans)))
    return tuple(net.member_state(i) for i in range(len(job.members)))


def activation_key(spec: ActivationSpec) -> object:
    """Return a key that is equal for specifications that build the same module."""
    if isinstance(spec, functools.partial):
        return (spec.func, repr(spec.args), repr(sorted(spec.keywords.items())))
    return spec


@dataclass(frozen=True)
class _Place:
    """One member of one job."""

    job: int
    member: int


def train_jobs(
    jobs: Sequence[Job],
    callbacks: Sequence[Callback] = (),
    on_progress: Callable[[float], None] | None = None,
    *,
    on_jobs: Callable[[dict[int, list[MemberResult]]], None] | None = None,
    skip: Collection[int] = (),
    n_jobs: int | None = None,
    keep_optimizers: bool = True,
    watch: Watch | None = None,
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
    skip : collection of int, default=()
        Positions of jobs that need no training. Stacks are those of all jobs all the same, as the
        last digits of a member's result depend on its stack; one of such jobs alone is left out.
    n_jobs : int, optional
        Stacks that train at the same time, in threads unless joblib's current backend is another.
        By default, for several jobs on a CPU without callbacks, as many as torch has threads: a
        small network's operations are too short to be shared out.
    keep_optimizers : bool, default=True
        Keep the optimisers' states, twice the size of the weights, to go on from later.
    watch : callable, optional
        Gives each stack callbacks of its own, or leaves it out; not for stacks in processes.

    Returns
    -------
    list of list of MemberResult
        One list a job, in the jobs' order; empty where it was left out.
    """
    results: list[list[MemberResult | None]] = [[None] * len(job.members) for job in jobs]
    stacks, n_skipped = [], 0
    planned = plan_stacks(jobs)
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
    on_cpu = all(job.device.type == "cpu" for job in jobs)
    if n_jobs is None and len(jobs) > 1 and not callbacks and on_cpu:
        n_jobs = min(torch.get_num_threads(), len(stacks))
    board = _Board(len(stacks), n_skipped, on_progress)
    if n_jobs in (None, 0, 1):
        outputs = (_train_watched(jobs, s, callbacks, _beginning(watch, s)) for s in stacks)
    else:
        outputs = _train_side_by_side(jobs, stacks, n_jobs, board, watch)
    with closing(outputs):
        for i, (stack, trained) in enumerate(zip(stacks, outputs, strict=False)):
            for place, result in zip(stack if trained else (), trained, strict=True):
                if not keep_optimizers:
                    result.optimizer = {}
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


class _Watched(Callback):
    """Tells the board of a stack's epochs, and ends it where the board says so."""

    def __init__(self, board: _Board, stack: int) -> None:
        self.board, self.stack = board, stack

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.board.tell(self.stack, self.n_members * report.epoch / report.max_epochs)
        return self.board.stopped


def _train_side_by_side(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[_Place]],
    n_jobs: int,
    board: _Board,
    watch: Watch | None,
) -> Generator[list[MemberResult]]:
    """The stacks' results in order; each thread or process has its share of torch's threads."""
    try:
        parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    except ValueError:  # backends that give all results at once, as "multiprocessing"
        parallel = Parallel(n_jobs=n_jobs, prefer="threads")
    n_threads = torch.get_num_threads()
    share = max(1, n_threads // effective_n_jobs(n_jobs))
    tasks = (
        delayed(_train_with)(
            share, *_extract(jobs, stack), (_Watched(board, i),), _beginning(watch, stack)
        )
        for i, stack in enumerate(stacks)
    )
    outputs = (trained for trained in parallel(tasks))
    finished = 0
    try:
        for trained in outputs:
            finished += 1
            yield trained
    finally:
        if finished == len(stacks):
            next(outputs, None)  # it is not cancelled, but done
        else:  # after an interrupt or an error
            board.stopped = True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the rest is cancelled
                outputs.close()
        torch.set_num_threads(n_threads)  # what threads set is what later ones begin with


def _train_with(n_threads: int, *arguments: Any) -> list[MemberResult]:
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)  # of this thread, or of a process that waits for more
    mind_forks()
    return _train_watched(*arguments)


def _extract(jobs: Sequence[Job], stack: Sequence[_Place]) -> tuple[list[Job], list[_Place]]:
    """The jobs that a stack needs, and the stack in their numbering: what a process is sent."""
    needed = sorted({place.job for place in stack})
    return [jobs[i] for i in needed], [
        _Place(needed.index(place.job), place.member) for place in stack
    ]


def _beginning(
    watch: Watch | None, stack: Sequence[_Place]
) -> Callable[[], Sequence[Callback] | None] | None:
    if watch is None:
        return None
    return functools.partial(watch, [(place.job, place.member) for place in stack])


def _train_watched(
    jobs: Sequence[Job],
    stack: Sequence[_Place],
    callbacks: Sequence[Callback],
    begin: Callable[[], Sequence[Callback] | None] | None,
) -> list[MemberResult]:
    """Train a stack with callbacks of its own; no results where it is left out."""
    own = () if begin is None else begin()
    return [] if own is None else _train(jobs, stack, (*callbacks, *own))


def _train(
    jobs: Sequence[Job], stack: Sequence[_Place], callbacks: Sequence[Callback]
) -> list[MemberResult]:
    if jobs[stack[0].job].config.optimizer.solver == "lbfgs":
        return [_train_alone(jobs[place.job], place.member) for place in stack]
    return _train_together(jobs, stack, callbacks)


def plan_stacks(jobs: Sequence[Job]) -> list[list[_Place]]:
    """Split the members of the jobs into stacks; equal activations are neighbours in each."""
    groups: dict[object, list[_Place]] = {}
    for i, job in enumerate(jobs):
        key = (job.spec, job.config, job.device)
        groups.setdefault(key, []).extend(_Place(i, m) for m in range(len(job.members)))
    stacks = []
    for places in groups.values():
        first: dict[object, int] = {}  # activations in the order of their first member
        for place in places:
            spec = jobs[place.job].members[place.member].activation
            first.setdefault(activation_key(spec), len(first))

        def rank(place: _Place, first: dict[object, int] = first) -> int:
            return first[activation_key(jobs[place.job].members[place.member].activation)]

        job = jobs[places[0].job]
        n_rows = max(len(plan.rows) for p in places for plan in jobs[p.job].plans)
        units = min(job.config.batch_size, n_rows) * job.spec.peak_units
        size = max(1, _STACK_UNITS.get(job.device.type, 1 << 26) // units)
        places = sorted(places, key=rank)
        n_stacks = -(-len(places) // size)
        if n_stacks > 1:
            n_stacks = min(-(-n_stacks // _EVEN) * _EVEN, len(places))
        edges = [i * len(places) // n_stacks for i in range(n_stacks + 1)]
        stacks += [places[start:stop] for start, stop in pairwise(edges)]
    return stacks


def _build(
    job: Job, members: Sequence[Member], states: Sequence[dict[str, Tensor] | None] | None
) -> TableNetwork:
    """The network, its members in their start states where they have one."""
    net = job.spec.build(members, dtype=job.config.precision.dtype, device=job.device)
    for i, state in enumerate(states or ()):
        if state is not None:
            net.load_member(i, state)
    return net


def _on_device(job: Job, rows: Rows | None = None) -> Rows:
    return (rows or job.rows).each(lambda tensor: tensor.to(job.device))


def _train_alone(job: Job, member: int) -> MemberResult:
    states = None if job.start_states is None else [job.start_states[member]]
    net, rows, plan = _build(job, [job.members[member]], states), _on_device(job), job.plans[member]
    if states is None and job.spec.needs_rows:
        _start_from_rows(net, rows, [plan], [0])
    return train_lbfgs(net, rows, plan, job.config, job.max_fun)


def _train_together(
    jobs: Sequence[Job], stack: Sequence[_Place], callbacks: Sequence[Callback]
) -> list[MemberResult]:
    head = jobs[stack[0].job]
    offsets: dict[int, int] = {}  # a table that several jobs share is loaded once
    tables: list[Rows] = []
    for place in stack:
        rows = jobs[place.job].rows
        if id(rows) not in offsets:
            offsets[id(rows)] = sum(len(t.dense) for t in tables)
            tables.append(rows)
    members, plans, states = [], [], []
    canonical: dict[object, ActivationSpec] = {}

    @functools.cache  # one tensor for all members of a job
    def shifted(rows: Tensor, offset: int) -> Tensor:
        return rows + offset if offset else rows

    for place in stack:
        job = jobs[place.job]
        member, plan = job.members[place.member], job.plans[place.member]
        states.append(None if job.start_states is None else job.start_states[place.member])
        offset = offsets[id(job.rows)]
        # equal partials become one object, so that their members share a slice
        spec = canonical.setdefault(activation_key(member.activation), member.activation)
        members.append(replace(member, activation=spec))
        plans.append(
            replace(
                plan,
                rows=shifted(plan.rows, offset),
                val_rows=None if plan.val_rows is None else shifted(plan.val_rows, offset),
            )
        )
    net, rows = _build(head, members, states), _on_device(head, concatenated(tables))
    if head.spec.needs_rows:
        _start_from_rows(net, rows, plans, [i for i, state in enumerate(states) if state is None])
    return train_stack(net, rows, plans, head.config, callbacks)


def _start_from_rows(
    net: TableNetwork, rows: Rows, plans: Sequence[MemberPlan], members: Sequence[int]
) -> None:
    """Let networks that start from rows see some of each member's own."""
    if not members:
        return
    seeds = [derive(plan.seed, Purpose.FIRST_ROWS) for plan in plans]
    chosen = []
    for plan, seed in zip(plans, seeds, strict=True):
        draws = np.random.default_rng(seed).integers(len(plan.rows), size=_FIRST_ROWS)
        chosen.append(plan.rows[torch.from_numpy(draws)])
    index = torch.stack(chosen).to(rows.dense.device)
    codes = None if rows.codes is None else rows.codes[index]
    net.start_from(rows.dense[index], codes, seeds, members)
