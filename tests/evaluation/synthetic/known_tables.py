"""Tables whose fidelity is known, and how a value of its measures is found."""

import numpy as np
import pandas as pd


def law(n, seed=0):
    """Rows of one distribution: two related numbers, two related categories, a date, gaps."""
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame(
        {
            "x": x,
            "y": x + 0.3 * rng.normal(size=n),
            "c": c,
            "d": np.where(c == "a", "u", rng.choice(["u", "v"], n)),
            "t": pd.Timestamp("2020") + pd.to_timedelta(100 * rng.exponential(size=n), unit="D"),
        }
    )
    table.loc[rng.random(n) < 0.1, "y"] = None
    table.loc[(table["c"] == "b") & (rng.random(n) < 0.5), "d"] = None
    return table


def shuffled(table, seed=1):
    rng = np.random.default_rng(seed)
    order = {name: rng.permutation(len(table)) for name in table}
    return pd.DataFrame({name: column.to_numpy()[order[name]] for name, column in table.items()})


def noise(n, seed=2):
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(20_000 * rng.random(n), unit="D")
    return pd.DataFrame(
        {
            "x": rng.uniform(-10, 10, n),
            "y": rng.uniform(-10, 10, n),
            "c": rng.choice(list("abcz"), n),
            "d": rng.choice(list("uvw"), n),
            "t": pd.Timestamp("1990") + days,
        }
    )


def value(table, measure, column=None, other=None, source="synthetic", what="mean"):
    """The one value of a measure."""
    row = table[
        (table["measure"] == measure)
        & table["column"].map(lambda name: name == column)
        & table["other_column"].map(lambda name: name == other)
        & (table["source"] == source)
    ]
    assert len(row) == 1, (measure, column, other, source)
    return row[what].item()
