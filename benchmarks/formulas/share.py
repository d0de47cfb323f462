"""Which share of the AI Feynman equations does a network learn: R2 above 0.999, as in SRBench?

Each model is trained on rows that are drawn from an equation, with noise on the target (a fraction
of its root mean square), and scored without noise: on 1,000 new rows inside the training ranges,
and on 1,000 outside, where ranges are a fifth wider at both ends and at least one variable is in
what was added (rows at which the equation has no value are left out). An equation is learned if R2
is above 0.999. There is one draw of rows and one seed per equation; the unit is the equation.

`default` is `MLPRegressor(n_members=1)`, with CombU and periodic embeddings. The other networks
differ from it in what their names say; `paper's network` is the CombU paper's recipe, `pack` is
`PackRegressor` without boosting. A default network clips its predictions to the range of the
training targets, so it cannot extrapolate. As many equations as time allowed were run, spread
evenly over the list; each table row and claim is about the equations that its models have.

    python -m benchmarks.formulas.share [--quick] [--equations N] [--rows N] [--noise X ...]
        [--models NAME ...] [--data-home FOLDER]

A shorter run does not depend on any result: fewer rows (--rows); the first N equations in the order
of `equations.spread`, which spreads any N evenly over the list; the noise levels in the order
given; the pack, the slowest model, after all others. A run that was stopped is resumed by the same
command.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats
from benchmarks.formulas.equations import Equation, choose_equations, wilson
from combutab import MLPRegressor, PackRegressor, paper_recipe

N_TEST = 1000
LEARNED = 0.999
MARGIN = 0.04  # powers of ten of 1 - R2: a tenth of the error
BASE, COMPLEX, PAPER, PACK = "default", "complex CombU", "paper's network", "pack"
BOOSTING = "gradient boosting"
NETWORKS: dict[str, dict[str, Any]] = {  # beside the defaults: CombU, periodic embeddings
    BASE: {},
    "ReLU": {"activation": "relu"},
    COMPLEX: {"activation": "complex-combu"},
    "no embeddings": {"numeric_embedding": "none"},
    "complex CombU, no embeddings": {"activation": "complex-combu", "numeric_embedding": "none"},
}
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
    equation: Equation, model: str, rows: int, noise: float, data_home: str | None, quick: bool
) -> list[Row]:
    """Fit and score one model; a row."""
    warnings.filterwarnings("ignore")
    n_test = 50 if quick else N_TEST
    X, y = equation.rows(rows, 0, data_home, noise)
    tests = equation.rows(n_test, 10_000, data_home), equation.rows_outside(n_test, 0)
    found: Row = {"has_angles": int(equation.has_angles), "n_outside": len(tests[1][1])}
    started = time.process_time()
    try:
        fitted = make(model, 0, quick).fit(X, y)
        found["cpu_seconds"] = time.process_time() - started
        for name, (new_X, truth) in zip(("r2", "r2_outside"), tests, strict=True):
            if len(truth) > 1:
                found[name] = r2_score(truth, np.asarray(fitted.predict(new_X)))
    except ValueError as error:  # it diverged
        found["error"] = " ".join(str(error).split())
    return [found]


def jobs(arguments: Arguments) -> Iterator[Job]:
    """Equation by equation, so that what is there compares models; the pack at the end."""
    n, rows = (3, 60) if arguments.quick else (arguments.equations, arguments.rows)
    chosen = choose_equations(n, arguments.data_home)
    for last, noise, equation in product((False, True), arguments.noise, chosen):
        for model in [m for m in arguments.models if (m == PACK) == last]:
            values = (equation.name, model, rows, str(noise), 0)
            settings = dict(zip(SETTINGS, values, strict=True))
            task = partial(run, equation, model, rows, noise, arguments.data_home, arguments.quick)
            yield Job([settings], task)


# ---- claims and page ---------------------------------------------------------------------------


def errors(rows: pd.DataFrame, models: list[str], column: str = "r2") -> pd.DataFrame:
    """Equations that all these models have x models: log10 of 1 - R2, at least -12.

    A fit that failed has R2 = 0.
    """
    own = rows[rows["model"].isin(models) & (rows["noise"] == 0)].fillna({column: 0.0})
    wide = own.pivot(index="equation", columns="model", values=column).reindex(columns=models)
    return np.log10((1 - wide.dropna()).clip(lower=1e-12))


def judge(a: str, b: str, how: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    """Judge whether one model's errors are lower than another's, inside; "laws": it learns more."""
    wide = errors(rows[rows["has_angles"] == 1] if how == "angles" else rows, [a, b])
    if how == "laws":
        wide = (wide < np.log10(1 - LEARNED)).astype(float)
        return beats(wide[a], wide[b], bootstrap=True) if len(wide) else None
    return beats(wide[a], wide[b], margin, greater_is_better=False) if len(wide) else None


CLAIMS = tuple(
    Claim(where, text, "equation", partial(judge, a, b, how), 0.0 if how == "laws" else MARGIN,
          "share of equations learned, inside" if how == "laws" else "log10(1 - R2), inside")
    for where, text, a, b, how in (
        ("default", "The default has a smaller error than gradient boosting", BASE, BOOSTING, ""),
        ("CombU paper", "The default has a smaller error than ReLU", BASE, "ReLU", ""),
        ("CombU paper", "The default learns more equations than ReLU", BASE, "ReLU", "laws"),
        ("CombU outlook", "Complex CombU has a smaller error than CombU", COMPLEX, BASE, ""),
        ("CombU outlook", "The same on equations with sine or cosine", COMPLEX, BASE, "angles"),
        ("CombU outlook", "Complex CombU learns more equations than CombU", COMPLEX, BASE, "laws"),
        ("embeddings", "The default has a smaller error than without", BASE, "no embeddings", ""),
        ("recipe", "The default has a smaller error than the paper's network", BASE, PAPER, ""),
        ("pack", "The pack has a smaller error than one network", PACK, BASE, ""),
    )
)  # fmt: skip


def shares(rows: pd.DataFrame) -> list[list[object]]:
    """A line per number of rows, noise and model: laws learned, with Wilson's 95 % interval.

    Of the equations that all models have.
    """
    lines, place = [], ["rows", "noise"]
    n_models = rows.groupby(place)["model"].transform("nunique")
    of_equation = rows.groupby([*place, "equation"])["model"].transform("nunique")
    rows = rows[of_equation == n_models]
    for (n_rows, noise, model), own in rows.groupby(["rows", "noise", "model"], sort=False):
        line = [f"{n_rows:,}", f"{noise:g}", model, len(own), *wilson(own["r2"] > LEARNED)]
        line += [wilson(own["r2_outside"] > LEARNED)[0], f"{own['r2_outside'].median():.2f}"]
        lines.append([*line, f"{own['cpu_seconds'].median():.3g}"])
    return lines


HEAD = ("rows", "noise", "model", "equations", "R2 > 0.999", "95 % interval")
HEAD += ("outside, R2 > 0.999", "outside, median R2", "CPU seconds per fit")


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page: the most rows to learn from first."""
    rows = rows.sort_values(["rows", "noise"], ascending=[False, True], kind="stable")
    by_rows = {f"{n:,} rows": own for n, own in rows.groupby("rows", sort=False)}
    add_claims(page, CLAIMS, by_rows)
    page.table(HEAD, shares(rows[rows["noise"] == 0]))
    with page.details("With noise on the target"):
        page.table(HEAD, shares(rows[rows["noise"] > 0]))


ROWS = Experiment("formulas_share", SETTINGS, RESULTS, jobs, packages=("sklearn", "cpu"))
NOISE = {"type": float, "nargs": "+", "default": [0.0, 0.01, 0.1]}
OPTIONS = {"equations": 120, "rows": 10_000, "noise": NOISE, "models": MODELS}
TITLE = "AI Feynman equations learned from rows"
STUDY = Study("benchmarks.formulas.share", TITLE, __doc__, [ROWS], write_page, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
