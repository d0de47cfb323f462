"""How good are synthetic rows? Ours beside other packages' and beside interpolated real rows.

Each model learns the training rows of each table (4:1 at random, so that a row held out is as any
other; at most --rows of them) with its own defaults, in a process of its own, and makes as many. Of
these are measured, by combutab.evaluation:

- train on synthetic, test on real (TSTR): gradient boosting and a linear model learn from them and
  are scored on the rows held out; errors of numbers are in standard deviations of the training
  rows' target;
- C2ST: how well gradient boosting, cross-validated, tells the rows held out from as many synthetic
  ones; 0.5 is chance;
- shapes and pairs: mean scores of single columns and of pairs of columns, beside the rows held out;
- closest: the share of synthetic rows nearer to a row learned from than to any held out, of as many
  of each: 0.5 is no copying, and copies have 0.625, as of four rows learned from one is looked at;
- seconds of fit and of sampling, and by how much the process grew at most.

"real rows" are those learned from, once more: the best scores, of a copy. "independent columns"
show what single columns are worth. SMOTE puts rows between neighbours: useful, and near to copies.

    python -m benchmarks.quality.generators [--quick] [--data-home FOLDER] [--seeds 3] [--splits 1]
        [--models NAME ...] [--data NAME ...] [--rows N]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA); those that are not of the eight have their target in the last column. Peers come
with `pip install 'combutab[bench]'`, but synthcity, which needs torch below 2.3; what is not
installed is left out, and the page says so. A run that was stopped goes on where it stood. --quick
trains for two epochs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.quality.predictions import files, known_names, load
from benchmarks.quality.synthesizers import REAL, SYNTHESIZERS, TVAE, Task, why_not
from benchmarks.speed.common import call_apart, forget_peak, memory
from combutab.evaluation import detection, fidelity, ml_efficacy, privacy

LEARNERS = {"boosting": "hist_gradient_boosting", "linear": "linear"}
METRICS = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1_macro", "log_loss")}
WORDS = {"mae": "MAE", "mse": "MSE", "f1_macro": "F1", "log_loss": "log loss"}
WORDS |= {"c2st": "C2ST", "megabytes": "MB"}
LEAST = 0.01  # of the real rows' error: smaller gaps are noise
ENOUGH_ROWS = 1_000  # for a summary of their own
SETTINGS = ("data", "split", "seed", "model", "rows")
SCORES = tuple(f"{own}_{m}" for own in LEARNERS for each in METRICS.values() for m in each)
LIKENESS = ("c2st", "c2st_se", "shapes", "pairs", "closest")
COSTS = ("fit_seconds", "sample_seconds", "megabytes")
RESULTS = ("task", "n_train", "n_test", *SCORES, *LIKENESS, *COSTS, "error")
PACKAGES = ("ctgan", "sdv", "mostlyai-engine", "synthcity")


def measure(
    model: str,
    data: str,
    split: int,
    seed: int,
    most: int,
    n_threads: int,
    data_home: str | None,
    quick: bool,
) -> dict[str, Any]:
    """Train one model and judge its rows in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(n_threads)
    table, target, classify = read_rows(data, data_home)
    order = np.random.default_rng(split).permutation(len(table))
    test, train = np.split(order, [len(table) // 5])
    train = train[:most]
    real, held = (table.iloc[rows].reset_index(drop=True) for rows in (train, test[: len(train)]))
    task = Task(real, target, classify, seed, quick)
    import_module(SYNTHESIZERS[model].module)  # what is loaded once is no part of a fit
    before, moments = memory("VmRSS"), [time.perf_counter()]
    forget_peak()
    sample = SYNTHESIZERS[model].fit(task)
    moments.append(time.perf_counter())
    rows = sample(len(real))[list(table)].reset_index(drop=True)
    moments.append(time.perf_counter())
    costs = [*np.diff(moments).tolist(), (memory("VmHWM") - before) * 2**20 / 1e6]
    kind = "classification" if classify else "regression"
    found = {"task": kind, "n_train": len(real), "n_test": len(held)}
    return found | dict(zip(COSTS, costs, strict=True)) | judge(task, held, rows)


def judge(task: Task, held: pd.DataFrame, rows: pd.DataFrame) -> dict[str, float]:
    """Scores of synthetic rows."""
    kind: Literal["classification", "regression"]
    kind = "classification" if task.classify else "regression"
    learned = ml_efficacy(
        real_train=task.table,
        real_test=held,
        synthetic=rows,
        target=task.target,
        task=kind,
        learners=list(LEARNERS.values()),
        random_state=task.seed,
    )
    taught = learned[learned["source"] == "synthetic"].set_index(["learner", "metric"])["mean"]
    found = {
        f"{own}_{metric}": taught[learner, metric]
        for own, learner in LEARNERS.items()
        for metric in METRICS[kind]
    }
    told = detection(
        real=held,
        synthetic=rows[: len(held)],
        learners=LEARNERS["boosting"],
        random_state=task.seed,
    )
    categorical = [task.target] if task.classify else []
    # no support: it is not shown
    alike = fidelity(real=held, synthetic=rows, categorical=categorical, max_rows=2)
    means = alike[alike["greater_is_better"]].groupby("aspect")["mean"].mean()
    near = privacy(
        real_train=task.table,
        holdout=held,
        synthetic=rows,
        categorical=categorical,
        random_state=task.seed,
    ).set_index("measure")["mean"]
    found |= {"c2st": told["mean"].item(), "c2st_se": told["se"].item()}
    found |= {"shapes": means["shape"], "pairs": means.get("pairs", np.nan)}
    return {n: float(v) for n, v in (found | {"closest": near["share_closer_to_train"]}).items()}


def read_rows(data: str, data_home: str | None) -> tuple[pd.DataFrame, str, bool]:
    """Features and target, numbers and categories alone, under names that every package takes."""
    X, y, classify = load(data, data_home)
    X = X.set_axis(list(map(str, X)), axis=1)
    for name in X:
        if pd.api.types.is_datetime64_any_dtype(X[name]):
            X[name] = (X[name] - X[name].min()) / pd.Timedelta(days=1)
        elif not pd.api.types.is_numeric_dtype(X[name]) or X[name].dtype == bool:
            X[name] = X[name].astype(object).where(X[name].notna()).astype("category")
    target = str(y.name)
    table = X.assign(**{target: y.astype("str").astype("category") if classify else y})
    return table[y.notna()].reset_index(drop=True), target, classify


def run_apart(
    measure: Callable[..., dict[str, Any]],
    arguments: tuple[Any, ...],
    results: Sequence[str],
    quick: bool,
) -> list[Row]:
    """Measure in a process of its own, or here for a quick form; the row of these results."""
    try:
        found = call_apart(measure, *arguments, here=quick)
    except subprocess.CalledProcessError as error:  # a peer's failure is a result
        last = [f"ended with status {error.returncode}", *error.stderr.splitlines()][-1]
        found = {"error": last[:200]}
    numbers = {n: f"{v:.6g}" for n, v in found.items() if isinstance(v, float) and not np.isnan(v)}
    texts = {n: str(v) for n, v in found.items() if not isinstance(v, float)}
    return [dict.fromkeys(results, "") | texts | numbers]


def installed(models: Iterable[str]) -> list[str]:
    """Those of the models that can be run here; what is left out is printed, and why."""
    reasons = {model: why_not(model) for model in models}
    for model, why in reasons.items():
        if why:
            print(f"skipped: {model}: {why}", flush=True)
    return [model for model, why in reasons.items() if not why]


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    there = list(files(home)) if home else known_names()
    unknown = set(arguments.data or ()) - {*there, *known_names()}
    if unknown:
        raise ValueError(f"--data: no table {sorted(unknown)}; there are {sorted(there)}")
    models = installed(arguments.models)
    quick, n_threads = arguments.quick, torch.get_num_threads()
    most = 200 if quick else arguments.rows
    for data in (arguments.data or there)[: 2 if quick else None]:
        for split in range(1 if quick else arguments.splits):
            for seed in range(1 if quick else arguments.seeds):
                for model in models:
                    values = (data, split, seed, model, most)
                    wanted = dict(zip(SETTINGS, map(str, values), strict=True))
                    given = (model, data, split, seed, most, n_threads, home, quick)
                    label = f"{data}, split {split}, seed {seed}, {model}"
                    yield Job([wanted], partial(run_apart, measure, given, RESULTS, quick), label)


# ---- the page ----------------------------------------------------------------------------------


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over tables, a row a model; each table counts once, however many rows it has.

    A gap is how much greater the error of a learner is than after learning from the real rows: MAE,
    or 1 - accuracy. It is over that of our TVAE; gaps of less than 1 % of the real rows' error, or
    of half a row, count as so much.
    """
    keys = ["data", "model"]
    table = rows.groupby(keys, sort=False)[[*LIKENESS, *COSTS, "n_test"]].mean()
    tasks = rows.groupby(keys, sort=False)["task"].first()
    found = {"tables": tasks.groupby("model", sort=False).size()}
    for own in LEARNERS:
        errors = rows[f"{own}_mae"].fillna(1.0 - rows[f"{own}_accuracy"])
        error = errors.groupby([rows[key] for key in keys], sort=False).mean()
        real, least = _of(error, REAL), 0.5 / table["n_test"]
        gaps = (error - real).clip(lower=np.maximum(LEAST * real, least))
        found[f"gap / TVAE, {own}"] = _means(gaps / _of(gaps, TVAE))
    by_model = table.groupby("model", sort=False)
    found |= {name: by_model[name].mean() for name in ("c2st", "shapes", "pairs", "closest")}
    timed = rows.groupby([*keys, "cpu"], sort=False)["fit_seconds"].mean()
    found["fit / TVAE"] = _means(timed / _of(timed, TVAE))
    found |= {name: by_model[name].median() for name in ("sample_seconds", "megabytes")}
    return pd.DataFrame(found).sort_values("c2st")


def _of(values: pd.Series, model: str) -> pd.Series:
    """The values of one model for all models, by table, and by processor where that is told."""
    names = values.index.get_level_values("model")
    same = [name for name in ("data", "cpu") if name in values.index.names]
    return values.where(names == model).groupby(same).transform("max")


def _means(ratios: pd.Series) -> pd.Series:
    return np.exp(np.log(ratios).groupby("model").mean())


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    failed, rows = rows[rows["error"] != ""], rows[rows["error"] == ""]
    missing = [model for model in SYNTHESIZERS if model not in set(rows["model"])]
    page.text(
        f"Tables: {rows['data'].nunique()}, splits: {rows['split'].nunique()}, seeds: "
        f"{rows['seed'].nunique()}; at most {rows['rows'].max()} training rows. A gap is how much "
        "greater the error (MAE, 1 - accuracy) of a learner is after learning from synthetic rows "
        "than from real ones. Gaps and seconds of the fit are over those of our TVAE, geometric "
        f"means over tables (seconds: where both had the same processor); a gap below "
        f"{100 * LEAST:g} % of the real rows' error counts as much. "
        "C2ST, shapes, pairs and closest are means over tables, seconds of sampling and memory "
        "medians. Best is a small gap with a C2ST and a share of closest rows of 0.5; the real "
        "rows' own show what a copy has." + f" Not run: {', '.join(missing)}." * bool(missing)
    )
    _add_summary(page, rows)
    large = rows[rows["n_train"] >= ENOUGH_ROWS]
    if 0 < large["data"].nunique() < rows["data"].nunique():
        names = ", ".join(dict.fromkeys(large["data"]))
        page.text(
            f"Of tables of {ENOUGH_ROWS:,} training rows and more ({names}), where gaps are not "
            "mostly the chance of a hundred rows held out:"
        )
        _add_summary(page, large)
    for data, own in rows.groupby("data", sort=False):
        n_train, n_test, task = own[["n_train", "n_test", "task"]].iloc[0]
        page.heading(f"{data}: {n_train} rows learned from, {n_test} held out")
        shown = [f"{learner}_{metric}" for learner in LEARNERS for metric in METRICS[task]]
        shown += [name for name in (*LIKENESS, *COSTS) if name != "c2st_se"]
        cells = own.groupby("model", sort=False)[shown].agg(_spread)
        page.table(["model", *map(_words, shown)], _lines(cells))
    if len(failed):
        page.heading("What failed")
        page.table([*SETTINGS, "error"], failed[[*SETTINGS, "error"]].to_numpy().tolist())


def _add_summary(page: Page, rows: pd.DataFrame) -> None:
    found = summary(rows)
    page.table(["model", *map(_words, found)], _lines(found.astype(object).map(_number)))


def _lines(table: pd.DataFrame) -> list[list[str]]:
    return [[str(name), *row] for name, *row in table.itertuples()]


def _spread(values: pd.Series) -> str:
    """Mean, and standard deviation over seeds and splits."""
    off = f" ± {values.std(ddof=1):.2g}" if len(values) > 1 and values.name not in COSTS else ""
    return f"{_number(values.mean())}{off}"


def _number(value: float) -> str:
    return "—" if np.isnan(value) else f"{value:.3g}"


def _words(name: str) -> str:
    """
    >>> _words("boosting_log_loss"), _words("fit_seconds")
    ('boosting, log loss', 'fit seconds')
    """
    own, _, metric = name.partition("_")
    if own in LEARNERS:
        return f"{own}, {WORDS.get(metric, metric)}"
    return WORDS.get(name, name.replace("_", " "))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=50_000, help="training rows at most")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3, help="of the models")
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the tables")
    parser.add_argument("--models", nargs="+", choices=SYNTHESIZERS, default=list(SYNTHESIZERS))
    parser.add_argument("--data-home", help="folder with CSV files; else OpenML")


STUDY = Study(
    "quality_generators",
    "quality_generators",
    __doc__.splitlines()[0],
    "benchmarks.quality.generators",
    [Experiment("quality_generators", SETTINGS, RESULTS, _jobs, packages=(*PACKAGES, "cpu"))],
    _write,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
