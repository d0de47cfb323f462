"""Training jobs: which networks are to be trained on which rows, and their training."""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.metrics import check_scoring
from torch import Tensor

from combutab._model_files import CheckpointFile, with_prefix
from combutab.constructions import ConstructedNetwork
from combutab.core.device import guard_forks
from combutab.core.fields import text, whole
from combutab.core.files import reading
from combutab.core.parallel import Failed, attempt, completed, on_cluster, unwanted
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.tasks import fit_task, has_callbacks
from combutab.core.world import Ranks, broadcast, check_same, current
from combutab.estimators._data import Folds, concatenated
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
    net, _, _ = _assemble([begun], _places(job))
    return train_stack(net, _on_device(job.rows, job), job.plans, job.config, callbacks, stream)


def first_states(job: Job) -> tuple[dict[str, Tensor], ...]:
    """The weights that a job's members begin with."""
    net, _, _ = _assemble([job], _places(job))
    return tuple(net.member_state(i) for i in range(len(job.members)))


def _places(job: Job) -> list[Place]:
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
        members.append(replace(member, activation=spec))
        val_rows = None if plan.val_rows is None else shifted(plan.val_rows, offset)
        plans.append(replace(plan, rows=shifted(plan.rows, offset), val_rows=val_rows))
    net = head.spec.build(members, dtype=head.config.precision.dtype, device=head.device)
    for i, state in states.items():
        net.load_member(i, state)
    rows = _on_device(concatenated(tables), head)
    if head.spec.needs_rows:
        _start_from_rows(net, rows, plans, [i for i in range(len(stack)) if i not in states])
    return net, rows, plans


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

# Parameters of the training, which take effect at once. All others are settled by the first fit.
_OF_TRAINING = {
    *("solver", "alpha", "batch_size", "learning_rate", "learning_rate_init", "power_t"),
    *("max_iter", "shuffle", "random_state", "tol", "verbose", "warm_start", "momentum"),
    *("nesterovs_momentum", "early_stopping", "validation_fraction", "beta_1", "beta_2"),
    *("early_stopping_scoring", "learning_rate_factors", "regularization_schedule"),
    *("epsilon", "n_iter_no_change", "max_fun", "dropout", "weight_decay", "max_grad_norm"),
    *("device", "precision", "track_metric", "callbacks", "class_weight", "label_smoothing"),
    *("calibration", "bagging"),
}


def settled(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a fit settles, as values that can be compared and written to a file."""
    return {n: _comparable(v, n) for n, v in parameters.items() if n not in _OF_TRAINING}


def check_settled(
    wanted: Mapping[str, Any], made: Mapping[str, Any], n_wanted: int, n_made: int
) -> None:
    """Refuse to go on from a fit with settled parameters, or members, that it could not follow."""
    for name, value in wanted.items():
        made_with = made.get(name, value)
        if value != made_with:
            raise ValueError(
                f"{name}={_shortened(value)}, but the fitted network that warm_start or "
                f"partial_fit goes on from was made with {name}={_shortened(made_with)}; set that "
                "again, or begin anew: set warm_start=False and call fit"
            )
    if n_made != n_wanted:  # after an interrupt
        raise ValueError(
            f"n_members={n_wanted}, but the fitted network that warm_start or partial_fit goes on "
            f"from has {n_made}; set that, or begin anew: set warm_start=False and call fit"
        )


def _comparable(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, ConstructedNetwork):
        return _weights_digest(value)
    if isinstance(value, Integral) and name == "hidden_layer_sizes":
        return (int(value),)
    if callable(value):
        return activation_key(value)
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return tuple(_comparable(each, "") for each in value)
    return value


def _weights_digest(network: ConstructedNetwork) -> str:
    """Return a digest that is equal for networks of equal weights, before and after a file."""
    digest = hashlib.sha256(repr(network.inputs).encode())
    with torch.no_grad():
        for weights in network.parameters():
            digest.update(weights.cpu().double().numpy().tobytes())
    return f"a network of weights {digest.hexdigest()[:16]}"


def _shortened(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:60]}..."


# ---- scikit-learn's scorers of a network in training, on the rows that are set aside -------------


@dataclass(frozen=True, eq=False)
class OutputScorer:
    """A scorer of raw outputs: (n_heads, n, n_outputs), encoded targets, weights -> its score.

    The scorer is shown a copy of ``estimator``, the one in training, that has these outputs.
    """

    estimator: Any
    target: Target
    scorer: Callable[..., float]
    scoring: Any  # what the user asked for

    def __call__(self, raw: Tensor, y: Tensor, weight: Tensor | None) -> float:
        shown = self.estimator.with_outputs(raw.cpu().double())
        rows, more = np.zeros((raw.shape[1], 1)), {}
        if weight is not None:
            more["sample_weight"] = weight.cpu().numpy().astype(np.float64)
        try:
            return float(self.scorer(shown, rows, self.target.decode(y.cpu().numpy()), **more))
        except ValueError as error:
            raise ValueError(
                f"early_stopping_scoring={self.scoring!r} cannot score the rows set aside: {error}"
            ) from error


def output_scorer(estimator: Any, scoring: Any, target: Target, rows: Rows) -> OutputScorer:
    """The scorer that ``early_stopping_scoring`` names, tried on rows with outputs of zero.

    Raises ValueError if scikit-learn knows none of that name, or it cannot score such rows.
    """
    scorer = check_scoring(estimator, scoring=scoring)
    made = OutputScorer(copy.copy(estimator), target, scorer, scoring)
    made(rows.dense.new_zeros(1, len(rows.y), target.n_raw_outputs), rows.y, rows.weight)
    return made


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
        n_epochs *= len(plan_stacks([job]))
    with fit_task(estimator, *data, n_parts=n_epochs) as task:
        yield [FitTasks(task, learned)] if task is not None and task.watched else []


# ---- The training of many jobs' stacks, one after the other or side by side ----------------------

_Trained = tuple[list[MemberResult], "StackWatch | None"]
_GOLDEN = (5**0.5 - 1) / 2  # its multiples' fractions are spread evenly, however many there are


class StackWatch(Callback):
    """Follows one stack, wherever that trains: it is sent along, and back with the results."""

    def begins(self) -> bool:
        """Tell whether the stack is to be trained, when and where it would begin."""
        return True

    def take(self, other: StackWatch) -> None:
        """Take over what this one's copy has noted in another process; here it is this one."""


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
    file: FitCheckpoint | None = None,
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
    file : FitCheckpoint, optional
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
    if len(jobs) > 1:
        # neighbours have alike activations: spread, the pace so far is that of the rest
        order = np.argsort(np.arange(len(planned)) * _GOLDEN % 1.0, kind="stable")
        planned = [planned[i] for i in order]
    for stack in planned:
        if all(place.job in skip for place in stack):
            n_skipped += len(stack)
        else:
            stacks.append(stack)
    aside = len(jobs) > 1 and not callbacks
    if n_jobs is None and aside and not on_cluster() and _on_cpu(jobs):
        n_jobs = min(torch.get_num_threads(), len(stacks))
    progress = _Progress(len(stacks), n_skipped, on_progress)
    watches = [None if watch is None else watch([(p.job, p.member) for p in s]) for s in stacks]
    outputs: Generator[tuple[int, _Trained | Failed]]
    if n_jobs in (0, 1) or (n_jobs is None and not (aside and on_cluster())):
        parts = [None if file is None else file.part(i) for i in range(len(stacks))]
        tasks = zip(stacks, watches, parts, strict=True)
        outputs = (
            (i, attempt(_train_watched, jobs, s, callbacks, own, keep_optimizers, part))
            for i, (s, own, part) in enumerate(tasks)
        )
    else:
        outputs = _train_side_by_side(jobs, stacks, n_jobs, progress, watches, keep_optimizers)
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
            progress.tell(i, len(stack))
            if on_jobs is not None:
                of_stack = {job: results[job] for job in dict.fromkeys(p.job for p in stack)}
                on_jobs({job: [*filter(None, row)] for job, row in of_stack.items() if all(row)})
    return [[r for r in row if r is not None] for row in results]


def _on_cpu(jobs: Sequence[Job]) -> bool:
    return all(job.device.type == "cpu" for job in jobs)


class _Progress:
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
    n_jobs: int | None,
    progress: _Progress,
    watches: Sequence[StackWatch | None],
    keep_optimizers: bool,
) -> Generator[tuple[int, _Trained | Failed]]:
    """The stacks' results as they are done, in threads or processes with their share of torch's.

    A cluster's workers keep the number of threads that the cluster gave them.
    """
    n_threads = torch.get_num_threads()
    share = None if on_cluster() else max(1, n_threads // effective_n_jobs(n_jobs))
    tasks = (
        (share, *_extract(jobs, s), (_ProgressCallback(progress, i),), watches[i], keep_optimizers)
        for i, s in enumerate(stacks)
    )
    outputs = completed(_train_with, tasks, n_jobs=n_jobs, shared=_tables(jobs))
    try:
        for found in outputs:  # noqa: UP028 - which would close them before the progress is told
            yield found
    finally:
        progress.stopped = True
        outputs.close()
        torch.set_num_threads(n_threads)  # what threads set is what later ones begin with


def _tables(jobs: Sequence[Job]) -> Iterator[Tensor]:
    """What is as long as the data, of which many jobs have the same."""
    for job in jobs:
        of_plans = [tensor for plan in job.plans for tensor in (plan.rows, plan.val_rows)]
        yield from (t for t in (*job.rows.tensors(), *of_plans) if t is not None)


def _train_with(n_threads: int | None, *arguments: Any) -> _Trained:
    if n_threads is not None and torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)  # of this thread, or of a process that waits for more
    guard_forks()
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


# ---- A fit as a file, to go on from: networks, optimisers and curves of each stack of its
# members

_STOOD = {"seed": whole(0, 2**64), "table": text(64)}


class FitCheckpoint(CheckpointFile):
    """A file that a fit is written to now and then, and taken up from.

    All that is drawn is a function of the ``seed``, the epoch and the step, so a fit that is taken
    up gives what it would have given in one go.

    Raises ValueError if there is a file that is no checkpoint, or one of another fit.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any) -> None:
        super().__init__(path, model, _STOOD, ("verbose",))
        self.seed = self._state["seed"] if self._state else seed_from(model.random_state)
        self._arrays: dict[str, np.ndarray] = {}

    def of(self, job: Job) -> None:
        """Say what is trained; raises ValueError if the file is of something else."""
        self._table = _job_fingerprint(job)
        if self._found is not None and self._state["table"] != self._table:
            raise ValueError(
                f"{self.path} is of a fit on another table or kind of device; remove the file to "
                "begin anew"
            )
        self._arrays = dict(self._found or {})

    def part(self, stack: int) -> StackPart:
        """The place of one of the job's stacks in the file."""
        return StackPart(self, f"{stack}.")

    def _take_up(self, prefix: str, restore: Callable[[Mapping[str, np.ndarray]], int]) -> int:
        found = with_prefix(self._arrays, prefix)
        if not found:
            return 0
        with reading(self.path, "checkpoint of this fit"):
            return restore(found)

    def _put(self, prefix: str, stand: Callable[[], dict[str, np.ndarray]], *, last: bool) -> None:
        if not last and not self.is_due:
            return
        others = {n: a for n, a in self._arrays.items() if not n.startswith(prefix)}
        self._arrays = others | {prefix + name: array for name, array in stand().items()}
        self._note({"seed": self.seed, "table": self._table}, self._arrays)
        if last:
            self.write()


@dataclass(frozen=True)
class StackPart:
    """A stack's place in the file of its fit."""

    file: FitCheckpoint
    prefix: str

    def take_up(self, restore: Callable[[Mapping[str, np.ndarray]], int]) -> int:
        return self.file._take_up(self.prefix, restore)

    def note(self, stand: Callable[[], dict[str, np.ndarray]], *, last: bool) -> None:
        self.file._put(self.prefix, stand, last=last)


def _job_fingerprint(job: Job) -> str:
    """Fingerprint what is trained on, and the members; it cannot be turned back into rows."""
    digest = hashlib.sha256(f"{job.device.type} {[plan.seed for plan in job.plans]}".encode())
    tables = job.rows.tensors()
    for plan in job.plans[: 1 if job.folds is None else None]:
        tables += [plan.rows, plan.val_rows]
    for tensor in tables:
        digest.update(str(None if tensor is None else tuple(tensor.shape)).encode())
        if tensor is not None:
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# ---- One fit of an estimator, shared by ranks: its members, or else the rows of its batches ------


def train_shared(
    job: Job,
    callbacks: Sequence[Callback] = (),
    *,
    file: FitCheckpoint | None = None,
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
    ranks = current()
    if file is not None:
        file.of(job)

    def train(part: Job, callbacks: Sequence[Callback] = ()) -> list[MemberResult]:
        if stream is not None:
            return train_streamed(part, stream, callbacks)
        return train_jobs([part], callbacks, file=file)[0]

    if ranks is None:
        return train(job, callbacks)
    check_same(ranks, job.rows.tensors() if tables is None else tables())
    watched = broadcast(bool(callbacks)) or file is not None  # others may have been given none
    if len(job.members) >= ranks.count and not watched:
        return _share_members(job, ranks, train)
    if job.config.optimizer.solver == "lbfgs":
        raise ValueError(
            f"solver='lbfgs' takes all rows at once, which {ranks.count} ranks cannot share: use "
            f"'adam', 'adamw' or 'sgd', or n_members of at least {ranks.count}, which are then "
            "shared out"
        )
    return train(job, callbacks)


def train_shared_jobs(jobs: Sequence[Job], train: Callable[[Collection[int]], T]) -> list[T]:
    """Train jobs of a member each, on one table; where ranks share the fit, each trains a part.

    ``train`` is given the positions of the jobs that it is to skip. Stacks are shared out as they
    are, not their members, whose last digits depend on their stack: the results are one process's.

    Returns what ``train`` does on each rank, in their order.
    """
    ranks = current()
    if ranks is None:
        return [train(())]
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
        if any(result.reason == "interrupted" for result in found):
            raise KeyboardInterrupt
        return found

    return [result for of_rank in ranks.each(results) for result in of_rank]
