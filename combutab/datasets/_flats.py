"""A simulated table with columns of several types, for examples and `combutab demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Rent of each district, relative to the district "Station"
DISTRICTS = {
    "Centre": 1.5,
    "Harbour": 1.3,
    "Hill": 1.1,
    "Mill": 0.8,
    "North": 0.9,
    "Old Town": 1.4,
    "Park": 1.25,
    "Station": 1.0,
}


def make_flats(n_samples: int = 600, *, random_state: int = 0) -> pd.DataFrame:
    """Simulate flats to let and their monthly rents.

    The rent is the product of the area and of a rate per square metre, which depends on all other
    columns, with noise of 5 %.

    Parameters
    ----------
    n_samples : int, default=600
        Number of rows.
    random_state : int, default=0
        Seed of the random numbers.

    Returns
    -------
    flats : DataFrame
        Columns: ``area`` in square metres (5 % missing), ``district``,
        ``built`` (year), ``heating`` (5 % missing), ``listed`` (date) and ``rent``.

    Examples
    --------
    >>> from combutab.datasets import make_flats
    >>> make_flats(2, random_state=3)[["area", "district", "built", "rent"]]
       area district  built    rent
    0  37.9     Park   1941   770.0
    1  70.8   Centre   1953  1339.0
    """
    import pandas as pd

    rng = np.random.default_rng(random_state)
    district = rng.choice(list(DISTRICTS), n_samples)
    area = rng.gamma(8.0, 9.0, n_samples).round(1) + 15
    built = rng.integers(1900, 2024, n_samples)
    heating = rng.choice(["gas", "district heating", "heat pump"], n_samples, p=[0.5, 0.3, 0.2])
    day = rng.integers(0, 1000, n_samples)

    rate = 12 * np.array([DISTRICTS[name] for name in district]) * (area / 60) ** -0.2
    rate *= 1 + 0.25 * ((built - 1960) / 60) ** 2
    rate *= 1.06 ** (day / 365) * (1 + 0.04 * np.sin(2 * np.pi * day / 365.25))
    rate *= np.where(heating == "gas", 0.95, 1.0)

    flats = pd.DataFrame(
        {
            "area": area,
            "district": district,
            "built": built,
            "heating": heating,
            "listed": pd.Timestamp("2022-01-01") + pd.to_timedelta(day, unit="D"),
            "rent": (area * rate * rng.normal(1.0, 0.05, n_samples)).round(),
        }
    )
    flats.loc[rng.random(n_samples) < 0.05, "heating"] = None
    flats.loc[rng.random(n_samples) < 0.05, "area"] = np.nan
    return flats
