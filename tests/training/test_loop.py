"""The loop: a member's result does not depend on its stack; stopping, best weights, callbacks."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    Callback,
    CrossEntropy,
    MemberPlan,
    OptimizerConfig,
    Rows,
    TimeLimit,
    TrainConfig,
    make_regression_loss,
    train_lbfgs,
    train_stack,
)
from combutab.training._trainer import StackTraining

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


@pytest.mark.parametrize("shape", [
    MLPSpec(5, (16, 16), 1, normalization="layer"),
    MLPSpec(5, (16, 16), 1, normalization="layer", proxy_norm=True),
    MLPSpec(5, (16, 16), 1, normalization="batch"),
    MLPSpec(5, (16, 16), 1, init="ntk"),
], ids=["layer", "proxy", "batch", "ntk"])  # fmt: skip
def test_so_it_does_with_normalisation(shape):
    config = replace(CONFIG, precision=Precision("float64"), max_epochs=3)
    members = [Member(i, name, 0.1) for i, name in enumerate(["combu", "prelu", "relu"])]
    plans = [plan(i, 256 - 30 * i) for i in range(3)]
    together = train(members, plans, config, shape=shape)
    for i in range(3):
        (alone,) = train([members[i]], [plans[i]], config, shape=shape)
        np.testing.assert_allclose(together[i].train_loss, alone.train_loss, rtol=1e-8)


def test_members_that_finish_early_leave_the_others_alone():
    config = replace(CONFIG, precision=Precision("float64"), score="r2", n_iter_no_change=2,
                     max_epochs=60, tol=1e-3)  # fmt: skip
    members = [Member(i, "prelu" if i % 2 else "combu-random", 0.1) for i in (0, 2, 4, 1, 3, 5)]
    plans = [
        plan(m.seed, 200 + m.seed, 10 ** -(1.5 + 0.4 * m.seed), val_rows=torch.arange(260, N))
        for m in members
    ]
    together = train(members, plans, config)
    ends = [len(result.train_loss) for result in together]
    assert len(set(ends)) >= 3, f"the test needs members that end at different epochs, got {ends}"
    for i, member in enumerate(members):
        (alone,) = train([member], [plans[i]], config)
        assert together[i].reason == alone.reason
        np.testing.assert_allclose(together[i].train_loss, alone.train_loss, rtol=1e-8)
        for name, value in alone.state.items():
            torch.testing.assert_close(together[i].state[name], value, rtol=1e-7, atol=1e-9)


def lengths(thing, name="training", seen=None):
    """The length of each list, array and tensor that an object of ours holds, by its place."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple) or getattr(thing, "ndim", 0):
        yield name, len(thing)
    parts = {}
    if isinstance(thing, dict):
        parts = thing
    elif isinstance(thing, list | tuple):
        parts = dict(enumerate(thing))
    elif type(thing).__module__.startswith(("combutab", "torch.nn")):
        parts = getattr(thing, "__dict__", {})
    for key, part in parts.items():
        yield from lengths(part, f"{name}.{key}", seen)


def test_members_that_leave_take_along_all_that_is_theirs():
    members = [Member(i, "prelu" if i < 4 else nn.Mish, 0.1) for i in range(11)]
    plans = [plan(i, 200 + i, val_rows=torch.arange(260, N)) for i in range(11)]
    config = replace(CONFIG, score="loss", calibrated=True)
    net = MLPSpec(5, (16, 16), 1, normalization="batch").build(members)
    training = StackTraining(net, data(), plans, config)
    training.record(*training.epoch(0, 0.0))
    before = {name for name, length in lengths(training) if length == 11}
    assert {"training.plans", "training.scorer.factors", "training.optimizer.steps"} <= before
    training.keep([2, 5])
    left = {name for name, length in lengths(training) if length == 11}
    by_place = {"training.ended"}  # in the stack as it was given
    assert left == by_place


def test_the_best_weights_come_back_and_are_no_alias():
    config = replace(CONFIG, score="r2", max_epochs=40, learning_rate="constant")
    plans = [plan(1, 60, 0.02, val_rows=torch.arange(60, N))]
    member = Member(1, "relu")
    rows = data()
    noise = torch.randn(N, 1, generator=torch.Generator().manual_seed(9))
    rows = replace(rows, y=rows.y + noise)  # so that 60 rows are soon learned by heart
    (result,) = train([member], plans, config, rows)
    assert result.best_score == max(result.validation_score)
    best = int(np.argmax(result.validation_score))
    assert best < 39, "the test needs a run whose last epoch is not its best"
    net = StackedMLP(MLPSpec(5, (16, 16), 1), [member])
    net.load_member(0, result.state)
    predicted = net(rows.dense[None, 60:])[0, :, 0].detach().double().numpy()
    y = rows.y[60:, 0].double().numpy()
    r2 = 1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert r2 == pytest.approx(result.best_score, abs=1e-5)


def test_without_validation_it_stops_when_the_loss_stalls():
    config = replace(CONFIG, n_iter_no_change=3, tol=0.5, max_epochs=50)
    (result,) = train([Member(0, "relu")], [plan(0)], config)
    # the loss starts near 0.8: no epoch improves it by 0.5 after the first
    assert result.reason == "no_improvement"
    assert len(result.train_loss) == 5  # the first, and four idle ones: more than three
    (result,) = train([Member(0, "relu")], [plan(0)], replace(config, n_iter_no_change=math.inf))
    assert result.reason == "max_iter"


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


def test_every_row_is_seen_once_an_epoch_in_a_new_order():
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


def test_gradients_are_clipped():
    """With SGD a clipped step moves all parameters by at most rate x norm."""
    optimizer = OptimizerConfig("sgd", momentum=0.0, nesterov=False)
    config = replace(CONFIG, optimizer=optimizer, batch_size=N, max_epochs=1)
    rows = data()
    rows = replace(rows, y=100 * rows.y)
    moved = {}
    for max_norm in (None, 0.5):
        start = StackedMLP(MLPSpec(5, (16, 16), 1), [Member(0, "relu")]).member_state(0)
        (result,) = train(
            [Member(0, "relu")], [plan(0, N, 0.01)], replace(config, max_grad_norm=max_norm), rows
        )
        steps = torch.cat([(result.state[n] - start[n]).reshape(-1) for n in start])
        moved[max_norm] = steps.double().norm().item()
    assert moved[None] > 0.05
    assert moved[0.5] == pytest.approx(0.01 * 0.5, rel=1e-4)


def test_a_diverging_member_ends_alone():
    members = [Member(0, "relu"), Member(1, "relu")]
    optimizer = OptimizerConfig("sgd", momentum=0.9)
    config = replace(CONFIG, optimizer=optimizer)
    results = train(members, [plan(0, rate=1e-3), plan(1, rate=1e6)], config)
    assert [r.reason for r in results] == ["max_iter", "diverged"]
    (alone,) = train(members[:1], [plan(0, rate=1e-3)], config)
    np.testing.assert_allclose(results[0].train_loss, alone.train_loss, rtol=1e-4)


class Recorder(Callback):
    def __init__(self, stop_at: int | None = None, interrupt_at: int | None = None) -> None:
        self.stop_at, self.interrupt_at = stop_at, interrupt_at
        self.begun: list[tuple[int, int]] = []
        self.reports: list = []
        self.ended = 0

    def on_train_begin(self, n_members, max_epochs):
        self.begun.append((n_members, max_epochs))

    def on_epoch_end(self, report):
        self.reports.append(report)
        if report.epoch == self.interrupt_at:
            raise KeyboardInterrupt
        return report.epoch == self.stop_at

    def on_train_end(self):
        self.ended += 1


def test_callbacks_are_told_and_may_stop():
    recorder = Recorder(stop_at=3)
    members, plans = [Member(0, "relu"), Member(1, "relu")], [plan(0), plan(1, rate=2e-3)]
    results = train(members, plans, callbacks=[recorder])
    assert [r.reason for r in results] == ["callback", "callback"]
    assert recorder.begun == [(2, 20)]
    assert recorder.ended == 1
    assert [r.epoch for r in recorder.reports] == [1, 2, 3]
    last = recorder.reports[-1]
    assert last.members == (0, 1)
    assert last.train_loss.tolist() == [r.train_loss[-1] for r in results]
    assert last.learning_rate.tolist() == [1e-3, 2e-3]
    assert last.validation_score is None
    assert last.seconds > 0


def test_an_interrupt_keeps_the_best_weights_so_far():
    config = replace(CONFIG, score="r2")
    recorder = Recorder(interrupt_at=5)
    plans = [plan(0, 200, val_rows=torch.arange(200, N))]
    (result,) = train([Member(0, "relu")], plans, config, callbacks=[recorder])
    assert result.reason == "interrupted"
    assert recorder.ended == 1
    assert len(result.train_loss) == 5
    (whole,) = train([Member(0, "relu")], plans, replace(config, max_epochs=5))
    assert all(torch.equal(result.state[n], whole.state[n]) for n in whole.state)


def test_an_error_in_a_callback_still_ends_the_others():
    class Broken(Callback):
        def on_epoch_end(self, report):
            raise RuntimeError("broken")

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="broken"):
        train([Member(0, "relu")], [plan(0)], callbacks=[recorder, Broken()])
    assert recorder.ended == 1


def test_time_limit():
    (result,) = train([Member(0, "relu")], [plan(0)], callbacks=[TimeLimit(0.0)])
    assert result.reason == "callback"
    assert len(result.train_loss) == 1


def test_going_on_is_the_same_as_not_stopping():
    from combutab.training import MemberResult

    config = replace(CONFIG, precision=Precision("float64"), max_epochs=6)
    member = Member(0, "prelu", 0.2)
    (whole,) = train([member], [plan(0)], config)
    (half,) = train([member], [plan(0)], replace(config, max_epochs=3))
    start = MemberResult(
        optimizer=half.optimizer,
        epochs=half.epochs,
        t=half.t,
        best_loss=half.best_loss,
        n_iter_no_improvement=half.n_iter_no_improvement,
    )
    net = StackedMLP(MLPSpec(5, (16, 16), 1), [member], dtype=torch.float64)
    net.load_member(0, half.state)
    plans = [replace(plan(0), start=start)]
    (rest,) = train_stack(net, data(torch.float64), plans, replace(config, max_epochs=3))
    assert half.train_loss + rest.train_loss == pytest.approx(whole.train_loss, rel=1e-12)
    assert rest.t == whole.t
    assert rest.epochs == 6


@pytest.mark.parametrize("kind", ["adaptive", "invscaling"])
def test_schedules_of_scikit_learn(kind):
    config = replace(CONFIG, learning_rate=kind, n_iter_no_change=1, tol=10.0, max_epochs=12)
    (result,) = train([Member(0, "relu")], [plan(0, 100, 0.1)], config)
    if kind == "invscaling":
        config = replace(config, n_iter_no_change=math.inf)
        (result,) = train([Member(0, "relu")], [plan(0, 100, 0.1)], config)
        expected = [0.1] + [0.1 / (100 * e + 1) ** 0.5 for e in range(1, 12)]
    else:  # two idle epochs divide it by five; the first epoch improves on nothing
        expected = [0.1] * 3 + [0.02] * 2 + [0.004] * 2 + [0.0008] * 2 + [0.00016] * 2 + [3.2e-5]
    assert result.learning_rate == pytest.approx(expected)


def test_classes_are_learned():
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(N, 5, generator=generator)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    config = replace(CONFIG, loss=CrossEntropy(), score="accuracy", max_epochs=60)
    plans = [plan(0, 250, 5e-3, val_rows=torch.arange(250, N))]
    (result,) = train([Member(0, "combu")], plans, config, Rows(X, y), MLPSpec(5, (16, 16), 3))
    assert result.best_score > 0.85


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_does_not_matter():
    members, plans = [Member(0, "combu", 0.1), Member(1, "prelu", 0.3)], [plan(0), plan(1, 200)]
    config = replace(CONFIG, precision=Precision("float64"))
    on_cpu = train(members, plans, config)
    net = StackedMLP(MLPSpec(5, (16, 16), 1), members, dtype=torch.float64, device="cuda")
    rows = data(torch.float64)
    rows = Rows(rows.dense.cuda(), rows.y.cuda())
    on_gpu = train_stack(net, rows, plans, config)
    for one, other in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(one.train_loss, other.train_loss, rtol=1e-8)


def test_rows_that_fill_a_shorter_members_batch_are_its_own():
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
