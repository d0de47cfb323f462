"""Records: what the training loop is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from combutab.core.device import Precision
from combutab.training._compiled import Compilation
from combutab.training._losses import Loss
from combutab.training._optimizers import OptimizerConfig, Schedule


def by_head(rows: Tensor, n_heads: int) -> Tensor:
    """(M, b, ...) -> (M, b * n_heads, ...), as a network gives its outputs."""
    return rows if n_heads == 1 else rows.repeat_interleave(n_heads, 1)


@dataclass(frozen=True)
class Rows:
    """The data of a stack, on its device, each row once; members point into it.

    Shapes: dense (N, d) float, codes (N, c) int64 or None, y (N,) int64 or (N, T) float,
    weight (N,) or None where all weigh the same.
    """

    dense: Tensor
    y: Tensor
    codes: Tensor | None = None
    weight: Tensor | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """All tensors changed alike."""
        codes, weight = (None if t is None else change(t) for t in (self.codes, self.weight))
        return Rows(change(self.dense), change(self.y), codes, weight)


class RowStream(Protocol):
    """Rows that come part by part, because not all fit in memory."""

    n_rows: int

    def windows(self, epoch: int) -> Iterator[Rows]:
        """Each row once; every window but the last a whole number of batches.

        A window is done with when the next one is asked for.
        """


@dataclass(frozen=True)
class MemberPlan:
    """A member's own settings in training."""

    seed: int
    rows: Tensor  # int64 positions in Rows
    learning_rate: float
    alpha: float = 0.0
    weight_decay: float = 0.0
    val_rows: Tensor | None = None
    start: MemberStart | None = None
    # of its raw outputs, (n_heads, n, n_outputs), for val_rows with their targets and weights
    scorer: Callable[[Tensor, Tensor, Tensor | None], float] | None = None


@dataclass(frozen=True)
class MemberStart:
    """The state in which an earlier call left a member; its weights are loaded by the caller."""

    epochs: int  # trained before: shuffles and masks go on from there
    t: int
    optimizer: dict[str, Tensor] | None = None
    best_loss: float = np.inf
    n_iter_no_improvement: int = 0
    learning_rate: float | None = None  # where the schedule stood; None starts it anew


@dataclass(frozen=True)
class TrainConfig:
    """The settings that all members of a stack share in training; names as in the estimators."""

    loss: Loss
    optimizer: OptimizerConfig
    batch_size: int
    max_epochs: int
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
    max_grad_norm: float | None = None
    track_metric: bool = False
    precision: Precision = field(default_factory=lambda: Precision("float32"))
    compilation: Compilation | None = None  # of the training step


@dataclass
class MemberResult:
    """A member's result: ``state`` holds its best weights, or its last without validation."""

    state: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    epochs: int
    t: int
    reason: str  # "max_iter", "no_improvement", "callback", "interrupted", "diverged"
    train_loss: list[float]
    validation_score: list[float]
    learning_rate: list[float]
    best_loss: float
    best_score: float
    n_iter_no_improvement: int
    next_learning_rate: float | None = None  # of an epoch to come
    train_metric: list[float] = field(default_factory=list)  # empty unless tracked
