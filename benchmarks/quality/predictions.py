"""How good is a fit without arguments? Ours beside boosting, RealMLP, TabM and scikit-learn's MLP.

Each model learns the same training rows of each table (4:1, at most --rows of them, equal rows on
one side) with its own defaults and as many threads as ours, in a process of its own, and is scored
on the rows held out: error (1 - accuracy, or RMSE), log loss, seconds of the fit, and by how much
the process grew. A table's errors are divided by the best of it; the geometric mean over tables
and splits is what a model costs beside knowing the best one in advance.

    python -m benchmarks.quality.predictions [--quick] [--data-home FOLDER] [--splits 3]
        [--models NAME ...] [--data NAME ...]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA); those that are not of the eight have their target in the last column. Peers that
are not installed (`pip install 'combutab[bench]'` has skorch alone; catboost, lightgbm, pytabkit)
are left out, and the page says so. A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
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

from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row
from benchmarks.speed.common import call_apart, forget_peak, memory
from combutab import MLPClassifier, MLPRegressor, paper_recipe
from combutab.datasets import list_openml, load_openml, read_table, split_target

FEW = 20  # distinct whole numbers of a target, up to which they are classes
REALMLP = {  # the parts of that recipe that ours has
    "hidden_layer_sizes": (256, 256, 256), "init": "ntk", "numeric_encoding": "robust",
    "max_onehot": 8, "numeric_embedding": "pbld", "scale_inputs": True, "solver": "adamw",
    "beta_2": 0.95, "learning_rate": "coslog4", "alpha": 0.0, "batch_size": 256,
    "learning_rate_factors": {"bias": 0.1, "embedding": 0.1, "activation": 0.1, "scale": 6.0},
    "dropout": 0.15, "weight_decay": 0.02, "regularization_schedule": "flat-cosine",
    "max_iter": 256, "n_iter_no_change": float("inf"), "early_stopping": "auto",
    "validation_fraction": 0.2, "early_stopping_scoring": "loss",
}  # fmt: skip
PAPER: dict[str, dict[str, Any]] = {  # what differs from the CombU paper's recipe
    "combutab, paper": {},
    "combutab, early stopping": {"early_stopping": True},
    "combutab, RealMLP's parts": REALMLP,
}
RECIPES = ("combutab", *PAPER)  # the first one is the defaults
PACKAGES = {"CatBoost": "catboost", "LightGBM": "lightgbm"} | dict.fromkeys(
    ("RealMLP-TD", "TabM-D"), "pytabkit"
)
MODELS = (*RECIPES, "scikit-learn MLP", "HistGradientBoosting", *PACKAGES)
SETTINGS = ("data", "split", "model", "rows")
RESULTS = ("task", "n_train", "n_test", "test_error", "log_loss", "seconds", "megabytes")


def known_names() -> list[str]:
    """The eight tables."""
    return list(list_openml()["name"])


def files(folder: str) -> dict[str, Path]:
    """The CSV files of a folder, or of its subfolder that the eight are in, by name."""
    found = [p for place in (Path(folder), Path(folder) / "openml") for p in place.glob("*.csv*")]
    return {p.name.partition(".csv")[0]: p for p in sorted(found)}


def load(name: str, data_home: str | None) -> tuple[pd.DataFrame, pd.Series, bool]:
    """Features, target, and whether it is a class."""
    if name in known_names():
        data = load_openml(name, data_home=data_home)
        return data.X, data.y, data.task == "classification"
    assert data_home is not None
    table = read_table(files(data_home)[name])
    X, y = split_target(table, table.columns[-1])
    texts = list(X.select_dtypes(["object", "string"]))
    numbers = pd.api.types.is_numeric_dtype(y)
    classify = not numbers or (y.nunique() <= FEW and bool((y == y.round()).all()))
    return X.astype(dict.fromkeys(texts, "category")), y, classify


def make(model: str, classify: bool, n_threads: int, seed: int) -> Any:
    """The model with its defaults."""
    kind = "Classifier" if classify else "Regressor"
    if model in RECIPES:
        settings = dict(PAPER.get(model, {}))
        if settings.get("init") == "ntk":
            own = {"activation": "blend-selu", "learning_rate_init": 0.04, "label_smoothing": 0.1}
            if not classify:
                own = {"activation": "blend-mish", "learning_rate_init": 0.2}
                own["clip_predictions"] = True
            settings |= own
        if model in PAPER:
            settings = paper_recipe("classification" if classify else "regression", **settings)
        return (MLPClassifier if classify else MLPRegressor)(**settings, random_state=seed)
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
    model: str, name: str, split: int, most: int, n_threads: int, data_home: str | None
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
            fit_X, test_X = fit_X.fillna(means), test_X.fillna(means)
    if classify:  # some take numbers alone
        classes, codes = np.unique(np.asarray(y).astype(str), return_inverse=True)
        fit_y, test_y = codes[train], codes[test]
        known = np.unique(fit_y)
    estimator = make(model, classify, n_threads, split)
    small = fit_X.iloc[:200], (fit_y[:200] if classify else fit_y.iloc[:200])
    if model not in PACKAGES:  # what is loaded once is no part of a fit
        make(model, classify, n_threads, split).fit(*small)
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
    return np.random.default_rng(split).permutation(train)[:most], test


def _run(
    arguments: tuple[Any, ...], classify: bool, n_train: int, n_test: int, quick: bool
) -> list[Row]:
    found = call_apart(measure, *arguments, here=quick)
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
    most, n_threads = 200 if arguments.quick else arguments.rows, torch.get_num_threads()
    for name in names:
        X, _, classify = load(name, home)
        for split in range(1 if arguments.quick else arguments.splits):
            train, test = split_rows(X, split, most)
            for model in models:
                values = (name, split, model, most)
                wanted = dict(zip(SETTINGS, map(str, values), strict=True))
                given = (model, name, split, most, n_threads, home)
                run = partial(_run, given, classify, len(train), len(test), arguments.quick)
                yield Job([wanted], run, f"{name}, split {split}, {model}")


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over tables and splits, a row a model: of ratios to the best, ranks and seconds."""
    rows = rows.assign(
        test_error=rows["test_error"].clip(lower=1e-4)
    )  # a perfect one divides nothing
    keys = ["data", "split"]
    for name in ("test_error", "log_loss"):
        rows[f"{name} / best"] = rows[name] / rows.groupby(keys)[name].transform("min")
    rows["rank"] = rows.groupby(keys)["test_error"].rank()
    table = {"error": _means(rows, "test_error / best")}
    for task, own in rows.groupby("task"):
        table[str(task)] = _means(own, "test_error / best")
    table["log loss"] = _means(rows[rows["log_loss"].notna()], "log_loss / best")
    by_model = rows.groupby("model", sort=False)
    table |= {"mean rank": by_model["rank"].mean(), "seconds": by_model["seconds"].median()}
    table["MB"] = by_model["megabytes"].median()
    return pd.DataFrame(table).sort_values("error")


def _means(rows: pd.DataFrame, column: str) -> pd.Series:
    # each table counts once, however many splits it has
    logs = np.log(rows[column]).groupby([rows["model"], rows["data"]]).mean()
    return np.exp(logs.groupby("model").mean())


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    missing = sorted({p for p in PACKAGES.values() if not find_spec(p)})
    page.text(
        f"Tables: {rows['data'].nunique()}, splits: {rows['split'].nunique()}; at most "
        f"{rows['rows'].max()} training rows. Ratios to the best model of a table and split, "
        "geometric means over them; medians of seconds and of memory."
        + f" Not installed: {', '.join(missing)}."
        * bool(missing)
    )
    found = summary(rows)
    page.table(["model", *found.columns], _lines(found, "{:.3g}"))
    for name, number in (("test_error", "{:.4g}"), ("log_loss", "{:.3f}")):
        page.heading(f"{name.replace('_', ' ')}, mean over splits")
        wide = rows.pivot_table(index="data", columns="model", values=name, sort=False)
        page.table(["data", *wide.columns], _lines(wide, number))


def _lines(table: pd.DataFrame, number: str) -> list[list[str]]:
    return [[str(name), *map(number.format, row)] for name, *row in table.itertuples()]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=3000, help="training rows at most")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the tables")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
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
