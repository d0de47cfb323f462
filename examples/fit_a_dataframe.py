"""Fit a DataFrame with text, categories, dates and missing values
===============================================================

The estimators take a DataFrame as it is. No column has to be encoded, scaled or imputed
beforehand.

::

    python examples/fit_a_dataframe.py

Writes the fitted model to flats.safetensors, and fit_a_dataframe.png.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split

import combutab
from combutab import MLPRegressor

# %%
# Simulate a table of flats and their rents. It has numbers, a categorical and a text column,
# booleans and dates. A tenth of the areas and of the heatings are missing.


def make_flats(n_rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Simulate flats and their rents; some values are missing."""
    rng = np.random.default_rng(seed)
    area = rng.gamma(8.0, 9.0, n_rows)
    district = rng.choice(["Centre", "Harbour", "North", "Park"], n_rows)
    built = rng.integers(1900, 2024, n_rows)
    heating = rng.choice(["gas", "district heating", "heat pump"], n_rows)
    per_metre = 9.0 + pd.Series(district).map({"Centre": 6, "Harbour": 3, "North": 0, "Park": 5})
    rent = area * per_metre * (1.0 + 0.002 * (built - 1960)) + np.where(heating == "gas", -40, 30)
    flats = pd.DataFrame(
        {
            "area": area,
            "district": pd.Categorical(district),
            "heating": heating,
            "lift": rng.random(n_rows) < 0.4,
            "built": pd.to_datetime(pd.DataFrame({"year": built, "month": 1, "day": 1})),
        }
    )
    flats.loc[rng.random(n_rows) < 0.1, "area"] = np.nan
    flats.loc[rng.random(n_rows) < 0.1, "heating"] = None
    return flats, pd.Series(rent * rng.normal(1.0, 0.05, n_rows), name="rent")


X, y = make_flats(n_rows=2000, seed=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
print(X_train.head(3).to_string())

# %%
# Fit a regressor. Its three networks each hold out a fifth of the training rows, and keep the
# weights of their best epoch. The networks are smaller than the default, to be quick.

model = MLPRegressor(hidden_layer_sizes=(128, 128), max_iter=50, random_state=0)
model.fit(X_train, y_train)
print(f"stopped after {model.n_iter_} epochs, R2 {model.score(X_test, y_test):.3f}")

# %%
# The area determines most of the rent, so predictions are less accurate for the flats whose area is
# missing.

known = X_test["area"].notna()
predicted = model.predict(X_test)
for label, rows in (("known", known), ("missing", ~known)):
    error = mean_absolute_error(y_test[rows], predicted[rows])
    print(f"mean absolute error where the area is {label}: {error:.0f}")

# %%
# A category that is not in the training rows raises no error. All its one-hot columns are zero.

new = X_test.head(2).assign(district="Airport")
print(f"rents predicted for an unknown district: {model.predict(new).round().tolist()}")

# %%
# Save the model to a file, and load it again. The loaded model makes the same predictions.

path = "flats.safetensors"
model.save(path)
same = combutab.load(path)
assert np.array_equal(same.predict(X_test), predicted)
print(f"saved to {path} and loaded again: the same predictions")

# %%
# Plot the predicted rents of the test rows against the true rents.


def draw(true: pd.Series, predicted: np.ndarray, known: pd.Series) -> Figure:
    """Draw predicted and true rents of new flats, with and without a known area."""
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for rows, color, label in ((known, "#0072B2", "known"), (~known, "#D55E00", "missing")):
        axes.scatter(true[rows], predicted[rows], s=12, color=color, alpha=0.7, linewidths=0,
                     label=f"area {label}")  # fmt: skip
    axes.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xlabel("true rent")
    axes.set_ylabel("predicted rent")
    axes.set_title(f"{len(true)} test flats", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


draw(y_test, predicted, known).savefig("fit_a_dataframe.png", dpi=100)
