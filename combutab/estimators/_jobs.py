"""Training jobs: which networks are to be trained on which rows, and their training."""

from __future__ import annotations

import copy
import functools
import hashlib
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import effective_n_jobs
from torch import Tensor

from combutab._model_files import Checkpoint
from combutab.constructions import ConstructedNetwork
from combutab.core.device import guard_forks, max_threads, set_threads
from combutab.core.parallel import Failed, attempt, completed, on_cluster, unwanted
from combutab.core.rng import Stream, fold_in
from combutab.core.splits import neighbour_blocks, validation_parts
from combutab.core.tasks import fit_task, has_callbacks
from combutab.core.world import Ranks, broadcast, check_same, current
from combutab.estimators._targets import Target
from combutab.nn import ActivationSpec, Member, NetworkSpec, TableNetwork
from combutab.training import (
    Callback,
    EpochReport,
    FitTasks,
    Learned,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    StackFile,
    TrainConfig,
    train_lbfgs,
    train_stack,
)

# ---- Stacks of members: their jobs, their sizes, and the training of one stack -------------------

T = TypeVar("T")

# Units of one layer over all members: on a CPU larger stacks leave the caches (measured by
# benchmarks/speed/step.py), on a GPU memory is the bound: a dozen buffers of 256 MB, not measured
# yet. A member's result does not depend on the split.
_STACK_UNITS = {"cpu": 1 << 19, "cuda": 1 << 26}
_FIRST_ROWS = 256  # number of rows of each member on which initial weights may depend
_EVEN = 4  # the number of stacks of a shape is a multiple, so that threads share them evenly


@dataclass(frozen=True)
class OutOfFold:
    """Positions of the encoded rows in the table that was passed to ``fit``.

    Members have different validation rows, or with ``same_rows`` the same ones.
    """

    rows: np.ndarray  # (n,) positions of the encoded rows
    n_given: int  # number of rows of that table
    same_rows: bool = False
    groups: np.ndarray | None = None  # (n,) of the encoded rows

    def parts(self, y: Tensor, train: Tensor, val: Tensor, n_parts: int) -> Tensor:
        """Divide the validation rows of a split into parts, (n_val,), by encoded targets."""
        rows = val.numpy()
        groups = None if self.groups is None else self.groups[rows]
        is_later = self.rows[rows].min() > self.rows[train.numpy()].max()
        parts = validation_parts(y[val].cpu().numpy(), n_parts, groups, in_order=bool(is_later))
        return torch.from_numpy(parts)

    def attributes(self, plans: Sequence[MemberPlan]) -> dict[str, np.ndarray]:
        """Describe the folds of validation rows, as attributes of a fitted estimator.

        ``oof_folds_`` numbers the fold of each row of the given table, -1 for rows of no fold, -2
        for rows that are not used.
        ``oof_groups_`` numbers rows whose scores are not independent: groups of rows, or blocks of
        neighbouring rows if all validation rows come after the training rows, as in time series.
        """
        folds, groups = np.full(self.n_given, -2), np.full(self.n_given, -1)
        folds[self.rows] = -1
        is_later = True
        for number, plan in enumerate(plans):
            if plan.val_rows is None:
                continue
            rows = self.rows[plan.val_rows.numpy()]
            folds[rows] = number
            is_later &= bool(rows.min() >= self.rows[plan.rows.numpy()].max())
        if self.groups is not None:
            groups[self.rows] = self.groups
        elif is_later:
            in_order = np.flatnonzero(folds >= 0)
            groups[in_order] = neighbour_blocks(len(in_order))
        else:
            return {"oof_folds_": folds}
        return {"oof_folds_": folds, "oof_groups_": groups}


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
    out_of_fold: OutOfFold | None = None  # set if validation rows are rows of X

    @functools.cached_property
    def stacks(self) -> list[list[Position]]:
        """The members in the stacks that train them."""
        return plan_stacks([self])

    @property
    def has_folds(self) -> bool:
        """Tell whether members have different validation rows."""
        return self.out_of_fold is not None and not self.out_of_fold.same_rows


@dataclass(frozen=True)
class Position:
    """One member of one job."""

    job: int
    member: int


def plan_stacks(jobs: Sequence[Job]) -> list[list[Position]]:
    """Split the members of the jobs into stacks; equal activations are neighbours in each."""
    groups: dict[object, list[Position]] = {}
    for i, job in enumerate(jobs):
        key = (job.spec, job.config, job.device)
        groups.setdefault(key, []).extend(Position(i, m) for m in range(len(job.members)))
    stacks = []
    for positions in groups.values():
        job = jobs[positions[0].job]
        n_rows = max(len(plan.rows) for p in positions for plan in jobs[p.job].plans)
        units = min(job.config.batch_size, n_rows) * job.spec.peak_units
        size = max(1, _STACK_UNITS.get(job.device.type, 1 << 26) // units)
        activations = [jobs[p.job].members[p.member].activation for p in positions]
        positions = sorted_by_activation(positions, activations)
        n_stacks = -(-len(positions) // size)
        if n_stacks > 1:
            n_stacks = min(-(-n_stacks // _EVEN) * _EVEN, len(positions))
        edges = [i * len(positions) // n_stacks for i in range(n_stacks + 1)]
        stacks += [positions[start:stop] for start, stop in pairwise(edges)]
    return stacks


def sorted_by_activation(things: Iterable[T], activations: Iterable[ActivationSpec]) -> list[T]:
    """Sort by activation, in the order in which activations come first."""
    groups: dict[object, list[T]] = {}
    for thing, activation in zip(things, activations, strict=True):
        groups.setdefault(activation_key(activation), []).append(thing)
    return [thing for group in groups.values() for thing in group]


def activation_key(spec: ActivationSpec) -> object:
    """Return a key that is equal for specifications that build the same module."""
    if isinstance(spec, functools.partial):
        return (spec.func, repr(spec.args), repr(sorted(spec.keywords.items())))
    return spec


def train_one_stack(
    jobs: Sequence[Job],
    stack: Sequence[Position],
    callbacks: Sequence[Callback] = (),
    file: StackFile | None = None,
) -> list[MemberResult]:
    """Train the members of a stack, and return their results in this order."""
    head = jobs[stack[0].job]
    if head.config.optimizer.solver != "lbfgs":
        net, rows, plans = _assemble(jobs, stack)
        return train_stack(net, rows, plans, head.config, callbacks, file=file)
    results = []
    for position in stack:
        net, rows, (plan,) = _assemble(jobs, [position])
        results.append(train_lbfgs(net, rows, plan, head.config, jobs[position.job].max_fun))
    return results


def train_streamed(
    job: Job, callbacks: Sequence[Callback], stream: RowStream
) -> list[MemberResult]:
    """Train all members of a job in one stack, on rows that are read once for all members."""
    first_job = job
    if job.start_states is None and job.spec.needs_rows:
        first = next(stream.windows(0))
        first_rows = torch.arange(len(first.dense))
        plans = tuple(replace(plan, rows=first_rows, val_rows=None) for plan in job.plans)
        first_job = replace(job, rows=first, plans=plans)
    net, _, _ = _assemble([first_job], [Position(0, i) for i in range(len(job.members))])
    rows = job.rows.each(lambda tensor: tensor.to(job.device))
    return train_stack(net, rows, job.plans, job.config, callbacks, stream)


def _assemble(
    jobs: Sequence[Job], stack: Sequence[Position]
) -> tuple[TableNetwork, Rows, list[MemberPlan]]:
    """Build the initial network of a stack, its rows on the device, and the plans of members."""
    head = jobs[stack[0].job]
    offsets: dict[int, int] = {}  # jobs may share a table
    tables: list[Rows] = []
    for position in stack:
        table = jobs[position.job].rows
        if id(table) not in offsets:
            offsets[id(table)] = sum(len(t.dense) for t in tables)
            tables.append(table)
    members, plans = [], []
    states: dict[int, dict[str, Tensor]] = {}  # initial weights that are not drawn
    canonical: dict[object, ActivationSpec] = {}

    @functools.cache  # one tensor for all members of a job
    def shifted(rows: Tensor, offset: int) -> Tensor:
        return rows + offset if offset else rows

    for i, position in enumerate(stack):
        job = jobs[position.job]
        member, plan = job.members[position.member], job.plans[position.member]
        if job.start_states is not None:
            states[i] = job.start_states[position.member]
        offset = offsets[id(job.rows)]
        # equal partials become one object, so that their members share a slice
        spec = canonical.setdefault(activation_key(member.activation), member.activation)
        members.append(replace(member, activation=spec, drawn=i not in states))
        val_rows = None if plan.val_rows is None else shifted(plan.val_rows, offset)
        plans.append(replace(plan, rows=shifted(plan.rows, offset), val_rows=val_rows))
    net = head.spec.build(members, dtype=head.config.precision.dtype, device=head.device)
    for i, state in states.items():
        net.load_member(i, state)
    rows = concatenated(tables).each(lambda tensor: tensor.to(head.device))
    for i, place in enumerate(stack):
        if i not in states and len(plans[i].rows):  # a stream has no rows yet
            train_rows = jobs[place.job].plans[place.member].rows
            net.ignore_inputs(i, *_unseen_inputs(jobs[place.job].rows, train_rows))
    if head.spec.needs_rows:
        _start_from_rows(net, rows, plans, [i for i in range(len(stack)) if i not in states])
    return net, rows, plans


def _unseen_inputs(rows: Rows, train_rows: Tensor) -> tuple[list[int], list[Tensor]]:
    """Find columns that vary in other rows than the training rows, and codes of other rows.

    The training rows do not say what another value of such a column means. Columns with codes come
    after the dense columns.
    """
    n_dense = rows.dense.shape[1]
    codes = rows.dense.new_zeros(len(rows.dense), 0) if rows.codes is None else rows.codes
    columns = _constant_columns(rows.dense, train_rows)
    columns += [n_dense + j for j in _constant_columns(codes, train_rows)]
    unseen = []
    for column in codes.T:
        distinct = column.unique()
        unseen.append(distinct[~torch.isin(distinct, column[train_rows])])
    return columns, unseen


def _constant_columns(table: Tensor, train_rows: Tensor) -> list[int]:
    """Find the columns that have one value in the training rows, and another one elsewhere."""
    first, columns = table[train_rows[0]], torch.arange(table.shape[1])
    for part in train_rows.split(1000):
        columns = columns[(table[part[:, None], columns] == first[columns]).all(0)]
    return columns[(table[:, columns] != first[columns]).any(0)].tolist()


def concatenated(tables: Sequence[Rows]) -> Rows:
    """Concatenate tables. If some have weights, the rows of the others have weight 1."""
    if len(tables) == 1:
        return tables[0]
    if any(t.weight is not None for t in tables):
        tables = [
            replace(t, weight=torch.ones_like(t.dense[:, 0])) if t.weight is None else t
            for t in tables
        ]
    columns = zip(*(t.tensors() for t in tables), strict=True)
    dense, y, codes, weight = ([p for p in parts if p is not None] for parts in columns)
    return Rows(
        torch.cat(dense),
        torch.cat(y),
        torch.cat(codes) if codes else None,
        torch.cat(weight) if weight else None,
    )


def _start_from_rows(
    net: TableNetwork, rows: Rows, plans: Sequence[MemberPlan], members: Sequence[int]
) -> None:
    """Initialize networks that depend on rows from some training rows of each member."""
    if not members:
        return
    seeds = [fold_in(plan.seed, Stream.FIRST_ROWS) for plan in plans]
    chosen = []
    for plan, seed in zip(plans, seeds, strict=True):
        draws = np.random.default_rng(seed).integers(len(plan.rows), size=_FIRST_ROWS)
        chosen.append(plan.rows[torch.from_numpy(draws)])
    index = torch.stack(chosen).to(rows.dense.device)
    codes = None if rows.codes is None else rows.codes[index]
    net.start_from(rows.dense[index], codes, seeds, members)


# ---- Parameters that warm_start and partial_fit cannot change ------------------------------------


def check_architecture(
    parameters: Mapping[str, Any], fitted: Mapping[str, Any], n_fitted: int
) -> None:
    """Refuse to continue a fit of ``n_fitted`` members with other architecture parameters."""
    fitted = {**fitted, "n_members": n_fitted}  # fewer after an interrupt
    for name, value in parameters.items():
        before = fitted.get(name, value)
        if value != before and (name, value) != ("n_members", "auto"):
            raise ValueError(
                f"{name}={repr(value)[:80]}, but the fitted network that warm_start or "
                f"partial_fit goes on from was made with {name}={repr(before)[:80]}; set that "
                "again, or start again: set warm_start=False and call fit"
            )


def comparable_parameter(value: Any, name: str) -> Any:
    """Convert a parameter to a value that can be compared and written to a file."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, ConstructedNetwork):
        return _weights_digest(value)
    if isinstance(value, Integral) and name == "hidden_layer_sizes":
        return (int(value),)
    if callable(value):
        return activation_key(value)
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return tuple(comparable_parameter(element, "") for element in value)
    return value


def _weights_digest(network: ConstructedNetwork) -> str:
    """Return a digest that is equal for networks of equal weights, before and after a file."""
    digest = hashlib.sha256(repr(network.inputs).encode())
    with torch.no_grad():
        for weights in network.parameters():
            digest.update(weights.cpu().double().numpy().tobytes())
    return f"a network of weights {digest.hexdigest()[:16]}"


# ---- scikit-learn's scorers of a network in training, on validation rows -------------------------

Scorer = Callable[[Tensor, Tensor, Tensor | None], float]


def output_scorer(
    estimator: Any,
    scoring: Any,
    target: Target,
    rows: Rows,
    y: Tensor,
    name: str = "early_stopping_scoring",
) -> Scorer:
    """Make the scorer of the parameter ``name``, and try it on rows with outputs of zero.

    It scores raw outputs, (n_heads, n, n_outputs), by encoded targets and weights. scikit-learn's
    scorer gets a copy of the estimator that predicts these outputs. Encoded targets ``y`` of all
    rows decide which class is the positive one.

    Raises ValueError if the scorer is not known, or it cannot score such rows.
    """
    scorer = target.scorer(scoring, y.cpu().numpy()) if isinstance(scoring, str) else scoring
    label = f"{name}={scoring!r}"
    score_outputs = functools.partial(_score_outputs, copy.copy(estimator), target, scorer, label)
    score_outputs(rows.dense.new_zeros(1, len(rows.y), target.n_raw_outputs), rows.y, rows.weight)
    return score_outputs


def _score_outputs(
    estimator: Any,
    target: Target,
    scorer: Callable[..., float],
    label: str,
    raw: Tensor,
    y: Tensor,
    weight: Tensor | None,
) -> float:
    rows, more = np.zeros((raw.shape[1], 1)), {}
    if weight is not None:
        more["sample_weight"] = weight.cpu().numpy().astype(np.float64)
    fitted = copy.copy(estimator)  # predicts these raw outputs for any rows
    vars(fitted).update(_given_outputs=raw.cpu().double(), _states=[])
    try:
        return float(scorer(fitted, rows, target.decode(y.cpu().numpy()), **more))
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{label} cannot score the rows set aside: {error}") from error


# ---- The task of a fit, for scikit-learn's callbacks: its epochs ---------------------------------


@contextmanager
def epoch_tasks(
    estimator: Any, job: Job, learned: Learned, *data: Any, streamed: bool = False
) -> Iterator[list[FitTasks]]:
    """Report the fit to X, y and weights in this context to the callbacks of an estimator.

    The context yields callbacks for the training, none if the estimator has no callbacks. A
    ``streamed`` job trains as one stack.
    """
    n_epochs = 0 if job.config.optimizer.solver == "lbfgs" else job.config.max_epochs
    if has_callbacks(estimator) and not streamed:
        n_epochs *= len(job.stacks)
    with fit_task(estimator, *data, n_parts=n_epochs) as task:
        yield [] if task is None or not has_callbacks(estimator) else [FitTasks(task, learned)]


# ---- The training of one job, and of many jobs' stacks, one after the other or side by side ------

_GOLDEN = (5**0.5 - 1) / 2  # the fractions of its multiples are spread evenly


def train_job(
    job: Job, callbacks: Sequence[Callback] = (), file: Checkpoint | None = None
) -> list[MemberResult]:
    """Train the stacks of a job; after an interrupt, only begun members have results."""
    results: list[MemberResult | None] = [None] * len(job.members)
    end = time.perf_counter() + job.config.max_seconds
    for i, stack in enumerate(job.stacks):
        part = None if file is None else file.part(f"{i}.")
        seconds = max(end - time.perf_counter(), 0.0) / (len(job.stacks) - i)
        part_job = replace(job, config=replace(job.config, max_seconds=seconds))
        trained = train_one_stack([part_job], stack, callbacks, part)
        for position, result in zip(stack, trained, strict=True):
            results[position.member] = result
        if is_interrupted(trained):
            break
    return [result for result in results if result is not None]


def is_interrupted(results: Sequence[MemberResult]) -> bool:
    """Tell whether Ctrl-C ended the training."""
    return any(result.reason == "interrupted" for result in results)


def stacks_to_train(
    jobs: Sequence[Job], skip: Collection[int] = (), *, together: bool = True
) -> list[list[Position]]:
    """Plan the stacks of many jobs, without those whose jobs are all skipped.

    Skipped jobs do not change the other stacks, because the last digits of a result depend on the
    stack. With ``together=False`` no stack has members of several jobs.
    """
    if together:
        stacks = plan_stacks(jobs)
    else:
        alone = [(i, stack) for i, job in enumerate(jobs) for stack in job.stacks]
        stacks = [[Position(i, position.member) for position in stack] for i, stack in alone]
    # neighbours have similar activations; spread stacks give a steady estimate of the time
    order = np.argsort(np.arange(len(stacks)) * _GOLDEN % 1.0, kind="stable")
    return [stacks[i] for i in order if not all(position.job in skip for position in stacks[i])]


Train = Callable[[Sequence[Job], Sequence[Position], Sequence[Callback]], T]


def train_plain(
    jobs: Sequence[Job], stack: Sequence[Position], callbacks: Sequence[Callback]
) -> list[MemberResult]:
    """Train a stack, and drop the states of the optimiser, which are larger than the weights."""
    results = train_one_stack(jobs, stack, callbacks)
    for result in results:
        result.optimizer = {}
    return results


def train_jobs(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[Position]],
    train: Sequence[Train[T]],
    callbacks: Sequence[Callback] = (),
    *,
    n_jobs: int | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Generator[tuple[int, T | Failed]]:
    """Train stacks of many jobs.

    Parameters
    ----------
    jobs : sequence of Job
    stacks : sequence of sequence of Position
        As ``stacks_to_train`` gives them.
    train : sequence of callable
        Function that trains each stack, in any process: jobs, stack, callbacks -> result.
    callbacks : sequence of Callback
        Called for the epochs of stacks that train sequentially.
    n_jobs : int, optional
        Stacks that train at the same time, in threads unless joblib's current backend is another.
        By default, for several jobs without callbacks, the number of workers if joblib's backend is
        a cluster ("dask", "ray"), else on a CPU the number of torch threads: operations of a small
        network are too short for several threads.
    on_progress : callable, optional
        Called with the number of members that have been trained so far. If stacks train in
        threads, it is called after each epoch with fractions (one call at a time, from any thread),
        else after each stack.

    Yields
    ------
    (int, object)
        Position of a stack, and the result of its training, or `Failed`.
    """
    is_shared = len(jobs) > 1 and not callbacks
    if n_jobs is None and is_shared and not on_cluster():
        on_cpu = all(job.device.type == "cpu" for job in jobs)
        n_jobs = min(max_threads(), len(stacks)) if on_cpu else None
    progress = _Progress(len(stacks), on_progress)
    outputs: Generator[tuple[int, T | Failed]]
    if n_jobs in (0, 1) or (n_jobs is None and not (is_shared and on_cluster())):
        tasks = enumerate(zip(train, stacks, strict=True))
        outputs = (
            (i, attempt(train_stack, jobs, stack, callbacks)) for i, (train_stack, stack) in tasks
        )
    else:
        outputs = _train_side_by_side(jobs, stacks, train, n_jobs, progress)
    with closing(outputs):
        for i, output in outputs:
            if not isinstance(output, Failed):
                progress.tell(i, len(stacks[i]))
            yield i, output


class _Progress:
    """The progress of stacks that train at the same time, and whether they shall stop.

    A copy in another process does not call ``on_progress``: its stack counts when it is done.
    """

    def __init__(self, n_stacks: int, on_progress: Callable[[float], None] | None) -> None:
        self.stopped = False
        self._trained = [0.0] * n_stacks
        self._on_progress, self._lock = on_progress, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_on_progress": None, "_lock": None}

    def tell(self, stack: int, n_trained: float) -> None:
        """Set the number of trained members of a stack, and report the total."""
        if self._on_progress is None:
            return
        with self._lock:
            self._trained[stack] = n_trained
            self._on_progress(sum(self._trained))


class _ProgressCallback(Callback):
    """Reports the epochs of a stack, and stops it after the progress is stopped."""

    def __init__(self, progress: _Progress, stack: int) -> None:
        self.progress, self.stack = progress, stack

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.progress.tell(self.stack, self.n_members * report.epoch / report.max_epochs)
        return self.progress.stopped or unwanted()


def _train_side_by_side(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[Position]],
    train: Sequence[Train[T]],
    n_jobs: int | None,
    progress: _Progress,
) -> Generator[tuple[int, T | Failed]]:
    """Train stacks in threads or processes that share the torch threads; yields finished ones.

    Workers of a cluster have the number of threads that the cluster sets.
    """
    before, n_threads = torch.get_num_threads(), max_threads()
    share = None if on_cluster() else max(1, n_threads // effective_n_jobs(n_jobs))
    tasks = (
        (share, train_stack, *_extract(jobs, stack), (_ProgressCallback(progress, i),))
        for i, (train_stack, stack) in enumerate(zip(train, stacks, strict=True))
    )
    # tensors with the length of the data, which many jobs share
    tables = (
        tensor
        for job in jobs
        for tensor in (*job.rows.tensors(), *(t for p in job.plans for t in (p.rows, p.val_rows)))
        if tensor is not None
    )
    outputs = completed(_train_with, tasks, n_jobs=n_jobs, shared=tables)
    try:
        for output in outputs:  # noqa: UP028 - yield from would close them before the progress stops
            yield output
    finally:
        progress.stopped = True
        outputs.close()
        torch.set_num_threads(before)  # threads change the number for later threads


def _train_with(n_threads: int | None, train: Train[T], *arguments: Any) -> T:
    if n_threads is not None:
        set_threads(n_threads)  # in this thread, or in a process that is used again
    guard_forks()
    return train(*arguments)


def _extract(jobs: Sequence[Job], stack: Sequence[Position]) -> tuple[list[Job], list[Position]]:
    """Select the jobs of a stack to send to a process, and renumber the stack."""
    needed = sorted({position.job for position in stack})
    return [jobs[i] for i in needed], [
        Position(needed.index(position.job), position.member) for position in stack
    ]


# ---- One fit of an estimator, shared by ranks: by members, or by rows of batches -----------------


def train_shared(
    job: Job,
    callbacks: Sequence[Callback] = (),
    *,
    file: Checkpoint | None = None,
    stream: RowStream | None = None,
    tables: Callable[[], Sequence[Tensor | None]] | None = None,
) -> list[MemberResult]:
    """Train a job; if ranks share the fit, all return the same results.

    Ranks divide the members if there are not fewer members than ranks, and neither callbacks
    nor a checkpoint; else they divide the rows of each batch. Rank 0 writes the file and calls the
    callbacks. Each rank reads all rows of a ``stream``.

    Raises ValueError if ``tables``, by default those of the job, differ between ranks, or rows
    cannot be shared.
    """
    world = current()
    if file is not None:
        tables_read = job.rows.tensors()
        for plan in job.plans if job.has_folds else job.plans[:1]:
            tables_read += [plan.rows, plan.val_rows]
        file.begin(f"{job.device.type} {[plan.seed for plan in job.plans]}", tables_read)
    train: Callable[[Job, Sequence[Callback]], list[MemberResult]]
    if stream is None:
        train = functools.partial(train_job, file=file)
    else:
        train = functools.partial(train_streamed, stream=stream)
    if not isinstance(world, Ranks):
        return train(job, callbacks)
    check_same(world, job.rows.tensors() if tables is None else tables())
    watched = broadcast(bool(callbacks)) or file is not None  # callbacks of rank 0 count
    if len(job.members) >= world.count and not watched:
        return world.share(len(job.members), lambda members: train(_part_of(job, members), ()))
    if job.config.optimizer.solver == "lbfgs":
        raise ValueError(
            f"solver='lbfgs' takes all rows at once, which {world.count} ranks cannot share: use "
            f"'adam', 'adamw' or 'sgd', or n_members of at least {world.count}, which are then "
            "shared out"
        )
    return train(job, callbacks)


def train_shared_jobs(
    ranks: Ranks, jobs: Sequence[Job], train: Callable[[Collection[int]], T]
) -> list[T]:
    """Train jobs with one member on one table; ranks divide the stacks between them.

    ``train`` takes the positions of the jobs to skip. Stacks are not divided, because the last
    digits of a result depend on the stack, so that results are those of one process.

    Returns the result of ``train`` on each rank, in their order.
    """
    check_same(ranks, jobs[0].rows.tensors())
    # stacks of another device may have other sizes
    stacks = broadcast([{position.job for position in stack} for stack in plan_stacks(jobs)])
    work = [sum(jobs[i].spec.n_weights for i in stack) for stack in stacks]
    shares, rank_jobs = [0] * ranks.count, set[int]()
    for i in sorted(range(len(stacks)), key=lambda i: -work[i]):  # the largest first
        rank = shares.index(min(shares))
        shares[rank] += work[i]
        if rank == ranks.number:
            rank_jobs |= stacks[i]
    return ranks.each(lambda: train({*range(len(jobs))} - rank_jobs))


def _part_of(job: Job, members: slice) -> Job:
    states = None if job.start_states is None else job.start_states[members]
    return replace(job, members=job.members[members], plans=job.plans[members], start_states=states)
