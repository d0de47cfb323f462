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

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
from benchmarks.speed.fit import IndexedCombU
from combutab.activations import ACTIVATIONS
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)

DEPTH, RATE, DROPOUT = 6, 5e-4, 0.1
ALIASES = {"swish", "sigmoid", "pln", "pls"}  # in ACTIVATIONS under another name as well
PROXY = "layer norm + proxy norm, "
FLOORS = ("floor", "products by torch", "products by onednn", "products, each layer's own")
GROUPED = {"pln-8": 1.8, "pls-8": 1.8, "la-silu": 1.8, "la-hardsilu": 1.8}
NORMED = {f"{PROXY}relu": 2.1, f"{PROXY}combu": 2.1}
# in units of the floor, by whether units drop out; ReLU's is plain torch's ReLU
TARGETS = {
    True: {"combu": 1.5} | GROUPED | NORMED,
    False: {"combu": 1.3} | GROUPED | NORMED,
}


@dataclass(frozen=True)
class Size:
    """The shapes of a step, and how many of them make an epoch."""

    width: int = 256
    batch: int = 500
    steps: int = 16


Runs = Callable[[], None]  # ``size.steps`` steps


LIBRARIES = ("torch", "onednn")


def _one_dnn(x: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, None, "none", [], "")


def products_alone(size: Size) -> dict[str, dict[str, Runs]]:
    """The three products of a layer, by each library, in memory that exists."""
    x, weight = torch.ones(size.batch, size.width), torch.ones(size.width, size.width)
    out, of_weight = torch.empty_like(x), torch.empty_like(weight)
    kinds: dict[str, dict[str, Runs]] = {
        "forward": {"torch": lambda: torch.mm(x, weight, out=out)},
        "input": {"torch": lambda: torch.mm(x, weight.t(), out=out)},
        "weight": {"torch": lambda: torch.mm(x.t(), x, out=of_weight)},
    }
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        kinds["forward"]["onednn"] = lambda: _one_dnn(x, weight.t())
        kinds["input"]["onednn"] = lambda: _one_dnn(x, weight)
        kinds["weight"]["onednn"] = lambda: _one_dnn(x.t(), x.t())

    def repeated(product: Runs) -> Runs:
        def run() -> None:
            for _ in range(size.steps * DEPTH):
                product()

        return run

    return {
        kind: {library: repeated(product) for library, product in by.items()}
        for kind, by in kinds.items()
    }


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


def _data(size: Size) -> tuple[Tensor, Tensor]:
    rows = size.batch * size.steps
    X = torch.randn(rows, size.width, generator=torch.Generator().manual_seed(0))
    return X, X.sin()


def plain_torch(size: Size, activation: Callable[[int], nn.Module], dropout: float) -> Runs:
    """The usual loop: modules, autograd, Adam."""
    X, y = _data(size)
    layers: list[nn.Module] = []
    for _ in range(DEPTH - 1):
        layers += [nn.Linear(size.width, size.width), activation(size.width)]
        if dropout:
            layers.append(nn.Dropout(dropout))
    net = nn.Sequential(*layers, nn.Linear(size.width, size.width))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)

    def run() -> None:
        order = torch.randperm(len(X))
        for start in range(0, len(X), size.batch):
            rows = order[start : start + size.batch]
            optimizer.zero_grad()
            nn.functional.mse_loss(net(X[rows]), y[rows]).backward()
            optimizer.step()

    return run


def ours(size: Size, name: str, dropout: float) -> Runs:
    """One member in the library's own loop."""
    X, y = _data(size)
    shape = MLPSpec(size.width, (size.width,) * (DEPTH - 1), size.width)
    if name.startswith(PROXY):
        shape = MLPSpec(
            shape.n_dense, shape.hidden, shape.n_outputs, normalization="layer", proxy_norm=True
        )
    net = StackedMLP(shape, [Member(0, name.removeprefix(PROXY), dropout)])
    plans = [MemberPlan(0, torch.arange(len(X)), RATE)]
    config = TrainConfig(
        loss=make_regression_loss("squared_error", ()),
        optimizer=OptimizerConfig(),
        batch_size=size.batch,
        max_epochs=1,
        n_iter_no_change=np.inf,
    )

    def run() -> None:
        train_stack(net, Rows(X, y), plans, config)

    return run


def contenders(dropout: float) -> dict[str, Callable[[Size], Runs]]:
    """What makes each, by name."""
    first = ["relu", *TARGETS[True]]
    names = [*first, *(n for n in ACTIVATIONS if n not in {*first, *ALIASES})]
    return {
        "torch relu": lambda size: plain_torch(size, lambda width: nn.ReLU(), dropout),
        "torch combu, paper's loop": lambda size: plain_torch(size, IndexedCombU, dropout),
        **{name: partial(ours, name=name, dropout=dropout) for name in names},
    }


def _timed(run: Runs, size: Size) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) / size.steps * 1000


def milliseconds(size: Size, turns: int) -> dict[str, list[float]]:
    """Milliseconds of a step, a list over turns; all contenders take part in every turn.

    The floor takes each product by the library that is quickest for it in that turn.
    """
    products, of_layers = products_alone(size), products_of_layers(size)
    runs = {}
    for dropout in (DROPOUT, 0.0):
        for name, make in contenders(dropout).items():
            runs[f"{name}|{dropout}"] = make(size)
    taken: dict[str, list[float]] = {name: [] for name in (*FLOORS, *runs)}
    for turn in range(turns + 1):
        by_kind = {
            kind: {library: _timed(run, size) for library, run in by.items()}
            for kind, by in products.items()
        }
        found = {"floor": sum(min(by.values()) for by in by_kind.values())}
        for library in LIBRARIES:
            times = [by.get(library, np.nan) for by in by_kind.values()]
            found[f"products by {library}"] = sum(times)
        found[FLOORS[-1]] = _timed(of_layers, size)
        found |= {name: _timed(run, size) for name, run in runs.items()}
        for name, value in found.items() if turn else ():  # the first warms up
            taken[name].append(value)
    return taken


def peak_megabytes(make: Callable[[Size], Runs], size: Size) -> float:
    """Most bytes that live at once from the network's making to its third step of Adam.

    Counted by the profiler of torch's allocator; data, parameters and Adam's two moments, which
    are there between steps as well, are taken off.
    """
    size = Size(size.width, size.batch, 3)
    n_parameters = DEPTH * (size.width + 1) * size.width
    data = sum(x.nbytes for x in _data(size))
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
    taken = milliseconds(size, turns)
    floor = np.array(taken["floor"])
    rows = []
    for name in FLOORS:
        values = np.array(taken.pop(name))
        row = {"contender": name, "milliseconds": np.median(values)}
        rows.append(row | {"ratio": np.median(values / floor)})
    for name, values in taken.items():
        contender, dropout = name.split("|")
        ratios = np.array(values) / floor
        make = contenders(float(dropout))[contender]
        target = TARGETS[float(dropout) > 0].get(contender, np.nan)
        if contender == "relu":
            target = np.median(np.array(taken[f"torch relu|{dropout}"]) / floor)
        rows.append(
            {
                "contender": contender,
                "dropout": float(dropout),
                "milliseconds": statistics.median(values),
                "ratio": np.median(ratios),
                "first_quartile": np.quantile(ratios, 0.25),
                "third_quartile": np.quantile(ratios, 0.75),
                "target": target,
                "peak_mb": peak_megabytes(make, size),
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny shapes, once")
    parser.add_argument("--threads", type=int, help="torch threads; default: as they are")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--profile", metavar="NAME", help="print the ops of this activation's step")
    parser.add_argument("--out", type=Path, help="folder for speed_step.csv and speed_step.md")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print(describe_machine())
    if arguments.profile:
        print_profile(arguments.profile)
        return
    size = Size(16, 20, 2) if arguments.quick else Size()
    table = report(size, 1 if arguments.quick else arguments.turns)
    text = table.round(2).to_string(index=False, na_rep="")
    print(f"\nA step in units of its matrix products, and its peak memory:\n{text}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "speed_step.csv", index=False)
        about = (
            f"{DEPTH} linear layers of {size.width}, batch {size.batch}; one step: median "
            f"milliseconds, the median of its ratio to the floor with quartiles, MiB at the peak"
        )
        page = f"# speed_step\n\n{describe_machine()}\n\n{about}.\n\n```\n{text}\n```\n"
        write_text(arguments.out / "speed_step.md", page)


if __name__ == "__main__":
    main()
