"""Scores on rows set aside, and their 95 % intervals, against scores on new rows.

``python -m benchmarks.quality.intervals [n_tables]`` fits small networks, bagged networks and packs
to tables of noise and of a weak signal, and prints how often the interval holds the score of the
fitted model on new rows, and the mean difference of both scores.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor
from combutab.evaluation import evaluate_held_out, evaluate_predictions

N_NEW = 4000  # rows of each table that the fitted model is scored on


class Coverage(NamedTuple):
    """What the scores of some tables say of scores on new rows."""

    n_tables: int
    n_intervals: int
    coverage: float  # share of the intervals that hold the score on new rows
    bias: float  # mean score on rows set aside minus that on new rows
    error: float  # standard error of the bias


def make_table(
    n_rows: int, signal: float, rng: np.random.Generator, *, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Make rows of eight columns, of which two determine the target as far as ``signal`` says."""
    X = rng.normal(size=(n_rows, 8))
    y = signal * (X[:, 0] + X[:, 1] ** 2 - 1) + rng.normal(size=n_rows)
    return X, (y > 0).astype(int) if classes else y


def models(*, classes: bool) -> dict[str, Any]:
    """Small estimators that set rows aside in each of the ways."""
    plain, pack = (MLPClassifier, PackClassifier) if classes else (MLPRegressor, PackRegressor)
    network = {"hidden_layer_sizes": (16,), "max_iter": 20, "early_stopping": True}
    member = {"hidden_layer_sizes": (16,), "numeric_embedding_dim": 2}
    return {
        "two networks": plain(**network),
        "five bagged networks": plain(**network, n_members=5, bagging="cv"),
        "pack": pack(n_members=8, max_iter=12, member_params=member, n_jobs=1),
    }


def measure_coverage(
    name: str, metric: str, n_rows: int, signal: float, seeds: Iterator[int] | range
) -> Coverage:
    """Fit a model to one table per seed, and compare its scores with those on new rows."""
    classes = metric in ("roc_auc", "log_loss", "accuracy")
    differences, is_covered = [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, n_rows])
        X, y = make_table(n_rows + N_NEW, signal, rng, classes=classes)
        model = models(classes=classes)[name].set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few epochs do not converge
            model.fit(X[:n_rows], y[:n_rows])
        row = evaluate_held_out(model, y[:n_rows], scoring=[metric]).table.loc[metric]
        new = evaluate_predictions(
            model, X[n_rows:], y[n_rows:], scoring=[metric], n_resamples=0
        ).table.loc[metric, "score"]
        differences.append(row["score"] - new)
        if np.isfinite(row["low"]):
            is_covered.append(row["low"] <= new <= row["high"])
    return Coverage(
        len(differences),
        len(is_covered),
        float(np.mean(is_covered)) if is_covered else np.nan,
        float(np.mean(differences)),
        float(np.std(differences, ddof=1) / np.sqrt(len(differences))),
    )


def main() -> None:
    n_tables = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for n_rows in (60, 200, 1000, 5000):
        for signal in (0.0, 0.5):
            for metric in ("roc_auc", "r2"):
                for name in models(classes=True):
                    found = measure_coverage(name, metric, n_rows, signal, range(n_tables))
                    print(
                        f"{n_rows} rows, signal {signal}, {metric}, {name}: coverage "
                        f"{found.coverage:.3f} of {found.n_intervals} intervals, bias "
                        f"{found.bias:+.4f} (standard error {found.error:.4f})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
