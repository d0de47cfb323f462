"""An epoch's steps never wait for the device."""

import math
from dataclasses import replace

import pytest
import torch

from combutab.nn import Member, MLPSpec, TabMSpec
from combutab.training import (
    CrossEntropy,
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)
from combutab.training import _trainer as loop
from tests.tapes import NoHost, Tape, tape_calls


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


BATCH, SPEC = 64, MLPSpec(5, (16,), 2, (4, 4))
COSINE = {"learning_rate": "cosine", "regularization_schedule": "cosine"}
CASES = {
    "plain": {},
    "L2": {"alphas": (0.1, 0.1, 0.1)},
    "a penalty each": {"alphas": (0.1, 0.0, 0.01), "max_grad_norm": 1.0},
    "AdamW with schedules": {"optimizer": OptimizerConfig("adamw"), "decay": 0.1, **COSINE},
    "SGD with schedules": {"optimizer": OptimizerConfig("sgd"), **COSINE},
    "a rate for each role": {"rate_factors": (("bias", 0.5),), "learning_rate": "cosine"},
    "weights": {"is_weighted": True, "alphas": (0.1, 0.1, 0.1)},
    "classes": {"loss": CrossEntropy(label_smoothing=0.1), "is_weighted": True},
    "lengths": {"lengths": (256, 190, 64), "alphas": (0.1, 0.1, 0.0)},
    "lengths of SGD": {"lengths": (200, 256, 215), "optimizer": OptimizerConfig("sgd"), **COSINE},
    "lengths of AdamW": {
        "lengths": (200, 256, 100), "optimizer": OptimizerConfig("adamw"), "decay": 0.1, **COSINE
    },
    "heads": {"spec": TabMSpec(5, (16,), 2, (4, 4), n_heads=4)},
    "layer norm": {"spec": replace(SPEC, normalization="layer")},
    "batch norm": {"spec": replace(SPEC, normalization="batch"), "lengths": (256, 190, 64)},
}  # fmt: skip


def train(spec=SPEC, alphas=(0.0,) * 3, decay=0.0, lengths=(256,) * 3, device="cpu", **settings):
    """Three epochs of three members."""
    is_weighted = settings.pop("is_weighted", False)
    config = {
        "loss": make_regression_loss("squared_error", ()),
        "optimizer": OptimizerConfig(),
        "batch_size": BATCH,
        "max_epochs": 3,
        "n_iter_no_change": math.inf,
        "track_metric": True,
        **settings,
    }
    rates = {"relu": 0.1, "combu": 0.2, "pln-4": 0.0}
    members = [Member(i, name, rate) for i, (name, rate) in enumerate(rates.items())]
    plans = [
        MemberPlan(i, torch.arange(n), 1e-3 * (1 + i % 2), alpha, decay)
        for i, (n, alpha) in enumerate(zip(lengths, alphas, strict=True))
    ]
    generator = torch.Generator().manual_seed(0)
    x, codes = torch.randn(256, 5, generator=generator), torch.arange(512).view(256, 2) % 4
    is_class = isinstance(config["loss"], CrossEntropy)
    y = (x[:, 0] > 0).long() if is_class else x[:, :1] * x[:, 1:2]
    weight = torch.rand(256, generator=generator) if is_weighted else None
    rows = Rows(x, y, codes, weight).each(lambda tensor: tensor.to(device))
    train_stack(spec.build(members, device=device), rows, plans, TrainConfig(**config))


@pytest.mark.parametrize("case", CASES)
def test_steps_differ_in_their_tensors_only(case, monkeypatch):
    """Neither rates, decays, masks nor padding change what a step asks of the device."""
    calls = tape_calls(monkeypatch, loop.TrainingStep, "gather", "__call__")
    train(**CASES[case])
    steps = [gather + step for gather, step in zip(*[iter(calls)] * 2, strict=True)]
    lengths, n_steps = CASES[case].get("lengths", (256,)), 4
    assert len(steps) == 3 * n_steps
    alike = {}
    for i, step in enumerate(steps[n_steps:]):  # in the first epoch memory is allocated
        start = i % n_steps * BATCH
        members = tuple(n > start for n in lengths)
        is_full = min(lengths) >= start + BATCH
        assert step == alike.setdefault((members, is_full), step)
    assert len(alike) < n_steps


@pytest.mark.parametrize("case", CASES)
def test_steps_run_on_a_device_without_numbers(case, monkeypatch):
    """Only the end of an epoch reads any: the passes of a GPU need none."""
    monkeypatch.setattr(torch, "_fused_adam_", lambda *arguments, **options: None)  # has no such
    calls = tape_calls(monkeypatch, loop.TrainingStep, "gather", "__call__")
    with pytest.raises(NotImplementedError, match="meta"):
        train(**CASES[case], device="meta", shuffle=False)
    assert len(calls) == 2 * 4
