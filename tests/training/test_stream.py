"""Rows that come in windows are trained on as rows in memory."""

import math
from dataclasses import replace

import pytest
import torch

from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)

N, BATCH = 330, 32
CONFIG = TrainConfig(
    loss=make_regression_loss("squared_error", ()),
    optimizer=OptimizerConfig(),
    batch_size=BATCH,
    max_epochs=6,
    n_iter_no_change=math.inf,
)


def rows(weight: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, 5, generator=generator)
    w = torch.rand(N, generator=generator) + 0.1
    return Rows(X, X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3]), None, w if weight else None)


def part(data: Rows, start: int, stop: int) -> Rows:
    weight = None if data.weight is None else data.weight[start:stop].clone()
    return Rows(data.dense[start:stop].clone(), data.y[start:stop].clone(), None, weight)


class Stream:
    """Windows of one table, whose memory is overwritten once the next is asked for."""

    def __init__(self, data: Rows, size: int) -> None:
        self.data, self.size, self.n_rows = data, size, len(data.dense)
        self.epochs: list[int] = []

    def windows(self, epoch):
        self.epochs.append(epoch)
        for start in range(0, self.n_rows, self.size):
            window = part(self.data, start, start + self.size)
            yield window
            window.dense.fill_(math.nan)
            window.y.fill_(math.nan)


def train(config, stream=None, data=None, n_members=2, val=None, callbacks=()):
    members = [Member(seed, "combu", 0.1) for seed in range(n_members)]
    plans = [
        MemberPlan(seed=seed, rows=torch.arange(N), learning_rate=1e-3, alpha=1e-3, val_rows=val)
        for seed in range(n_members)
    ]
    net = StackedMLP(MLPSpec(5, (16, 16), 1), members)
    return train_stack(net, data or rows(), plans, config, callbacks, stream)


def assert_equal(results, others):
    for result, other in zip(results, others, strict=True):
        assert result.train_loss == other.train_loss
        assert result.learning_rate == other.learning_rate
        assert result.t == other.t
        for name, value in result.state.items():
            assert torch.equal(value, other.state[name]), name


@pytest.mark.parametrize("learning_rate", ["constant", "one-cycle"])
def test_windows_in_order_are_training_in_memory(learning_rate):
    # dropout's masks and the schedule go by the steps of the epoch, not of the window
    config = replace(CONFIG, shuffle=False, learning_rate=learning_rate)
    data = rows()
    stream = Stream(data, 3 * BATCH)
    assert_equal(train(config, stream, part(data, 0, 0)), train(config, data=data))
    assert stream.epochs == list(range(6))


def test_validation_rows_are_held_beside_the_windows():
    data = rows()
    config = replace(CONFIG, shuffle=False, score="r2")
    val = torch.arange(200, 260)
    expected = train(config, data=data, val=val)
    found = train(config, Stream(data, 5 * BATCH), part(data, 200, 260), val=torch.arange(60))
    assert_equal(found, expected)
    assert found[0].validation_score == expected[0].validation_score
