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

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import cpu_count
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier as SklearnClassifier
from sklearn.neural_network import MLPRegressor as SklearnRegressor
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler, scale
from torch import nn

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.activations import make_activation
from combutab.datasets import load_openml

ACTIVATIONS = ["relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"]
FOLDS, HIDDEN, BATCH, RATE, DROPOUT = 5, (128, 128), 500, 5e-4, 0.1
DATA = {"diabetes": "classification", "boston": "regression"}
Search = Callable[[], GridSearchCV]


class Network(nn.Module):
    """The same network for skorch."""

    def __init__(self, n_inputs: int, n_outputs: int, activation: str) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in HIDDEN:
            layers += [nn.Linear(n_inputs, width), make_activation(activation, width)]
            layers.append(nn.Dropout(DROPOUT))
            n_inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (batch, n_inputs) -> (batch, n_outputs)
        return self.layers(x)


def load(name: str, quick: bool, data_home: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """One of the two sets; quick: a made one of 200 rows."""
    if quick:
        make = make_classification if DATA[name] == "classification" else make_regression
        X, y = make(200, 8, random_state=0)
        return pd.DataFrame(X), pd.Series(y)
    data = load_openml(name, data_home=data_home)
    return data.X, data.y


def searches(name: str, X: pd.DataFrame, y: pd.Series, epochs: int) -> dict[str, Search]:
    """Each search by name; the others get a matrix that is encoded and scaled already."""
    classify = DATA[name] == "classification"
    matrix = make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_include="category")),
        remainder=StandardScaler(),
    ).fit_transform(X)
    matrix = matrix.astype(np.float32)
    target = LabelEncoder().fit_transform(y) if classify else scale(y).astype(np.float32)
    common = {"cv": FOLDS, "refit": False, "n_jobs": cpu_count()}
    ours = (MLPClassifier if classify else MLPRegressor)(
        hidden_layer_sizes=HIDDEN, batch_size="auto", max_iter=epochs, n_iter_no_change=np.inf,
        learning_rate_init=RATE, dropout=DROPOUT, random_state=0, device="cpu",
    )  # fmt: skip
    sklearn = (SklearnClassifier if classify else SklearnRegressor)(
        hidden_layer_sizes=HIDDEN, batch_size=min(BATCH, len(X) * (FOLDS - 1) // FOLDS),
        max_iter=epochs, n_iter_no_change=epochs + 1, tol=0.0, learning_rate_init=RATE,
    )  # fmt: skip
    grid = {"activation": ACTIVATIONS}

    def of_skorch() -> GridSearchCV:
        from skorch import NeuralNetClassifier, NeuralNetRegressor

        kind = NeuralNetClassifier if classify else NeuralNetRegressor
        net = kind(
            Network, module__n_inputs=matrix.shape[1], module__n_outputs=2 if classify else 1,
            module__activation="relu", optimizer=torch.optim.Adam, lr=RATE, batch_size=BATCH,
            max_epochs=epochs, train_split=None, iterator_train__shuffle=True, verbose=0,
            **({"criterion": nn.CrossEntropyLoss} if classify else {}),
        )  # fmt: skip
        labels = target.astype(np.int64) if classify else target[:, None]
        return GridSearchCV(net, {"module__activation": ACTIVATIONS}, **common).fit(matrix, labels)

    return {
        "StackedGridSearchCV": lambda: StackedGridSearchCV(ours, grid, **common).fit(X, y),
        "StackedGridSearchCV, one process": lambda: StackedGridSearchCV(
            ours, grid, **{**common, "n_jobs": None}
        ).fit(X, y),
        "(a) GridSearchCV, same estimator": lambda: GridSearchCV(ours, grid, **common).fit(X, y),
        "(b) GridSearchCV, scikit-learn's MLP": lambda: GridSearchCV(
            sklearn, {"random_state": list(range(len(ACTIVATIONS)))}, **common
        ).fit(matrix, target),
        "(c) GridSearchCV, skorch": of_skorch,
    }


def run_one(arguments: argparse.Namespace) -> None:
    """One search in this interpreter, twice; seconds and scores to standard output."""
    warnings.filterwarnings("ignore")
    X, y = load(arguments.data, arguments.quick, arguments.data_home)
    search = searches(arguments.data, X, y, arguments.epochs)[arguments.one]
    seconds, scores = [], []
    for _ in range(2):
        started = time.perf_counter()
        scores = search().cv_results_["mean_test_score"].tolist()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "scores": scores}))


def measure(arguments: argparse.Namespace, data: str, names: list[str]) -> pd.DataFrame:
    """Medians over the repeats, which take turns."""
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    scores = {}
    for _ in range(1 if arguments.quick else arguments.repeats):
        for name in names:
            command = [
                sys.executable,
                "-m",
                "benchmarks.speed.search",
                "--one",
                name,
                "--data",
                data,
            ]
            command += ["--epochs", str(arguments.epochs), *["--quick"] * arguments.quick]
            if arguments.data_home:
                command += ["--data-home", arguments.data_home]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name} on {data} failed:\n{done.stderr}")
            result = json.loads(done.stdout.splitlines()[-1])
            found[name].append(result["seconds"])
            scores[name] = np.array(result["scores"])
    rows = []
    for name, seconds in found.items():
        first, again = (statistics.median(s[i] for s in seconds) for i in (0, 1))
        rows.append({"data": data, "search": name, "first": first, "again": again})
    table = pd.DataFrame(rows)
    for column in ("first", "again"):
        stacked = table[column].iloc[:2].min()  # the better of the two ways to run ours
        table[f"{column} / ours"] = table[column] / stacked
    ours, same = scores[names[0]], scores[names[2]]
    table["largest difference of scores"] = [np.nan] * len(names)
    table.loc[2, "largest difference of scores"] = np.abs(ours - same).max()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one made table, 3 epochs, one repeat")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--data", default="diabetes", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for speed_search.csv")
    arguments = parser.parse_args()
    if arguments.one:
        run_one(arguments)
        return
    arguments.epochs = 3 if arguments.quick else arguments.epochs
    names = list(searches("diabetes", *load("diabetes", True, None), 1))
    data = list(DATA)[:1] if arguments.quick else list(DATA)
    table = pd.concat([measure(arguments, name, names) for name in data], ignore_index=True)
    print(describe_machine())
    print(f"\n7 candidates x {FOLDS} folds, {arguments.epochs} epochs, {cpu_count()} processes:\n")
    print(table.round(4).to_string(index=False, na_rep=""))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "speed_search.csv", index=False)


if __name__ == "__main__":
    main()
