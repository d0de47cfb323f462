"""Training of stacked deep networks by SGD with momentum: a member a seed and a learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pln_depth_data import Task
from pln_depth_net import DeepNet, Gradients, Shape, gradient_norms
from torch import Tensor

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
    diverged: bool


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
    net = DeepNet(
        shape, task.x_train.shape[1], task.n_outputs, _generators(seeds), dtype=torch.float64
    )
    rows = torch.randperm(len(task.x_train), generator=torch.Generator().manual_seed(0))[:n_rows]
    x = task.x_train[rows].double().expand(len(seeds), -1, -1)
    y = task.y_train[rows] if task.is_classification else task.y_train[rows].double()
    return gradient_norms(net, task.losses(net(x), y.expand(len(seeds), -1)))


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
    members = [(rate, seed) for rate in rates for seed in seeds]
    generators = _generators([seed for _, seed in members])
    net = DeepNet(shape, task.x_train.shape[1], task.n_outputs, generators)
    parameters = list(net.parameters())
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    rate = torch.tensor([rate for rate, _ in members]).view(-1, 1, 1)
    for step in range(n_steps):
        rows = torch.stack(
            [torch.randint(len(task.x_train), (batch_size,), generator=g) for g in generators]
        )
        net.zero_grad(set_to_none=True)
        task.losses(net(task.x_train[rows]), task.y_train[rows]).sum().backward()
        now = rate * rate_factor(step, n_steps)
        with torch.no_grad():
            for parameter, velocity in zip(parameters, velocities, strict=True):
                gradient = parameter.grad.add(parameter, alpha=WEIGHT_DECAY)
                velocity.mul_(MOMENTUM).add_(gradient)
                parameter.sub_(now * velocity)
    return _outcomes(task, net, len(members))


@torch.no_grad()
def _outcomes(task: Task, net: DeepNet, n_members: int) -> list[Outcome]:
    def everywhere(x: Tensor) -> Tensor:
        return torch.cat([net(part.expand(n_members, -1, -1)) for part in x.split(500)], dim=1)

    train_out, test_out = everywhere(task.x_train), everywhere(task.x_test)
    losses = task.losses(train_out, task.y_train.expand(n_members, -1))
    both = zip(
        losses.tolist(),
        task.scores(train_out, task.y_train).tolist(),
        task.scores(test_out, task.y_test).tolist(),
        strict=True,
    )
    return [
        Outcome(fit, held_out, loss, diverged=False)
        if math.isfinite(loss)
        else Outcome(math.nan, math.nan, math.nan, diverged=True)
        for loss, fit, held_out in both
    ]


def _generators(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]
