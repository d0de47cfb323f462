"""How good are our synthetic rows, compared with other packages' and with interpolated real rows?

Each model is trained on the training rows of each table (a random 4:1 split)
with its own defaults, in a separate process, and generates as many rows. Measures, from
combutab.evaluation:

- utility (train on synthetic, test on real): gradient boosting and a linear model are trained on
  the synthetic rows and scored on the test rows; regression errors are in standard deviations of
  the training target. The gap is the increase of the error (MAE, or 1 - accuracy) over training on
  the real rows;
- C2ST: cross-validated ROC AUC of gradient boosting between test rows and synthetic rows; 0.5
  (chance) is best;
- shapes and pairs: mean scores of single columns and of pairs of columns against the test rows;
- closest: the share of synthetic rows that are nearer to a training row than to any test row, with
  as many training rows as test rows; 0.5 means no copying, copies have about 0.625, as only every
  fourth training row is compared;
- seconds of the fit and of sampling, and the peak growth of the process.

"real rows" are the training rows themselves: the scores of an exact copy. "independent columns" has
no dependence between columns. SMOTE interpolates between neighbours: its utility is high, but its
rows are near copies.

Over tables, gaps and seconds of the fit are geometric means of ratios to those of our TVAE
(seconds: where both had the same processor); a gap below 1 % of the real rows' error counts as 1 %.
C2ST, shapes, pairs and closest are means, seconds of sampling and memory are medians.

The tables are the CombU paper's eight. The stored rows of TabFlow and our TVAE on the six smaller
tables are of versions that round numbers like the real ones. Those on california_housing and all
rows of our CTGAN are older and without rounding.

    python -m benchmarks.quality.generators [--quick] [--data-home FOLDER] [--seeds 3] [--splits 1]
        [--models NAME ...] [--data NAME ...] [--rows N]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA); those that are not of the eight have their target in the last column. Peers come
with `pip install '.[bench]'`; a peer that is not installed is left out, and the page says
so. A run that was stopped is resumed by the same command. --quick trains for two epochs.
"""

from __future__ import annotations

import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.quality.synthesizers import REAL, SYNTHESIZERS, TVAE, Task, installed, make_rows
from benchmarks.quality.tables import DATA, lines, number, read_rows, wanted
from benchmarks.speed.common import call_apart
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
Found = dict[str, Any]
PACKAGES = ("ctgan", "sdv", "mostlyai-engine")
SLOW = {"ForestDiffusion"}  # hours for a table
MODELS = tuple(name for name in SYNTHESIZERS if name not in SLOW)


def measure(
    model: str, data: str, split: int, seed: int, max_rows: int, data_home: str | None, quick: bool
) -> Found:
    """Train one model and judge its rows in this process."""
    warnings.filterwarnings("ignore")
    table, target, classify = read_rows(data, data_home)
    order = np.random.default_rng(split).permutation(len(table))
    test, train = np.split(order, [len(table) // 5])
    train = train[:max_rows]
    real, test_rows = (
        table.iloc[rows].reset_index(drop=True) for rows in (train, test[: len(train)])
    )
    task = Task(real, target, classify, seed, quick)
    rows, costs = make_rows(SYNTHESIZERS[model], task, time.perf_counter)
    result = {"task": task.kind, "n_train": len(real), "n_test": len(test_rows)}
    rows = rows[list(table)].reset_index(drop=True)
    return result | dict(zip(COSTS, costs, strict=True)) | judge(task, test_rows, rows)


def judge(task: Task, test: pd.DataFrame, rows: pd.DataFrame) -> dict[str, float]:
    """Scores of synthetic rows."""
    options: dict[str, Any] = {"synthetic": rows, "random_state": task.seed}
    real: dict[str, Any] = {"real_train": task.table, "task": task.kind, "target": task.target}
    learned = ml_efficacy(real_test=test, learners=list(LEARNERS.values()), **real, **options)
    learned_scores = learned[learned["source"] == "synthetic"].set_index(["learner", "metric"])[
        "mean"
    ]
    scores = {
        f"{learner_name}_{metric}": learned_scores[learner, metric]
        for learner_name, learner in LEARNERS.items()
        for metric in METRICS[task.kind]
    }
    c2st_options = options | {"synthetic": rows[: len(test)]}
    c2st = detection(real=test, learners=LEARNERS["boosting"], **c2st_options)
    options["categorical"] = [task.target] if task.classify else []
    similarities = fidelity(
        real=test, **options | {"max_rows": 2}
    )  # without support, which is not shown
    means = similarities[similarities["greater_is_better"]].groupby("aspect")["mean"].mean()
    privacy_scores = privacy(real_train=task.table, holdout=test, **options).set_index("measure")[
        "mean"
    ]
    scores |= {"c2st": c2st["mean"].item(), "c2st_se": c2st["se"].item()}
    scores |= {"shapes": means["shape"], "pairs": means.get("pairs", np.nan)}
    return {
        n: float(v)
        for n, v in (scores | {"closest": privacy_scores["share_closer_to_train"]}).items()
    }


def run_apart(measure: str, arguments: tuple[Any, ...], quick: bool) -> list[Row]:
    """Measure in a process of its own, or here for a quick form; the row of results."""
    try:
        return [call_apart(measure, *arguments, here=quick)]
    except subprocess.CalledProcessError as error:  # a peer's failure is a result
        last = [f"ended with status {error.returncode}", *error.stderr.splitlines()][-1]
        return [{"error": last[:200]}]


def _jobs(arguments: Arguments) -> Iterator[Job]:
    names, home = wanted(arguments)
    models = installed(arguments.models)
    quick = arguments.quick
    max_rows = 200 if quick else arguments.rows
    n_splits, n_seeds = (1, 1) if quick else (arguments.splits, arguments.seeds)
    for data, split, seed, model in product(names, range(n_splits), range(n_seeds), models):
        row = dict(zip(SETTINGS, (data, split, seed, model, max_rows), strict=True))
        measure_arguments = (model, data, split, seed, max_rows, home, quick)
        yield Job(
            [row],
            partial(run_apart, "benchmarks.quality.generators:measure", measure_arguments, quick),
        )


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
    columns = {"tables": tasks.groupby("model", sort=False).size()}
    for learner in LEARNERS:
        errors = rows[f"{learner}_mae"].fillna(1.0 - rows[f"{learner}_accuracy"])
        error = errors.groupby([rows[key] for key in keys], sort=False).mean()
        real, half_row = _of(error, REAL), 0.5 / table["n_test"]
        gaps = (error - real).clip(lower=np.maximum(LEAST * real, half_row))
        columns[f"gap / TVAE, {learner}"] = _means(gaps / _of(gaps, TVAE))
    by_model = table.groupby("model", sort=False)
    columns |= {name: by_model[name].mean() for name in ("c2st", "shapes", "pairs", "closest")}
    timed = rows.groupby([*keys, "cpu"], sort=False)["fit_seconds"].mean()
    columns["fit / TVAE"] = _means(timed / _of(timed, TVAE))
    columns |= {name: by_model[name].median() for name in ("sample_seconds", "megabytes")}
    return pd.DataFrame(columns).sort_values("c2st")


def _of(values: pd.Series, model: str) -> pd.Series:
    """The values of one model for all models, by table, and by processor where that is told."""
    names = values.index.get_level_values("model")
    same = [name for name in ("data", "cpu") if name in values.index.names]
    return values.where(names == model).groupby(same).transform("max")


def _means(ratios: pd.Series) -> pd.Series:
    return np.exp(np.log(ratios).groupby("model").mean())


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    failed, rows = rows[rows["error"] != ""], rows[rows["error"] == ""]
    missing = [model for model in MODELS if model not in set(rows["model"])]
    page.text(
        f"Tables: {rows['data'].nunique()}, splits: {rows['split'].nunique()}, seeds: "
        f"{rows['seed'].nunique()}; at most {rows['rows'].max()} training rows."
        + f" Not run: {', '.join(missing)}."
        * bool(missing)
    )
    _add_summary(page, rows)
    large = rows[rows["n_train"] >= ENOUGH_ROWS]
    if 0 < large["data"].nunique() < rows["data"].nunique():
        names = ", ".join(dict.fromkeys(large["data"]))
        page.text(
            f"Tables of {ENOUGH_ROWS:,} training rows and more ({names}); on the smaller ones "
            "the gaps are mostly noise, with about a hundred test rows:"
        )
        _add_summary(page, large)
    page.heading("By table")
    for data, data_rows in rows.groupby("data", sort=False):
        n_train, n_test, task = data_rows[["n_train", "n_test", "task"]].iloc[0]
        columns = [f"{learner}_{metric}" for learner in LEARNERS for metric in METRICS[task]]
        columns += [name for name in (*LIKENESS, *COSTS) if name != "c2st_se"]
        cells = data_rows.groupby("model", sort=False)[columns].agg(_spread)
        with page.details(f"{data}: {n_train} training rows, {n_test} test rows"):
            page.table(["model", *map(_words, columns)], lines(cells))
    add_failures(page, failed, SETTINGS)


def add_failures(page: Page, failed: pd.DataFrame, settings: Sequence[str]) -> None:
    if len(failed):
        page.heading("Failed runs")
        page.table([*settings, "error"], failed[[*settings, "error"]].to_numpy().tolist())


def _add_summary(page: Page, rows: pd.DataFrame) -> None:
    table = summary(rows)
    page.table(["model", *map(_words, table)], lines(table.astype(object), number))


def _spread(values: pd.Series) -> str:
    """Mean, and standard deviation over seeds and splits."""
    off = f" ± {values.std(ddof=1):.2g}" if len(values) > 1 and values.name not in COSTS else ""
    return f"{number(values.mean())}{off}"


def _words(name: str) -> str:
    """
    >>> _words("boosting_log_loss"), _words("fit_seconds")
    ('boosting, log loss', 'fit seconds')
    """
    learner, _, metric = name.partition("_")
    if learner in LEARNERS:
        return f"{learner}, {WORDS.get(metric, metric)}"
    return WORDS.get(name, name.replace("_", " "))


ROWS = Experiment("quality_generators", SETTINGS, RESULTS, _jobs, packages=(*PACKAGES, "cpu"))
OPTIONS = {"data": DATA, "rows": 50_000, "splits": 1, "seeds": 3, "models": MODELS}
TITLE = "Synthetic tables: utility, fidelity, privacy and cost"
STUDY = Study("benchmarks.quality.generators", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
