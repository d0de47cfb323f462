"""What the deep networks learn, and their training by SGD with momentum, stacked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pandas as pd
import torch
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from benchmarks.papers.pln.data import TASKS, source
from benchmarks.papers.pln.depth.net import Gradients, Shape, gradient_norms
from combutab.nn import TableNetwork
from combutab.training import (
    CrossEntropy,
    Loss,
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    train_stack,
)

# The paper trains 240 epochs, the first 20 of them with a rising rate, which is divided by 2.5 at
# the 60th, 100th, 140th, 180th and 220th (appendix B.2.1); here the same shares of the steps
WARM_UP = 20 / 240
MILESTONES = tuple(epoch / 240 for epoch in (60, 100, 140, 180, 220))
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4  # the paper's


class MeanSquare(Loss):
    """The squared error of one output, not halved."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:  # (M, rows, 1), (M, rows) -> (M, rows)
        return (raw.squeeze(-1) - y).square()


@dataclass(frozen=True)
class Task:
    """Training and test rows: x (rows, features), y (rows,) of classes or of standardised values.

    ``n_outputs`` is the number of classes, or 1.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    n_outputs: int

    @property
    def is_classification(self) -> bool:
        return self.n_outputs > 1

    @property
    def loss(self) -> Loss:
        """Of a row: cross-entropy, or the squared error."""
        return CrossEntropy() if self.is_classification else MeanSquare()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean losses of each member: (M, rows, n_outputs) and (M, rows) -> (M,)."""
        return self.loss.rows(outputs, y).mean(1)

    def scores(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Accuracy or R2 of each member: (M, rows, n_outputs) and (rows,) -> (M,)."""
        if self.is_classification:
            return (outputs.argmax(-1) == y).double().mean(1)
        residual = (outputs.squeeze(-1).double() - y).square().mean(1)
        return 1.0 - residual / y.double().var(correction=0)

    @property
    def trivial_score(self) -> float:
        """What a constant answer reaches on the training rows."""
        if not self.is_classification:
            return 0.0
        return float(self.y_train.bincount().max() / len(self.y_train))


@lru_cache(maxsize=2)
def load_task(name: str, n_rows: int, data_home: str | None = None) -> Task:
    """Split 4:1 and standardise by the training rows."""
    X, target = source(name, n_rows, data_home).load()
    classes = TASKS[name] == "classification"
    y = np.asarray(target, dtype=np.int64 if classes else np.float64)
    stratify = y if classes else None
    parts = train_test_split(X, y, test_size=0.2, random_state=0, stratify=stratify)
    X_train, X_test, y_train, y_test = parts
    encoder = _encoder().fit(X_train)
    if not classes:
        mean, spread = y_train.mean(), y_train.std()
        y_train, y_test = (y_train - mean) / spread, (y_test - mean) / spread

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=None if classes else torch.float32)

    def encoded(rows: pd.DataFrame) -> Tensor:
        return torch.as_tensor(encoder.transform(rows), dtype=torch.float32)

    n_outputs = int(y.max()) + 1 if classes else 1
    return Task(encoded(X_train), tensor(y_train), encoded(X_test), tensor(y_test), n_outputs)


def _encoder() -> ColumnTransformer:
    numeric = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    nominal = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (numeric, make_column_selector(dtype_include="number")),
        (nominal, make_column_selector(dtype_exclude="number")),
        sparse_threshold=0.0,
    )


@dataclass(frozen=True)
class Outcome:
    """What one network reached; the scores of one that diverged are NaN."""

    train_score: float
    test_score: float
    train_loss: float

    @property
    def diverged(self) -> bool:
        return math.isnan(self.train_loss)


def rate_factor(step: int, n_steps: int) -> float:
    """The factor of the learning rate in a step, counted from 0."""
    share = step / n_steps
    if share < WARM_UP:
        return (step + 1) / math.ceil(WARM_UP * n_steps)
    return 2.5 ** -sum(share >= milestone for milestone in MILESTONES)


def initial_gradients(
    task: Task, shape: Shape, seeds: Sequence[int], *, n_rows: int = 256
) -> Gradients:
    """Of one batch of training rows, the same for all; in float64, so that 1e-100 is no zero."""
    net = shape.build(task.x_train.shape[1], task.n_outputs, seeds, double=True)
    rows = torch.randperm(len(task.x_train), generator=torch.Generator().manual_seed(0))[:n_rows]
    x = task.x_train[rows].double().expand(len(seeds), -1, -1)
    y = task.y_train[rows].expand(len(seeds), -1)
    return gradient_norms(net, x, lambda outputs: task.losses(outputs, y))


def train(
    task: Task,
    shape: Shape,
    seeds: Sequence[int],
    rates: Sequence[float],
    n_steps: int,
    batch_size: int,
) -> list[Outcome]:
    """Train a member a rate and seed: that of ``rates[0]`` and ``seeds[0]``, ``seeds[1]``, ..."""
    every = [seed for _ in rates for seed in seeds]
    build = partial(shape.build, task.x_train.shape[1], task.n_outputs, every)
    # Each batch is drawn anew from all rows: what is drawn is one epoch, in the order given
    size, n = (n_steps * batch_size,), len(task.x_train)
    drawn = [torch.randint(n, size, generator=torch.Generator().manual_seed(s)) for s in seeds]
    # a penalty of alpha / 2 |w|^2 / (rows of a batch) has the gradient of torch's weight decay
    plans = [
        MemberPlan(seed, rows, rate, alpha=WEIGHT_DECAY * batch_size)
        for rate in rates
        for seed, rows in zip(seeds, drawn, strict=True)
    ]
    config = TrainConfig(
        task.loss,
        OptimizerConfig("sgd", momentum=MOMENTUM, nesterov=False, rate_last=True),
        batch_size,
        max_epochs=1,
        learning_rate=lambda share: rate_factor(round(share * n_steps), n_steps),
        shuffle=False,
    )
    results = train_stack(build(), Rows(task.x_train, task.y_train), plans, config)
    net = build()
    for i, result in enumerate(results):
        net.load_member(i, result.state)
    return _outcomes(task, net)


def _outcomes(task: Task, net: TableNetwork) -> list[Outcome]:
    train_out, test_out = (net.predict(x, None, 500) for x in (task.x_train, task.x_test))
    fit, held_out = task.scores(train_out, task.y_train), task.scores(test_out, task.y_test)
    losses = task.losses(train_out, task.y_train.expand(net.n_members, -1))
    found = torch.stack([fit, held_out, losses.double()], dim=1)
    found[~losses.isfinite()] = math.nan
    return [Outcome(*member) for member in found.tolist()]
