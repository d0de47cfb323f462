"""Table 7 asked again of TabFlow: does the denoiser's activation matter to what rows are good for?

    python -m benchmarks.papers.combu.table7_flow [--quick] [--seeds N] [--rows N] [--steps N]
        [--activations NAME ...] [--data NAME ...] [--data-home FOLDER]

TabFlow learns the real training rows of Table 7's two sets (4 of 5) with each activation in every
block, and makes as many. Gradient boosting and a default network learn these and are scored on the
other real rows: mean squared error in variances of the real training rows' target, or 1 - accuracy.
C2ST is how well boosting, cross-validated, tells held-out real rows from as many made (area under
the ROC curve, 0.5 is chance). A seed's activations share rows and all seeds.

The whole, with all rows and TabFlow's own 10,000 steps, five seeds, takes 60 core-hours. Where that
is too much it is cut by rules that look at no result: at most --rows rows to learn from (a random
subset, the same for all) and as many to test on: of 1,000, training ends after some 1,400 steps by
itself; --steps steps of the training; the seeds one after the other, all activations of both sets
before the next. A seed and set counts where all activations have it. A run that was stopped goes on
where it stood.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.pipeline import make_pipeline

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.page import Page, p_text
from benchmarks.common.results import Row
from benchmarks.papers.combu import generation, study
from benchmarks.papers.combu.expected import ACTIVATIONS as PAPER
from benchmarks.papers.combu.figures import plot_radar
from benchmarks.papers.combu.generation import TARGET
from benchmarks.papers.combu.report_text import activation_label
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.table7_generation import DATA
from combutab import MLPClassifier, MLPRegressor, TabFlow
from combutab.evaluation import corrected_resampled_ttest, detection, friedman, holm, mean_ranks
from combutab.preprocessing import TableEncoder

OTHERS = ("mish", "pln-8", "la-silu", "snake", "rational", "blend-silu", "complex-combu")
ACTIVATIONS = (*PAPER, *OTHERS)
REAL = "real"  # the rows learned from, in the place of made ones
STEPS = 10_000  # at most, by default
MEASURES = {"boosting": "boosting", "network": "default network", "c2st": "C2ST"}
SETTINGS = ("data", "activation", "seed", "rows", "steps")
RESULTS = ("n_train", "n_test", *MEASURES, "fit_cpu_seconds", "error")
# all seeds share one split: the correction for overlapping training sets has nothing to correct
ONE_SPLIT = {"n_train": 1e15, "n_test": 1.0}


@lru_cache(maxsize=4)
def real_rows(data: str, rows: int, data_home: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Real rows to learn from, and to test on."""
    parts = generation.split(Source("openml", data, DATA[data], data_home=data_home))
    rng = np.random.default_rng(0)
    train, test = (p.iloc[rng.permutation(len(p))[:rows]].reset_index(drop=True) for p in parts)
    return train, test


def learners(task: str, seed: int, quick: bool) -> dict[str, Any]:
    """What learns from the rows, unfitted."""
    regresses = task == "regression"
    boosting = (
        generation.HistGradientBoostingRegressor
        if regresses
        else generation.HistGradientBoostingClassifier
    )
    network = MLPRegressor if regresses else MLPClassifier
    short = {"max_iter": 2} if quick else {}
    return {
        "boosting": make_pipeline(TableEncoder(min_frequency=1), boosting(random_state=seed)),
        "network": network(random_state=seed, **short),
    }


def run(
    data: str, name: str, seed: int, rows: int, steps: int, data_home: str | None, quick: bool
) -> list[Row]:
    """Train a generator and judge its rows; a row of results."""
    warnings.filterwarnings("ignore")
    train, test = real_rows(data, rows, data_home)
    task, found = DATA[data], {"n_train": len(train), "n_test": len(test), "error": ""}
    made, started = train, time.process_time()
    try:
        if name != REAL:
            model = TabFlow(activation=name, random_state=seed)
            per_epoch = len(train) // model._n_batch(len(train))
            epochs = -(-steps // per_epoch)
            model.set_params(epochs=epochs).fit(train)
            found["fit_cpu_seconds"] = f"{time.process_time() - started:.4g}"
            made = model.sample(len(train), random_state=seed)[list(train)].astype(train.dtypes)
        for learner, estimator in learners(task, seed, quick).items():
            estimator.fit(made.drop(columns=TARGET), made[TARGET])
            scores = study.score(estimator, test.drop(columns=TARGET), test[TARGET], train[TARGET])
            loss = scores["mse"] if task == "regression" else 1 - float(str(scores["accuracy"]))
            found[learner] = f"{loss:.6g}"
        told = detection(
            real=test, synthetic=made[: len(test)], learners="hist_gradient_boosting",
            random_state=seed,
        )  # fmt: skip
        found["c2st"] = f"{told['mean'].iloc[0]:.6g}"
    except ValueError as error:  # it diverged, or made one class
        found["error"] = " ".join(str(error).split())
    return [{key: str(found.get(key, "")) for key in RESULTS}]


def _sizes(arguments: argparse.Namespace) -> tuple[int, int]:
    """Rows to learn from, and steps, at most."""
    return (60, 2) if arguments.quick else (arguments.rows, arguments.steps)


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """Seed by seed, so that what is there compares activations."""
    quick, (rows, steps) = arguments.quick, _sizes(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for seed in range(1 if quick else arguments.seeds):
        for data in arguments.data:
            for name in dict.fromkeys((REAL, *arguments.activations, "combu")):
                values = (data, name, seed, rows, steps)
                settings = dict(zip(SETTINGS, map(str, values), strict=True))
                task = partial(run, *values, arguments.data_home, quick)
                yield Job([settings], task, f"{data}, seed {seed}: {name}")


def complete(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the sets and seeds that all activations have without a failure."""
    good = rows[rows["error"] == ""]
    counts = good.groupby(["data", "seed"])["activation"].transform("nunique")
    return good[counts == rows["activation"].nunique()]


def tests(rows: pd.DataFrame, measure: str) -> tuple[float, pd.Series, pd.DataFrame]:
    """Friedman's p over sets and seeds, mean ranks, and CombU against each, on each set."""
    made = rows[rows["activation"] != REAL]
    wide = made.pivot(index=["data", "seed"], columns="activation", values=measure)
    ranks = mean_ranks(wide, greater_is_better=False)
    found = []
    for data, own in wide.groupby(level="data", sort=False):
        if len(own) < 2:
            continue
        for other in own.columns.drop("combu"):
            p = corrected_resampled_ttest(own["combu"], own[other], **ONE_SPLIT).pvalue
            lead = float((own[other] - own["combu"]).mean())
            found.append({"data": data, "other": other, "lead": lead, "p": p})
    table = pd.DataFrame(found, columns=["data", "other", "lead", "p"])
    table["p"] = holm(table["p"]) if len(table) else table["p"]
    several = len(wide) > 1 and wide.shape[1] > 2
    return friedman(wide).pvalue if several else np.nan, ranks, table


def _short(data: str) -> str:
    """A set's name without what its kind adds."""
    return data.removesuffix("_housing").removesuffix("Websites")


def radar(rows: pd.DataFrame) -> pd.DataFrame:
    """Scale each set and measure by its range over the activations: 1 is the best, 0 the worst."""
    made = rows[rows["activation"] != REAL]
    spokes = {}
    for measure, label in MEASURES.items():
        means = made.groupby(["data", "activation"], sort=False)[measure].mean().unstack()
        for data, own in means.iterrows():
            own = own[list(dict.fromkeys(made["activation"]))]
            spokes[f"{_short(str(data))}\n{label}"] = (own.max() - own) / max(np.ptp(own), 1e-12)
    return pd.DataFrame(spokes).T


def _trained(steps: int) -> str:
    if steps >= STEPS:
        return "All else is TabFlow's own: its training ends by the loss of rows that it holds out."
    return (
        f"{steps:,} training steps instead of {STEPS:,} at most: networks far from trained through,"
        " so that a difference which is not seen here says little of longer training."
    )


def write_page(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """Fill the page."""
    n_rows, n_steps = _sizes(arguments)
    rows = rows[(rows["rows"] == n_rows) & (rows["steps"] == n_steps)]
    rows = rows.assign(error=rows["error"].fillna(""))
    same = complete(rows)
    blocks = same.groupby("data", sort=False)["seed"].nunique().to_dict()
    there = ", ".join(f"{name}: {n} of 5" for name, n in blocks.items()) or "none"
    page.text(
        "TabFlow with each activation in every block of both of its networks; its default is SiLU "
        "(Swish). Gradient boosting and `MLPRegressor()` or `MLPClassifier()` learn from as many "
        "rows as it learned from: mean squared error in variances of the target, or 1 - accuracy, "
        "on real rows. Lower is better in all three measures.",
        "**What was cut, by the rule in the study's text**, written beforehand: "
        f"{n_rows:,} rows to learn from, and seeds as the time allowed ({there}). "
        + _trained(n_steps),
    )
    if same.empty:
        page.text("No seed has all activations yet.")
        return
    names = [REAL, *(n for n in dict.fromkeys(rows["activation"]) if n != REAL)]
    page.heading("Means over seeds")
    means = same.groupby(["activation", "data"])[[*MEASURES]].mean()
    head = [f"{_short(data)}, {label}" for data in blocks for label in MEASURES.values()]
    page.table(
        ["", *head],
        [
            ["real rows" if name == REAL else activation_label(name)]
            + [f"{means.loc[(name, data), m]:.3f}" for data in blocks for m in MEASURES]
            for name in names
        ],
    )
    page.heading("Does the activation matter?")
    lines = []
    for measure, label in MEASURES.items():
        p, ranks, table = tests(same, measure)
        first, last = ranks.idxmin(), ranks.idxmax()
        sure = table[table["p"] < 0.05]
        pairs = f"{(sure['lead'] > 0).sum()} better, {(sure['lead'] < 0).sum()} worse"
        lines.append(
            [label, "—" if np.isnan(p) else p_text(p),
             f"{activation_label(first)} {ranks[first]:.1f}",
             f"{activation_label(last)} {ranks[last]:.1f}", f"{ranks['combu']:.1f}",
             f"{pairs} of {len(table)}" if len(table) else "one seed: no test"]
        )  # fmt: skip
    page.table(
        ["measure", "Friedman", "best mean rank", "worst", "CombU's", "CombU against others"], lines
    )
    page.text(
        "Friedman's test over sets and seeds; CombU against each other on each set by t-tests, "
        "paired by seed, Holm-adjusted, 5 %. The seeds share one split of the rows."
    )
    page.figure(
        plot_radar({"TabFlow": radar(same)}),
        "Each set and measure scaled by its range over the activations: at the rim the best",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", choices=[*DATA], default=[*DATA])
    parser.add_argument("--seeds", type=int, default=5, help="of the generators (%(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="at most (%(default)s)")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help="of training, at most (%(default)s)"
    )
    parser.add_argument(
        "--activations", nargs="+", default=[*ACTIVATIONS], metavar="NAME", help="beside CombU"
    )
    parser.add_argument("--threads", type=int, help="of torch; as many as there are by default")
    parser.add_argument("--data-home", help="folder of local copies of the data")


ROWS = Experiment("table7_flow", SETTINGS, RESULTS, jobs, packages=("sklearn", "cpu"))
STUDY = Study(
    "table7_flow",
    "Table 7 of the CombU paper, asked of TabFlow",
    __doc__.splitlines()[0],
    "benchmarks.papers.combu.table7_flow",
    [ROWS],
    write_page,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
