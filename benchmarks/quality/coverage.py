"""Do prediction intervals and sets of labels contain the truth as often as they should?

Models are trained on at most 500 or 3,000 rows of each table, on the splits of
`benchmarks.quality.predictions`, and predict an interval (regression) or a set of labels
(classification) for each test row, for coverages of 80, 90 and 95 %:

- combutab, combutab Pack: ``predict_interval`` and ``predict_set`` of our defaults (on fewer than
  200 rows with ``bagging="cv"``, because the defaults then set no rows aside);
- combutab, quantile: ``predict_interval`` of ``loss="quantile"``;
- quantiles: ``predict(quantiles=...)`` of the same loss, without conformal prediction;
- MAPIE: its split conformal prediction around our defaults, which are trained on four fifths of the
  training rows; the others are for its scores.

Coverage is the share of test rows whose interval or set contains the truth. Sizes are the mean
width of the intervals, or the mean number of labels of a set, as ratios to those of our defaults on
the same table (geometric means over tables, with 95 % bootstrap intervals). Infinite intervals of
small tables have no size. Our sets always have the most probable label, so that they cover more
where the accuracy is above the coverage; those of MAPIE may be empty. The stored rows have packs
at 500 rows only.

    python -m benchmarks.quality.coverage [--quick] [--data-home FOLDER] [--splits 1]
        [--rows 500 3000] [--models NAME ...] [--data NAME ...]

Tables are those of `benchmarks.quality.predictions`. MAPIE comes with `pip install '.[bench]'`, and
is left out if it is not installed. --quick trains for two epochs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.quality.predictions import kind_of, split_rows
from benchmarks.quality.tables import DATA, load, wanted
from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor
from combutab.evaluation import bootstrap_interval

COVERAGES = (0.8, 0.9, 0.95)
DEFAULTS = "combutab"
MODELS = (DEFAULTS, "combutab Pack", "combutab, quantile", "quantiles", "MAPIE")
SETTINGS = ("data", "split", "model", "rows")
MEASURES = [(what, round(100 * c)) for what in ("coverage", "size") for c in COVERAGES]
RESULTS = ("task", "n_train", "n_test", *(f"{what}_{percent}" for what, percent in MEASURES))

Rows = tuple[pd.DataFrame, np.ndarray]  # features and targets


def predict_regions(
    model: str, classify: bool, train: Rows, X: pd.DataFrame, options: dict[str, Any]
) -> list[np.ndarray]:
    """Intervals, (n, 2), or sets, (n, n_classes) boolean, of rows for each coverage."""
    plain: Any = MLPClassifier if classify else MLPRegressor
    if model == "MAPIE":
        return _mapie_regions(plain(**options), classify, train, X)
    if model == "quantiles":
        levels = sorted({share for c in COVERAGES for share in ((1 - c) / 2, (1 + c) / 2)} | {0.5})
        quantiles = plain(loss="quantile", quantiles=levels, **options).fit(*train)
        return [quantiles.predict(X, quantiles=[(1 - c) / 2, (1 + c) / 2]) for c in COVERAGES]
    if model == "combutab, quantile":
        options = {"loss": "quantile", **options}
    if len(train[1]) < 200:
        options = {"bagging": "cv", **options}
    if model == "combutab Pack":
        options.pop("bagging", None)
        plain = PackClassifier if classify else PackRegressor
    fitted = plain(**options).fit(*train)
    predict = fitted.predict_set if classify else fitted.predict_interval
    return [predict(X, c) for c in COVERAGES]


def _mapie_regions(
    estimator: Any, classify: bool, train: Rows, X: pd.DataFrame
) -> list[np.ndarray]:
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import SplitConformalRegressor

    features, y = train
    if classify:  # MAPIE needs each class among the rows of the fit
        first = np.unique(y, return_index=True)[1]
        order = np.concatenate([first, np.setdiff1d(np.arange(len(y)), first)])
        features, y = features.iloc[order], y[order]
    n_fit = len(features) * 4 // 5
    estimator.fit(features.iloc[:n_fit], y[:n_fit])
    conformal: Any = SplitConformalClassifier if classify else SplitConformalRegressor
    mapie = conformal(estimator, confidence_level=list(COVERAGES), prefit=True)
    mapie.conformalize(features.iloc[n_fit:], y[n_fit:])
    regions = (mapie.predict_set if classify else mapie.predict_interval)(X)[1]
    return [regions[..., i] for i in range(len(COVERAGES))]


def measure(
    model: str, name: str, split: int, max_rows: int, data_home: str | None, quick: bool
) -> Row:
    """Fit a model, and compare its intervals or sets with the truth of the test rows."""
    warnings.filterwarnings("ignore")
    X, y, classify = load(name, data_home)
    train, test = split_rows(X, split, max_rows)
    options: dict[str, Any] = {"random_state": split} | ({"max_iter": 2} if quick else {})
    if classify:
        classes, targets = np.unique(np.asarray(y[train]).astype(str), return_inverse=True)
        truth = pd.Index(classes).get_indexer(np.asarray(y.iloc[test]).astype(str))
    else:
        targets, truth = (y.iloc[rows].to_numpy(float) for rows in (train, test))
    regions = predict_regions(model, classify, (X.iloc[train], targets), X.iloc[test], options)
    row: Row = {"task": kind_of(classify), "n_train": len(train), "n_test": len(test)}
    for region, (_, percent) in zip(regions, MEASURES, strict=False):
        if classify:  # a label that the training rows lack is in no set
            inside = region[np.arange(len(truth)), truth] & (truth >= 0)
            size = region.sum(1).mean()
        else:
            inside = (region[:, 0] <= truth) & (truth <= region[:, 1])
            size = np.mean(region[:, 1] - region[:, 0])
        row |= {f"coverage_{percent}": float(inside.mean()), f"size_{percent}": float(size)}
    return row


def _jobs(arguments: Arguments) -> Iterator[Job]:
    names, home = wanted(arguments)
    models = [m for m in arguments.models if m != "MAPIE" or find_spec("mapie")]
    sizes = [200] if arguments.quick else sorted(arguments.rows)
    n_splits = 1 if arguments.quick else arguments.splits
    for split, max_rows, name in product(range(n_splits), sizes, names):
        X, _, classify = load(name, home)
        train, _ = split_rows(X, split, max_rows)
        if any(len(train) <= size < max_rows for size in sizes):
            continue  # all its rows were there already
        for model in models:
            if classify and "quantile" in model:
                continue
            row = dict(zip(SETTINGS, (name, split, model, max_rows), strict=True))
            fit = (model, name, split, max_rows, home, arguments.quick)
            yield Job([row], partial(_run, fit))


def _run(fit: tuple[Any, ...]) -> list[Row]:
    return [measure(*fit)]


# ---- the page ------------------------------------------------------------------------------------


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    if "MAPIE" not in set(rows["model"]):
        page.text("Not run: MAPIE.")
    for (task, n_rows), part in rows.groupby(["task", "rows"]):
        n_tables = part["data"].nunique()
        page.heading(f"{str(task).capitalize()}: at most {n_rows} training rows, {n_tables} tables")
        header = ["model", *(f"coverage for {round(100 * c)} %" for c in COVERAGES)]
        header += ["lowest of a table (90 %)", "size at 90 % / combutab"]
        page.table(header, _lines(part))


def _lines(part: pd.DataFrame) -> Iterator[list[str]]:
    """One row of a page's table for each model: means over tables, with intervals."""
    by_table = part.groupby(["model", "data"], sort=False)[list(RESULTS[3:])].mean()
    for model in part["model"].unique():
        means = by_table.loc[model]
        coverages = [_interval(means[f"coverage_{round(100 * c)}"], ".3f") for c in COVERAGES]
        with np.errstate(divide="ignore"):
            logs = np.log(means["size_90"] / by_table.loc[DEFAULTS]["size_90"])
        logs = logs[np.isfinite(logs)]
        yield [
            str(model),
            *coverages,
            f"{means['coverage_90'].min():.3f}",
            _interval(logs, ".2f", exponent=True),
        ]


def _interval(values: pd.Series, digits: str, *, exponent: bool = False) -> str:
    if len(values) < 2:
        return "-"
    ends = np.array(bootstrap_interval(values, random_state=0))
    mean, low, high = np.exp(ends) if exponent else ends
    return f"{mean:{digits}} [{low:{digits}}, {high:{digits}}]"


ROWS = Experiment("quality_coverage", SETTINGS, RESULTS, _jobs)
TITLE = "Coverage of prediction intervals and of sets of labels"
OPTIONS = {
    "data": DATA,
    "splits": 1,
    "rows": {"nargs": "+", "type": int, "default": [500, 3000], "help": "Training rows"},
    "models": MODELS,
}
STUDY = Study("benchmarks.quality.coverage", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
