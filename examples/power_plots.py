"""A deep network learns nothing
=============================

Its layers say why, and what helps.

::

    python examples/power_plots.py [--out FOLDER]

Twenty layers on scikit-learn's digits. After layer normalisation the power of the channels goes
over to P1, which is the same for all inputs: the network cannot tell them apart any more. A proxy
normalisation after each activation, or batch normalisation, keeps it in P2, which differs between
inputs. (At a third of this learning rate the first network learns too.) Writes
FOLDER/power_plots.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from combutab import MLPClassifier, paper_recipe
from combutab.evaluation import power_decomposition
from combutab.plotting import plot_power

NETWORKS = {
    "layer norm": {"normalization": "layer"},
    "layer norm + proxy norm": {"normalization": "layer", "proxy_norm": True},
    "batch norm": {"normalization": "batch"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
    powers = {}
    for name, parameters in NETWORKS.items():
        settings = paper_recipe(
            "classification",
            hidden_layer_sizes=(64,) * 20,
            activation="relu",
            dropout=0,
            batch_size=128,
            learning_rate_init=3e-3,
            max_iter=15,
            n_iter_no_change=np.inf,
            random_state=0,
            **parameters,
        )
        model = MLPClassifier(**settings).fit(X_train, y_train)
        power = power_decomposition(model, X_test)
        accuracy, last = model.score(X_test, y_test), power.iloc[-1]
        print(f"{name}: accuracy {accuracy:.2f}; P1 takes {last['P1'] / last['P']:.0%} in the end")
        powers[f"{name}: accuracy {accuracy:.2f}"] = power
    plot_power(powers).savefig(out / "power_plots.png", dpi=100)


if __name__ == "__main__":
    main()
