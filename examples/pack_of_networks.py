"""One network or a pack of many
=============================

What does an ensemble gain, and which activations does it choose?

::

    python examples/pack_of_networks.py [--out FOLDER]

Writes FOLDER/pack_of_networks.png: the weight of each network in the ensemble, and its loss alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from combutab import MLPRegressor, PackRegressor
from combutab.plotting import PackDisplay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the file")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    X, y = make_friedman1(n_samples=800, noise=1.0, random_state=0)  # five of ten inputs matter
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    pack = PackRegressor(  # as little as shows it: the default is 16 members and 80 epochs
        n_members=6,
        max_iter=30,
        max_time="2min",  # ends the training if it takes longer
        random_state=0,
    )
    models = {
        "boosting": HistGradientBoostingRegressor(random_state=0),
        "one network": MLPRegressor(n_members=1, random_state=0),
        "pack": pack,
    }
    for name, model in models.items():
        print(f"{name}: R2 {model.fit(X_train, y_train).score(X_test, y_test):.3f}")

    chosen = pack.members_[pack.members_["weight"] > 0].sort_values("weight", ascending=False)
    columns = ["activation", "depth", "dropout", "validation_loss", "weight"]
    print(chosen[columns].round(3).to_string(index=False))
    print(f"weight by activation: {pack.activation_weights_.round(2).to_dict()}")
    display = PackDisplay.from_estimator(pack)
    display.figure_.savefig(out / "pack_of_networks.png", dpi=110)


if __name__ == "__main__":
    main()
