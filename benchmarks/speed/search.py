"""A grid search over 7 activations x 5 folds: ours as stacks against GridSearchCV's single fits.

``StackedGridSearchCV`` against scikit-learn's ``GridSearchCV`` over (a) the same estimator, (b)
scikit-learn's MLP and (c) a skorch module, all with as many processes as there are cores, on two
data sets of the CombU paper, 200 epochs. Each search runs in a fresh interpreter: "first" is what
a script pays, with the start of joblib's processes, "again" what the next search in the same
interpreter does. scikit-learn's MLP knows other activations and no dropout: its seven candidates
are ReLU with seven seeds.

What do Dask and Ray cost a search of 7 activations x 5 folds x 5 seeds? ``StackedGridSearchCV`` on
one process, on two threads, and on two worker processes of Dask and of Ray, all on this machine and
each in a fresh interpreter with one torch thread. The first search warms up: it pays for Dask's
workers' imports; Ray starts its workers anew for every search. "overhead" is what a search took
beyond its share of the serial time, over the serial time; that of the threads is what two cores
lack of two computers, whatever the engine. Tasks, stacks of fits, are to take a second or more:
raise --epochs where they do not. All scores must be equal bit for bit.

    python -m benchmarks.speed.search [--quick] [--parts search clusters] [--epochs 200]
        [--data-home FOLDER] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import statistics
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import cpu_count, parallel_config
from joblib._parallel_backends import ThreadingBackend
from scipy.stats import zscore
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier as SklearnClassifier
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed import peers
from benchmarks.speed.common import DATA_HOME, block, call_apart, in_turns, run_parts, wall, write
from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.datasets import load_openml
from combutab.preprocessing import TableEncoder

ACTIVATIONS = ["relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"]
NETWORK = {"hidden": (128, 128), "dropout": 0.1, "device": "cpu"}
DATA = {"diabetes": "classification", "boston": "regression"}
WORKERS, BAR = 2, 0.1  # overhead at most
ENGINES = ("one process", "threads", "dask", "ray")
SEARCHES = (
    "StackedGridSearchCV",
    "StackedGridSearchCV, one process",
    "(a) GridSearchCV, same estimator",
    "(b) GridSearchCV, scikit-learn's MLP",
    "(c) GridSearchCV, skorch",
)


def search(
    name: str, task: str, X: Any, y: Any, epochs: int, seeds: int = 1, **options: Any
) -> tuple[GridSearchCV, Any, Any]:
    """A search and its rows; the others get a matrix that is encoded and scaled already.

    ``options`` are those of `NETWORK`, and the search's.
    """
    hidden, dropout, device = (options.pop(key, usual) for key, usual in NETWORK.items())
    classify = task == "classification"
    options = {"cv": 5, "refit": False, **options}
    if "one process" in name:
        options["n_jobs"] = None
    if name in SEARCHES[:3]:
        settings = {"dropout": dropout, "random_state": 0, "device": device}
        parameters = peers.fixed_epochs(task, hidden, epochs, **settings)
        ours = (MLPClassifier if classify else MLPRegressor)(**parameters)
        kind = GridSearchCV if name.startswith("(a)") else StackedGridSearchCV
        grid = {"activation": ACTIVATIONS, "random_state": list(range(seeds))}
        return kind(ours, grid, **options), X, y
    matrix = np.asarray(TableEncoder().fit_transform(pd.DataFrame(X)), dtype=np.float32)
    target = np.unique(y, return_inverse=True)[1] if classify else zscore(y).astype(np.float32)
    if name.startswith("(b)"):
        parameters = peers.fixed_epochs_sklearn(hidden, epochs, len(X) * 4 // 5)
        sklearn = (SklearnClassifier if classify else SklearnRegressor)(**parameters)
        grid = {"random_state": list(range(len(ACTIVATIONS)))}
        return GridSearchCV(sklearn, grid, **options), matrix, target
    kind = "NeuralNetClassifier" if classify else "NeuralNetRegressor"
    shape = matrix.shape[1], hidden, 2 if classify else 1
    module = {"activation": "relu", "dropout": dropout, "device": device}
    net = peers.skorch_net(kind, epochs, *shape, **module)
    target = target if classify else np.asarray(target)[:, None]
    return GridSearchCV(net, {"module__activation": ACTIVATIONS}, **options), matrix, target


def search_twice(data: str, epochs: int, quick: bool, home: str | None, name: str) -> Any:
    """One search in this interpreter, twice: seconds and scores; quick: of synthetic rows."""
    warnings.filterwarnings("ignore")
    if quick:
        X, y = make_classification(200, 8, random_state=0)
    else:
        loaded = load_openml(data, data_home=home)
        X, y = loaded.X, loaded.y
    found, *table = search(name, DATA[data], X, y, epochs, n_jobs=1 if quick else cpu_count())
    seconds = [wall(partial(found.fit, *table)) for _ in range(2)]
    return {"seconds": seconds, "scores": found.cv_results_["mean_test_score"].tolist()}


def measure(data: str, repeats: int, *rest: Any, here: bool) -> pd.DataFrame:
    """Medians over the repeats, which take turns."""
    run = partial(call_apart, search_twice, data, *rest, here=here)
    runs = {name: partial(run, name) for name in SEARCHES}
    found = in_turns(runs, repeats, warm_up=0)
    table = pd.DataFrame({"data": data, "search": SEARCHES})
    for i, column in enumerate(("first", "again")):
        taken = np.median([[r["seconds"][i] for r in found[name]] for name in SEARCHES], axis=1)
        table[column] = taken
        table[f"{column} / ours"] = taken / min(taken[:2])  # the better way to run ours
    ours, same = (np.array(found[SEARCHES[i]][-1]["scores"]) for i in (0, 2))
    table.loc[2, "largest difference of scores"] = np.abs(ours - same).max()
    return table


class Counted(ThreadingBackend):
    """joblib's threads; counts the tasks of all searches."""

    n_tasks = 0

    def submit(self, func: Any, callback: Any = None) -> Any:
        type(self).n_tasks += 1
        return super().submit(func, callback)


@contextmanager
def engine(name: str, quick: bool) -> Iterator[int | None]:
    """Set up an engine's workers in joblib's context; yields the search's n_jobs."""
    if name == "dask":
        from distributed import Client, LocalCluster

        sizes: dict[str, Any] = {"n_workers": WORKERS, "threads_per_worker": 1}
        cluster = LocalCluster(**sizes, processes=not quick, dashboard_address=":0")
        with cluster, Client(cluster), parallel_config(backend="dask"):
            yield None
    elif name == "ray":
        import ray
        from ray.util.joblib import register_ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        register_ray()
        with parallel_config(backend="ray", n_jobs=WORKERS):
            yield None
        ray.shutdown()
    elif name == "threads":
        with parallel_config(backend=Counted()):
            yield WORKERS
    else:
        yield 1


def by_engine(name: str, epochs: int, repeats: int, quick: bool) -> dict[str, Any]:
    """An engine's median seconds of a search without the first, and the scores of the last."""
    torch.set_num_threads(1)
    Counted.n_tasks = 0
    X, y = make_classification(200 if quick else 2000, 20, n_informative=10, random_state=0)
    with engine(name, quick) as n_jobs:
        how = {"hidden": (64, 64), "seeds": 1 if quick else 5, "n_jobs": n_jobs, "dropout": 0.0}
        found, *table = search("StackedGridSearchCV", "classification", X, y, epochs, **how)
        seconds = [wall(lambda: found.fit(*table)) for _ in range(1 + repeats)]
    names = [f"split{fold}_test_score" for fold in range(found.n_splits_)]
    scores = [float(s).hex() for name in names for s in found.cv_results_[name]]
    n_tasks = Counted.n_tasks // len(seconds)  # of threads; all engines are given the same
    return {"seconds": statistics.median(seconds[1:]), "scores": scores, "tasks": n_tasks}


def searches(arguments: Namespace) -> None:
    quick = arguments.quick
    rest = arguments.repeats, 3 if quick else arguments.epochs, quick, arguments.data_home
    tables = [measure(name, *rest, here=quick) for name in list(DATA)[: 1 if quick else 2]]
    table = pd.concat(tables, ignore_index=True)
    page = block(table.round(4), index=False, na_rep="")
    write(arguments.out, "speed_search", table, page, index=False)


def clusters(arguments: Namespace) -> None:
    quick, epochs = arguments.quick, 1 if arguments.quick else arguments.epochs
    names = ENGINES[: 3 if quick else 4]  # Ray takes long to start
    rest = epochs, arguments.repeats, quick
    taken = {name: call_apart(by_engine, name, *rest, here=quick) for name in names}
    serial, scores, _ = taken[names[0]].values()
    n_tasks, rows = taken["threads"]["tasks"], []
    for name, (seconds, found, _) in ((name, own.values()) for name, own in taken.items()):
        overhead = seconds / serial - (1 if name == names[0] else 1 / WORKERS)
        row = {"engine": name, "seconds": seconds, "times as fast": serial / seconds}
        row |= {"overhead": overhead, "same scores": found == scores}
        rows.append(row | {"fits": len(scores), "tasks": n_tasks})
    table = pd.DataFrame(rows)
    missed = table["engine"][(table["overhead"] >= BAR) | ~table["same scores"]].iloc[1:]
    text = f"{n_tasks} tasks of {serial / n_tasks:.2f} s on average. The bar is {BAR:.0%} overhead "
    text += f"and the same scores; missed by: {', '.join(missed) or 'none'}.\n"
    title = f"7 activations x 5 folds x 5 seeds, epochs: {epochs}, workers: {WORKERS}"
    page = block(table.round(3), title, index=False)
    write(arguments.out, "speed_clusters", table, page, text, index=False)


def main() -> None:
    parts = {"search": searches, "clusters": clusters}
    options = {"epochs": 200, "repeats": 3, "data_home": DATA_HOME}
    run_parts(__doc__, "few rows and epochs, one repeat, without Ray", parts, **options)


if __name__ == "__main__":
    main()
