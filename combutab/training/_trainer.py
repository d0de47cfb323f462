"""The training loop, and the stacks of estimators' networks that it trains."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from combutab.core.device import limit_threads, network_threads, training_flops
from combutab.core.files import check_fields, several, whole
from combutab.core.progress import uninterrupted
from combutab.core.world import ONE_PROCESS, broadcast, current, refuse_mixed_rows, unshared
from combutab.nn import TableNetwork
from combutab.training._callbacks import Callback, EpochReport
from combutab.training._losses import accuracy, best_factors, r2, subset_factors, subset_sums
from combutab.training._optimizers import (
    RowOptimizer,
    cycle_ends,
    is_per_step,
    rate_table,
    schedule_factor,
)
from combutab.training._steps import (
    Batch,
    Batches,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    StepInputs,
    TrainConfig,
    TrainingStep,
    by_head,
    row_table,
)

Result = TypeVar("Result")  # of one member

# ---- The one training loop: callbacks, time, Ctrl-C, and what ranks agree on ---------------------


class Trainable(ABC, Generic[Result]):
    """Base class of networks that the training loop trains, one epoch at a time."""

    members: list[int]  # still in training, by their places in the stack as it was given
    learning_rates: list[float]  # one each
    step_flops: float = math.inf
    """Floating-point operations of a step on the CPU; small steps take fewer threads."""

    @property
    def finished(self) -> bool:
        """Tell whether all members have ended."""
        return not self.members

    def begin(self) -> int:
        """Return the number of epochs in the checkpoint that training continues from, else 0."""
        return 0

    @abstractmethod
    def epoch(
        self, number: int, progress: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Train one epoch, counted from 0, with the same result on all ranks.

        Returns the members' losses by name, the main one first, and their scores on the validation
        rows, or None. ``progress`` is the share of the training that is done, from 0 to 1.
        """

    @abstractmethod
    def record(self, losses: dict[str, np.ndarray], scores: np.ndarray | None) -> None:
        """Store the results of ``epoch``; Ctrl-C takes effect only afterwards."""

    def show(self, callback: Callback, report: EpochReport) -> None:
        """Pass the networks after the epoch to a callback; the default does nothing."""
        return

    def end_epoch(self, n_epochs: int, *, stop: bool) -> None:
        """End the members that have finished; ``stop`` if this epoch is the last for all."""
        return

    @abstractmethod
    def stop(self, reason: str) -> None:
        """End all members that are left, for "callback", "max_time" or "interrupted".

        May raise KeyboardInterrupt if nothing is learned yet.
        """

    @abstractmethod
    def results(self) -> list[Result]:
        """Return the members' results as if training ended now; training can continue unchanged."""


@torch.enable_grad()  # and as before in the end, if Ctrl-C comes as a torch.no_grad in here ends
def train(
    training: Trainable[Result],
    max_epochs: int,
    callbacks: Sequence[Callback] = (),
    max_seconds: float = np.inf,
) -> list[Result]:
    """Train until all members have ended, and return their results.

    Training stops after the first epoch at whose end ``max_seconds`` have passed. If several ranks
    share the training, only the first calls the callbacks, and its clock counts.

    Ctrl-C stops training, and the results so far are returned. With several ranks it raises
    KeyboardInterrupt.
    """
    with limit_threads(network_threads(training.step_flops), lasting=True):
        return _train_epochs(training, max_epochs, callbacks, max_seconds)


def _train_epochs(
    training: Trainable[Result],
    max_epochs: int,
    callbacks: Sequence[Callback],
    max_seconds: float,
) -> list[Result]:
    started, world = time.perf_counter(), current()
    callbacks = () if world.number else callbacks
    begun: list[Callback] = []
    n_done, n_members = training.begin(), len(training.members)
    try:
        for callback in callbacks:
            callback.on_train_results(training.results)
            callback.on_train_begin(n_members, max_epochs)
            begun.append(callback)
        for number in range(n_done, max_epochs):
            if training.finished:
                break
            passed = 0.0
            if np.isfinite(max_seconds) and max_seconds > 0:
                passed = broadcast((time.perf_counter() - started) / max_seconds)
            with unshared():  # fits of a callback run on rank 0 only
                for callback in callbacks:
                    callback.on_epoch_begin(number + 1)
            progress = min(1.0, max(number / max_epochs, passed))
            losses, scores = training.epoch(number, progress)
            with uninterrupted():
                training.record(losses, scores)
            report = EpochReport(
                number + 1,
                max_epochs,
                tuple(training.members),
                next(iter(losses.values())),
                scores,
                np.array(training.learning_rates),
                time.perf_counter() - started,
                losses,
                max_seconds,
            )
            with unshared():
                for callback in callbacks:
                    training.show(callback, report)
                stops = [
                    callback.on_epoch_end(report) for callback in callbacks
                ]  # each callback gets the report
            reason = "callback" if any(stops) else ""
            if report.seconds >= max_seconds:
                reason = reason or "max_time"
            reason = broadcast(reason)
            training.end_epoch(number + 1, stop=bool(reason))
            if reason:
                training.stop(reason)
                break
    except KeyboardInterrupt:
        if world.count > 1:  # the others are elsewhere
            raise
        training.stop("interrupted")
    finally:
        for callback in begun:
            callback.on_train_end()
    return training.results()


# ---- Scores of a stack on its members' validation rows -------------------------------------------

_ROWS = 8192  # scored at a time: bounds the memory of a pass


class Scorer:
    """The scoring of members on held-out rows, which stay the same while members train."""

    def __init__(self, data: Rows, plans: Sequence[MemberPlan], config: TrainConfig) -> None:
        self.data, self.config = data, config
        rows = [plan.val_rows for plan in plans if plan.val_rows is not None]  # all have some
        self.table = row_table(rows, data.dense.device)
        self.lengths, self.scorers = [len(r) for r in rows], [plan.scorer for plan in plans]
        self.loss = config.loss.unsmoothed()
        self.factors = [1.0] * len(plans)  # of the raw outputs that were scored last
        positions = torch.arange(self.table.shape[1], device=self.table.device)
        real = positions < torch.tensor(self.lengths, device=self.table.device).unsqueeze(1)
        weight = real.to(data.dense.dtype)  # 0 for padding
        self.weight = weight if data.weight is None else weight * data.weight[self.table]
        # the parts of the members' validation rows, (M, n), 0 for padding; None if there are none
        self.parts: Tensor | None = None
        # 1 for rows outside of each part, else 0, (M, n, K)
        self.others: Tensor | None = None
        if any(plan.val_parts is not None for plan in plans):
            self.parts = torch.zeros_like(self.table)
            for m, plan in enumerate(plans):
                if plan.val_parts is not None:
                    self.parts[m, : len(plan.val_parts)] = plan.val_parts.to(self.table.device)
            numbers = torch.arange(int(self.parts.max()) + 1, device=self.table.device)
            self.others = (self.parts.unsqueeze(2) != numbers).to(torch.float64)
        # of the epoch that was scored last: scores without each part, (M, K), and raw outputs of
        # the validation rows, (M, n, n_outputs), averaged over heads
        self.part_scores = self.outputs = torch.empty(0)

    @torch.inference_mode()
    def scores(self, net: TableNetwork) -> Tensor:
        """Each member's score, (M,) float64 on the device."""
        net.train(False)
        n_rows, world = self.table.shape[1], current()
        if n_rows < world.count:
            world = ONE_PROCESS
        first, end = world.span(n_rows)
        config, data = self.config, self.data
        scored_parts, n_heads = list[Tensor](), net.n_heads
        averages = list[Tensor]()
        finite = torch.ones(len(self.table), dtype=torch.bool, device=self.table.device)
        for start in range(first, end, _ROWS):
            index = self.table[:, start : min(start + _ROWS, end)]
            codes = None if data.codes is None else data.codes[index]
            with config.precision.context(data.dense.device)():
                raw = net(data.dense[index], codes)
            raw = raw.to(config.precision.dtype)
            finite &= raw.isfinite().flatten(1).all(1)
            scored_parts.append(
                raw if config.calibrated else self._judged(raw, n_heads, data.y[index])
            )
            if self.parts is not None and not config.calibrated:
                averages.append(self.loss.average(raw, n_heads))
        # outputs that are not finite have no score; their class would be arbitrary
        scored, finite = world.all_gather(torch.cat(scored_parts, 1), n_rows), world.all(finite)
        part_losses = None
        if averages:
            self.outputs = world.all_gather(torch.cat(averages, 1), n_rows)
        if config.calibrated:
            scored, part_losses = self._calibrated(scored, n_heads)
        scores = torch.where(finite, self._score(scored, finite, self.weight), torch.nan)
        if self.others is not None:
            self._score_without_parts(scores, scored, finite, part_losses)
        ranks = current()
        if ranks.count > 1:  # the scores are those of rank 0: processors may round differently
            factors = scores.new_tensor(self.factors)
            for tensor in (scores, factors):
                ranks.broadcast(tensor)
            self.factors = factors.tolist()
            if self.parts is not None:
                ranks.broadcast(self.part_scores)
                ranks.broadcast(self.outputs)
        return scores

    def _calibrated(self, raw: Tensor, n_heads: int) -> tuple[Tensor, Tensor | None]:
        """Scale raw outputs (M, n * n_heads, n_outputs), and return the values to score.

        Outputs of each part are scaled by the factor of the other parts, whose mean losses, (M, K),
        are returned too.
        """
        y, loss, part_losses = self.data.y[self.table], self.loss, None

        def losses(scaled: Tensor) -> Tensor:
            return loss.rows(loss.average(scaled, n_heads), y)

        if self.parts is None or self.others is None:
            factors = best_factors(losses, raw, self.weight)
        else:
            factors, part_factors, part_losses = subset_factors(
                losses, raw, self.weight, self.others
            )
            by_row = by_head(part_factors.gather(1, self.parts), n_heads).unsqueeze(-1)
            self.outputs = loss.average(raw * by_row.to(raw), n_heads)
        self.factors = factors.tolist()
        return self._judged(raw * factors.to(raw)[:, None, None], n_heads, y), part_losses

    def _score_without_parts(
        self, scores: Tensor, scored: Tensor, finite: Tensor, losses: Tensor | None
    ) -> None:
        """Score the validation rows without each part, (M, K).

        Where the other parts cannot be scored, such as without a class, all rows are.
        """
        assert self.others is not None
        if losses is not None and self.config.score == "loss":
            without = -losses
        elif self.config.score == "loss":
            weighted, weight = scored * self.weight.to(torch.float64), self.weight
            without = -subset_sums(weighted, self.others) / subset_sums(weight, self.others)
        elif self.config.score == "scorer":
            without = self._subset_scores(scored, finite)
        else:
            columns = self.others.to(self.weight.dtype).unbind(2)
            by_part = [
                self._score(scored, finite, self.weight * is_outside) for is_outside in columns
            ]
            without = torch.stack(by_part, 1)
        usable = without.isfinite() & finite.unsqueeze(1)
        self.part_scores = torch.where(usable, without, scores.unsqueeze(1))

    def _judged(self, raw: Tensor, n_heads: int, y: Tensor) -> Tensor:
        """Values to score, from raw outputs (M, n * n_heads, n_outputs).

        It is the outputs of all heads, or the loss or the prediction of the heads' average.
        """
        if self.config.score == "scorer":
            return raw.unflatten(1, (-1, n_heads))
        average = self.loss.average(raw, n_heads)
        return (
            self.loss.rows(average, y) if self.config.score == "loss" else self.loss.point(average)
        )

    def _subset_scores(self, raw: Tensor, finite: Tensor) -> Tensor:
        """Scores by the members' scorers without each part, (M, K); NaN if it cannot be scored."""
        assert self.others is not None
        scores = torch.full(self.others.shape[::2], torch.nan, dtype=torch.float64)
        for m in finite.nonzero().flatten().tolist():
            for k, is_outside in enumerate(self.others[m, : self.lengths[m]].bool().unbind(1)):
                with suppress(ValueError):  # the other parts may lack a class
                    scores[m, k] = self._judge(m, raw[m], is_outside)
        return scores.to(raw.device)

    def _score(self, scored: Tensor, finite: Tensor, weight: Tensor) -> Tensor:
        """Score predictions, losses or raw outputs of all validation rows."""
        if self.config.score == "scorer":
            members = enumerate(finite.tolist())
            scores = [self._judge(m, scored[m]) if is_known else 0.0 for m, is_known in members]
            return torch.tensor(scores, dtype=torch.float64, device=scored.device)
        if self.config.score == "loss":
            weight = weight.to(torch.float64)
            return -(scored * weight).sum(1) / weight.sum(1)
        metric = accuracy if self.config.score == "accuracy" else r2
        return metric(scored, self.data.y[self.table], weight)

    def _judge(self, m: int, raw: Tensor, chosen: Tensor | None = None) -> float:
        """Score raw outputs, (n, n_heads, n_outputs), of all validation rows or of chosen ones."""
        scorer, rows = self.scorers[m], self.table[m, : self.lengths[m]]
        assert scorer is not None
        raw = raw[: len(rows)]
        if chosen is not None:
            raw, rows = raw[chosen], rows[chosen]
        weight = None if self.data.weight is None else self.data.weight[rows]
        return scorer(raw.transpose(0, 1), self.data.y[rows], weight)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        index = torch.tensor(list(keep), device=self.table.device)
        self.table, self.weight = self.table[index], self.weight[index]
        if self.parts is not None and self.others is not None:
            self.parts, self.others = self.parts[index], self.others[index]
        self.lengths = [self.lengths[k] for k in keep]
        self.scorers = [self.scorers[k] for k in keep]
        self.factors = [self.factors[k] for k in keep]


class HeldOutOutputs:
    """Outputs for validation rows, those of each part from the epoch that suits the others best.

    The best epoch of all validation rows suits them better than new rows. The outputs here are not
    affected by this: no row has a part in the choice of the epoch that it is predicted by.
    """

    def __init__(self, parts: Tensor) -> None:
        self.parts = parts  # (M, n)
        n_parts = int(parts.max()) + 1
        self.best = parts.new_full((len(parts), n_parts), -np.inf, dtype=torch.float64)
        self.outputs: Tensor | None = None  # (M, n, n_outputs)

    @torch.inference_mode()
    def update(self, scores: Tensor, outputs: Tensor) -> None:
        """Take the outputs of parts whose score, (M, K), is better than before, or the first."""
        better = (scores > self.best) | self.best.isneginf()
        self.best = torch.where(scores > self.best, scores, self.best)
        if self.outputs is None:
            self.outputs = torch.full_like(outputs, torch.nan)
        rows = better.gather(1, self.parts).unsqueeze(2)
        self.outputs = torch.where(rows, outputs, self.outputs)

    def member(self, m: int, n_rows: int) -> Tensor | None:
        """Return a member's outputs, (n, n_outputs), on the CPU."""
        return None if self.outputs is None else self.outputs[m, :n_rows].cpu().clone()

    def load_member(self, m: int, best: Tensor, outputs: Tensor) -> None:
        """Continue from a member's best scores, (K,), and outputs."""
        n_rows, device = len(outputs), self.parts.device
        if self.outputs is None:
            shape = (*self.parts.shape, outputs.shape[1])
            self.outputs = torch.full(shape, torch.nan, dtype=outputs.dtype, device=device)
        self.outputs[m, :n_rows] = outputs.to(device)
        self.best[m] = best.to(device)

    def select(self, members: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        index = torch.tensor(list(members), device=self.parts.device)
        self.parts, self.best = self.parts[index], self.best[index]
        if self.outputs is not None:
            self.outputs = self.outputs[index]


# ---- A stack in training as arrays, and back, bit for bit ----------------------------------------

Arrays = Mapping[str, np.ndarray]
_CURVES = ("train_loss", "validation_score", "learning_rate", "train_metric")
_NUMBERS = ("epochs", "t", "best_loss", "best_score", "n_iter_no_improvement", "next_learning_rate")
_COUNTS = ("epochs", "t", "n_iter_no_improvement")
_PROGRESS = {"epochs": whole(), "members": several(whole())}  # in training
_BEST = ("best", "best_buffers")  # each member's weights and buffers of its best epoch
_REASONS = ("", "max_iter", "no_improvement", "callback", "interrupted", "diverged", "max_time")


class StackFile(Protocol):
    """Checkpoint of a stack in training."""

    @property
    def is_due(self) -> bool:
        """Tell whether the checkpoint is old enough to be written again."""

    def load(self, restore: Callable[[Arrays, dict[str, Any]], int]) -> int:
        """Restore the checkpoint, if there is one; returns its number of epochs, else 0."""

    def set_state(self, arrays: Arrays, progress: Mapping[str, Any]) -> None:
        """Set the state and the progress of the training; write them if a write is due."""

    def write(self) -> None:
        """Write the last state."""


def result_arrays(prefix: str, result: MemberResult) -> dict[str, np.ndarray]:
    arrays = {f"state.{name}": value.cpu().numpy() for name, value in result.state.items()}
    arrays |= {f"optimizer.{name}": value.numpy() for name, value in result.optimizer.items()}
    arrays |= {name: np.array(getattr(result, name), dtype=np.float64) for name in _CURVES}
    arrays["numbers"] = np.array([getattr(result, name) for name in _NUMBERS], dtype=np.float64)
    arrays["reason"] = np.array(_REASONS.index(result.reason))
    if result.held_out is not None:
        arrays["held_out"] = result.held_out.numpy()
    return {prefix + name: array for name, array in arrays.items()}


def result_from_arrays(arrays: Arrays, prefix: str) -> MemberResult:
    def tensors(part: str) -> dict[str, torch.Tensor]:
        start = f"{prefix}{part}."
        return {
            n.removeprefix(start): torch.from_numpy(a)
            for n, a in arrays.items()
            if n.startswith(start)
        }

    values: dict[str, Any] = {name: arrays[prefix + name].tolist() for name in _CURVES}
    for name, number in zip(_NUMBERS, arrays[f"{prefix}numbers"].tolist(), strict=True):
        values[name] = int(number) if name in _COUNTS else number
    held_out = arrays.get(f"{prefix}held_out")
    return MemberResult(
        state=tensors("state"),
        optimizer=tensors("optimizer"),
        reason=_REASONS[int(arrays[f"{prefix}reason"])],
        held_out=None if held_out is None else torch.from_numpy(held_out),
        **values,
    )


# ---- M networks of one shape in training, each with its own rows, rate and end -------------------

_SMALLEST_RATE = 1e-6  # below it, "adaptive" stops (scikit-learn's value)


class StackTraining(Trainable[MemberResult]):
    """A stack in training."""

    def __init__(
        self,
        net: TableNetwork,
        data: Rows,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        stream: RowStream | None = None,
        file: StackFile | None = None,
    ) -> None:
        self.file = file
        self.net, self.data, self.config, self.world = net, data, config, current()
        self.plans = list(plans)
        self.device = data.dense.device
        self.members = list(range(len(plans)))
        factors = net.rate_factors(dict(config.rate_factors))
        self.optimizer = RowOptimizer(config.optimizer, net.flat.values, net.n_decayed, factors)
        self.stream = stream
        self.n_rows = [len(p.rows) if stream is None else stream.n_rows for p in plans]
        if stream is None:
            self.batches = Batches(plans, config, self.device, config.max_epochs)
        self.step = TrainingStep(net, plans, config, self.optimizer, self.n_rows)
        self.scorer = Scorer(data, plans, config) if config.score else None
        self.held_out: HeldOutOutputs | None = None
        if self.scorer is not None and self.scorer.parts is not None:
            self.held_out = HeldOutOutputs(self.scorer.parts)
        # of the members in training; states are added when a member ends
        self.records = [deepcopy(p.start) if p.start else MemberResult() for p in plans]
        for i, record in enumerate(self.records):
            self.optimizer.load_member(i, record.optimizer)
            record.optimizer = {}
        self.learning_rates = [  # now, after the schedule
            p.learning_rate if record.next_learning_rate is None else record.next_learning_rate
            for p, record in zip(plans, self.records, strict=True)
        ]
        batch_rows = min(config.batch_size, max(self.n_rows)) * net.n_heads
        if self.device.type == "cpu":  # of the whole stack, also after members have ended
            self.step_flops = training_flops(batch_rows, net.flat.values.numel())
        self.cycle_ends = cycle_ends(config.learning_rate, config.max_epochs)
        self.best_factor = [1.0] * len(plans)  # of raw outputs
        self.best = [flat.values.clone() for flat in net.flats] if config.score else []
        self.metric: Tensor | None = None  # of the epoch: each member's mean
        self.ended: list[MemberResult | None] = [None] * len(plans)
        self._cached: Batch | None = None

    def begin(self) -> int:
        """See `Trainable`."""
        n_done = 0 if self.file is None else self.file.load(self.restore)
        if self.scorer is not None and any(p.start for p in self.plans):
            # the weights of an earlier call stay the best until an epoch is better
            for m, score in enumerate(self.scorer.scores(self.net).tolist()):
                if self.plans[m].start is not None:
                    self.records[m].best_score = score
                    self.best_factor[m] = self.scorer.factors[m]
        return n_done

    # ---- one epoch -------------------------------------------------------------------------

    def _windows(self, epoch: int) -> Iterator[Batches]:
        """Bring the epoch's rows into ``data``, part by part."""
        if self.stream is None:
            yield self.batches
            return
        scored, before = self.data, 0
        for window in self.stream.windows(epoch):
            self.data, rows = window, torch.arange(len(window.dense))
            plans = [replace(plan, rows=rows) for plan in self.plans]
            batches = Batches(plans, self.config, self.device, epoch + 1, before)
            yield batches
            before += batches.n_steps
        self.data = scored

    def epoch(
        self, number: int, progress: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """See `Trainable`; the loss is each member's mean penalised one."""
        if not self.net.training:
            self.net.train(True)
        self.step.sums.zero_()
        schedule, begun = self.config.regularization_schedule, number / self.config.max_epochs
        self.step.set_regularization(schedule_factor(schedule, begun))
        table = self._rate_table(number)
        rates = self.optimizer.place_rates(table, self.step.decays)
        for batches in self._windows(number):
            order = batches.order(number)
            keys = batches.mask_keys(number) if self.step.masks.active else None
            for step in range(batches.n_steps):
                start, stop = batches.span(step)
                inputs = StepInputs(
                    order[:, start:stop],
                    None if keys is None else keys[step],
                    rates[min(batches.before + step, len(rates) - 1)],
                    batches.padding(step),
                )
                batch = self._cached
                if batch is None:
                    batch = self.step.gather(self.data, inputs)
                    if self.stream is None and batches.fixed:
                        self._cached = batch  # the same rows in the same order every epoch
                self.step(batch, inputs)
        self.learning_rates = list(table[-1])
        if self.world.count > 1:
            sums = self.step.sums[::2].clone()  # all but the rows' weight, which each rank has
            self.world.all_reduce(sums)
            self.step.sums[::2] = sums
            self.world.broadcast(self.net.flat.values)  # processors may round differently
        self.step.sum_penalty()
        self.world.broadcast(self.step.sums)
        loss, total_weight, metric, penalty = self.step.sums.cpu()  # the epoch's one sync
        if self.config.track_metric:
            self.metric = metric / total_weight
        losses = (loss / total_weight + penalty).numpy()
        scores = None if self.scorer is None else self.scorer.scores(self.net).cpu().numpy()
        return {"loss": losses}, scores

    def show(self, callback: Callback, report: EpochReport) -> None:
        """See `Trainable`."""
        callback.on_epoch_network(report, self.net, self.data)

    def _rate_table(self, epoch: int) -> list[list[float]]:
        """Rates of the epoch's steps, one row for all if they are constant."""
        if not is_per_step(self.config.learning_rate):
            return [self.learning_rates]
        base = [plan.learning_rate for plan in self.plans]
        n_steps = [-(-n // self.config.batch_size) for n in self.n_rows]
        return rate_table(self.config.learning_rate, base, n_steps, epoch, self.config.max_epochs)

    # ---- the end of an epoch -----------------------------------------------------------------

    def record(self, losses: dict[str, np.ndarray], scores: np.ndarray | None) -> None:
        """See `Trainable`."""
        improved, config = [], self.config
        metrics = None if self.metric is None else self.metric.tolist()
        for m, loss in enumerate(losses["loss"].tolist()):
            record = self.records[m]
            record.train_loss.append(loss)
            if metrics is not None:
                record.train_metric.append(metrics[m])
            record.learning_rate.append(self.learning_rates[m])
            record.epochs += 1
            record.t += self.n_rows[m]
            if scores is not None and self.scorer is not None:
                score = float(scores[m])
                record.validation_score.append(score)
                idle = not score >= record.best_score + config.tol  # NaN is not an improvement
                if score > record.best_score:
                    record.best_score, self.best_factor[m] = score, self.scorer.factors[m]
                    improved.append(m)
            else:
                idle = loss > record.best_loss - config.tol
            record.best_loss = min(record.best_loss, loss)
            record.n_iter_no_improvement = record.n_iter_no_improvement + 1 if idle else 0
        if self.held_out is not None and self.scorer is not None:
            self.held_out.update(self.scorer.part_scores, self.scorer.outputs)
        if improved:
            index = torch.tensor(improved, device=self.device)
            for best, flat in zip(self.best, self.net.flats, strict=True):
                best[index] = flat.values[index]

    def end_epoch(self, n_epochs: int, *, stop: bool) -> None:
        """See `Trainable`; also decays the rates of the remaining members."""
        config, ended = self.config, dict[int, str]()
        for m, record in enumerate(self.records):
            if not np.isfinite(record.train_loss[-1]):
                ended[m] = "diverged"
                continue
            if config.learning_rate == "invscaling":
                self.learning_rates[m] = (
                    self.plans[m].learning_rate / (record.t + 1) ** config.power_t
                )
            if record.n_iter_no_improvement > config.n_iter_no_change:
                if config.learning_rate == "adaptive" and self.learning_rates[m] > _SMALLEST_RATE:
                    self.learning_rates[m] /= 5
                    record.n_iter_no_improvement = 0
                else:
                    ended[m] = "no_improvement"
            if self._ends_with_cycle(record.validation_score, n_epochs):
                ended[m] = "no_improvement"
            if n_epochs == config.max_epochs and not stop:
                ended.setdefault(m, "max_iter")
        self._end(ended)
        last = stop or not self.members
        if self.file is not None and (last or self.file.is_due):
            with uninterrupted():
                self.file.set_state(*self.state(n_epochs))
                if last:
                    self.file.write()

    def _ends_with_cycle(self, scores: Sequence[float], n_epochs: int) -> bool:
        """Tell whether this epoch ends a cycle of the learning rate that improved too little."""
        gain, ends = self.config.min_cycle_gain, self.cycle_ends
        if gain == 0 or np.isinf(self.config.n_iter_no_change) or n_epochs not in ends[1:]:
            return False
        start = ends[ends.index(n_epochs) - 1]
        before, best = np.fmax.reduce(scores[:start]), np.fmax.reduce(scores)
        return bool(best < before + gain * abs(before))

    def stop(self, reason: str) -> None:
        """See `Trainable`."""
        self._end(dict.fromkeys(range(len(self.members)), reason))

    def _end(self, ended: dict[int, str]) -> None:
        """Write the results of these members and drop them from the stack."""
        with uninterrupted():  # half of a change would mix up members
            self._load_best(ended)
            for m, reason in ended.items():
                self.ended[self.members[m]] = self.result(m, reason)
            self.keep([m for m in range(len(self.members)) if m not in ended])

    def _load_best(self, members: Iterable[int]) -> None:
        for m in members:
            if self.best and np.isfinite(self.records[m].best_score):
                for best, flat in zip(self.best, self.net.flats, strict=True):
                    flat.values[m] = best[m]
                if self.config.calibrated:
                    self.net.scale_outputs(m, self.best_factor[m])

    def results(self) -> list[MemberResult]:
        """See `Trainable`."""
        results, values_before = list(self.ended), [flat.values.clone() for flat in self.net.flats]
        with uninterrupted():
            try:
                self._load_best(range(len(self.members)))
                for m, i in enumerate(self.members):
                    results[i] = self.result(m, "callback")
            finally:
                for flat, values in zip(self.net.flats, values_before, strict=True):
                    flat.values.copy_(values)
        return [result for result in results if result is not None]

    def result(self, m: int, reason: str) -> MemberResult:
        """The result of a member if its training ended now."""
        parts, held_out = self.plans[m].val_parts, None
        if self.held_out is not None and parts is not None:
            held_out = self.held_out.member(m, len(parts))
        return replace(
            self.records[m],
            held_out=held_out,
            state={n: v.cpu() for n, v in self.net.member_state(m).items()},
            optimizer=self.optimizer.member(m),
            reason=reason,
            next_learning_rate=self.learning_rates[m],
        )

    def state(self, n_epochs: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state of the stack after ``n_epochs``: arrays, and the progress of training.

        Members are named by their places in the stack as it was given; those that have ended have
        their results, the others also their training state.
        """
        arrays: dict[str, np.ndarray] = {}
        for i, result in enumerate(self.ended):
            if result is not None:
                arrays |= result_arrays(f"{i}.", result)
        for m, i in enumerate(self.members):
            arrays |= result_arrays(f"{i}.", self.result(m, ""))
            arrays[f"{i}.best_factor"] = np.array(self.best_factor[m])
            if self.held_out is not None:
                arrays[f"{i}.part_scores"] = self.held_out.best[m].cpu().numpy()
            arrays |= {
                f"{i}.{name}": best[m].cpu().numpy()
                for name, best in zip(_BEST, self.best, strict=False)
            }
        return arrays, {"epochs": n_epochs, "members": list(self.members)}

    def restore(self, arrays: Arrays, progress: dict[str, Any]) -> int:
        """Continue from the result of ``state``; returns its epochs.

        Raises KeyError or ValueError if it is of another stack.
        """
        check_fields(progress, _PROGRESS, "the training's progress")
        members = progress["members"]
        for i in range(len(self.plans)):
            if i not in members:
                self.ended[i] = result_from_arrays(arrays, f"{i}.")
        self.keep(members)
        for m, i in enumerate(self.members):
            result = result_from_arrays(arrays, f"{i}.")
            self.net.load_member(m, result.state)
            self.optimizer.load_member(m, result.optimizer)
            assert result.next_learning_rate is not None
            self.learning_rates[m] = result.next_learning_rate
            self.records[m] = replace(result, state={}, optimizer={}, held_out=None)
            if self.held_out is not None and result.held_out is not None:
                best = torch.from_numpy(arrays[f"{i}.part_scores"])
                self.held_out.load_member(m, best, result.held_out)
            self.best_factor[m] = float(arrays[f"{i}.best_factor"])
            for name, best in zip(_BEST, self.best, strict=False):
                best[m] = torch.from_numpy(arrays[f"{i}.{name}"])
        return int(progress["epochs"])

    def keep(self, keep: Sequence[int]) -> None:
        """Drop all members but these (increasing)."""
        if not keep or len(keep) == len(self.members):
            self.members = [self.members[k] for k in keep]
            return
        self.net.select(keep)
        self.optimizer.select(keep)
        if self.stream is None:
            self.batches.select(keep)
        if self.scorer is not None:
            self.scorer.select(keep)
        if self.held_out is not None:
            self.held_out.select(keep)
        for name in ("plans", "members", "n_rows", "learning_rates", "records", "best_factor"):
            values = getattr(self, name)
            setattr(self, name, [values[k] for k in keep])
        index = torch.tensor(keep, device=self.device)
        self.best = [best[index] for best in self.best]
        self.step.refresh(self.plans, self.n_rows)
        self._cached = None


def train_stack(
    net: TableNetwork,
    data: Rows,
    plans: Sequence[MemberPlan],
    config: TrainConfig,
    callbacks: Sequence[Callback] = (),
    stream: RowStream | None = None,
    file: StackFile | None = None,
) -> list[MemberResult]:
    """Train a stack; result i is that of ``plans[i]``, as if it were trained separately.

    With a ``stream``, all members train on its rows, and ``data`` has only the validation rows.

    Ctrl-C ends all members with the reason ``"interrupted"`` and their best weights so far; with
    several ranks it raises KeyboardInterrupt. ``net`` cannot be used afterwards: members that
    finish are removed from it.

    With a ``file``, training continues from this checkpoint, with the same result as without a
    break.

    If several ranks share the fit, each trains on a part of the rows of every batch. All ranks must
    pass the same arguments, and get the same result. A network in which a row's output depends on
    the other rows of its batch raises a ValueError.
    """
    refuse_mixed_rows(net.mixes_rows())
    training = StackTraining(net, data, plans, config, stream, file)
    return train(training, config.max_epochs, callbacks, config.max_seconds)


# ---- L-BFGS on the whole data set, one member at a time, with scipy's solver (as scikit-learn)


@torch.enable_grad()
def train_lbfgs(
    net: TableNetwork, data: Rows, plan: MemberPlan, config: TrainConfig, max_fun: int
) -> MemberResult:
    """Train a network of one member by L-BFGS, on the penalised loss of all its rows.

    At most ``config.max_epochs`` iterations and about ``max_fun`` evaluations of the loss are made.
    Dropout is off, because it would change the loss from call to call.
    """
    flops = training_flops(len(plan.rows) * net.n_heads, net.flat.values.numel())
    with limit_threads(network_threads(flops), lasting=True):
        return _train_lbfgs(net, data, plan, config, max_fun)


def _train_lbfgs(
    net: TableNetwork, data: Rows, plan: MemberPlan, config: TrainConfig, max_fun: int
) -> MemberResult:
    net.train(True)
    rows = plan.rows.to(data.dense.device)
    batch = data.each(lambda tensor: tensor[rows].unsqueeze(0))
    values, grads, n_decayed = net.flat.values, net.flat.grads, net.n_decayed
    weight = torch.ones_like(batch.dense[..., 0]) if batch.weight is None else batch.weight
    total_weight, n_heads = weight.sum(), net.n_heads
    y, weight = by_head(batch.y, n_heads), by_head(weight / n_heads, n_heads)
    best: list[tuple[float, np.ndarray]] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        values[0].copy_(torch.from_numpy(x))
        raw = net(batch.dense, batch.codes)
        losses = config.loss.rows(raw.to(config.precision.dtype), y)
        loss = (losses * weight).sum() / total_weight
        net.flat.backward(loss)
        decayed = values[:, :n_decayed]
        grads[:, :n_decayed].add_(decayed * (plan.alpha / total_weight))
        total = loss.detach() + 0.5 * plan.alpha * decayed.square().sum() / total_weight
        value = float(total)
        if not best or value < best[0][0]:
            best[:] = [(value, x.copy())]
        return value, grads[0].cpu().to(torch.float64).numpy()

    start = values[0].cpu().to(torch.float64).numpy()
    reason = "no_improvement"
    try:
        solution = scipy.optimize.minimize(
            objective,
            start,
            method="L-BFGS-B",
            jac=True,
            options={"maxfun": max_fun, "maxiter": config.max_epochs, "gtol": config.tol},
        )
        x, loss, n_iter = solution.x, float(solution.fun), int(solution.nit)
        if not np.isfinite(loss):
            reason = "diverged"
        elif solution.status == 1:
            reason = "max_iter"
    except KeyboardInterrupt:
        reason, n_iter = "interrupted", 0
        loss, x = best[0] if best else (np.inf, start)
    values[0].copy_(torch.from_numpy(x))
    _settle_statistics(net, batch)
    return MemberResult(
        state={n: v.cpu() for n, v in net.member_state(0).items()},
        epochs=n_iter,
        t=n_iter * len(rows),
        reason=reason,
        best_loss=loss,
    )


@torch.no_grad()
def _settle_statistics(net: TableNetwork, batch: Rows) -> None:
    """Let the running statistics of batch normalisation be those of the rows at the last weights.

    So far they are an average over weights that the line search tried.
    """
    modules: list[Any] = [m for m in net.modules() if getattr(m, "momentum", None) is not None]
    before = [module.momentum for module in modules]
    try:
        for module in modules:
            module.momentum = 1.0
        if modules:
            net(batch.dense, batch.codes)
    finally:
        for module, momentum in zip(modules, before, strict=True):
            module.momentum = momentum
