"""An epoch's steps never wait for the device."""

import math

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)
from combutab.training import _trainer as loop


class NoHost(TorchFunctionMode):
    """Sees what reads a tensor's memory without an operator."""

    READERS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.__array__)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.READERS, f"{func} needs the host"
        return func(*args, **(kwargs or {}))


class Tape(TorchDispatchMode):
    """Notes the operators' names; refuses those that wait for the device."""

    HOST = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "equal.", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not func.__name__.startswith(self.HOST), f"{func} needs the host"
        if func.__name__.startswith("index"):  # by booleans: how many are true, the host must know
            indices = [t for t in tree_leaves(args[1:2]) if isinstance(t, torch.Tensor)]
            assert all(t.dtype != torch.bool for t in indices), f"{func} needs the host"
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


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
def test_the_tape_sees_what_needs_the_host(step):
    x = torch.arange(3.0)
    with pytest.raises(AssertionError, match="needs the host"), NoHost(), Tape():
        step(x)


def test_an_epoch_never_waits_for_the_host(monkeypatch):
    """Between the start of an epoch and its losses no step asks the device for a number."""
    tapes = []
    for name in ("gather", "__call__"):
        method = getattr(loop.TrainingStep, name)

        def taped(self, *arguments, method=method):
            with NoHost(), Tape() as tape:
                result = method(self, *arguments)
            tapes.append(tape)
            return result

        monkeypatch.setattr(loop.TrainingStep, name, taped)
    rates = {"relu": 0.1, "combu": 0.2, "pln-4": 0.0}
    members = [Member(i, name, rate) for i, (name, rate) in enumerate(rates.items())]
    plans = [
        MemberPlan(i, torch.arange(n), 1e-3 * (1 + i % 2), 0.1**i)
        for i, n in enumerate((200, 256, 215))
    ]
    config = TrainConfig(
        loss=make_regression_loss("squared_error", ()),
        optimizer=OptimizerConfig(),
        batch_size=64,
        max_epochs=3,
        n_iter_no_change=math.inf,
        max_grad_norm=1.0,
        track_metric=True,
        precision=Precision("float64"),
    )
    x = torch.randn(256, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = StackedMLP(MLPSpec(5, (16,), 1), members, dtype=torch.float64)
    train_stack(net, Rows(x, x[:, :1] * x[:, 1:2]), plans, config)
    names = [gather.names + step.names for gather, step in zip(*[iter(tapes)] * 2, strict=True)]
    assert len(names) == 4 * 3
    assert names[1] == names[2] == names[5], "full batches run the same operators"
