"""How good is a fit without arguments? Ours beside boosting, RealMLP, TabM and scikit-learn's MLP.

Each model learns the same training rows of each table (4:1, at most --rows of them, equal rows on
one side) with its own defaults and as many threads as ours, in a process of its own, and is scored
on the rows held out: error (1 - accuracy, or RMSE), log loss, seconds of the fit, and by how much
the process grew. Errors and log losses, means over splits, are divided by those of the best peer
on the table; the geometric mean over tables is what a model costs beside knowing the best peer in
advance, and is below 1 where it is better than that. Intervals are of bootstraps over tables.
Models that have run on fewer splits are compared with our defaults alone, on the splits that they
have.

    python -m benchmarks.quality.predictions [--quick] [--data-home FOLDER] [--splits 3]
        [--rows 500 3000 10000] [--models NAME ...] [--data NAME ...] [--untimed]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA) and its folders openml, tuning and synthesis; `benchmarks.quality.tables` says what
their targets and categories are. More rows than a smaller number of --rows are drawn of tables that
have them. Peers come with `pip install 'combutab[bench]'`; what is not installed is left out, and
the page says so. A run that was stopped goes on where it stood. --quick trains ours for two epochs.
--untimed leaves the seconds out, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupShuffleSplit
from sklearn.neural_network import MLPClassifier as SklearnClassifier
from sklearn.neural_network import MLPRegressor as SklearnRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.quality.tables import files, known_names, load
from benchmarks.speed.common import call_apart, forget_peak, memory
from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
    paper_recipe,
)
from combutab.evaluation import bootstrap_interval, holm, wilcoxon

REALMLP = "RealMLP-TD"  # to whose seconds others are compared
SLOW = "TabM-D"  # no bar waits for it
DEFAULTS = "combutab"
TINY = 1e-300
MOST_CATEGORIES = 255
MOST_TEST = 10_000  # rows of a table that are held out, at most
_MLP, _PACK = (MLPClassifier, MLPRegressor), (PackClassifier, PackRegressor)
OURS: dict[str, tuple[type, type]] = {  # with their defaults; but for the paper's network
    "combutab": _MLP,
    "combutab, paper": _MLP,
    "combutab TabM": (TabMClassifier, TabMRegressor),
    "combutab Pack": _PACK,
}
VARIANTS: dict[str, tuple[tuple[type, type], dict[str, Any]]] = {  # what defaults are chosen among
    "combutab, one network": (_MLP, {"n_members": 1}),
    "combutab, quantile": (_MLP, {"numeric_encoding": "quantile"}),
    "combutab, 256 epochs": (_MLP, {"max_iter": 256}),
    "combutab, four members": (_MLP, {"n_members": 4, "bagging": "cv"}),
    "combutab Pack, no trees": (_PACK, {"boosting": False}),
    "combutab Pack, hold-out": (_PACK, {"cv": None}),
    "combutab Pack, 5 s": (_PACK, {"max_time": 5.0}),
    "combutab Pack, 10 s": (_PACK, {"max_time": 10.0}),
    "combutab Pack, 20 s": (_PACK, {"max_time": 20.0}),
}
PACKAGES = {"CatBoost": "catboost", "LightGBM": "lightgbm"} | dict.fromkeys(
    ("RealMLP-TD", "TabM-D"), "pytabkit"
)
PEERS = ("scikit-learn MLP", "HistGradientBoosting", *PACKAGES)
BEST_OF = ("scikit-learn MLP", "HistGradientBoosting", "CatBoost", REALMLP)  # that ratios are to
MODELS = (*OURS, *PEERS, *VARIANTS)
SETTINGS = ("data", "split", "model", "rows")
RESULTS = ("task", "n_train", "n_test", "test_error", "log_loss", "seconds", "megabytes")


def make(model: str, classify: bool, n_threads: int, seed: int, **changes: Any) -> Any:
    """The model with its defaults; of ours, with other values of some parameters."""
    kind = "Classifier" if classify else "Regressor"
    if model in OURS:
        if model == "combutab, paper":
            changes = paper_recipe("classification" if classify else "regression", **changes)
        return OURS[model][not classify](**changes, random_state=seed)
    if model in VARIANTS:
        both, own = VARIANTS[model]
        return both[not classify](**{**own, **changes}, random_state=seed)
    if model == "scikit-learn MLP":
        net = (SklearnClassifier if classify else SklearnRegressor)(random_state=seed)
        onehot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        numbers = make_pipeline(SimpleImputer(), StandardScaler())
        category = make_column_selector(dtype_include=["category", "bool"])
        return make_pipeline(make_column_transformer((onehot, category), remainder=numbers), net)
    if model == "HistGradientBoosting":
        boosting = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        return boosting(categorical_features="from_dtype", random_state=seed)
    if model == "CatBoost":
        import catboost

        options = {"verbose": False, "random_seed": seed, "allow_writing_files": False}
        return getattr(catboost, f"CatBoost{kind}")(thread_count=n_threads, **options)
    if model == "LightGBM":
        import lightgbm

        return getattr(lightgbm, f"LGBM{kind}")(n_jobs=n_threads, verbose=-1, random_state=seed)
    import pytabkit

    name = model.replace("-", "_")
    options = {"device": "cpu", "random_state": seed, "n_threads": n_threads}
    return getattr(pytabkit, f"{name}_{kind}")(**options)


def measure(
    model: str, name: str, split: int, most: int, n_threads: int, data_home: str | None, quick: bool
) -> dict[str, float]:
    """Fit and score one model in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(n_threads)
    X, y, classify = load(name, data_home)
    train, test = split_rows(X, split, most)
    fit_X, fit_y, test_X, test_y = X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test]
    options: dict[str, Any] = {}
    if model in ("CatBoost", "RealMLP-TD", "TabM-D"):
        texts = list(X.select_dtypes("category"))
        fit_X, test_X = (
            part.assign(**{c: part[c].astype(object).fillna("missing").astype(str) for c in texts})
            for part in (fit_X, test_X)
        )
        options = {("cat_features" if model == "CatBoost" else "cat_col_names"): texts}
        if model != "CatBoost":  # which alone of them takes missing numbers
            means = fit_X.mean(numeric_only=True)
            truths = dict.fromkeys(X.select_dtypes("bool"), float)
            fit_X, test_X = (part.fillna(means).astype(truths) for part in (fit_X, test_X))
    if model == "HistGradientBoosting":  # which takes no column of more categories than these
        many = [c for c in X.select_dtypes("category") if X[c].nunique() > MOST_CATEGORIES]
        fit_X, test_X = (
            part.assign(**{c: part[c].cat.codes for c in many}) for part in (fit_X, test_X)
        )
    if classify:  # some take numbers alone
        classes, codes = np.unique(np.asarray(y).astype(str), return_inverse=True)
        fit_y, test_y = codes[train], codes[test]
        known = np.unique(fit_y)
    short = {"max_iter": 2} if model in (*OURS, *VARIANTS) else {}
    estimator = make(model, classify, n_threads, split, **(short if quick else {}))
    small = fit_X.iloc[:200], (fit_y[:200] if classify else fit_y.iloc[:200])
    if model not in PACKAGES:  # what is loaded once is no part of a fit
        make(model, classify, n_threads, split, **short).fit(*small)
    before, started = memory("VmRSS"), time.perf_counter()
    forget_peak()
    estimator.fit(fit_X, fit_y, **options)
    seconds = time.perf_counter() - started
    found = {"seconds": seconds, "megabytes": (memory("VmHWM") - before) * 2**20 / 1e6}
    if not classify:
        residual = np.asarray(estimator.predict(test_X), float).reshape(-1) - test_y.to_numpy(float)
        return found | {"test_error": float(np.sqrt(np.mean(residual**2)))}
    scores = np.zeros((len(test_y), len(classes)))
    scores[:, known] = estimator.predict_proba(test_X)
    error = float((scores.argmax(1) != test_y).mean())
    return found | {
        "test_error": error,
        "log_loss": float(log_loss(test_y, scores, labels=range(len(classes)))),
    }


def split_rows(X: pd.DataFrame, split: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, equal ones on one side; at most so many to train on."""
    groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False).ngroup()
    train, test = next(
        GroupShuffleSplit(1, test_size=0.2, random_state=split).split(X, groups=groups)
    )
    if len(test) > MOST_TEST:
        test = np.sort(np.random.default_rng(split).choice(test, MOST_TEST, replace=False))
    return np.random.default_rng(split).permutation(train)[:most], test


def _run(
    fit: tuple[Any, ...], classify: bool, n_train: int, n_test: int, arguments: argparse.Namespace
) -> list[Row]:
    found = call_apart(measure, *fit, here=arguments.quick)
    if arguments.untimed:
        del found["seconds"]
    task = "classification" if classify else "regression"
    row: Row = {"task": task, "n_train": str(n_train), "n_test": str(n_test)}
    names = ("test_error", "log_loss", "seconds", "megabytes")
    return [row | {name: f"{found[name]:.6g}" if name in found else "" for name in names}]


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    names = arguments.data or (list(files(home)) if home else known_names())
    if arguments.quick:
        names = names[:2]
    models = [m for m in arguments.models if m not in PACKAGES or find_spec(PACKAGES[m])]
    sizes = [200] if arguments.quick else sorted(arguments.rows)
    n_threads = torch.get_num_threads()
    n_splits = 1 if arguments.quick else arguments.splits
    for split, most, name in product(range(n_splits), sizes, names):
        X, _, classify = load(name, home)
        train, test = split_rows(X, split, most)
        if any(len(train) <= size < most for size in sizes):
            continue  # all its rows were there already
        for model in models:
            values = (name, split, model, most)
            wanted = dict(zip(SETTINGS, map(str, values), strict=True))
            given = (model, name, split, most, n_threads, home, arguments.quick)
            run = partial(_run, given, classify, len(train), len(test), arguments)
            yield Job([wanted], run, f"{name}, split {split}, {most} rows, {model}")


def same_fits(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Rows of models that have run on the same splits, a frame for each set of splits.

    The first is of the splits that our defaults have run on, or else of most splits; the others are
    of models that have run on fewer, beside all that have run on these too: on other splits errors
    are not comparable.
    """
    splits = pd.Series(list(zip(rows["data"], rows["split"], strict=True)), rows.index)
    fits = splits.groupby(rows["model"]).agg(frozenset)
    first, *fewer = sorted(set(fits), key=len, reverse=True)
    first = fits.get(DEFAULTS, first)
    return [
        rows[rows["model"].isin(fits.index[fits >= wanted]) & splits.isin(wanted)]
        for wanted in (first, *(each for each in fewer if not each >= first))
    ]


def ratios(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What models cost beside the best peer on each table, by what is measured.

    The models have run on the same splits. An error or log loss is a table's mean over them, over
    that of the best peer, or seconds over RealMLP-TD's: a row a table, a column a model.
    """
    rows = _clipped(rows)
    errors = _over_best(rows, "test_error")
    found = {"error": errors}
    for task, own in rows.groupby("task"):
        found[str(task)] = errors[errors.index.isin(own["data"])]
    found["log loss"] = _over_best(rows, "log_loss")
    seconds = rows.pivot_table(index=["data", "split"], columns="model", values="seconds")
    if REALMLP in seconds:
        logs = np.log(seconds.div(seconds[REALMLP], axis=0)).groupby("data").mean()
        found["seconds / RealMLP-TD"] = np.exp(logs)
    return found


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a model: geometric means over tables of its ratios, ranks, medians of seconds."""
    means = {name: np.exp(np.log(each).mean()) for name, each in ratios(rows).items()}
    found = pd.DataFrame(means)
    rows = rows.assign(rank=rows.groupby(["data", "split"])["test_error"].rank())
    by_model = rows.groupby("model", sort=False)
    found["mean rank"], found["seconds"] = by_model["rank"].mean(), by_model["seconds"].median()
    found["MB"] = by_model["megabytes"].median()
    found.insert(0, "fits", by_model.size())
    return found.sort_values("error")


def _with_intervals(found: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The summary as text, with intervals of the ratios."""
    told = found.map("{:.3g}".format)
    for name, each in ratios(rows).items():
        if name in told and not name.startswith("seconds"):
            told[name] = [_ratio(np.log(each[model].dropna())) for model in found.index]
    return told


def beside_defaults(rows: pd.DataFrame) -> pd.DataFrame:
    """Each model beside our defaults on the splits that both have run on: a row a model.

    Errors and log losses are means over splits, their ratios geometric means over tables with an
    interval of a bootstrap over tables. p-values are Wilcoxon's, over tables, by Holm.
    """
    rows, keys = _clipped(rows), ["data", "split"]
    found = {}
    for model in rows["model"].unique():
        both = rows[rows["model"].isin([model, DEFAULTS])]
        both = both[both.groupby(keys)["model"].transform("nunique") == 2]
        logs = {}
        for column in ("test_error", "log_loss", "seconds"):
            means = both.pivot_table(index="data", columns="model", values=column)
            logs[column] = np.log(means[model] / means[DEFAULTS]) if len(means) else means
        errors = logs["test_error"]
        if len(errors) > 1:
            found[model] = {
                "fits": len(both) // 2,
                "error": _ratio(errors),
                "log loss": _ratio(logs["log_loss"]),
                "seconds": f"{np.exp(logs['seconds'].mean()):.3g}",
                "better / worse": f"{(errors < 0).sum()} / {(errors > 0).sum()} tables",
                "p": wilcoxon(errors, np.zeros(len(errors))).pvalue,
            }
    table = pd.DataFrame.from_dict(found, orient="index")
    return table.assign(p=[f"{p:.2f}" for p in holm(table["p"])]) if found else table


def _clipped(rows: pd.DataFrame) -> pd.DataFrame:
    """No mistake counts as half of one, or nothing could be divided by it."""
    least = np.where(rows["task"] == "classification", 0.5 / rows["n_test"], TINY)
    return rows.assign(test_error=rows["test_error"].clip(lower=least))


def _ratio(logs: pd.Series) -> str:
    if len(logs) < 2:
        return "-"
    mean, low, high = np.exp(bootstrap_interval(logs, random_state=0))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _over_best(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over splits, over that of the best peer: a row a table that has them."""
    means = rows.pivot_table(index="data", columns="model", values=column)
    return means.div(means[means.columns.intersection(BEST_OF)].min(axis=1), axis=0)


def _judge(model: str, column: str, most: float, table: pd.DataFrame) -> Finding | None:
    """Whether a mean is small enough; None without the model or one of the peers."""
    if not {model, *BEST_OF} <= set(table.index) or np.isnan(table.loc[model, column]):
        return None
    found = float(table.loc[model, column])
    return Finding(f"{found:.3f}", [found <= most])


BARS = [
    Claim(model, f"{column} at most {most:g}", partial(_judge, model, column, most))
    for model, column, most in (
        ("combutab", "error", 1.06),
        ("combutab", "log loss", 0.97),
        ("combutab", "seconds / RealMLP-TD", 0.25),
        ("combutab Pack", "error", 0.97),
        ("combutab Pack", "classification", 1.02),
        ("combutab Pack", "regression", 0.97),
        ("combutab Pack", "log loss", 0.92),
        ("combutab Pack", "seconds / RealMLP-TD", 2.0),
    )
]


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    missing = [name for name in PEERS if name not in set(rows["model"])]
    page.text(
        "Error and log loss are a table's means over splits, as ratios to those of its best peer "
        f"among {', '.join(BEST_OF)} (which of them that is differs from table to table), "
        "geometric means over tables with 95 % intervals of bootstraps over tables: below 1 is "
        "better than the best peer; no mistake counts as half of one."
        + f" Not run: {', '.join(missing)}."
        * bool(missing)
        + " Ranks are among the models of the table. Medians of seconds and of memory; seconds / "
        "RealMLP-TD is a geometric mean."
    )
    by_size = {size: same_fits(own) for size, own in rows.groupby("rows")}
    summaries = {}
    for size, own in rows.groupby("rows"):
        first = by_size[size][0]
        found = summaries[f"{size} rows"] = summary(first)
        n_splits = own.groupby("data")["split"].nunique()
        page.heading(f"At most {size} training rows")
        page.text(f"Tables: {len(n_splits)}, splits: {n_splits.min()} to {n_splits.max()}.")
        page.table(["model", *found.columns], _lines(_with_intervals(found, first), "{}"))
        _write_pairs(page, own, found)
    page.heading("Bars")
    page.text("What our defaults are to reach, tuned to no single table.")
    page.text(claims_table(BARS, summaries))
    for size, (first, *fewer) in by_size.items():
        for name, number in (("test_error", "{:.4g}"), ("log_loss", "{:.3f}")):
            page.heading(f"{size} rows: {name.replace('_', ' ')}, mean over splits")
            for part in (first, *fewer):
                wide = part.pivot_table(index="data", columns="model", values=name, sort=False)
                if part is not first:
                    own = ", ".join(m for m in wide if m not in set(first["model"]))
                    page.text(f"{own}, and the others on the same splits:")
                page.table(["data", *wide.columns], _lines(wide, number))


def _write_pairs(page: Page, rows: pd.DataFrame, found: pd.DataFrame) -> None:
    pairs = beside_defaults(rows)
    if not len(pairs):
        return
    few = [model for model in pairs.index if model not in found.index]
    least = min(1.0, len(pairs) * 2.0 ** (1 - rows["data"].nunique()))
    page.text(
        f"Each model beside `{DEFAULTS}` on the splits that both have run on: errors, log "
        "losses and seconds as ratios, geometric means over tables with 95 % intervals, and p "
        "by Wilcoxon's test over tables, adjusted by Holm's method."
        + f" With so few tables p cannot be below {least:.2g}." * (least > 0.005)
        + f" In this table alone, for they have fewer fits: {', '.join(few)}." * bool(few)
    )
    page.table([f"model / {DEFAULTS}", *pairs.columns], _lines(pairs, "{}"))


def _lines(table: pd.DataFrame, number: str) -> list[list[str]]:
    return [[str(name), *map(number.format, row)] for name, *row in table.itertuples()]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[3000], help="training rows at most (%(default)s)"
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--untimed", action="store_true", help="for a machine with other work")
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the tables")
    usual = [*OURS, *PEERS]
    parser.add_argument("--models", nargs="+", choices=MODELS, default=usual, metavar="NAME")
    parser.add_argument("--data-home", help="folder with CSV files; else OpenML")


STUDY = Study(
    "quality_predictions",
    "quality_predictions",
    __doc__.splitlines()[0],
    "benchmarks.quality.predictions",
    [Experiment("quality_predictions", SETTINGS, RESULTS, _jobs)],
    _write,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
