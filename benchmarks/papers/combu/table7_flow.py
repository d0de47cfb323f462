"""Does the activation of TabFlow's denoiser change the utility of its synthetic rows?

Table 7 of the CombU paper, repeated with TabFlow. TabFlow is trained on the real training rows of
the two tables with each activation in every block (the default is Swish), and generates as many
rows. Training rows: 1,000, a random subset that is the same for all, since all rows would take 60
core-hours; at most 10,000 steps, of which it takes some 1,400 before the loss of held-out rows
stops it.

- "boosting" and "network": gradient boosting and a default `MLPRegressor()` or `MLPClassifier()`
  are trained on the synthetic rows and scored on 1,000 other real rows: mean squared error as a
  fraction of the variance of the training target, or 1 - accuracy. Lower is better.
- "c2st": the cross-validated ROC AUC of gradient boosting between held-out real rows and as many
  synthetic rows; 0.5 (chance) is best.

The unit is the seed. All activations of a seed share rows and random numbers. The seeds share one
split, so the verdicts do not generalise to other rows.

    python -m benchmarks.papers.combu.table7_flow [--quick] [--seeds N] [--rows N]
        [--data-home FOLDER] [--out FOLDER]

--rows limits the training and test rows. A run that was stopped is resumed by the same command.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.verdicts import Claim, Verdict, add_claims, by_unit, matches
from benchmarks.papers.combu import generation, report, study
from benchmarks.papers.combu.expected import ACTIVATIONS as PAPER
from benchmarks.papers.combu.generation import REAL, TARGET
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.table7_generation import DATA, ONE_SPLIT
from combutab import MLPClassifier, MLPRegressor, TabFlow
from combutab.evaluation import detection

OTHERS = ("mish", "pln-8", "la-silu", "snake", "rational", "blend-silu", "complex-combu")
ACTIVATIONS = (*PAPER, *OTHERS)
MEASURES = ("boosting", "network", "c2st")
SETTINGS = ("data", "activation", "seed", "rows", "steps")
RESULTS = ("n_train", "n_test", *MEASURES, "fit_cpu_seconds", "error")
STEPS = 10_000  # at most, TabFlow's own
MARGIN = 0.02  # of the target's variance, of the error rate, of the area


@lru_cache(maxsize=4)
def real_rows(data: str, rows: int, data_home: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Real rows to learn from, and to test on."""
    parts = generation.split(Source("openml", data, DATA[data], data_home=data_home))
    rng = np.random.default_rng(0)
    train, test = (p.iloc[rng.permutation(len(p))[:rows]].reset_index(drop=True) for p in parts)
    return train, test


def run(
    data: str, name: str, seed: int, rows: int, steps: int, data_home: str | None, quick: bool
) -> list[Row]:
    """Train a generator and judge its rows; a row of results."""
    warnings.filterwarnings("ignore")
    train, test = real_rows(data, rows, data_home)
    task, found = DATA[data], {"n_train": len(train), "n_test": len(test)}
    network = MLPRegressor if task == "regression" else MLPClassifier
    learners = {
        "boosting": generation.boosting(task, seed),
        "network": network(random_state=seed, **({"max_iter": 2} if quick else {})),
    }
    made, started = train, time.process_time()
    try:
        if name != REAL:
            model = TabFlow(activation=name, random_state=seed)
            per_epoch = len(train) // model._n_batch(len(train))
            model.set_params(epochs=-(-steps // per_epoch)).fit(train)
            found["fit_cpu_seconds"] = time.process_time() - started
            made = model.sample(len(train), random_state=seed)[list(train)].astype(train.dtypes)
        for learner, estimator in learners.items():
            estimator.fit(made.drop(columns=TARGET), made[TARGET])
            scores = study.score(estimator, test.drop(columns=TARGET), test[TARGET], train[TARGET])
            found[learner] = scores["mse"] if task == "regression" else 1 - scores["accuracy"]
        told = detection(
            real=test, synthetic=made[: len(test)], learners="hist_gradient_boosting",
            random_state=seed,
        )  # fmt: skip
        found["c2st"] = told["mean"].iloc[0]
    except ValueError as error:  # it diverged, or made one class
        found["error"] = " ".join(str(error).split())
    return [found]


def jobs(arguments: Arguments) -> Iterator[Job]:
    """Seed by seed, so that what is there compares activations."""
    names = (REAL, "combu", "swish") if arguments.quick else (REAL, *ACTIVATIONS)
    seeds = range(1 if arguments.quick else arguments.seeds)
    sizes = (60, 2) if arguments.quick else (arguments.rows, STEPS)
    for seed, data, name in product(seeds, DATA, names):
        values = (data, name, seed, *sizes)
        settings = dict(zip(SETTINGS, values, strict=True))
        task = partial(run, *values, arguments.data_home, arguments.quick)
        yield Job([settings], task)


def judge(data: str, measure: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    """Judge whether CombU's rows are as good as Swish's, TabFlow's default."""
    own = rows[(rows["data"] == data) & rows["activation"].isin(["combu", "swish"])]
    if own["activation"].nunique() < 2:
        return None
    wide = by_unit(own, measure, "seed")
    return matches(wide["combu"], wide["swish"], margin)


CLAIMS = tuple(
    Claim("Table 7, repeated", f"TabFlow, {data}: CombU's rows are as good as Swish's by {measure}",
          "generator seed of one split", partial(judge, data, measure), MARGIN, measure)
    for data, measure in product(DATA, MEASURES)
)  # fmt: skip


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page."""
    add_claims(page, CLAIMS, {"verdict": rows})
    made = rows[rows["activation"] != REAL]
    report.add_units(page, made, MEASURES, "seed", **ONE_SPLIT)
    means = rows.groupby(["activation", "data"], sort=False)[[*MEASURES]].mean().unstack("data")
    with page.details("Means over seeds"):
        values = [[report.label(x[0]), *(f"{v:.3f}" for v in x[1:])] for x in means.itertuples()]
        page.table(["activation", *(f"{data}, {measure}" for measure, data in means)], values)


ROWS = Experiment("table7_flow", SETTINGS, RESULTS, jobs, packages=("sklearn", "cpu"))
TITLE = "Table 7 of the CombU paper, repeated with TabFlow"
MODULE = "benchmarks.papers.combu.table7_flow"
STUDY = Study(MODULE, TITLE, __doc__, [ROWS], write_page, {"seeds": 5, "rows": 1_000})

if __name__ == "__main__":
    STUDY.main()
