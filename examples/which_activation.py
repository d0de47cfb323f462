"""Which activation is best for my table?
======================================

And is the difference real?

::

    python examples/which_activation.py [--out FOLDER]

Writes FOLDER/which_activation.csv (one row per fit) and FOLDER/which_activation.png. The command
``combutab compare DATA.csv --target COLUMN`` does the same for a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from combutab.datasets import make_formula
from combutab.model_selection import compare_activations
from combutab.plotting import ActivationComparisonDisplay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    # a density of nine variables: the target is known exactly, there is no noise
    X, y = make_formula("gs", n_samples=800, random_state=0)
    found = compare_activations(
        X,
        y,
        activations=["relu", "elu", "gelu", "combu", "pln-4", "la-silu"],
        seeds=2,  # networks per fold: their scores are averaged
        folds=4,
        epochs=40,  # at most: the networks stop early
        hidden=(64, 64),
        name="Gaussian density",
    )
    print(found.summary[["activation", "mean", "low", "high", "p"]].round(3).to_string(index=False))
    print(found.sentences)
    found.results.to_csv(out / "which_activation.csv", index=False)
    display = ActivationComparisonDisplay.from_results(found)
    display.figure_.savefig(out / "which_activation.png", dpi=100)

    # the best one, fitted to all rows
    print(found.best_estimator.predict(X.head(3)).round(3).tolist(), y.head(3).round(3).tolist())


if __name__ == "__main__":
    main()
