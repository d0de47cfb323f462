"""How much of the GPU does training use? A step's TFLOP/s beside those of its products alone.

A step is all that a fit does for a batch: rows gathered, dropout masks drawn, forward and
backward pass, Adam. Epochs are timed between callbacks, so that shuffles and the one
synchronisation of an epoch are in it too, and divided by their steps.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.speed.common import Clock
from benchmarks.speed.gpu_parts.timing import Line, median_phases, tf32
from combutab import MLPRegressor, paper_recipe

TARGET, SINGLE_TARGET = 0.5, 150e-6  # of the products' rate; seconds of one network's step
WIDTH, LAYERS = 256, 6  # linear layers of WIDTH x WIDTH, and one to a single output
TOLERANCES = {"float32": 1e-3, "tf32": 2e-2, "bf16": 5e-2}


@dataclass(frozen=True)
class Case:
    """One way to train a stack."""

    members: int
    products: str  # "float32", "tf32" or "bf16"
    dropout: float
    width: int = WIDTH
    batch: int = 500
    steps: int = 20  # in an epoch
    epochs: int = 7

    @property
    def way(self) -> str:
        """In words."""
        return f"{self.products}, dropout {self.dropout:g}"

    @property
    def flops(self) -> float:
        """Of the matrix products of one step; the first layer's input needs no gradient."""
        square = 2 * self.batch * self.width**2 * (3 * LAYERS - 1)
        return self.members * (square + 3 * 2 * self.batch * self.width)


def train(case: Case, device: torch.device) -> tuple[float, np.ndarray]:
    """Median seconds of a step, without the first two epochs, and losses."""
    n_rows, clock = case.batch * case.steps, Clock(device)
    X = np.random.default_rng(0).standard_normal((n_rows, case.width), dtype=np.float32)
    settings = paper_recipe(
        "regression", hidden_layer_sizes=(case.width,) * LAYERS, activation="combu",
        dropout=case.dropout, n_members=case.members, batch_size=case.batch, max_iter=case.epochs,
        n_iter_no_change=math.inf, device=device, random_state=0, callbacks=[clock],
        precision="bf16-mixed" if case.products == "bf16" else "float32",
    )  # fmt: skip
    model = MLPRegressor(**settings)
    with tf32(case.products == "tf32"):
        model.fit(X, X[:, 0] * X[:, 1])
    epochs = np.diff(clock.moments)[min(2, case.epochs - 1) :]
    curve = np.array(model.loss_curve_)
    del model
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return statistics.median(epochs) / case.steps, curve


def differs(case: Case, device: torch.device, n_members: int = 2) -> float:
    """How far the losses of four epochs are from those of float32 steps on the CPU."""
    small = replace(case, members=n_members, steps=4, epochs=4)
    plain = replace(small, products="float32")
    found, expected = train(small, device)[1], train(plain, torch.device("cpu"))[1]
    gap = np.abs(found - expected).max() / np.abs(expected).max()
    return float(gap) if np.isfinite(found).all() else math.inf


def products(case: Case, device: torch.device, repeats: int) -> float:
    """FLOP/s of a layer's three products, each one ``torch.bmm``."""
    dtype = torch.bfloat16 if case.products == "bf16" else torch.float32

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(case.members, *shape, device=device, dtype=dtype)

    x, w = draw(case.batch, case.width), draw(case.width, case.width)
    y, below, into = torch.empty_like(x), torch.empty_like(x), torch.empty_like(w)

    def run(mark: Any) -> None:
        torch.bmm(x, w, out=y)
        torch.bmm(y, w.transpose(1, 2), out=below)
        torch.bmm(x.transpose(1, 2), y, out=into)
        mark()

    with tf32(case.products == "tf32"):
        seconds = median_phases({"bmm": run}, device, repeats)["bmm"][0]
    return 3 * 2 * case.members * case.batch * case.width**2 / seconds


def cases(quick: bool) -> tuple[list[Case], list[Case]]:
    """Stacks of many networks, and single ones."""
    sizes: dict[str, Any] = {"width": 16, "batch": 20, "steps": 2, "epochs": 2} if quick else {}
    many, one = [], []
    for kind in ("tf32", "bf16"):
        for dropout in (0.0, 0.1):
            many.append(Case(3 if quick else 256, kind, dropout, **sizes))
            one.append(replace(many[-1], members=1, steps=2 if quick else 100))
    return (many[:2], one[:2]) if quick else (many, one)


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """Lines of both."""
    many, one = cases(quick)
    peaks: dict[str, float] = {}
    for case in many:
        if case.products not in peaks:
            peaks[case.products] = products(case, device, 3 if quick else 30)
            yield Line(
                "stack", f"bmm of {case.members} networks, {case.batch} x {case.width}",
                case.products, peaks[case.products] / 1e12, "TFLOP/s",
            )  # fmt: skip
        wrong = differs(case, device)
        seconds, _ = train(case, device)
        rate = case.flops / seconds
        yield Line(
            "stack", f"step of {case.members} networks, {LAYERS} x {case.width}", case.way,
            rate / 1e12, "TFLOP/s", share=rate / peaks[case.products], target=TARGET,
            difference=wrong, tolerance=TOLERANCES[case.products],
            note=f"{seconds * 1e3:.2f} ms a step",
        ).judged()  # fmt: skip
    for case in one:
        wrong = differs(case, device, n_members=1)
        seconds, _ = train(case, device)
        yield Line(
            "stack", f"step of one network, {LAYERS} x {case.width}", case.way, seconds * 1e6, "us",
            share=SINGLE_TARGET / seconds, target=1.0, difference=wrong,
            tolerance=TOLERANCES[case.products], note="share: 150 us / these",
        ).judged()  # fmt: skip
