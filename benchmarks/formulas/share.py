"""Which share of the Feynman equations does a network learn: R2 above 0.999, as SRBench counts?

Each model learns rows drawn from an equation, with noise on the target of a fraction of its root
mean square, and is asked for the law itself: at 1,000 new rows inside the ranges, and at 1,000
outside, where ranges are a fifth wider at both ends and one variable at least is in what was added
(rows at which the law has no value are left out). A law is learned where R2 is above 0.999.

    python -m benchmarks.formulas.share [--quick] [--equations N] [--rows N] [--noise X ...]
        [--models NAME ...] [--data-home FOLDER]

The whole, 120 equations of 10,000 rows and three noise levels, takes 20 core-hours. Where that is
too much it is cut by rules that look at no result: fewer rows (--rows); the first N equations in
the order of `equations.spread`, which spreads any N evenly over the tables; the noise levels in the
order given; the pack, the dearest, after all others. A table compares the equations that all its
models have. A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.results import Row
from benchmarks.formulas.equations import Equation, choose_equations
from benchmarks.formulas.share_report import BASE, write_page
from combutab import MLPRegressor, PackRegressor, paper_recipe

N_TEST = 1000
PACK = "pack"
NETWORKS: dict[str, dict[str, Any]] = {  # beside the defaults: CombU, periodic embeddings
    BASE: {},
    "ReLU": {"activation": "relu"},
    "complex CombU": {"activation": "complex-combu"},
    "no embeddings": {"numeric_embedding": "none"},
    "complex CombU, no embeddings": {"activation": "complex-combu", "numeric_embedding": "none"},
}
BOOSTING, PAPER = "gradient boosting", "paper's network"
MODELS = (BOOSTING, *NETWORKS, PAPER, PACK)
SETTINGS = ("equation", "model", "rows", "noise", "seed")
RESULTS = ("has_angles", "r2", "r2_outside", "n_outside", "cpu_seconds", "error")


def make(model: str, seed: int, quick: bool) -> Any:
    """The unfitted model, all but the named settings as by default."""
    short = {"max_iter": 2} if quick else {}
    if model == BOOSTING:
        return HistGradientBoostingRegressor(random_state=seed)
    if model == PACK:
        return PackRegressor(cv=None, boosting=False, random_state=seed, **short)
    if model == PAPER:
        return MLPRegressor(**paper_recipe("regression", random_state=seed, **short))
    return MLPRegressor(**NETWORKS[model], **short, n_members=1, random_state=seed)


def run(
    equation: Equation,
    model: str,
    rows: int,
    noise: float,
    seed: int,
    data_home: str | None,
    quick: bool,
) -> list[Row]:
    """Fit and score one model; a row."""
    warnings.filterwarnings("ignore")
    n_test = 50 if quick else N_TEST
    X, y = equation.rows(rows, seed, data_home, noise)
    tests = equation.rows(n_test, seed + 10_000, data_home), equation.rows_outside(n_test, seed)
    found: dict[str, object] = {
        "has_angles": int(equation.has_angles),
        "n_outside": len(tests[1][1]),
    }
    started = time.process_time()
    try:
        fitted = make(model, seed, quick).fit(X, y)
        found["cpu_seconds"] = f"{time.process_time() - started:.3g}"
        for name, (new_X, truth) in zip(("r2", "r2_outside"), tests, strict=True):
            if len(truth) > 1:
                found[name] = f"{r2_score(truth, np.asarray(fitted.predict(new_X))):.8g}"
    except ValueError as error:  # it diverged
        found["error"] = " ".join(str(error).split())
    return [{name: str(found.get(name, "")) for name in RESULTS}]


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """Equation by equation, so that what is there compares models; the pack at the end."""
    n, rows = (3, 60) if arguments.quick else (arguments.equations, arguments.rows)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    chosen = choose_equations(n, arguments.data_home)
    groups = [[m for m in arguments.models if (m == PACK) == last] for last in (False, True)]
    for models in groups:
        for noise in arguments.noise:
            for equation in chosen:
                for model in models:
                    values = (equation.name, model, rows, noise, 0)
                    settings = dict(zip(SETTINGS, map(str, values), strict=True))
                    task = (equation, model, rows, noise, 0, arguments.data_home, arguments.quick)
                    label = f"{equation.name}, noise {noise:g}: {model}"
                    yield Job([settings], partial(run, *task), label)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--equations", type=int, default=120, help="so many (%(default)s)")
    parser.add_argument("--rows", type=int, default=10_000, help="to learn from (%(default)s)")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.1])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--threads", type=int, help="of torch; as many as there are by default")
    parser.add_argument("--data-home", help="folder of the Feynman tables")


ROWS = Experiment("formulas_share", SETTINGS, RESULTS, jobs, packages=("sklearn", "cpu"))
STUDY = Study(
    "formulas_share",
    "Which laws are learned from rows?",
    __doc__.splitlines()[0],
    "benchmarks.formulas.share",
    [ROWS],
    write_page,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
