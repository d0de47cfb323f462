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
from combutab.core.device import guard_forks
from combutab.core.parallel import Failed, attempt, completed, on_cluster, unwanted
from combutab.core.rng import Stream, fold_in
from combutab.core.splits import neighbour_blocks, validation_parts
from combutab.core.tasks import fit_task, has_callbacks
from combutab.core.threads import max_threads, set_threads
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

# ---- Stacks of members: whose they are, how many members share one, and the training of one ------

T = TypeVar("T")

# Units of one layer over all members: on a CPU larger stacks leave the caches (measured by
# benchmarks/speed/step.py), on a GPU memory is the bound: a dozen buffers of 256 MB, not measured
# yet. A member's result does not depend on the split.
_STACK_UNITS = {"cpu": 1 << 19, "cuda": 1 << 26}
_FIRST_ROWS = 256  # that initial weights may depend on
_EVEN = 4  # a shape's stacks are a multiple of this many, for as many threads to share evenly


@dataclass(frozen=True)
class OutOfFold:
    """Where the rows that members are scored on are in the table that ``fit`` was given.

    Members set aside different rows, or, where ``same_rows``, all the same ones.
    """

    rows: np.ndarray  # (n,) positions of the encoded rows
    n_given: int  # rows of that table
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

        ``oof_folds_`` numbers the fold of each row of the given table, -1 for rows of no fold.
        ``oof_groups_`` numbers rows whose scores are not independent: groups of rows, or blocks of
        neighbouring rows if all validation rows come after the training rows, as in time series.
        """
        folds, groups = np.full(self.n_given, -1), np.full(self.n_given, -1)
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

    def in_given_order(self, values: np.ndarray) -> np.ndarray:
        """(n, ...) of the encoded rows -> (n_given, ...), NaN for rows that were left out."""
        full = np.full((self.n_given, *values.shape[1:]), np.nan, dtype=values.dtype)
        full[self.rows] = values
        return full


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
    out_of_fold: OutOfFold | None = None  # where rows of the table itself are set aside

    @functools.cached_property
    def stacks(self) -> list[list[Place]]:
        """The members in the stacks that train them."""
        return plan_stacks([self])

    @property
    def has_folds(self) -> bool:
        """Tell whether members have different validation rows."""
        return self.out_of_fold is not None and not self.out_of_fold.same_rows


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
        job = jobs[places[0].job]
        n_rows = max(len(plan.rows) for p in places for plan in jobs[p.job].plans)
        units = min(job.config.batch_size, n_rows) * job.spec.peak_units
        size = max(1, _STACK_UNITS.get(job.device.type, 1 << 26) // units)
        activations = [jobs[p.job].members[p.member].activation for p in places]
        places = sorted_by_activation(places, activations)
        n_stacks = -(-len(places) // size)
        if n_stacks > 1:
            n_stacks = min(-(-n_stacks // _EVEN) * _EVEN, len(places))
        edges = [i * len(places) // n_stacks for i in range(n_stacks + 1)]
        stacks += [places[start:stop] for start, stop in pairwise(edges)]
    return stacks


def sorted_by_activation(things: Iterable[T], activations: Iterable[ActivationSpec]) -> list[T]:
    """Make those of one activation neighbours, in the order of their first one."""
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
    stack: Sequence[Place],
    callbacks: Sequence[Callback] = (),
    file: StackFile | None = None,
) -> list[MemberResult]:
    """Train the members of a stack; one result each, in their order."""
    head = jobs[stack[0].job]
    if head.config.optimizer.solver != "lbfgs":
        net, rows, plans = _assemble(jobs, stack)
        return train_stack(net, rows, plans, head.config, callbacks, file=file)
    results = []
    for place in stack:
        net, rows, (plan,) = _assemble(jobs, [place])
        results.append(train_lbfgs(net, rows, plan, head.config, jobs[place.job].max_fun))
    return results


def train_streamed(
    job: Job, stream: RowStream, callbacks: Sequence[Callback] = ()
) -> list[MemberResult]:
    """Train all members of a job in one stack, on rows that are read once for all of them."""
    begun = job
    if job.start_states is None and job.spec.needs_rows:
        first = next(stream.windows(0))
        whole = torch.arange(len(first.dense))
        plans = tuple(replace(plan, rows=whole, val_rows=None) for plan in job.plans)
        begun = replace(job, rows=first, plans=plans)
    net, _, _ = _assemble([begun], _members_of(job))
    return train_stack(net, _on_device(job.rows, job), job.plans, job.config, callbacks, stream)


def _members_of(job: Job) -> list[Place]:
    return [Place(0, i) for i in range(len(job.members))]


def _on_device(rows: Rows, job: Job) -> Rows:
    return rows.each(lambda tensor: tensor.to(job.device))


def _assemble(
    jobs: Sequence[Job], stack: Sequence[Place]
) -> tuple[TableNetwork, Rows, list[MemberPlan]]:
    """The network of a stack as training begins, its rows on the device, its members' plans."""
    head = jobs[stack[0].job]
    offsets: dict[int, int] = {}  # a table that several jobs share is loaded once
    tables: list[Rows] = []
    for place in stack:
        table = jobs[place.job].rows
        if id(table) not in offsets:
            offsets[id(table)] = sum(len(t.dense) for t in tables)
            tables.append(table)
    members, plans = [], []
    states: dict[int, dict[str, Tensor]] = {}  # of members that do not begin with drawn weights
    canonical: dict[object, ActivationSpec] = {}

    @functools.cache  # one tensor for all members of a job
    def shifted(rows: Tensor, offset: int) -> Tensor:
        return rows + offset if offset else rows

    for i, place in enumerate(stack):
        job = jobs[place.job]
        member, plan = job.members[place.member], job.plans[place.member]
        if job.start_states is not None:
            states[i] = job.start_states[place.member]
        offset = offsets[id(job.rows)]
        # equal partials become one object, so that their members share a slice
        spec = canonical.setdefault(activation_key(member.activation), member.activation)
        members.append(replace(member, activation=spec, drawn=i not in states))
        val_rows = None if plan.val_rows is None else shifted(plan.val_rows, offset)
        plans.append(replace(plan, rows=shifted(plan.rows, offset), val_rows=val_rows))
    net = head.spec.build(members, dtype=head.config.precision.dtype, device=head.device)
    for i, state in states.items():
        net.load_member(i, state)
    rows = _on_device(concatenated(tables), head)
    if head.spec.needs_rows:
        _start_from_rows(net, rows, plans, [i for i in range(len(stack)) if i not in states])
    return net, rows, plans


def concatenated(tables: Sequence[Rows]) -> Rows:
    """All of them, one below the other; where some have weights, rows of others weigh 1."""
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
    """Let networks that start from rows see some of each member's own."""
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


# ---- Settings that warm_start and partial_fit cannot change: those that made network and
# encoding


def check_architecture(wanted: Mapping[str, Any], made: Mapping[str, Any], n_made: int) -> None:
    """Refuse to go on from a fit of ``n_made`` members with other architecture parameters."""
    made = {**made, "n_members": n_made}  # fewer after an interrupt
    for name, value in wanted.items():
        before = made.get(name, value)
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


# ---- scikit-learn's scorers of a network in training, on the rows that are set aside -------------

Scorer = Callable[[Tensor, Tensor, Tensor | None], float]


def output_scorer(
    estimator: Any,
    scoring: Any,
    target: Target,
    rows: Rows,
    y: Tensor,
    name: str = "early_stopping_scoring",
) -> Scorer:
    """The scorer that the parameter of this name asks for, tried on rows with outputs of zero.

    It scores raw outputs, (n_heads, n, n_outputs), by encoded targets and weights: scikit-learn's
    is shown a copy of the estimator that has these outputs. Encoded targets ``y`` of all rows
    decide which class is the positive one.

    Raises ValueError if the scorer is not known, or it cannot score such rows.
    """
    scorer = target.scorer(scoring, y.cpu().numpy()) if isinstance(scoring, str) else scoring
    asked = f"{name}={scoring!r}"
    made = functools.partial(_score_outputs, copy.copy(estimator), target, scorer, asked)
    made(rows.dense.new_zeros(1, len(rows.y), target.n_raw_outputs), rows.y, rows.weight)
    return made


def _score_outputs(
    estimator: Any,
    target: Target,
    scorer: Callable[..., float],
    asked: str,
    raw: Tensor,
    y: Tensor,
    weight: Tensor | None,
) -> float:
    rows, more = np.zeros((raw.shape[1], 1)), {}
    if weight is not None:
        more["sample_weight"] = weight.cpu().numpy().astype(np.float64)
    shown = estimator.with_outputs(raw.cpu().double())
    try:
        return float(scorer(shown, rows, target.decode(y.cpu().numpy()), **more))
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{asked} cannot score the rows set aside: {error}") from error


# ---- The task of a fit, for scikit-learn's callbacks: its epochs, and what they would make -------


@contextmanager
def epoch_tasks(
    estimator: Any, job: Job, learned: Learned, *data: Any, streamed: bool = False
) -> Iterator[list[FitTasks]]:
    """Tell an estimator's callbacks of its fit to X, y, weights, which is done within.

    What it gives is for the training: none where nobody is told of epochs. A ``streamed`` job
    trains as one stack.
    """
    n_epochs = 0 if job.config.optimizer.solver == "lbfgs" else job.config.max_epochs
    if has_callbacks(estimator) and not streamed:
        n_epochs *= len(job.stacks)
    with fit_task(estimator, *data, n_parts=n_epochs) as task:
        yield [FitTasks(task, learned)] if task is not None and task.watched else []


# ---- The training of one job, and of many jobs' stacks, one after the other or side by side ------

_GOLDEN = (5**0.5 - 1) / 2  # its multiples' fractions are spread evenly, however many there are


def train_job(
    job: Job, callbacks: Sequence[Callback] = (), file: Checkpoint | None = None
) -> list[MemberResult]:
    """Train a job, stack by stack: a result a member, but for those that an interrupt left out."""
    results: list[MemberResult | None] = [None] * len(job.members)
    end = time.perf_counter() + job.config.max_seconds
    for i, stack in enumerate(job.stacks):
        part = None if file is None else file.part(f"{i}.")
        left = max(end - time.perf_counter(), 0.0) / (len(job.stacks) - i)
        own = replace(job, config=replace(job.config, max_seconds=left))
        trained = train_one_stack([own], stack, callbacks, part)
        for place, result in zip(stack, trained, strict=True):
            results[place.member] = result
        if is_interrupted(trained):
            break
    return [result for result in results if result is not None]


def is_interrupted(results: Sequence[MemberResult]) -> bool:
    """Tell whether Ctrl-C ended the training."""
    return any(result.reason == "interrupted" for result in results)


def stacks_to_train(
    jobs: Sequence[Job], skip: Collection[int] = (), *, together: bool = True
) -> list[list[Place]]:
    """The stacks of many jobs, but for those whose jobs are all to be skipped.

    Stacks are those of all jobs all the same, as the last digits of a member's result depend on its
    stack. With ``together=False`` each job has stacks of its own.
    """
    if together:
        stacks = plan_stacks(jobs)
    else:
        alone = [(i, stack) for i, job in enumerate(jobs) for stack in job.stacks]
        stacks = [[Place(i, place.member) for place in stack] for i, stack in alone]
    # neighbours have alike activations: spread, the pace so far is that of the rest
    order = np.argsort(np.arange(len(stacks)) * _GOLDEN % 1.0, kind="stable")
    return [stacks[i] for i in order if not all(place.job in skip for place in stacks[i])]


Train = Callable[[Sequence[Job], Sequence[Place], Sequence[Callback]], T]


def train_plain(
    jobs: Sequence[Job], stack: Sequence[Place], callbacks: Sequence[Callback]
) -> list[MemberResult]:
    """Train a stack; its optimisers' states, twice the size of the weights, are let go."""
    results = train_one_stack(jobs, stack, callbacks)
    for result in results:
        result.optimizer = {}
    return results


def train_jobs(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[Place]],
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
    stacks : sequence of sequence of Place
        As ``stacks_to_train`` gives them.
    train : sequence of callable
        What trains each stack, wherever that is done: jobs, stack, callbacks -> what is yielded.
    callbacks : sequence of Callback
        Told of the epochs of stacks that train one after the other.
    n_jobs : int, optional
        Stacks that train at the same time, in threads unless joblib's current backend is another.
        By default, for several jobs without callbacks, as many as a cluster has workers if joblib's
        backend is one ("dask", "ray"), else on a CPU as many as torch may use threads: a small
        network's operations are too short to be shared out.
    on_progress : callable, optional
        Called with the number of members that have been trained so far: where stacks train in
        threads after each epoch, in fractions (one call at a time, from any thread), else after
        each stack.

    Yields
    ------
    (int, object)
        A stack's position, and what its training gave, or `Failed`.
    """
    aside = len(jobs) > 1 and not callbacks
    if n_jobs is None and aside and not on_cluster():
        on_cpu = all(job.device.type == "cpu" for job in jobs)
        n_jobs = min(max_threads(), len(stacks)) if on_cpu else None
    progress = _Progress(len(stacks), on_progress)
    outputs: Generator[tuple[int, T | Failed]]
    if n_jobs in (0, 1) or (n_jobs is None and not (aside and on_cluster())):
        tasks = enumerate(zip(train, stacks, strict=True))
        outputs = ((i, attempt(own, jobs, stack, callbacks)) for i, (own, stack) in tasks)
    else:
        outputs = _train_side_by_side(jobs, stacks, train, n_jobs, progress)
    with closing(outputs):
        for i, found in outputs:
            if not isinstance(found, Failed):
                progress.tell(i, len(stacks[i]))
            yield i, found


class _Progress:
    """The progress of stacks that train at the same time, and whether they shall stop.

    A copy that is sent to another process tells nobody: its stack counts once it is back.
    """

    def __init__(self, n_stacks: int, on_progress: Callable[[float], None] | None) -> None:
        self.stopped = False
        self._trained = [0.0] * n_stacks
        self._on_progress, self._lock = on_progress, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_on_progress": None, "_lock": None}

    def tell(self, stack: int, n_trained: float) -> None:
        """Say how many members' worth of a stack has been trained by now."""
        if self._on_progress is None:
            return
        with self._lock:
            self._trained[stack] = n_trained
            self._on_progress(sum(self._trained))


class _ProgressCallback(Callback):
    """Tells the progress of a stack's epochs, and ends it where the progress says so."""

    def __init__(self, progress: _Progress, stack: int) -> None:
        self.progress, self.stack = progress, stack

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.progress.tell(self.stack, self.n_members * report.epoch / report.max_epochs)
        return self.progress.stopped or unwanted()


def _train_side_by_side(
    jobs: Sequence[Job],
    stacks: Sequence[Sequence[Place]],
    train: Sequence[Train[T]],
    n_jobs: int | None,
    progress: _Progress,
) -> Generator[tuple[int, T | Failed]]:
    """What is found as it is done, in threads or processes with their share of torch's.

    A cluster's workers keep the number of threads that the cluster gave them.
    """
    before, n_threads = torch.get_num_threads(), max_threads()
    share = None if on_cluster() else max(1, n_threads // effective_n_jobs(n_jobs))
    tasks = (
        (share, own, *_extract(jobs, stack), (_ProgressCallback(progress, i),))
        for i, (own, stack) in enumerate(zip(train, stacks, strict=True))
    )
    # what is as long as the data, of which many jobs have the same
    tables = (
        tensor
        for job in jobs
        for tensor in (*job.rows.tensors(), *(t for p in job.plans for t in (p.rows, p.val_rows)))
        if tensor is not None
    )
    outputs = completed(_train_with, tasks, n_jobs=n_jobs, shared=tables)
    try:
        for found in outputs:  # noqa: UP028 - which would close them before the progress is told
            yield found
    finally:
        progress.stopped = True
        outputs.close()
        torch.set_num_threads(before)  # what threads set is what later ones begin with


def _train_with(n_threads: int | None, train: Train[T], *arguments: Any) -> T:
    if n_threads is not None:
        set_threads(n_threads)  # of this thread, or of a process that waits for more
    guard_forks()
    return train(*arguments)


def _extract(jobs: Sequence[Job], stack: Sequence[Place]) -> tuple[list[Job], list[Place]]:
    """The jobs that a stack needs, and the stack in their numbering: what a process is sent."""
    needed = sorted({place.job for place in stack})
    return [jobs[i] for i in needed], [
        Place(needed.index(place.job), place.member) for place in stack
    ]


# ---- One fit of an estimator, shared by ranks: its members, or else the rows of its batches ------


def train_shared(
    job: Job,
    callbacks: Sequence[Callback] = (),
    *,
    file: Checkpoint | None = None,
    stream: RowStream | None = None,
    tables: Callable[[], Sequence[Tensor | None]] | None = None,
) -> list[MemberResult]:
    """Train a job; where ranks share the fit, all return the same results.

    Members are shared out, without a word until they are trained, if there are as many as ranks
    and nobody is told of epochs; else the rows of each batch are. Rank 0 writes the file, and is
    told of epochs. Of a ``stream`` each rank reads all rows.

    Ranks must agree in ``tables``, by default the job's. Raises ValueError if they do not, or
    rows cannot be shared.
    """
    world = current()
    if file is not None:
        tables_read = job.rows.tensors()
        for plan in job.plans if job.has_folds else job.plans[:1]:
            tables_read += [plan.rows, plan.val_rows]
        file.begin(f"{job.device.type} {[plan.seed for plan in job.plans]}", tables_read)

    def train(part: Job, callbacks: Sequence[Callback] = ()) -> list[MemberResult]:
        if stream is not None:
            return train_streamed(part, stream, callbacks)
        return train_job(part, callbacks, file)

    if not isinstance(world, Ranks):
        return train(job, callbacks)
    check_same(world, job.rows.tensors() if tables is None else tables())
    watched = broadcast(bool(callbacks)) or file is not None  # others may have been given none
    if len(job.members) >= world.count and not watched:
        return _share_members(job, world, train)
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
    """Train jobs of a member each, on one table, of which each rank trains a part.

    ``train`` is given the positions of the jobs that it is to skip. Stacks are shared out as they
    are, not their members, whose last digits depend on their stack: the results are one process's.

    Returns what ``train`` does on each rank, in their order.
    """
    check_same(ranks, jobs[0].rows.tensors())
    # those of another device would be of other sizes
    stacks = broadcast([{place.job for place in stack} for stack in plan_stacks(jobs)])
    work = [sum(jobs[i].spec.n_weights for i in stack) for stack in stacks]
    shares, own = [0] * ranks.count, set[int]()
    for i in sorted(range(len(stacks)), key=lambda i: -work[i]):  # the largest first
        rank = shares.index(min(shares))
        shares[rank] += work[i]
        if rank == ranks.number:
            own |= stacks[i]
    return ranks.each(lambda: train({*range(len(jobs))} - own))


def _share_members(
    job: Job, ranks: Ranks, train: Callable[[Job], list[MemberResult]]
) -> list[MemberResult]:
    own = slice(*ranks.span(len(job.members)))
    states = None if job.start_states is None else job.start_states[own]
    part = replace(job, members=job.members[own], plans=job.plans[own], start_states=states)

    def results() -> list[MemberResult]:
        found = train(part)
        if is_interrupted(found):
            raise KeyboardInterrupt
        return found

    return [result for of_rank in ranks.each(results) for result in of_rank]
