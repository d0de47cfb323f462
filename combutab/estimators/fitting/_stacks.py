"""Stacks of members: whose they are, how many members share one, and the training of one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from combutab._random import Purpose, derive
from combutab.estimators.fitting._data import concatenated
from combutab.estimators.fitting._folds import Folds
from combutab.nn import ActivationSpec, Member, NetworkSpec, TableNetwork
from combutab.training import (
    Callback,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    StackFile,
    TrainConfig,
    train_lbfgs,
    train_stack,
)

# Units of one layer over all members: on a CPU larger stacks leave the caches (measured by
# benchmarks/speed/stack.py), on a GPU memory is the bound: a dozen buffers of 256 MB, not measured
# yet. A member's result does not depend on the split.
_STACK_UNITS = {"cpu": 1 << 19, "cuda": 1 << 26}
_FIRST_ROWS = 256  # that initial weights may depend on
_EVEN = 4  # a shape's stacks are a multiple of this many, for as many threads to share evenly


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


@dataclass(frozen=True)
class Place:
    """One member of one job."""

    job: int
    member: int


def plan_stacks(jobs: Sequence[Job]) -> list[list[Place]]:
    """Split the members of the jobs into stacks; equal activations are neighbours in each."""
    groups: dict[object, list[Place]] = {}
    for i, job in enumerate(jobs):
        key = (job.spec, job.config, job.device)
        groups.setdefault(key, []).extend(Place(i, m) for m in range(len(job.members)))
    stacks = []
    for places in groups.values():
        first: dict[object, int] = {}  # activations in the order of their first member
        for place in places:
            spec = jobs[place.job].members[place.member].activation
            first.setdefault(activation_key(spec), len(first))

        def rank(place: Place, first: dict[object, int] = first) -> int:
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


def activation_key(spec: ActivationSpec) -> object:
    """Return a key that is equal for specifications that build the same module."""
    if isinstance(spec, functools.partial):
        return (spec.func, repr(spec.args), repr(sorted(spec.keywords.items())))
    return spec


def train_one_stack(
    jobs: Sequence[Job],
    stack: Sequence[Place],
    callbacks: Sequence[Callback] = (),
    file: StackFile | None = None,
) -> list[MemberResult]:
    """Train the members of a stack; one result each, in their order."""
    if jobs[stack[0].job].config.optimizer.solver == "lbfgs":
        return [_train_alone(jobs[place.job], place.member) for place in stack]
    return _train_together(jobs, stack, callbacks, file)


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
    jobs: Sequence[Job],
    stack: Sequence[Place],
    callbacks: Sequence[Callback],
    file: StackFile | None,
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
    return train_stack(net, rows, plans, head.config, callbacks, file=file)


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
