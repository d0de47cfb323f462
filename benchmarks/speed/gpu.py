"""How much of a GPU does a training step use?

A step includes gathering the rows, dropout masks, forward and backward pass, and Adam. The time of
an epoch is divided by its steps, so it includes the shuffle and one synchronisation. The stored
rows are from before the gradients of a stack's weights became one batched product on a GPU. `pytest
-m gpu` compares the results of a GPU with those of a CPU.

    python -m benchmarks.speed.gpu [--out benchmarks/speed/results]
    python -m benchmarks.speed.gpu --device cpu --quick       # the same code, tiny, on a CPU

Without a GPU the command ends with status 2.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.benchmark import Timer

from benchmarks.speed import peers
from benchmarks.speed.common import Clock, begin, block, write
from combutab import MLPRegressor

LAYERS = 6  # of a stack, and one to a single output
COLUMNS = ["what", "way", "value", "unit", "share", "target"]  # share: of a reference
Line = tuple[Any, ...]


def seconds(run: Callable[[], object], quick: bool) -> float:
    """Median seconds of a call, once all queued work is done."""
    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    return (timer.timeit(2) if quick else timer.blocked_autorange(min_run_time=0.5)).median


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


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """TFLOP/s of a step, compared with its matrix products; microseconds for one network of it."""
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
    for members in (1, 2) if quick else (1, 16, 256, 2048):
        taken = train(device, "float32", members, 64, 100, n_steps, epochs) / members
        yield f"{members} networks, {LAYERS} x 64, batch 100", "float32", 1e6 * taken, "us"


def main() -> None:
    arguments = begin(__doc__, device="cuda")
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --quick runs the code on a CPU")
        sys.exit(2)
    table = pd.DataFrame(measure(device, arguments.quick), columns=COLUMNS)
    page = block(table, str(measure.__doc__), index=False)
    write(arguments, "speed_gpu", table, page, index=False)


if __name__ == "__main__":
    main()
