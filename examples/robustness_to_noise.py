"""Robustness to noise
===================

How wrong may the rows be before the predictions are? And what helps?

::

    python examples/robustness_to_noise.py [--out FOLDER]

Networks and a random forest on scikit-learn's digits as a table of 64 numbers, scored on the same
rows with noise, other units, values cut off, rounded or missing. Writes
FOLDER/robustness_to_noise.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from combutab import MLPClassifier
from combutab.evaluation import corrupt, robustness
from combutab.plotting import plot_robustness


def make_network(activation: str) -> MLPClassifier:
    return MLPClassifier(
        hidden_layer_sizes=(64,),
        activation=activation,
        n_members=5,  # five networks trained as one stack, whose predictions are averaged
        learning_rate_init=3e-3,
        max_iter=30,
        n_iter_no_change=np.inf,
        random_state=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    X, y = load_digits(return_X_y=True, as_frame=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.4, stratify=y, random_state=0
    )
    # the training rows once more, with noise; and again, with extreme values cut off
    noisy = [corrupt(X_train, way, severity=4) for way in ("gaussian_noise", "clipping")]
    models = {
        "ReLU": make_network("relu").fit(X_train, y_train),
        "LA-SiLU": make_network("la-silu").fit(X_train, y_train),
        "ReLU, wrong rows in training": make_network("relu").fit(
            pd.concat([X_train, *noisy]), pd.concat([y_train] * 3)
        ),
        "random forest": RandomForestClassifier(random_state=0).fit(X_train, y_train),
    }
    found = robustness(models, X_test, y_test, X_reference=X_train)  # any fitted estimators
    print(found.summary.round(3).to_string(index=False))
    worst = found.scores.loc[found.scores.groupby("estimator", sort=False)["score"].idxmin()]
    for row in worst.itertuples():
        print(f"{row.estimator}: worst is {row.corruption} {row.severity}, {row.score:.2f}")
    plot_robustness(found).savefig(out / "robustness_to_noise.png", dpi=100)


if __name__ == "__main__":
    main()
