"""How far do Table 3's errors depend on which rows were drawn? No network is trained here.

The targets of the Arrhenius and the Navier-Stokes formula have tails so heavy that a handful of
rows decides the squared error of a test set. For 200 draws of 5,000 rows and a 4:1 split of each,
this prints the errors of the simplest model, the training rows' mean, in standard deviations of the
training rows' target and of all rows' (the paper does not say which it scaled by).

    python -m benchmarks.papers.combu.formula_draws [--quick]
        [--out benchmarks/papers/combu/results]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import ShuffleSplit

from benchmarks.machine import describe_machine
from benchmarks.papers.combu.report import write_rows
from benchmarks.papers.combu.table3_formulas import FORMULAS
from combutab.datasets import make_formula

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def errors_of_the_mean(formula: str, draw: int) -> dict[str, float]:
    """Errors on the test rows of one draw, split as the study splits it."""
    y = make_formula(formula, 5000, random_state=draw)[1].to_numpy()
    train, test = next(ShuffleSplit(1, test_size=0.2, random_state=0).split(y))
    errors = {}
    for scaled, sd in (("", y[train].std()), (", scaled by all rows", y.std())):
        error = (y[test] - y[train].mean()) / sd
        errors[f"mae{scaled}"] = float(np.abs(error).mean())
        errors[f"mse{scaled}"] = float(np.square(error).mean())
    return errors


def quantiles(formula: str, n_draws: int) -> pd.DataFrame:
    """Summarise the errors over the draws; the study's own draw is that of random state 0."""
    found = pd.DataFrame([errors_of_the_mean(formula, draw) for draw in range(n_draws)])
    table = found.quantile(QUANTILES).rename(lambda q: f"{100 * q:g} %").T
    table.insert(0, "metric", table.index)
    table.insert(0, "data", formula)
    return table.assign(**{"the study's": found.iloc[0]})


def run(name: str, description: str, make_table: Callable[[bool], pd.DataFrame]) -> None:
    """Print ``make_table(quick)`` and, where --out says so, write it to a file of that name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="little work, to try it out")
    parser.add_argument("--out", type=Path, help=f"folder for {name}.csv.gz")
    arguments = parser.parse_args()
    table = make_table(arguments.quick)
    print(f"{describe_machine()}\n\n{table.to_string(index=False, float_format='%.3g')}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_rows(table, arguments.out / f"{name}.csv.gz")


def make_table(quick: bool) -> pd.DataFrame:
    return pd.concat([quantiles(formula, 5 if quick else 200) for formula in FORMULAS])


def main() -> None:
    run("formula_draws", __doc__.splitlines()[0], make_table)


if __name__ == "__main__":
    main()
