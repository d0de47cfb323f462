"""A small table of numbers and categories, what may be learned of it, and quick settings."""

import numpy as np
import pandas as pd

from combutab import MLPClassifier

INF = float("inf")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Z = X @ [1.0, 2.0, -1.0]
FRAME = pd.DataFrame(X, columns=list("abc")).assign(
    few=np.where(X[:, 0] > 0, "p", "q"), many=[f"m{i % 20}" for i in range(120)]
)
LABELS = (Z > 0).astype(int) + (Z > 1.5)
QUICK = {
    "hidden_layer_sizes": (8,),
    "max_iter": 4,
    "learning_rate_init": 0.02,
    "n_iter_no_change": INF,
    "random_state": 0,
    "dropout": 0.0,
}
LEARNS = {**QUICK, "hidden_layer_sizes": (16,), "max_iter": 40, "learning_rate_init": 0.04}


def target_of(cls):
    """Labels for a classifier, numbers for a regressor."""
    return LABELS if cls is MLPClassifier else Z
