"""The members of a pack: drawn, trained together, and chosen into an ensemble."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from joblib import parallel_config
from joblib.parallel import get_active_backend
from torch import Tensor

from combutab.core.parallel import Failed, on_worker
from combutab.core.rng import Stream, fold_in
from combutab.core.world import Ranks, current
from combutab.estimators._base import BaseMLP, Prepared, fold_job, set_networks
from combutab.estimators._boosting import (
    LEARNING_RATE,
    GivenRows,
    OutsideModel,
    Trees,
    boost,
    can_boost,
    fit_outside,
    has_stopped,
)
from combutab.estimators._jobs import (
    Job,
    Position,
    Scorer,
    is_interrupted,
    sorted_by_activation,
    stacks_to_train,
    train_jobs,
    train_one_stack,
    train_shared_jobs,
)
from combutab.estimators._targets import Target
from combutab.nn import ActivationSpec, MLPSpec, TableNetwork
from combutab.training import Callback, EpochReport, Loss, MemberResult, Rows, best_factors

K = TypeVar("K")

# ---- The members of a pack: what varies from one to the next -------------------------------------


def _spread(low: float, high: float) -> Callable[[float], float]:
    """Make the map of shares in [0, 1) to numbers that are spread evenly over a range."""
    return lambda share: low + (high - low) * share


def _spread_by_logs(low: float, high: float) -> Callable[[float], float]:
    """Make the map of shares in [0, 1) to numbers whose logarithms are spread evenly."""
    return lambda share: low * (high / low) ** share


VARIED: Mapping[str, Callable[[float], float]] = {
    "dropout": _spread(-0.15, 0.3),  # below 0 is 0: a third of the members drop nothing out
    "weight_decay": _spread_by_logs(1e-3, 1e-1),
    "learning_rate_init": _spread_by_logs(1e-3, 6e-3),
    "frequency_scale": _spread_by_logs(0.01, 10.0),
}
# members of one shape train as one stack, so there are few shapes
SHAPES: Sequence[Mapping[str, Any]] = (
    {"hidden_layer_sizes": (256,), "numeric_embedding_dim": 32},
    {"hidden_layer_sizes": (256, 256), "numeric_embedding_dim": 16},
    {"hidden_layer_sizes": (256, 256, 256), "numeric_embedding_dim": 8},
)


def draw_members(
    n_members: int, activations: Sequence[ActivationSpec], seed: int
) -> list[dict[str, Any]]:
    """Draw what each member is made with.

    Each varied parameter is a Latin hypercube's: one draw from each of ``n_members`` equal parts of
    its range, in random order. Shapes and activations come equally often; the first activations
    are the given ones, in order.

    Returns
    -------
    list of dict
        Constructor parameters of each member.

    >>> [member["activation"] for member in draw_members(3, ("mish", "relu"), 0)][:2]
    ['mish', 'relu']
    """
    rng = np.random.default_rng(fold_in(seed, Stream.MEMBER_SETTINGS))
    shares = {
        name: (rng.permutation(n_members) + rng.random(n_members)) / n_members for name in VARIED
    }
    shapes = rng.permutation(np.arange(n_members) % len(SHAPES))
    kinds = list(range(len(activations)))
    while len(kinds) < n_members:
        kinds += rng.permutation(len(activations)).tolist()
    return [
        {
            "activation": activations[kinds[i]],
            **SHAPES[shapes[i]],
            **{name: max(0.0, float(at(shares[name][i]))) for name, at in VARIED.items()},
        }
        for i in range(n_members)
    ]


# ---- Which rows each member trains on, and which it is scored on ---------------------------------

MIN_ROWS = 50  # of fewer, a part would tell next to nothing of the networks
_FOLDS = 8  # of cv="auto", if there are members for all


def auto_folds(n_members: int, n_rows: int) -> int | None:
    """Folds of ``cv="auto"``; None of a table that is too small, or for one member."""
    n_folds = min(_FOLDS, n_members)
    return n_folds if n_rows >= MIN_ROWS and n_folds > 1 else None


# ---- The training of a pack's members, with snapshots of their best epochs -----------------------

_PARTS = 8  # of the planned epochs: a snapshot is the best of its part
_KEPT = 4  # snapshots a member, those of the smallest losses
_MIN_CYCLE_GAIN = 0.05  # of the loss, by a cycle of the learning rate, for a member to go on


@dataclass(frozen=True)
class Snapshot:
    """Weights of a member after an epoch, and its raw outputs for the validation rows.

    ``raw``, (n, n_outputs), is None without validation rows.
    """

    epoch: int  # from 1
    loss: float
    state: dict[str, Tensor]
    raw: Tensor | None


class MemberHistory:
    """Losses of each epoch of a member, and its snapshots.

    As the scorer of the member's plan, it gets the raw outputs of each epoch for the validation
    rows. The snapshots do not depend on other stacks.

    The validation rows are divided into ``parts``, (n,). There are snapshots with the smallest loss
    of all rows, and for each part those with the smallest loss of the other rows, by which the part
    is scored.
    """

    def __init__(self, loss: Loss, max_epochs: int, fold: int, parts: Tensor | None) -> None:
        self.loss, self.max_epochs, self.fold = loss.unsmoothed(), max_epochs, fold
        self.parts = parts
        self.epochs: list[tuple[float, float, float]] = []  # losses and learning rates
        self._parts: dict[int, Snapshot] = {}
        self._without_part: list[dict[int, Snapshot]] = [{} for _ in range(count_parts(parts))]
        self._scored: tuple[float, list[float], Tensor] | None = None

    def __call__(self, raw: Tensor, y: Tensor, weight: Tensor | None) -> float:
        """Score raw outputs, (1, n, n_outputs): minus the loss."""
        outputs = self.loss.average(raw[0].double(), 1)
        y = y.double() if y.is_floating_point() else y
        of_rows = self.loss.rows(outputs, y)
        loss = float(_weighted_mean(of_rows, weight))
        self._scored = loss, losses_without_parts(of_rows, weight, self.parts), raw[0]
        return -loss

    def end_epoch(
        self, report: EpochReport, index: int, state: Callable[[], Mapping[str, Tensor]]
    ) -> None:
        """Record an epoch, and make a snapshot if no earlier epoch of its part was better.

        Without validation rows the last epoch is the best.
        """
        scored, self._scored = self._scored, None
        trained = float(report.train_loss[index])
        loss = np.nan if scored is None else scored[0]
        self.epochs.append((trained, loss, float(report.learning_rate[index])))
        part, held_out = 0, report.validation_score is not None
        if held_out:
            part = (report.epoch - 1) * _PARTS // self.max_epochs
            if not np.isfinite(loss):
                return
        raw = None if scored is None else scored[2].cpu().clone()
        before = self._parts.get(part)
        if np.isfinite(trained) and (before is None or not loss >= before.loss):
            copied = {name: tensor.cpu() for name, tensor in state().items()}
            self._parts[part] = Snapshot(report.epoch, loss, copied, raw)
        if scored is not None and np.isfinite(trained):
            for snapshots, other_loss in zip(self._without_part, scored[1], strict=True):
                if part not in snapshots or other_loss < snapshots[part].loss:
                    snapshots[part] = Snapshot(report.epoch, other_loss, {}, raw)

    @property
    def usable(self) -> bool:
        """Tell whether there is a snapshot."""
        return bool(self._parts)

    def snapshots(self, without_part: int | None = None) -> list[Snapshot]:
        """The best of them, by all validation rows or those outside a part, in epoch order.

        Snapshots that are chosen without a part have no weights, only outputs.
        """
        snapshots = self._parts
        if without_part is not None and without_part < len(self._without_part):
            snapshots = self._without_part[without_part]
        best = sorted(snapshots.values(), key=lambda snapshot: snapshot.loss)[:_KEPT]
        return sorted(best, key=lambda snapshot: snapshot.epoch)

    def __getstate__(self) -> dict[str, Any]:  # of copies, and to and from other processes
        return self.__dict__ | {
            "_parts": dict(enumerate(self.snapshots())),
            "_without_part": [
                dict(enumerate(self.snapshots(k))) for k in range(len(self._without_part))
            ],
            "epochs": [*self.epochs],
        }

    def result(self, snapshot: Snapshot, n_rows: int) -> MemberResult:
        """The result of a training that ended with this snapshot."""
        done = self.epochs[: snapshot.epoch]
        scores = [] if snapshot.raw is None else [-loss for _, loss, _ in done]
        return MemberResult(
            state=snapshot.state,
            optimizer={},
            epochs=len(done),
            t=len(done) * n_rows,
            reason="max_iter",
            train_loss=[loss for loss, _, _ in done],
            validation_score=scores,
            learning_rate=[rate for _, _, rate in done],
            best_loss=min(loss for loss, _, _ in done),
            best_score=-snapshot.loss if scores else -np.inf,
            n_iter_no_improvement=0,
        )


def count_parts(parts: Tensor | None) -> int:
    """Number of parts, of their numbers."""
    return 0 if parts is None else int(parts.max()) + 1


def losses_without_parts(
    of_rows: Tensor, weight: Tensor | None, parts: Tensor | None
) -> list[float]:
    """Mean losses of the rows outside of each part; of all rows if these have no weight."""
    losses = []
    weights = torch.ones_like(of_rows) if weight is None else weight.to(of_rows)
    weights = weights.cpu()
    of_rows = of_rows.cpu()
    for k in range(count_parts(parts)):
        weights_outside = weights * (parts != k)
        chosen = weights_outside if weights_outside.any() else weights
        losses.append(float((of_rows * chosen).sum() / chosen.sum()))
    return losses


@dataclass
class PackMember:
    """A network of a pack: its estimator, its training job, and the history of its training."""

    estimator: BaseMLP
    job: Job
    history: MemberHistory

    @property
    def val_rows(self) -> Tensor | None:
        """Positions of the validation rows."""
        return self.job.plans[0].val_rows

    def val_targets(self) -> tuple[Tensor, Tensor | None]:
        """Encoded targets of the validation rows, and their weights."""
        rows, val_rows = self.job.rows, self.val_rows
        assert val_rows is not None
        y = rows.y[val_rows]
        weight = None if rows.weight is None else rows.weight[val_rows]
        return y.double() if y.is_floating_point() else y, weight


class _Recorder(Callback):
    """Trains one stack, and passes each epoch to the histories of the stack's members.

    It stops the stack at the deadline, in ``time.time()``, and does not train a stack after it
    unless the stack ``must`` train. In another process it is a copy, whose histories are sent back.
    """

    def __init__(
        self, histories: Sequence[MemberHistory], deadline: float, *, must: bool = False
    ) -> None:
        self.histories, self.deadline, self.must = histories, deadline, must

    def __call__(
        self, jobs: Sequence[Job], stack: Sequence[Position], callbacks: Sequence[Callback]
    ) -> tuple[Sequence[MemberHistory], bool]:
        """Train; returns the histories, and whether an interrupt ended it."""
        if time.time() >= self.deadline and not self.must:
            return self.histories, False
        results = train_one_stack(jobs, stack, (*callbacks, self))
        return self.histories, is_interrupted(results)

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
        for index, member in enumerate(report.members):
            self.histories[member].end_epoch(report, index, partial(network.member_state, index))

    def on_epoch_end(self, report: EpochReport) -> bool:
        return time.time() >= self.deadline


def make_members(
    estimators: Sequence[BaseMLP], prepared: Prepared, n_parts: int
) -> list[PackMember]:
    """Make the job and the history of each member; members have the folds in turn.

    Validation rows are divided into ``n_parts`` for scores.

    Networks that only differ in the scale of their initial frequencies have the same shape, so that
    they are trained together.
    """
    members = []
    for i, estimator in enumerate(estimators):
        fold = i % len(prepared.splits)
        train, val = prepared.splits[fold]
        job = fold_job(estimator, prepared, fold)
        parts = None
        if val is not None:
            parts = prepared.val_parts(train, val, n_parts)
        history = MemberHistory(job.config.loss, job.config.max_epochs, fold, parts)
        if val is not None:
            plans = tuple(replace(plan, scorer=history, val_parts=None) for plan in job.plans)
            config = replace(job.config, score="scorer", min_cycle_gain=_MIN_CYCLE_GAIN)
            job = replace(job, config=config, plans=plans)
        if isinstance(job.spec, MLPSpec):
            scale = job.spec.frequency_scale
            networks = tuple(replace(network, frequency_scale=scale) for network in job.members)
            job = replace(job, spec=replace(job.spec, frequency_scale=1.0), members=networks)
        members.append(PackMember(estimator, job, history))
    return members


def train_members(
    members: Sequence[PackMember],
    deadline: float,
    n_jobs: int | None,
    on_trained: Callable[[int], None],
) -> bool:
    """Train the members until the deadline, which fills their histories.

    Stacks train in threads, or in the processes of joblib's context. Histories do not depend on it,
    except for members that are not trained because of the deadline. If ranks share the fit, each
    rank trains some of the stacks, and all ranks get all histories; the first rank reports its own
    members, and then all of them.

    Returns
    -------
    bool
        Whether Ctrl-C ended it. Ctrl-C raises KeyboardInterrupt if no epoch is done, or ranks share
        the fit.
    """
    world = current()
    if not isinstance(world, Ranks):
        return _train(members, deadline, n_jobs, on_trained)
    report = (lambda _: None) if world.number else on_trained

    def train(skip: Collection[int]) -> dict[int, MemberHistory]:
        if _train(members, deadline, n_jobs, report, skip):
            raise KeyboardInterrupt
        return {i: member.history for i, member in enumerate(members) if i not in skip}

    for histories in train_shared_jobs(world, [member.job for member in members], train):
        for i, history in histories.items():
            members[i].history = history
    report(sum(bool(member.history.epochs) for member in members))
    return False


def _train(
    members: Sequence[PackMember],
    deadline: float,
    n_jobs: int | None,
    on_trained: Callable[[int], None],
    skip: Collection[int] = (),
) -> bool:
    """Train the members of this process, which are all except those to skip."""
    backend, n_workers = get_active_backend(prefer="threads")
    uses_processes = not getattr(backend, "supports_sharedmem", False) and not on_worker()
    jobs = [member.job for member in members]
    # on a CPU with a deadline one member after another, so that few of them are half trained
    together = deadline == np.inf or jobs[0].device.type != "cpu"
    stacks = stacks_to_train(jobs, skip, together=together)

    def train(
        stacks: Sequence[Sequence[Position]], n_jobs: int | None, *, must: bool = False
    ) -> None:
        recorders = [
            _Recorder([members[position.job].history for position in stack], deadline, must=must)
            for stack in stacks
        ]
        n_trained = 0
        with closing(train_jobs(jobs, stacks, recorders, n_jobs=n_jobs)) as outputs:
            for i, output in outputs:
                if isinstance(output, Failed):
                    raise output.error
                histories, interrupted = output
                for position, history in zip(stacks[i], histories, strict=True):
                    if history.epochs:  # a member without epochs may be trained again
                        members[position.job].history = history
                if interrupted:
                    raise KeyboardInterrupt
                n_trained += sum(bool(history.epochs) for history in histories)
                on_trained(n_trained)

    try:
        if uses_processes and (n_jobs or n_workers) != 1:
            train(stacks, n_jobs or n_workers)
        else:
            with parallel_config(backend="threading"):
                train(stacks, n_jobs)
        if stacks and not any(member.history.epochs for member in members):  # all were too late
            train(stacks[:1], 1, must=True)
        return False
    except KeyboardInterrupt:
        if not any(member.history.usable for member in members):
            raise
        for member in members:  # a thread may end its epoch later
            member.history = copy.copy(member.history)
        return True


# ---- Greedy selection of an ensemble (Caruana et al., 2004): forwards, with replacement ----------

_VALUES = 1 << 22  # of predictions looked at together: bounds the memory


@dataclass(frozen=True)
class Pool:
    """Out-of-sample predictions to choose from, of rows that none of their networks trained on.

    Shapes: predictions (K, n, k) as ``loss.averaged`` gives them, y (n,) or (n, T), weight (n,) or
    None where all weigh the same.
    """

    loss: Loss
    predictions: Tensor
    y: Tensor
    weight: Tensor | None = None

    @torch.inference_mode()
    def losses_after(self, selected: Sequence[int]) -> np.ndarray:
        """Losses of the ensemble of these and each of the pool's."""
        total, n_so_far = self.predictions[list(selected)].double().sum(0), len(selected)
        losses = []
        step = max(1, _VALUES // max(1, total.numel()))
        for start in range(0, len(self.predictions), step):
            block = self.predictions[start : start + step].to(torch.float64)
            average = (block + total) / (n_so_far + 1)
            rows = self.loss.rows_of_average(average, self.y.expand(len(block), *self.y.shape))
            losses.append(_weighted_mean(rows, self.weight))
        return np.nan_to_num(torch.cat(losses).numpy(), nan=np.inf)


def _weighted_mean(rows: Tensor, weight: Tensor | None) -> Tensor:  # (..., n) -> (...)
    return rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum()


def select_greedily(
    losses_after: Callable[[Sequence[int]], np.ndarray],
    n_selected: int,
    *,
    first: int | None = None,
) -> tuple[list[int], list[float]]:
    """Select again and again the candidate that makes the loss of the ensemble smallest.

    ``losses_after`` maps selected positions to the loss with each of the candidates added to them.
    The ``first`` selection may be given.

    Returns
    -------
    list of int
        Positions of candidates, which may repeat; the first one if losses are equal.
    list of float
        Loss of the ensemble after each selection.
    """
    selected: list[int] = []
    losses: list[float] = []
    for _ in range(n_selected):
        candidates = losses_after(selected)
        best = int(candidates.argmin()) if selected or first is None else first
        selected.append(best)
        losses.append(float(candidates[best]))
    return selected, losses


def _losses_by_score(
    score: Callable[[Sequence[int]], float], n_candidates: int, selected: Sequence[int]
) -> np.ndarray:
    """Minus the score of the ensemble with each candidate added, (n_candidates,)."""
    losses = np.array([-score([*selected, i]) for i in range(n_candidates)])
    return np.nan_to_num(losses, nan=np.inf)


# ---- The ensemble of a pack: selected snapshots and other models, and their weights --------------

_PICKS = 8  # selections in each of several folds
_KINDS = 20  # selections among the networks and other models
_BEHIND = 1.5  # trees are given up at this multiple of the best network's loss
BOOSTING = "boosting"  # activation of trees in the table of members


class Key(NamedTuple):
    """Name of a candidate: snapshot of a member, or another model of a fold."""

    kind: str  # "network" or "other"
    number: int  # of the member, or as in FoldModel
    part: int  # number of the snapshot, or of the fold


@dataclass(frozen=True)
class Candidate:
    """A snapshot or another model, and its raw outputs for the validation rows of its fold."""

    key: Key
    fold: int
    raw: Tensor  # (n, n_outputs) float64, of networks after calibration


@dataclass(frozen=True)
class FoldModel:
    """Trees or an outside estimator, and its raw outputs, (n, n_outputs), for the rows of its fold.

    ``without_part`` has the outputs of trees up to where the rows outside of each part stop.
    """

    number: int  # 0 for trees, then of outside estimators
    fold: int
    model: Trees | OutsideModel
    raw: Tensor
    loss: float
    without_part: Sequence[Tensor] = ()


def boost_folds(
    members: Sequence[PackMember], target: Target, seed: int, deadline: float
) -> Iterator[FoldModel]:
    """Boost trees for each fold, on the rows of the fold's networks.

    Boosting stops when the loss of the validation rows does not improve. If the trees of the first
    fold are much worse than its networks, there are no others. Trees that would begin after the
    deadline and folds without a network are left out.
    """
    if members[0].val_rows is None or not can_boost(target):
        return
    first_members: dict[int, PackMember] = {}  # by fold
    for member in members:
        if member.history.usable:
            first_members.setdefault(member.history.fold, member)
    for fold, member in first_members.items():
        if time.time() >= deadline:
            return
        boosted = _boost_fold(member, target, seed)
        if boosted is None:
            return
        yield boosted
        histories = [member.history for member in members if member.history.fold == fold]
        best = min(s.loss for history in histories for s in history.snapshots())
        is_first = len(first_members) > 1 and fold == next(iter(first_members))
        if is_first and boosted.loss > _BEHIND * best > 0:
            return


def _boost_fold(member: PackMember, target: Target, seed: int) -> FoldModel | None:
    """Boost trees on the training rows of a member; None if there is nothing to learn."""
    rows, train, val_rows = member.job.rows, member.job.plans[0].rows, member.val_rows
    assert val_rows is not None
    cardinalities = member.job.spec.cardinalities
    trees = boost(rows, train, val_rows, cardinalities, target, seed)
    if trees is None:
        return None
    codes = None if rows.codes is None else rows.codes[val_rows].numpy()
    y, weight = member.val_targets()
    parts = member.history.parts
    losses, without_part = list[list[float]](), dict[int, Tensor]()
    for raw in trees.stages(rows.dense[val_rows].numpy(), codes):
        row_losses = member.history.loss.rows(raw, y)
        losses.append(losses_without_parts(row_losses, weight, parts))
        for k, part_losses in enumerate(zip(*losses, strict=True)):
            if k not in without_part and has_stopped(part_losses):
                without_part[k] = raw.clone()
    loss = float(_weighted_mean(row_losses, weight))
    outputs = [without_part.get(k, raw) for k in range(count_parts(parts))]
    return FoldModel(0, member.history.fold, trees, raw, loss, outputs)


def fit_outside_models(
    members: Sequence[PackMember],
    estimators: Mapping[str, Any],
    table: GivenRows,
    y: np.ndarray,
    target: Target,
    seed: int,
) -> list[FoldModel]:
    """Fit outside estimators to the training rows of each fold; ``y`` are targets as passed."""
    by_fold = {member.history.fold: member for member in reversed(members)}
    models = []
    for number, (name, estimator) in enumerate(estimators.items(), 1):
        for fold, member in sorted(by_fold.items()):
            train, val_rows, rows = member.job.plans[0].rows, member.val_rows, member.job.rows
            assert val_rows is not None
            weight = None if rows.weight is None else rows.weight[train].double().numpy()
            X, y_train = table.select(train), y[train.numpy()]
            model = fit_outside(name, estimator, X, y_train, weight, target, seed)
            raw = model.predict(table.select(val_rows))
            y_val, weight_val = member.val_targets()
            row_losses = member.history.loss.rows(raw, y_val)
            loss = float(_weighted_mean(row_losses, weight_val))
            models.append(FoldModel(number, fold, model, raw, loss))
    return models


@dataclass(frozen=True)
class Chosen:
    """The selected ensemble.

    ``counts`` says how often each candidate is selected, and ``factor`` is the factor of the
    networks' outputs. Losses are those of the ensemble and of the best single snapshot, as means
    over folds. ``out_of_fold`` has rows, and raw outputs, (n_networks, n, n_outputs), whose average
    is their prediction.
    """

    counts: Mapping[Key, int]
    factor: float = 1.0
    loss: float | None = None
    best_single: float | None = None
    out_of_fold: Sequence[tuple[Tensor, Tensor]] = ()


def choose_snapshots(
    members: Sequence[PackMember],
    fold_models: Sequence[FoldModel],
    size: int,
    scorer: Scorer | None = None,
) -> Chosen:
    """Select an ensemble of ``size`` models; all members without validation rows.

    Snapshots of each fold are selected greedily. The weight of a fold is one over the loss of its
    selection, because the few members of a fold may all be poor. Then the selection is between the
    networks of all folds and each other model, by the rows of all folds. A ``scorer``
    replaces the loss in both.
    """
    if members[0].val_rows is None:
        keys = [
            Key("network", i, k)
            for i, member in enumerate(members)
            for k in range(len(member.history.snapshots()))
        ]
        return Chosen(Counter(keys[:size]))
    factor = _common_factor(members)
    folds = _make_folds(members, fold_models, factor)
    picks, weights, shares = _select(folds, size, scorer)
    total: dict[Key, float] = {}
    raws = []
    for fold, fold_shares, weight in zip(folds, shares, weights, strict=True):
        for key, share in fold_shares.items():
            total[key] = share * (weight if key.kind == "network" else 1 / len(folds))
        raws.append(fold.outputs(_count_candidates(fold_shares, size)))
    counts = _count_candidates(dict(sorted(total.items(), key=lambda item: item[0].kind)), size)
    averages = [
        torch.stack([fold.averaged(network) for network in raw]).mean(0)
        for fold, raw in zip(folds, raws, strict=True)
    ]
    ensemble = _pool_of_folds(folds, [torch.cat(averages)], weights)
    return Chosen(
        counts,
        factor,
        float(ensemble.losses_after([])[0]),
        float(np.dot(weights, [pick.best_single for pick in picks])),
        _out_of_fold_outputs(members, fold_models, size, scorer),
    )


def _make_folds(
    members: Sequence[PackMember],
    fold_models: Sequence[FoldModel],
    factor: float,
    without_part: int | None = None,
) -> list[_Fold]:
    """Collect the candidates of each fold, chosen by all its rows or by those outside a part."""
    candidates: dict[int, list[Candidate]] = {}
    firsts: dict[int, PackMember] = {}
    for i, member in enumerate(members):
        fold = member.history.fold
        for k, snapshot in enumerate(member.history.snapshots(without_part)):
            assert snapshot.raw is not None
            raw = snapshot.raw.double() * factor
            firsts.setdefault(fold, member)
            candidates.setdefault(fold, []).append(Candidate(Key("network", i, k), fold, raw))
    for model in fold_models:
        if model.fold not in candidates:
            continue
        raw = model.raw
        if without_part is not None and without_part < len(model.without_part):
            raw = model.without_part[without_part]
        key = Key("other", model.number, model.fold)
        candidates[model.fold].append(Candidate(key, model.fold, raw.double()))
    return [_Fold.of(firsts[fold], candidates[fold]) for fold in sorted(candidates)]


def _select(
    folds: Sequence[_Fold], size: int, scorer: Scorer | None
) -> tuple[list[_Pick], np.ndarray, list[dict[Key, float]]]:
    """Select by the rows of the folds: picks, weights of folds, and shares of their candidates."""
    n_picks = size if len(folds) == 1 else _PICKS
    picks = [fold.pick(n_picks, scorer) for fold in folds]
    weights = _fold_weights(np.array([pick.loss for pick in picks]))
    numbers = sorted(set.intersection(*({*fold.models} for fold in folds)))

    def fold_shares(kind_shares: Sequence[float]) -> list[dict[Key, float]]:
        return [
            {
                **{key: kind_shares[0] * share for key, share in pick.shares.items()},
                **{fold.models[k].key: kind_shares[i] for i, k in enumerate(numbers, 1)},
            }
            for fold, pick in zip(folds, picks, strict=True)
        ]

    def score_kinds(selected: Sequence[int]) -> float:
        assert scorer is not None
        shares = (np.bincount(selected, minlength=n_kinds) / len(selected)).tolist()
        raws = [
            fold.outputs(_count_candidates(candidates, size))
            for fold, candidates in zip(folds, fold_shares(shares), strict=True)
        ]
        row_weights = [fold.weight for fold in folds if fold.weight is not None]
        y = torch.cat([fold.y for fold in folds])
        return scorer(torch.cat(raws, 1), y, torch.cat(row_weights) if row_weights else None)

    n_kinds = 1 + len(numbers)
    if scorer is None:
        networks = [fold.mean(pick.shares) for fold, pick in zip(folds, picks, strict=True)]
        kinds = [networks]
        kinds += [[fold.averaged(fold.models[k].raw) for fold in folds] for k in numbers]
        pool = _pool_of_folds(folds, [torch.cat(outputs) for outputs in kinds], weights)
        losses_after = pool.losses_after
    else:
        losses_after = partial(_losses_by_score, score_kinds, n_kinds)
    selected, losses = select_greedily(losses_after, _KINDS, first=0)
    n = int(np.argmin(losses)) + 1
    shares = (np.bincount(selected[:n], minlength=n_kinds) / n).tolist()
    return picks, weights, fold_shares(shares)


def _out_of_fold_outputs(
    members: Sequence[PackMember],
    fold_models: Sequence[FoldModel],
    size: int,
    scorer: Scorer | None,
) -> list[tuple[Tensor, Tensor]]:
    """Rows, and raw outputs of ensembles that were selected without them, for each part of a fold.

    The epochs of networks, the number of trees, the factor of outputs and all weights are chosen by
    the rows outside of the part.
    """
    outputs = []
    for part in range(max(count_parts(member.history.parts) for member in members)):
        folds = _make_folds(members, fold_models, _common_factor(members, part), part)
        folds_outside = [fold.select(fold.outside(part)) for fold in folds]
        try:
            _, _, shares = _select(folds_outside, size, scorer)
        except ValueError:  # the scorer needs a class that the other rows lack
            _, _, shares = _select(folds_outside, size, None)
        for fold, fold_shares in zip(folds, shares, strict=True):
            rows = fold.select(fold.parts == part)
            if len(rows.rows):
                outputs.append((rows.rows, rows.outputs(_count_candidates(fold_shares, size))))
    return outputs


@dataclass(frozen=True)
class _Pick:
    """The greedy selection of a fold: shares that sum to 1, and losses."""

    shares: Mapping[Key, float]
    loss: float
    best_single: float


@dataclass(frozen=True)
class _Fold:
    """The candidates of one fold, and its validation rows, by which they are scored."""

    loss: Loss
    networks: Sequence[Candidate]
    models: Mapping[int, Candidate]  # trees and outside estimators by number
    y: Tensor
    weight: Tensor | None
    rows: Tensor
    parts: Tensor  # (n,), of the rows

    @classmethod
    def of(cls, member: PackMember, candidates: Sequence[Candidate]) -> Self:
        """The fold of a member."""
        y, weight = member.val_targets()
        assert member.val_rows is not None
        parts = member.history.parts
        return cls(
            member.history.loss,
            [candidate for candidate in candidates if candidate.key.kind == "network"],
            {c.key.number: c for c in candidates if c.key.kind == "other"},
            y,
            None if weight is None else weight.double(),
            member.val_rows,
            torch.zeros_like(member.val_rows) if parts is None else parts,
        )

    def outside(self, part: int) -> Tensor:
        """A mask of the rows outside of a part, (n,); of all rows if no such row has a weight."""
        is_outside = self.parts != part
        counted = is_outside if self.weight is None else is_outside & (self.weight > 0)
        return is_outside if counted.any() else torch.ones_like(is_outside)

    def select(self, mask: Tensor) -> Self:
        """Return the fold with some of its rows."""
        return replace(
            self,
            networks=[replace(network, raw=network.raw[mask]) for network in self.networks],
            models={s: replace(model, raw=model.raw[mask]) for s, model in self.models.items()},
            y=self.y[mask],
            weight=None if self.weight is None else self.weight[mask],
            rows=self.rows[mask],
            parts=self.parts[mask],
        )

    def averaged(self, raw: Tensor) -> Tensor:  # (n, n_outputs) -> (n, k)
        """The function of raw outputs that an ensemble averages."""
        return self.loss.averaged(raw, self.y)

    def pick(self, n_picks: int, scorer: Scorer | None) -> _Pick:
        """Select snapshots greedily, up to the smallest loss, or the best score, on the way."""
        averages = torch.stack([self.averaged(network.raw) for network in self.networks])
        pool = Pool(self.loss, averages, self.y, self.weight)
        selected, losses = select_greedily(pool.losses_after, n_picks)
        best_single = losses[0]
        if scorer is not None:
            raws = torch.stack([network.raw for network in self.networks])

            def score(selected: Sequence[int]) -> float:
                return scorer(raws[list(selected)], self.y, self.weight)

            losses_after = partial(_losses_by_score, score, len(raws))
            selected, losses = select_greedily(losses_after, n_picks)
        n = int(np.argmin(losses)) + 1
        counts = Counter(selected[:n])
        shares = {self.networks[i].key: count / n for i, count in counts.items()}
        loss = pool.losses_after(selected[: n - 1])[selected[n - 1]]
        return _Pick(shares, float(loss), best_single)

    def mean(self, shares: Mapping[Key, float]) -> Tensor:
        """Weighted mean of the averaged outputs of the selected snapshots, (n, k)."""
        terms = [shares[c.key] * self.averaged(c.raw) for c in self.networks if c.key in shares]
        return torch.stack(terms).sum(0)

    def outputs(self, counts: Mapping[Key, int]) -> Tensor:
        """Raw outputs of candidates, repeated by their counts: (N, n, n_outputs)."""
        raws = {c.key: c.raw for c in (*self.networks, *self.models.values())}
        return torch.stack([raws[key] for key, n in counts.items() for _ in range(n)])


def _pool_of_folds(folds: Sequence[_Fold], outputs: Sequence[Tensor], weights: np.ndarray) -> Pool:
    """Pool outputs for the rows of all folds, each weighted by its fold's weight."""
    row_weights = [
        (torch.ones(len(f.y), dtype=torch.float64) if f.weight is None else f.weight) * weight
        for f, weight in zip(folds, weights * len(folds), strict=True)
    ]
    y = torch.cat([fold.y for fold in folds])
    return Pool(folds[0].loss, torch.stack(list(outputs)), y, torch.cat(row_weights))


def _fold_weights(losses: np.ndarray) -> np.ndarray:
    """Weights in proportion to one over the losses; equal ones if a loss is not positive."""
    if not (losses > 0).all():
        return np.full(len(losses), 1 / len(losses))
    weights = 1 / np.maximum(losses, 1e-3 * losses.mean())
    return weights / weights.sum()


def _common_factor(members: Sequence[PackMember], without_part: int | None = None) -> float:
    """Factor of all networks' outputs with the smallest loss of validation rows.

    It is 1 without label smoothing. There is one factor for all networks, computed from the best
    snapshot of each, because a fold has few rows. It is computed without the rows of a part, if one
    is given.
    """
    loss = members[0].history.loss
    if loss == members[0].job.config.loss:
        return 1.0
    raws, ys, weights = [], [], []
    for member in members:
        rows, history = member.val_rows, member.history
        snapshots = history.snapshots(without_part)
        if rows is None or not snapshots:
            continue
        raw = min(snapshots, key=lambda snapshot: snapshot.loss).raw
        assert raw is not None
        if without_part is not None and history.parts is not None:
            is_outside = history.parts != without_part
            raw, rows = raw[is_outside], rows[is_outside]
        weight = member.job.rows.weight
        raws.append(raw.double())
        ys.append(member.job.rows.y[rows])
        weights.append(torch.ones(len(raw)) if weight is None else weight[rows])
    y = torch.cat(ys)[None]
    factors = best_factors(
        lambda raw: loss.rows(raw, y.to(raw) if y.is_floating_point() else y),
        torch.cat(raws)[None],
        torch.cat(weights)[None],
    )
    return float(factors)


def share_out(weights: Mapping[K, float], total: int) -> Counter[K]:
    """Whole numbers in the proportion of the weights, which add up to ``total``.

    >>> share_out({"a": 0.5, "b": 0.3, "c": 0.2}, 4)
    Counter({'a': 2, 'b': 1, 'c': 1})
    """
    sizes = {key: weight / sum(weights.values()) * total for key, weight in weights.items()}
    counts = Counter({key: int(size) for key, size in sizes.items()})
    rounded_up = sorted(sizes, key=lambda key: counts[key] - sizes[key])[: total - counts.total()]
    counts.update(rounded_up)
    return +counts


def _count_candidates(weights: Mapping[Key, float], total: int) -> Counter[Key]:
    """``share_out`` with at least one network, because networks have the encoder and the target."""
    counts = share_out(weights, total)
    networks = [key for key in weights if key.kind == "network"]
    if not any(key in counts for key in networks):
        counts[counts.most_common(1)[0][0]] -= 1
        counts[max(networks, key=lambda key: weights[key])] = 1
    return +counts


# ---- The fitted pack: groups of networks of a shape, other models, and tables --------------------


def make_groups(
    members: Sequence[PackMember], fold_models: Sequence[FoldModel], chosen: Chosen
) -> tuple[list[BaseMLP], list[Trees | OutsideModel], list[int]]:
    """Make a fitted estimator of the selected networks of each shape, and collect other models.

    The third result has positions in the networks of all groups followed by these, repeated as
    often as each is selected.
    """
    by_shape: dict[object, list[Key]] = {}
    for key in sorted(chosen.counts):
        if key.kind == "network":
            by_shape.setdefault(members[key.number].job.spec, []).append(key)
    groups: list[BaseMLP] = []
    selected: list[int] = []
    n_before = 0
    for keys in by_shape.values():
        activations = [members[key.number].job.members[0].activation for key in keys]
        keys = sorted_by_activation(keys, activations)
        results = []
        for key in keys:
            member = members[key.number]
            snapshot = member.history.snapshots()[key.part]
            n_train = len(member.job.plans[0].rows)
            results.append(member.history.result(snapshot, n_train))
        first = members[keys[0].number]
        networks = tuple(members[key.number].job.members[0] for key in keys)
        job = replace(first.job, members=networks)
        set_networks(first.estimator, job, results, chosen.factor)
        groups.append(first.estimator)
        selected += [n_before + i for i, key in enumerate(keys) for _ in range(chosen.counts[key])]
        n_before += len(keys)
    models: list[Trees | OutsideModel] = []
    for candidate in fold_models:
        n = chosen.counts.get(Key("other", candidate.number, candidate.fold), 0)
        if n:
            selected += [n_before + len(models)] * n
            models.append(candidate.model)
    return groups, models, selected


def member_table(
    members: Sequence[PackMember], fold_models: Sequence[FoldModel], chosen: Chosen
) -> pd.DataFrame:
    """One row for each member, and for each other model of each fold."""
    n_selected = sum(chosen.counts.values())
    rows = []
    for i, member in enumerate(members):
        counts = [n for key, n in chosen.counts.items() if key[:2] == ("network", i)]
        history, estimator = member.history, member.estimator
        losses = [loss for _, loss, _ in history.epochs if np.isfinite(loss)]
        rows.append(
            {
                "member": i,
                "activation": _label(member.job.members[0].activation),
                "depth": len(member.job.spec.widths) - 2,
                **{name: getattr(estimator, name) for name in (*VARIED, "numeric_embedding_dim")},
                "fold": history.fold,
                "n_iter": len(history.epochs),
                "validation_loss": min(losses, default=np.nan),
                "n_snapshots": len(counts),
                "weight": sum(counts) / n_selected,
            }
        )
    for i, candidate in enumerate(fold_models, len(rows)):
        name, n_steps, learning_rate = BOOSTING, 0, np.nan
        if isinstance(candidate.model, Trees):
            n_steps = candidate.model.n_steps
            learning_rate = LEARNING_RATE
        else:
            name = candidate.model.name
        n = chosen.counts.get(Key("other", candidate.number, candidate.fold), 0)
        rows.append(
            {
                **dict.fromkeys(rows[0], np.nan),
                "member": i,
                "activation": name,
                "depth": 0,
                "learning_rate_init": learning_rate,
                "fold": candidate.fold,
                "n_iter": n_steps,
                "validation_loss": candidate.loss,
                "n_snapshots": int(n > 0),
                "weight": n / n_selected,
            }
        )
    return pd.DataFrame(rows)


def _label(activation: ActivationSpec) -> str:
    if isinstance(activation, str):
        return activation
    return str(getattr(activation, "__name__", None) or repr(activation))


def history_table(members: Sequence[PackMember]) -> pd.DataFrame:
    """One row for each member and epoch."""
    columns = ["member", "epoch", "train_loss", "validation_loss", "learning_rate"]
    rows = [
        (i, epoch, *values)
        for i, member in enumerate(members)
        for epoch, values in enumerate(member.history.epochs, 1)
    ]
    return pd.DataFrame(rows, columns=columns)
