"""How good are synthetic rows by the measures of the diffusion literature, and at what price?

TabFlow, TVAE and CTGAN beside other packages' models on the tables, splits and scores of TabDiff
and TabPC, so that figures can be laid beside published ones (in expected/). Each model learns with
its defaults in a process of its own, on one core, and makes as many rows as it has learned from:

- XGB C2ST and logistic C2ST: SDMetrics' detection scores against the training rows, by XGBoost and
  by logistic regression; 1 means that the two cannot be told apart. The latter says little: columns
  drawn independently of each other score 0.98 or more by it;
- Shape and Trend: SDMetrics' scores of columns and of pairs of columns;
- alpha-precision and beta-recall, in synthcity's "naive" form;
- MLE: XGBoost learns from the synthetic rows and predicts the test rows (ROC AUC, or RMSE of the
  logarithm of the target), by a search of 36 settings, or 4 with --small-grid;
- DCR share: the share of synthetic rows whose closest record is a training row and not a test row,
  among equally many of both; 0.5 means no copying; the share of copies is measured beside it;
- CPU seconds of the fit and of sampling, and by how much the process grew at most.

    python -m benchmarks.quality.diffusion_sets --data-home FOLDER [--quick] [--seeds 5]
        [--models NAME ...] [--data NAME ...] [--small-grid]

FOLDER (or COMBUTAB_DATA) has magic, shoppers, adult, default, beijing and diabetes130, or some of
them, as CSV files from UCI; `benchmarks/quality/diffusion_tables.py` says how they are cleaned and
split, and how a further table is added. Peers and XGBoost come with `pip install
'combutab[bench]'`; a peer that is not installed is left out, and the page says so. A run that was
stopped goes on where it stood. A model that failed is listed on the page and is not run again until
its line is removed from the CSV file. --quick trains for two epochs on 200 rows, and leaves the
scores by XGBoost out where it is not installed.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.model_selection import ParameterGrid

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.looks import Line, Look, plot
from benchmarks.common.page import Page
from benchmarks.quality import diffusion_scores
from benchmarks.quality.diffusion_scores import GRID, SMALL_GRID
from benchmarks.quality.diffusion_tables import LAYOUTS, Data, available, load
from benchmarks.quality.generators import installed, run_apart
from benchmarks.quality.synthesizers import REAL, SYNTHESIZERS, Task
from benchmarks.speed.common import forget_peak, memory
from combutab.evaluation import privacy

SETTINGS = ("data", "seed", "model")
SCORES = ("xgb_c2st", "logistic_c2st", "shape", "trend", "alpha_precision", "beta_recall", "mle")
DCR = ("dcr_share", "dcr_share_copies")
COSTS = ("fit_cpu_seconds", "sample_cpu_seconds", "megabytes")
RESULTS = ("task", "n_train", "n_test", *SCORES, *DCR, *COSTS, "n_mle_settings", "error")
PACKAGES = ("xgboost", "sdmetrics", "ctgan", "sdv", "mostlyai-engine", "ForestDiffusion", "cpu")
QUICK_ROWS = 200
GPU = "fit_gpu_seconds"  # of published figures
PUBLISHED = ", published"
WORDS = {"xgb_c2st": "XGB C2ST", "logistic_c2st": "logistic C2ST", "mle": "MLE", "dcr": "DCR share"}
WORDS |= {"alpha_precision": "alpha-precision", "beta_recall": "beta-recall", "megabytes": "MB"}
WORDS |= {"fit_cpu_seconds": "fit, CPU seconds", "sample_cpu_seconds": "sampling, CPU seconds"}
WORDS |= {"shape": "Shape", "trend": "Trend"}
LOOKS: dict[str, Look] = {  # published ones in grey
    "combutab TabFlow": ("#D55E00", "D", "none"),
    "combutab TVAE": ("#0072B2", "v", "none"),
    "combutab CTGAN": ("#009E73", "X", "none"),
    "SMOTE": ("#E69F00", "s", "none"),
    "ctgan TVAE": ("#56B4E9", "^", "none"),
    "ctgan CTGAN": ("#CC79A7", "P", "none"),
    "mostlyai TabularARGN": ("#332288", "*", "none"),
    "ForestDiffusion": ("#8C6D1F", "<", "none"),
    "TabDiff, published": ("#777777", "o", "none"),
    "TabPC, published": ("#777777", ">", "none"),
    "TabSyn, published": ("#777777", "d", "none"),
    "TVAE, published": ("#777777", "p", "none"),
    "CTGAN, published": ("#777777", "h", "none"),
}
MODELS = [REAL, "independent columns", *(name for name in LOOKS if name in SYNTHESIZERS)]


def published() -> pd.DataFrame:
    """Published figures: a row for each model and table, a column for each score."""
    table = pd.read_csv(Path(__file__).parent / "expected" / "diffusion_sets.csv")
    wide = table.pivot_table(index=["data", "model"], columns="metric", values="mean", sort=False)
    return wide.reset_index().assign(model=lambda t: t["model"] + PUBLISHED)


def measure(
    model: str, name: str, seed: int, home: str, small_grid: bool, quick: bool
) -> dict[str, Any]:
    """Train one model and score its rows in this process."""
    warnings.filterwarnings("ignore")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        data = load(name, home)
        if quick:
            data = Data(data.train[:QUICK_ROWS], data.test[:QUICK_ROWS], data.target, data.classify)
        task = Task(data.train, data.target, data.classify, seed, quick)
        import_module(SYNTHESIZERS[model].module)  # what is loaded once is no part of a fit
        before, moments = memory("VmRSS"), [_cpu_seconds()]
        forget_peak()
        sample = SYNTHESIZERS[model].fit(task)
        moments.append(_cpu_seconds())
        made = sample(len(data.train))
        moments.append(_cpu_seconds())
        costs = [*np.diff(moments).tolist(), (memory("VmHWM") - before) * 2**20 / 1e6]
        scores = judge(data, conform(made, data.train), seed, SMALL_GRID if small_grid else GRID)
    finally:
        torch.set_num_threads(n_threads)
    kind = "classification" if data.classify else "regression"
    found = {"task": kind, "n_train": len(data.train), "n_test": len(data.test)}
    return found | scores | dict(zip(COSTS, costs, strict=True))


def _cpu_seconds() -> float:
    """User and system time of this process and of those that it has waited for."""
    return time.process_time() + sum(os.times()[2:4])


def conform(made: pd.DataFrame, real: pd.DataFrame) -> pd.DataFrame:
    """Return made rows with the columns and types of the real ones.

    Raises
    ------
    ValueError
        Values are missing, or are categories that no real row has.
    """
    columns = {}
    for name in real:
        if real[name].dtype == "category":
            texts = made[name].astype(object).astype(str)
            columns[name] = pd.Categorical(texts, categories=real[name].cat.categories)
        else:
            columns[name] = made[name].to_numpy(float)
    rows = pd.DataFrame(columns)
    if lacking := list(rows.columns[rows.isna().any()]):
        raise ValueError(f"missing values or unknown categories were made in {lacking}")
    return rows


def judge(data: Data, made: pd.DataFrame, seed: int, grid: diffusion_scores.Grid) -> dict[str, Any]:
    """Scores of synthetic rows; those by XGBoost are left out where it is not installed."""
    found: dict[str, Any] = diffusion_scores.c2st(data.train, made, seed)
    found |= diffusion_scores.shape_trend(data.train, made, seed)
    found |= diffusion_scores.precision_recall(data.train, made, seed)
    if diffusion_scores.has_xgboost():
        found["mle"] = diffusion_scores.mle(data, made, grid, seed)
        found["n_mle_settings"] = len(ParameterGrid(grid))
    near = privacy(
        real_train=data.train,
        holdout=data.test,
        synthetic={"dcr_share": made, "dcr_share_copies": data.train},
        random_state=seed,
    ).query("measure == 'share_closer_to_train'")
    found |= near.set_index("source")["mean"].to_dict()
    return {name: v if isinstance(v, int) else float(v) for name, v in found.items()}


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    if not home:
        raise ValueError("no tables: name their folder with --data-home")
    if not arguments.quick and not diffusion_scores.has_xgboost():
        raise ImportError("scores need XGBoost: pip install 'combutab[bench]'")
    there = available(home)
    if unknown := set(arguments.data or ()) - set(there):
        raise ValueError(f"--data: no table {sorted(unknown)}; there are {sorted(there)}")
    names = arguments.data or [name for name in LAYOUTS if name in there] or list(there)
    names = names[: 2 if arguments.quick else None]
    for name in names:
        load(name, home)  # bad input is reported before any training
    models = installed(arguments.models)
    for seed in range(1 if arguments.quick else arguments.seeds):
        for name in names:
            for model in models:
                wanted = dict(zip(SETTINGS, map(str, (name, seed, model)), strict=True))
                given = (model, name, seed, home, arguments.small_grid, arguments.quick)
                run = partial(run_apart, measure, given, RESULTS, arguments.quick)
                yield Job([wanted], run, f"{name}, seed {seed}, {model}")


# ---- the page ----------------------------------------------------------------------------------


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    failed, rows = rows[rows["error"] != ""], rows[rows["error"] == ""]
    missing = [model for model in MODELS if model not in set(rows["model"])]
    lacking = [name for name in LAYOUTS if name not in set(rows["data"])]
    few = rows[rows["n_mle_settings"] < len(ParameterGrid(GRID))]
    small = ", ".join(dict.fromkeys(few["data"] + " (" + few["model"] + ")"))
    page.text(
        f"Seeds: at most {rows['seed'].nunique()}. Each model makes as many rows as it was trained "
        "on. XGB C2ST and logistic C2ST are SDMetrics' detection scores: 1 means that XGBoost or a "
        "logistic regression cannot tell synthetic rows from training rows, 0 that it always can. "
        "**Compare models by XGB C2ST.** A logistic regression does not see how columns depend on "
        "each other: columns drawn independently score 0.98 or more by it. Shape and Trend are "
        "SDMetrics' scores of columns and of pairs of columns. Beta-recall is about 0.5 for fresh "
        "rows of the same distribution. MLE: XGBoost is trained on synthetic rows and scored on "
        "real test rows, by ROC AUC or, in a regression, by the RMSE of the logarithm of the "
        "target. DCR share: the share of rows that are nearer to a training row than to a test "
        "row, of equally many; 0.5 means no copying, and copies of training rows have the value "
        "in brackets. CPU seconds are of one core, MB is by how much the process grew at most.",
        "Published figures are means over five seeds from the independent rerun by TabPC's authors "
        "(arXiv 2603.23016, `article_material/our_results` in its repository); their times are of "
        'training on a GPU. "fully factorized" is their model of independent columns. Some '
        "peculiarities of the published scripts are kept, so that figures can be compared. "
        "Categories written as whole numbers are numbers to the classifiers of C2ST. MLE scales "
        "all columns of numbers by the range of the first one; if that range begins at 0 or above "
        "and ends at 1,000 or above, it takes logarithms of all columns instead, and negative "
        "values become equal. In a regression, MLE chooses settings by comparing predicted "
        "logarithms with targets that are not logarithms.",
    )
    said = [f"Models not run: {', '.join(missing)}."] * bool(missing)
    said += [f"Tables not run: {', '.join(lacking)}."] * bool(lacking)
    said += [f"MLE by the small grid: {small}."] * bool(small)
    if said:
        page.text(" ".join(said))
    names = [name for name in (*LAYOUTS, *rows["data"].unique()) if name in set(rows["data"])]
    names = list(dict.fromkeys(names))
    known = published()
    found = pd.concat([rows, known[known["data"].isin(names)]], ignore_index=True)
    if rows["xgb_c2st"].notna().any():
        page.heading("XGB C2ST by table")
        cells = found.pivot_table(index="model", columns="data", values="xgb_c2st", sort=False)
        cells = cells.reindex(columns=names)
        page.table(["model", *names], [[m, *map(_number, own)] for m, *own in cells.itertuples()])
        page.heading("Quality against minutes")
        figure = draw(rows, known)
        page.figure(figure, "XGB C2ST against minutes of the fit and of sampling, a panel a table")
        page.text(
            "Colours: minutes of one CPU core for fit and sampling; bars reach from the lowest to "
            "the highest seed. Grey: published, minutes of a GPU for the fit."
        )
    shown = [*SCORES, "dcr", *COSTS]
    for name in names:
        own = found[found["data"] == name]
        first = own.iloc[0]
        n_train, n_test = int(first["n_train"]), int(first["n_test"])
        kind = "RMSE" if first["task"] == "regression" else "AUC"
        page.heading(f"{name}: {n_train:,} training rows, {n_test:,} test rows (MLE: {kind})")
        lines = [
            [model, *(_cell(one, score) for score in shown)]
            for model, one in own.groupby("model", sort=False)
        ]
        page.table(["model", *(WORDS[score] for score in shown)], lines)
    if len(failed):
        page.heading("What failed")
        page.table([*SETTINGS, "error"], failed[[*SETTINGS, "error"]].to_numpy().tolist())


def _cell(rows: pd.DataFrame, score: str) -> str:
    """Mean over seeds, with the standard deviation of scores."""
    if score == "dcr":
        share, copies = rows["dcr_share"].mean(), rows["dcr_share_copies"].mean()
        return "—" if math.isnan(share) else f"{share:.3f} ({copies:.3f})"
    if score == "fit_cpu_seconds" and rows[GPU].notna().any():
        return f"{_amount(rows[GPU].mean())} of a GPU"
    values = rows[score].dropna()
    if score in COSTS:
        return _amount(values.mean())
    off = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    return f"{_number(values.mean())}{off}"


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3f}"


def _amount(value: float) -> str:
    """
    >>> _amount(11643.4), _amount(0.0002)
    ('11,643', '0.00')
    """
    if math.isnan(value):
        return "—"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def draw(rows: pd.DataFrame, known: pd.DataFrame) -> Figure:
    """XGB C2ST against minutes: a panel a table, published figures in grey."""
    panels: dict[str, list[Line]] = {}
    seconds = rows["fit_cpu_seconds"] + rows["sample_cpu_seconds"]
    cpu = rows.assign(minutes=seconds.clip(lower=0.01) / 60)  # the axis has no 0
    points = pd.concat([cpu, known.assign(minutes=known[GPU] / 60)], ignore_index=True)
    for name, own in points[points["data"].isin(rows["data"])].groupby("data", sort=False):
        lines = []
        for model, look in LOOKS.items():
            one = own[(own["model"] == model) & own["xgb_c2st"].notna()]
            if len(one):
                scores = one["xgb_c2st"]
                low, high = pd.Series([scores.min()]), pd.Series([scores.max()])
                lines.append(Line([one["minutes"].mean()], [scores.mean()], model, look, low, high))
        panels[name] = lines
    return plot(
        panels,
        ("minutes (grey: of a GPU)", "XGB C2ST (1 is best)"),
        n_columns=3,
        ylim=(-0.03, 1.03),
        scales=("log", "linear"),
        title="Quality against minutes",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="of the models (%(default)s)")
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the tables")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME")
    parser.add_argument("--small-grid", action="store_true", help="4 settings for MLE, not 36")
    parser.add_argument("--data-home", help="folder with the CSV files")


STUDY = Study(
    "quality_diffusion_sets",
    "Synthetic rows by the measures of the diffusion literature",
    __doc__.splitlines()[0],
    "benchmarks.quality.diffusion_sets",
    [Experiment("quality_diffusion_sets", SETTINGS, RESULTS, _jobs, packages=PACKAGES)],
    _write,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
