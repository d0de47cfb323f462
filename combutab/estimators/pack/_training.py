"""The training of a pack's members, of whom snapshots are taken as they learn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import parallel_config
from joblib.parallel import get_active_backend
from torch import Tensor

from combutab._clusters import on_worker
from combutab.estimators._base import BaseMLP
from combutab.estimators.fitting import Job, Prepared, StackWatch, first_states, train_jobs
from combutab.nn import MLPSpec
from combutab.training import EpochReport, Loss, MemberResult, Rows, TrainableNetwork

_PARTS = 8  # of the planned epochs: a snapshot is the best of its part
_KEPT = 4  # snapshots a member, those of the smallest losses


@dataclass(frozen=True)
class Snapshot:
    """A member after some epoch: its weights, and what it says of the rows that it is scored on.

    ``predictions`` are as ``Loss.averaged`` gives them, None if there are no such rows.
    """

    epoch: int  # from 1
    loss: float
    state: dict[str, Tensor]
    predictions: Tensor | None


class Track:
    """One member's way: losses epoch by epoch, and its snapshots.

    As the scorer of the member's plan it sees each epoch's raw outputs for the validation rows, and
    no other stack's epochs: what is kept does not depend on how the work is shared out.
    """

    def __init__(self, loss: Loss, max_epochs: int, fold: int) -> None:
        self.loss, self.max_epochs, self.fold = loss.unsmoothed(), max_epochs, fold
        self.epochs: list[tuple[float, float, float]] = []  # losses and learning rates
        self._parts: dict[int, Snapshot] = {}
        self._scored: tuple[float, Tensor] | None = None

    def __call__(self, raw: Tensor, y: Tensor, weight: Tensor | None) -> float:
        """Score raw outputs, (1, n, n_outputs): minus the loss."""
        outputs = raw[0].double()
        y = y.double() if y.is_floating_point() else y
        losses = self.loss.rows(outputs, y)
        if weight is None:
            loss = float(losses.mean())
        else:
            loss = float((losses * weight).sum() / weight.sum())
        self._scored = loss, self.loss.averaged(outputs, y).to(raw.dtype)
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
        before = self._parts.get(part)
        if np.isfinite(trained) and (before is None or not loss >= before.loss):
            copied = {name: tensor.cpu() for name, tensor in state().items()}
            predictions = None if scored is None else scored[1].cpu()
            self._parts[part] = Snapshot(report.epoch, loss, copied, predictions)

    @property
    def usable(self) -> bool:
        """Tell whether there is a snapshot."""
        return bool(self._parts)

    def snapshots(self) -> list[Snapshot]:
        """The best of them, in the order of their epochs."""
        best = sorted(self._parts.values(), key=lambda snapshot: snapshot.loss)[:_KEPT]
        return sorted(best, key=lambda snapshot: snapshot.epoch)

    def __getstate__(self) -> dict[str, Any]:  # to and from other processes
        best = [id(snapshot) for snapshot in self.snapshots()]
        parts = {part: each for part, each in self._parts.items() if id(each) in best}
        return self.__dict__ | {"_parts": parts}

    def result(self, snapshot: Snapshot, n_rows: int) -> MemberResult:
        """A snapshot as training would give it, had it ended there with these weights the best."""
        done = self.epochs[: snapshot.epoch]
        scores = [] if snapshot.predictions is None else [-loss for _, loss, _ in done]
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


class _Recorder(StackWatch):
    """Tells the tracks of one stack's members of its epochs, and ends it when the time is up."""

    def __init__(self, watch: _Watch, tracks: Sequence[Track]) -> None:
        self.watch, self.tracks = watch, tracks

    def begins(self) -> bool:
        return not (self.watch.late and self.watch.any_usable())

    def on_epoch_network(self, report: EpochReport, network: TrainableNetwork, data: Rows) -> None:
        with self.watch.lock:  # after an interrupt some stacks end their epoch later
            if self.watch.closed:
                return
            for place, member in enumerate(report.members):
                self.tracks[member].end_epoch(report, place, partial(network.member_state, place))

    def on_epoch_end(self, report: EpochReport) -> bool:
        return self.watch.late

    def take(self, other: StackWatch) -> None:
        assert isinstance(other, _Recorder)
        for track, copy in zip(self.tracks, other.tracks, strict=True):
            track.__dict__.update(copy.__dict__)


class _Watch:
    """All stacks' tracks and their time.

    A copy in another process, maybe on another machine, knows the time alone, by its clock.
    """

    def __init__(self, tracks: Sequence[Track], deadline: float) -> None:
        self.tracks, self.deadline = tracks, deadline
        self.lock, self.closed, self.at_home = threading.Lock(), False, True

    @property
    def late(self) -> bool:
        return time.perf_counter() >= self.deadline

    def any_usable(self) -> bool:
        """Tell whether a member has a snapshot, as another process takes for granted."""
        return not self.at_home or any(track.usable for track in self.tracks)

    def __getstate__(self) -> dict[str, float]:
        return {"until": time.time() + self.deadline - time.perf_counter()}

    def __setstate__(self, state: dict[str, float]) -> None:
        self.__init__([], state["until"] - time.time() + time.perf_counter())  # type: ignore[misc]
        self.at_home = False


def member_jobs(
    members: Sequence[BaseMLP], folds: Sequence[Prepared]
) -> tuple[list[Job], list[Track]]:
    """Make each member's job, and what follows it; members take turns at the folds.

    Networks that differ in the scale of their first frequencies have one shape all the same: they
    begin with weights that are drawn here.
    """
    jobs, tracks = [], []
    for i, member in enumerate(members):
        number = i % len(folds)
        fold = folds[number]
        wanted = member.batch_size
        if not isinstance(wanted, str):  # no warning a member of a table that is smaller
            member.batch_size = min(wanted, fold.n_train)
        job = member._build(fold)
        track = Track(job.config.loss, job.config.max_epochs, number)
        config, plans = job.config, job.plans
        if not isinstance(wanted, str):  # folds of other sizes share stacks all the same
            member.batch_size = wanted
            config = replace(config, batch_size=int(wanted))
        if fold.val is not None:
            config = replace(config, score="scorer")
            plans = tuple(replace(plan, scorer=track) for plan in plans)
        spec = job.spec
        if isinstance(spec, MLPSpec):
            spec = replace(spec, frequency_scale=1.0)
        first = first_states(job)
        jobs.append(replace(job, spec=spec, config=config, plans=plans, start_states=first))
        tracks.append(track)
    return jobs, tracks


def train_members(
    jobs: Sequence[Job],
    tracks: Sequence[Track],
    deadline: float,
    n_jobs: int | None,
    on_trained: Callable[[int], None] | None,
) -> bool:
    """Train one member a job until the deadline; what it learns is in its track.

    Stacks train in threads, or wherever joblib's context sends them. Members know nothing of one
    another, so that it makes no difference but to what is left out for want of time.

    Returns
    -------
    bool
        Whether Ctrl-C ended it. It ends the program as ever where no epoch is done.
    """
    watch, n_trained = _Watch(tracks, deadline), 0
    backend, wanted = get_active_backend(prefer="threads")
    spread = not getattr(backend, "supports_sharedmem", False) and not on_worker()

    def tell(results: Mapping[int, list[MemberResult]]) -> None:
        nonlocal n_trained
        n_trained += len(results)
        if on_trained is not None:
            on_trained(n_trained)

    def train(n_jobs: int | None) -> bool:
        results = train_jobs(
            jobs,
            on_jobs=tell,
            skip=[i for i, track in enumerate(tracks) if track.epochs],
            n_jobs=n_jobs,
            keep_optimizers=False,
            watch=lambda members: _Recorder(watch, [tracks[job] for job, _ in members]),
        )
        return any(result.reason == "interrupted" for found in results for result in found)

    try:
        if spread and (n_jobs or wanted) != 1:
            interrupted = train(n_jobs or wanted)
            if not watch.late or watch.any_usable():
                return interrupted  # else all workers were too late: one epoch there is
        with parallel_config(backend="threading"):
            return train(n_jobs)
    except KeyboardInterrupt:
        if not any(track.usable for track in tracks):
            raise
        return True
    finally:
        with watch.lock:
            watch.closed = True
