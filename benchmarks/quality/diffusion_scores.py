"""The scores of synthetic rows in the diffusion literature, as its scripts compute them.

Their peculiarities are kept, or figures could not be laid beside published ones; each is named
where it is.

References
----------
TabPC: D. Scassola et al., "A sobering look at tabular data generation via probabilistic circuits",
arXiv 2603.23016; https://github.com/april-tools/tabpc, `src/metrics/` (C2ST, shape, trend).
TabDiff: M. Shi et al., arXiv 2410.20626, `eval/mle/mle.py` (MLE) and `eval/eval_quality.py`
(alpha-precision and beta-recall, by synthcity's "naive" variant of A. Alaa et al., ICML 2022).
Dependency gap: "Measuring the Dependency Gap: Diagnosing Inter-Column Fidelity in Tabular
Generative Models", https://github.com/enai4bio/tabular-dependency-gap, `proper_metrics.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score, root_mean_squared_error
from sklearn.model_selection import ParameterGrid, StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder

from benchmarks.quality.diffusion_tables import Data

Grid = dict[str, list[float]]
GRID: Grid = {
    "n_estimators": [10, 50, 100],
    "min_child_weight": [1, 10],
    "max_depth": [5, 10, 20],
    "gamma": [0.0, 1.0],
}
MOST_NEIGHBORS = 40_000  # rows of each table whose neighbours are looked for
N_LEVELS = 30


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """SDMetrics draws from numpy's global random state, which is as it was afterwards.

    It warns of regressions that have not converged and of constant columns.
    """
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        np.random.set_state(state)


def as_read(rows: pd.DataFrame, real: pd.DataFrame) -> pd.DataFrame:
    """Give categories the type that they have when read from a CSV file.

    The scripts read such files, so that categories written as whole numbers are numbers to the
    classifiers of C2ST and not one-hot columns.
    """
    texts = {name: rows[name].astype(object) for name in real.select_dtypes("category")}
    whole = [n for n in texts if real[n].cat.categories.astype(str).str.fullmatch(r"-?\d+").all()]
    return rows.assign(**texts | {name: texts[name].astype(int) for name in whole})


# ---- C2ST, shape and trend: SDMetrics ------------------------------------------------------------


def c2st(real: pd.DataFrame, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """Classifier two-sample tests against the training rows, by SDMetrics' detection metrics.

    Three folds; a score is 1 minus the mean of ``2 * max(auc, 0.5) - 1``: 1 where a classifier does
    no better than chance, 0 where it is always right. The one by XGBoost is left out where that
    package is not installed.
    """
    from sdmetrics.single_table import LogisticDetection
    from sdmetrics.single_table.detection.sklearn import ScikitLearnClassifierDetectionMetric

    class XGBDetection(ScikitLearnClassifierDetectionMetric):
        @staticmethod
        def _get_classifier() -> Any:
            from xgboost import XGBClassifier

            options = {"eval_metric": "logloss", "enable_categorical": True, "random_state": 0}
            return XGBClassifier(**options, n_jobs=1)

    found = {}
    tables = {"real_data": as_read(real, real), "synthetic_data": as_read(made, real)}
    for name, metric in (("xgb_c2st", XGBDetection), ("logistic_c2st", LogisticDetection)):
        if name != "xgb_c2st" or has_xgboost():
            with _seeded(seed):
                found[name] = metric.compute(**{n: t.copy() for n, t in tables.items()})
    return found


def shape_trend(real: pd.DataFrame, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """SDMetrics' scores of columns and of pairs of columns, of all pairs.

    The report of SDMetrics 0.32 leaves out pairs that are hardly correlated in the real table; that
    of 0.24, of which published figures are, does not, so that its thresholds are set to 0.
    """
    from sdmetrics.reports import QualityReport

    kinds = {n: "categorical" if real[n].dtype == "category" else "numerical" for n in real}
    columns = {str(n): {"sdtype": kind} for n, kind in kinds.items()}
    tables = ({"table": as_read(each, real)} for each in (real, made))
    report = QualityReport()
    report.real_correlation_threshold = report.real_association_threshold = 0
    with _seeded(seed):
        report.generate(*tables, {"tables": {"table": {"columns": columns}}}, verbose=False)
    scores = report.get_properties().set_index("Property")["Score"]
    return {"shape": scores["Column Shapes"], "trend": scores["Column Pair Trends"]}


# ---- dependency gap: ROC AUC of XGBoost against the test rows ------------------------------------

GAP_SEED = 42  # of the subsample, the folds and the trees, for all models


def dependency_gap(data: Data, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """ROC AUC of XGBoost between synthetic and test rows: 0.5 where they cannot be distinguished.

    The same is computed for training rows, the best that is possible, and for training rows whose
    columns were shuffled independently, so that nothing but the columns is right.
    """
    rng = np.random.default_rng(seed)
    train = data.train.iloc[rng.permutation(len(data.train))]  # others are drawn for each seed
    shuffled = train.apply(lambda column: column.take(rng.permutation(len(column))).array)
    tables = {"gap_auc": made, "gap_auc_real": train, "gap_auc_shuffled": shuffled}
    return {name: real_or_made_auc(data.test, rows) for name, rows in tables.items()}


def real_or_made_auc(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """Out-of-fold ROC AUC between equal numbers of rows, or 1 minus it if it is below 0.5."""
    from xgboost import XGBClassifier

    rng, n_rows = np.random.default_rng(GAP_SEED), min(len(real), len(made))
    tables = [
        rows.iloc[rng.choice(len(rows), n_rows, replace=False)] if len(rows) > n_rows else rows
        for rows in (real, made)
    ]
    X, y = pd.concat(tables, ignore_index=True), np.repeat([1, 0], n_rows)
    texts = list(real.select_dtypes("category"))
    X[texts] = OrdinalEncoder().fit_transform(X[texts].astype(str))
    options = {"n_estimators": 300, "max_depth": 6, "learning_rate": 0.1, "subsample": 0.9}
    options |= {"colsample_bytree": 0.9, "tree_method": "hist", "random_state": GAP_SEED}
    folds = StratifiedKFold(5, shuffle=True, random_state=GAP_SEED)
    model = XGBClassifier(**options, n_jobs=1)
    shares = cross_val_predict(model, X.astype(float), y, cv=folds, method="predict_proba")[:, 1]
    area = float(roc_auc_score(y, shares))
    return max(area, 1 - area)


# ---- alpha-precision and beta-recall: synthcity's naive variant ----------------------------------


def precision_recall(real: pd.DataFrame, made: pd.DataFrame, seed: int) -> dict[str, float]:
    """Alpha-precision and beta-recall of min-max-scaled numbers and one-hot categories.

    Unlike `combutab.evaluation.fidelity`, a real row is recalled if a synthetic row is no farther
    than its nearest real one: rows of the same distribution have a beta-recall of about 0.5.
    """
    n_rows = min(len(real), len(made), MOST_NEIGHBORS)
    rng = np.random.default_rng(seed)
    categories = list(real.select_dtypes("category"))
    numbers = [name for name in real if name not in categories]
    scaler = MinMaxScaler().fit(real[numbers]) if numbers else None
    onehot = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(real[categories])

    def points(rows: pd.DataFrame) -> np.ndarray:
        rows = rows.iloc[rng.permutation(len(rows))[:n_rows]]
        parts = [onehot.transform(rows[categories])]
        return np.hstack([*parts, *([scaler.transform(rows[numbers])] if scaler else [])])

    X, Z = points(real), points(made)
    levels = np.linspace(0.0, 1.0, N_LEVELS)
    to_center = _lengths(Z - X.mean(axis=0))
    radii = np.quantile(_lengths(X - X.mean(axis=0)), levels)[:, None]
    precision = (to_center <= radii).mean(axis=1)
    near_real = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X)[0][:, 1]
    near_made, which = (a[:, 0] for a in NearestNeighbors(n_neighbors=1).fit(Z).kneighbors(X))
    nearest = _lengths(Z[which] - Z.mean(axis=0))
    radii = np.quantile(nearest, levels)[:, None]
    recall = ((near_made <= near_real) & (nearest <= radii)).mean(axis=1)
    curves = {"alpha_precision": precision, "beta_recall": recall}
    return {n: float(1.0 - np.abs(levels - c).sum() / levels.sum()) for n, c in curves.items()}


def _lengths(rows: np.ndarray) -> np.ndarray:
    return np.sqrt((rows**2).sum(axis=1))


# ---- MLE: machine learning efficacy --------------------------------------------------------------


def has_xgboost() -> bool:
    return find_spec("xgboost") is not None


def mle(data: Data, made: pd.DataFrame, grid: Grid, seed: int) -> float:
    """XGBoost that learns from synthetic rows, on the test rows: ROC AUC, or RMSE of log targets.

    A ninth of the synthetic rows chooses among the grid; the model chosen is the one that has
    learned from the other eight ninths. Kept of `mle.py`: the scaling, see `MLEFeatures`; targets
    of a regression are ``log(clip(y, 1, 20000))``, but not those of the validation rows, so that
    the choice compares logarithms with raw values.
    """
    from xgboost import XGBClassifier, XGBRegressor

    features = MLEFeatures(data)
    X, test = features.fit_transform(made), features.transform(data.test)
    valid, train = np.split(np.random.default_rng(seed).permutation(len(X)), [len(X) // 9])
    kind: Any = XGBClassifier if data.classify else XGBRegressor
    if data.classify:
        classes = list(data.train[data.target].cat.categories)
        y, test_y = (
            np.asarray(pd.Categorical(rows[data.target], classes).codes)
            for rows in (made, data.test)
        )
        known, own = np.unique(y[train], return_inverse=True)
        if len(known) == 1:
            return 0.5
    else:
        y = made[data.target].to_numpy(float)
        own, test_y = _log(y[train]), _log(data.test[data.target].to_numpy(float))

    def loss(model: Any, X: np.ndarray, y: np.ndarray) -> float:
        if not data.classify:
            return root_mean_squared_error(y, model.predict(X))
        shares = np.zeros((len(X), len(classes)))
        shares[:, known] = model.predict_proba(X)
        return -_auc(y, shares)

    losses = []
    for parameters in ParameterGrid(grid):
        model = kind(**parameters, n_jobs=1, tree_method="hist").fit(X[train], own)
        losses.append((loss(model, X[valid], y[valid]), loss(model, test, test_y)))
    return abs(min(losses, key=lambda pair: pair[0])[1])


def _log(y: np.ndarray) -> np.ndarray:
    return np.log(np.clip(y, 1, 20000))


def _auc(y: np.ndarray, scores: np.ndarray) -> float:
    """Mean over classes of one against the rest; 0.5 where there is a single class."""
    there = [k for k in range(scores.shape[1]) if 0 < (y == k).mean() < 1]
    return float(np.mean([roc_auc_score(y == k, scores[:, k]) for k in there] or [0.5]))


class MLEFeatures:
    """The features of `mle.py`: one-hot categories, and numbers scaled as the first column of them.

    NOTE: the minimum and the maximum are taken of the first column of numbers for all of them (of
    the next one while they are 0), and at the test rows it goes on with those. If they are at least
    0 and 1000, numbers become ``log(max(x, 0.01))``, so that negative ones are all the same.
    """

    def __init__(self, data: Data) -> None:
        self._columns = [name for name in data.train if name != data.target]
        self._low = self._high = 0.0
        self._encoders: dict[str, OneHotEncoder] = {}

    def fit_transform(self, rows: pd.DataFrame) -> np.ndarray:
        for name in self._columns:
            if rows[name].dtype == "category":
                encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
                self._encoders[name] = encoder.fit(rows[[name]])
        return self.transform(rows)

    def transform(self, rows: pd.DataFrame) -> np.ndarray:
        return np.hstack([self._feature(rows, name) for name in self._columns])

    def _feature(self, rows: pd.DataFrame, name: str) -> np.ndarray:
        if name in self._encoders:
            return self._encoders[name].transform(rows[[name]]).astype(np.float32)
        column = rows[[name]].to_numpy(np.float32)
        self._low = self._low or float(column.min())
        self._high = self._high or float(column.max())
        if self._low >= 0 and self._high >= 1e3:
            return np.log(np.maximum(column, np.float32(1e-2)))
        span = self._high - self._low  # 0 of a constant column, with which mle.py would fail
        return (column - np.float32(self._low)) / np.float32(span or 1.0) * 5
