"""Detection: a classifier tries to tell a synthetic table from the real one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from combutab.core.parallel import gathered
from combutab.core.predictions import class_scores, predict_labels
from combutab.core.rng import seed_from
from combutab.evaluation._efficacy import (
    Learners,
    Tables,
    align_synthetic,
    at_least,
    encode_features,
    limit_tree_threads,
    make_learners,
    ordered,
    takes_tables,
    with_text_names,
)

LEARNERS = ("linear", "hist_gradient_boosting")
_RARE = 10  # equal rows, real and synthetic together, up to which they share a fold


def detection(
    *,
    real: pd.DataFrame,
    synthetic: Tables,
    learners: Learners = LEARNERS,
    n_splits: int = 5,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Classifier two-sample test (C2ST) of real and synthetic rows.

    Classifiers are trained to distinguish real from synthetic rows, and scored by cross-validation
    with the ROC AUC: 0.5 if the tables cannot be distinguished, 1 if they always can.

    Parameters
    ----------
    real : DataFrame
        Real rows: the training rows of the generator, or better, other rows.
    synthetic : DataFrame, list of DataFrame, or mapping of name to either
        Synthetic rows, with the columns of ``real`` in any order; dtypes may differ. A list has
        several samples of one generator, which are averaged; a mapping has several generators.
    learners : name(s), or mapping of name to estimator, optional
        Classifiers, with the names of `ml_efficacy`. The default is "linear" (logistic regression),
        which detects shifts of single columns, and "hist_gradient_boosting", which also detects
        wrong relations between columns.
    n_splits : int, default=5
        Number of cross-validation folds.
    random_state : int, RandomState or None, default=0
        Random seed for the folds and the classifiers.
    n_jobs : int, optional
        Number of tables that are evaluated at the same time, by joblib.

    Returns
    -------
    DataFrame, one row per learner and source
        ``learner``; ``metric`` (always "roc_auc"); ``source`` ("synthetic", or a name of the
        mapping); ``mean`` and ``sd`` (ddof 1, NaN for one table) over the samples; ``se``
        (standard error of the ROC AUC of one sample due to the number of rows, averaged over the
        samples); ``fold_sd`` (standard deviation over the folds of a sample, averaged over the
        samples); ``n_tables``.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), or there are fewer rows than
        folds.

    Notes
    -----
    Equal rows are kept in one fold if there are at most 10 of them. Otherwise a copied row would be
    predicted from its original in the training folds, and a copy of the real table would score
    below 0.5. Rows that occur more often are distributed over the folds.

    A ROC AUC below 0.5 is no better than 0.5. It arises from near copies of ``real``, because the
    closest row to a near copy is its original, but also from single columns that repeat the values
    of ``real``, or their frequencies, more exactly than other real rows do. See `near_copies`.

    A linear model cannot detect that columns were sampled independently of each other. Decide by
    gradient boosting.

    References
    ----------
    D. Lopez-Paz and M. Oquab, "Revisiting classifier two-sample tests", ICLR 2017. J. A. Hanley and
    B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC)
    curve", Radiology 143, 1982 (the standard error).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=300)})
    >>> tables = {"copy": real, "shifted": real + 3.0}
    >>> table = detection(real=real, synthetic=tables, learners="linear")
    >>> table[["source", "mean"]].round(2)
        source  mean
    0     copy  0.50
    1  shifted  0.98
    """
    n_splits = at_least(n_splits, 2, "n_splits")
    aligned, sources = align_synthetic({"real": real}, synthetic)
    for label, table in aligned.tables.items():
        if len(table) < n_splits:
            raise ValueError(
                f"{label} has {len(table)} rows, too few for {n_splits} folds; lower n_splits"
            )
    seed = seed_from(random_state)
    models = make_learners(learners, "classification", random_state=seed)
    results = gathered(
        _fold_areas,
        ((aligned["real"], aligned[label], models, n_splits, seed) for label in sources),
        n_jobs=n_jobs,
        shared=[aligned["real"]],
    )
    rows = [
        {"learner": name, "metric": "roc_auc", "source": source, "table": label, "area": area}
        for (label, source), scores_of_sample in zip(sources.items(), results, strict=True)
        for name, areas in scores_of_sample.items()
        for area in areas
    ]
    sizes = {label: len(aligned[label]) for label in sources}
    return _summarise_folds(pd.DataFrame(rows), len(aligned["real"]), sizes)


def _fold_areas(
    real: pd.DataFrame, synthetic: pd.DataFrame, models: Mapping[str, Any], n_splits: int, seed: int
) -> dict[str, list[float]]:
    """The areas of each learner, one a fold."""
    rows = with_text_names(pd.concat([real, synthetic], ignore_index=True))
    labels = np.repeat([0, 1], [len(real), len(synthetic)])
    folds = _deal(rows, labels, n_splits, seed)
    encoded = None if all(map(takes_tables, models.values())) else encode_features(rows)[0]
    areas = {}
    for name, model in models.items():
        X = rows if takes_tables(model) else encoded
        try:
            with limit_tree_threads(model, X):
                areas[name] = [_area(clone(model), X, labels, folds == k) for k in range(n_splits)]
        except Exception as error:
            error.add_note(f"The learner {name!r}, on synthetic and real rows.")
            raise
    return areas


def _deal(rows: pd.DataFrame, labels: np.ndarray, n_splits: int, seed: int) -> np.ndarray:
    """The fold of each row; rare equal rows share one, and the tables have as many rows in each."""
    hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    _, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    alone = counts[group] > _RARE
    _, group = np.unique(
        np.where(alone, len(counts) + np.arange(len(rows)), group), return_inverse=True
    )
    n_real, n_made = np.bincount(group, labels == 0), np.bincount(group, labels == 1)
    order = np.lexsort((np.random.default_rng(seed).random(len(n_real)), n_made, n_real))
    fold = np.empty(len(order), dtype=np.intp)
    fold[order] = np.arange(len(order)) % n_splits
    return fold[group]


@np.errstate(invalid="ignore")  # OpenBLAS can set this flag although all numbers are finite
def _area(model: Any, X: Any, labels: np.ndarray, test: np.ndarray) -> float:
    """Under the ROC curve of one fold; NaN where it, or the rest, holds rows of one table alone."""
    from sklearn.metrics import roc_auc_score

    if min(len(np.unique(labels[part])) for part in (test, ~test)) < 2:
        return np.nan
    model.fit(X[~test], labels[~test])
    response = class_scores(model, X[test])
    scores = predict_labels(model, X[test]) if response is None else response[0][:, 1]
    return float(roc_auc_score(labels[test], scores))


def _summarise_folds(areas: pd.DataFrame, n_real: int, sizes: Mapping[str, int]) -> pd.DataFrame:
    """Over the folds of a sample, then over the samples of a source."""
    keys = ["learner", "metric", "source"]
    folds = areas.groupby([*keys, "table"], sort=False)["area"]
    samples = folds.agg(mean="mean", fold_sd="std").reset_index()
    samples["se"] = [
        _area_error(area, n_real, sizes[label])
        for area, label in zip(samples["mean"], samples["table"], strict=True)
    ]
    groups = samples.groupby(keys, sort=False)
    table = groups["mean"].agg(mean="mean", sd="std")
    table[["se", "fold_sd"]] = groups[["se", "fold_sd"]].mean()
    table["n_tables"] = groups.size()
    return ordered(table.reset_index(), areas, keys)


def _area_error(area: float, n: int, m: int) -> float:
    """Of an area under the ROC curve of n and m rows, by Hanley and McNeil (1982)."""
    area = min(max(area, 0.5), 1.0 - 1.0 / (n + m))  # one of 1 in few rows is not certain
    tied_synthetic, tied_real = area / (2 - area), 2 * area**2 / (1 + area)
    squares = (
        area * (1 - area) + (m - 1) * (tied_synthetic - area**2) + (n - 1) * (tied_real - area**2)
    )
    return math.sqrt(squares / (n * m))
