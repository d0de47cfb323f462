"""How well do networks of one hidden layer approximate, by activation, norm size and width?

Section 4.2 of the PLN paper ("Universal approximation theorem of networks activated by
normalization"): Figures 3, 4, 5 and A1, Tables I to III. Networks learn sin(2x + 1) + cos(x) and
random values on [-5, 5]. A search tries every optimiser, learning rate and batch size, for a part
of the epochs; the best settings of each activation and width are trained again from other seeds.
All networks that share optimiser, batch size and width train as one stack. Beside them stand the
networks that the proofs of propositions 1 to 3 write down.

    python -m benchmarks.papers.pln.approximation [--quick] [--report] [--widths 8 64]
        [--out FOLDER]

A run that was stopped goes on where it stood; --report writes the report on what is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.papers.common.results import Journal, Store
from benchmarks.papers.pln.approximation_report import write_report
from benchmarks.papers.pln.approximation_runs import COLUMNS, KEY, Grid, Run, stacks, train

NAME = "pln_approximation"
QUICK = Grid(
    widths=(8, 16),
    activations=("pln-2", "pln-4", "pls-1", "pls-2", "sigmoid", "tanh", "relu", "combu"),
    batch_sizes=(16,),
    rates=(1e-1, 1e-2),
    epoch_share=0.03,
    n_finalists=2,
    final_seeds=(1, 2),
)


def run_study(grid: Grid, store: Store) -> None:
    """Search, then train the best settings, width by width; what is in the file stays."""
    by_width = [replace(grid, widths=(width,)) for width in grid.widths]
    with store.open([run.settings for run in grid.search()]) as journal:
        for part in by_width:
            _train_missing(part.search(), journal)
            _train_missing(part.finals(journal.rows.values()), journal)
        finals = grid.finals(journal.rows.values())
    with store.open([run.settings for run in (*grid.search(), *finals)]):
        pass  # the rows in order, and a complaint if there are others with the same key


def _train_missing(runs: Sequence[Run], journal: Journal) -> None:
    missing = [run for run in runs if not journal.has(run.settings)]
    for stack in stacks(missing):
        started = time.process_time()
        journal.add(train(stack))
        first, seconds = stack[0], time.process_time() - started
        print(
            f"{first.stage}, {first.data}, width {first.width}, {first.solver}, batches of "
            f"{first.batch_size}: {len(stack)} networks, {seconds:.1f} core-seconds",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two widths, few epochs")
    parser.add_argument("--report", action="store_true", help="train nothing, write the report")
    parser.add_argument("--widths", type=int, nargs="+", help="instead of 8 to 4096")
    parser.add_argument("--finalists", type=int, help="of a search, trained again; instead of 3")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick and arguments.out == parser.get_default("out"):
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    print(describe_machine(), flush=True)
    grid = QUICK if arguments.quick else Grid()
    words = ["python -m benchmarks.papers.pln.approximation", *["--quick"] * arguments.quick]
    if arguments.widths:
        grid = replace(grid, widths=tuple(arguments.widths))
        words.append(f"--widths {' '.join(map(str, arguments.widths))}")
    if arguments.finalists:
        grid = replace(grid, n_finalists=arguments.finalists)
        words.append(f"--finalists {arguments.finalists}")
    store = Store(arguments.out / f"{NAME}.csv", COLUMNS, KEY)
    if not arguments.report:
        run_study(grid, store)
    if not store.path.exists():
        sys.exit(f"there is no {store.path}; run without --report first")
    write_report(store.read(), grid, arguments.out, " ".join(words))


if __name__ == "__main__":
    main()
