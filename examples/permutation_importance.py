"""Which columns does a network use?
=================================

scikit-learn's permutation importance answers.

::

    python examples/permutation_importance.py [--out FOLDER]

Writes FOLDER/permutation_importance.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

from combutab import MLPRegressor


def draw(importances: np.ndarray, names: list[str]) -> Figure:
    """Draw a dot a shuffle and their mean, (n_columns, n_repeats), the most important on top."""
    order = importances.mean(axis=1).argsort()
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    rows = np.arange(len(names))
    heights = np.repeat(rows, importances.shape[1])
    axes.scatter(importances[order].ravel(), heights, s=10, color="0.6", label="one shuffle")
    means = importances[order].mean(axis=1)
    axes.scatter(means, rows, s=160, color="#0072B2", marker="|", linewidths=3, label="mean")
    axes.set_yticks(rows, [names[i] for i in order])
    axes.axvline(0.0, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("loss of R2 on held-out rows when the column is shuffled")
    axes.set_title("Diabetes, mean of 10 networks", loc="left")
    axes.legend(frameon=False, loc="lower right")
    return figure


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
    result = permutation_importance(model, X_test, y_test, n_repeats=20, random_state=0)
    for i in (-result.importances_mean).argsort():
        mean, std = result.importances_mean[i], result.importances_std[i]
        print(f"{X.columns[i]:6} {mean:6.3f} +- {std:.3f}")
    draw(result.importances, list(X.columns)).savefig(out / "permutation_importance.png", dpi=100)


if __name__ == "__main__":
    main()
