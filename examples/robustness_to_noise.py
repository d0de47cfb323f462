"""Robustness to corrupted data
============================

How much do scores decrease if the data have noise, other units, or missing values? And does
training on corrupted rows help?

::

    python examples/robustness_to_noise.py

Writes robustness_to_noise.png.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from combutab import MLPClassifier
from combutab.evaluation import corrupt, robustness
from combutab.plotting import plot_robustness

# %%
# Use scikit-learn's digits as a table of 64 numeric columns.

X, y = load_digits(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)

# %%
# Fit three networks and a random forest. One network is trained on the original rows and on two
# corrupted copies: one with Gaussian noise, and one with clipped extreme values.


def make_network(activation: str) -> MLPClassifier:
    return MLPClassifier(
        hidden_layer_sizes=(64,),
        activation=activation,
        numeric_embedding="none",  # trains faster
        learning_rate_init=3e-3,
        max_iter=20,
        n_iter_no_change=np.inf,
        random_state=0,
    )


noisy = [corrupt(X_train, way, severity=4) for way in ("gaussian_noise", "clipping")]
models = {
    "ReLU": make_network("relu").fit(X_train, y_train),
    "LA-SiLU": make_network("la-silu").fit(X_train, y_train),
    "ReLU, corrupted rows in training": make_network("relu").fit(
        pd.concat([X_train, *noisy]), pd.concat([y_train] * 3)
    ),
    "random forest": RandomForestClassifier(random_state=0).fit(X_train, y_train),
}

# %%
# ``robustness`` scores fitted estimators on the test rows with noise, other units, and clipped,
# rounded or missing values. It takes estimators of any library with the scikit-learn API.

found = robustness(models, X_test, y_test, X_reference=X_train)
print(found.summary.round(3).to_string(index=False))
worst = found.scores.loc[found.scores.groupby("estimator", sort=False)["score"].idxmin()]
for row in worst.itertuples():
    print(f"{row.estimator}: lowest accuracy {row.score:.2f}, with {row.corruption} {row.severity}")

# %%
# The picture shows the accuracy by kind and severity of the corruption.

plot_robustness(found).savefig("robustness_to_noise.png", dpi=100)
