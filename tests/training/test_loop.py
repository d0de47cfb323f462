"""The loop: a member's result does not depend on its stack; orders, divergence, lbfgs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_lbfgs,
    train_stack,
)

N = 330
SQUARED = make_regression_loss("squared_error", ())
CONFIG = TrainConfig(
    loss=SQUARED,
    optimizer=OptimizerConfig(),
    batch_size=64,
    max_epochs=20,
    n_iter_no_change=math.inf,
)


def data(dtype: torch.dtype = torch.float32, weight: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, 5, generator=generator, dtype=torch.float64)
    y = X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3])
    w = torch.rand(N, generator=generator, dtype=torch.float64) + 0.1
    return Rows(X.to(dtype), y.to(dtype), None, w.to(dtype) if weight else None)


def train(members, plans, config=CONFIG, rows=None, shape=None, callbacks=()):
    dtype = config.precision.dtype
    shape = shape or MLPSpec(5, (16, 16), 1)
    net = StackedMLP(shape, members, dtype=dtype)
    return train_stack(net, rows or data(dtype), plans, config, callbacks)


def plan(seed: int, n: int = 256, rate: float = 1e-3, **more) -> MemberPlan:
    return MemberPlan(seed=seed, rows=torch.arange(n), learning_rate=rate, **more)


ACTIVATIONS = ["combu", "combu-random", "gelu", "la-silu", "pln-8", "prelu", "relu", "tanh"]
RATES = [1e-3, 2e-3, 5e-4, 1e-3, 3e-3, 1e-3, 4e-3, 1e-3]
DROPOUTS = [0.1, 0.0, 0.5, 0.1, 0.25, 0.1, 0.0, 0.1]
LENGTHS = [256, 250, 300, 40, 129, 256, 257, 64]  # ragged batches, one-batch members, a lone row
ALPHAS = [0.0, 1e-3, 1e-4, 0.1, 0.0, 1e-4, 1.0, 1e-2]


# Weights, solvers and precisions do not know of each other: each pair of values has a case
@pytest.mark.parametrize(
    ("precision", "solver", "weight"),
    [
        ("float64", "adam", False),
        ("float64", "adamw", True),
        ("float64", "sgd", False),
        ("float32", "adam", True),
        ("float32", "adamw", False),
        ("float32", "sgd", True),
    ],
)
def test_a_member_trains_as_if_alone(precision, solver, weight):
    tolerance, epochs = {"float64": 1e-8, "float32": 1e-4}[precision], 4
    config = replace(
        CONFIG,
        precision=Precision(precision),
        optimizer=OptimizerConfig(solver),
        score="r2",
        max_grad_norm=5.0,
        max_epochs=epochs,
    )
    rows = data(config.precision.dtype, weight)
    members = [
        Member(10 + i, name, rate)
        for i, (name, rate) in enumerate(zip(ACTIVATIONS, DROPOUTS, strict=True))
    ]
    plans = [
        plan(
            10 + i,
            LENGTHS[i],
            RATES[i],
            alpha=ALPHAS[i],
            weight_decay=0.02 * i,
            val_rows=torch.arange(LENGTHS[i], N),
        )
        for i in range(8)
    ]
    together = train(members, plans, config, rows)
    for i in range(8):
        (alone,) = train([members[i]], [plans[i]], config, rows)
        np.testing.assert_allclose(together[i].train_loss, alone.train_loss, rtol=tolerance)
        np.testing.assert_allclose(
            together[i].validation_score, alone.validation_score, rtol=0, atol=10 * tolerance
        )
        assert len(alone.train_loss) == epochs
        assert together[i].t == alone.t == epochs * LENGTHS[i]


def test_one_epoch_by_hand():
    """SGD without momentum on one batch: the numbers of the textbook, in numpy."""
    config = replace(
        CONFIG,
        precision=Precision("float64"),
        optimizer=OptimizerConfig("sgd", momentum=0.0, nesterov=False),
        batch_size=N,
        max_epochs=1,
    )
    shape, member, alpha, rate = MLPSpec(5, (4,), 1), Member(0, "tanh"), 0.3, 0.1
    start = StackedMLP(shape, [member], dtype=torch.float64).member_state(0)
    rows = data(torch.float64, weight=True)
    (result,) = train([member], [plan(0, N, rate, alpha=alpha)], config, rows, shape)
    X, y, w = rows.dense.numpy(), rows.y.numpy(), rows.weight.numpy()[:, None]
    W1, b1 = start["linears.0.weight"].numpy(), start["linears.0.bias"].numpy()
    W2, b2 = start["linears.1.weight"].numpy(), start["linears.1.bias"].numpy()
    h = np.tanh(X @ W1 + b1)
    error = h @ W2 + b2 - y
    delta = w * error / w.sum()
    back = (delta @ W2.T) * (1 - h**2)
    expected = {
        "linears.0.weight": W1 - rate * (X.T @ back + alpha * W1 / w.sum()),
        "linears.0.bias": b1 - rate * back.sum(0),
        "linears.1.weight": W2 - rate * (h.T @ delta + alpha * W2 / w.sum()),
        "linears.1.bias": b2 - rate * delta.sum(0),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(result.state[name].numpy(), value, rtol=1e-10, atol=1e-14)
    penalty = sum((expected[f"linears.{i}.weight"] ** 2).sum() for i in (0, 1))
    loss = 0.5 * (w * error**2).sum() / w.sum() + 0.5 * alpha * penalty / w.sum()
    assert result.train_loss[0] == pytest.approx(loss, rel=1e-10)


def test_each_epoch_visits_every_row_once():
    class Spy(StackedMLP):
        seen: list[torch.Tensor] = []

        def gradients(self, dense, *args):
            self.seen.append(dense[0, :, 0].clone())
            super().gradients(dense, *args)

    rows = replace(data(), dense=torch.arange(N, dtype=torch.float32)[:, None].expand(N, 5).clone())
    Spy.seen = []
    net = Spy(MLPSpec(5, (4,), 1), [Member(0, "relu")])
    train_stack(net, rows, [plan(0, 200)], replace(CONFIG, max_epochs=2))
    epochs = torch.cat(Spy.seen).view(2, 200)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(200))
    assert not torch.equal(epochs[0], epochs[1])
    Spy.seen = []
    net = Spy(MLPSpec(5, (4,), 1), [Member(0, "relu")])
    train_stack(net, rows, [plan(0, 200)], replace(CONFIG, max_epochs=1, shuffle=False))
    assert torch.cat(Spy.seen).tolist() == list(range(200))


@pytest.mark.parametrize(
    ("improves", "n_epochs"), [((), 12), ((8,), 28), ((8, 16), 60), ((16,), 12), ((2, 4), 12)]
)
def test_members_end_after_a_cycle_that_gains_little(improves, n_epochs):
    scores = iter(-(0.5 ** sum(epoch >= at for at in improves)) for epoch in range(1, 61))
    config = replace(
        CONFIG,
        max_epochs=60,
        learning_rate="coslog4",
        score="scorer",
        n_iter_no_change=99,
        min_cycle_gain=0.1,
    )
    scored = plan(0, val_rows=torch.arange(256, N), scorer=lambda *_: next(scores))
    (result,) = train([Member(0, "relu")], [scored], config)  # cycles end at 4, 12, 28 and 60
    assert len(result.train_loss) == n_epochs
    assert result.reason == ("max_iter" if n_epochs == 60 else "no_improvement")


def test_a_diverging_member_ends_alone():
    members = [Member(0, "relu"), Member(1, "relu")]
    optimizer = OptimizerConfig("sgd", momentum=0.9)
    config = replace(CONFIG, optimizer=optimizer)
    results = train(members, [plan(0, rate=1e-3), plan(1, rate=1e6)], config)
    assert [r.reason for r in results] == ["max_iter", "diverged"]
    (alone,) = train(members[:1], [plan(0, rate=1e-3)], config)
    np.testing.assert_allclose(results[0].train_loss, alone.train_loss, rtol=1e-4)


def test_lbfgs_minimises_the_penalised_loss():
    config = replace(CONFIG, precision=Precision("float64"), optimizer=OptimizerConfig("lbfgs"),
                     max_epochs=300, tol=1e-8)  # fmt: skip
    shape = MLPSpec(5, (), 1)  # linear: ridge regression has a closed form
    net = StackedMLP(shape, [Member(0, "relu")], dtype=torch.float64)
    rows, alpha = data(torch.float64), 3.0
    result = train_lbfgs(net, rows, plan(0, N, alpha=alpha), config, 10_000)
    X, y = rows.dense.numpy(), rows.y.numpy()
    Xc, yc = X - X.mean(0), y - y.mean(0)
    ridge = np.linalg.solve(Xc.T @ Xc + alpha * np.eye(5), Xc.T @ yc)
    np.testing.assert_allclose(result.state["linears.0.weight"].numpy(), ridge, atol=1e-5)
    assert result.reason == "no_improvement"


def test_padding_rows_come_from_the_same_member():
    rows = data(torch.float64)
    rows.dense[0] = 1e200  # a row that no member trains on, and none could bear
    config = replace(CONFIG, precision=Precision("float64"), max_epochs=3, score="r2")
    members = [Member(0, "combu", 0.1), Member(1, "combu", 0.1)]
    plans = [
        replace(plan(m), rows=torch.arange(1, n), val_rows=torch.arange(n, N))
        for m, n in ((0, 200), (1, 90))
    ]
    together = train(members, plans, config, rows)
    for i in range(2):
        (alone,) = train([members[i]], [plans[i]], config, rows)
        np.testing.assert_allclose(together[i].train_loss, alone.train_loss, rtol=1e-8)
        np.testing.assert_allclose(
            together[i].validation_score, alone.validation_score, rtol=0, atol=1e-8
        )
