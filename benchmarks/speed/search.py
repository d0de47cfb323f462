"""Seconds of a grid search over 7 activations x 5 folds, compared with GridSearchCV.

``StackedGridSearchCV`` is compared with scikit-learn's ``GridSearchCV`` over (a) the same
estimator, (b) scikit-learn's MLP and (c) a skorch module, on two data sets of the CombU paper, with
200 epochs and one process for each core. Each search runs in a fresh interpreter: "first" includes
the start of joblib's processes, "again" is a second search in the same interpreter. scikit-learn's
MLP has other activations and no dropout, so its seven candidates are ReLU with seven seeds.

    python -m benchmarks.speed.search [--quick] [--epochs 200] [--data-home FOLDER]
        [--out benchmarks/speed/results]
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from joblib import cpu_count
from scipy.stats import zscore
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier as SklearnClassifier
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed import peers
from benchmarks.speed.common import DATA_HOME, begin, block, call_apart, in_turns, wall, write
from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.datasets import load_openml
from combutab.preprocessing import TableEncoder

ACTIVATIONS = ["relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"]
HIDDEN, DROPOUT = (128, 128), 0.1
DATA = {"diabetes": "classification", "boston": "regression"}
SEARCHES = (
    "StackedGridSearchCV",
    "StackedGridSearchCV, one process",
    "(a) GridSearchCV, same estimator",
    "(b) GridSearchCV, scikit-learn's MLP",
    "(c) GridSearchCV, skorch",
)


def search(
    name: str, task: str, X: Any, y: Any, epochs: int, n_jobs: int
) -> tuple[GridSearchCV, Any, Any]:
    """Make a search and its rows, which are encoded and scaled for other packages."""
    classify = task == "classification"
    options = {"cv": 5, "refit": False, "n_jobs": None if "one process" in name else n_jobs}
    if name in SEARCHES[:3]:
        parameters = peers.fixed_epochs(task, HIDDEN, epochs, dropout=DROPOUT, random_state=0)
        ours = (MLPClassifier if classify else MLPRegressor)(**parameters)
        kind = GridSearchCV if name.startswith("(a)") else StackedGridSearchCV
        return kind(ours, {"activation": ACTIVATIONS}, **options), X, y
    matrix = np.asarray(TableEncoder().fit_transform(pd.DataFrame(X)), dtype=np.float32)
    target = np.unique(y, return_inverse=True)[1] if classify else zscore(y).astype(np.float32)
    if name.startswith("(b)"):
        parameters = peers.fixed_epochs_sklearn(HIDDEN, epochs, len(X) * 4 // 5)
        sklearn = (SklearnClassifier if classify else SklearnRegressor)(**parameters)
        grid = {"random_state": list(range(len(ACTIVATIONS)))}
        return GridSearchCV(sklearn, grid, **options), matrix, target
    kind = "NeuralNetClassifier" if classify else "NeuralNetRegressor"
    shape = matrix.shape[1], HIDDEN, 2 if classify else 1
    net = peers.skorch_net(kind, epochs, *shape, activation="relu", dropout=DROPOUT)
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
    run = partial(call_apart, "benchmarks.speed.search:search_twice", data, *rest, here=here)
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


def main() -> None:
    arguments = begin(__doc__, epochs=200, repeats=3, data_home=DATA_HOME)
    quick = arguments.quick
    rest = arguments.repeats, 3 if quick else arguments.epochs, quick, arguments.data_home
    tables = [measure(name, *rest, here=quick) for name in list(DATA)[: 1 if quick else 2]]
    table = pd.concat(tables, ignore_index=True)
    page = block(table, index=False)
    write(arguments, "speed_search", table, page, index=False)


if __name__ == "__main__":
    main()
