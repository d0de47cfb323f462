"""Permutation importance and attributions
=======================================

Which columns does a network use, and how much does each column contribute to one prediction?

::

    python examples/permutation_importance.py

Writes permutation_importance.png.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from combutab import MLPRegressor
from combutab.inspection import attributions, permutation_importance
from combutab.plotting import PermutationImportanceDisplay

# %%
# Load the diabetes data, and add a column of noise. The noise shows what the importance of a
# useless column looks like.

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1: "one", 2: "two"}).astype("category")
X["noise"] = np.random.default_rng(0).normal(size=len(X))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

# %%
# Fit an ensemble of ten networks. They train together as one stack, and their predictions are
# averaged.

model = MLPRegressor(
    hidden_layer_sizes=(64,),
    n_members=10,
    max_iter=100,
    n_iter_no_change=np.inf,
    learning_rate_init=2e-3,
    random_state=0,
).fit(X_train, y_train)
print(f"R2 on held-out rows: {model.score(X_test, y_test):.3f}")

# %%
# Permutation importance is the decrease of R2 when a column is shuffled, here on test rows. Columns
# are shuffled before they are encoded, so a categorical column is one column.

found = permutation_importance(model, X_test, y_test, n_repeats=20, random_state=0)
print(found.table.round(3).to_string(index=False))

# %%
# Attributions are the contributions of the columns to one prediction, compared with the mean
# prediction for the training rows. They add up to the difference.

why = attributions(model, X_test[:1], X_train, random_state=0)
print(f"\nThe first prediction is {why.predictions[0]:.0f}, the mean {why.base_values[0]:.0f}:")
print(why.table[["column", "value", "attribution"]].to_string(index=False))

# %%
# The picture shows the permutation importances with their 95 % intervals.

figure = PermutationImportanceDisplay.from_results(found).figure_
figure.savefig("permutation_importance.png", dpi=100)
