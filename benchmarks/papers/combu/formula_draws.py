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
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import ShuffleSplit

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from benchmarks.papers.combu.table3_formulas import FORMULAS
from combutab.datasets import make_formula

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def errors_of_the_mean(formula: str, draw: int) -> dict[str, float]:
    """Errors on the test rows of one draw, split as the study splits it."""
    _, target = make_formula(formula, 5000, random_state=draw)
    y = target.to_numpy()
    train, test = next(ShuffleSplit(1, test_size=0.2, random_state=0).split(y))
    error = y[test] - y[train].mean()
    by_train, by_all = error / y[train].std(), error / y.std()
    return {
        "mae": float(np.abs(by_train).mean()),
        "mse": float(np.square(by_train).mean()),
        "mae, scaled by all rows": float(np.abs(by_all).mean()),
        "mse, scaled by all rows": float(np.square(by_all).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 draws")
    parser.add_argument("--out", type=Path, help="folder for formula_draws.csv")
    arguments = parser.parse_args()
    rows = []
    for formula in FORMULAS:
        draws = range(5 if arguments.quick else 200)
        found = pd.DataFrame([errors_of_the_mean(formula, draw) for draw in draws])
        for metric in found:
            quantiles = {f"{100 * q:g} %": found[metric].quantile(q) for q in QUANTILES}
            studied = found[metric].iloc[0]  # table3_formulas.py draws with random state 0
            rows.append({"data": formula, "metric": metric, **quantiles, "the study's": studied})
    table = pd.DataFrame(rows)
    print(describe_machine())
    print(f"\nerrors of the training mean over {len(draws)} draws:\n")
    print(table.to_string(index=False, float_format="%.3g"))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "formula_draws.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
