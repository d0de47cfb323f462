"""Speed-up of one fit that two processes share, and the bytes that they exchange.

One process and two processes of one thread each, started by `torchrun` on this machine, run the
same fit: its seconds, those of its epoch and of a step, and the bytes sent over the loopback
interface in a step. Values are medians of two turns.

    python -m benchmarks.speed.scale_out [--quick] [--turns 2] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.speed.common import Clock, begin, block, wall, write
from combutab import MLPRegressor

COLUMNS, HIDDEN, BATCH = 20, (256,) * 6, 2048
BAR = 1.6  # times as fast by two processes
SHOWN = ("fit, s", "epoch, s", "step, s", "bytes sent per step", "as a multiple of the gradient's")


class Traffic(Clock):
    """The moments of epochs, and the bytes that have gone over the loopback by then."""

    sent: list[int] = []

    def mark(self) -> None:
        super().mark()
        lines = map(str.strip, Path("/proc/net/dev").read_text().splitlines())
        self.sent = [*self.sent, next(int(x.split()[9]) for x in lines if x.startswith("lo:"))]


def measure(n_rows: int, batch: int, hidden: tuple[int, ...]) -> dict[str, float]:
    """A fit of one epoch, by this process or shared by ranks: what rank 0 sees of it."""
    torch.set_num_threads(1)
    X = np.random.default_rng(0).standard_normal((n_rows, COLUMNS), dtype=np.float32)

    def fit(rows: int) -> Traffic:
        traffic = Traffic(torch.device("cpu"))
        MLPRegressor(
            hidden_layer_sizes=hidden, numeric_embedding="none", batch_size=batch, max_iter=1,
            n_iter_no_change=np.inf, early_stopping=False, device="cpu", random_state=0,
            callbacks=[traffic],
        ).fit(X[:rows], X[:rows, 0] * X[:rows, 1])  # fmt: skip
        return traffic

    fit(4 * batch)  # loads all libraries, and finds the ranks
    found = list[Traffic]()
    seconds, steps = wall(lambda: found.append(fit(n_rows))), -(-n_rows // batch)
    if not found[0].moments:  # of another rank than the first
        return {}
    (epoch,), (sent,) = np.diff(found[0].moments), np.diff(found[0].sent)
    return {"fit": seconds, "epoch": epoch, "step": epoch / steps, "sent": sent / steps}


def by_ranks(count: int, rows: int) -> dict[str, float]:
    """``measure`` by as many processes, as torchrun starts them: what rank 0 sees."""
    torchrun = f"-m torch.distributed.run --nproc-per-node {count} --rdzv-backend c10d "
    torchrun += "--rdzv-endpoint localhost:0 -m benchmarks.speed.scale_out --rank"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "measured.json"
        command = [sys.executable, *torchrun.split(), str(place), "--rows", str(rows)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, float] = json.loads(place.read_text())
        return found


def main() -> None:
    rank = {"type": Path, "help": "File for what a rank measures; this command starts such ranks"}
    arguments = begin(__doc__, turns=2, rows=1_000_000, rank=rank)
    if arguments.rank:
        if found := measure(arguments.rows, BATCH, HIDDEN):
            arguments.rank.write_text(json.dumps(found))
        return
    if arguments.quick:
        hidden, n_rows = (8,), 500
        taken = [{"processes": 1, **measure(n_rows, 100, hidden)}]
    else:
        hidden, n_rows, turns = HIDDEN, arguments.rows, arguments.turns
        taken = [{"processes": n, **by_ranks(n, n_rows)} for n in (1, 2) * turns]
    table = pd.DataFrame(taken).groupby("processes", as_index=False).median()
    widths = [COLUMNS, *hidden, 1]
    n_parameters = sum((a + 1) * b for a, b in itertools.pairwise(widths)) + COLUMNS
    table["of the gradient"] = table["sent"] / (4 * n_parameters)
    times = table.iloc[0] / table.iloc[-1]
    met = "met" if times["fit"] >= BAR else "missed"
    text = f"Two processes are {times['fit']:.2f} times as fast as one process (the epoch: "
    text += f"{times['epoch']:.2f} times). The target of {BAR} is {met}.\n"
    shown = table.set_axis(["processes", *SHOWN], axis=1)
    page = block(shown, f"One fit of {n_rows:,} rows", index=False)
    write(arguments, "scale_out", table, page, *[text] * (len(table) > 1), index=False)


if __name__ == "__main__":
    main()
