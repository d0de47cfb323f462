"""Seconds and memory of a training step, in multiples of its matrix products.

The floor is three products for each of 6 linear layers of 256 and a batch of 500 (forward,
gradient of the input, gradient of the weight), each by the faster of torch.mm and oneDNN, repeated
on the same operands. Our step is that of ``fit``, by ``train_stack`` over an epoch: it gathers the
batch, draws masks, and includes forward pass, loss, backward pass and Adam. Plain torch does the
same with autograd and fused Adam. All take turns in one process on the same threads.

In the table, "ratio" is to the floor, with its quartiles; "target" is the target value of the ratio
(for relu that of torch's ReLU); "peak_mb" is in MiB.

The second part measures how many members a stack should hold. The batch of a stack is members x
rows x width; on a CPU it should stay within the caches. The stack size in
``combutab.estimators._jobs`` is based on these milliseconds for each step and member.

    python -m benchmarks.speed.step [--quick] [--threads 1] [--out benchmarks/speed/results]
    python -m benchmarks.speed.step --parts stack --threads 1 [--out benchmarks/speed/results]
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed import peers
from benchmarks.speed.common import block, in_turns, run_parts, timed, wall, write
from combutab.activations import ACTIVATIONS
from combutab.nn import Member, MLPSpec
from combutab.training import Rows

DEPTH, DROPOUT = 6, 0.1
PROBLEMS = ((455, 30, (128, 128)), (500, 13, (256,) * 5), (500, 13, (32, 32)))
STACKS = (1, 2, 4, 8, 16, 32, 64)  # members
ALIASES = {"swish", "sigmoid", "pln", "pls"}  # in ACTIVATIONS under another name as well
PROXY = "layer norm + proxy norm, "
# in units of the floor, with and without dropout; ReLU's is plain torch's ReLU
TARGETS = dict.fromkeys(["pln-8", "pls-8", "la-silu", "la-hardsilu"], (1.8, 1.8))
TARGETS = {"combu": (1.5, 1.3), **TARGETS, f"{PROXY}relu": (2.1, 2.1), f"{PROXY}combu": (2.1, 2.1)}


@dataclass(frozen=True)
class Size:
    """The shapes of a step, and how many of them make an epoch."""

    width: int = 256
    batch: int = 500
    steps: int = 16

    def rows(self) -> Rows:
        """Those of an epoch."""
        generator = torch.Generator().manual_seed(0)
        X = torch.randn(self.batch * self.steps, self.width, generator=generator)
        return Rows(X, X.sin())


Runs = Callable[[], object]  # ``size.steps`` steps


def products_alone(size: Size) -> dict[tuple[str, str], Runs]:
    """The three products of a layer and step, by each library, in memory that exists."""
    x, grad, out = (torch.ones(size.batch, size.width) for _ in range(3))
    weight, of_weight = (torch.ones(size.width, size.width) for _ in range(2))
    operands = {"forward": (x, weight), "input": (grad, weight.t()), "weight": (x.t(), grad)}
    places = {"forward": out, "input": out, "weight": of_weight}
    products = dict[tuple[str, str], Runs]()
    for kind, (left, right) in operands.items():
        products[kind, "torch"] = partial(torch.mm, left, right, out=places[kind])
        if torch.backends.mkldnn.is_available():
            one_dnn = torch.ops.mkldnn._linear_pointwise.default
            products[kind, "onednn"] = partial(one_dnn, left, right.t(), None, "none", [], "")
    return products


def plain_torch(size: Size, activation: Callable[[int], nn.Module], dropout: float) -> Runs:
    """The usual loop: modules, autograd, Adam."""
    hidden = (size.width,) * (DEPTH - 1)
    net = peers.plain_network(size.width, hidden, size.width, activation, dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=peers.RATE, fused=True)
    rows = size.rows()
    return partial(peers.plain_epoch, net, optimizer, rows.dense, rows.y, size.batch)


def ours(size: Size, name: str, dropout: float) -> Runs:
    """One member in the library's own loop."""
    spec = MLPSpec(size.width, (size.width,) * (DEPTH - 1), size.width)
    if name.startswith(PROXY):
        spec = replace(spec, normalization="layer", proxy_norm=True)
    member = Member(0, name.removeprefix(PROXY), dropout)
    return peers.stack_run(spec, [member], size.rows(), size.batch, 1)


def contenders() -> dict[tuple[str, float], Callable[[Size], Runs]]:
    """What makes each, by name and dropout."""
    names = dict.fromkeys(["relu", *TARGETS, *(n for n in ACTIVATIONS if n not in ALIASES)])
    theirs = {"torch relu": peers.relu, "torch combu, paper's loop": peers.IndexedCombU}
    makers = {name: partial(plain_torch, activation=make) for name, make in theirs.items()}
    makers |= {name: partial(ours, name=name) for name in names}
    return {(n, d): partial(make, dropout=d) for d in (DROPOUT, 0.0) for n, make in makers.items()}


def peak_megabytes(make: Callable[[Size], Runs] | None, size: Size) -> float:
    """Most bytes that live at once from the network's making to its third step of Adam.

    Counted by the profiler of torch's allocator; data, parameters and Adam's two moments, which
    are there between steps as well, are taken off.
    """
    if make is None:
        return np.nan
    size = replace(size, steps=3)
    n_parameters = DEPTH * (size.width + 1) * size.width
    held = size.rows().dense.nbytes + size.rows().y.nbytes + 3 * 4 * n_parameters
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        make(size)()
    events = profiler.profiler.kineto_results.events()
    end = max(e.start_ns() for e in events if e.name() == "aten::_fused_adam_")
    memory = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    live = np.cumsum([n for moment, n in memory if moment < end])
    return float(live.max() - held) / 2**20


def report(size: Size, turns: int) -> pd.DataFrame:
    """Milliseconds of a step, ratios to the floor of the same turn, targets, and peak memory.

    The floor takes each product by the library that is quickest for it in that turn.
    """
    products, makers = products_alone(size), contenders()
    runs = {key: make(size) for key, make in makers.items()}
    timers = {key: partial(wall, run, size.steps * DEPTH) for key, run in products.items()}
    taken = in_turns(timers | {key: partial(wall, run) for key, run in runs.items()}, turns)
    each = pd.Series({key: 1000 * DEPTH * np.array(taken[key]) for key in products}).unstack()
    floor = sum(np.min(list(of_kind.dropna()), 0) for _, of_kind in each.iterrows())
    floors = {"floor": floor, **{f"products by {library}": each[library].sum() for library in each}}
    steps = {(name, np.nan): values for name, values in floors.items()}
    steps |= {key: 1000 * np.array(taken[key]) / size.steps for key in runs}
    rows = []
    for (name, dropout), values in steps.items():
        low, middle, high = np.quantile(values / floor, [0.25, 0.5, 0.75])
        target, make = TARGETS.get(name, (np.nan,) * 2)[dropout == 0], makers.get((name, dropout))
        if name == "relu":
            target = np.median(steps["torch relu", dropout] / floor)
        row = {"contender": name, "milliseconds": np.median(values), "ratio": middle}
        row |= {"dropout": dropout, "first_quartile": low, "third_quartile": high}
        rows.append(row | {"target": target, "peak_mb": peak_megabytes(make, size)})
    return pd.DataFrame(rows)


def time_step(arguments: Namespace) -> None:
    size = Size(16, 20, 2) if arguments.quick else Size()
    table = report(size, arguments.turns)
    write(arguments, "speed_step", table, *pages(table), index=False)


def pages(table: pd.DataFrame) -> tuple[str, ...]:
    """What has a target value and what it is compared with; all others are folded."""
    compared = table["contender"].str.startswith(("floor", "products", "torch"))
    first, rest = table[compared | table["target"].notna()], block(table, index=False)
    return (
        block(first, index=False),
        "<details>\n<summary>All activations</summary>",
        rest,
        "</details>",
    )


def time_stacks(arguments: Namespace) -> None:
    stacks, found = STACKS[: 2 if arguments.quick else None], {}
    for n_rows, n_columns, hidden in PROBLEMS[-1:] if arguments.quick else PROBLEMS:
        X = torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(0))
        spec, steps = MLPSpec(n_columns, hidden, 1), {m: max(4, 64 // m) for m in stacks}
        members, rows = [Member(i, "combu", 0.1) for i in range(max(stacks))], Rows(X, X[:, :1])
        runs = {m: peers.stack_run(spec, members[:m], rows, n_rows, steps[m]) for m in stacks}
        taken = {m: 1000 * each / steps[m] / m for m, each in timed(runs, 3).items()}
        found[f"{n_rows} x {n_columns}, {len(hidden) + 1} x {hidden[0]}"] = taken
    table = pd.DataFrame(found).rename_axis("members")
    page = block(table, "Milliseconds for each step and member")
    write(arguments, "speed_stack", table, page)


def main() -> None:
    parts = {"step": time_step, "stack": time_stacks}
    run_parts(__doc__, parts, threads={"type": int}, turns=9)


if __name__ == "__main__":
    main()
