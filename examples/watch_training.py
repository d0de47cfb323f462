"""Watch the training
==================

With scikit-learn's callbacks (of its version 1.9): bars through a search, and a score after each
epoch. And the losses, in a figure of one's own.

::

    python examples/watch_training.py [--out FOLDER]

Writes FOLDER/watch_training.png: losses at three learning rates, and how many digits are right by
then.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from combutab import MLPClassifier
from combutab.plotting import LossCurveDisplay

RATES = [0.001, 0.005, 0.025]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, train_size=600, random_state=0)
    net = MLPClassifier(
        hidden_layer_sizes=(32,),
        numeric_embedding="none",
        batch_size=64,
        max_iter=12,
        n_iter_no_change=float("inf"),
        n_members=1,  # one curve; the default is two networks
        random_state=0,
    )

    # Bars: of the search, of each fit in it, and of the last one to all rows.
    search = GridSearchCV(net, {"learning_rate_init": RATES[1:]}, cv=2)
    search.set_callbacks(ProgressBar()).fit(X, y)
    print(f"best: {search.best_params_}, accuracy {search.score(X_test, y_test):.3f}")

    # A score after each epoch, of the network as it would be if training ended there.
    figure = Figure(figsize=(9.2, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    fitted = {}
    for rate in RATES:
        name, monitor = f"rate {rate:g}", ScoringMonitor(scoring="accuracy")
        fitted[name] = MLPClassifier(**net.get_params()).set_params(learning_rate_init=rate)
        fitted[name].set_callbacks(monitor).fit(X, y)
        log = monitor.get_logs().data_as_pandas
        epochs = log[log["task_name"] == "epoch"]
        print(f"{name}: accuracy {epochs['accuracy'].round(2).tolist()}")
        right.plot(epochs["task_id"] + 1, epochs["accuracy"], marker="o", markersize=4, label=name)

    display = LossCurveDisplay.from_estimator(fitted, ax=left)
    for line, other in zip(right.lines, display.ax_.get_legend().get_lines(), strict=False):
        line.set_color(other.get_color())
    right.set_xlabel("epoch")
    right.set_ylabel("accuracy on the training rows")
    right.spines[["top", "right"]].set_visible(False)
    right.grid(axis="y", color="0.92", linewidth=0.8)
    figure.savefig(out / "watch_training.png", dpi=100)


if __name__ == "__main__":
    main()
