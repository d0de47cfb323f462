"""Real tables of one distribution, and synthetic tables whose leakage is known."""

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

NUMBERS = ["age", "income", "visits", "weight"]
LEAKING = ("copies", "noisy copies", "nearest neighbours", "bootstrap", "smote")
SAFE = ("independent columns", "real rows")


def people(n, seed):
    """Rows with numbers, categories, a date and missing values."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, n)
    table = pd.DataFrame(
        {
            "age": age,
            "income": np.exp(rng.normal(3 + age / 60, 0.4)),
            "visits": rng.gamma(2.0, 1 + age / 50),
            "weight": rng.normal(70, 12, n),
            "ward": rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05]),
            "born": pd.Timestamp("2020") - pd.to_timedelta((365 * age).astype(int), "D"),
        }
    )
    table["ill"] = np.where(age + rng.normal(0, 8, n) > 50, "yes", "no")
    table.loc[rng.random(n) < 0.1, "weight"] = None
    table.loc[rng.random(n) < 0.1, "ward"] = None
    return table


def leak(kind, train, seed=1):
    """Synthetic rows of a kind in `LEAKING` or `SAFE`, with the number of training rows."""
    rng = np.random.default_rng(seed)
    n = len(train)
    if kind == "copies":
        return train.sample(n, random_state=seed, ignore_index=True)
    if kind == "bootstrap":
        return train.sample(n, replace=True, random_state=seed, ignore_index=True)
    if kind == "independent columns":
        return people(n, 1000 + seed).apply(lambda column: rng.permutation(column))
    if kind == "real rows":
        return people(n, 1000 + seed)
    spread = train[NUMBERS].std()
    if kind == "noisy copies":
        noise = rng.normal(size=(n, len(NUMBERS))) * 0.1 * spread.to_numpy()
        return train.assign(**(train[NUMBERS] + noise))
    points = (train[NUMBERS] / spread).fillna((train[NUMBERS] / spread).mean())
    neighbours = NearestNeighbors(n_neighbors=2).fit(points).kneighbors(points)[1][:, 1]
    other = train.iloc[neighbours].reset_index(drop=True)
    if kind == "nearest neighbours":  # one column of the nearest neighbour
        return train.assign(income=other["income"])
    share = rng.random((n, 1))
    return train.assign(**(train[NUMBERS] + share * (other[NUMBERS] - train[NUMBERS])))
