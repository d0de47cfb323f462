"""Fits on two real worker processes of Ray, in a process of their own: Ray changes joblib's pools.

Writes a file of what is so; Ray prints what it likes, and ends as it likes.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import joblib
import numpy as np
import psutil
import ray
from ray.util.joblib import register_ray
from sklearn.base import clone

from combutab import MLPClassifier, paper_recipe
from combutab.core import parallel
from combutab.estimators import FitTask, fit_stacked
from tests.model_selection.killers import Killer
from tests.short import small_stacks

TOO_BUSY = 75  # an exit code
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
    names = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has ended meanwhile
            names.append(child.name())
    return [name for name in names if "PoolActor" in name]


def start():
    """Start Ray, which gives up after half a minute on a busy machine: three times at most."""
    for again in (True, True, False):
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            if not again:
                sys.exit(TOO_BUSY)
            ray.shutdown()
        else:
            register_ray()
            return


def main():
    start()
    put, original = [], ray.put

    def counting(value, *arguments, **options):
        put.append(value)
        return original(value, *arguments, **options)

    rounds, results = [], parallel._results

    def counted(*arguments):  # workers are started anew for tasks that were lost all the same
        rounds.append(arguments)
        return results(*arguments)

    ray.put, parallel._results = counting, counted
    folder, found = Path(sys.argv[1]), {}
    mark = folder / "killed"
    activations = ["tanh", Killer(mark, os.getpid()), "relu", "gelu"]
    there, here, progress = tasks(*activations), tasks(*activations), []
    with joblib.parallel_config(backend="ray"):
        fit_stacked(there, on_progress=progress.append)
    fit_stacked(here, n_jobs=1)
    found["killed"] = mark.exists()
    found["same"] = all(map(np.array_equal, weights(there), weights(here)))
    found["as they are done"] = progress == sorted(progress) and len(progress) > 2
    tables = Counter(each.tobytes() for each in put if isinstance(each, np.ndarray))
    once = 0 < max(tables.values()) <= len(rounds) < len(progress)
    found["each table once"] = once and X.size * 4 in map(len, tables)
    print(tables.values(), len(rounds), len(progress))

    long = tasks("tanh", "relu", "gelu", epochs=1_000_000)
    for task in long[:2]:
        task.estimator.max_iter = 1
    try:
        with joblib.parallel_config(backend="ray"):
            fit_stacked(long, on_fitted=lambda _: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        end = time.monotonic() + 120
        while actors() and time.monotonic() < end:
            time.sleep(0.1)
        found["interrupted and ended"] = not actors()
    (folder / "found.json").write_text(json.dumps(found))
    ray.shutdown()


if __name__ == "__main__":
    with small_stacks():  # more stacks than workers
        main()
