"""The data sets of the studies, by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from combutab.datasets import load_feynman, load_openml, make_formula


@dataclass(frozen=True)
class Source:
    """A data set that any process can load, without data of its own.

    ``kind`` is "formula", "feynman" or "openml", which includes scikit-learn's digits; the first
    two are drawn, ``n_samples`` rows with ``random_state``. ``limit`` keeps so many rows of others.
    """

    kind: str
    name: str
    task: str
    n_samples: int = 5000
    random_state: int = 0
    limit: int | None = None
    data_home: str | None = None

    def load(self) -> tuple[pd.DataFrame, pd.Series]:
        """Features and target; kept in memory, so leave them as they are."""
        return _load(self)

    def row_groups(self) -> np.ndarray:
        """A number for each row; rows whose features are all equal share theirs."""
        X, _ = self.load()
        groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False)
        return groups.ngroup().to_numpy()


@lru_cache(maxsize=8)
def _load(source: Source) -> tuple[pd.DataFrame, pd.Series]:
    if source.kind == "openml":
        if source.name == "digits":  # scikit-learn's 8 x 8 images
            X, y = load_digits(return_X_y=True, as_frame=True)
        else:
            data = load_openml(source.name, data_home=source.data_home)
            X, y = data.X, data.y
        if source.limit is not None and source.limit < len(X):
            kept = np.random.default_rng(0).choice(len(X), source.limit, replace=False)
            X, y = X.iloc[kept].reset_index(drop=True), y.iloc[kept].reset_index(drop=True)
        return X, y
    drawn = {"n_samples": source.n_samples, "random_state": source.random_state}
    if source.kind == "feynman":
        return load_feynman(source.name, data_home=source.data_home, **drawn)
    return make_formula(source.name, task=source.task, **drawn)
