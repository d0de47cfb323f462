"""How far does Table 3's accuracy depend on the number of classes, which the paper does not give?

ReLU and CombU on the four formulas with 3 to 10 quantile bins of the target, otherwise as
table3_formulas.py trains them: its split, one seed.

    python -m benchmarks.papers.combu.formula_classes [--quick]
        [--out benchmarks/papers/combu/results]
"""

from __future__ import annotations

from itertools import product

import pandas as pd
from joblib import Parallel, delayed
from sklearn.metrics import accuracy_score, f1_score

from benchmarks.papers.combu.formula_draws import run
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, QUICK_RECIPE, Fit, paper_recipe
from benchmarks.papers.combu.table3_formulas import FORMULAS
from combutab.datasets import make_formula

ACTIVATIONS = ("relu", "combu")
N_CLASSES = (3, 4, 5, 6, 8, 10)


def train(formula: str, n_classes: int, activation: str, quick: bool) -> dict[str, object]:
    """Train one network; accuracy and macro F1 in percent."""
    n_rows = 200 if quick else 5000
    source = Source("formula", formula, "classification", n_rows)
    recipe = QUICK_RECIPE if quick else paper_recipe(n_rows)
    X, y = make_formula(formula, n_rows, task="classification", n_classes=n_classes, random_state=0)
    (train, test) = PROTOCOLS["paper"].splits(source)[0]
    net = Fit(source, PROTOCOLS["paper"], recipe, activation, split=0, seed=0).estimator()
    predicted = net.fit(X.iloc[train], y[train]).predict(X.iloc[test])
    return {
        "data": formula,
        "activation": activation,
        "classes": n_classes,
        "accuracy": 100 * accuracy_score(y[test], predicted),
        "f1": 100 * f1_score(y[test], predicted, average="macro"),
    }


def make_table(quick: bool) -> pd.DataFrame:
    networks = product(FORMULAS, N_CLASSES, ACTIVATIONS)
    rows = Parallel(n_jobs=-1)(delayed(train)(*network, quick) for network in networks)
    return pd.DataFrame(rows)


def main() -> None:
    run("formula_classes", __doc__.splitlines()[0], make_table)


if __name__ == "__main__":
    main()
