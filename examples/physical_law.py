"""Fit the constants of a known physical law
=========================================

You know the form of a law, but not its constants. Turn a guess into a network, fit it, and read
the constants back.

::

    python examples/physical_law.py

Writes physical_law.png. Needs SymPy: pip install sympy.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from combutab import MLPRegressor, paper_recipe
from combutab.constructions import ConstructedNetwork, expression_network

# %%
# The law is Kepler's third: ``period = axis**1.5 / mass**0.5``, in years, astronomical units and
# solar masses. The guess has wrong constants. ``DOMAIN`` is the range in which the formula must
# hold, with some margin.

GUESS = "0.7 * axis**1.2 * mass**(-0.2)"
DOMAIN = {"axis": (0.05, 100), "mass": (0.1, 10)}
OURS = pd.DataFrame(
    {"axis": [0.387, 0.723, 1.0, 1.524, 5.203, 9.537, 19.19, 30.07], "mass": 1.0},
    index=["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"],
)
PERIODS = np.array([0.241, 0.615, 1.0, 1.881, 11.86, 29.45, 84.02, 164.8])
STYLES = {
    "guess": {"color": "0.45", "linestyle": ":"},
    "plain networks": {"color": "#D55E00", "linestyle": "--"},
    "guess, all weights fitted": {"color": "#0072B2", "linestyle": "-"},
    "guess, constants fitted": {"color": "#009E73", "linestyle": "-."},
}

# %%
# The training rows are 200 simulated planets with axes up to 5 astronomical units. The test rows
# include our own planets, with axes up to 30. They show how well each model extrapolates.


def make_planets(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Simulate planets of other stars; the periods have errors of 5 %."""
    rng = np.random.default_rng(seed)
    axis, mass = np.exp(rng.uniform(np.log(0.1), np.log(5.0), n_rows)), rng.uniform(0.5, 2, n_rows)
    period = axis**1.5 / mass**0.5
    return pd.DataFrame({"axis": axis, "mass": mass}), period * rng.normal(1.0, 0.05, n_rows)


X, y = make_planets(n_rows=200, seed=0)

# %%
# First way: use the guess as the start of an estimator, and fit all its weights. The fit may then
# change the form of the law. Networks that start from random weights are the baseline. Sample
# weights make the errors relative to the period.

common = {"solver": "lbfgs", "dropout": 0, "precision": "float64", "max_iter": 2000}
guess = expression_network(GUESS, DOMAIN)
common = paper_recipe("regression", **common, random_state=0)  # networks that `init` works for
tuned = MLPRegressor(**common | {"init": guess})
plain = MLPRegressor(**common | {"hidden_layer_sizes": (16, 16), "n_members": 3})
for model in (tuned, plain):
    model.fit(X, y, sample_weight=1 / y**2)

# %%
# Second way: fit only the three constants of the law, with torch. The network has three parts:
# logarithms, which contain no constants, their sum with the exponents as weights, and its
# exponential.


def fit_constants(X: pd.DataFrame, y: np.ndarray) -> ConstructedNetwork:
    """Fit the exponents and the scale of the guess; all other weights are fixed."""
    network = expression_network(GUESS, DOMAIN).requires_grad_(False)
    exponents = network.layers[2].requires_grad_(True)
    optimizer = torch.optim.LBFGS(exponents.parameters(), line_search_fn="strong_wolfe")
    inputs, periods = torch.tensor(X.to_numpy()), torch.tensor(y)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        error = (network(inputs).squeeze(-1) / periods - 1).square().mean()
        error.backward()
        return error

    for _ in range(5):  # 20 iterations each
        optimizer.step(loss)
    return network.requires_grad_(False)


law = fit_constants(X, y)

# %%
# Compare the errors of all models, in the range of the training rows and for the three outermost
# planets.


def evaluate(network: ConstructedNetwork, X: pd.DataFrame) -> np.ndarray:
    return network(torch.tensor(X.to_numpy())).numpy(force=True).ravel()


axis = np.geomspace(0.1, 35, 200)
grid = pd.DataFrame({"axis": axis, "mass": 1.0})
curves = {}
print("error of the period:    training range  Saturn  Uranus  Neptune")
for name, predict in {
    "guess": lambda rows: evaluate(guess, rows),
    "plain networks": plain.predict,
    "guess, all weights fitted": tuned.predict,
    "guess, constants fitted": lambda rows: evaluate(law, rows),
}.items():
    new, _ = make_planets(n_rows=1000, seed=1)
    inside = np.abs(predict(new) / (new["axis"] ** 1.5 / new["mass"] ** 0.5) - 1).mean()
    beyond = (predict(OURS) / PERIODS - 1)[-3:]
    print(f"{name:25}  {inside:12.1%}", *(f"{error:7.0%}" for error in beyond))
    curves[name] = predict(grid)

# %%
# Read the constants back from the weights. The last unit of the layer is the exponential.


def read_back(network: ConstructedNetwork) -> str:
    """Return the formula of a network that has the form of the guess."""
    of_axis, of_mass = network.layers[2].weight[-1].tolist()
    ones = pd.DataFrame({"axis": [1.0], "mass": [1.0]})
    return f"{evaluate(network, ones).item():.3f} * axis**{of_axis:.3f} * mass**({of_mass:.3f})"


print(f"guessed:   period = {GUESS}")
print(f"read back: period = {read_back(law)}")
print("true:      period = 1 * axis**1.5 * mass**(-0.5)")

# %%
# The picture shows the periods and the errors. The grey area is extrapolation.


def draw(X: pd.DataFrame, y: np.ndarray, curves: dict[str, np.ndarray], axis: np.ndarray) -> Figure:
    """Draw the periods around a star like the sun, and the errors of the models."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter(X["axis"], y * X["mass"] ** 0.5, s=10, color="0.65", label="200 training rows")
    left.scatter(OURS["axis"], PERIODS, s=30, color="black", marker="D", label="our planets")
    for name, curve in curves.items():
        left.plot(axis, curve, **STYLES[name])
        right.plot(axis, 100 * (curve / axis**1.5 - 1), label=name, **STYLES[name])
    left.set_yscale("log")
    left.set_ylabel("period in years, one solar mass")
    left.legend(frameon=False, loc="upper left")
    right.set_ylim(-75, 40)
    right.set_ylabel("error of the period in %")
    right.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    right.legend(frameon=False, loc="lower left")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks([0.1, 1, 5, 30], ["0.1", "1", "5", "30"])
        axes.minorticks_off()
        axes.set_xlabel("distance (semi-major axis) in astronomical units")
        axes.axvspan(5, axis[-1], color="0.95", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    right.text(5.3, 38, "beyond the\ntraining rows", va="top", color="0.35", fontsize=9)
    return figure


draw(X, y, curves, axis).savefig("physical_law.png", dpi=100)
