"""Detection: a classifier tries to tell a synthetic table from the real one."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from combutab.core.parallel import gathered
from combutab.core.rng import seed_from
from combutab.core.scores import class_scores, predict_labels
from combutab.evaluation._alignment import AlignedTables, align_tables
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
from combutab.evaluation._fidelity import column_scores, pair_trends

C2ST = "hist_gradient_boosting"
LEARNERS = ("linear", C2ST)
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


# ---- Which columns, and which pairs of columns, a two-sample test detects ------------------------

_MAX_ROWS, _PART_TREES = 5000, 40
_PART_COLUMNS = ["part", "column", "other_column", "auc", "se", "dependence"]


@dataclass(frozen=True, eq=False)
class _Parts:
    """Real and synthetic rows, and the encoded features of each column."""

    rows: pd.DataFrame
    features: Mapping[Hashable, np.ndarray]
    labels: np.ndarray
    model: Any
    n_splits: int
    seed: int

    def area(self, columns: Sequence[Hashable], *, shuffled: bool = False) -> float:
        """ROC AUC of a classifier of some columns, each shuffled within its table or as it is."""
        orders = {column: np.arange(len(self.labels)) for column in columns}
        if shuffled:
            rng = np.random.default_rng(self.seed)
            for column in columns:
                # the real rows come first
                parts = [rng.permutation(np.flatnonzero(self.labels == k)) for k in (0, 1)]
                orders[column] = np.concatenate(parts)
        X = np.hstack([self.features[column][orders[column]] for column in columns])
        rows = pd.DataFrame(
            {j: self.rows[column].take(orders[column]).array for j, column in enumerate(columns)}
        )
        folds = _deal(rows, self.labels, self.n_splits, self.seed)
        with limit_tree_threads(self.model, X):
            areas = [
                _area(clone(self.model), X, self.labels, folds == k) for k in range(self.n_splits)
            ]
        return float(np.mean(areas))


def detection_parts(
    *,
    real: Any,
    synthetic: Any,
    categorical: Collection[Hashable] = (),
    n_columns: int = 20,
    n_pairs: int = 10,
    n_splits: int = 3,
    max_rows: int = _MAX_ROWS,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Split a two-sample test into columns, their dependence, single columns and pairs.

    A classifier that distinguishes real from synthetic rows may do so by the distributions of
    single columns, or by their dependence. If each column is shuffled in both tables, only the
    distributions are left.

    Parameters
    ----------
    real : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        Real rows, best those that the generator was not trained on.
    synthetic : table
        Synthetic rows, with the columns of ``real`` in any order; dtypes may differ. For
        comparison, call the function again with other real rows instead.
    categorical : collection of column names, default=()
        Columns of numbers or dates to treat as categories.
    n_columns, n_pairs : int, default=20, 10
        Number of single columns and of pairs of columns that are tested, those with the worst
        scores of `fidelity` ("ks" or "tv", and "correlation" or "contingency").
    n_splits : int, default=3
        Number of cross-validation folds.
    max_rows : int, default=5000
        Maximum number of rows of each table, sampled at random.
    random_state : int, RandomState or None, default=0
        Random seed for sampling, shuffling, folds and classifiers.
    n_jobs : int, optional
        Number of classifiers that are trained at the same time, by joblib.

    Returns
    -------
    DataFrame, one row per part
        ``part``: "all" (all columns), "shuffled" (all columns, each shuffled in both tables),
        "column" (one column) and "pair" (two columns), the latter two from the most to the least
        detected; ``column`` and ``other_column`` (None if not one column or a pair); ``auc`` (ROC
        AUC of gradient boosting with 40 trees, by cross-validation); ``se`` (its standard error due
        to the number of rows); ``dependence`` (for "all" and "pair": the ROC AUC less that of the
        same columns after shuffling; NaN for others). Pairs are ordered by ``dependence``.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), there are fewer rows than folds,
        or an argument has another value than those above.

    Notes
    -----
    The parts do not add up: two columns may give away the same rows. A ROC AUC below 0.5 counts as
    0.5 in ``dependence``; see `detection`.

    References
    ----------
    D. Lopez-Paz and M. Oquab, "Revisiting classifier two-sample tests", ICLR 2017.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(1200, 3)), columns=["a", "b", "c"])
    >>> people["b"] += 3 * people["a"]
    >>> synthetic = people[600:].assign(a=rng.permutation(people["a"][600:]), c=people["c"] + 1)
    >>> table = detection_parts(real=people[:600], synthetic=synthetic, n_columns=1, n_pairs=1)
    >>> table[["part", "column", "other_column", "auc", "dependence"]].round(1)
           part column other_column  auc  dependence
    0       all   None         None  0.9         0.2
    1  shuffled   None         None  0.7         NaN
    2    column      c         None  0.7         NaN
    3      pair      a            b  0.8         0.3
    """
    n_splits = at_least(n_splits, 2, "n_splits")
    max_rows = at_least(max_rows, n_splits, "max_rows")
    n_columns, n_pairs = at_least(n_columns, 0, "n_columns"), at_least(n_pairs, 0, "n_pairs")
    aligned = align_tables(
        {"real": real, "synthetic": synthetic}, reference="real", categorical=categorical
    )
    seed = seed_from(random_state)
    rng = np.random.default_rng(seed)
    drawn = {}
    for name, table in aligned.tables.items():
        if len(table) < n_splits:
            raise ValueError(
                f"{name} has {len(table)} rows, too few for {n_splits} folds; lower n_splits"
            )
        drawn[name] = table.iloc[np.sort(rng.permutation(len(table))[:max_rows])]
    parts = _prepare_parts(drawn, n_splits, seed)
    columns, pairs = _worst_parts(aligned, n_columns, n_pairs)
    every = list(aligned.kinds)
    tests = [(every, False), (every, True), *(([column], False) for column in columns)]
    tests += [(list(pair), shuffled) for pair in pairs for shuffled in (False, True)]
    areas = gathered(_part_area, ((parts, *test) for test in tests), n_jobs=n_jobs, shared=[parts])
    gain = np.maximum(areas[0], 0.5) - np.maximum(areas[1], 0.5)
    rows: list[tuple[Any, ...]] = [("all", None, None, areas[0], gain)]
    rows += [("shuffled", None, None, areas[1], np.nan)]
    singles = areas[2 : 2 + len(columns)]
    ranked = sorted(zip(columns, singles, strict=True), key=lambda item: -item[1])
    rows += [("column", column, None, area, np.nan) for column, area in ranked]
    of_pairs = np.reshape(areas[2 + len(columns) :], (-1, 2))
    gains = np.maximum(of_pairs[:, 0], 0.5) - np.maximum(of_pairs[:, 1], 0.5)
    for k in np.argsort(-gains, kind="stable"):
        rows.append(("pair", *pairs[k], float(of_pairs[k, 0]), float(gains[k])))
    sizes = [len(table) for table in drawn.values()]
    records = [(*row[:4], _area_error(row[3], *sizes), row[4]) for row in rows]
    result = pd.DataFrame(records, columns=_PART_COLUMNS)
    for name in ("column", "other_column"):  # None stays None, and a position an integer
        position = _PART_COLUMNS.index(name)
        result[name] = pd.Series([record[position] for record in records], dtype=object)
    return result


def _prepare_parts(tables: Mapping[str, pd.DataFrame], n_splits: int, seed: int) -> _Parts:
    rows = pd.concat(tables.values(), ignore_index=True)
    features: dict[Hashable, np.ndarray] = {
        column: encode_features(with_text_names(rows[[column]]))[0] for column in rows.columns
    }
    labels = np.repeat([0, 1], [len(table) for table in tables.values()])
    model = make_learners(C2ST, "classification", random_state=seed)[C2ST]
    model.set_params(max_iter=min(model.max_iter, _PART_TREES))
    return _Parts(rows, features, labels, model, n_splits, seed)


def _worst_parts(
    aligned: AlignedTables, n_columns: int, n_pairs: int
) -> tuple[list[Hashable], list[tuple[Hashable, Hashable]]]:
    """The columns and the pairs of columns with the lowest scores of `fidelity`."""
    scores = [
        score
        for score in column_scores(aligned, "synthetic", aspect="shape")
        if score.measure != "wasserstein"
    ]
    pair_scores = list(pair_trends(aligned, "synthetic", n_bins=10))
    for measured in (scores, pair_scores):
        measured.sort(key=lambda score: (np.isnan(score.value), score.value))
    columns = [score.column for score in scores[:n_columns]]
    return columns, [(score.column, score.other_column) for score in pair_scores[:n_pairs]]


def _part_area(parts: _Parts, columns: Sequence[Hashable], shuffled: bool) -> float:
    return parts.area(columns, shuffled=shuffled)
