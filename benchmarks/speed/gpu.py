"""How much of a GPU do activations, a stack's step, a search and the generators use?

Sizes are chosen for less than ten minutes in all on an H200. That a GPU's numbers are a CPU's is
for `pytest -m gpu` to check.

    python -m benchmarks.speed.gpu [--parts activations steps] [--out benchmarks/speed/results]
    python -m benchmarks.speed.gpu --device cpu --quick       # the same code, tiny, on a CPU

Without a GPU it says so and ends with status 2.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.utils.benchmark import Timer

from benchmarks.speed import peers
from benchmarks.speed.common import Clock, block, run_parts, wall, write
from benchmarks.speed.generators import PACKAGES, fit, make_table
from benchmarks.speed.search import SEARCHES, search
from combutab import MLPRegressor
from combutab.activations import ProxyNorm, make_activation

LAYERS = 6  # of a stack, and one to a single output
MODULES: dict[str, Callable[[int], nn.Module]] = {"ProxyNorm(combu)": partial(ProxyNorm, "combu")}
MODULES |= {name: partial(make_activation, name) for name in ("combu", "pln-8", "la-silu")}
COLUMNS = ["what", "way", "value", "unit", "share", "target"]  # share: of a reference
Line = tuple[Any, ...]


def seconds(run: Callable[[], object], quick: bool) -> float:
    """Median seconds of a call, once all queued work is done."""
    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    return (timer.timeit(2) if quick else timer.blocked_autorange(min_run_time=0.5)).median


def activations(device: torch.device, quick: bool) -> Iterator[Line]:
    """Gigabytes a second beside a copy's, of the tensors that must move.

    Forward these are two, and with the backward pass five: the gradient and one tensor that was
    kept are read, a gradient is written. What else a way moves counts as its waste.
    """
    shape, backend = ((64, 32), "eager") if quick else ((65_536, 1024), "inductor")
    for dtype in (torch.float32, torch.bfloat16):
        x, grad = torch.randn(2, *shape, device=device).to(dtype)
        peak = 2 * x.nbytes / seconds(partial(torch.empty_like(x).copy_, x), quick)
        yield f"copy, {dtype}", "torch", peak / 1e9, "GB/s"
        x.requires_grad_()
        for name, make in MODULES.items():
            torch._dynamo.reset()
            module = make(shape[1]).to(device)
            ways = {"plain": module, "torch.compile": torch.compile(module, backend=backend)}
            for way, own in ways.items():
                inputs = [x, *own.parameters()]
                both = seconds(lambda: torch.autograd.grad(own(x), inputs, grad), quick)  # noqa: B023
                forward = seconds(partial(own, x), quick)
                for passes, tensors, taken in (("forward", 2, forward), ("both passes", 5, both)):
                    rate = tensors * x.nbytes / taken
                    yield f"{name}, {dtype}, {passes}", way, rate / 1e9, "GB/s", rate / peak, 0.7


def train(device: torch.device, precision: str, members: int, *size: int) -> float:
    """Median seconds of a step of a stack, without the first two epochs."""
    width, batch, steps, epochs = size
    clock = Clock(device)
    X = np.random.default_rng(0).standard_normal((batch * steps, width), dtype=np.float32)
    own = {"activation": "combu", "dropout": 0.1, "n_members": members, "batch_size": batch}
    own |= {"device": str(device), "precision": precision, "callbacks": [clock]}
    net = MLPRegressor(**peers.fixed_epochs("regression", (width,) * LAYERS, epochs, **own))
    net.fit(X, X[:, 0] * X[:, 1])
    return statistics.median(np.diff(clock.moments)[2:]) / steps


def steps(device: torch.device, quick: bool) -> Iterator[Line]:
    """A step's TFLOP/s beside those of its products by ``torch.bmm``; microseconds of one network.

    A step is all that a fit does for a batch: rows gathered, dropout masks drawn, forward and
    backward pass, Adam. Epochs are divided by their steps, so that shuffles and the one
    synchronisation of an epoch are in it too.
    """
    members, width, batch, n_steps, epochs = (3, 16, 20, 2, 3) if quick else (256, 256, 500, 20, 7)
    layer = 2 * batch * width**2  # operations of a product
    flops = members * ((3 * LAYERS - 1) * layer + 6 * batch * width)  # the input needs no gradient
    shape = f"{LAYERS} x {width}, batch {batch}"
    for precision, dtype in {"float32": torch.float32, "bf16-mixed": torch.bfloat16}.items():
        x, w = (torch.randn(members, n, width, device=device, dtype=dtype) for n in (batch, width))
        bmm = [partial(torch.bmm, *pair) for pair in ((x, w), (x, w.mT), (x.mT, x))]
        peak = layer * members / statistics.mean(seconds(run, quick) for run in bmm)
        yield f"products, {members} networks, {shape}", precision, peak / 1e12, "TFLOP/s"
        rate = flops / train(device, precision, members, width, batch, n_steps, epochs)
        share = rate / peak
        yield f"{members} networks, {shape}", precision, rate / 1e12, "TFLOP/s", share, 0.5
        alone = 1e6 * train(device, precision, 1, width, batch, 5 * n_steps, epochs)
        yield f"one network, {shape}; share: of 150 us", precision, alone, "us", 150 / alone, 1.0


def searches(device: torch.device, quick: bool) -> Iterator[Line]:
    """A study's search: as stacks, and one fit after another (as many times 7 fits of a fold)."""
    epochs, n_rows, hidden, seeds = (2, 100, (8,), 1) if quick else (200, 5000, (256,) * 5, 5)
    X, y = make_classification(n_rows, 20, n_informative=10, random_state=0)

    def taken(name: str, epochs: int = epochs, **options: Any) -> float:
        how = {"hidden": hidden, "device": str(device), **options}
        found, *table = search(name, "classification", X.astype(np.float32), y, epochs, **how)
        return wall(partial(found.fit, *table))

    what = f"7 activations x 5 folds x {seeds} seeds, {epochs} epochs; share: over ours"
    taken(SEARCHES[1], 2)  # loads all libraries
    ours = taken(SEARCHES[1], seeds=seeds)
    yield what, SEARCHES[1], ours, "s", 1.0
    fold = [next(StratifiedKFold(5).split(X, y))]
    for name in SEARCHES[2::2]:
        if "skorch" not in name or find_spec("skorch"):
            total = 5 * seeds * taken(name, cv=fold)
            yield what, name, total, "s", total / ours, 30.0


def generators(device: torch.device, quick: bool) -> Iterator[Line]:
    """Epochs of CTGAN and TVAE beside the ctgan package's, the first two left out."""
    table = make_table(*(300, 4) if quick else (20_000, 10))
    for model, target in {"CTGAN": 15.0, "TVAE": 8.0}.items():
        what = f"{model}, an epoch of {len(table)} x {table.shape[1]}; share: over ours"
        taken: dict[str, float] = {}
        for package in filter(find_spec, PACKAGES):
            _, moments = fit(package, model, table, 8, device=str(device))
            taken[package] = statistics.median(np.diff(moments[1:])[2:])
            share = taken[package] / taken["combutab"]
            yield what, package, taken[package], "s", share, target if len(taken) > 1 else np.nan


def show(measure: Callable[[torch.device, bool], Iterator[Line]], arguments: Namespace) -> None:
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --quick runs the code on a CPU")
        sys.exit(2)
    table = pd.DataFrame(measure(device, arguments.quick), columns=COLUMNS)
    page = block(table.round(3), index=False)
    write(arguments.out, f"speed_gpu_{measure.__name__}", table, measure.__doc__, page, index=False)


def main() -> None:
    warnings.filterwarnings("ignore")
    measures = (activations, steps, searches, generators)
    parts = {measure.__name__: partial(show, measure) for measure in measures}
    run_parts(__doc__, "tiny shapes", parts, device="cuda")


if __name__ == "__main__":
    main()
