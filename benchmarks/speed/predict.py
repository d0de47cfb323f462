"""Seconds of predict for one row and for a million, compared with scikit-learn's MLP.

Data, widths and activation are the same; the networks are trained for one epoch, since their
weights do not matter. All models take turns in one process; values are medians. For many rows the
peak memory above that of the table is measured in a separate process.

    python -m benchmarks.speed.predict [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed.common import begin, block, call_apart, seconds_and_peak, timed, write
from combutab import MLPRegressor, paper_recipe

NETWORKS = {"3 x 128": (128, 128), "6 x 256": (256,) * 5}
N_COLUMNS = 9
MODELS = ("ours, array", "ours, array, combu", "ours, DataFrame", "ours, mixed DataFrame",
          "scikit-learn, array", "scikit-learn, DataFrame")  # fmt: skip


def table(kind: str, n_rows: int) -> Any:
    """The same rows as a float32 array, as a DataFrame of it, or with a column of text."""
    array = np.random.default_rng(0).normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    if kind == "array":
        return array
    frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(N_COLUMNS)])
    colours = np.array(["red", "green", "blue"], dtype=object)[np.arange(n_rows) % 3]
    return frame.assign(colour=colours) if kind.startswith("mixed") else frame


def fitted(model: str, hidden: tuple[int, ...], n_rows: int) -> partial[Any]:
    """What predicts so many rows by a model that has seen a thousand once."""
    package, kind, activation = f"{model}, relu".split(", ")[:3]
    settings = {"hidden_layer_sizes": hidden, "max_iter": 1}
    ours = paper_recipe("regression", **settings, activation=activation, device="cpu")
    estimator = MLPRegressor(**ours) if package == "ours" else SklearnRegressor(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # neither has converged
        estimator.fit(table(kind, 1000), np.sin(np.arange(1000.0)))
    estimator.predict(table(kind, 100))
    return partial(estimator.predict, table(kind, n_rows))


def peak(model: str, hidden: tuple[int, ...], n_rows: int) -> float:
    """MiB by which this process's peak grows when it predicts."""
    return seconds_and_peak(fitted(model, hidden, n_rows))[1]


def main() -> None:
    arguments = begin(__doc__, repeats=9, rows=1_000_000)
    quick, repeats = arguments.quick, arguments.repeats
    results = []
    for network, hidden in ({"3 x 8": (8, 8)} if quick else NETWORKS).items():
        for rows, calls in ((1, 50), (1000 if quick else arguments.rows, 1)):
            runs = {model: fitted(model, hidden, rows) for model in MODELS}
            found = timed(runs, repeats if rows == 1 else max(1, repeats // 3), calls)
            for model, value in found.items():
                peer, measured = found["scikit-learn, array"], rows > 1 and "combu" not in model
                mib, given = np.nan, (model, hidden, rows)
                if measured:
                    mib = call_apart("benchmarks.speed.predict:peak", *given, here=quick)
                results.append((network, rows, model, value, peer / value, mib))
    columns = ["network", "rows", "model", "seconds", "scikit-learn, array / this", "peak MB"]
    measured = pd.DataFrame(results, columns=columns)
    page = block(measured, index=False)
    write(arguments, "speed_predict", measured, page, index=False)


if __name__ == "__main__":
    main()
