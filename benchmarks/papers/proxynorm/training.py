"""Does Proxy Normalization make layer norm match batch norm, also where the batch is small?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small: batch, layer and group norm
and group norm with weight standardisation, each without and with PN, in residual networks on tables
and on scikit-learn's digits, with and without extra regularisation, at four batch sizes. All seeds
of a setting train as one program. Deep MLPs without skip connections, on the first table, are
combutab's estimator. A run that was stopped goes on where it stood.

    python -m benchmarks.papers.proxynorm.training [--quick] [--seeds 6] [--data-home FOLDER]
        [--report]

The tables come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text
from benchmarks.papers.common.results import Store
from benchmarks.papers.proxynorm.training_figure import plot
from benchmarks.papers.proxynorm.training_nets import NORMS
from benchmarks.papers.proxynorm.training_plain import ESTIMATOR_NORMS, train_plain
from benchmarks.papers.proxynorm.training_report import write
from benchmarks.papers.proxynorm.training_runs import (
    COLUMNS,
    DATA,
    KEY,
    TABLES,
    Program,
    Recipe,
    train,
)

NAME = "proxynorm_training"
BATCH_SIZES = (8, 32, 128, 512)
QUICK = Recipe(
    n_train=64,
    n_test=100,
    epochs=2,
    width_table=16,
    width_image=8,
    blocks_table=1,
    blocks_image=1,
    layers_plain=2,
)


def plan(arguments: argparse.Namespace) -> list[Program]:
    """All programs, the smallest and the largest batch first: a run cut short has these."""
    recipe = QUICK if arguments.quick else Recipe()
    tables = [data for data in arguments.data if data in TABLES]
    nets = [("CNN" if data == "digits" else "MLP", data, tuple(NORMS)) for data in arguments.data]
    nets += [("plain MLP", data, tuple(ESTIMATOR_NORMS)) for data in tables[:1]]
    common = (tuple(range(arguments.seeds)), recipe, arguments.activation, arguments.data_home)
    sizes = sorted(arguments.batch_sizes)
    return [
        Program(net, data, norm, size, *common)
        for size in dict.fromkeys([sizes[0], sizes[-1], *sizes])
        for net, data, norms in nets
        for norm in norms
    ]


def run(programs: Sequence[Program], store: Store) -> None:
    """Train what is not in the file yet."""
    wanted = [program.settings(*member) for program in programs for member in program.members]
    with store.open(wanted) as journal:
        missing = [
            program
            for program in programs
            if not all(journal.has(program.settings(*member)) for member in program.members)
        ]
        if missing:
            print(f"{len(missing)} of {len(programs)} programs to go", flush=True)
        started = time.process_time()
        for number, program in enumerate(missing, 1):
            rows = train_plain(program) if program.net == "plain MLP" else train(program)
            journal.add(rows)
            accuracy = sum(float(row["accuracy"]) for row in rows) / len(rows)
            print(
                f"[{number}/{len(missing)}] batch {program.batch_size}, {program.net}, "
                f"{program.data}, {program.norm}: accuracy {accuracy:.3f}; "
                f"{(time.process_time() - started) / 60:.1f} min of CPU",
                flush=True,
            )


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Write the page and its pictures beside the rows."""
    pictures = {
        f"{NAME}.png": ("accuracy", "test accuracy, %"),
        f"{NAME}_train.png": ("train_accuracy", "accuracy, last epoch of training, %"),
    }
    for file, (metric, label) in pictures.items():
        write_figure(plot(rows, metric, label), folder / file, dpi=110)
    write_text(folder / f"{NAME}.md", write(rows, command, list(pictures)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds, 64 rows, small networks")
    parser.add_argument("--report", action="store_true", help="write the report again, no training")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--data", nargs="+", choices=["digits", *TABLES], default=list(DATA))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=list(BATCH_SIZES))
    parser.add_argument("--activation", default="relu", help="or combu, swish, ...")
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick:
        if arguments.out == parser.get_default("out"):
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        arguments.seeds, arguments.batch_sizes = 2, [8, 32]
    print(describe_machine(), flush=True)
    programs = plan(arguments)
    store = Store(arguments.out / f"{NAME}.csv", COLUMNS, KEY)
    if not arguments.report:
        run(programs, store)
    rows = store.read()
    rows = rows[
        (rows["activation"] == arguments.activation)
        & rows["batch_size"].isin(arguments.batch_sizes)
        & rows["data"].isin(arguments.data)
    ]
    words = [f"python benchmarks/{NAME}.py", *["--quick"] * arguments.quick]
    for option in ("seeds", "data", "batch_sizes", "activation"):
        value = getattr(arguments, option)
        if value != parser.get_default(option) and not (arguments.quick and option != "data"):
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"--{option.replace('_', '-')} {text}")
    report(rows, arguments.out, " ".join(words))


if __name__ == "__main__":
    main()
