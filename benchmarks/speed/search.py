"""A grid search over 7 activations x 5 folds: ours as stacks against GridSearchCV's single fits.

``StackedGridSearchCV`` against scikit-learn's ``GridSearchCV`` over (a) the same estimator, (b)
scikit-learn's MLP and (c) a skorch module, all with as many processes as there are cores, on two
data sets of the CombU paper, 200 epochs. Each search runs in a fresh interpreter: "first" is what
a script pays, with the start of joblib's processes, "again" what the next search in the same
interpreter does. scikit-learn's MLP knows other activations and no dropout: its seven candidates
are ReLU with seven seeds.

    python -m benchmarks.speed.search [--quick] [--data-home FOLDER]
        [--out benchmarks/speed/results]
"""

from __future__ import annotations

import statistics
import warnings
from argparse import Namespace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from joblib import cpu_count
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier as SklearnClassifier
from sklearn.neural_network import MLPRegressor as SklearnRegressor
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler, scale

from benchmarks.speed import peers
from benchmarks.speed.common import DATA_HOME, begin, call_apart, in_turns, wall, write
from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.datasets import load_openml

ACTIVATIONS = ["relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"]
FOLDS, HIDDEN, DROPOUT = 5, (128, 128), 0.1
DATA = {"diabetes": "classification", "boston": "regression"}
SEARCHES = (
    "StackedGridSearchCV",
    "StackedGridSearchCV, one process",
    "(a) GridSearchCV, same estimator",
    "(b) GridSearchCV, scikit-learn's MLP",
    "(c) GridSearchCV, skorch",
)


def load(name: str, quick: bool, data_home: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """One of the two sets; quick: a synthetic one of 200 rows."""
    if quick:
        make = make_classification if DATA[name] == "classification" else make_regression
        X, y = make(200, 8, random_state=0)
        return pd.DataFrame(X), pd.Series(y)
    data = load_openml(name, data_home=data_home)
    return data.X, data.y


def search(
    data: str, name: str, X: pd.DataFrame, y: pd.Series, epochs: int, n_jobs: int
) -> tuple[GridSearchCV, Any, Any]:
    """A search and its rows; the others get a matrix that is encoded and scaled already."""
    classify = DATA[data] == "classification"
    common = {"cv": FOLDS, "refit": False, "n_jobs": None if "one process" in name else n_jobs}
    if name in SEARCHES[:3]:
        settings = {"dropout": DROPOUT, "random_state": 0}
        parameters = peers.fixed_epochs(DATA[data], HIDDEN, epochs, **settings)
        ours = (MLPClassifier if classify else MLPRegressor)(**parameters)
        kind = GridSearchCV if name.startswith("(a)") else StackedGridSearchCV
        return kind(ours, {"activation": ACTIVATIONS}, **common), X, y
    matrix = make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_include="category")),
        remainder=StandardScaler(),
    ).fit_transform(X)
    matrix = matrix.astype(np.float32)
    target = LabelEncoder().fit_transform(y) if classify else scale(y).astype(np.float32)
    if name.startswith("(b)"):
        n_rows = len(X) * (FOLDS - 1) // FOLDS
        parameters = peers.fixed_epochs_sklearn(HIDDEN, epochs, n_rows)
        sklearn = (SklearnClassifier if classify else SklearnRegressor)(**parameters)
        grid = {"random_state": list(range(len(ACTIVATIONS)))}
        return GridSearchCV(sklearn, grid, **common), matrix, target
    kind = "NeuralNetClassifier" if classify else "NeuralNetRegressor"
    shape = matrix.shape[1], HIDDEN, 2 if classify else 1
    net = peers.skorch_net(kind, epochs, *shape, activation="relu", dropout=DROPOUT)
    labels = target.astype(np.int64) if classify else target[:, None]
    return GridSearchCV(net, {"module__activation": ACTIVATIONS}, **common), matrix, labels


def run_one(
    data: str, name: str, epochs: int, quick: bool, data_home: str | None
) -> dict[str, list[float]]:
    """One search in this interpreter, twice: seconds and scores."""
    warnings.filterwarnings("ignore")
    n_jobs = 1 if quick else cpu_count()
    found, *table = search(data, name, *load(data, quick, data_home), epochs, n_jobs)
    seconds = [wall(partial(found.fit, *table)) for _ in range(2)]
    return {"seconds": seconds, "scores": found.cv_results_["mean_test_score"].tolist()}


def measure(arguments: Namespace, data: str) -> pd.DataFrame:
    """Medians over the repeats, which take turns."""
    quick = arguments.quick
    rest = arguments.epochs, quick, arguments.data_home
    runs = {n: partial(call_apart, run_one, data, n, *rest, here=quick) for n in SEARCHES}
    found = in_turns(runs, arguments.repeats, warm_up=0)
    rows = []
    for name, results in found.items():
        first, again = (statistics.median(r["seconds"][i] for r in results) for i in (0, 1))
        rows.append({"data": data, "search": name, "first": first, "again": again})
    table = pd.DataFrame(rows)
    for column in ("first", "again"):
        stacked = table[column].iloc[:2].min()  # the better of the two ways to run ours
        table[f"{column} / ours"] = table[column] / stacked
    ours, same = (np.array(found[SEARCHES[i]][-1]["scores"]) for i in (0, 2))
    table["largest difference of scores"] = np.nan
    table.loc[2, "largest difference of scores"] = np.abs(ours - same).max()
    return table


def main() -> None:
    options = {"epochs": 200, "repeats": 3, "data_home": DATA_HOME}
    arguments = begin(__doc__, "one synthetic table, 3 epochs, one repeat", **options)
    arguments.epochs = 3 if arguments.quick else arguments.epochs
    data = list(DATA)[:1] if arguments.quick else list(DATA)
    table = pd.concat([measure(arguments, name) for name in data], ignore_index=True)
    print(f"\n7 candidates x {FOLDS} folds, {arguments.epochs} epochs, {cpu_count()} processes:\n")
    print(table.round(4).to_string(index=False, na_rep=""))
    write(arguments.out, "speed_search", table, index=False)


if __name__ == "__main__":
    main()
