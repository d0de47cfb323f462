"""How much faster is one fit that ranks share, and what would many hosts make of it?

The same fit by one process and by two, each of one thread, started by ``torchrun`` on this machine:
the seconds of the fit and of its epoch, and the bytes that go over the loopback in a step. Rows,
batch and network are as large as a user would take them to several machines. What 8 and 64 hosts
would take follows from the measured values by formulas that the page states.

    python -m benchmarks.speed.scale_out [--quick] [--turns 2] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.speed.common import Clock, begin, block, call_apart, parse, wall, write
from combutab import MLPRegressor

COLUMNS, HIDDEN, BATCH = 20, (256,) * 6, 2048
ROWS, FEW_ROWS = 1_000_000, 100_000
BAR = 1.6  # times as fast by two processes
NETWORKS = {"10 Gbit/s, 50 us": (10e9 / 8, 50e-6), "100 Gbit/s, 10 us": (100e9 / 8, 10e-6)}
FORMULAS = """A step of R ranks, of b rows in all and P parameters of 4 bytes:

    t(R, b) = f + c b / R + (2 (R - 1) / R) 4 P / B + 2 (R - 1) L
    speed-up = t(1, b) / t(R, b)

f, what a step takes whatever its rows, and c, seconds of a row, are of one process with two sizes
of batch. The ring of an all-reduce sends 2 (R - 1) / R of the gradient from each rank, and takes
2 (R - 1) turns: B and L are bytes a second and seconds a turn of the network, which are assumed. An
epoch of n rows takes (n / b) t(R, b): with the same batch the speed-up ends where c b / R falls
below f and the network's part; with b R rows a step it does not, but R times fewer steps are taken.
Beside the epochs each rank finds the quantiles of its share of the columns, which is most of the
encoding, and scales all rows itself: to be sent the others' would take as long.
"""


def _sent() -> int:
    """Bytes that have gone over the loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


class Traffic(Clock):
    """The moments of epochs, and the bytes sent by then."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.sent: list[int] = []

    def mark(self) -> None:
        super().mark()
        self.sent.append(_sent())


def measure(n_rows: int, batch: int, hidden: list[int]) -> dict[str, float]:
    """A fit of one epoch, by this process or shared by ranks: what rank 0 sees of it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, COLUMNS), dtype=np.float32)
    y = X[:, 0] * X[:, 1]

    def fit(rows: int) -> Traffic:
        traffic = Traffic()
        MLPRegressor(
            hidden_layer_sizes=hidden,
            numeric_embedding="none",
            batch_size=min(batch, rows),
            max_iter=1,
            n_iter_no_change=np.inf,
            early_stopping=False,
            device="cpu",
            random_state=0,
            callbacks=[traffic],
        ).fit(X[:rows], y[:rows])
        return traffic

    n_threads, found = torch.get_num_threads(), list[Traffic]()
    torch.set_num_threads(1)
    try:
        fit(min(n_rows, 4 * batch))  # loads all libraries, and finds the ranks
        seconds = wall(lambda: found.append(fit(n_rows)))
    finally:
        torch.set_num_threads(n_threads)
    traffic, n_steps = found[0], -(-n_rows // batch)
    if not traffic.moments:  # of another rank than the first
        return {}
    return {
        "fit": seconds,
        "epoch": traffic.moments[1] - traffic.moments[0],
        "step": (traffic.moments[1] - traffic.moments[0]) / n_steps,
        "sent": (traffic.sent[1] - traffic.sent[0]) / n_steps,
    }


def by_ranks(count: int, n_rows: int) -> dict[str, float]:
    """``measure`` by as many processes, as torchrun starts them."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "measured.json"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
            *("-m", "benchmarks.speed.scale_out", "--rank", str(place), "--rows", str(n_rows)),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        found: dict[str, float] = json.loads(place.read_text())
        return found


@dataclass(frozen=True)
class Step:
    """A step: seconds whatever its rows, seconds of a row, and what ranks send of it."""

    fixed: float
    of_row: float
    n_parameters: int

    def seconds(self, ranks: int, rows: int, network: tuple[float, float]) -> float:
        """Seconds of a step of so many rows in all, by ranks that are joined by a network."""
        speed, turn = network
        sent = 2 * (ranks - 1) / ranks * 4 * self.n_parameters
        return self.fixed + self.of_row * rows / ranks + sent / speed + 2 * (ranks - 1) * turn


def count_parameters(hidden: Sequence[int]) -> int:
    """Weights, biases, and what scales the inputs."""
    widths = [COLUMNS, *hidden, 1]
    return sum((a + 1) * b for a, b in itertools.pairwise(widths)) + COLUMNS


def predict(step: float, half_step: float, n_parameters: int) -> pd.DataFrame:
    """Speed-ups of many hosts, by the formulas, from seconds of a step of BATCH rows and half."""
    of_row = max(0.0, 2 * (step - half_step) / BATCH)
    model = Step(max(0.0, step - of_row * BATCH), of_row, n_parameters)
    rows = []
    for name, network in NETWORKS.items():
        for ranks in (8, 64):
            for batch in (BATCH, BATCH * ranks):
                alone, shared = (model.seconds(n, batch, network) for n in (1, ranks))
                rows.append(
                    {
                        "network": name,
                        "hosts": ranks,
                        "rows of a step": batch,
                        "ms a step": 1000 * shared,
                        "speed-up": alone / shared,
                    }
                )
    return pd.DataFrame(rows)


def main() -> None:
    options: dict[str, Any] = {
        "rank": {"help": "file for what a rank measures; this command starts such ranks"},
        "rows": ROWS,
        "turns": 2,
    }
    if any(word.startswith("--rank") for word in sys.argv):
        arguments = parse(__doc__, "", **options)
        found = measure(arguments.rows, BATCH, list(HIDDEN))
        if found:
            Path(arguments.rank).write_text(json.dumps(found))
        return
    arguments = begin(__doc__, "one process, few rows and a small network", **options)
    if arguments.quick:
        hidden, few = [8], 500
        turns = [{1: measure(few, 100, hidden)}]
    else:
        hidden, few = list(HIDDEN), FEW_ROWS
        turns = [{n: by_ranks(n, arguments.rows) for n in (1, 2)} for _ in range(arguments.turns)]
    half = call_apart(
        measure, few, 50 if arguments.quick else BATCH // 2, hidden, here=arguments.quick
    )
    table = pd.DataFrame(
        [
            {
                "processes": n,
                **{name: statistics.median(turn[n][name] for turn in turns) for name in turn_1},
            }
            for n, turn_1 in turns[0].items()
        ]
    )
    n_parameters = count_parameters(hidden)
    table["of the gradient"] = table["sent"] / (4 * n_parameters)
    parts = [
        block(table, f"One fit of {few if arguments.quick else arguments.rows:,} rows", index=False)
    ]
    if not arguments.quick:
        one, two = table.iloc[0], table.iloc[1]
        reached = one["fit"] / two["fit"]
        parts.append(
            f"Two processes are {reached:.2f} times as fast as one (of the epoch alone "
            f"{one['epoch'] / two['epoch']:.2f}), the bar is {BAR}: "
            f"{'met' if reached >= BAR else 'missed'}.\n"
        )
    predicted = predict(float(table["step"].iloc[0]), half["step"], n_parameters)
    parts += [
        FORMULAS,
        block(predicted.round(2), "What the formulas say of many hosts", index=False),
    ]
    write(arguments.out, "scale_out", table, *parts, index=False)
    write(arguments.out, "scale_out_hosts", predicted, show=False, index=False)


if __name__ == "__main__":
    main()
