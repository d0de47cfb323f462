"""What does a training step cost, in units of its matrix products, and how much memory?

The floor is three products for each of 6 linear layers of 256 and a batch of 500 (forward,
gradient of the input, gradient of the weight), each by the faster of torch.mm and oneDNN, again
and again on the same operands; what they take on each layer's own, which no step can go below,
stands beside it. Ours is
a step as ``fit`` takes it: batch gathered, masks drawn, forward, loss, backward, Adam, by
``train_stack`` over an epoch. Plain torch does the same with autograd and fused Adam. All take
turns in one process, on the same threads.

    python -m benchmarks.speed.step [--quick] [--threads 1] [--out benchmarks/speed/results]
    python -m benchmarks.speed.step --profile combu    # the ten ops that take longest
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed import peers
from benchmarks.speed.common import THREADS, begin, block, in_turns, wall, write
from combutab.activations import ACTIVATIONS
from combutab.nn import Member, MLPSpec

DEPTH, DROPOUT = 6, 0.1
ALIASES = {"swish", "sigmoid", "pln", "pls"}  # in ACTIVATIONS under another name as well
PROXY = "layer norm + proxy norm, "
LAYERS = "products, each layer's own"
# in units of the floor, with and without dropout; ReLU's is plain torch's ReLU
TARGETS = dict.fromkeys(["pln-8", "pls-8", "la-silu", "la-hardsilu"], (1.8, 1.8))
TARGETS = {"combu": (1.5, 1.3), **TARGETS, f"{PROXY}relu": (2.1, 2.1), f"{PROXY}combu": (2.1, 2.1)}


@dataclass(frozen=True)
class Size:
    """The shapes of a step, and how many of them make an epoch."""

    width: int = 256
    batch: int = 500
    steps: int = 16

    def rows(self) -> tuple[Tensor, Tensor]:
        """Those of an epoch."""
        generator = torch.Generator().manual_seed(0)
        X = torch.randn(self.batch * self.steps, self.width, generator=generator)
        return X, X.sin()


Runs = Callable[[], object]  # ``size.steps`` steps


def _one_dnn(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, None, "none", [], "")


def products_alone(size: Size) -> dict[tuple[str, str], Callable[[], object]]:
    """The three products of a layer, by each library, in memory that exists."""
    x, weight = torch.ones(size.batch, size.width), torch.ones(size.width, size.width)
    out, of_weight = torch.empty_like(x), torch.empty_like(weight)
    products: dict[tuple[str, str], Callable[[], object]] = {
        ("forward", "torch"): lambda: torch.mm(x, weight, out=out),
        ("input", "torch"): lambda: torch.mm(x, weight.t(), out=out),
        ("weight", "torch"): lambda: torch.mm(x.t(), x, out=of_weight),
    }
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        products["forward", "onednn"] = lambda: _one_dnn(x, weight.t())
        products["input", "onednn"] = lambda: _one_dnn(x, weight)
        products["weight", "onednn"] = lambda: _one_dnn(x.t(), x.t())
    return products


def products_of_layers(size: Size) -> Runs:
    """The products of a step by torch.mm, on the matrices of six layers, as a step has them."""
    rows, weights = (size.batch, size.width), (size.width, size.width)
    inputs, outputs, grads = ([torch.ones(rows) for _ in range(DEPTH)] for _ in range(3))
    layers, of_weights = ([torch.ones(weights) for _ in range(DEPTH)] for _ in range(2))

    def run() -> None:
        for _ in range(size.steps):
            for x, weight, out in zip(inputs, layers, outputs, strict=True):
                torch.mm(x, weight, out=out)
            for i in reversed(range(DEPTH)):
                torch.mm(inputs[i].t(), grads[i], out=of_weights[i])
                torch.mm(grads[i], layers[i].t(), out=grads[i - 1])
            grads[-1].fill_(1)  # else they grow

    return run


def plain_torch(size: Size, activation: Callable[[int], nn.Module], dropout: float) -> Runs:
    """The usual loop: modules, autograd, Adam."""
    hidden = (size.width,) * (DEPTH - 1)
    net = peers.plain_network(size.width, hidden, size.width, activation, dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=peers.RATE, fused=True)
    return partial(peers.plain_epoch, net, optimizer, *size.rows(), size.batch)


def ours(size: Size, name: str, dropout: float) -> Runs:
    """One member in the library's own loop."""
    spec = MLPSpec(size.width, (size.width,) * (DEPTH - 1), size.width)
    if name.startswith(PROXY):
        spec = replace(spec, normalization="layer", proxy_norm=True)
    member = Member(0, name.removeprefix(PROXY), dropout)
    return peers.stack_run(spec, [member], *size.rows(), size.batch, 1)


def contenders(dropout: float) -> dict[str, Callable[[Size], Runs]]:
    """What makes each, by name."""
    first = ["relu", *TARGETS]
    names = [*first, *(n for n in ACTIVATIONS if n not in {*first, *ALIASES})]
    return {
        "torch relu": lambda size: plain_torch(size, peers.relu, dropout),
        "torch combu, paper's loop": lambda size: plain_torch(size, peers.IndexedCombU, dropout),
        **{name: partial(ours, name=name, dropout=dropout) for name in names},
    }


def milliseconds(size: Size, turns: int) -> tuple[dict[str, np.ndarray], dict[Any, np.ndarray]]:
    """Milliseconds of a step, over turns: of the floors, and by contender and dropout.

    The floor takes each product by the library that is quickest for it in that turn.
    """
    products = products_alone(size)
    runs = {
        (name, dropout): make(size)
        for dropout in (DROPOUT, 0.0)
        for name, make in contenders(dropout).items()
    }
    timers = {key: partial(wall, run, size.steps * DEPTH) for key, run in products.items()}
    steps = {LAYERS: products_of_layers(size)} | runs
    found = in_turns(timers | {name: partial(wall, run) for name, run in steps.items()}, turns)
    taken = {
        name: 1000 * np.array(seconds) * (DEPTH if name in products else 1 / size.steps)
        for name, seconds in found.items()
    }
    kinds = dict.fromkeys(kind for kind, _ in products)
    fastest = [np.min([taken[key] for key in products if key[0] == kind], 0) for kind in kinds]
    floors = {"floor": np.sum(fastest, 0)}
    for library in ("torch", "onednn"):
        each = [taken.get((kind, library), np.full(turns, np.nan)) for kind in kinds]
        floors[f"products by {library}"] = np.sum(each, 0)
    floors[LAYERS] = taken[LAYERS]
    return floors, {name: taken[name] for name in runs}


def peak_megabytes(make: Callable[[Size], Runs], size: Size) -> float:
    """Most bytes that live at once from the network's making to its third step of Adam.

    Counted by the profiler of torch's allocator; data, parameters and Adam's two moments, which
    are there between steps as well, are taken off.
    """
    size = replace(size, steps=3)
    n_parameters = DEPTH * (size.width + 1) * size.width
    data = sum(x.nbytes for x in size.rows())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        make(size)()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    end = max(e["ts"] for e in events if e["name"] == "aten::_fused_adam_")
    memory = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    live = np.cumsum([n for ts, n in memory if ts < end])
    return float(live.max() - data - 3 * 4 * n_parameters) / 2**20


def report(size: Size, turns: int) -> pd.DataFrame:
    """Ratios to the floor of the same turn, their quartiles, targets, and peak memory."""
    floors, taken = milliseconds(size, turns)
    rows: list[dict[str, object]] = []
    for name, values in floors.items():
        row = {"contender": name, "milliseconds": np.median(values)}
        rows.append(row | {"ratio": np.median(values / floors["floor"])})
    for (name, dropout), values in taken.items():
        ratios = values / floors["floor"]
        target = TARGETS.get(name, (np.nan, np.nan))[dropout == 0]
        if name == "relu":
            target = np.median(taken["torch relu", dropout] / floors["floor"])
        rows.append(
            {
                "contender": name,
                "dropout": dropout,
                "milliseconds": np.median(values),
                "ratio": np.median(ratios),
                "first_quartile": np.quantile(ratios, 0.25),
                "third_quartile": np.quantile(ratios, 0.75),
                "target": target,
                "peak_mb": peak_megabytes(contenders(dropout)[name], size),
            }
        )
    return pd.DataFrame(rows)


def print_profile(name: str) -> None:
    """The ten ops that take longest in steps with dropout."""
    run = ours(Size(), name, DROPOUT)
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    averages = profiler.key_averages()
    print(f"{Size().steps} steps of {name}, dropout {DROPOUT}:")
    print(averages.table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40))


def main() -> None:
    op_times = {"metavar": "NAME", "help": "print the ops of this activation's step"}
    arguments = begin(__doc__, "tiny shapes, once", threads=THREADS, turns=9, profile=op_times)
    if arguments.profile:
        print_profile(arguments.profile)
        return
    size = Size(16, 20, 2) if arguments.quick else Size()
    table = report(size, arguments.turns)
    about = (
        f"{DEPTH} linear layers of {size.width}, batch {size.batch}; one step: median "
        "milliseconds, the median of its ratio to the floor with quartiles, MiB at the peak.\n"
    )
    page = block(table.round(2), index=False, na_rep="")
    write(arguments.out, "speed_step", table, about, page, index=False)


if __name__ == "__main__":
    main()
