"""Tables of all kinds of columns, and rows that no fit has seen."""

import numpy as np
import pandas as pd


def mixed_table(n=60):
    """Numbers, truths, dates, durations, few and many categories, numbers for categories; gaps."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": rng.lognormal(size=n),
            "steps": rng.integers(0, 4, n).astype(float),
            "same": 3.0,
            "open": rng.random(n) < 0.5,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D"),
            "kind": rng.choice(["a", "b", "label"], n),
            "town": rng.choice([f"town {i}" for i in range(9)], n),
            "floor": pd.Categorical(rng.integers(-1, 3, n)),
        }
    )
    table.loc[::7, "size"] = np.nan
    table.loc[::11, "day"] = pd.NaT
    table.loc[::9, "kind"] = None
    return table


def new_rows(table):
    """Rows with gaps where there were none, unseen categories, and numbers beyond the range."""
    rows = table.head(12).copy()
    rows.loc[0, "steps"] = np.nan
    rows.loc[1, "size"] = 1e9
    rows.loc[2, "size"] = -1e300
    rows.loc[3, "town"] = None
    rows.loc[4, ["town", "kind"]] = "none that was seen"
    rows["floor"] = rows["floor"].cat.add_categories([17])
    rows.loc[5, "floor"] = 17
    rows.loc[6, "floor"] = None
    return rows
