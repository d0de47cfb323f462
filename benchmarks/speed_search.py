"""What does StackedGridSearchCV save over GridSearchCV with the same estimator?

The same grid (activations x learning rates), folds and seeds; scores must agree, seconds are
compared. ``GridSearchCV`` gets one process a core.

    python benchmarks/speed_search.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import cpu_count
from machine import describe_machine
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV

from combutab import MLPClassifier, StackedGridSearchCV

ACTIVATIONS = ["relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two activations, three epochs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for speed_search.csv")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    X, y = load_breast_cancer(return_X_y=True)
    epochs = 3 if arguments.quick else 50
    grid = {
        "activation": ACTIVATIONS[-2:] if arguments.quick else ACTIVATIONS,
        "learning_rate_init": [5e-4, 5e-3],
    }
    net = MLPClassifier(max_iter=epochs, n_iter_no_change=np.inf, random_state=0, device="cpu")
    searches = {
        "GridSearchCV, 1 process": lambda: GridSearchCV(net, grid, refit=False),
        f"GridSearchCV, {cpu_count()} processes": lambda: GridSearchCV(
            net, grid, refit=False, n_jobs=cpu_count()
        ),
        "StackedGridSearchCV, 1 process": lambda: StackedGridSearchCV(net, grid, refit=False),
        f"StackedGridSearchCV, {cpu_count()} processes": lambda: StackedGridSearchCV(
            net, grid, refit=False, n_jobs=cpu_count()
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    scores = {}
    for turn in range((1 if arguments.quick else arguments.repeats) + 1):
        for name, make in searches.items():
            started = time.perf_counter()
            search = make().fit(X, y)
            if turn:  # the first starts the processes
                seconds[name].append(time.perf_counter() - started)
            scores[name] = search.cv_results_["mean_test_score"]
    medians = pd.Series({n: statistics.median(s) for n, s in seconds.items()}, name="seconds")
    table = medians.to_frame()
    table["times faster than GridSearchCV, 1 process"] = medians.iloc[0] / medians
    reference = next(iter(scores.values()))
    table["largest difference of scores"] = [np.abs(s - reference).max() for s in scores.values()]
    print(describe_machine())
    print(f"\n{len(reference)} candidates x 5 folds, {len(X)} rows, {epochs} epochs:\n")
    print(table.round(4).to_string())
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        table.to_csv(arguments.out / "speed_search.csv", index_label="search")


if __name__ == "__main__":
    main()
