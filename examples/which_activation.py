"""Compare activation functions on one table
=========================================

Which activation is best for a table, and are the differences significant?

::

    python examples/which_activation.py

Writes which_activation.csv (one row per fit) and which_activation.png. The command
``combutab compare DATA.csv --target COLUMN`` does the same for a file.
"""

from __future__ import annotations

from combutab.datasets import make_formula
from combutab.model_selection import compare_activations
from combutab.plotting import ActivationComparisonDisplay

# %%
# The target is a Gaussian density of nine variables, without noise.

X, y = make_formula("gs", n_samples=800, random_state=0)

# %%
# Cross-validate six activations on the same folds, with two seeds per fold. The scores are averaged
# over seeds. The p-values compare each activation with the best one.

found = compare_activations(
    X,
    y,
    activations=["relu", "elu", "gelu", "combu", "pln-4", "la-silu"],
    seeds=2,  # networks per fold
    folds=4,
    epochs=40,  # at most; the networks stop early
    hidden=(64, 64),
    name="Gaussian density",
)
print(found.summary[["activation", "mean", "low", "high", "p"]].round(3).to_string(index=False))
print(found.sentences)
found.results.to_csv("which_activation.csv", index=False)

# %%
# The picture shows the mean scores with their intervals.

display = ActivationComparisonDisplay.from_results(found)
display.figure_.savefig("which_activation.png", dpi=100)

# %%
# The result includes a model with the best activation, fitted to all rows.

print(found.best_estimator.predict(X.head(3)).round(3).tolist(), y.head(3).round(3).tolist())
