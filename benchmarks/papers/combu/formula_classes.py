"""How far does Table 3's accuracy depend on the number of classes, which the paper does not give?

ReLU and CombU on the four formulas with 3 to 10 quantile bins of the target, otherwise as
table3_formulas.py trains them: its split, one seed.

    python -m benchmarks.papers.combu.formula_classes [--quick]
        [--out benchmarks/papers/combu/results]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd
from joblib import Parallel, cpu_count, delayed
from sklearn.metrics import accuracy_score, f1_score

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from benchmarks.papers.combu.expected import load_expected
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, Fit, paper_recipe
from benchmarks.papers.combu.table3_formulas import FORMULAS
from combutab.datasets import make_formula

ACTIVATIONS = ("relu", "combu")
N_CLASSES = (3, 4, 5, 6, 8, 10)


def train(formula: str, n_classes: int, activation: str, quick: bool) -> dict[str, object]:
    """Accuracy and macro F1 of one network, in percent."""
    n_samples = 200 if quick else 5000
    source = Source("formula", formula, "classification", n_samples)
    X, y = make_formula(
        formula, n_samples, task="classification", n_classes=n_classes, random_state=0
    )
    (train, test) = PROTOCOLS["paper"].splits(source)[0]
    recipe = paper_recipe(n_samples)
    recipe = replace(recipe, hidden=(16,), epochs=3) if quick else recipe
    net = Fit(source, PROTOCOLS["paper"], recipe, activation, split=0, seed=0).estimator()
    predicted = net.fit(X.iloc[train], y[train]).predict(X.iloc[test])
    return {
        "data": formula,
        "activation": activation,
        "classes": n_classes,
        "accuracy": 100 * accuracy_score(y[test], predicted),
        "f1": 100 * f1_score(y[test], predicted, average="macro"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 rows, 3 epochs")
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, help="folder for formula_classes.csv")
    arguments = parser.parse_args()
    rows = Parallel(n_jobs=arguments.jobs)(
        delayed(train)(formula, n_classes, activation, arguments.quick)
        for formula in FORMULAS
        for n_classes in N_CLASSES
        for activation in ACTIVATIONS
    )
    table = pd.DataFrame(rows)
    paper = load_expected(3).query("metric in ['accuracy', 'f1']")
    wide = table.pivot_table(
        index=["data", "activation"], columns="classes", values=["accuracy", "f1"], sort=False
    )
    print(describe_machine())
    print(f"\naccuracy and macro F1 in % by the number of classes:\n\n{wide.round(1).to_string()}")
    known = paper[paper["activation"].isin(ACTIVATIONS) & paper["data"].isin(FORMULAS)]
    print("\nthe paper's:\n")
    print(known.pivot_table(index=["data", "activation"], columns="metric", values="mean"))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "formula_classes.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
