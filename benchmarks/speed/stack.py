"""How many members should a stack hold? Milliseconds of a step and member by stack size.

The batch of a stack is members x rows x width; on a CPU it should stay within the caches. This is
the measurement behind the stack size that ``combutab.estimators.fitting._jobs`` chooses.

    python -m benchmarks.speed.stack [--quick] [--threads 1] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)

PROBLEMS = {  # rows in a batch, columns, hidden layers
    "455 x 30, 3 x 128": (455, 30, (128, 128)),
    "500 x 13, 6 x 256": (500, 13, (256,) * 5),
    "500 x 13, 3 x 32": (500, 13, (32, 32)),
}
STACKS = (1, 2, 4, 8, 16, 32, 64)


def milliseconds(n_rows: int, n_columns: int, hidden: tuple[int, ...], n_members: int) -> float:
    """Median milliseconds of one step, divided by the members."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n_rows, n_columns, generator=generator)
    members = [Member(i, "combu", 0.1) for i in range(n_members)]
    plans = [MemberPlan(i, torch.arange(n_rows), 5e-4, alpha=1e-4) for i in range(n_members)]
    steps = max(4, 64 // n_members)
    config = TrainConfig(
        loss=make_regression_loss("squared_error", ()),
        optimizer=OptimizerConfig(),
        batch_size=n_rows,
        max_epochs=steps,
        n_iter_no_change=np.inf,
    )
    seconds = []
    for turn in range(4):
        net = StackedMLP(MLPSpec(n_columns, hidden, 1), members)
        started = time.perf_counter()
        train_stack(net, Rows(X, X[:, :1]), plans, config)
        if turn:
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) / steps / n_members * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one tiny problem")
    parser.add_argument("--threads", type=int, help="torch threads; default: as they are")
    parser.add_argument("--out", type=Path, help="folder for speed_stack.csv")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    problems = {"quick": (20, 3, (4,))} if arguments.quick else PROBLEMS
    stacks = (1, 2) if arguments.quick else STACKS
    table = pd.DataFrame(
        {name: {m: milliseconds(*sizes, m) for m in stacks} for name, sizes in problems.items()}
    ).rename_axis("members")
    print(describe_machine())
    print("\nMilliseconds of a step and member:\n", table.round(3).to_string(), sep="")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "speed_stack.csv")


if __name__ == "__main__":
    main()
