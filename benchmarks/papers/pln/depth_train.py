"""Training of stacked deep networks by SGD with momentum: a member a seed and a learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.papers.pln.depth_data import Task
from benchmarks.papers.pln.depth_net import Gradients, Shape, gradient_norms
from combutab.nn import TableNetwork
from combutab.training import MemberPlan, OptimizerConfig, Rows, TrainConfig, train_stack

# The paper trains 240 epochs, the first 20 of them with a rising rate, which is divided by 2.5 at
# the 60th, 100th, 140th, 180th and 220th (appendix B.2.1); here the same shares of the steps
WARM_UP = 20 / 240
MILESTONES = tuple(epoch / 240 for epoch in (60, 100, 140, 180, 220))
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4  # the paper's


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
    *,
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
