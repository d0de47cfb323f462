"""Prediction intervals: conformal prediction, quantile and Gaussian regression
============================================================================

``predict_interval`` of any regressor gives intervals that contain a chosen share of new targets.
Two losses of ``MLPRegressor`` also predict a distribution, so that the width depends on the row:
``"quantile"`` predicts quantiles, and ``"gaussian_nll"`` a mean and a standard deviation.

::

    python examples/quantiles_and_uncertainty.py

Writes quantiles_and_uncertainty.png.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from combutab import MLPRegressor

# %%
# Simulate a sine curve. The standard deviation of its noise grows with x.

QUANTILES = [0.05, 0.5, 0.95]


def make_data(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a sine curve whose noise grows with x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n_rows)
    return x[:, None], np.sin(x) + rng.normal(0.0, 0.05 + 0.08 * x)


X, y = make_data(n_rows=1500, seed=0)
X_test, y_test = make_data(n_rows=5000, seed=1)
grid = np.linspace(0.0, 10.0, 301)[:, None]

# %%
# Define one model per loss. Each averages four networks. Each network sets a quarter of the rows
# aside, so that the intervals are computed from the errors for all rows.

common = {
    "hidden_layer_sizes": (64, 64),
    "dropout": 0.0,
    "batch_size": 250,
    "learning_rate_init": 3e-3,
    "learning_rate": "cosine",
    "max_iter": 120,
    "n_iter_no_change": np.inf,
    "n_members": 4,
    "bagging": "cv",
    "random_state": 0,
}
models = {
    'loss="quantile"': MLPRegressor(loss="quantile", quantiles=QUANTILES, **common),
    'loss="gaussian_nll"': MLPRegressor(loss="gaussian_nll", **common),
}

# %%
# About 90 % of new rows should lie between the 5 % and the 95 % quantile. ``predict_interval``
# corrects the distance of the quantiles by the errors for rows that networks were not trained on.

bands = {}
for title, model in models.items():
    model.fit(X, y)
    low, _, high = model.predict(X_test, quantiles=QUANTILES).T
    inside = ((low <= y_test) & (y_test <= high)).mean()
    print(f"{title}: {inside:.1%} of new rows lie between the 5 % and the 95 % quantile")
    low, high = model.predict_interval(X_test, coverage=0.9).T
    inside = ((low <= y_test) & (y_test <= high)).mean()
    print(f"{title}: {inside:.1%} of new rows lie in their conformal 90 % interval")
    bands[title] = model.predict(grid, quantiles=QUANTILES)

# %%
# With ``"gaussian_nll"``, ``predict`` can return the standard deviation. It should be close to that
# of the simulation.

mean, std = models['loss="gaussian_nll"'].predict([[1.0], [9.0]], return_std=True)
for x, m, s in zip((1.0, 9.0), mean, std, strict=True):
    print(f"at x = {x:g}: {m:.2f} +- {s:.2f}, true {np.sin(x):.2f} +- {0.05 + 0.08 * x:.2f}")

# %%
# The picture shows the intervals of both models.


def draw(bands: dict[str, np.ndarray], grid: np.ndarray, X: np.ndarray, y: np.ndarray) -> Figure:
    """Draw one panel per model: the data, and its 5 %, 50 % and 95 % quantiles."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, len(bands), sharey=True)
    for axes, (title, band) in zip(panels, bands.items(), strict=True):
        axes.scatter(X[:, 0], y, s=4, color="0.6", linewidths=0, label="training rows")
        axes.fill_between(
            grid[:, 0], band[:, 0], band[:, 2], color="#0072B2", alpha=0.2, linewidth=0,
            label="5 % to 95 %",
        )  # fmt: skip
        axes.plot(grid[:, 0], band[:, 1], color="#0072B2", label="50 %")
        axes.plot(grid[:, 0], np.sin(grid[:, 0]), color="black", linestyle="--", label="sin(x)")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("x")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("y")
    panels[0].legend(frameon=False, fontsize=8, loc="lower left")
    return figure


draw(bands, grid, X, y).savefig("quantiles_and_uncertainty.png", dpi=100)
