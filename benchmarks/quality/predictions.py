"""How good are our default settings, compared with boosting, RealMLP, TabM and scikit-learn's MLP?

Each model is trained on the same training rows of each table (a 4:1 split with equal rows on the
same side, at most 500 or 3,000 training rows) with its own defaults and as many threads as ours, in
a separate process. Measures on the test rows: error (1 - accuracy, or RMSE), log loss, seconds of
the fit, and memory (growth of the process). Errors and log losses are means over splits, as ratios
to the best of four peers on the same table (scikit-learn MLP, HistGradientBoosting, CatBoost and
RealMLP-TD; which one is the best is not known in advance): below 1 is better than the best peer.
Means over tables are geometric, with 95 % bootstrap intervals over tables. An error of 0 counts as
half a mistake. Ranks are among the models of the page's table. Seconds and memory are medians;
seconds / RealMLP-TD is a geometric mean. The table "model / combutab" has ratios to our defaults on
the splits that both have run on, with p-values of Wilcoxon's test over tables after Holm's
adjustment; models that have run on fewer splits are only in this table. Target values are for the
mean ratios of our defaults. "Met" or "missed" is about the mean; the verdict in brackets is by the
t-interval of the logarithms over tables.

The 39 tables are the CombU paper's eight, 26 from PMLB (at most 8,000 rows of each), and beijing,
default, diabetes130, magic and shoppers from UCI. At 3,000 rows the peers and packs were timed
while the machine did other work: their seconds are too high, which favours ours. The stored rows
come from several runs of the command with different models, on an AMD EPYC (family 25, model 17).
All splits but the first are untimed; the second of 500 rows and the second and third of 10,000 rows
were run on an Intel Xeon (family 6, model 167). The rows of packs are older than two changes that
make a pack faster: a member ends after a cycle of the learning rate that lowers its loss by less
than 5 %, and boosted trees have one setting (they had two). On the first split, in CPU seconds on
the same busy machine, a pack then takes .675 [.62, .74] times as long at 500 rows (37 tables), with
.998 [.991, 1.005] times the error and 1.001 [.998, 1.004] times the log loss. At 3,000 rows (39
tables, computed from the losses of all epochs) it takes .72 times as long, with .999 [.993, 1.004]
times the error and 1.003 [1.000, 1.007] times the log loss. "combutab, two networks" are our former
defaults, which are not run any more: two networks, which no cycle of the learning rate ended. At
500 and 3,000 rows our defaults were timed with one thread while the other core was busy, so their
seconds are too high.

    python -m benchmarks.quality.predictions [--quick] [--data-home FOLDER] [--splits 3]
        [--rows 500 3000 10000] [--models NAME ...] [--data NAME ...] [--untimed]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA) and its folders openml, tuning and synthesis; `benchmarks.quality.tables` has their
targets and categories. More rows than a smaller number of --rows are drawn of tables that have
them. Peers come with `pip install '.[bench]'`; a peer that is not installed is left out, and
the page says so. A run that was stopped is resumed by the same command. --quick trains ours for two
epochs. --untimed leaves the seconds out, for a machine that has other work.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn import ensemble, neural_network
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import combutab
from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import Line, Look, plot
from benchmarks.common.verdicts import beats
from benchmarks.quality.tables import DATA, lines, load, number, wanted
from benchmarks.speed.common import call_apart, seconds_and_peak
from combutab.evaluation import bootstrap_interval, holm, wilcoxon

REALMLP = "RealMLP-TD"  # to whose seconds others are compared
DEFAULTS = "combutab"
MOST_CATEGORIES = 255
MOST_TEST = 10_000  # rows of a table that are held out, at most
_MLP = combutab.MLPClassifier, combutab.MLPRegressor
_PACK = combutab.PackClassifier, combutab.PackRegressor
MINE: dict[str, tuple[tuple[type, type], dict[str, Any]]] = {  # classes, changed defaults
    "combutab": (_MLP, {}),
    "combutab, paper": (_MLP, {}),  # with the CombU paper's recipe
    "combutab TabM": ((combutab.TabMClassifier, combutab.TabMRegressor), {}),
    "combutab Pack": (_PACK, {}),
    "combutab, one network": (_MLP, {"n_members": 1}),
    **{f"combutab Pack, {s} s": (_PACK, {"max_time": float(s)}) for s in (5, 10, 20)},
}
OURS = list(MINE)[:4]  # that are run usually
PACKAGES = {"CatBoost": "catboost", "LightGBM": "lightgbm"}
PACKAGES |= dict.fromkeys((REALMLP, "TabM-D"), "pytabkit")
PEERS = ("scikit-learn MLP", "HistGradientBoosting", *PACKAGES)
BEST_OF = ("scikit-learn MLP", "HistGradientBoosting", "CatBoost", REALMLP)  # that ratios are to
MODELS = (*MINE, *PEERS)
SETTINGS = ("data", "split", "model", "rows")
LOOKS: dict[str, Look] = {  # of the models in the picture; grey: boosting
    "combutab Pack": ("#D55E00", "D", "none"),
    "combutab": ("#0072B2", "v", "none"),
    REALMLP: ("#009E73", "s", "none"),
    "CatBoost": ("#777777", "o", "none"),
    "HistGradientBoosting": ("#777777", ">", "none"),
    "scikit-learn MLP": ("#000000", "X", "none"),
}
MEASURES = ("test_error", "log_loss", "seconds", "megabytes")
RESULTS = ("task", "n_train", "n_test", *MEASURES)
SECONDS = f"seconds / {REALMLP}"


def kind_of(classify: bool) -> str:
    return "classification" if classify else "regression"


def make(model: str, classify: bool, n_threads: int, seed: int, **changes: Any) -> Any:
    """The model with its defaults; of ours, with other values of some parameters."""
    kind = "Classifier" if classify else "Regressor"
    if model == "combutab, paper":
        changes = combutab.paper_recipe(kind_of(classify), **changes)
    if model in MINE:
        classes, defaults = MINE[model]
        return classes[not classify](**{**defaults, **changes}, random_state=seed)
    if model == "scikit-learn MLP":
        net = getattr(neural_network, f"MLP{kind}")(random_state=seed)
        onehot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        numbers = make_pipeline(SimpleImputer(), StandardScaler())
        category = make_column_selector(dtype_include=["category", "bool"])
        return make_pipeline(make_column_transformer((onehot, category), remainder=numbers), net)
    if model == "HistGradientBoosting":
        boosting = getattr(ensemble, f"HistGradientBoosting{kind}")
        return boosting(categorical_features="from_dtype", random_state=seed)
    package = import_module(PACKAGES[model])
    if model == "CatBoost":
        options = {"verbose": False, "random_seed": seed, "allow_writing_files": False}
        return getattr(package, f"CatBoost{kind}")(thread_count=n_threads, **options)
    if model == "LightGBM":
        return getattr(package, f"LGBM{kind}")(n_jobs=n_threads, verbose=-1, random_state=seed)
    options = {"device": "cpu", "random_state": seed, "n_threads": n_threads}
    return getattr(package, f"{model.replace('-', '_')}_{kind}")(**options)


def measure(
    model: str, name: str, split: int, max_rows: int, data_home: str | None, quick: bool
) -> dict[str, float]:
    """Fit and score one model in this process."""
    warnings.filterwarnings("ignore")
    n_threads = torch.get_num_threads()
    X, y, classify = load(name, data_home)
    train, test = split_rows(X, split, max_rows)
    fit_X, fit_y, test_X, test_y = X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test]
    options: dict[str, Any] = {}
    parts = [fit_X, test_X]
    if model in ("CatBoost", "RealMLP-TD", "TabM-D"):
        texts = list(X.select_dtypes("category"))
        parts = [
            part.assign(**{c: part[c].astype(object).fillna("missing").astype(str) for c in texts})
            for part in parts
        ]
        options = {("cat_features" if model == "CatBoost" else "cat_col_names"): texts}
        if model != "CatBoost":  # the only one of them that takes missing numbers
            means = fit_X.mean(numeric_only=True)
            truths = dict.fromkeys(X.select_dtypes("bool"), float)
            parts = [part.fillna(means).astype(truths) for part in parts]
    if model == "HistGradientBoosting":  # which takes no column of more categories than these
        many = [c for c in X.select_dtypes("category") if X[c].nunique() > MOST_CATEGORIES]
        parts = [part.assign(**{c: part[c].cat.codes for c in many}) for part in parts]
    fit_X, test_X = parts
    if classify:  # some take numbers alone
        classes, codes = np.unique(np.asarray(y).astype(str), return_inverse=True)
        fit_y, test_y = codes[train], codes[test]
        known_classes = np.unique(fit_y)
    short = {"max_iter": 2} if model in MINE else {}
    estimator = make(model, classify, n_threads, split, **(short if quick else {}))
    small = fit_X.iloc[:200], (fit_y[:200] if classify else fit_y.iloc[:200])
    if model not in PACKAGES:  # what is loaded once is no part of a fit
        make(model, classify, n_threads, split, **short).fit(*small)
    seconds, peak = seconds_and_peak(partial(estimator.fit, fit_X, fit_y, **options))
    result = {"seconds": seconds, "megabytes": peak * 2**20 / 1e6}
    if not classify:
        residual = np.asarray(estimator.predict(test_X), float).reshape(-1) - test_y.to_numpy(float)
        return result | {"test_error": float(np.sqrt(np.mean(residual**2)))}
    scores = np.zeros((len(test_y), len(classes)))
    scores[:, known_classes] = estimator.predict_proba(test_X)
    loss = float(log_loss(test_y, scores, labels=range(len(classes))))
    return result | {"test_error": float((scores.argmax(1) != test_y).mean()), "log_loss": loss}


def split_rows(X: pd.DataFrame, split: int, max_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, equal ones on one side; at most so many to train on."""
    groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False).ngroup()
    train, test = next(
        GroupShuffleSplit(1, test_size=0.2, random_state=split).split(X, groups=groups)
    )
    if len(test) > MOST_TEST:
        test = np.sort(np.random.default_rng(split).choice(test, MOST_TEST, replace=False))
    return np.random.default_rng(split).permutation(train)[:max_rows], test


def _run(fit: tuple[Any, ...], sizes: Row, arguments: Arguments) -> list[Row]:
    result = call_apart("benchmarks.quality.predictions:measure", *fit, here=arguments.quick)
    if arguments.untimed:
        del result["seconds"]
    return [sizes | result]


def _jobs(arguments: Arguments) -> Iterator[Job]:
    names, home = wanted(arguments)
    models = [m for m in arguments.models if m not in PACKAGES or find_spec(PACKAGES[m])]
    sizes = [200] if arguments.quick else sorted(arguments.rows)
    n_splits = 1 if arguments.quick else arguments.splits
    for split, max_rows, name in product(range(n_splits), sizes, names):
        X, _, classify = load(name, home)
        train, test = split_rows(X, split, max_rows)
        if any(len(train) <= size < max_rows for size in sizes):
            continue  # all its rows were there already
        counts = {"task": kind_of(classify), "n_train": len(train), "n_test": len(test)}
        for model in models:
            row = dict(zip(SETTINGS, (name, split, model, max_rows), strict=True))
            run = partial(_run, (model, name, split, max_rows, home, arguments.quick), counts)
            yield Job([row], partial(run, arguments))


def same_splits(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the splits that our defaults have run on, and the models that have all of them.

    Where our defaults have not run, of the splits of the model that has most.
    """
    splits = pd.Series(list(zip(rows["data"], rows["split"], strict=True)), rows.index)
    fits = splits.groupby(rows["model"], sort=False).agg(frozenset)
    first = fits.get(DEFAULTS, max(fits, key=len))
    return rows[splits.isin(first)], list(fits.index[fits >= first])


def ratios(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What models cost beside the best peer on each table, by what is measured.

    An error or log loss is a table's mean over splits, over that of the best peer, or seconds over
    RealMLP-TD's: a row for each table, a column for each model.
    """
    rows = _comparable(rows)
    errors = _over_best(rows, "test_error")
    tables = {"error": errors}
    for task, task_rows in rows.groupby("task"):
        tables[str(task)] = errors[errors.index.isin(task_rows["data"])]
    tables["log loss"] = _over_best(rows, "log_loss")
    seconds = rows.pivot_table("seconds", ["data", "split"], "model")
    if REALMLP in seconds:
        logs = np.log(seconds.div(seconds[REALMLP], axis=0)).groupby("data").mean()
        tables[SECONDS] = np.exp(logs)
    return tables


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each model: means of its ratios with intervals, ranks, medians of seconds."""
    columns = {
        name: model_ratios.apply(lambda table_ratios: _ratio(np.log(table_ratios.dropna())))
        for name, model_ratios in ratios(rows).items()
    }
    columns["median error"] = ratios(rows)["error"].median().map("{:.3f}".format)
    ranks = rows.groupby(["data", "split"])["test_error"].rank()
    costs = _comparable(rows).groupby("model")[["seconds", "megabytes"]].median()
    columns["mean rank"] = ranks.groupby(rows["model"]).mean().map(number)
    columns |= {"seconds": costs["seconds"].map(number), "MB": costs["megabytes"].map(number)}
    return pd.DataFrame(columns).sort_values("error")


def beside_defaults(rows: pd.DataFrame) -> pd.DataFrame:
    """Each model beside our defaults on the splits that both have run on: a row for each model.

    Errors and log losses are means over splits, their ratios geometric means over tables with an
    interval of a bootstrap over tables. p-values are Wilcoxon's, over tables, by Holm.
    """
    rows, comparisons = _comparable(rows), {}
    for model in rows["model"].unique():
        pair_rows = rows[rows["model"].isin([model, DEFAULTS])]
        pair_rows = pair_rows[
            pair_rows.groupby(["data", "split"])["model"].transform("nunique") == 2
        ]
        means = pair_rows.groupby(["data", "model"])[list(MEASURES[:3])].mean().unstack("model")
        if len(means) > 1:
            logs = np.log(means.xs(model, axis=1, level=1) / means.xs(DEFAULTS, axis=1, level=1))
            errors = logs["test_error"]
            comparisons[model] = {
                "tables": len(logs),
                "error": _ratio(errors),
                "log loss": _ratio(logs["log_loss"].dropna()),
                "seconds": number(np.exp(logs["seconds"].mean())),
                "better / worse": f"{(errors < 0).sum()} / {(errors > 0).sum()}",
                "p": wilcoxon(errors, np.zeros(len(errors))).pvalue,
            }
    table = pd.DataFrame.from_dict(comparisons, orient="index")
    return table.assign(p=[f"{p:.2g}" for p in holm(table["p"])]) if comparisons else table


def _comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """No mistake counts as half of one; no seconds are of a split on which ours were not timed."""
    min_error = np.where(rows["task"] == "classification", 0.5 / rows["n_test"], 0.0)
    ours = rows["seconds"].where(rows["model"] == DEFAULTS).groupby([rows["data"], rows["split"]])
    timed = ours.transform("count") > 0
    if DEFAULTS in set(rows["model"]):
        rows = rows.assign(seconds=rows["seconds"].where(timed))
    return rows.assign(test_error=rows["test_error"].clip(lower=min_error))


def _ratio(logs: pd.Series) -> str:
    if len(logs) < 2:
        return "-"
    mean, low, high = np.exp(bootstrap_interval(logs, random_state=0))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _over_best(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over splits, over that of the best peer: a row for each table that has them."""
    means = rows.pivot_table(column, "data", "model")
    return means.div(means[means.columns.intersection(BEST_OF)].min(axis=1), axis=0)


BARS = {
    "combutab": {"error": 1.06, "log loss": 0.97, SECONDS: 0.25},
    "combutab Pack": {"error": 0.97, "classification": 1.02, "regression": 0.97}
    | {"log loss": 0.92, SECONDS: 2.0},
}


def bars(samples: dict[str, dict[str, pd.DataFrame]]) -> pd.DataFrame:
    """Whether mean ratios are below our defaults' bars, and whether the tables decide it.

    A row for each bar and a column for each sample of ratios by name.
    """

    def judge(sample: dict[str, pd.DataFrame], model: str, column: str, target: float) -> str:
        if column not in sample or not {model, *BEST_OF} <= set(sample[column]):
            return "not judged"
        logs = np.log(sample[column][model])
        word = "met" if logs.mean() <= np.log(target) else "missed"
        verdict = beats(logs, np.log(target), greater_is_better=False)
        return f"{np.exp(logs.mean()):.3f}: {word} ({verdict.word} over {verdict.n_units} tables)"

    table_rows = [
        {"model": model, "target value": f"{column} at most {target:g}"}
        | {name: judge(sample, model, column, target) for name, sample in samples.items()}
        for model, targets in BARS.items()
        for column, target in targets.items()
    ]
    return pd.DataFrame(table_rows).set_index("model")


def _picture(samples: dict[str, pd.DataFrame]) -> Figure:
    """Mean error with its interval by median seconds, a panel for each number of rows timed."""
    panels: dict[str, list[Line]] = {}
    timed = {size: rows for size, rows in samples.items() if rows["seconds"].notna().any()}
    for size, rows in timed.items():
        errors = ratios(rows)["error"]
        seconds = _comparable(rows).groupby("model")["seconds"].median()
        panels[size] = []
        for model in [name for name in LOOKS if name in errors and len(errors) > 1]:
            logs = np.log(errors[model].dropna())
            mean, low, high = np.exp(bootstrap_interval(logs, random_state=0))
            ends = pd.Series([low]), pd.Series([high])
            panels[size].append(Line([seconds[model]], [mean], model, LOOKS[model], *ends))
    labels = ("seconds of a fit, median over tables", "test error / best of four peers")
    figure = plot(panels, labels, n_columns=2, scales=("log", "log"))
    ticks = [0.8, 1.0, 1.2, 1.5, 2.0, 2.5]
    for axes in figure.axes:
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        axes.axhline(1.0, color="0.6", linewidth=0.8)
    figure.axes[0].set_yticks([], minor=True)
    return figure


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    missing = [name for name in PEERS if name not in set(rows["model"])]
    page.text(*[f"Not run: {', '.join(missing)}."] * bool(missing))
    samples, fits, sizes = {}, {}, list(rows.groupby("rows"))
    for size, size_rows in sizes:
        shared_rows, complete_models = same_splits(size_rows)
        complete_rows = shared_rows[shared_rows["model"].isin(complete_models)]
        table, comparisons = summary(complete_rows), beside_defaults(size_rows)
        samples[f"{size} rows"], fits[f"at most {size:,} training rows"] = (
            ratios(complete_rows),
            complete_rows,
        )
        page.heading(f"At most {size} training rows")
        page.text(
            f"Tables: {shared_rows['data'].nunique()}, splits: {shared_rows['split'].nunique()}."
        )
        page.table(["model", *table], lines(table))
        if len(comparisons):
            page.table([f"model / {DEFAULTS}", *comparisons], lines(comparisons))
    if rows["seconds"].notna().any():
        page.heading("Error by seconds")
        page.figure(_picture(fits), "Mean test error with its interval by seconds of a fit")
    page.heading("Target values")
    page.table(["model", "target value", *samples], lines(bars(samples)))
    for size, size_rows in sizes:
        for name, form in (("test_error", ".4g"), ("log_loss", ".3f")):
            wide = same_splits(size_rows)[0].pivot_table(name, "data", "model", sort=False)
            with page.details(f"{size} rows: {name.replace('_', ' ')} by table"):
                page.table(["data", *wide], lines(wide, partial(number, form=form)))


ROWS = Experiment("quality_predictions", SETTINGS, RESULTS, _jobs)
OPTIONS = {
    "data": DATA,
    "rows": {"type": int, "nargs": "+", "default": [3000]},
    "splits": 3,
    "untimed": {"action": "store_true"},
    "models": {"nargs": "+", "choices": MODELS, "default": [*OURS, *PEERS], "metavar": "NAME"},
}
TITLE = "Predictions with default settings: error, log loss, seconds and memory"
STUDY = Study("benchmarks.quality.predictions", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
