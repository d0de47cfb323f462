"""Compiled training steps, on a CPU by backends that trace as on a GPU and need no compiler."""

import gc
import math
import shutil
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from combutab import TVAE, MLPClassifier
from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    CrossEntropy,
    MemberPlan,
    OptimizerConfig,
    Pinball,
    Rows,
    TrainConfig,
    compilation,
    compiled,
    make_regression_loss,
    train_stack,
)
from combutab.training import _steps as module
from combutab.training import _trainer as loop

N = 330
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(N, 5, generator=GENERATOR, dtype=torch.float64)
Y = X[:, :1] * X[:, 1:2] + torch.sin(X[:, 2:3])
CONFIG = TrainConfig(
    loss=make_regression_loss("squared_error", ()),
    optimizer=OptimizerConfig(),
    batch_size=64,
    max_epochs=3,
    n_iter_no_change=math.inf,
    precision=Precision("float64"),
)
TRACED = module.Compilation("cpu", "aot_eager")  # forward and backward
DYNAMO = module.Compilation("cpu", "eager")  # Python alone: the quickest


class Counter:
    def __init__(self) -> None:
        self.compiled = self.ran = 0


@pytest.fixture
def count(monkeypatch):
    counter, of = Counter(), module.Compilation.of

    def counted(self, function):
        counter.compiled += 1
        run = of(self, function)

        def one(*inputs):
            out = run(*inputs)
            counter.ran += 1
            return out

        return one

    monkeypatch.setattr(module.Compilation, "of", counted)
    return counter


def train(config, members, plans, data=None, shape=None, device="cpu"):
    dtype = config.precision.dtype
    data = data or Rows(X.to(device, dtype), Y.to(device, dtype))
    shape = shape or MLPSpec(5, (16,), 1)  # tracing takes nearly all of the time
    net = StackedMLP(shape, members, dtype=dtype, device=device)
    return train_stack(net, data, plans, config)


def stack(lengths=256, activations=("combu", "relu", "relu"), **more):
    lengths = [lengths] * len(activations) if isinstance(lengths, int) else lengths
    members, plans = [], []
    for i, (name, length) in enumerate(zip(activations, lengths, strict=True)):
        rate, alpha = (1e-3, 2e-3, 1e-3)[i % 3], 10.0 ** -(i % 3 + 2)
        members.append(Member(3 + i, name, 0.1 * (i % 3)))
        plans.append(MemberPlan(3 + i, torch.arange(length), rate, alpha, **more))
    return members, plans


def assert_same(ordinary, found, tolerance=1e-9):
    for a, b in zip(ordinary, found, strict=True):
        np.testing.assert_allclose(b.train_loss, a.train_loss, rtol=tolerance)
        np.testing.assert_allclose(b.train_metric, a.train_metric, rtol=tolerance)
        for name, value in a.state.items():
            torch.testing.assert_close(b.state[name], value, rtol=tolerance, atol=tolerance)


WEIGHT = torch.linspace(0.1, 2, N, dtype=torch.float64)
LABELS = (Y[:, 0] > 0).long() + (X[:, 1] > 1).long()
CODES = torch.arange(N).remainder(4).unsqueeze(1)
# Activations, network, ways to train, rows. Tracing takes nearly all of the time, and a network
# and a way to train know nothing of each other: each has its turn, not each pair.
CASES = {
    "unlike activations": (
        ("combu", "relu", "relu", "pln-4", "la-silu", "prelu"),
        MLPSpec(5, (16, 8), 1),
        {"optimizer": OptimizerConfig("adamw"), "max_grad_norm": 0.5},
        Rows(X, Y, None, WEIGHT),
    ),
    "proxynorm": (
        ("combu", "combu", "gelu"),
        MLPSpec(5, (8,), 1, normalization="layer", proxy_norm=True),
        {"batch_size": 256, "loss": make_regression_loss("huber", ())},
        Rows(X, Y),
    ),
    "batch norm": (
        ("elu", "elu", "silu", "combu-random"),
        MLPSpec(5, (8,), 2, normalization="batch"),
        {
            "optimizer": OptimizerConfig("sgd"),
            "learning_rate": "cosine",
            "loss": Pinball(n_per_target=2, quantiles=(0.1, 0.9)),
        },
        Rows(X, Y),
    ),
    "group norm and embedding of one member": (
        ("nlrelu",),
        MLPSpec(5, (8,), 3, normalization="group", cardinalities=(4,)),
        {"shuffle": False, "track_metric": True, "loss": CrossEntropy(label_smoothing=0.1)},
        Rows(X, LABELS, CODES, WEIGHT),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_steps_give_the_numbers_of_ordinary_ones(case, count):
    activations, shape, ways, data = CASES[case]
    members, plans = stack(activations=activations, weight_decay=0.1)
    config = replace(CONFIG, **ways)
    ordinary = train(config, members, plans, data, shape)
    assert not count.compiled
    found = train(replace(config, compilation=TRACED), members, plans, data, shape)
    assert (count.compiled, count.ran) == (1, 3 * 256 // config.batch_size)
    assert_same(ordinary, found)


def test_half_precision(count):
    config = replace(CONFIG, precision=Precision("bf16-mixed"))
    members, plans = stack(activations=("combu", "relu"))
    ordinary = train(config, members, plans)
    assert_same(ordinary, train(replace(config, compilation=TRACED), members, plans), 2e-2)
    assert count.ran


@pytest.mark.parametrize(("lengths", "n_compiled"), [((200, 256, 215), 3), ((40, 40, 40), 1)])
def test_small_and_ragged_batches_take_the_usual_step(lengths, n_compiled, count):
    members, plans = stack(lengths)
    ordinary = train(CONFIG, members, plans)
    assert_same(ordinary, train(replace(CONFIG, compilation=DYNAMO), members, plans))
    assert (count.compiled, count.ran) == (1, 3 * n_compiled)


def test_members_that_end_leave_a_stack_that_is_compiled_anew(count):
    config = replace(CONFIG, score="r2", n_iter_no_change=2, max_epochs=40, tol=1e-3)
    members, plans = stack((200, 200, 200), val_rows=torch.arange(256, N))
    plans = [
        replace(plan, learning_rate=rate)
        for plan, rate in zip(plans, (0.1, 0.01, 0.03), strict=True)
    ]
    ordinary = train(config, members, plans)
    assert len({len(r.train_loss) for r in ordinary}) == 3, "they need to end at different epochs"
    found = train(replace(config, compilation=DYNAMO), members, plans)
    assert count.compiled == 3
    assert count.ran == 3 * max(len(r.train_loss) for r in found)
    assert_same(ordinary, found, 1e-6)
    for a, b in zip(ordinary, found, strict=True):
        np.testing.assert_allclose(b.validation_score, a.validation_score, rtol=1e-6)


def test_many_fits_in_one_process_are_all_compiled(count):
    """More than torch keeps compilations for one function, after which it no longer compiles."""
    members, plans = stack(activations=("relu",))
    config = replace(CONFIG, max_epochs=1, compilation=DYNAMO)
    with torch._dynamo.config.patch(recompile_limit=2):
        for width in range(4, 8):
            train(config, members, plans, shape=MLPSpec(5, (width,), 1))
    assert count.compiled == 4
    assert count.ran == 4 * 4


def test_what_was_compiled_goes_with_its_network():
    members, plans = stack(activations=("relu",))
    net = StackedMLP(MLPSpec(5, (8,), 1), members, dtype=torch.float64)
    train_stack(net, Rows(X, Y), plans, replace(CONFIG, compilation=TRACED))
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


class Looks(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


def looks(width):
    return Looks()


def test_what_cannot_be_compiled_takes_the_usual_steps_and_says_so_once(count):
    members, plans = stack(activations=(looks, looks, looks))
    ordinary = train(CONFIG, members, plans)
    with pytest.warns(UserWarning, match="the training step is not compiled: ") as caught:
        found = train(replace(CONFIG, compilation=DYNAMO), members, plans)
    assert len(caught) == 1
    assert (count.compiled, count.ran) == (1, 0)
    assert_same(ordinary, found, 0)


def test_the_switch(count):
    assert compilation() is None
    with pytest.raises(KeyError), compiled():
        with compiled(device="cpu", backend="eager"):
            assert compilation() == DYNAMO
        assert compilation() == module.Compilation("cuda", "inductor")
        raise KeyError
    assert compilation() is None
    quick = {"max_iter": 3, "n_iter_no_change": math.inf, "random_state": 0, "device": "cpu"}
    quick["batch_size"] = "paper"  # one step an epoch
    model = MLPClassifier(**quick)
    labels = (Y[:, 0] > 0).numpy()
    curve = model.fit(X.numpy(), labels).loss_curve_
    with compiled():
        assert model.fit(X.numpy(), labels).loss_curve_ == curve
    assert not count.compiled, "a CPU is no CUDA device"
    before = torch.get_rng_state()
    with compiled(device="cpu", backend="eager"):
        np.testing.assert_allclose(model.fit(X.numpy(), labels).loss_curve_, curve, rtol=1e-5)
    assert count.ran == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_tvae(count):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=80), "kind": rng.choice(["a", "b"], 80)})
    model = TVAE(
        epochs=2, batch_size=30, embedding_dim=8, compress_dims=(16,), decompress_dims=(16,),
        n_members=2, random_state=0, device="cpu", precision="float64",
    )  # fmt: skip
    expected = model.fit(table).history_
    with compiled(device="cpu", backend="aot_eager"):
        found = model.fit(table).history_
    assert (count.compiled, count.ran) == (1, 2 * 2)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)


@pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch's compiler of CPU code needs g++ or clang++",
)
def test_compiled_kernels_draw_the_same_masks_and_give_the_same_numbers(
    count, tmp_path, monkeypatch
):
    from torch._inductor import config as inductor

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(inductor, "compile_threads", 1)  # each other would first import torch
    monkeypatch.setattr(inductor, "cpp_cache_precompile_headers", False)  # for a few kernels
    monkeypatch.setattr(inductor.cpp, "simdlen", 1)  # else it compiles programs to choose a width
    config = replace(CONFIG, max_epochs=1)
    members, plans = stack(activations=("combu", "pln-4", "la-silu"))
    shape = MLPSpec(5, (8,), 1)
    ordinary = train(config, members, plans, shape=shape)
    how = module.Compilation("cpu", "inductor")
    found = train(replace(config, compilation=how), members, plans, shape=shape)
    assert count.ran == 4
    assert_same(ordinary, found)


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
    step = loop.StackTraining._step

    def taped(self, inputs):
        with NoHost(), Tape() as tape:
            step(self, inputs)
        tapes.append(tape)

    monkeypatch.setattr(loop.StackTraining, "_step", taped)
    members, plans = stack((200, 256, 215))
    train(replace(CONFIG, max_grad_norm=1.0, track_metric=True), members, plans)
    assert len(tapes) == 4 * 3
    assert tapes[1].names == tapes[2].names == tapes[5].names, "full batches run the same operators"


ON_GPU = module.Compilation("cuda", "inductor")


def on_gpu(part):
    return part.cuda().float() if part.is_floating_point() else part.cuda()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_ordinary_steps_on_a_gpu(case, count):
    activations, shape, ways, data = CASES[case]
    config = replace(CONFIG, **ways, precision=Precision("float32"))
    members, plans = stack(activations=activations, weight_decay=0.1)
    data = data.each(on_gpu)
    ordinary = train(config, members, plans, data, shape, "cuda")
    found = train(replace(config, compilation=ON_GPU), members, plans, data, shape, "cuda")
    assert count.ran == 3 * 256 // config.batch_size
    for a, b in zip(ordinary, found, strict=True):
        np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=1e-4)
