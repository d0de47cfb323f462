"""Which columns does a network use?
=================================

Permutation importance answers, and the parts of one prediction.

::

    python examples/permutation_importance.py [--out FOLDER]

Writes FOLDER/permutation_importance.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from combutab import MLPRegressor
from combutab.inspection import attributions, permutation_importance
from combutab.plotting import PermutationImportanceDisplay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1: "one", 2: "two"}).astype("category")
    X["noise"] = np.random.default_rng(0).normal(size=len(X))  # what no importance looks like
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

    model = MLPRegressor(
        hidden_layer_sizes=(64,),
        n_members=10,  # ten networks trained as one stack, whose predictions are averaged
        max_iter=100,
        n_iter_no_change=np.inf,
        learning_rate_init=2e-3,
        random_state=0,
    ).fit(X_train, y_train)
    print(f"R2 on held-out rows: {model.score(X_test, y_test):.3f}")

    # columns are shuffled before encoding, so a category stays one column
    found = permutation_importance(model, X_test, y_test, n_repeats=20, random_state=0)
    print(found.table.round(3).to_string(index=False))
    why = attributions(model, X_test[:1], X_train, random_state=0)
    print(f"\nThe first prediction is {why.predictions[0]:.0f}, the mean {why.base_values[0]:.0f}:")
    print(why.table[["column", "value", "attribution"]].to_string(index=False))
    figure = PermutationImportanceDisplay.from_results(found).figure_
    figure.savefig(out / "permutation_importance.png", dpi=100)


if __name__ == "__main__":
    main()
