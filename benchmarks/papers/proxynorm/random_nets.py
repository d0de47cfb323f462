"""Do layer-normalised random nets collapse, and does Proxy Normalization prevent it?

Section 4 and 5 of "Proxy-Normalizing Activations to Match Batch Normalization while Removing Batch
Dependence" for random networks (Definition 1): where the power of each normalised layer lies
(Figure 2, top), Theorem 1's bound to depth 200 and how linear the layers become (Figure 5),
Theorem 2's constraints, Theorem 3's guarantee, and residual networks at initialisation (Figure 6).
Nothing is trained. scikit-learn's digits stand in for CIFAR-10 and ImageNet.

    python -m benchmarks.papers.proxynorm.random_nets [--quick] [--out FOLDER] [--report]

A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from benchmarks.papers.common.results import Row, Store
from benchmarks.papers.proxynorm.random_nets_model import NORMS, Net, measure
from benchmarks.papers.proxynorm.random_nets_report import write_report
from benchmarks.papers.proxynorm.random_nets_residual import Residual, measure_residual
from benchmarks.papers.proxynorm.random_nets_theorems import check_theorems

NAME = "proxynorm_random_nets"
KEY = ("net", "width", "phi", "norm", "draw", "depth")
COLUMNS = (*KEY, "inputs", "P", "P1", "P2", "P3", "P4", "nonlinearity")
DENSE_NORMS = tuple(name for name in NORMS if name != "IN")


@dataclass(frozen=True)
class Plan:
    """What is measured: in every draw each of the nets."""

    nets: tuple[Net | Residual, ...]
    draws: int
    n_points: int  # of a distribution, in the check of Theorem 3


FULL = Plan(
    nets=(
        Net("conv", 128, 200, every_depth=True),
        Net("dense", 512, 200, DENSE_NORMS, every_depth=True),
        Residual(16),
        # How the bound of Theorem 1 depends on the width
        Net("conv", 32, 200, ("LN",)),
        Net("conv", 64, 200, ("LN",)),
        Net("dense", 64, 200, ("LN",)),
        Net("dense", 256, 200, ("LN",)),
        Net("dense", 1024, 200, ("LN",)),  # the paper's width
        # Proposition 6: with phi = identity the bound is an equality
        Net("conv", 32, 200, ("LN",), phi="identity"),
        Net("conv", 128, 200, ("LN",), phi="identity"),
        Net("dense", 64, 200, ("LN",), phi="identity"),
        Net("dense", 512, 200, ("LN",), phi="identity"),
    ),
    draws=8,  # the fewest with which six tests at a time can find a difference
    n_points=20_001,
)
QUICK = Plan(
    nets=(
        Net("conv", 16, 6, n_inputs=32),
        Net("dense", 32, 6, DENSE_NORMS, n_inputs=32),
        Residual(2, (1, 1, 1, 1), n_inputs=32),
        Net("dense", 16, 6, ("LN",), n_inputs=32),
        Net("dense", 32, 6, ("LN",), phi="identity", n_inputs=32),
    ),
    draws=2,
    n_points=2001,
)


def settings(net: Net | Residual, norm: str, draw: int, depth: int) -> Row:
    """What tells a row from another, and what must be the same to go on."""
    names = {"net": net.kind, "width": net.width, "phi": net.phi, "norm": norm}
    numbers = {"draw": draw, "depth": depth, "inputs": net.n_inputs}
    return {name: str(value) for name, value in (names | numbers).items()}


def wanted(net: Net | Residual, draw: int) -> list[Row]:
    """The rows that one draw of a net gives."""
    return [
        settings(net, norm, draw, depth)
        for norm in net.norms
        for depth in range(1, net.depth + 1)
        if isinstance(net, Residual) or net.looks_at(norm, depth)
    ]


def run(net: Net | Residual, draw: int) -> list[Row]:
    """Measure one draw of a net."""
    found = measure_residual(net, draw) if isinstance(net, Residual) else measure(net, draw)
    rows = []
    for each in found:
        values = {
            name: f"{value:.9g}" if name == "P" else f"{value:.5g}"
            for name, value in each.items()
            if isinstance(value, float)
        }
        where = settings(net, str(each["norm"]), draw, int(each["depth"]))
        rows.append(dict.fromkeys(COLUMNS, "") | where | values)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="narrow nets of 6 layers, 2 draws")
    parser.add_argument("--draws", type=int, help="networks drawn; 8 by default")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the report")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick and arguments.out == parser.get_default("out"):
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    plan = QUICK if arguments.quick else FULL
    draws = plan.draws if arguments.draws is None else arguments.draws
    if draws < 2:
        parser.error(
            f"normalisations are compared over draws: --draws takes 2 or more, not {draws}"
        )
    print(describe_machine(), flush=True)
    store = Store(arguments.out / f"{NAME}.csv", COLUMNS, KEY)
    theorems = arguments.out / f"{NAME}_theorems.csv"
    if not arguments.report:
        measure_all(plan, draws, store)
        conv = plan.nets[0]
        checked = Net("conv", min(conv.width, 32), min(conv.depth, 50), ("IN",))
        found = check_theorems({"float64": checked, "float32": checked}, draws, plan.n_points)
        write_table(found, theorems, index=False, float_format="%.4g")
    words = ["python", f"benchmarks/{NAME}.py", *["--quick"] * arguments.quick]
    words += [] if draws == plan.draws else ["--draws", str(draws)]
    write_report(store.read(), pd.read_csv(theorems), arguments.out, " ".join(words))


def measure_all(plan: Plan, draws: int, store: Store) -> None:
    """Measure what is not there yet, a draw of all nets after another."""
    jobs = [(net, draw) for draw in range(draws) for net in plan.nets]
    rows = {job: wanted(*job) for job in jobs}
    with store.open([row for job in jobs for row in rows[job]]) as journal:
        missing = [job for job in jobs if not all(map(journal.has, rows[job]))]
        if missing:
            print(f"{len(missing)} of {len(jobs)} networks to go", flush=True)
        started = time.monotonic()
        for number, (net, draw) in enumerate(missing, 1):
            journal.add(run(net, draw))
            minutes = (time.monotonic() - started) / 60
            print(
                f"[{number}/{len(missing)}] {net.kind} {net.width}, {net.phi}, draw {draw}: "
                f"{minutes:.1f} min",
                flush=True,
            )


if __name__ == "__main__":
    main()
