"""Fits on two real worker processes of Ray, in a process of their own: Ray changes joblib's pools.

Prints one line for each thing that is so.
"""

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import psutil
import ray
from ray.util.joblib import register_ray
from sklearn.base import clone

from combutab import MLPClassifier, _parallel, paper_recipe
from combutab.estimators import FitTask, fit_stacked
from combutab.estimators.fitting import _stacks
from tests.model_selection.killers import Killer

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
Y = (X[:, 0] - X[:, 1] > 0).astype(int)
SETTINGS = {"hidden_layer_sizes": (6,), "max_iter": 3, "n_iter_no_change": np.inf}
NET = MLPClassifier(**paper_recipe("classification", **SETTINGS), random_state=0)


def tasks(*activations, epochs=3):
    estimators = [
        clone(NET).set_params(activation=activation, random_state=seed, max_iter=epochs)
        for activation in activations
        for seed in range(2)
    ]
    return [FitTask(estimator, X, Y, data_key=0) for estimator in estimators]


def weights(tasks):
    return [np.concatenate([w.ravel() for w in task.estimator.coefs_]) for task in tasks]


def actors():
    """Worker processes that a backend has started."""
    names = [child.name() for child in psutil.Process().children(recursive=True)]
    return [name for name in names if "PoolActor" in name]


def main():
    _stacks._STACK_UNITS["cpu"] = 1000  # more stacks than workers
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    put, original = [], ray.put

    def counting(value, *arguments, **options):
        put.append(value)
        return original(value, *arguments, **options)

    rounds, results = [], _parallel._results

    def counted(*arguments):  # workers are started anew for tasks that were lost all the same
        rounds.append(arguments)
        return results(*arguments)

    ray.put, _parallel._results = counting, counted
    mark = Path(sys.argv[1]) / "killed"
    activations = ["tanh", Killer(mark, os.getpid()), "relu", "gelu"]
    there, here, progress = tasks(*activations), tasks(*activations), []
    with joblib.parallel_config(backend="ray"):
        fit_stacked(there, on_progress=progress.append)
    fit_stacked(here, n_jobs=1)
    print("killed", mark.exists())
    print("same", all(map(np.array_equal, weights(there), weights(here))))
    print("as they are done", progress == sorted(progress) and len(progress) > 2)
    tables = Counter(each.tobytes() for each in put if isinstance(each, np.ndarray))
    once = 0 < max(tables.values()) <= len(rounds) < len(progress)
    print("each table once", once and X.size * 4 in map(len, tables))
    print(tables.values(), len(rounds), len(progress), file=sys.stderr)

    long = tasks("tanh", "relu", "gelu", epochs=1_000_000)
    for task in long[:2]:
        task.estimator.max_iter = 1
    try:
        with joblib.parallel_config(backend="ray"):
            fit_stacked(long, on_fitted=lambda _: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        end = time.monotonic() + 60
        while actors() and time.monotonic() < end:
            time.sleep(0.1)
        print("interrupted and ended", not actors())
    ray.shutdown()


if __name__ == "__main__":
    main()
