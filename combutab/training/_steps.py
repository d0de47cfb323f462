"""Batches of rows, and the step on each: forward, backward, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from combutab.core.device import Precision
from combutab.core.rng import Stream, fold_in, random_permutations, starts
from combutab.core.world import current
from combutab.nn import TableNetwork
from combutab.training._losses import Loss
from combutab.training._optimizers import (
    OptimizerConfig,
    RowOptimizer,
    Schedule,
    StepRates,
    clip_gradients,
)

# ---- Records: arguments and results of the training loop ----------------------------------------


def by_head(rows: Tensor, n_heads: int) -> Tensor:
    """(M, b, ...) -> (M, b * n_heads, ...), as a network gives its outputs."""
    return rows if n_heads == 1 else rows.repeat_interleave(n_heads, 1)


@dataclass(frozen=True)
class Rows:
    """Encoded rows of a stack, each row once, on its device; members refer to them by position.

    Shapes: dense (N, d) float, codes (N, c) int64 or None, y (N,) int64 or (N, T) float,
    weight (N,) or None where all weigh the same.
    """

    dense: Tensor
    y: Tensor
    codes: Tensor | None = None
    weight: Tensor | None = None

    def tensors(self) -> list[Tensor | None]:
        """Return dense, y, codes and weight; None for those that are missing."""
        return [self.dense, self.y, self.codes, self.weight]

    def each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """Apply a function to every tensor, and return the new rows."""
        codes, weight = (None if t is None else change(t) for t in (self.codes, self.weight))
        return Rows(change(self.dense), change(self.y), codes, weight)


class RowStream(Protocol):
    """Rows that are read in parts, because not all of them fit in memory."""

    n_rows: int

    def windows(self, epoch: int) -> Iterator[Rows]:
        """Yield the rows of an epoch in parts, each row once.

        Every part except the last has a whole number of batches. A part is no longer used once the
        next one is requested.
        """


@dataclass(frozen=True)
class MemberPlan:
    """Training settings of one member."""

    seed: int
    rows: Tensor  # int64 positions in Rows
    learning_rate: float
    alpha: float = 0.0
    weight_decay: float = 0.0
    val_rows: Tensor | None = None
    # The part of each validation row: outputs of a part are recorded from the epoch that is best on
    # the other parts, so that choosing the epoch does not improve their scores.
    val_parts: Tensor | None = None
    # Result of an earlier call to continue from, with empty curves. Its weights are loaded by the
    # caller. Shuffles and masks continue after its epochs, with its optimizer and next learning
    # rate if it has them.
    start: MemberResult | None = None
    # raw outputs for val_rows, (n_heads, n, n_outputs), their targets and weights -> score
    scorer: Callable[[Tensor, Tensor, Tensor | None], float] | None = None


@dataclass(frozen=True)
class TrainConfig:
    """The settings that all members of a stack share in training; names as in the estimators."""

    loss: Loss
    optimizer: OptimizerConfig
    batch_size: int
    max_epochs: int
    max_seconds: float = np.inf
    # "accuracy", "r2", "loss" (with a minus sign), or "scorer", a plan's own: members have val_rows
    score: str | None = None
    calibrated: bool = False  # raw outputs are scaled to suit val_rows, before they are scored
    learning_rate: Schedule = "constant"
    rate_factors: tuple[tuple[str, float], ...] = ()  # by a parameter's role
    regularization_schedule: Schedule = "constant"  # of dropout and weight decay, by the epoch
    power_t: float = 0.5
    shuffle: bool = True
    tol: float = 1e-4
    n_iter_no_change: float = 10
    # members also end after a cycle of the learning rate that does not improve the best score by
    # this share of it; 0, or an infinite n_iter_no_change, for no such end
    min_cycle_gain: float = 0.0
    max_grad_norm: float | None = None
    track_metric: bool = False
    precision: Precision = field(default_factory=lambda: Precision("float32"))


@dataclass
class MemberResult:
    """A member's result: ``state`` holds its best weights, or its last without validation."""

    state: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    epochs: int = 0
    t: int = 0
    reason: str = (
        ""  # "max_iter", "no_improvement", "callback", "max_time", "interrupted", "diverged"
    )
    train_loss: list[float] = field(default_factory=list)
    validation_score: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    best_loss: float = np.inf
    best_score: float = -np.inf
    n_iter_no_improvement: int = 0
    next_learning_rate: float | None = None  # of an epoch to come
    train_metric: list[float] = field(default_factory=list)  # empty unless tracked
    held_out: Tensor | None = None  # (n, n_outputs), for validation rows that have parts


# ---- Batches: the rows that every member sees in each step, and their random numbers -------------

_AHEAD = 1 << 16  # row numbers drawn at once: several epochs' of a small table


@dataclass(frozen=True)
class Padding:
    """Places of a step's batches that hold a row; the others are padding."""

    rows: tuple[int, ...]  # members that have any row
    valid: Tensor | None = None  # (M, b) which places hold one, None: all


class Batches:
    """Row numbers of every member's batches, epoch after epoch.

    There are batches for the epochs before ``until``. ``before`` is the number of steps before
    these rows in the epoch, if they are a part of a streamed table: each part has its own order.
    """

    def __init__(
        self,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        device: torch.device,
        until: int,
        before: int = 0,
    ) -> None:
        self.batch_size, self.device = config.batch_size, device
        self.until, self.before = until, before
        self.lengths = [len(p.rows) for p in plans]
        # one batch holds all rows: their order does not matter, so none is drawn
        self.shuffled = [config.shuffle and n > config.batch_size for n in self.lengths]
        self.table = row_table([p.rows for p in plans], device)
        # rows 0, 1, 2, ... of a single member: a table as large as the data can then be spared
        self._identity = len(self.table) == 1 and torch.equal(
            self.table[0], torch.arange(self.table.shape[1], device=device)
        )
        self._seeds = np.array([p.seed for p in plans], dtype=np.uint64)
        self._begun = np.array([p.start.epochs if p.start else 0 for p in plans], dtype=np.uint64)
        self._refresh()

    def _refresh(self) -> None:
        self.n_steps = -(-self.table.shape[1] // self.batch_size)
        # whether every step has the same rows in the same order
        self.fixed = self.n_steps == 1 and not any(self.shuffled)
        self._full = Padding(tuple(range(len(self.lengths))))
        self._valid: Tensor | None = None  # (M, n_max) places that hold a row; None: all
        if min(self.lengths) < max(self.lengths):
            positions = torch.arange(self.table.shape[1], device=self.device)
            lengths = torch.tensor(self.lengths, device=self.device)
            self._valid = positions < lengths.unsqueeze(1)
        self._orders: tuple[int, Sequence[Tensor] | Tensor] = (0, ())  # first epoch, of each
        self._still = None
        if any(self.shuffled) and not all(self.shuffled):
            self._still = torch.tensor([not s for s in self.shuffled], device=self.device)

    def order(self, epoch: int) -> Tensor:
        """(M, n_max) row numbers in this epoch's order; past a member's length, any."""
        if not any(self.shuffled):
            return self.table
        first, orders = self._orders
        if 0 <= epoch - first < len(orders):
            return orders[epoch - first]
        # draw the orders of this epoch and of some of the next ones, (n_epochs, M, n_max)
        n_members, n = self.table.shape
        n_epochs = max(1, min(_AHEAD // (n_members * n), self.until - epoch))
        epochs = np.arange(epoch, epoch + n_epochs, dtype=np.uint64)[:, None]
        keys = fold_in(self._seeds, Stream.SHUFFLE, self.before, self._begun + epochs).reshape(-1)
        order = random_permutations(
            starts(keys, self.device), self.lengths * n_epochs, self.device
        ).view(n_epochs, n_members, n)
        if self._still is not None:
            order[:, self._still] = torch.arange(n, device=self.device)
        order = order if self._identity else self.table.expand_as(order).gather(2, order)
        if n_epochs > 1:  # the order of a large table is not kept
            self._orders = epoch, order
        return order[0]

    def mask_keys(self, epoch: int) -> Tensor:
        """(n_steps, M) int64: where the dropout masks' counters start in each step."""
        epochs = self._begun + np.uint64(epoch)
        steps = np.arange(self.before, self.before + self.n_steps, dtype=np.uint64)[:, None]
        return starts(fold_in(self._seeds, Stream.DROPOUT, epochs, steps), self.device)

    def span(self, step: int) -> tuple[int, int]:
        start = step * self.batch_size
        return start, min(start + self.batch_size, self.table.shape[1])

    def padding(self, step: int) -> Padding:
        """Find the members that have rows in this step, and where."""
        start, stop = self.span(step)
        if self._valid is None or stop <= min(self.lengths):
            return self._full
        rows = tuple(m for m, n in enumerate(self.lengths) if n > start)
        return Padding(rows, self._valid[:, start:stop])

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        self.lengths = [self.lengths[k] for k in keep]
        self.shuffled = [self.shuffled[k] for k in keep]
        members = list(keep)
        self._seeds, self._begun = self._seeds[members], self._begun[members]
        n_max = max(self.lengths)
        self.table = self.table[torch.tensor(members, device=self.device), :n_max]
        self._refresh()


def row_table(rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """(M, n_max) row numbers; one table in memory where all members have the same."""
    if all(r is rows[0] for r in rows):
        return rows[0].to(device).expand(len(rows), -1)
    # padding has weight 0, and repeats a row of the member, because 0 times infinity is NaN
    table = torch.stack([r[0] for r in rows]).to(device).unsqueeze(1)
    table = table.repeat(1, max(len(r) for r in rows))
    for m, member_rows in enumerate(rows):
        table[m, : len(member_rows)] = member_rows.to(device)
    return table


# ---- One step of a stack, which never waits for the host ---------------------------------------


@dataclass(frozen=True)
class StepInputs:
    """The inputs that differ from step to step.

    Steps of equal shapes, members with rows, and groups of rates run the same operators.
    """

    index: Tensor  # (M, b) int64, rows of the data
    keys: Tensor | None  # (M,) int64, of the dropout masks
    rates: StepRates
    padding: Padding


@dataclass(frozen=True)
class Batch:
    """A step's rows (M, b, ...) with their weights (M, b), 0 for padding, or None.

    ``total_weight`` is that of each member's rows, (M,), or their number where none is weighted.
    If ranks share the fit, the rows are those of this rank, from ``first`` on, and may be none;
    the total is over all ranks.
    """

    rows: Rows
    total_weight: Tensor | float
    valid: Tensor | None = None
    first: int = 0


class Objective:
    """Each member's mean loss over a batch and its heads, kept in ``mean``; and its derivatives.

    Called, it gives the members' sum, a scalar for autograd; ``gradient`` gives the derivative
    at once, by a formula where the loss has one.
    """

    def __init__(self, config: TrainConfig, batch: Batch, n_heads: int = 1) -> None:
        self.config, self.loss = config, config.loss
        self.y, weight = by_head(batch.rows.y, n_heads), batch.rows.weight
        self._share: Tensor | None = None  # of each row in its member's mean
        if weight is None or not isinstance(batch.total_weight, Tensor):
            self._n_rows = float(batch.total_weight) * n_heads
        else:
            tiny = torch.finfo(weight.dtype).tiny  # no row of a member may be in the batch
            share = weight / batch.total_weight.clamp_min(tiny).unsqueeze(1)
            self._share = share if n_heads == 1 else by_head(share / n_heads, n_heads)
        self.mean: Tensor | None = None
        self.metric: Tensor | None = None

    def _average(self, values: Tensor) -> Tensor:  # (M, b) -> (M,)
        if self._share is None:
            return values.sum(1).div(self._n_rows)
        return (values * self._share).sum(1)

    def _measure(self, raw: Tensor) -> None:
        if self.config.track_metric:
            raw = raw.detach().to(self.config.precision.dtype)
            self.metric = self._average(self.loss.metric(raw, self.y))

    def __call__(self, raw: Tensor) -> Tensor:  # (M, b, n_outputs) -> ()
        self._measure(raw)
        return self._total(raw)

    def _total(self, raw: Tensor) -> Tensor:
        losses = self.loss.rows(raw.to(self.config.precision.dtype), self.y)
        mean = self._average(losses)
        self.mean = mean.detach()
        return mean.sum()

    def gradient(self, raw: Tensor) -> Tensor:  # (M, b, n_outputs) -> the same
        self._measure(raw)
        closed = self.loss.slopes(raw, self.y)
        if closed is None:
            with torch.enable_grad():
                leaf = raw.detach().requires_grad_()
                (slopes,) = torch.autograd.grad(self._total(leaf), leaf)
            return slopes
        losses, slopes = closed
        self.mean = self._average(losses)
        if self._share is None:
            return slopes.div_(self._n_rows)
        return slopes.mul_(self._share.unsqueeze(-1))


class TrainingStep:
    """Gather, forward, backward, penalty, clipping, optimiser: called with a step's inputs.

    ``sums`` collects, over an epoch's steps, each member's loss, rows and metric, the first and
    the last by the weight of the rows, and then the penalty. Where ranks share the fit, each takes
    its share of a step's rows, and they add up their gradients.
    """

    def __init__(
        self,
        net: TableNetwork,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        optimizer: RowOptimizer,
        n_rows: Sequence[int],
    ) -> None:
        self.net, self.config, self.optimizer = net, config, optimizer
        self.device = net.flat.values.device
        self._context = config.precision.context(self.device)
        self._memory: dict[str, Tensor] = {}
        self.world = current()
        self.refresh(plans, n_rows)

    def refresh(self, plans: Sequence[MemberPlan], n_rows: Sequence[int]) -> None:
        """Update the step after members were dropped; ``n_rows`` is per epoch of each member."""
        flat, n = self.net.flat, self.net.n_decayed
        self.values, self.grads = flat.values, flat.grads
        self._decayed = self.values[:, :n], self.grads[:, :n]
        self.masks = self.net.mask_maker()
        self._full_decays = self.decays = [p.weight_decay for p in plans]
        self._factor = 1.0
        self._alphas = [p.alpha for p in plans]
        self._alpha_column = torch.tensor(
            self._alphas, dtype=self.values.dtype, device=self.device
        ).unsqueeze(1)
        halves = [
            0.5 * alpha * math.ceil(n / self.config.batch_size)
            for alpha, n in zip(self._alphas, n_rows, strict=True)
        ]
        self._half_alphas = torch.tensor(halves, dtype=torch.float64, device=self.device)
        self.sums = torch.zeros(4, len(plans), dtype=torch.float64, device=self.device)
        self._loss, self._total_weight, self._metric, self._penalty = self.sums

    def set_regularization(self, factor: float) -> None:
        """Multiply dropout and weight decay by a factor from 0 to 1, until the next call."""
        if factor != self._factor:
            self._factor = factor
            self.decays = [factor * decay for decay in self._full_decays]
            self.masks.set_factor(factor)

    def gather(self, data: Rows, inputs: StepInputs) -> Batch:
        """The step's rows, or this rank's share of them."""
        index, valid = inputs.index, inputs.padding.valid
        weight = None if data.weight is None else data.weight[index]
        if valid is not None:
            weight = valid.to(data.dense.dtype) if weight is None else weight * valid
        total_weight = float(index.shape[1]) if weight is None else weight.sum(1)
        start, stop = self.world.span(index.shape[1])
        weight, valid = (None if t is None else t[:, start:stop] for t in (weight, valid))
        index = index[:, start:stop]
        flat = index.reshape(-1)
        rows = Rows(
            self._take("dense", data.dense, flat).view(*index.shape, *data.dense.shape[1:]),
            self._take("y", data.y, flat).view(*index.shape, *data.y.shape[1:]),
            None if data.codes is None else data.codes[index],
            weight,
        )
        return Batch(rows, total_weight, valid, start)

    def _take(self, name: str, table: Tensor, index: Tensor) -> Tensor:
        """Rows of a table, in memory that the next step uses again."""
        n = index.numel()
        memory = self._memory.get(name)
        if memory is None or memory.shape[0] < n:
            memory = self._memory[name] = table.new_empty(n, *table.shape[1:])
        return torch.index_select(table, 0, index, out=memory[:n])

    def __call__(self, batch: Batch, inputs: StepInputs) -> None:
        """Update the networks by the gradients of a batch, and add up losses and metrics."""
        config, rows, keys = self.config, batch.rows, inputs.keys
        objective = Objective(config, batch, self.net.n_heads)
        n_rows = rows.dense.shape[1]
        if n_rows == 0:  # a rank's share of a small batch
            self.grads.zero_()
        else:
            masks = None if keys is None else self.masks.draw(keys, n_rows, batch.first)
            self.net.gradients(rows.dense, objective, rows.codes, masks, batch.valid, self._context)
        self.world.all_reduce(self.grads)
        self._add_l2(batch.total_weight)
        if config.max_grad_norm is not None:
            clip_gradients(self.grads, config.max_grad_norm)
        self.optimizer.step(self.values, self.grads, inputs.padding.rows, inputs.rates)
        total_weight = batch.total_weight
        self._total_weight.add_(total_weight)
        for total, mean in ((self._loss, objective.mean), (self._metric, objective.metric)):
            if mean is None:
                continue
            if isinstance(total_weight, Tensor):
                total.add_(mean * total_weight)
            else:
                total.add_(mean, alpha=total_weight)

    def _add_l2(self, total_weight: Tensor | float) -> None:
        """Add the gradient of alpha / 2 |W|^2 / (weight of the batch), scikit-learn's penalty."""
        if not any(self._alphas):
            return
        values, grads = self._decayed
        if isinstance(
            total_weight, Tensor
        ):  # where all rows weigh nothing there is nothing to learn
            column = total_weight.unsqueeze(1)
            grads.addcmul_(values, (self._alpha_column / column).masked_fill_(column <= 0, 0.0))
            return
        if len(set(self._alphas)) == 1:
            grads.add_(values, alpha=self._alphas[0] / total_weight)
            return
        grads.addcmul_(values, self._alpha_column / total_weight)

    def sum_penalty(self) -> None:
        """Set the sum of alpha / 2 |W|^2 / (weight of a batch), at the weights after the epoch."""
        if any(self._alphas):
            norms = torch.linalg.vector_norm(self._decayed[0], dim=1).double()
            norms.square_().mul_(self._half_alphas)
            torch.div(norms, self._total_weight, out=self._penalty)
