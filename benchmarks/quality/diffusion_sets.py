"""How good are synthetic rows by the metrics of the diffusion literature, and at what cost?

Each model is trained with its defaults in a separate process, on one core, on the tables and splits
of TabDiff and TabPC, and generates as many rows as it was trained on. The scores are theirs:

- XGB C2ST and logistic C2ST: SDMetrics' detection scores against the training rows, by XGBoost and
  by logistic regression: 1 means that the two are indistinguishable, 0 that they are perfectly
  separable. **Compare models by XGB C2ST.** A logistic regression cannot detect dependence between
  columns: columns drawn independently score 0.98 or more by it;
- Shape and Trend: SDMetrics' scores of columns and of pairs of columns;
- alpha-precision and beta-recall, in synthcity's "naive" form: beta-recall is about 0.5 for fresh
  rows of the same distribution;
- MLE: XGBoost is trained on the synthetic rows and scored on the test rows (ROC AUC, or RMSE of the
  logarithm of the target), by a search of 36 settings;
- DCR share: the share of synthetic rows that are nearer to a training row than to a test row, with
  as many training rows as test rows; 0.5 means no copying, and copies of training rows have the
  value in brackets;
- CPU seconds of the fit and of sampling, most of them beside other work, which makes them longer,
  and the peak growth of the process in MB.

The rows of TabFlow on diabetes130 are of an earlier version, which had a constant learning rate and
dropout, and stopped later; its seconds there are of the first of three seeds. ForestDiffusion has
been run on magic only: it trains boosted trees for each class, step and column, with one-hot
categories, which would take many hours on the other tables.

Published figures are means over five seeds from the independent rerun by TabPC's authors (arXiv
2603.23016, `article_material/our_results` in its repository); their times are for training on a
GPU. "fully factorized" is their model of independent columns. Some peculiarities of the published
scripts are kept, so that the results are comparable. The classifiers of C2ST treat categories that
are written as whole numbers as numbers. MLE scales all columns of numbers by the range of the first
one; if that range begins at 0 or above and ends at 1,000 or above, it takes logarithms of all
columns instead, and negative values become equal. In a regression, MLE chooses settings by
comparing predicted logarithms with targets that are not logarithms. Trend cuts the numbers of each
table into ten bins of that table's own range: one extreme value in either table lowers it, even
between two halves of the real rows of default.

The tables are UCI's files.

    python -m benchmarks.quality.diffusion_sets --data-home FOLDER [--quick] [--seeds 5]
        [--models NAME ...] [--data NAME ...]

FOLDER (or COMBUTAB_DATA) has magic, shoppers, adult, default, beijing and diabetes130, or some of
them, as CSV files; `benchmarks/quality/diffusion_tables.py` describes how they are cleaned and
split, and how a further table is added. Peers and XGBoost come with `pip install
'.[bench]'`; a peer that is not installed is left out, and the page says so. A run that was
stopped is resumed by the same command. A model that failed is listed on the page and is not run
again until its line is removed from the file of rows. --quick trains for two epochs on 200 rows,
and leaves the scores by XGBoost out where it is not installed.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.common import Arguments, Experiment, Job, Page, Study
from benchmarks.common.looks import Line, Look, plot
from benchmarks.quality import diffusion_scores
from benchmarks.quality.diffusion_scores import GRID
from benchmarks.quality.diffusion_tables import LAYOUTS, Data, load
from benchmarks.quality.generators import add_failures, run_apart
from benchmarks.quality.synthesizers import SYNTHESIZERS, Task, installed, make_rows
from benchmarks.quality.tables import DATA, files, lines, number, wanted
from combutab.evaluation import privacy

SETTINGS = ("data", "seed", "model")
SCORES = ("xgb_c2st", "logistic_c2st", "shape", "trend", "alpha_precision", "beta_recall", "mle")
DCR = ("dcr_share", "dcr_share_copies")
GAPS = ("gap_auc", "gap_auc_real", "gap_auc_shuffled")
COSTS = ("fit_cpu_seconds", "sample_cpu_seconds", "megabytes")
RESULTS = ("task", "n_train", "n_test", *SCORES, *DCR, *GAPS, *COSTS, "error")
PACKAGES = ("xgboost", "sdmetrics", "ctgan", "sdv", "mostlyai-engine", "ForestDiffusion", "cpu")
QUICK_ROWS = 200
GPU = "fit_gpu_seconds"  # of published figures
PUBLISHED = ", published"
WORDS = {"xgb_c2st": "XGB C2ST", "logistic_c2st": "logistic C2ST", "mle": "MLE", "dcr": "DCR share"}
WORDS |= {"shape": "Shape", "trend": "Trend", "megabytes": "MB"}
LOOKS: dict[str, Look] = {  # of the models in the picture; grey: published
    "combutab TabFlow": ("#D55E00", "D", "none"),
    "combutab TVAE": ("#0072B2", "v", "none"),
    "mostlyai TabularARGN": ("#009E73", "^", "none"),
    "TabDiff, published": ("#777777", "o", "none"),
    "TabPC, published": ("#777777", ">", "none"),
    "TabSyn, published": ("#777777", "s", "none"),
    "TVAE, published": ("#777777", "P", "none"),
}
GAP = """ROC AUC of XGBoost (300 trees, 5 folds) between equal numbers of synthetic and test rows:
0.5 means that they are indistinguishable. Training rows show the best that is possible, and
training rows with each column shuffled independently show how a model without any dependence
scores. Published figures are means over five seeds
(https://github.com/enai4bio/tabular-dependency-gap, `results`)."""
MODELS = tuple(name for name in SYNTHESIZERS if not name.startswith("sdv"))


def published() -> pd.DataFrame:
    """Published figures: a row for each model and table, a column for each score."""
    table = pd.read_csv(Path(__file__).parent / "expected" / "diffusion_sets.csv")
    wide = table.pivot_table(index=["data", "model"], columns="metric", values="mean", sort=False)
    return wide.reset_index().assign(model=lambda t: t["model"] + PUBLISHED)


def measure(model: str, name: str, seed: int, home: str, quick: bool) -> dict[str, Any]:
    """Train one model and score its rows in this process."""
    warnings.filterwarnings("ignore")
    if not quick:  # which shares its process
        torch.set_num_threads(1)
    data = load(name, home)
    if quick:
        data = Data(data.train[:QUICK_ROWS], data.test[:QUICK_ROWS], data.target, data.classify)
    task = Task(data.train, data.target, data.classify, seed, quick)
    made, costs = make_rows(SYNTHESIZERS[model], task, _cpu_seconds)
    scores = judge(data, conform(made, data.train), seed)
    found = {"task": task.kind, "n_train": len(data.train), "n_test": len(data.test)}
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


def judge(data: Data, made: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Scores of synthetic rows; those by XGBoost are left out where it is not installed."""
    found: dict[str, Any] = diffusion_scores.c2st(data.train, made, seed)
    found |= diffusion_scores.shape_trend(data.train, made, seed)
    found |= diffusion_scores.precision_recall(data.train, made, seed)
    if diffusion_scores.has_xgboost():
        found["mle"] = diffusion_scores.mle(data, made, GRID, seed)
        found |= diffusion_scores.dependency_gap(data, made, seed)
    near = privacy(
        real_train=data.train,
        holdout=data.test,
        synthetic={"dcr_share": made, "dcr_share_copies": data.train},
        random_state=seed,
    ).query("measure == 'share_closer_to_train'")
    found |= near.set_index("source")["mean"].to_dict()
    return {name: float(value) for name, value in found.items()}


def _jobs(arguments: Arguments) -> Iterator[Job]:
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    if not home:
        raise ValueError("no tables: name their folder with --data-home")
    if not arguments.quick and not diffusion_scores.has_xgboost():
        raise ImportError("scores need XGBoost: pip install '.[bench]'")
    usual = [name for name in LAYOUTS if name in files(home)]
    names, _ = wanted(Arguments(**vars(arguments) | {"data": arguments.data or usual}))
    for name in names:
        load(name, home)  # bad input is reported before any training
    models = installed(arguments.models)
    for seed, name, model in product(
        range(1 if arguments.quick else arguments.seeds), names, models
    ):
        row = {"data": name, "seed": seed, "model": model}
        given = (model, name, seed, home, arguments.quick)
        yield Job(
            [row],
            partial(run_apart, "benchmarks.quality.diffusion_sets:measure", given, arguments.quick),
        )


# ---- the page ----------------------------------------------------------------------------------


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    failed, rows = rows[rows["error"] != ""], rows[rows["error"] == ""]
    missing = [model for model in MODELS if model not in set(rows["model"])]
    lacking = [name for name in LAYOUTS if name not in set(rows["data"])]
    said = [f"Seeds: at most {rows['seed'].nunique()}."]
    said += [f"Models not run: {', '.join(missing)}."] * bool(missing)
    said += [f"Tables not run: {', '.join(lacking)}."] * bool(lacking)
    page.text(" ".join(said))
    names = [n for n in dict.fromkeys([*LAYOUTS, *rows["data"]]) if n in set(rows["data"])]
    known = published()
    known = known[known["data"].isin(names)]
    if rows["gap_auc"].notna().any():
        _write_gaps(page, pd.concat([rows, known], ignore_index=True))
    found = pd.concat([rows, known.dropna(subset=["shape"])], ignore_index=True)
    if rows["xgb_c2st"].notna().any():
        page.heading("XGB C2ST by table")
        cells = found.pivot_table("xgb_c2st", "model", "data", sort=False)
        page.table(["model", *names], lines(cells.reindex(columns=names), _score))
        page.heading("XGB C2ST by minutes")
        page.figure(_picture(found), "XGB C2ST by minutes of fitting and sampling, for each table")
    page.heading("All scores")
    shown = [*SCORES, "dcr", *COSTS]
    for name in names:
        own = found[found["data"] == name]
        first = own.iloc[0]
        n_train, n_test = int(first["n_train"]), int(first["n_test"])
        kind = "RMSE" if first["task"] == "regression" else "AUC"
        cells = [
            [model, *(_cell(one, score) for score in shown)]
            for model, one in own.groupby("model", sort=False)
        ]
        told = f"{name}: {n_train:,} training rows, {n_test:,} test rows (MLE: {kind})"
        with page.details(told):
            page.table(["model", *(WORDS.get(s, s.replace("_", " ")) for s in shown)], cells)
    add_failures(page, failed, SETTINGS)


def _write_gaps(page: Page, found: pd.DataFrame) -> None:
    """The dependency gap of all models, and between which values it can be."""
    page.heading("Dependency gap by table")
    page.text(GAP)
    names = [*found.dropna(subset=["gap_auc_real"])["data"].unique()]
    cells = found.pivot_table("gap_auc", "model", "data", sort=False)
    by_data = found.groupby("data")
    cells.loc["training rows"] = by_data["gap_auc_real"].mean()
    cells.loc["training rows, columns shuffled"] = by_data["gap_auc_shuffled"].mean()
    page.table(["model", *names], lines(cells.reindex(columns=names), _score))


def _picture(found: pd.DataFrame) -> Figure:
    """XGB C2ST by minutes, a panel for each table."""
    seconds = found[GPU].fillna(found["fit_cpu_seconds"] + found["sample_cpu_seconds"])
    found = found.assign(minutes=seconds.clip(lower=0.6) / 60)
    found = found.dropna(subset=["xgb_c2st"])
    panels: dict[str, list[Line]] = {name: [] for name in found["data"].unique()}
    for (name, model), one in found.groupby(["data", "model"], sort=False):
        if model in LOOKS and one["minutes"].notna().any():  # of some seeds
            scores = one["xgb_c2st"]
            low, high = pd.Series([scores.min()]), pd.Series([scores.max()])
            mean = [one["minutes"].mean()], [scores.mean()]
            panels[name].append(Line(*mean, model, LOOKS[model], low, high))
    labels = ("minutes of a CPU core (grey: of a GPU)", "XGB C2ST (1 is best)")
    options: dict[str, Any] = {"ylim": (-0.03, 1.03), "scales": ("log", "linear")}
    return plot(panels, labels, n_columns=3, **options)


def _cell(rows: pd.DataFrame, score: str) -> str:
    """Mean over seeds, with the standard deviation of scores."""
    if score == "dcr":
        share, copies = rows["dcr_share"].mean(), rows["dcr_share_copies"].mean()
        return f"{share:.3f} ({copies:.3f})" if share == share else number(share)
    if score == "fit_cpu_seconds" and rows[GPU].notna().any():
        return f"{_amount(rows[GPU].mean())} of a GPU"
    values = rows[score].dropna()
    if score in COSTS:
        return _amount(values.mean())
    off = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    return f"{_score(values.mean())}{off}"


def _score(value: float) -> str:
    return number(value, ".3f")


def _amount(value: float) -> str:
    """
    >>> _amount(11643.4), _amount(0.0002)
    ('11,643', '0.00')
    """
    return number(value, ",.0f" if value >= 100 else ".2f")


ROWS = Experiment("quality_diffusion_sets", SETTINGS, RESULTS, _jobs, packages=PACKAGES)
OPTIONS = {"data": DATA, "seeds": 5, "models": MODELS}
TITLE = "Synthetic tables by the metrics of the diffusion literature"
STUDY = Study("benchmarks.quality.diffusion_sets", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
