"""Steps that a graph can replay: tested on a CPU by replaying recorded operators in its place."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from combutab._device import Precision
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    CrossEntropy,
    MemberPlan,
    OptimizerConfig,
    Pinball,
    Rows,
    TrainConfig,
    cuda_graphs,
    graphs_wanted,
    make_regression_loss,
    train_stack,
)
from combutab.training import _graphs as graphs
from combutab.training import _loop as loop

N = 330
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(N, 5, generator=GENERATOR, dtype=torch.float64)
Y = X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3])
CONFIG = TrainConfig(
    loss=make_regression_loss("squared_error", ()),
    optimizer=OptimizerConfig(),
    batch_size=64,
    max_epochs=6,
    n_iter_no_change=math.inf,
    precision=Precision("float64"),
)


class Tape(TorchDispatchMode):
    """Records operators; ``replay`` runs them again on the very same memory, as a graph does.

    Python does not run again, so a number that it would have changed from step to step stays what
    it was, and the result is wrong. (A CUDA graph does not run the step while it records it; here
    it runs, so the memory that it changed is put back.)
    """

    HOST = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "equal.", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert not func.__name__.startswith(self.HOST), f"{func} needs the host"
        if func.__name__.startswith("index"):  # by booleans: how many are true, the host must know
            assert all(t.dtype != torch.bool for t in tensors(args[1:2])), f"{func} needs the host"
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            if func.is_view:
                continue  # still looks at the same memory
            held = {t.data_ptr() for t in tensors((args, kwargs))}
            fresh = func(*args, **kwargs)
            for new, old in zip(tensors(fresh), tensors(out), strict=True):
                if old.data_ptr() not in held:
                    old.copy_(new)


def tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


class NoHost(TorchFunctionMode):
    """Sees what reads a tensor's memory without an operator."""

    READERS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.__array__)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.READERS, f"{func} needs the host"
        return func(*args, **(kwargs or {}))


class Recorder:
    """Stands where CUDA's recorder would: counts, and undoes what recording ran."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, run, device):
        self.recorded += 1
        with Saved() as saved, Tape() as tape:
            run()
        saved.restore()

        def replay():
            self.replayed += 1
            tape.replay()

        return replay


class Saved(TorchDispatchMode):
    """Remembers what memory held before an operator first changed it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for t in tensors((args, kwargs)):
            storage = t.untyped_storage()
            self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))
        return func(*args, **(kwargs or {}))

    def restore(self) -> None:
        for storage, held in self.before.values():
            storage.copy_(held)


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setitem(graphs.RECORDERS, "cpu", recorder)
    return recorder


def train(config, members, plans, data=None, shape=None):
    dtype = config.precision.dtype
    data = data or Rows(X.to(dtype), Y.to(dtype))
    net = StackedMLP(shape or MLPSpec(5, (16, 8), 1), members, dtype=dtype)
    return train_stack(net, data, plans, config)


def stack(lengths=(256, 256, 256), rates=(1e-3, 2e-3, 1e-3), **more):
    members = [Member(3 + i, name, 0.1 * i) for i, name in enumerate(["combu", "relu", "relu"])]
    plans = [
        MemberPlan(3 + i, torch.arange(lengths[i]), rates[i], alpha=10.0 ** -(i + 2), **more)
        for i in range(3)
    ]
    return members, plans


VARIANTS = {
    "adam": {},
    "adamw": {"optimizer": OptimizerConfig("adamw"), "max_grad_norm": 0.5},
    "sgd": {"optimizer": OptimizerConfig("sgd")},
    "cosine": {"learning_rate": "cosine"},
    "invscaling": {"learning_rate": "invscaling"},
    "not shuffled": {"shuffle": False},
    "one batch": {"batch_size": 256, "max_epochs": 12},
    "metric": {"track_metric": True},
    "huber": {"loss": make_regression_loss("huber", ())},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lengths", [(256, 256, 256), (200, 256, 215)], ids=["full", "ragged"])
def test_replayed_steps_give_the_numbers_of_ordinary_ones(variant, lengths, recorder):
    config = replace(CONFIG, **VARIANTS[variant])
    members, plans = stack(lengths, weight_decay=0.1 if variant == "adamw" else 0.0)
    ordinary = train(config, members, plans)
    assert not recorder.recorded
    replayed = train(replace(config, cuda_graphs=True), members, plans)
    if min(lengths) == 256:
        assert recorder.recorded == 1
        assert recorder.replayed == (12 if variant == "one batch" else 24) - graphs._WARM_UPS
    tolerance = 1e-12 if variant == "sgd" else 0  # rounded once more
    for a, b in zip(ordinary, replayed, strict=True):
        np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=tolerance)
        assert a.learning_rate == b.learning_rate
        assert a.train_metric == b.train_metric
        for name, value in a.state.items():
            torch.testing.assert_close(b.state[name], value, rtol=tolerance, atol=tolerance)


def test_other_losses_and_networks(recorder):
    config = replace(CONFIG, cuda_graphs=True)
    members, plans = stack()
    labels = (Y[:, 0] > 0).long() + (X[:, 1] > 1).long()
    weight = torch.linspace(0.1, 2, N, dtype=torch.float64)
    codes = torch.arange(N).remainder(4).unsqueeze(1)
    cases = [
        (CrossEntropy(label_smoothing=0.1), Rows(X, labels, None, weight), MLPSpec(5, (8,), 3)),
        (Pinball(n_per_target=2, quantiles=(0.1, 0.9)), Rows(X, Y), MLPSpec(5, (8,), 2)),
        (CONFIG.loss, Rows(X, Y), MLPSpec(5, (8,), 1, normalization="batch")),
        (CONFIG.loss, Rows(X, Y), MLPSpec(5, (8,), 1, normalization="layer", proxy_norm=True)),
        (CONFIG.loss, Rows(X, Y, codes), MLPSpec(5, (8,), 1, cardinalities=(4,))),
    ]
    for loss, data, shape in cases:
        before = recorder.replayed
        replayed = train(replace(config, loss=loss), members, plans, data, shape)
        assert recorder.replayed > before
        ordinary = train(replace(CONFIG, loss=loss), members, plans, data, shape)
        for a, b in zip(ordinary, replayed, strict=True):
            np.testing.assert_array_equal(a.train_loss, b.train_loss)
            for name, value in a.state.items():
                torch.testing.assert_close(b.state[name], value, rtol=0, atol=0)


def test_members_that_finish_are_recorded_without(recorder):
    config = replace(CONFIG, score="r2", n_iter_no_change=2, max_epochs=40, tol=1e-3)
    members, plans = stack((200, 200, 200), (0.1, 0.01, 0.03), val_rows=torch.arange(256, N))
    ordinary = train(config, members, plans)
    assert len({len(r.train_loss) for r in ordinary}) == 3, "they need to end at different epochs"
    replayed = train(replace(config, cuda_graphs=True), members, plans)
    assert recorder.recorded == 3
    for a, b in zip(ordinary, replayed, strict=True):
        np.testing.assert_array_equal(a.validation_score, b.validation_score)


def test_rates_that_come_apart_are_recorded_anew(recorder):
    config = replace(CONFIG, learning_rate="adaptive", n_iter_no_change=1, max_epochs=30, tol=1e-2)
    members, plans = stack(rates=(1e-3, 1e-3, 1e-3))
    ordinary = train(config, members, plans)
    assert len({tuple(r.learning_rate) for r in ordinary}) > 1, "the rates need to come apart"
    replayed = train(replace(config, cuda_graphs=True), members, plans)
    assert recorder.recorded > 1
    for a, b in zip(ordinary, replayed, strict=True):
        np.testing.assert_array_equal(a.train_loss, b.train_loss)


def test_what_cannot_be_recorded_runs_as_usual(monkeypatch):
    def fails(run, device):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setitem(graphs.RECORDERS, "cpu", fails)
    members, plans = stack()
    with pytest.warns(UserWarning, match="no CUDA graph of the training step: operation not"):
        replayed = train(replace(CONFIG, cuda_graphs=True), members, plans)
    for a, b in zip(train(CONFIG, members, plans), replayed, strict=True):
        np.testing.assert_array_equal(a.train_loss, b.train_loss)


def test_the_switch():
    assert not graphs_wanted()
    with pytest.raises(KeyError), cuda_graphs():
        assert graphs_wanted()
        raise KeyError
    assert not graphs_wanted()
    members, plans = stack()
    on_cpu = train(replace(CONFIG, cuda_graphs=True), members, plans)  # has no effect there
    np.testing.assert_array_equal(on_cpu[0].train_loss, train(CONFIG, members, plans)[0].train_loss)


class TestTheTape:
    """Without these, a tape that lets everything pass would pass every test above."""

    @pytest.mark.parametrize(
        "step",
        [
            lambda x: x.sum().item(),
            lambda x: x.tolist(),
            lambda x: x[x > 0],
            lambda x: x + torch.tensor([1.0]),
            lambda x: bool((x > 0).all()),
            lambda x: torch.equal(x, x),
        ],
        ids=["item", "tolist", "boolean index", "tensor", "bool", "equal"],
    )
    def test_sees_what_needs_the_host(self, step):
        x = torch.arange(3.0)
        with pytest.raises(AssertionError, match="needs the host"), NoHost(), Tape():
            step(x)

    def test_repeats_what_python_gave_it(self):
        x, count, device_count = torch.zeros(3), [0], torch.zeros(1)

        def step():
            count[0] += 1
            device_count.add_(1)
            x.add_(count[0]).add_(device_count * 10)

        with Tape() as tape:
            step()
        tape.replay()
        assert x.tolist() == [1 + 10 + 1 + 20] * 3  # not 1 + 10 + 2 + 20


def test_an_epoch_never_waits_for_the_host(monkeypatch):
    """Between the start of an epoch and its losses no step asks the device for a number."""
    tapes = []
    step = loop._Training._step

    def taped(self, inputs):
        with NoHost(), Tape() as tape:
            step(self, inputs)
        tapes.append(tape)

    monkeypatch.setattr(loop._Training, "_step", taped)
    members, plans = stack((200, 256, 215))
    train(replace(CONFIG, max_grad_norm=1.0, track_metric=True), members, plans)
    assert len(tapes) == 4 * 6
    names = [[func.__name__ for func, *_ in tape.calls] for tape in tapes]
    assert names[1] == names[2] == names[5], "full batches run the same operators"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("variant", VARIANTS)
def test_cuda_graphs(variant):
    config = replace(CONFIG, precision=Precision("float32"), **VARIANTS[variant])
    results = []
    for wanted in (False, True):
        members, plans = stack((200, 200, 200))
        net = StackedMLP(MLPSpec(5, (16, 8), 1), members, device="cuda")
        data = Rows(X.float().cuda(), Y.float().cuda())
        results.append(train_stack(net, data, plans, replace(config, cuda_graphs=wanted)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_no_step_synchronises(monkeypatch):
    step = loop._Training._step

    def watched(self, inputs):
        torch.cuda.set_sync_debug_mode("error")
        try:
            step(self, inputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(loop._Training, "_step", watched)
    members, plans = stack((200, 256, 215))
    net = StackedMLP(MLPSpec(5, (16, 8), 1), members, device="cuda")
    train_stack(
        net,
        Rows(X.float().cuda(), Y.float().cuda()),
        plans,
        replace(CONFIG, precision=Precision("float32"), learning_rate="cosine", max_grad_norm=1.0),
    )
