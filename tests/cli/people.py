"""A table that the commands' tests learn from and judge."""

import numpy as np
import pandas as pd


def people(n, seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    table = pd.DataFrame({"age": age, "city": rng.choice(["Oslo", "Rome"], n)})
    table["price"] = (age / 2 + 10 * (table["city"] == "Oslo") + rng.normal(size=n)).round(2)
    return table.assign(dear=np.where(table["price"] > 30, "yes", "no"))
