"""What Dask and Ray cost: a search of 7 activations x 5 folds x 5 seeds by each of them.

``StackedGridSearchCV`` on one process, on two threads, and on two worker processes of Dask and of
Ray, all on this machine and each in a fresh interpreter with one torch thread. The first search
warms up: it is Dask's workers' imports; Ray's backend starts its workers anew for every search.
"overhead" is what a search took beyond its share of the serial time, over the serial time: that of
the threads is what two cores lack of two computers, and no engine's. A task is a stack of fits; the
bar is for tasks of a second or more, for which --epochs is to be large enough: the page says how
long they are. All scores must be the same bit for bit.

    python -m benchmarks.speed.clusters [--quick] [--epochs 300] [--repeats 1]
        [--out benchmarks/speed/results]
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import parallel_config
from joblib._parallel_backends import ThreadingBackend
from sklearn.datasets import make_classification

from benchmarks.speed.common import begin, block, call_apart, wall, write
from combutab import MLPClassifier, StackedGridSearchCV, paper_recipe

WORKERS = 2
BAR, LONG = 0.1, 1.0  # overhead at most, of tasks of so many seconds
ENGINES = ("one process", "threads", "dask", "ray")
ACTIVATIONS = ("relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu")


class Counted(ThreadingBackend):
    """joblib's threads; counts the tasks."""

    n_tasks = 0  # of all searches

    def submit(self, func: Any, callback: Any = None) -> Any:
        type(self).n_tasks += 1
        return super().submit(func, callback)


@contextmanager
def engine(name: str, quick: bool) -> Iterator[int | None]:
    """An engine's workers, for joblib's context; gives the search's n_jobs."""
    if name == "dask":
        from distributed import Client, LocalCluster

        sizes: dict[str, Any] = {"n_workers": WORKERS, "threads_per_worker": 1}
        with (
            LocalCluster(**sizes, processes=not quick, dashboard_address=":0") as cluster,
            Client(cluster),
            parallel_config(backend="dask"),
        ):
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
        Counted.n_tasks = 0
        with parallel_config(backend=Counted()):
            yield WORKERS
    else:
        yield 1


def run_one(name: str, epochs: int, repeats: int, quick: bool) -> dict[str, Any]:
    """An engine's seconds for each search but the first, and the scores of the last."""
    torch.set_num_threads(1)
    X, y = make_classification(200 if quick else 2000, 20, n_informative=10, random_state=0)
    settings = {"hidden_layer_sizes": (64, 64), "max_iter": epochs, "n_iter_no_change": np.inf}
    net = MLPClassifier(**paper_recipe("classification", **settings))
    grid = {"activation": list(ACTIVATIONS), "random_state": list(range(1 if quick else 5))}
    with engine(name, quick) as n_jobs:
        search = StackedGridSearchCV(net, grid, cv=5, refit=False, n_jobs=n_jobs)
        seconds = [wall(lambda: search.fit(X, y)) for _ in range(1 + repeats)]
    columns = [f"split{fold}_test_score" for fold in range(5)]
    scores = np.stack([search.cv_results_[column] for column in columns])
    return {
        "seconds": seconds[1:],
        "scores": [float(s).hex() for s in scores.ravel()],
        "tasks": Counted.n_tasks // len(seconds),  # of threads; all engines are given the same
    }


def measure(epochs: int, repeats: int, quick: bool) -> pd.DataFrame:
    """A row an engine: median seconds, and what follows from them."""
    names = [name for name in ENGINES if not (quick and name == "ray")]  # it takes long to start
    found = {n: call_apart(run_one, n, epochs, repeats, quick, here=quick) for n in names}
    seconds = {name: statistics.median(each["seconds"]) for name, each in found.items()}
    serial = seconds["one process"]
    rows = []
    for name in names:
        share = serial if name == "one process" else serial / WORKERS
        rows.append(
            {
                "engine": name,
                "seconds": seconds[name],
                "times as fast": serial / seconds[name],
                "overhead": (seconds[name] - share) / serial,
                "same scores": found[name]["scores"] == found["one process"]["scores"],
                "fits": len(found[name]["scores"]),
                "tasks": found["threads"]["tasks"],
            }
        )
    return pd.DataFrame(rows)


def judge(table: pd.DataFrame) -> str:
    """Say of each engine whether its overhead is below the bar, if the tasks are long enough."""
    found, n_tasks = table.set_index("engine"), table["tasks"].iloc[0]
    task = found.loc["one process", "seconds"] / n_tasks
    lines = [f"Tasks: {n_tasks}, of {task:.2f} seconds on average."]
    for name in found.index.difference(["one process", "threads"]):
        overhead, same = found.loc[name, ["overhead", "same scores"]]
        if task < LONG:
            verdict = f"tasks are too short to judge by, raise --epochs to {LONG / task:.1f} times"
        else:
            verdict = "met" if overhead < BAR and same else "missed"
        lines.append(
            f"{name}: overhead {overhead:.1%} of the serial time (threads "
            f"{found.loc['threads', 'overhead']:.1%}), scores {'the same' if same else 'differ'}; "
            f"the bar of {BAR:.0%}: {verdict}."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = begin(__doc__, "35 fits of an epoch, without Ray", epochs=300, repeats=1)
    quick = arguments.quick
    epochs = 1 if quick else arguments.epochs
    table = measure(epochs, arguments.repeats, quick)
    title = f"7 activations x 5 folds x 5 seeds, epochs: {epochs}, workers: {WORKERS}"
    parts = [block(table.round(3), title, index=False), judge(table)]
    write(arguments.out, "speed_clusters", table, *parts, index=False)


if __name__ == "__main__":
    main()
