"""The members of a pack: drawn, trained together, and chosen into an ensemble."""

from __future__ import annotations

import copy
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
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
from combutab.estimators._base import BaseMLP, Prepared
from combutab.estimators._boosting import SETTINGS, Trees, boost, can_boost, has_stopped
from combutab.estimators._jobs import (
    Job,
    Place,
    Scorer,
    first_states,
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
        One a member, of constructor parameters.

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


# ---- The training of a pack's members, of whom snapshots are taken as they learn -----------------

_PARTS = 8  # of the planned epochs: a snapshot is the best of its part
_KEPT = 4  # snapshots a member, those of the smallest losses


@dataclass(frozen=True)
class Snapshot:
    """A member after some epoch: its weights, and its raw outputs for the rows it is scored on.

    ``raw``, (n, n_outputs), is None if there are no such rows.
    """

    epoch: int  # from 1
    loss: float
    state: dict[str, Tensor]
    raw: Tensor | None


class MemberHistory:
    """One member's way: losses epoch by epoch, and its snapshots.

    As the scorer of the member's plan it sees each epoch's raw outputs for the validation rows, and
    no other stack's epochs: what is kept does not depend on how the work is shared out.

    The validation rows are divided into ``parts``, (n,). Beside the snapshots that suit all rows
    best there are those that suit the other rows best, for each part: a part is scored by these.
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
        self, report: EpochReport, place: int, state: Callable[[], Mapping[str, Tensor]]
    ) -> None:
        """Note an epoch, and keep the member as it is if no earlier epoch of its part was better.

        Where no rows are set aside, the last epoch is the best.
        """
        scored, self._scored = self._scored, None
        trained = float(report.train_loss[place])
        loss = np.nan if scored is None else scored[0]
        self.epochs.append((trained, loss, float(report.learning_rate[place])))
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
        """A snapshot as training would give it, had it ended there with these weights the best."""
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
    """Mean losses of the rows outside of each part; of all rows where no other has a weight."""
    losses = []
    weights = torch.ones_like(of_rows) if weight is None else weight.to(of_rows)
    weights = weights.cpu()
    of_rows = of_rows.cpu()
    for k in range(count_parts(parts)):
        others = weights * (parts != k)
        chosen = others if others.any() else weights
        losses.append(float((of_rows * chosen).sum() / chosen.sum()))
    return losses


class _Recorder(Callback):
    """Trains one stack, and tells the histories of its members of their epochs.

    It ends the stack at the deadline, in ``time.time()``, and leaves one out that would begin then,
    unless it ``must`` train. It is sent along to another process, and its histories come back.
    """

    def __init__(
        self, histories: Sequence[MemberHistory], deadline: float, *, must: bool = False
    ) -> None:
        self.histories, self.deadline, self.must = histories, deadline, must

    def __call__(
        self, jobs: Sequence[Job], stack: Sequence[Place], callbacks: Sequence[Callback]
    ) -> tuple[Sequence[MemberHistory], bool]:
        """Train; returns the histories, and whether an interrupt ended it."""
        if time.time() >= self.deadline and not self.must:
            return self.histories, False
        results = train_one_stack(jobs, stack, (*callbacks, self))
        return self.histories, is_interrupted(results)

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
        for place, member in enumerate(report.members):
            self.histories[member].end_epoch(report, place, partial(network.member_state, place))

    def on_epoch_end(self, report: EpochReport) -> bool:
        return time.time() >= self.deadline


def member_jobs(
    members: Sequence[BaseMLP], prepared: Prepared, n_parts: int
) -> tuple[list[Job], list[MemberHistory]]:
    """Make each member's job, and what follows it; members take turns at the folds.

    Validation rows of the table itself are divided into ``n_parts`` for scores.

    Networks that differ in the scale of their first frequencies have one shape all the same: they
    begin with weights that are drawn here.
    """
    jobs, histories = [], []
    for i, member in enumerate(members):
        number = i % len(prepared.splits)
        fold = replace(prepared, splits=(prepared.splits[number],), out_of_fold=None)
        with warnings.catch_warnings():  # a batch_size above the rows of a fold is no news
            warnings.filterwarnings("ignore", "Got `batch_size`")
            job = member.make_job(fold)
        (train, val), parts = fold.splits[0], None
        if prepared.out_of_fold is not None and val is not None:
            parts = prepared.out_of_fold.parts(prepared.rows.y, train, val, n_parts)
        history = MemberHistory(job.config.loss, job.config.max_epochs, number, parts)
        config, plans = job.config, job.plans
        if fold.splits[0][1] is not None:
            config = replace(config, score="scorer")
            plans = tuple(replace(plan, scorer=history) for plan in plans)
        spec = job.spec
        if isinstance(spec, MLPSpec):
            spec = replace(spec, frequency_scale=1.0)
        first = first_states(job)
        jobs.append(replace(job, spec=spec, config=config, plans=plans, start_states=first))
        histories.append(history)
    return jobs, histories


def train_members(
    jobs: Sequence[Job],
    histories: list[MemberHistory],
    deadline: float,
    n_jobs: int | None,
    on_trained: Callable[[int], None],
) -> bool:
    """Train one member a job until the deadline; what it learns is in its history.

    Stacks train in threads, or wherever joblib's context sends them. Members know nothing of one
    another, so that it makes no difference but to what is left out for want of time. Where ranks
    share the fit each trains some of the stacks, and all have all histories in the end; the first
    one tells of its own members, then of all.

    Returns
    -------
    bool
        Whether Ctrl-C ended it. It ends the program as ever where no epoch is done, or ranks share
        the fit.
    """
    world = current()
    if not isinstance(world, Ranks):
        return _train(jobs, histories, deadline, n_jobs, on_trained)
    tell = (lambda _: None) if world.number else on_trained

    def train(skip: Collection[int]) -> dict[int, MemberHistory]:
        if _train(jobs, histories, deadline, n_jobs, tell, skip):
            raise KeyboardInterrupt
        return {i: history for i, history in enumerate(histories) if i not in skip}

    for of_rank in train_shared_jobs(world, jobs, train):
        for i, history in of_rank.items():
            histories[i] = history
    tell(sum(bool(history.epochs) for history in histories))
    return False


def _train(
    jobs: Sequence[Job],
    histories: list[MemberHistory],
    deadline: float,
    n_jobs: int | None,
    on_trained: Callable[[int], None],
    skip: Collection[int] = (),
) -> bool:
    """Train the members of this process: all but those to skip."""
    backend, wanted = get_active_backend(prefer="threads")
    spread = not getattr(backend, "supports_sharedmem", False) and not on_worker()
    stacks = stacks_to_train(jobs, skip)

    def train(stacks: Sequence[Sequence[Place]], n_jobs: int | None, *, must: bool = False) -> None:
        recorders = [
            _Recorder([histories[place.job] for place in stack], deadline, must=must)
            for stack in stacks
        ]
        n_trained = 0
        with closing(train_jobs(jobs, stacks, recorders, n_jobs=n_jobs)) as outputs:
            for i, found in outputs:
                if isinstance(found, Failed):
                    raise found.error
                own, interrupted = found
                for place, history in zip(stacks[i], own, strict=True):
                    if history.epochs:  # else its job, whose scorer it is, may train again
                        histories[place.job] = history
                if interrupted:
                    raise KeyboardInterrupt
                n_trained += sum(bool(history.epochs) for history in own)
                on_trained(n_trained)

    try:
        if spread and (n_jobs or wanted) != 1:
            train(stacks, n_jobs or wanted)
        else:
            with parallel_config(backend="threading"):
                train(stacks, n_jobs)
        if stacks and not any(history.epochs for history in histories):  # all were too late
            train(stacks[:1], 1, must=True)
        return False
    except KeyboardInterrupt:
        if not any(history.usable for history in histories):
            raise
        histories[:] = map(copy.copy, histories)  # a thread may end its epoch later
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
        found = []
        step = max(1, _VALUES // max(1, total.numel()))
        for start in range(0, len(self.predictions), step):
            block = self.predictions[start : start + step].to(torch.float64)
            average = (block + total) / (n_so_far + 1)
            rows = self.loss.rows_of_average(average, self.y.expand(len(block), *self.y.shape))
            found.append(_weighted_mean(rows, self.weight))
        return np.nan_to_num(torch.cat(found).numpy(), nan=np.inf)


def _weighted_mean(rows: Tensor, weight: Tensor | None) -> Tensor:  # (..., n) -> (...)
    return rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum()


@dataclass(frozen=True)
class ScoredPool:
    """What can be chosen from by a score: ``loss`` gives that of an ensemble, smaller is better."""

    loss: Callable[[Sequence[int]], float]
    n_candidates: int

    def losses_after(self, selected: Sequence[int]) -> np.ndarray:
        """Losses of the ensemble of these and each of the pool's."""
        found = [self.loss([*selected, i]) for i in range(self.n_candidates)]
        return np.nan_to_num(np.array(found), nan=np.inf)


def select_greedily(
    pool: Pool | ScoredPool, n_selected: int, *, first: int | None = None
) -> tuple[list[int], list[float]]:
    """Pick, again and again, what makes the ensemble's loss smallest; the ``first`` may be given.

    Returns
    -------
    list of int
        Positions in the pool, which may repeat; of equal losses the first.
    list of float
        The ensemble's loss after each pick.
    """
    selected: list[int] = []
    losses: list[float] = []
    for _ in range(n_selected):
        candidates = pool.losses_after(selected)
        best = int(candidates.argmin()) if selected or first is None else first
        selected.append(best)
        losses.append(float(candidates[best]))
    return selected, losses


# ---- The ensemble of a pack: which snapshots and trees are chosen, and how often each counts -----

_Place = tuple[int, int]  # a member and one of its snapshots; or a setting of trees, and a fold
_PICKS = 8  # of each of several folds
_KINDS = 20  # picks among the networks and the settings of trees
_BEHIND = 1.5  # times the loss of the best network, with which a setting is given up
BOOSTING = "boosting"  # what the table of members has for trees


@dataclass(frozen=True)
class Boosted:
    """Trees, and their raw outputs, (n, n_outputs), for the rows of the fold that stopped them.

    ``without_part`` has the outputs of the trees up to where the rows outside of each part stop.
    """

    setting: int
    fold: int
    trees: Trees
    raw: Tensor
    loss: float
    without_part: Sequence[Tensor] = ()


def boost_folds(
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    target: Target,
    seed: int,
    deadline: float,
) -> Iterator[Boosted]:
    """Boost trees of each setting without each fold; a setting that is far behind on the first one.

    They end where the networks' rows set aside are predicted no better. What is not begun by the
    deadline is left out, and so are folds without a network.
    """
    if jobs[0].plans[0].val_rows is None or not can_boost(target):
        return
    first: dict[int, int] = {}  # the first member of each fold
    for member, history in enumerate(histories):
        if history.usable:
            first.setdefault(history.fold, member)
    for number, settings in enumerate(SETTINGS):
        for fold, member in first.items():
            if time.time() >= deadline:
                return
            job, loss = jobs[member], histories[member].loss
            plan, rows = job.plans[0], job.rows
            assert plan.val_rows is not None
            cardinalities = job.spec.cardinalities
            trees = boost(rows, plan.rows, plan.val_rows, cardinalities, target, settings, seed)
            if trees is None:
                break
            y, weight = rows.y[plan.val_rows], rows.weight
            codes = None if rows.codes is None else rows.codes[plan.val_rows].numpy()
            y = y.double() if y.is_floating_point() else y
            weight = None if weight is None else weight[plan.val_rows]
            parts = histories[member].parts
            losses, without_part = list[list[float]](), dict[int, Tensor]()
            for raw in trees.stages(rows.dense[plan.val_rows].numpy(), codes):
                of_rows = loss.rows(raw, y)
                losses.append(losses_without_parts(of_rows, weight, parts))
                for k, part_losses in enumerate(zip(*losses, strict=True)):
                    if k not in without_part and has_stopped(part_losses):
                        without_part[k] = raw.clone()
            own = float(_weighted_mean(of_rows, weight))
            outputs = [without_part.get(k, raw) for k in range(count_parts(parts))]
            yield Boosted(number, fold, trees, raw, own, outputs)
            best = min(s.loss for h in histories if h.fold == fold for s in h.snapshots())
            if len(first) > 1 and fold == next(iter(first)) and own > _BEHIND * best > 0:
                break


@dataclass(frozen=True)
class Chosen:
    """How often each snapshot and each of the trees counts, and what is known of the ensemble.

    ``factor`` is what the networks' outputs are multiplied by. Losses are of the ensemble and of
    the best snapshot alone, means over folds. ``out_of_fold`` has of each fold the raw outputs that
    its rows' predictions are the average of, (n_networks, n, n_outputs).
    """

    counts: Mapping[_Place, int]
    tree_counts: Mapping[_Place, int] = field(default_factory=dict)
    factor: float = 1.0
    loss: float | None = None
    best_single: float | None = None
    out_of_fold: Sequence[tuple[Tensor, Tensor]] = ()  # rows, and the raw outputs


def choose_snapshots(
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    boosted: Sequence[Boosted],
    size: int,
    scorer: Scorer | None = None,
) -> Chosen:
    """Choose an ensemble in which ``size`` networks and trees count; without such rows all members.

    Of each fold the snapshots are picked greedily. A fold counts by one over the loss of its pick,
    as its few members may all be poor ones. Then the networks, all folds together, and each setting
    of trees are picked from greedily, by the rows of all folds. With a ``scorer`` both choices are
    by its score instead of the loss.
    """
    if jobs[0].plans[0].val_rows is None:
        return Chosen(Counter(next(iter(_places_by_fold(histories).values()))[:size]))
    factor = _common_factor(jobs, histories)
    folds = _make_folds(jobs, histories, boosted, factor)
    picks, weights, shares = _choose(folds, size, scorer)

    of_all: dict[_Part, float] = {}
    raws = []
    for fold, parts, weight in zip(folds, shares, weights, strict=True):
        for part, share in parts.items():
            of_all[part] = share * (weight if part.kind == "net" else 1 / len(folds))
        raws.append(fold.outputs(_count_parts(parts, size)))
    counts = _count_parts(dict(sorted(of_all.items(), key=lambda item: item[0].kind)), size)
    averages = [
        torch.stack([fold.averaged(one) for one in raw]).mean(0)
        for fold, raw in zip(folds, raws, strict=True)
    ]
    ensemble = _pool_of_folds(folds, [torch.cat(averages)], weights)
    return Chosen(
        {part.place: n for part, n in counts.items() if part.kind == "net"},
        {part.place: n for part, n in counts.items() if part.kind == "tree"},
        factor,
        float(ensemble.losses_after([])[0]),
        float(np.dot(weights, [pick.best_single for pick in picks])),
        _held_out_outputs(jobs, histories, boosted, size, scorer),
    )


def _places_by_fold(
    histories: Sequence[MemberHistory], without_part: int | None = None
) -> dict[int, list[_Place]]:
    """Members and positions of their snapshots, by fold."""
    by_fold: dict[int, list[_Place]] = {}
    for member, history in enumerate(histories):
        for k in range(len(history.snapshots(without_part))):
            by_fold.setdefault(history.fold, []).append((member, k))
    return by_fold


def _make_folds(
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    boosted: Sequence[Boosted],
    factor: float,
    without_part: int | None = None,
) -> list[_Fold]:
    """All folds with their candidates, which all rows or those outside a part have chosen."""
    folds = []
    for number, places in sorted(_places_by_fold(histories, without_part).items()):
        trees = {}
        for candidate in boosted:
            if candidate.fold == number:
                raw = candidate.raw
                if without_part is not None and without_part < len(candidate.without_part):
                    raw = candidate.without_part[without_part]
                trees[candidate.setting] = raw.double()
        folds.append(_Fold.of(jobs, histories, places, factor, trees, without_part))
    return folds


def _choose(
    folds: Sequence[_Fold], size: int, scorer: Scorer | None
) -> tuple[list[_Pick], np.ndarray, list[dict[_Part, float]]]:
    """Choose by the folds' rows: picks and weights of folds, and what predicts each fold's rows."""
    n_picks = size if len(folds) == 1 else _PICKS
    picks = [fold.pick(n_picks, scorer) for fold in folds]
    weights = _fold_weights(np.array([pick.loss for pick in picks]))
    settings = [
        setting
        for setting in sorted({setting for fold in folds for setting in fold.trees})
        if all(setting in fold.trees for fold in folds)
    ]
    if scorer is None:
        by_kind = _kind_weights(folds, picks, settings, weights)
    else:
        by_kind = _scored_kind_weights(folds, picks, settings, size, scorer)
    shares = [
        _shares_of_parts(fold, pick, settings, by_kind)
        for fold, pick in zip(folds, picks, strict=True)
    ]
    return picks, weights, shares


def _held_out_outputs(
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    boosted: Sequence[Boosted],
    size: int,
    scorer: Scorer | None,
) -> list[tuple[Tensor, Tensor]]:
    """Rows, and raw outputs of ensembles that were chosen without them, for each part of each fold.

    The epochs of networks, the number of trees, the factor of outputs and the weights of all of
    them are chosen by the rows outside of the part.
    """
    outputs = []
    for part in range(max(count_parts(history.parts) for history in histories)):
        folds = _make_folds(jobs, histories, boosted, _common_factor(jobs, histories, part), part)
        others = [fold.select(fold.outside(part)) for fold in folds]
        try:
            _, _, shares = _choose(others, size, scorer)
        except ValueError:  # the scorer needs a class that the other rows lack
            _, _, shares = _choose(others, size, None)
        for fold, fold_shares in zip(folds, shares, strict=True):
            chosen = fold.select(fold.parts == part)
            if len(chosen.rows):
                raw = chosen.outputs(_count_parts(fold_shares, size))
                outputs.append((chosen.rows, raw))
    return outputs


class _Part(NamedTuple):
    """What counts in an ensemble: a snapshot, a "net", or trees, a "tree"."""

    kind: str
    place: _Place


@dataclass(frozen=True)
class _Pick:
    """What a fold's greedy choice found: shares that add up to 1, and losses."""

    shares: Mapping[_Place, float]
    loss: float
    best_single: float


@dataclass(frozen=True)
class _Fold:
    """The snapshots and trees of one fold, and the rows that they are scored on."""

    number: int
    loss: Loss
    places: Sequence[_Place]
    raw: Tensor  # (K, n, n_outputs), calibrated
    trees: Mapping[int, Tensor]  # by setting: (n, n_outputs)
    y: Tensor
    weight: Tensor | None
    rows: Tensor
    parts: Tensor  # (n,), of the rows

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        histories: Sequence[MemberHistory],
        places: Sequence[_Place],
        factor: float,
        trees: Mapping[int, Tensor],
        without_part: int | None = None,
    ) -> Self:
        member = places[0][0]
        rows, held_out = jobs[member].rows, jobs[member].plans[0].val_rows
        assert held_out is not None
        raws = [histories[own].snapshots(without_part)[k].raw for own, k in places]
        y, parts = rows.y[held_out], histories[member].parts
        return cls(
            histories[member].fold,
            histories[member].loss,
            places,
            torch.stack([raw.double() * factor for raw in raws if raw is not None]),
            trees,
            y.double() if y.is_floating_point() else y,
            None if rows.weight is None else rows.weight[held_out].double(),
            held_out,
            torch.zeros_like(held_out) if parts is None else parts,
        )

    def outside(self, part: int) -> Tensor:
        """Tell which rows are outside of a part, (n,); all rows where none is, or has a weight."""
        others = self.parts != part
        counted = others if self.weight is None else others & (self.weight > 0)
        return others if counted.any() else torch.ones_like(others)

    def select(self, chosen: Tensor) -> Self:
        """Return the fold with some of its rows, of a boolean mask."""
        return replace(
            self,
            raw=self.raw[:, chosen],
            trees={setting: raw[chosen] for setting, raw in self.trees.items()},
            y=self.y[chosen],
            weight=None if self.weight is None else self.weight[chosen],
            rows=self.rows[chosen],
            parts=self.parts[chosen],
        )

    def averaged(self, raw: Tensor) -> Tensor:  # (n, n_outputs) -> (n, k)
        """What an ensemble averages of raw outputs."""
        return self.loss.averaged(raw, self.y)

    def pick(self, n_picks: int, scorer: Scorer | None) -> _Pick:
        """Pick snapshots greedily, up to the smallest loss, or best score, on the way."""
        pool = Pool(
            self.loss, torch.stack([self.averaged(raw) for raw in self.raw]), self.y, self.weight
        )
        picked, losses = select_greedily(pool, n_picks)
        best_single = losses[0]
        if scorer is not None:
            score = partial(self._minus_score, scorer)
            picked, losses = select_greedily(ScoredPool(score, len(self.raw)), n_picks)
        n = int(np.argmin(losses)) + 1
        shares = {self.places[i]: times / n for i, times in Counter(picked[:n]).items()}
        loss = pool.losses_after(picked[: n - 1])[picked[n - 1]]
        return _Pick(shares, float(loss), best_single)

    def _minus_score(self, scorer: Scorer, picked: Sequence[int]) -> float:
        return -scorer(self.raw[list(picked)], self.y, self.weight)

    def mean(self, shares: Mapping[_Place, float]) -> Tensor:
        """What the picked ones have ``averaged``, (n, k)."""
        raws = zip(self.places, self.raw, strict=True)
        parts = [shares[at] * self.averaged(raw) for at, raw in raws if at in shares]
        return torch.stack(parts).sum(0)

    def outputs(self, counts: Mapping[_Part, int]) -> Tensor:
        """Raw outputs of snapshots and trees, each as often as it counts: (N, n, n_outputs)."""
        of_nets = dict(zip(self.places, self.raw, strict=True))
        return torch.stack(
            [
                of_nets[part.place] if part.kind == "net" else self.trees[part.place[0]]
                for part, n in counts.items()
                for _ in range(n)
            ]
        )


def _kind_weights(
    folds: Sequence[_Fold], picks: Sequence[_Pick], settings: Sequence[int], weights: np.ndarray
) -> list[float]:
    """Weights of the networks, which have one always, and of each setting of trees."""
    of_nets = [fold.mean(pick.shares) for fold, pick in zip(folds, picks, strict=True)]
    kinds = [of_nets, *([fold.averaged(fold.trees[s]) for fold in folds] for s in settings)]
    together = _pool_of_folds(folds, [torch.cat(parts) for parts in kinds], weights)
    picked, losses = select_greedily(together, _KINDS, first=0)
    n = int(np.argmin(losses)) + 1
    return (np.bincount(picked[:n], minlength=len(kinds)) / n).tolist()


def _shares_of_parts(
    fold: _Fold, pick: _Pick, settings: Sequence[int], by_kind: Sequence[float]
) -> dict[_Part, float]:
    """What a row of a fold is predicted by, and the weights."""
    return {
        **{_Part("net", at): by_kind[0] * share for at, share in pick.shares.items()},
        **{_Part("tree", (s, fold.number)): by_kind[i] for i, s in enumerate(settings, 1)},
    }


def _scored_kind_weights(
    folds: Sequence[_Fold],
    picks: Sequence[_Pick],
    settings: Sequence[int],
    size: int,
    scorer: Scorer,
) -> list[float]:
    """``_kind_weights`` by the score of the predictions for the rows of all folds."""
    y = torch.cat([fold.y for fold in folds])
    weights = [fold.weight for fold in folds if fold.weight is not None]
    n_kinds = 1 + len(settings)

    def minus_score(picked: Sequence[int]) -> float:
        by_kind = (np.bincount(picked, minlength=n_kinds) / len(picked)).tolist()
        raws = [
            fold.outputs(_count_parts(_shares_of_parts(fold, pick, settings, by_kind), size))
            for fold, pick in zip(folds, picks, strict=True)
        ]
        return -scorer(torch.cat(raws, 1), y, torch.cat(weights) if weights else None)

    picked, losses = select_greedily(ScoredPool(minus_score, n_kinds), _KINDS, first=0)
    n = int(np.argmin(losses)) + 1
    return (np.bincount(picked[:n], minlength=n_kinds) / n).tolist()


def _pool_of_folds(folds: Sequence[_Fold], kinds: Sequence[Tensor], weights: np.ndarray) -> Pool:
    """Predictions for the rows of all folds, each of which counts by its fold's weight."""
    by_row = [
        (torch.ones(len(f.y), dtype=torch.float64) if f.weight is None else f.weight) * w
        for f, w in zip(folds, weights * len(folds), strict=True)
    ]
    return Pool(
        folds[0].loss, torch.stack(list(kinds)), torch.cat([f.y for f in folds]), torch.cat(by_row)
    )


def _fold_weights(losses: np.ndarray) -> np.ndarray:
    """One over the losses, which add up to 1; equal ones where a loss may be negative."""
    if not (losses > 0).all():
        return np.full(len(losses), 1 / len(losses))
    weights = 1 / np.maximum(losses, 1e-3 * losses.mean())
    return weights / weights.sum()


def _common_factor(
    jobs: Sequence[Job], histories: Sequence[MemberHistory], without_part: int | None = None
) -> float:
    """The factor of all networks' outputs that suits the rows set aside; 1 but of smoothed labels.

    One for all, from each member's best snapshot: one for each would be learned of few rows. It is
    learned without the rows of a part, if one is given.
    """
    loss = histories[0].loss
    if loss == jobs[0].config.loss:
        return 1.0
    raws, ys, weights = [], [], []
    for job, history in zip(jobs, histories, strict=True):
        held_out, snapshots = job.plans[0].val_rows, history.snapshots(without_part)
        if held_out is None or not snapshots:
            continue
        raw = min(snapshots, key=lambda snapshot: snapshot.loss).raw
        assert raw is not None
        if without_part is not None and history.parts is not None:
            others = history.parts != without_part
            raw, held_out = raw[others], held_out[others]
        raws.append(raw.double())
        ys.append(job.rows.y[held_out])
        own = job.rows.weight
        weights.append(torch.ones(len(raw)) if own is None else own[held_out])
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
    left = sorted(sizes, key=lambda key: counts[key] - sizes[key])[: total - counts.total()]
    counts.update(left)
    return +counts


def _count_parts(weights: Mapping[_Part, float], total: int) -> Counter[_Part]:
    """``share_out`` with one network at least: the encoding and the target are kept by networks."""
    counts = share_out(weights, total)
    nets = [part for part in weights if part.kind == "net"]
    if not any(part in counts for part in nets):
        counts[counts.most_common(1)[0][0]] -= 1
        counts[max(nets, key=lambda part: weights[part])] = 1
    return +counts


def make_groups(
    members: Sequence[BaseMLP],
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    boosted: Sequence[Boosted],
    chosen: Chosen,
) -> tuple[list[BaseMLP], list[Trees], list[int]]:
    """Make fitted estimators of the chosen networks, one a shape; and the chosen trees.

    The last of what is returned are positions in all groups' networks, one after the other, and
    then the trees, each as often as it is chosen.
    """
    by_shape: dict[object, list[_Place]] = {}
    counts = chosen.counts
    for place in sorted(counts):
        by_shape.setdefault(jobs[place[0]].spec, []).append(place)
    groups: list[BaseMLP] = []
    selected: list[int] = []
    n_before = 0
    for places in by_shape.values():
        activations = [jobs[member].members[0].activation for member, _ in places]
        places = sorted_by_activation(places, activations)
        first = places[0][0]
        job = replace(jobs[first], members=tuple(jobs[member].members[0] for member, _ in places))
        results = [
            histories[member].result(
                histories[member].snapshots()[k], len(jobs[member].plans[0].rows)
            )
            for member, k in places
        ]
        members[first].become(job, results, chosen.factor)
        groups.append(members[first])
        selected += [n_before + i for i, place in enumerate(places) for _ in range(counts[place])]
        n_before += len(places)
    trees: list[Trees] = []
    for each in boosted:
        n = chosen.tree_counts.get((each.setting, each.fold), 0)
        if n:
            selected += [n_before + len(trees)] * n
            trees.append(each.trees)
    return groups, trees, selected


def member_table(
    members: Sequence[BaseMLP],
    jobs: Sequence[Job],
    histories: Sequence[MemberHistory],
    boosted: Sequence[Boosted],
    chosen: Chosen,
) -> pd.DataFrame:
    """One row a member and one for the trees of each setting and fold, whatever they weigh."""
    n_selected = sum(chosen.counts.values()) + sum(chosen.tree_counts.values())
    rows = []
    for i, (member, job, history) in enumerate(zip(members, jobs, histories, strict=True)):
        counts = [n for (own, _), n in chosen.counts.items() if own == i]
        losses = [loss for _, loss, _ in history.epochs if np.isfinite(loss)]
        rows.append(
            {
                "member": i,
                "activation": _label(job.members[0].activation),
                "depth": len(job.spec.widths) - 2,
                **{name: getattr(member, name) for name in (*VARIED, "numeric_embedding_dim")},
                "fold": history.fold,
                "n_iter": len(history.epochs),
                "validation_loss": min(losses, default=np.nan),
                "n_snapshots": len(counts),
                "weight": sum(counts) / n_selected,
            }
        )
    for i, each in enumerate(boosted, len(rows)):
        n = chosen.tree_counts.get((each.setting, each.fold), 0)
        rows.append(
            {
                **dict.fromkeys(rows[0], np.nan),
                "member": i,
                "activation": BOOSTING,
                "depth": 0,
                "learning_rate_init": SETTINGS[each.setting]["learning_rate"],
                "fold": each.fold,
                "n_iter": each.trees.n_steps,
                "validation_loss": each.loss,
                "n_snapshots": int(n > 0),
                "weight": n / n_selected,
            }
        )
    return pd.DataFrame(rows)


def _label(activation: ActivationSpec) -> str:
    if isinstance(activation, str):
        return activation
    return str(getattr(activation, "__name__", None) or repr(activation))


def history_table(histories: Sequence[MemberHistory]) -> pd.DataFrame:
    """One row a member and epoch."""
    columns = ["member", "epoch", "train_loss", "validation_loss", "learning_rate"]
    rows = [
        (i, epoch, *values)
        for i, history in enumerate(histories)
        for epoch, values in enumerate(history.epochs, 1)
    ]
    return pd.DataFrame(rows, columns=columns)
