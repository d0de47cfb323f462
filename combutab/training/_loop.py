"""The one training loop: M networks of one shape, each with its own rows, rate and end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from combutab._random import fold_in
from combutab.training._batches import Batches
from combutab.training._callbacks import Callback, EpochReport
from combutab.training._losses import accuracy, r2
from combutab.training._optimizers import RowOptimizer, clip_gradients
from combutab.training._records import (
    MemberPlan,
    MemberResult,
    MemberStart,
    Rows,
    RowStream,
    StackedNetwork,
    TrainConfig,
)
from combutab.training._schedules import PER_STEP, schedule_factor

_DROPOUT = 4  # purpose of a member's key
_SCORE_ROWS = 8192  # rows scored at a time: bounds the memory of a validation pass
_SMALLEST_RATE = 1e-6  # below it, "adaptive" stops (scikit-learn's value)


class _Training:
    """A stack in training; one object so that ``run`` reads as the story."""

    def __init__(
        self,
        net: StackedNetwork,
        data: Rows,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        callbacks: Sequence[Callback],
        stream: RowStream | None = None,
    ) -> None:
        self.net, self.data, self.config, self.callbacks = net, data, config, callbacks
        self.plans = list(plans)
        self.device = data.dense.device
        self.alive = list(range(len(plans)))  # positions in the stack as given
        self.optimizer = RowOptimizer(config.optimizer, net.flat.values, net.n_decayed)
        self.stream, self.scored = stream, data  # with a stream, data is a window while it trains
        self.n_rows = [len(p.rows) if stream is None else stream.n_rows for p in plans]
        if stream is None:
            self.batches = Batches(plans, config, self.device)
        self.masks = net.mask_maker()
        starts = [p.start or MemberStart(0, 0) for p in plans]
        for i, start in enumerate(starts):
            if start.optimizer is not None:
                self.optimizer.load_member(i, start.optimizer)
        self.rates = [  # now, after the schedule
            p.learning_rate if s.learning_rate is None else s.learning_rate
            for p, s in zip(plans, starts, strict=True)
        ]
        self.t = [s.t for s in starts]
        self.best_loss = [s.best_loss for s in starts]
        self.best_score = [-np.inf] * len(plans)
        self.n_idle = [s.n_idle for s in starts]
        self.best_values = net.flat.values.clone() if config.score else None
        self.best_buffers = net.flat_buffers.values.clone() if config.score else None
        self.histories: list[tuple[list[float], ...]] = [([], [], [], []) for _ in plans]
        self.metric: Tensor | None = None  # of the step, then of the epoch: each member's mean
        self.results: list[MemberResult | None] = [None] * len(plans)
        self._cached: tuple[Rows, Tensor | None, Tensor | None] | None = None

    # ---- one epoch -------------------------------------------------------------------------

    def _windows(self, epoch: int) -> Iterator[int]:
        """Bring the epoch's rows into ``data``, part by part; yields the steps done before."""
        if self.stream is None:
            yield 0
            return
        before = 0
        for window in self.stream.windows(epoch):
            self.data, rows = window, torch.arange(len(window.dense))
            plans = [replace(plan, rows=rows) for plan in self.plans]
            self.batches = Batches(plans, self.config, self.device, part=before)
            yield before
            before += self.batches.n_steps
        self.data = self.scored

    def _batch(self, index: Tensor, step: int) -> tuple[Rows, Tensor | None, Tensor | None]:
        """The step's rows (M, b, ...), weights (M, b) or None, and which rows are real or None."""
        data = self.data
        valid = None
        counts = self.batches.counts(step)
        if min(counts) < index.shape[1]:
            places = torch.arange(index.shape[1], device=self.device)
            valid = places[None, :] < torch.tensor(counts, device=self.device)[:, None]
        weight = None if data.weight is None else data.weight[index]
        if valid is not None:
            weight = valid.to(data.dense.dtype) if weight is None else weight * valid
        rows = Rows(
            data.dense[index],
            data.y[index],
            None if data.codes is None else data.codes[index],
        )
        return rows, weight, valid

    def _step(
        self, batch: Rows, weight: Tensor | None, valid: Tensor | None, keys: list[int]
    ) -> tuple[Tensor, Tensor | float]:
        """Forward and backward; returns each member's mean loss, and the weight of its rows."""
        net, config = self.net, self.config
        n_rows = batch.dense.shape[1]
        masks = self.masks.draw(keys, n_rows) if self.masks.active else None
        mass = float(n_rows) if weight is None else weight.sum(1)
        tiny = torch.finfo(batch.dense.dtype).tiny  # no row of a member may be in the batch
        means: list[Tensor] = []

        def average(values: Tensor) -> Tensor:
            if weight is None:
                return values.mean(1)
            return (values * weight).sum(1) / weight.sum(1).clamp_min(tiny)

        def objective(raw: Tensor) -> Tensor:
            raw = raw.to(config.precision.dtype)
            mean = average(config.loss.rows(raw, batch.y))
            means.append(mean.detach())
            if config.track_metric:
                self.metric = average(config.loss.metric(raw.detach(), batch.y))
            return mean.sum()

        context = config.precision.context(self.device)
        net.gradients(batch.dense, objective, batch.codes, masks, valid, context)
        self._add_l2(mass)
        if config.max_grad_norm is not None:
            clip_gradients(net.flat.grads, config.max_grad_norm)
        return means[0], mass

    def _add_l2(self, mass: Tensor | float) -> None:
        """Add the gradient of alpha / 2 |W|^2 / (weight of the batch), scikit-learn's penalty."""
        alphas = self.alphas
        if not any(alphas):
            return
        n = self.net.n_decayed
        grads, values = self.net.flat.grads[:, :n], self.net.flat.values[:, :n]
        if len(set(alphas)) == 1 and isinstance(mass, float):
            grads.add_(values, alpha=alphas[0] / mass)
            return
        column = torch.tensor(alphas, dtype=values.dtype, device=self.device).unsqueeze(1)
        if isinstance(mass, Tensor):
            mass = mass.clamp_min(torch.finfo(values.dtype).tiny).unsqueeze(1)
        grads.addcmul_(values, column / mass)

    def _epoch(self, epoch: int) -> Tensor:
        """Train one epoch; returns each member's mean penalised loss, (M,) on the device."""
        self.net.train(True)
        config = self.config
        total = torch.zeros(len(self.plans), dtype=torch.float64, device=self.device)
        weights, metrics = torch.zeros_like(total), torch.zeros_like(total)
        decays = [p.weight_decay for p in self.plans]
        for before in self._windows(epoch):
            batches = self.batches
            order = batches.order(epoch)
            for step in range(batches.n_steps):
                start, stop = batches.span(step)
                if self._cached is None:
                    batch = self._batch(order[:, start:stop], step)
                    if batches.n_steps == 1 and not any(batches.shuffled) and self.stream is None:
                        self._cached = batch  # the same rows in the same order every epoch
                else:
                    batch = self._cached
                keys = [
                    fold_in(p.seed, _DROPOUT, s + epoch, before + step)
                    for p, s in zip(self.plans, batches.starts, strict=True)
                ]
                mean, mass = self._step(*batch, keys)
                if config.learning_rate in PER_STEP:
                    self._set_rates(epoch, before + step)
                rows = [m for m, count in enumerate(batches.counts(step)) if count]
                values, grads = self.net.flat.values, self.net.flat.grads
                self.optimizer.step(values, grads, rows, self.rates, decays)
                total += mean * mass
                weights += mass
                if self.metric is not None:
                    metrics += self.metric * mass
        if self.metric is not None:
            self.metric = metrics / weights
        return total / weights + self._penalty(weights)

    def _set_rates(self, epoch: int, step: int) -> None:
        for m, plan in enumerate(self.plans):
            n_steps = -(-self.n_rows[m] // self.config.batch_size)
            fraction = (epoch * n_steps + step) / (self.config.max_epochs * n_steps)
            factor = schedule_factor(self.config.learning_rate, fraction)
            self.rates[m] = plan.learning_rate * factor

    @torch.inference_mode()
    def _scores(self) -> list[float]:
        """Each member's score on its validation rows."""
        self.net.train(False)
        val_rows = [p.val_rows for p in self.plans]
        lengths = [0 if v is None else len(v) for v in val_rows]
        n_max = max(lengths)
        table = torch.zeros(len(lengths), n_max, dtype=torch.int64, device=self.device)
        weight = torch.zeros(len(lengths), n_max, dtype=self.data.dense.dtype, device=self.device)
        for m, rows in enumerate(val_rows):
            if rows is not None:
                table[m] = int(rows[0])  # filling, of weight 0
                table[m, : lengths[m]] = rows.to(self.device)
                weight[m, : lengths[m]] = 1.0
        if self.data.weight is not None:
            weight *= self.data.weight[table]
        points = []
        for start in range(0, n_max, _SCORE_ROWS):
            index = table[:, start : start + _SCORE_ROWS]
            codes = None if self.data.codes is None else self.data.codes[index]
            with self.config.precision.context(self.device)():
                raw = self.net(self.data.dense[index], codes)
            points.append(self.config.loss.point(raw.to(self.config.precision.dtype)))
        metric = accuracy if self.config.score == "accuracy" else r2
        return metric(torch.cat(points, 1), self.data.y[table], weight).tolist()

    # ---- the end of an epoch -----------------------------------------------------------------

    def _record(self, losses: list[float], scores: list[float] | None) -> None:
        improved = []
        metrics = None if self.metric is None else self.metric.tolist()
        for m in range(len(self.plans)):
            loss_curve, score_curve, rate_curve, metric_curve = self.histories[self.alive[m]]
            loss_curve.append(losses[m])
            if metrics is not None:
                metric_curve.append(metrics[m])
            rate_curve.append(self.rates[m])
            self.t[m] += self.n_rows[m]
            if scores is not None:
                score_curve.append(scores[m])
                idle = scores[m] < self.best_score[m] + self.config.tol
                if scores[m] > self.best_score[m]:
                    self.best_score[m] = scores[m]
                    improved.append(m)
            else:
                idle = losses[m] > self.best_loss[m] - self.config.tol
            self.best_loss[m] = min(self.best_loss[m], losses[m])
            self.n_idle[m] = self.n_idle[m] + 1 if idle else 0
        if improved and self.best_values is not None and self.best_buffers is not None:
            index = torch.tensor(improved, device=self.device)
            self.best_values[index] = self.net.flat.values[index]
            self.best_buffers[index] = self.net.flat_buffers.values[index]

    def _penalty(self, weights: Tensor) -> Tensor | float:
        """alpha / 2 |W|^2 / (weight of a batch), at the weights after the epoch."""
        if not any(self.alphas):
            return 0.0
        decayed = self.net.flat.values[:, : self.net.n_decayed]
        squares = torch.linalg.vector_norm(decayed, dim=1).double().square()
        halves = [
            0.5 * alpha * -(-n // self.config.batch_size)
            for alpha, n in zip(self.alphas, self.n_rows, strict=True)
        ]
        return squares * torch.tensor(halves, dtype=torch.float64, device=self.device) / weights

    def _ended(self, losses: list[float], epoch: int, stop: bool) -> dict[int, str]:
        """Members that end with this epoch, and why; decays the rates of the others."""
        config, ended = self.config, {}
        for m in range(len(self.plans)):
            if not np.isfinite(losses[m]):
                ended[m] = "diverged"
                continue
            if config.learning_rate == "invscaling":
                self.rates[m] = self.plans[m].learning_rate / (self.t[m] + 1) ** config.power_t
            if self.n_idle[m] > config.n_iter_no_change:
                if config.learning_rate == "adaptive" and self.rates[m] > _SMALLEST_RATE:
                    self.rates[m] /= 5
                    self.n_idle[m] = 0
                else:
                    ended[m] = "no_improvement"
            if stop:
                ended.setdefault(m, "callback")
            elif epoch + 1 == config.max_epochs:
                ended.setdefault(m, "max_iter")
        return ended

    def _finish(self, ended: dict[int, str]) -> None:
        """Write the results of these members and drop them from the stack."""
        if self.best_values is not None and self.best_buffers is not None:
            for m in ended:
                if np.isfinite(self.best_score[m]):
                    self.net.flat.values[m] = self.best_values[m]
                    self.net.flat_buffers.values[m] = self.best_buffers[m]
        for m, reason in ended.items():
            train_loss, scores, rates, metrics = self.histories[self.alive[m]]
            start = self.plans[m].start
            self.results[self.alive[m]] = MemberResult(
                state={n: v.cpu() for n, v in self.net.member_state(m).items()},
                optimizer=self.optimizer.member(m),
                epochs=(start.epochs if start else 0) + len(train_loss),
                t=self.t[m],
                reason=reason,
                train_loss=train_loss,
                validation_score=scores,
                learning_rate=rates,
                best_loss=self.best_loss[m],
                best_score=self.best_score[m],
                n_idle=self.n_idle[m],
                next_learning_rate=self.rates[m],
                train_metric=metrics,
            )
        keep = [m for m in range(len(self.plans)) if m not in ended]
        if not keep or not ended:
            self.alive = [self.alive[k] for k in keep]
            return
        self.net.select(keep)
        self.optimizer.select(keep)
        self.batches.select(keep)
        for name in ("plans", "alive", "n_rows", "rates", "t", "best_loss", "best_score", "n_idle"):
            values = getattr(self, name)
            setattr(self, name, [values[k] for k in keep])
        if self.best_values is not None and self.best_buffers is not None:
            index = torch.tensor(keep, device=self.device)
            self.best_values, self.best_buffers = self.best_values[index], self.best_buffers[index]
        self.masks = self.net.mask_maker()
        self._cached = None

    @property
    def alphas(self) -> list[float]:
        return [p.alpha for p in self.plans]

    def run(self) -> list[MemberResult]:
        config, started = self.config, time.perf_counter()
        begun: list[Callback] = []
        if config.score and any(p.start for p in self.plans):
            # what an earlier call reached stays the best until an epoch beats it
            for m, score in enumerate(self._scores()):
                if self.plans[m].start is not None:
                    self.best_score[m] = score
        try:
            for callback in self.callbacks:
                callback.on_train_begin(len(self.plans), config.max_epochs)
                begun.append(callback)
            for epoch in range(config.max_epochs):
                losses = self._epoch(epoch).tolist()  # the epoch's one sync
                scores = self._scores() if config.score else None
                self._record(losses, scores)
                report = EpochReport(
                    epoch + 1,
                    config.max_epochs,
                    tuple(self.alive),
                    np.array(losses),
                    None if scores is None else np.array(scores),
                    np.array(self.rates),
                    time.perf_counter() - started,
                )
                stops = [callback.on_epoch_end(report) for callback in self.callbacks]
                self._finish(self._ended(losses, epoch, any(stops)))
                if not self.alive:
                    break
        except KeyboardInterrupt:
            self._finish(dict.fromkeys(range(len(self.plans)), "interrupted"))
        finally:
            for callback in begun:
                callback.on_train_end()
        return [result for result in self.results if result is not None]


def train_stack(
    net: StackedNetwork,
    data: Rows,
    plans: Sequence[MemberPlan],
    config: TrainConfig,
    callbacks: Sequence[Callback] = (),
    stream: RowStream | None = None,
) -> list[MemberResult]:
    """Train a stack; member i of the result is member i of ``plans``, as if trained alone.

    With a ``stream``, all members train on its rows, and ``data`` holds the validation rows alone.

    A keyboard interrupt ends all members with the reason ``"interrupted"`` and their best weights
    so far. The network is consumed: members that finish are dropped from it.
    """
    return _Training(net, data, plans, config, callbacks, stream).run()
