"""How many members should a stack hold? Milliseconds of a step and member by stack size.

The batch of a stack is members x rows x width; on a CPU it should stay within the caches. This is
the measurement behind the stack size that ``combutab.estimators._jobs`` chooses.

    python -m benchmarks.speed.stack [--quick] [--threads 1] [--out benchmarks/speed/results]
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch

from benchmarks.speed.common import THREADS, begin, in_turns, medians, wall, write
from benchmarks.speed.peers import stack_run
from combutab.nn import Member, MLPSpec

PROBLEMS = {  # rows in a batch, columns, hidden layers
    "455 x 30, 3 x 128": (455, 30, (128, 128)),
    "500 x 13, 6 x 256": (500, 13, (256,) * 5),
    "500 x 13, 3 x 32": (500, 13, (32, 32)),
}
STACKS = (1, 2, 4, 8, 16, 32, 64)


def milliseconds(n_rows: int, n_columns: int, hidden: tuple[int, ...], n_members: int) -> float:
    """Milliseconds of one step, divided by the members."""
    X = torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(0))
    members = [Member(i, "combu", 0.1) for i in range(n_members)]
    steps = max(4, 64 // n_members)
    spec = MLPSpec(n_columns, hidden, 1)
    run = stack_run(spec, members, X, X[:, :1], n_rows, steps, alpha=1e-4)
    return wall(run) / steps / n_members * 1000


def main() -> None:
    arguments = begin(__doc__, "one tiny problem", threads=THREADS)
    problems = {"quick": (20, 3, (4,))} if arguments.quick else PROBLEMS
    stacks = (1, 2) if arguments.quick else STACKS
    found = {
        name: medians(in_turns({m: partial(milliseconds, *sizes, m) for m in stacks}, 3))
        for name, sizes in problems.items()
    }
    table = pd.DataFrame(found).rename_axis("members")
    print("\nMilliseconds of a step and member:\n", table.round(3).to_string(), sep="")
    write(arguments.out, "speed_stack", table)


if __name__ == "__main__":
    main()
